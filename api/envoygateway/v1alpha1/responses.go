package v1alpha1

import (
	"k8s.io/apimachinery/pkg/api/resource"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"
)

// Compressor is an encoding for the compression of responses. It is enabled only if the field for its type is set.
type Compressor struct {
	// Type is the type of the encoding.
	//
	// +kubebuilder:validation:Enum=Gzip;Brotli;Zstd
	Type string `json:"type"`

	// Brotli enables the type Brotli.
	//
	// +optional
	Brotli *BrotliCompressor `json:"brotli,omitempty"`

	// Gzip enables the type Gzip.
	//
	// +optional
	Gzip *GzipCompressor `json:"gzip,omitempty"`

	// Zstd enables the type Zstd.
	//
	// +optional
	Zstd *ZstdCompressor `json:"zstd,omitempty"`

	// MinContentLength is the minimum length of a response to compress, in bytes. Defaults to 30.
	//
	// +optional
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:Pattern="^[1-9]+[0-9]*([EPTGMK]i|[EPTGMk])?$"
	MinContentLength *resource.Quantity `json:"minContentLength,omitempty"`
}

// BrotliCompressor has no settings.
type BrotliCompressor struct{}

// GzipCompressor has no settings.
type GzipCompressor struct{}

// ZstdCompressor has no settings.
type ZstdCompressor struct{}

// ResponseOverride replaces responses.
//
// +kubebuilder:validation:XValidation:rule="has(self.response) != has(self.redirect)",message="exactly one of response and redirect must be set"
type ResponseOverride struct {
	// Match selects the responses to replace.
	Match CustomResponseMatch `json:"match"`

	// Response is the response to send.
	//
	// +optional
	Response *CustomResponse `json:"response,omitempty"`

	// Redirect redirects clients.
	//
	// +optional
	Redirect *CustomRedirect `json:"redirect,omitempty"`

	// Source selects responses by their source. Local means responses of the proxy itself. Defaults to All.
	//
	// +optional
	// +kubebuilder:validation:Enum=All;Local;Backend
	Source *string `json:"source,omitempty"`
}

// CustomResponseMatch selects responses.
//
// +kubebuilder:validation:XValidation:rule="has(self.statusCodes) || has(self.responseHeaders)",message="one of statusCodes and responseHeaders must be set"
type CustomResponseMatch struct {
	// StatusCodes are status codes, one of which must match.
	//
	// +optional
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=50
	StatusCodes []StatusCodeMatch `json:"statusCodes,omitempty"`

	// ResponseHeaders are conditions on headers, all of which must be met.
	//
	// +optional
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	ResponseHeaders []ResponseHeaderMatch `json:"responseHeaders,omitempty"`
}

// StatusCodeMatch is a status code or a range.
//
// +kubebuilder:validation:XValidation:rule="(!has(self.type) || self.type == 'Value') ? has(self.value) : true",message="value must be set where type is Value"
// +kubebuilder:validation:XValidation:rule="(has(self.type) && self.type == 'Range') ? has(self.range) : true",message="range must be set where type is Range"
type StatusCodeMatch struct {
	// Type specifies whether it is a code or a range.
	//
	// +kubebuilder:validation:Enum=Value;Range
	// +kubebuilder:default=Value
	Type *string `json:"type"`

	// Value is the code.
	//
	// +optional
	Value *int `json:"value,omitempty"`

	// Range is the range.
	//
	// +optional
	Range *StatusCodeRange `json:"range,omitempty"`
}

// StatusCodeRange is a range of status codes, including both ends.
//
// +kubebuilder:validation:XValidation:rule="self.end > self.start",message="end must be greater than start"
type StatusCodeRange struct {
	// Start is the first code.
	Start int `json:"start"`

	// End is the last code.
	End int `json:"end"`
}

// ResponseHeaderMatch is a condition on a header.
type ResponseHeaderMatch struct {
	// Name is the name of the header.
	Name gwv1.HTTPHeaderName `json:"name"`

	// Value is the value to compare with.
	Value StringMatch `json:"value"`
}

// StringMatch compares a string.
type StringMatch struct {
	// Type specifies how the string is compared.
	//
	// +optional
	// +kubebuilder:validation:Enum=Exact;Prefix;Suffix;RegularExpression
	// +kubebuilder:default=Exact
	Type *string `json:"type,omitempty"`

	// Value is the value to compare with.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	Value string `json:"value"`
}

// CustomResponse is the response to send.
type CustomResponse struct {
	// ContentType is the content type of the body.
	//
	// +optional
	ContentType *string `json:"contentType,omitempty"`

	// StatusCode is the status code. Defaults to that of the original response.
	//
	// +optional
	StatusCode *int `json:"statusCode,omitempty"`

	// Body is the body. Defaults to that of the original response.
	//
	// +optional
	Body *CustomResponseBody `json:"body,omitempty"`

	// Header are headers to set and add.
	//
	// +optional
	// +kubebuilder:validation:XValidation:rule="!has(self.remove) || size(self.remove) == 0",message="header.remove is not supported"
	Header *gwv1.HTTPHeaderFilter `json:"header,omitempty"`
}

// CustomResponseBody is a body.
//
// +kubebuilder:validation:XValidation:rule="(!has(self.type) || self.type == 'Inline') ? has(self.inline) : true",message="inline must be set where type is Inline"
// +kubebuilder:validation:XValidation:rule="(has(self.type) && self.type == 'ValueRef') ? has(self.valueRef) : true",message="valueRef must be set where type is ValueRef"
// +kubebuilder:validation:XValidation:rule="has(self.valueRef) ? self.valueRef.kind == 'ConfigMap' : true",message="valueRef must be to a ConfigMap"
type CustomResponseBody struct {
	// Type specifies where the body comes from.
	//
	// +kubebuilder:validation:Enum=Inline;ValueRef
	// +kubebuilder:default=Inline
	Type *string `json:"type"`

	// Inline is the body.
	//
	// +optional
	Inline *string `json:"inline,omitempty"`

	// ValueRef refers to a ConfigMap in the policy's namespace that has the body under the key response.body, or else under its first key.
	//
	// +optional
	ValueRef *gwv1.LocalObjectReference `json:"valueRef,omitempty"`
}

// CustomRedirect redirects clients. Parts of the URL that are not set are those of the request.
type CustomRedirect struct {
	// Scheme is the scheme of the location.
	//
	// +optional
	// +kubebuilder:validation:Enum=http;https
	Scheme *string `json:"scheme,omitempty"`

	// Hostname is the hostname of the location.
	//
	// +optional
	Hostname *gwv1.PreciseHostname `json:"hostname,omitempty"`

	// Path is the path of the location.
	//
	// +optional
	// +kubebuilder:validation:XValidation:rule="self.type == 'ReplaceFullPath'",message="only ReplaceFullPath is supported"
	Path *gwv1.HTTPPathModifier `json:"path,omitempty"`

	// Port is the port of the location.
	//
	// +optional
	Port *gwv1.PortNumber `json:"port,omitempty"`

	// StatusCode is the status code of the redirect.
	//
	// +optional
	// +kubebuilder:default=302
	// +kubebuilder:validation:Enum=301;302
	StatusCode *int `json:"statusCode,omitempty"`
}

// ProtocolUpgrade is a protocol that clients may switch to.
//
// +kubebuilder:validation:XValidation:rule="!has(self.connect) || self.type == 'CONNECT'",message="connect can be set where type is CONNECT"
type ProtocolUpgrade struct {
	// Type is the name of the protocol, such as websocket, or CONNECT.
	Type string `json:"type"`

	// Connect configures CONNECT.
	//
	// +optional
	Connect *ConnectConfig `json:"connect,omitempty"`
}

// ConnectConfig configures CONNECT.
type ConnectConfig struct {
	// Terminate ends the tunnel in the proxy, which sends its bytes to the backend without HTTP.
	//
	// +optional
	Terminate *bool `json:"terminate,omitempty"`
}

// RequestBuffer reads the complete body of a request before the request is sent to a backend.
type RequestBuffer struct {
	// Limit is the maximum length of the body. Longer requests are answered with 413.
	//
	// +optional
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:Pattern="^[1-9]+[0-9]*([EPTGMK]i|[EPTGMk])?$"
	Limit resource.Quantity `json:"limit,omitempty"`
}

// BackendTelemetry configures how requests are traced and counted.
type BackendTelemetry struct {
	// Tracing configures traces.
	//
	// +optional
	Tracing *Tracing `json:"tracing,omitempty"`

	// Metrics configures metrics.
	//
	// +optional
	Metrics *BackendMetrics `json:"metrics,omitempty"`
}

// Tracing configures traces.
type Tracing struct {
	// SamplingFraction is the fraction of requests without a sampling decision that is recorded.
	//
	// +optional
	SamplingFraction *gwv1.Fraction `json:"samplingFraction,omitempty"`

	// ClientSamplingFraction is the fraction of requests whose client asks to be traced that is recorded.
	//
	// +optional
	ClientSamplingFraction *gwv1.Fraction `json:"clientSamplingFraction,omitempty"`

	// OverallSamplingFraction is the fraction of the requests selected by the other fields that is recorded.
	//
	// +optional
	OverallSamplingFraction *gwv1.Fraction `json:"overallSamplingFraction,omitempty"`

	// CustomTags are attributes of spans in an older format. If tags has the same name, that is used.
	//
	// +optional
	CustomTags map[string]CustomTag `json:"customTags,omitempty"`

	// Tags are attributes of spans. Values may contain operators such as %REQ(X-User)%.
	//
	// +optional
	Tags map[string]string `json:"tags,omitempty"`

	// SpanName configures the names of spans.
	//
	// +optional
	SpanName *TracingSpanName `json:"spanName,omitempty"`
}

// TracingSpanName configures the names of spans. They may contain operators such as %REQ(:METHOD)%.
type TracingSpanName struct {
	// Client is the name of the spans of requests.
	Client string `json:"client"`

	// Server is the name of the spans of requests to backends.
	Server string `json:"server"`
}

// CustomTag is an attribute of spans.
type CustomTag struct {
	// Type specifies where the value comes from.
	//
	// +kubebuilder:validation:Enum=Literal;Environment;RequestHeader
	Type string `json:"type"`

	// Literal is a fixed value.
	//
	// +optional
	Literal *LiteralCustomTag `json:"literal,omitempty"`

	// Environment is an environment variable of the proxy: HOSTNAME, NODE_NAME, POD_IP, POD_NAME or POD_NAMESPACE.
	//
	// +optional
	Environment *EnvironmentCustomTag `json:"environment,omitempty"`

	// RequestHeader is a request header.
	//
	// +optional
	RequestHeader *RequestHeaderCustomTag `json:"requestHeader,omitempty"`
}

// LiteralCustomTag is a fixed value.
type LiteralCustomTag struct {
	// Value is the value.
	Value string `json:"value"`
}

// EnvironmentCustomTag is an environment variable.
type EnvironmentCustomTag struct {
	// Name is the name of the variable.
	Name string `json:"name"`

	// DefaultValue is used if the variable is not set.
	//
	// +optional
	DefaultValue *string `json:"defaultValue,omitempty"`
}

// RequestHeaderCustomTag is a request header.
type RequestHeaderCustomTag struct {
	// Name is the name of the header.
	Name string `json:"name"`

	// DefaultValue is used if the header is not present.
	//
	// +optional
	DefaultValue *string `json:"defaultValue,omitempty"`
}

// BackendMetrics configures metrics.
type BackendMetrics struct {
	// RouteStatName is the name under which requests of a route are counted. It may contain the operators %ROUTE_NAME%, %ROUTE_NAMESPACE%, %ROUTE_KIND% and %ROUTE_RULE_NAME%.
	//
	// +optional
	RouteStatName *string `json:"routeStatName,omitempty"`
}
