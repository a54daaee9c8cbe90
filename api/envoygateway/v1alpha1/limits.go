package v1alpha1

import (
	"k8s.io/apimachinery/pkg/api/resource"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"
)

// RateLimit limits the rate of requests.
type RateLimit struct {
	// Type is Global or Local. By default it follows from the field that is set.
	//
	// +optional
	// +kubebuilder:validation:Enum=Global;Local
	Type *string `json:"type,omitempty"`

	// Global limits requests for all proxies together.
	//
	// +optional
	Global *GlobalRateLimit `json:"global,omitempty"`

	// Local limits requests for each proxy.
	//
	// +optional
	Local *LocalRateLimit `json:"local,omitempty"`
}

// GlobalRateLimit limits requests for all proxies together.
type GlobalRateLimit struct {
	// Rules are the limits. All that match a request apply.
	//
	// +kubebuilder:validation:MaxItems=256
	Rules []RateLimitRule `json:"rules"`
}

// LocalRateLimit limits requests for each proxy.
type LocalRateLimit struct {
	// Rules are the limits. The strictest that matches a request applies.
	//
	// +optional
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:XValidation:rule="self.all(r, !has(r.cost) || !has(r.cost.response))",message="cost.response is for global rate limits"
	// +kubebuilder:validation:XValidation:rule="self.all(r, !has(r.limit.fromMetadata))",message="limit.fromMetadata is for global rate limits"
	Rules []RateLimitRule `json:"rules,omitempty"`
}

// RateLimitRule is a limit and the requests that it applies to.
type RateLimitRule struct {
	// ClientSelectors select the requests that the limit applies to; a request must match all. By default it applies to all requests.
	//
	// +optional
	// +kubebuilder:validation:MaxItems=8
	ClientSelectors []RateLimitSelectCondition `json:"clientSelectors,omitempty"`

	// Limit is the number of requests that are allowed.
	Limit RateLimitValue `json:"limit"`

	// Cost is how much a request adds to the count.
	//
	// +optional
	Cost *RateLimitCost `json:"cost,omitempty"`

	// Shared applies one limit to all routes of the policy together, instead of one to each.
	//
	// +optional
	Shared *bool `json:"shared,omitempty"`

	// ShadowMode counts requests over the limit, but does not reject them.
	//
	// +optional
	ShadowMode *bool `json:"shadowMode,omitempty"`

	// XRateLimitHeaders specifies whether responses report the remaining requests.
	//
	// +optional
	// +kubebuilder:validation:Enum=Off;DraftVersion03
	XRateLimitHeaders *string `json:"xRateLimitHeaders,omitempty"`
}

// RateLimitSelectCondition selects requests.
//
// +kubebuilder:validation:XValidation:rule="has(self.headers) || has(self.methods) || has(self.path) || has(self.sourceCIDR) || has(self.queryParams)",message="one of headers, methods, path, sourceCIDR and queryParams must be set"
type RateLimitSelectCondition struct {
	// Headers are conditions on headers, all of which must be met.
	//
	// +optional
	// +kubebuilder:validation:MaxItems=128
	Headers []HeaderMatch `json:"headers,omitempty"`

	// Methods are request methods, one of which must match.
	//
	// +optional
	Methods []MethodMatch `json:"methods,omitempty"`

	// Path is a condition on the path.
	//
	// +optional
	Path *PathMatch `json:"path,omitempty"`

	// SourceCIDR is a condition on the address of the client.
	//
	// +optional
	SourceCIDR *SourceMatch `json:"sourceCIDR,omitempty"`

	// QueryParams are conditions on query parameters, all of which must be met.
	//
	// +optional
	// +kubebuilder:validation:MaxItems=16
	QueryParams []QueryParamMatch `json:"queryParams,omitempty"`
}

// HeaderMatch is a condition on a header. Distinct applies a separate limit to each value.
type HeaderMatch struct {
	// Type specifies how the value is compared.
	//
	// +optional
	// +kubebuilder:validation:Enum=Exact;RegularExpression;Distinct
	// +kubebuilder:default=Exact
	Type *string `json:"type,omitempty"`

	// Name is the name of the header.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	Name string `json:"name"`

	// Value is the value to compare with.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Value *string `json:"value,omitempty"`

	// Invert inverts the result.
	//
	// +optional
	// +kubebuilder:default=false
	Invert *bool `json:"invert,omitempty"`
}

// MethodMatch is a condition on the method.
type MethodMatch struct {
	// Value is the method.
	//
	// +kubebuilder:validation:Enum=GET;HEAD;POST;PUT;DELETE;CONNECT;OPTIONS;TRACE;PATCH
	Value string `json:"value"`

	// Invert inverts the result.
	//
	// +optional
	// +kubebuilder:default=false
	Invert *bool `json:"invert,omitempty"`
}

// PathMatch is a condition on the path.
type PathMatch struct {
	// Type specifies how the path is compared.
	//
	// +optional
	// +kubebuilder:validation:Enum=Exact;PathPrefix;RegularExpression
	// +kubebuilder:default=PathPrefix
	Type *string `json:"type,omitempty"`

	// Value is the value to compare with.
	//
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:default="/"
	Value string `json:"value"`

	// Invert inverts the result.
	//
	// +optional
	// +kubebuilder:default=false
	Invert *bool `json:"invert,omitempty"`
}

// SourceMatch is a condition on the address of the client. Distinct applies a separate limit to each address, and in ranges of IPv6 shorter than /64 to each /64.
type SourceMatch struct {
	// Type specifies how the address is compared.
	//
	// +optional
	// +kubebuilder:validation:Enum=Exact;Distinct
	// +kubebuilder:default=Exact
	Type *string `json:"type,omitempty"`

	// Value is an address range.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	Value string `json:"value"`

	// Invert inverts the result.
	//
	// +optional
	// +kubebuilder:default=false
	Invert *bool `json:"invert,omitempty"`
}

// QueryParamMatch is a condition on a query parameter. Distinct applies a separate limit to each value.
type QueryParamMatch struct {
	// Type specifies how the value is compared.
	//
	// +optional
	// +kubebuilder:validation:Enum=Exact;RegularExpression;Distinct
	// +kubebuilder:default=Exact
	Type *string `json:"type,omitempty"`

	// Name is the name of the parameter.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	Name string `json:"name"`

	// Value is the value to compare with.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Value *string `json:"value,omitempty"`

	// Invert inverts the result.
	//
	// +optional
	// +kubebuilder:default=false
	Invert *bool `json:"invert,omitempty"`
}

// RateLimitValue is a number of requests for each unit of time.
type RateLimitValue struct {
	// Requests is the number of requests.
	//
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=4294967295
	Requests int64 `json:"requests"`

	// Unit is the unit of time.
	//
	// +kubebuilder:validation:Enum=Second;Minute;Hour;Day;Week;Month;Year
	Unit string `json:"unit"`

	// FromMetadata is not supported.
	//
	// +optional
	FromMetadata *MetadataKey `json:"fromMetadata,omitempty"`
}

// MetadataKey refers to dynamic metadata of a proxy, which Moongate does not have.
type MetadataKey struct {
	// Namespace is a namespace of the metadata.
	Namespace string `json:"namespace"`

	// Key is a key of the metadata.
	Key string `json:"key"`
}

// RateLimitCost is how much a request adds to the count.
type RateLimitCost struct {
	// Request is added when the request arrives. Defaults to 1.
	//
	// +optional
	Request *RateLimitCostSpecifier `json:"request,omitempty"`

	// Response is added when the response is sent. Defaults to 0.
	//
	// +optional
	Response *RateLimitCostSpecifier `json:"response,omitempty"`
}

// RateLimitCostSpecifier is a cost.
//
// +kubebuilder:validation:XValidation:rule="!(has(self.number) && has(self.metadata))",message="number and metadata cannot both be set"
type RateLimitCostSpecifier struct {
	// From is the source of the cost.
	//
	// +kubebuilder:validation:Enum=Number;Metadata
	From string `json:"from"`

	// Number is the cost.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	Number *int64 `json:"number,omitempty"`

	// Metadata is not supported.
	//
	// +optional
	Metadata *MetadataKey `json:"metadata,omitempty"`
}

// BandwidthLimit limits the rate of bytes.
//
// +kubebuilder:validation:XValidation:rule="has(self.request) || has(self.response)",message="one of request and response must be set"
type BandwidthLimit struct {
	// Request limits the bodies of requests.
	//
	// +optional
	Request *BandwidthLimitDirection `json:"request,omitempty"`

	// Response limits the bodies of responses.
	//
	// +optional
	Response *BandwidthLimitResponse `json:"response,omitempty"`
}

// BandwidthLimitDirection limits one direction.
type BandwidthLimitDirection struct {
	// Limit is the rate.
	Limit BandwidthLimitValue `json:"limit"`
}

// BandwidthLimitResponse limits responses.
type BandwidthLimitResponse struct {
	// Limit is the rate.
	Limit BandwidthLimitValue `json:"limit"`

	// ResponseTrailers adds trailers that report how long a request and its response were delayed.
	//
	// +optional
	ResponseTrailers *BandwidthLimitResponseTrailers `json:"responseTrailers,omitempty"`
}

// BandwidthLimitResponseTrailers configures the trailers.
type BandwidthLimitResponseTrailers struct {
	// Prefix is the prefix of their names, which a hyphen follows.
	//
	// +optional
	// +kubebuilder:validation:Pattern=`^[^\r\n\x00]*$`
	Prefix *string `json:"prefix,omitempty"`
}

// BandwidthLimitValue is a number of bytes for each unit of time.
type BandwidthLimitValue struct {
	// Value is the number of bytes.
	//
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:Pattern="^[1-9]+[0-9]*([EPTGMK]i|[EPTGMk])?$"
	Value resource.Quantity `json:"value"`

	// Unit is the unit of time.
	//
	// +kubebuilder:validation:Enum=Second;Minute;Hour
	Unit string `json:"unit"`
}

// FaultInjection delays or fails requests on purpose.
//
// +kubebuilder:validation:XValidation:rule="has(self.delay) || has(self.abort)",message="one of delay and abort must be set"
type FaultInjection struct {
	// Delay delays requests.
	//
	// +optional
	Delay *FaultInjectionDelay `json:"delay,omitempty"`

	// Abort answers requests without a backend.
	//
	// +optional
	Abort *FaultInjectionAbort `json:"abort,omitempty"`
}

// FaultInjectionDelay delays requests.
type FaultInjectionDelay struct {
	// FixedDelay is the length of the delay.
	FixedDelay *gwv1.Duration `json:"fixedDelay"`

	// Percentage is the percentage of requests that are delayed, with up to four decimal places. Defaults to 100.
	//
	// +optional
	Percentage *float32 `json:"percentage,omitempty"`
}

// FaultInjectionAbort answers requests without a backend.
//
// +kubebuilder:validation:XValidation:rule="has(self.httpStatus) != has(self.grpcStatus)",message="exactly one of httpStatus and grpcStatus must be set"
type FaultInjectionAbort struct {
	// HTTPStatus is the HTTP status code of the answer.
	//
	// +optional
	// +kubebuilder:validation:Minimum=200
	// +kubebuilder:validation:Maximum=600
	HTTPStatus *int32 `json:"httpStatus,omitempty"`

	// GrpcStatus is the gRPC status code of the answer.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=16
	GrpcStatus *int32 `json:"grpcStatus,omitempty"`

	// Percentage is the percentage of requests that are answered, with up to four decimal places. Defaults to 100.
	//
	// +optional
	Percentage *float32 `json:"percentage,omitempty"`
}

// AdmissionControl rejects requests while too many earlier requests have failed.
//
// +kubebuilder:validation:XValidation:rule="!has(self.samplingWindow) || duration(self.samplingWindow) >= duration('1s')",message="samplingWindow must be at least 1s"
type AdmissionControl struct {
	// SamplingWindow is how long requests are counted. Defaults to 30s.
	//
	// +optional
	SamplingWindow *gwv1.Duration `json:"samplingWindow,omitempty"`

	// MinSuccessRate is the percentage of successes below which requests are rejected. Defaults to 95.
	//
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	MinSuccessRate *int32 `json:"minSuccessRate,omitempty"`

	// RejectionAggression controls how quickly rejections increase: with a larger value more requests are rejected early. Defaults to 1.
	//
	// +optional
	// +kubebuilder:validation:Minimum=1
	RejectionAggression *int32 `json:"rejectionAggression,omitempty"`

	// MinRequestRate is the number of requests a second below which none are rejected. Defaults to 0.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	MinRequestRate *int32 `json:"minRequestRate,omitempty"`

	// MaxRejectionPercent is the maximum percentage of requests that are rejected. Defaults to 80.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	MaxRejectionPercent *int32 `json:"maxRejectionPercent,omitempty"`

	// SuccessCriteria defines which requests are successful.
	//
	// +optional
	SuccessCriteria *AdmissionControlSuccessCriteria `json:"successCriteria,omitempty"`
}

// AdmissionControlSuccessCriteria defines which requests are successful.
type AdmissionControlSuccessCriteria struct {
	// HTTP is for HTTP requests. By default every status below 500 is a success.
	//
	// +optional
	HTTP *HTTPSuccessCriteria `json:"http,omitempty"`

	// GRPC is for gRPC calls. By default every status that is not a fault of the server is a success.
	//
	// +optional
	GRPC *GRPCSuccessCriteria `json:"grpc,omitempty"`
}

// HTTPSuccessCriteria defines which HTTP requests are successful.
type HTTPSuccessCriteria struct {
	// StatusCodes are the status codes of successes.
	//
	// +optional
	StatusCodes []HTTPStatus `json:"statusCodes,omitempty"`
}

// GRPCSuccessCriteria defines which gRPC calls are successful.
type GRPCSuccessCriteria struct {
	// StatusCodes are the status codes of successes.
	//
	// +optional
	StatusCodes []GRPCStatus `json:"statusCodes,omitempty"`
}

// GRPCStatus is a gRPC status code.
//
// +kubebuilder:validation:Enum=Ok;Cancelled;Unknown;InvalidArgument;DeadlineExceeded;NotFound;AlreadyExists;PermissionDenied;ResourceExhausted;FailedPrecondition;Aborted;OutOfRange;Unimplemented;Internal;Unavailable;DataLoss;Unauthenticated
type GRPCStatus string
