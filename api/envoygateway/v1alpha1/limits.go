package v1alpha1

import (
	"k8s.io/apimachinery/pkg/api/resource"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"
)

// RateLimit bounds requests.
type RateLimit struct {
	// Type is which of both is meant; unset is what is set.
	//
	// +optional
	// +kubebuilder:validation:Enum=Global;Local
	Type *string `json:"type,omitempty"`

	// Global is for all proxies together.
	//
	// +optional
	Global *GlobalRateLimit `json:"global,omitempty"`

	// Local is for each proxy.
	//
	// +optional
	Local *LocalRateLimit `json:"local,omitempty"`
}

// GlobalRateLimit is for all proxies together.
type GlobalRateLimit struct {
	// Rules are limits, all of which count.
	//
	// +kubebuilder:validation:MaxItems=256
	Rules []RateLimitRule `json:"rules"`
}

// LocalRateLimit is for each proxy.
type LocalRateLimit struct {
	// Rules are limits, of which the strictest that matches counts.
	//
	// +optional
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:XValidation:rule="self.all(r, !has(r.cost) || !has(r.cost.response))",message="cost.response is for global rate limits"
	// +kubebuilder:validation:XValidation:rule="self.all(r, !has(r.limit.fromMetadata))",message="limit.fromMetadata is for global rate limits"
	Rules []RateLimitRule `json:"rules,omitempty"`
}

// RateLimitRule is a limit, and for which requests.
type RateLimitRule struct {
	// ClientSelectors say for which requests, all of them together; none are for all.
	//
	// +optional
	// +kubebuilder:validation:MaxItems=8
	ClientSelectors []RateLimitSelectCondition `json:"clientSelectors,omitempty"`

	// Limit is how many.
	Limit RateLimitValue `json:"limit"`

	// Cost is for how many a request counts.
	//
	// +optional
	Cost *RateLimitCost `json:"cost,omitempty"`

	// Shared has the limit count for all routes of the policy together, not for each.
	//
	// +optional
	Shared *bool `json:"shared,omitempty"`

	// ShadowMode counts and refuses nothing.
	//
	// +optional
	ShadowMode *bool `json:"shadowMode,omitempty"`

	// XRateLimitHeaders says whether responses tell what is left.
	//
	// +optional
	// +kubebuilder:validation:Enum=Off;DraftVersion03
	XRateLimitHeaders *string `json:"xRateLimitHeaders,omitempty"`
}

// RateLimitSelectCondition says for which requests.
//
// +kubebuilder:validation:XValidation:rule="has(self.headers) || has(self.methods) || has(self.path) || has(self.sourceCIDR) || has(self.queryParams)",message="one of headers, methods, path, sourceCIDR and queryParams must be set"
type RateLimitSelectCondition struct {
	// Headers are headers, all of them.
	//
	// +optional
	// +kubebuilder:validation:MaxItems=128
	Headers []HeaderMatch `json:"headers,omitempty"`

	// Methods are methods, one of them.
	//
	// +optional
	Methods []MethodMatch `json:"methods,omitempty"`

	// Path is the path.
	//
	// +optional
	Path *PathMatch `json:"path,omitempty"`

	// SourceCIDR is where the client is.
	//
	// +optional
	SourceCIDR *SourceMatch `json:"sourceCIDR,omitempty"`

	// QueryParams are query parameters, all of them.
	//
	// +optional
	// +kubebuilder:validation:MaxItems=16
	QueryParams []QueryParamMatch `json:"queryParams,omitempty"`
}

// HeaderMatch is a header. Distinct gives each value a limit of its own.
type HeaderMatch struct {
	// Type is how the value is compared.
	//
	// +optional
	// +kubebuilder:validation:Enum=Exact;RegularExpression;Distinct
	// +kubebuilder:default=Exact
	Type *string `json:"type,omitempty"`

	// Name is the header's.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	Name string `json:"name"`

	// Value is what it is compared with.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Value *string `json:"value,omitempty"`

	// Invert has all match that would not.
	//
	// +optional
	// +kubebuilder:default=false
	Invert *bool `json:"invert,omitempty"`
}

// MethodMatch is a method.
type MethodMatch struct {
	// Value is the method.
	//
	// +kubebuilder:validation:Enum=GET;HEAD;POST;PUT;DELETE;CONNECT;OPTIONS;TRACE;PATCH
	Value string `json:"value"`

	// Invert has all match that would not.
	//
	// +optional
	// +kubebuilder:default=false
	Invert *bool `json:"invert,omitempty"`
}

// PathMatch is a path.
type PathMatch struct {
	// Type is how it is compared.
	//
	// +optional
	// +kubebuilder:validation:Enum=Exact;PathPrefix;RegularExpression
	// +kubebuilder:default=PathPrefix
	Type *string `json:"type,omitempty"`

	// Value is what it is compared with.
	//
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:default="/"
	Value string `json:"value"`

	// Invert has all match that would not.
	//
	// +optional
	// +kubebuilder:default=false
	Invert *bool `json:"invert,omitempty"`
}

// SourceMatch is where a client is. Distinct gives each address a limit of its own.
type SourceMatch struct {
	// Type is how it is compared.
	//
	// +optional
	// +kubebuilder:validation:Enum=Exact;Distinct
	// +kubebuilder:default=Exact
	Type *string `json:"type,omitempty"`

	// Value is a range of addresses.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	Value string `json:"value"`

	// Invert has all match that would not.
	//
	// +optional
	// +kubebuilder:default=false
	Invert *bool `json:"invert,omitempty"`
}

// QueryParamMatch is a query parameter. Distinct gives each value a limit of its own.
type QueryParamMatch struct {
	// Type is how the value is compared.
	//
	// +optional
	// +kubebuilder:validation:Enum=Exact;RegularExpression;Distinct
	// +kubebuilder:default=Exact
	Type *string `json:"type,omitempty"`

	// Name is the parameter's.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	Name string `json:"name"`

	// Value is what it is compared with.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Value *string `json:"value,omitempty"`

	// Invert has all match that would not.
	//
	// +optional
	// +kubebuilder:default=false
	Invert *bool `json:"invert,omitempty"`
}

// RateLimitValue is how many in which time.
type RateLimitValue struct {
	// Requests are how many.
	//
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=4294967295
	Requests int64 `json:"requests"`

	// Unit is in which time.
	//
	// +kubebuilder:validation:Enum=Second;Minute;Hour;Day;Week;Month;Year
	Unit string `json:"unit"`

	// FromMetadata is not supported.
	//
	// +optional
	FromMetadata *MetadataKey `json:"fromMetadata,omitempty"`
}

// MetadataKey is of a proxy's dynamic metadata, which Moongate does not have.
type MetadataKey struct {
	// Namespace is a namespace of metadata.
	Namespace string `json:"namespace"`

	// Key is a key of it.
	Key string `json:"key"`
}

// RateLimitCost is for how many a request counts.
type RateLimitCost struct {
	// Request is when it comes; unset is 1.
	//
	// +optional
	Request *RateLimitCostSpecifier `json:"request,omitempty"`

	// Response is when it is answered; unset is 0.
	//
	// +optional
	Response *RateLimitCostSpecifier `json:"response,omitempty"`
}

// RateLimitCostSpecifier is a number.
//
// +kubebuilder:validation:XValidation:rule="!(has(self.number) && has(self.metadata))",message="number and metadata cannot both be set"
type RateLimitCostSpecifier struct {
	// From is where it comes from.
	//
	// +kubebuilder:validation:Enum=Number;Metadata
	From string `json:"from"`

	// Number is it.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	Number *int64 `json:"number,omitempty"`

	// Metadata is not supported.
	//
	// +optional
	Metadata *MetadataKey `json:"metadata,omitempty"`
}

// BandwidthLimit bounds bytes in time.
//
// +kubebuilder:validation:XValidation:rule="has(self.request) || has(self.response)",message="one of request and response must be set"
type BandwidthLimit struct {
	// Request is for the bodies of requests.
	//
	// +optional
	Request *BandwidthLimitDirection `json:"request,omitempty"`

	// Response is for the bodies of responses.
	//
	// +optional
	Response *BandwidthLimitResponse `json:"response,omitempty"`
}

// BandwidthLimitDirection is for one direction.
type BandwidthLimitDirection struct {
	// Limit is how many bytes.
	Limit BandwidthLimitValue `json:"limit"`
}

// BandwidthLimitResponse is for responses.
type BandwidthLimitResponse struct {
	// Limit is how many bytes.
	Limit BandwidthLimitValue `json:"limit"`

	// ResponseTrailers tell by how much a request and its response were held up.
	//
	// +optional
	ResponseTrailers *BandwidthLimitResponseTrailers `json:"responseTrailers,omitempty"`
}

// BandwidthLimitResponseTrailers are trailers.
type BandwidthLimitResponseTrailers struct {
	// Prefix is what their names begin with, before a hyphen.
	//
	// +optional
	// +kubebuilder:validation:Pattern=`^[^\r\n\x00]*$`
	Prefix *string `json:"prefix,omitempty"`
}

// BandwidthLimitValue is bytes in time.
type BandwidthLimitValue struct {
	// Value is how many bytes.
	//
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:Pattern="^[1-9]+[0-9]*([EPTGMK]i|[EPTGMk])?$"
	Value resource.Quantity `json:"value"`

	// Unit is in which time.
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

	// Abort answers requests.
	//
	// +optional
	Abort *FaultInjectionAbort `json:"abort,omitempty"`
}

// FaultInjectionDelay delays requests.
type FaultInjectionDelay struct {
	// FixedDelay is how long.
	FixedDelay *gwv1.Duration `json:"fixedDelay"`

	// Percentage is how many, to the ten thousandth.
	//
	// +optional
	// +kubebuilder:default=100
	Percentage *float32 `json:"percentage,omitempty"`
}

// FaultInjectionAbort answers requests.
//
// +kubebuilder:validation:XValidation:rule="has(self.httpStatus) != has(self.grpcStatus)",message="exactly one of httpStatus and grpcStatus must be set"
type FaultInjectionAbort struct {
	// HTTPStatus is the status code.
	//
	// +optional
	// +kubebuilder:validation:Minimum=200
	// +kubebuilder:validation:Maximum=600
	HTTPStatus *int32 `json:"httpStatus,omitempty"`

	// GrpcStatus is the status of gRPC.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=16
	GrpcStatus *int32 `json:"grpcStatus,omitempty"`

	// Percentage is how many, to the ten thousandth.
	//
	// +optional
	// +kubebuilder:default=100
	Percentage *float32 `json:"percentage,omitempty"`
}

// AdmissionControl turns requests away while too many of those before have failed.
//
// +kubebuilder:validation:XValidation:rule="!has(self.samplingWindow) || duration(self.samplingWindow) >= duration('1s')",message="samplingWindow must be at least 1s"
type AdmissionControl struct {
	// SamplingWindow is how long requests count; unset is 30s.
	//
	// +optional
	SamplingWindow *gwv1.Duration `json:"samplingWindow,omitempty"`

	// MinSuccessRate is the percentage of successes below which requests are turned away; unset is 95.
	//
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	MinSuccessRate *int32 `json:"minSuccessRate,omitempty"`

	// RejectionAggression has more be turned away early the larger it is; unset is 1.
	//
	// +optional
	// +kubebuilder:validation:Minimum=1
	RejectionAggression *int32 `json:"rejectionAggression,omitempty"`

	// MinRequestRate is how many requests a second there must be; unset is 0.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	MinRequestRate *int32 `json:"minRequestRate,omitempty"`

	// MaxRejectionPercent is which percentage is turned away at most; unset is 80.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	MaxRejectionPercent *int32 `json:"maxRejectionPercent,omitempty"`

	// SuccessCriteria is what a success is.
	//
	// +optional
	SuccessCriteria *AdmissionControlSuccessCriteria `json:"successCriteria,omitempty"`
}

// AdmissionControlSuccessCriteria is what a success is.
type AdmissionControlSuccessCriteria struct {
	// HTTP is for HTTP; unset is every status below 500.
	//
	// +optional
	HTTP *HTTPSuccessCriteria `json:"http,omitempty"`

	// GRPC is for gRPC; unset is every status that is not the server's fault.
	//
	// +optional
	GRPC *GRPCSuccessCriteria `json:"grpc,omitempty"`
}

// HTTPSuccessCriteria is for HTTP.
type HTTPSuccessCriteria struct {
	// StatusCodes are those of successes.
	//
	// +optional
	StatusCodes []HTTPStatus `json:"statusCodes,omitempty"`
}

// GRPCSuccessCriteria is for gRPC.
type GRPCSuccessCriteria struct {
	// StatusCodes are those of successes.
	//
	// +optional
	StatusCodes []GRPCStatus `json:"statusCodes,omitempty"`
}

// GRPCStatus is a status of gRPC.
//
// +kubebuilder:validation:Enum=Ok;Cancelled;Unknown;InvalidArgument;DeadlineExceeded;NotFound;AlreadyExists;PermissionDenied;ResourceExhausted;FailedPrecondition;Aborted;OutOfRange;Unimplemented;Internal;Unavailable;DataLoss;Unauthenticated
type GRPCStatus string
