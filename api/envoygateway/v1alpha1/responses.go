package v1alpha1

import (
	"k8s.io/apimachinery/pkg/api/resource"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"
)

// Compressor is an encoding that responses are compressed with. It is turned off where the block of its type is not there.
type Compressor struct {
	// Type is which.
	//
	// +kubebuilder:validation:Enum=Gzip;Brotli;Zstd
	Type string `json:"type"`

	// Brotli turns that type on.
	//
	// +optional
	Brotli *BrotliCompressor `json:"brotli,omitempty"`

	// Gzip turns that type on.
	//
	// +optional
	Gzip *GzipCompressor `json:"gzip,omitempty"`

	// Zstd turns that type on.
	//
	// +optional
	Zstd *ZstdCompressor `json:"zstd,omitempty"`

	// MinContentLength is from how many bytes on; unset is 30.
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

// ResponseOverride is a response that takes the place of others.
//
// +kubebuilder:validation:XValidation:rule="has(self.response) != has(self.redirect)",message="exactly one of response and redirect must be set"
type ResponseOverride struct {
	// Match is which others.
	Match CustomResponseMatch `json:"match"`

	// Response is what is sent.
	//
	// +optional
	Response *CustomResponse `json:"response,omitempty"`

	// Redirect is where clients are sent.
	//
	// +optional
	Redirect *CustomRedirect `json:"redirect,omitempty"`

	// Source is whose responses: Local are those of the proxy itself; unset is All.
	//
	// +optional
	// +kubebuilder:validation:Enum=All;Local;Backend
	Source *string `json:"source,omitempty"`
}

// CustomResponseMatch is which responses.
//
// +kubebuilder:validation:XValidation:rule="has(self.statusCodes) || has(self.responseHeaders)",message="one of statusCodes and responseHeaders must be set"
type CustomResponseMatch struct {
	// StatusCodes are status codes, one of them.
	//
	// +optional
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=50
	StatusCodes []StatusCodeMatch `json:"statusCodes,omitempty"`

	// ResponseHeaders are headers, all of them.
	//
	// +optional
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	ResponseHeaders []ResponseHeaderMatch `json:"responseHeaders,omitempty"`
}

// StatusCodeMatch is a status code, or a range.
//
// +kubebuilder:validation:XValidation:rule="(!has(self.type) || self.type == 'Value') ? has(self.value) : true",message="value must be set where type is Value"
// +kubebuilder:validation:XValidation:rule="(has(self.type) && self.type == 'Range') ? has(self.range) : true",message="range must be set where type is Range"
type StatusCodeMatch struct {
	// Type is which of both.
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

// StatusCodeRange is a range, both ends included.
//
// +kubebuilder:validation:XValidation:rule="self.end > self.start",message="end must be greater than start"
type StatusCodeRange struct {
	// Start is the first.
	Start int `json:"start"`

	// End is the last.
	End int `json:"end"`
}

// ResponseHeaderMatch is a header.
type ResponseHeaderMatch struct {
	// Name is its name.
	Name gwv1.HTTPHeaderName `json:"name"`

	// Value is what it is compared with.
	Value StringMatch `json:"value"`
}

// StringMatch is what a string is compared with.
type StringMatch struct {
	// Type is how.
	//
	// +optional
	// +kubebuilder:validation:Enum=Exact;Prefix;Suffix;RegularExpression
	// +kubebuilder:default=Exact
	Type *string `json:"type,omitempty"`

	// Value is with what.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	Value string `json:"value"`
}

// CustomResponse is what is sent.
type CustomResponse struct {
	// ContentType is that of the body.
	//
	// +optional
	ContentType *string `json:"contentType,omitempty"`

	// StatusCode is the code; unset is that of the other.
	//
	// +optional
	StatusCode *int `json:"statusCode,omitempty"`

	// Body is the body; unset is that of the other.
	//
	// +optional
	Body *CustomResponseBody `json:"body,omitempty"`

	// Header are headers that are set and added.
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
	// Type is where it is.
	//
	// +kubebuilder:validation:Enum=Inline;ValueRef
	// +kubebuilder:default=Inline
	Type *string `json:"type"`

	// Inline is the body.
	//
	// +optional
	Inline *string `json:"inline,omitempty"`

	// ValueRef is a ConfigMap in the policy's namespace that has it under key response.body, or else under its first.
	//
	// +optional
	ValueRef *gwv1.LocalObjectReference `json:"valueRef,omitempty"`
}

// CustomRedirect is where clients are sent. What is unset is as in the request.
type CustomRedirect struct {
	// Scheme is that of the location.
	//
	// +optional
	// +kubebuilder:validation:Enum=http;https
	Scheme *string `json:"scheme,omitempty"`

	// Hostname is that of the location.
	//
	// +optional
	Hostname *gwv1.PreciseHostname `json:"hostname,omitempty"`

	// Path is that of the location.
	//
	// +optional
	// +kubebuilder:validation:XValidation:rule="self.type == 'ReplaceFullPath'",message="only ReplaceFullPath is supported"
	Path *gwv1.HTTPPathModifier `json:"path,omitempty"`

	// Port is that of the location.
	//
	// +optional
	Port *gwv1.PortNumber `json:"port,omitempty"`

	// StatusCode is the code.
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
	// Type is its name, such as websocket, or CONNECT.
	Type string `json:"type"`

	// Connect is for CONNECT.
	//
	// +optional
	Connect *ConnectConfig `json:"connect,omitempty"`
}

// ConnectConfig is for CONNECT.
type ConnectConfig struct {
	// Terminate has the tunnel end here, and its bytes go to the backend without HTTP.
	//
	// +optional
	Terminate *bool `json:"terminate,omitempty"`
}

// RequestBuffer has the body of a request read whole.
type RequestBuffer struct {
	// Limit is how many bytes at most; more are answered 413.
	//
	// +optional
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:Pattern="^[1-9]+[0-9]*([EPTGMK]i|[EPTGMk])?$"
	Limit resource.Quantity `json:"limit,omitempty"`
}

// BackendTelemetry is how requests are traced and counted.
type BackendTelemetry struct {
	// Tracing is about spans.
	//
	// +optional
	Tracing *Tracing `json:"tracing,omitempty"`

	// Metrics is about metrics.
	//
	// +optional
	Metrics *BackendMetrics `json:"metrics,omitempty"`
}

// Tracing is about spans.
type Tracing struct {
	// SamplingFraction is the share that is recorded of the requests that bring no decision.
	//
	// +optional
	SamplingFraction *gwv1.Fraction `json:"samplingFraction,omitempty"`

	// ClientSamplingFraction is the share that is recorded of the requests whose client asks for it.
	//
	// +optional
	ClientSamplingFraction *gwv1.Fraction `json:"clientSamplingFraction,omitempty"`

	// OverallSamplingFraction is the share that is recorded of all requests that would be by the others.
	//
	// +optional
	OverallSamplingFraction *gwv1.Fraction `json:"overallSamplingFraction,omitempty"`

	// CustomTags are attributes in the way that was there before Tags, which are in force where both have a name.
	//
	// +optional
	CustomTags map[string]CustomTag `json:"customTags,omitempty"`

	// Tags are attributes of spans, whose values may have operators such as %REQ(X-User)%.
	//
	// +optional
	Tags map[string]string `json:"tags,omitempty"`

	// SpanName is what spans are called.
	//
	// +optional
	SpanName *TracingSpanName `json:"spanName,omitempty"`
}

// TracingSpanName is what spans are called. The names may have operators such as %REQ(:METHOD)%.
type TracingSpanName struct {
	// Client is the name of the spans of requests.
	Client string `json:"client"`

	// Server is the name of spans of what is sent to backends.
	Server string `json:"server"`
}

// CustomTag is an attribute.
type CustomTag struct {
	// Type is where its value comes from.
	//
	// +kubebuilder:validation:Enum=Literal;Environment;RequestHeader
	Type string `json:"type"`

	// Literal is a value.
	//
	// +optional
	Literal *LiteralCustomTag `json:"literal,omitempty"`

	// Environment is a variable of the proxy's: HOSTNAME, NODE_NAME, POD_IP, POD_NAME or POD_NAMESPACE.
	//
	// +optional
	Environment *EnvironmentCustomTag `json:"environment,omitempty"`

	// RequestHeader is a header.
	//
	// +optional
	RequestHeader *RequestHeaderCustomTag `json:"requestHeader,omitempty"`
}

// LiteralCustomTag is a value.
type LiteralCustomTag struct {
	// Value is it.
	Value string `json:"value"`
}

// EnvironmentCustomTag is a variable.
type EnvironmentCustomTag struct {
	// Name is the variable's.
	Name string `json:"name"`

	// DefaultValue is used where it is not set.
	//
	// +optional
	DefaultValue *string `json:"defaultValue,omitempty"`
}

// RequestHeaderCustomTag is a header.
type RequestHeaderCustomTag struct {
	// Name is the header's.
	Name string `json:"name"`

	// DefaultValue is used where it is not there.
	//
	// +optional
	DefaultValue *string `json:"defaultValue,omitempty"`
}

// BackendMetrics is about metrics.
type BackendMetrics struct {
	// RouteStatName is what requests of a route are counted by, with the operators %ROUTE_NAME%, %ROUTE_NAMESPACE%, %ROUTE_KIND% and %ROUTE_RULE_NAME%.
	//
	// +optional
	RouteStatName *string `json:"routeStatName,omitempty"`
}
