package v1alpha1

import (
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"
)

// HealthCheck configures which endpoints are considered healthy.
type HealthCheck struct {
	// Active checks endpoints with probes.
	//
	// +optional
	Active *ActiveHealthCheck `json:"active,omitempty"`

	// Passive ejects endpoints depending on the results of requests (outlier detection).
	//
	// +optional
	Passive *PassiveHealthCheck `json:"passive,omitempty"`

	// PanicThreshold is the percentage of healthy endpoints below which health is ignored. 0 disables this. Defaults to 50.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	PanicThreshold *int32 `json:"panicThreshold,omitempty"`
}

// PassiveHealthCheck ejects endpoints depending on the results of requests (outlier detection).
type PassiveHealthCheck struct {
	// SplitExternalLocalOriginErrors counts failed connection attempts, resets and timeouts separately from responses. Defaults to false.
	//
	// +optional
	SplitExternalLocalOriginErrors *bool `json:"splitExternalLocalOriginErrors,omitempty"`

	// Interval is how often ejections and percentages are evaluated. Defaults to 3s.
	//
	// +optional
	Interval *gwv1.Duration `json:"interval,omitempty"`

	// ConsecutiveLocalOriginFailures is the number of consecutive local failures after which an endpoint is ejected, if splitExternalLocalOriginErrors is set. Defaults to 5.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	ConsecutiveLocalOriginFailures *int32 `json:"consecutiveLocalOriginFailures,omitempty"`

	// ConsecutiveGatewayErrors is the number of consecutive responses with status 502, 503 or 504 after which an endpoint is ejected. Defaults to 0, which disables this.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	ConsecutiveGatewayErrors *int32 `json:"consecutiveGatewayErrors,omitempty"`

	// Consecutive5xxErrors is the number of consecutive responses with status 500 or higher after which an endpoint is ejected. 0 disables this. Defaults to 5.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	Consecutive5xxErrors *int32 `json:"consecutive5XxErrors,omitempty"`

	// BaseEjectionTime is the time of an ejection, multiplied by the number of times that the endpoint was ejected. Defaults to 30s.
	//
	// +optional
	BaseEjectionTime *gwv1.Duration `json:"baseEjectionTime,omitempty"`

	// MaxEjectionPercent is the maximum percentage of endpoints that are ejected at a time. Defaults to 10.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	MaxEjectionPercent *int32 `json:"maxEjectionPercent,omitempty"`

	// FailurePercentageThreshold is the percentage of failures at which an endpoint is ejected. Disabled by default.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	FailurePercentageThreshold *int32 `json:"failurePercentageThreshold,omitempty"`

	// AlwaysEjectOneEndpoint allows that one endpoint is ejected, regardless of maxEjectionPercent. Defaults to false.
	//
	// +optional
	AlwaysEjectOneEndpoint *bool `json:"alwaysEjectOneEndpoint,omitempty"`
}

// ActiveHealthCheck checks endpoints with probes.
//
// +kubebuilder:validation:XValidation:rule="self.type == 'HTTP' ? has(self.http) : !has(self.http)",message="http must be set exactly where type is HTTP"
// +kubebuilder:validation:XValidation:rule="self.type == 'TCP' ? has(self.tcp) : !has(self.tcp)",message="tcp must be set exactly where type is TCP"
// +kubebuilder:validation:XValidation:rule="has(self.grpc) ? self.type == 'GRPC' : true",message="grpc can be set where type is GRPC"
type ActiveHealthCheck struct {
	// Timeout is the time to wait for the result of a probe. Defaults to 1s.
	//
	// +optional
	Timeout *gwv1.Duration `json:"timeout,omitempty"`

	// Interval is the time between probes. Defaults to 3s.
	//
	// +optional
	Interval *gwv1.Duration `json:"interval,omitempty"`

	// InitialJitter is the maximum random delay before the first probe.
	//
	// +optional
	InitialJitter *gwv1.Duration `json:"initialJitter,omitempty"`

	// UnhealthyThreshold is the number of consecutive failures after which an endpoint is unhealthy. Defaults to 3.
	//
	// +optional
	// +kubebuilder:validation:Minimum=1
	UnhealthyThreshold *int32 `json:"unhealthyThreshold,omitempty"`

	// HealthyThreshold is the number of consecutive successes after which an endpoint is healthy. Defaults to 1.
	//
	// +optional
	// +kubebuilder:validation:Minimum=1
	HealthyThreshold *int32 `json:"healthyThreshold,omitempty"`

	// Type is the type of the probes.
	//
	// +kubebuilder:validation:Enum=HTTP;TCP;GRPC
	Type string `json:"type"`

	// HTTP configures probes that send an HTTP request.
	//
	// +optional
	HTTP *HTTPActiveHealthCheck `json:"http,omitempty"`

	// TCP configures probes that open a TCP connection.
	//
	// +optional
	TCP *TCPActiveHealthCheck `json:"tcp,omitempty"`

	// GRPC configures probes that call grpc.health.v1.
	//
	// +optional
	GRPC *GRPCActiveHealthCheck `json:"grpc,omitempty"`

	// Overrides changes where probes are sent.
	//
	// +optional
	Overrides *HealthCheckOverrides `json:"overrides,omitempty"`

	// HealthCheckLog logs the results of probes.
	//
	// +optional
	HealthCheckLog *HealthCheckLog `json:"healthCheckLog,omitempty"`
}

// HTTPActiveHealthCheck configures probes that send an HTTP request.
//
// +kubebuilder:validation:XValidation:rule="!has(self.requestBody) || (has(self.method) && self.method.upperAscii() in ['POST','PUT'])",message="requestBody needs method POST or PUT"
type HTTPActiveHealthCheck struct {
	// Hostname is the host of the request. Defaults to that of an XBackend, otherwise to that of a route.
	//
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`
	Hostname *string `json:"hostname,omitempty"`

	// Path is the path of the request.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	Path string `json:"path"`

	// Method is the method of the request. Defaults to GET.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=16
	Method *string `json:"method,omitempty"`

	// ExpectedStatuses are the statuses of a success. Defaults to 200.
	//
	// +optional
	ExpectedStatuses []HTTPStatus `json:"expectedStatuses,omitempty"`

	// RetriableStatuses are the statuses of failures that count towards unhealthyThreshold.
	//
	// +optional
	RetriableStatuses []HTTPStatus `json:"retriableStatuses,omitempty"`

	// ExpectedResponse is a text that the body of a success must contain.
	//
	// +optional
	ExpectedResponse *ActiveHealthCheckPayload `json:"expectedResponse,omitempty"`

	// RequestBody is the body of the request.
	//
	// +optional
	RequestBody *ActiveHealthCheckPayload `json:"requestBody,omitempty"`
}

// TCPActiveHealthCheck configures probes that open a TCP connection.
type TCPActiveHealthCheck struct {
	// Send is sent on the connection.
	//
	// +optional
	Send *ActiveHealthCheckPayload `json:"send,omitempty"`

	// Receive is what the answer must contain.
	//
	// +optional
	Receive *ActiveHealthCheckPayload `json:"receive,omitempty"`
}

// GRPCActiveHealthCheck configures probes that call grpc.health.v1.
type GRPCActiveHealthCheck struct {
	// Service is the name of the service to check. By default the server as a whole is checked.
	//
	// +optional
	Service *string `json:"service,omitempty"`
}

// ActiveHealthCheckPayload is a sequence of bytes.
//
// +kubebuilder:validation:XValidation:rule="self.type == 'Text' ? has(self.text) : !has(self.text)",message="text must be set exactly where type is Text"
// +kubebuilder:validation:XValidation:rule="self.type == 'Binary' ? has(self.binary) : !has(self.binary)",message="binary must be set exactly where type is Binary"
type ActiveHealthCheckPayload struct {
	// Type specifies whether the bytes are given as text or binary.
	//
	// +kubebuilder:validation:Enum=Text;Binary
	Type string `json:"type"`

	// Text is the bytes as text.
	//
	// +optional
	Text *string `json:"text,omitempty"`

	// Binary is the bytes, encoded in base64.
	//
	// +optional
	Binary []byte `json:"binary,omitempty"`
}

// HealthCheckOverrides changes where probes are sent.
type HealthCheckOverrides struct {
	// Port is used instead of the port of the endpoint.
	//
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	Port *int32 `json:"port,omitempty"`
}

// HealthCheckLog logs the results of probes.
type HealthCheckLog struct {
	// Sinks are the destinations of the log. Defaults to the standard output of the proxy.
	//
	// +optional
	// +kubebuilder:validation:MaxItems=1
	Sinks []HealthCheckLogSink `json:"sinks,omitempty"`

	// Matches are the events to log. By default all are logged.
	//
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=4
	// +kubebuilder:validation:XValidation:rule="self.exists(e, e == 'Failure' || e == 'FailureSeriesStart') == self.exists(e, e == 'Success' || e == 'HealthyTransition')",message="matches must have one of Failure and FailureSeriesStart, and one of Success and HealthyTransition"
	Matches []HealthCheckLogMatch `json:"matches,omitempty"`
}

// HealthCheckLogMatch selects an event.
//
// +kubebuilder:validation:Enum=Failure;FailureSeriesStart;Success;HealthyTransition
type HealthCheckLogMatch string

// HealthCheckLogSink is a destination of the log.
//
// +kubebuilder:validation:XValidation:rule="self.type == 'File' ? has(self.file) : !has(self.file)",message="file must be set where type is File"
type HealthCheckLogSink struct {
	// Type is the type of the destination.
	//
	// +kubebuilder:validation:Enum=File
	Type string `json:"type"`

	// File writes the log to a file.
	//
	// +optional
	File *HealthCheckLogFile `json:"file,omitempty"`
}

// HealthCheckLogFile is a file.
type HealthCheckLogFile struct {
	// Path is the path of the file.
	//
	// +kubebuilder:validation:MinLength=1
	Path string `json:"path"`
}
