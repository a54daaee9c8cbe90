package v1alpha1

import (
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"
)

// HealthCheck says which endpoints are used.
type HealthCheck struct {
	// Active has endpoints asked.
	//
	// +optional
	Active *ActiveHealthCheck `json:"active,omitempty"`

	// Passive has endpoints ejected by what comes of requests.
	//
	// +optional
	Passive *PassiveHealthCheck `json:"passive,omitempty"`

	// PanicThreshold is the percentage of healthy endpoints below which health does not count; 0 is never, unset is 50.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	PanicThreshold *int32 `json:"panicThreshold,omitempty"`
}

// PassiveHealthCheck has endpoints ejected by what comes of requests.
type PassiveHealthCheck struct {
	// SplitExternalLocalOriginErrors has failed connects, resets and timeouts counted apart from responses.
	//
	// +optional
	// +kubebuilder:default=false
	SplitExternalLocalOriginErrors *bool `json:"splitExternalLocalOriginErrors,omitempty"`

	// Interval is how often it is looked at what is ejected, and at percentages.
	//
	// +optional
	// +kubebuilder:default="3s"
	Interval *gwv1.Duration `json:"interval,omitempty"`

	// ConsecutiveLocalOriginFailures is how many eject an endpoint, with splitExternalLocalOriginErrors.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:default=5
	ConsecutiveLocalOriginFailures *int32 `json:"consecutiveLocalOriginFailures,omitempty"`

	// ConsecutiveGatewayErrors is how many responses with 502, 503 or 504 eject an endpoint; 0 and unset are none.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	ConsecutiveGatewayErrors *int32 `json:"consecutiveGatewayErrors,omitempty"`

	// Consecutive5xxErrors is how many responses with 500 or more eject an endpoint; 0 is none.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:default=5
	Consecutive5xxErrors *int32 `json:"consecutive5XxErrors,omitempty"`

	// BaseEjectionTime is how long, times the number of ejections.
	//
	// +optional
	// +kubebuilder:default="30s"
	BaseEjectionTime *gwv1.Duration `json:"baseEjectionTime,omitempty"`

	// MaxEjectionPercent is which percentage of endpoints can be ejected at a time.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	// +kubebuilder:default=10
	MaxEjectionPercent *int32 `json:"maxEjectionPercent,omitempty"`

	// FailurePercentageThreshold is which percentage of failures ejects an endpoint; unset is none.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	FailurePercentageThreshold *int32 `json:"failurePercentageThreshold,omitempty"`

	// AlwaysEjectOneEndpoint has one be ejected whatever maxEjectionPercent says.
	//
	// +optional
	// +kubebuilder:default=false
	AlwaysEjectOneEndpoint *bool `json:"alwaysEjectOneEndpoint,omitempty"`
}

// ActiveHealthCheck has endpoints asked.
//
// +kubebuilder:validation:XValidation:rule="self.type == 'HTTP' ? has(self.http) : !has(self.http)",message="http must be set exactly where type is HTTP"
// +kubebuilder:validation:XValidation:rule="self.type == 'TCP' ? has(self.tcp) : !has(self.tcp)",message="tcp must be set exactly where type is TCP"
// +kubebuilder:validation:XValidation:rule="has(self.grpc) ? self.type == 'GRPC' : true",message="grpc can be set where type is GRPC"
type ActiveHealthCheck struct {
	// Timeout is how long an answer may take.
	//
	// +optional
	// +kubebuilder:default="1s"
	Timeout *gwv1.Duration `json:"timeout,omitempty"`

	// Interval is the time between two checks.
	//
	// +optional
	// +kubebuilder:default="3s"
	Interval *gwv1.Duration `json:"interval,omitempty"`

	// InitialJitter is the longest time before the first.
	//
	// +optional
	InitialJitter *gwv1.Duration `json:"initialJitter,omitempty"`

	// UnhealthyThreshold is how many failures in a row make an endpoint unhealthy.
	//
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:default=3
	UnhealthyThreshold *int32 `json:"unhealthyThreshold,omitempty"`

	// HealthyThreshold is how many successes in a row make an endpoint healthy.
	//
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:default=1
	HealthyThreshold *int32 `json:"healthyThreshold,omitempty"`

	// Type is how they are asked.
	//
	// +kubebuilder:validation:Enum=HTTP;TCP;GRPC
	Type string `json:"type"`

	// HTTP is by a request.
	//
	// +optional
	HTTP *HTTPActiveHealthCheck `json:"http,omitempty"`

	// TCP is by a connection.
	//
	// +optional
	TCP *TCPActiveHealthCheck `json:"tcp,omitempty"`

	// GRPC is by grpc.health.v1.
	//
	// +optional
	GRPC *GRPCActiveHealthCheck `json:"grpc,omitempty"`

	// Overrides is where they are asked.
	//
	// +optional
	Overrides *HealthCheckOverrides `json:"overrides,omitempty"`

	// HealthCheckLog logs what checks find.
	//
	// +optional
	HealthCheckLog *HealthCheckLog `json:"healthCheckLog,omitempty"`
}

// HTTPActiveHealthCheck is by a request.
//
// +kubebuilder:validation:XValidation:rule="!has(self.requestBody) || (has(self.method) && self.method.upperAscii() in ['POST','PUT'])",message="requestBody needs method POST or PUT"
type HTTPActiveHealthCheck struct {
	// Hostname is the request's host; unset is that of an XBackend, else of a route.
	//
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`
	Hostname *string `json:"hostname,omitempty"`

	// Path is the request's.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	Path string `json:"path"`

	// Method is the request's; unset is GET.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=16
	Method *string `json:"method,omitempty"`

	// ExpectedStatuses are those of a success; unset is 200.
	//
	// +optional
	ExpectedStatuses []HTTPStatus `json:"expectedStatuses,omitempty"`

	// RetriableStatuses are those of failures that count towards unhealthyThreshold.
	//
	// +optional
	RetriableStatuses []HTTPStatus `json:"retriableStatuses,omitempty"`

	// ExpectedResponse is what the body of a success contains.
	//
	// +optional
	ExpectedResponse *ActiveHealthCheckPayload `json:"expectedResponse,omitempty"`

	// RequestBody is the request's.
	//
	// +optional
	RequestBody *ActiveHealthCheckPayload `json:"requestBody,omitempty"`
}

// TCPActiveHealthCheck is by a connection.
type TCPActiveHealthCheck struct {
	// Send is what is sent.
	//
	// +optional
	Send *ActiveHealthCheckPayload `json:"send,omitempty"`

	// Receive is what an answer contains.
	//
	// +optional
	Receive *ActiveHealthCheckPayload `json:"receive,omitempty"`
}

// GRPCActiveHealthCheck is by grpc.health.v1.
type GRPCActiveHealthCheck struct {
	// Service is the name that is asked for; unset is the server as a whole.
	//
	// +optional
	Service *string `json:"service,omitempty"`
}

// ActiveHealthCheckPayload is bytes.
//
// +kubebuilder:validation:XValidation:rule="self.type == 'Text' ? has(self.text) : !has(self.text)",message="text must be set exactly where type is Text"
// +kubebuilder:validation:XValidation:rule="self.type == 'Binary' ? has(self.binary) : !has(self.binary)",message="binary must be set exactly where type is Binary"
type ActiveHealthCheckPayload struct {
	// Type is how they are written.
	//
	// +kubebuilder:validation:Enum=Text;Binary
	Type string `json:"type"`

	// Text is them as they are.
	//
	// +optional
	Text *string `json:"text,omitempty"`

	// Binary is them in base64.
	//
	// +optional
	Binary []byte `json:"binary,omitempty"`
}

// HealthCheckOverrides is where endpoints are asked.
type HealthCheckOverrides struct {
	// Port is another than the endpoint's.
	//
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	Port *int32 `json:"port,omitempty"`
}

// HealthCheckLog logs what checks find.
type HealthCheckLog struct {
	// Sinks are where; unset is the standard output of the proxy.
	//
	// +optional
	// +kubebuilder:validation:MaxItems=1
	Sinks []HealthCheckLogSink `json:"sinks,omitempty"`

	// Matches are what is logged; unset is everything.
	//
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=4
	// +kubebuilder:validation:XValidation:rule="self.exists(e, e == 'Failure' || e == 'FailureSeriesStart') == self.exists(e, e == 'Success' || e == 'HealthyTransition')",message="matches must have one of Failure and FailureSeriesStart, and one of Success and HealthyTransition"
	Matches []HealthCheckLogMatch `json:"matches,omitempty"`
}

// HealthCheckLogMatch is an event.
//
// +kubebuilder:validation:Enum=Failure;FailureSeriesStart;Success;HealthyTransition
type HealthCheckLogMatch string

// HealthCheckLogSink is where events are logged.
//
// +kubebuilder:validation:XValidation:rule="self.type == 'File' ? has(self.file) : !has(self.file)",message="file must be set where type is File"
type HealthCheckLogSink struct {
	// Type is which kind of place.
	//
	// +kubebuilder:validation:Enum=File
	Type string `json:"type"`

	// File is a file.
	//
	// +optional
	File *HealthCheckLogFile `json:"file,omitempty"`
}

// HealthCheckLogFile is a file.
type HealthCheckLogFile struct {
	// Path is its path.
	//
	// +kubebuilder:validation:MinLength=1
	Path string `json:"path"`
}
