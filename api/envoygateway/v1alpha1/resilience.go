package v1alpha1

import (
	"k8s.io/apimachinery/pkg/api/resource"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"
)

// Retry says when a request is sent again.
type Retry struct {
	// NumRetries is how often at most, after the first attempt.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:default=2
	NumRetries *int32 `json:"numRetries,omitempty"`

	// NumAttemptsPerPriority is how many attempts are made at endpoints of one priority before those of the next; 0 is all. All endpoints of a Service or
	// XBackend have one priority.
	//
	// +optional
	NumAttemptsPerPriority *int32 `json:"numAttemptsPerPriority,omitempty"`

	// RetryOn are the failures after which that is done; unset is connect-failure, refused-stream, unavailable, cancelled, and status 503.
	//
	// +optional
	RetryOn *RetryOn `json:"retryOn,omitempty"`

	// PerRetry is about each attempt.
	//
	// +optional
	PerRetry *PerRetryPolicy `json:"perRetry,omitempty"`
}

// RetryOn are failures.
type RetryOn struct {
	// Triggers are kinds of failures.
	//
	// +optional
	Triggers []TriggerEnum `json:"triggers,omitempty"`

	// HTTPStatusCodes are those of the trigger retriable-status-codes.
	//
	// +optional
	HTTPStatusCodes []HTTPStatus `json:"httpStatusCodes,omitempty"`
}

// TriggerEnum is a kind of failure.
//
// +kubebuilder:validation:Enum="5xx";"gateway-error";"reset";"reset-before-request";"connect-failure";"retriable-4xx";"refused-stream";"retriable-status-codes";"cancelled";"deadline-exceeded";"internal";"resource-exhausted";"unavailable"
type TriggerEnum string

// The values of TriggerEnum.
const (
	Error5XX             TriggerEnum = "5xx"
	GatewayError         TriggerEnum = "gateway-error"
	Reset                TriggerEnum = "reset"
	ResetBeforeRequest   TriggerEnum = "reset-before-request"
	ConnectFailure       TriggerEnum = "connect-failure"
	Retriable4XX         TriggerEnum = "retriable-4xx"
	RefusedStream        TriggerEnum = "refused-stream"
	RetriableStatusCodes TriggerEnum = "retriable-status-codes"
	Cancelled            TriggerEnum = "cancelled"
	DeadlineExceeded     TriggerEnum = "deadline-exceeded"
	Internal             TriggerEnum = "internal"
	ResourceExhausted    TriggerEnum = "resource-exhausted"
	Unavailable          TriggerEnum = "unavailable"
)

// HTTPStatus is a status code.
//
// +kubebuilder:validation:Minimum=100
// +kubebuilder:validation:Maximum=599
type HTTPStatus int

// PerRetryPolicy is about each attempt.
type PerRetryPolicy struct {
	// Timeout is how long an attempt may take.
	//
	// +optional
	Timeout *gwv1.Duration `json:"timeout,omitempty"`

	// BackOff is how long it is waited before a retry.
	//
	// +optional
	BackOff *BackOffPolicy `json:"backOff,omitempty"`
}

// BackOffPolicy is a random wait that grows from retry to retry.
type BackOffPolicy struct {
	// BaseInterval is the longest wait before the first retry; unset is 25ms.
	//
	// +optional
	BaseInterval *gwv1.Duration `json:"baseInterval,omitempty"`

	// MaxInterval is the longest wait of all; unset is ten times baseInterval.
	//
	// +optional
	MaxInterval *gwv1.Duration `json:"maxInterval,omitempty"`
}

// CircuitBreaker bounds what is under way to a backend at a time, in each proxy. What is beyond is answered 503.
type CircuitBreaker struct {
	// MaxConnections bounds connections.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=4294967295
	// +kubebuilder:default=1024
	MaxConnections *int64 `json:"maxConnections,omitempty"`

	// MaxPendingRequests bounds requests that wait for a connection.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=4294967295
	// +kubebuilder:default=1024
	MaxPendingRequests *int64 `json:"maxPendingRequests,omitempty"`

	// MaxParallelRequests bounds requests.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=4294967295
	// +kubebuilder:default=1024
	MaxParallelRequests *int64 `json:"maxParallelRequests,omitempty"`

	// MaxParallelRetries bounds retries, unless there is a retryBudget.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=4294967295
	// +kubebuilder:default=1024
	MaxParallelRetries *int64 `json:"maxParallelRetries,omitempty"`

	// MaxRequestsPerConnection is how many requests a connection is used for at most.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=4294967295
	MaxRequestsPerConnection *int64 `json:"maxRequestsPerConnection,omitempty"`

	// PerEndpoint is for each endpoint.
	//
	// +optional
	PerEndpoint *PerEndpointCircuitBreakers `json:"perEndpoint,omitempty"`

	// RetryBudget bounds retries by the requests that are under way.
	//
	// +optional
	RetryBudget *RetryBudget `json:"retryBudget,omitempty"`
}

// PerEndpointCircuitBreakers are for each endpoint.
type PerEndpointCircuitBreakers struct {
	// MaxConnections bounds connections.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=4294967295
	// +kubebuilder:default=1024
	MaxConnections *int64 `json:"maxConnections,omitempty"`
}

// RetryBudget bounds retries by a share.
type RetryBudget struct {
	// Percent is the share of requests under way or waiting that may be retries.
	Percent gwv1.Fraction `json:"percent"`

	// MinRetryConcurrency is how many retries there may be whatever the share is; unset is 3.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	MinRetryConcurrency *int32 `json:"minRetryConcurrency,omitempty"`
}

// Timeout is how long things may take.
type Timeout struct {
	// TCP is for connections.
	//
	// +optional
	TCP *TCPTimeout `json:"tcp,omitempty"`

	// HTTP is for HTTP.
	//
	// +optional
	HTTP *HTTPTimeout `json:"http,omitempty"`
}

// TCPTimeout is for connections.
type TCPTimeout struct {
	// ConnectTimeout is for TCP and TLS together.
	//
	// +optional
	ConnectTimeout *gwv1.Duration `json:"connectTimeout,omitempty"`
}

// HTTPTimeout is for HTTP. 0s is no limit.
type HTTPTimeout struct {
	// ConnectionIdleTimeout is how long a connection to a backend is kept without a request.
	//
	// +optional
	ConnectionIdleTimeout *gwv1.Duration `json:"connectionIdleTimeout,omitempty"`

	// MaxConnectionDuration is how long a connection to a backend is used at most.
	//
	// +optional
	MaxConnectionDuration *gwv1.Duration `json:"maxConnectionDuration,omitempty"`

	// RequestTimeout is for a request with all of its response. timeouts.request of an HTTPRoute's rule is in force instead where there is one.
	//
	// +optional
	RequestTimeout *gwv1.Duration `json:"requestTimeout,omitempty"`

	// MaxStreamDuration is how long a request and its response may last where they are streams.
	//
	// +optional
	MaxStreamDuration *gwv1.Duration `json:"maxStreamDuration,omitempty"`

	// StreamIdleTimeout is how long a request and its response may go without a byte either way.
	//
	// +optional
	StreamIdleTimeout *gwv1.Duration `json:"streamIdleTimeout,omitempty"`
}

// TCPKeepalive has the system ask whether a silent peer is there still.
type TCPKeepalive struct {
	// Probes is how many are not answered before the connection is given up; unset is the system's.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	Probes *int32 `json:"probes,omitempty"`

	// IdleTime is how long a connection is silent before the first, in whole seconds; unset is the system's.
	//
	// +optional
	IdleTime *gwv1.Duration `json:"idleTime,omitempty"`

	// Interval is the time between two, in whole seconds; unset is the system's.
	//
	// +optional
	Interval *gwv1.Duration `json:"interval,omitempty"`
}

// BackendConnection is about buffers of connections to backends, and connections made in advance.
type BackendConnection struct {
	// BufferLimit bounds what is kept of a request to send it again.
	//
	// +optional
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:Pattern="^[1-9]+[0-9]*([EPTGMK]i|[EPTGMk])?$"
	BufferLimit *resource.Quantity `json:"bufferLimit,omitempty"`

	// SocketBufferLimit is the size of the system's buffers of a connection.
	//
	// +optional
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:Pattern="^[1-9]+[0-9]*([EPTGMK]i|[EPTGMk])?$"
	SocketBufferLimit *resource.Quantity `json:"socketBufferLimit,omitempty"`

	// Preconnect has connections made before they are needed.
	//
	// +optional
	Preconnect *PreconnectPolicy `json:"preconnect,omitempty"`
}

// PreconnectPolicy has connections made before they are needed.
type PreconnectPolicy struct {
	// PerEndpointPercent is how many connections an endpoint has for 100 that are in use.
	//
	// +optional
	// +kubebuilder:validation:Minimum=100
	// +kubebuilder:validation:Maximum=300
	PerEndpointPercent *int32 `json:"perEndpointPercent,omitempty"`

	// PredictivePercent is not supported.
	//
	// +optional
	// +kubebuilder:validation:Minimum=100
	PredictivePercent *int32 `json:"predictivePercent,omitempty"`
}

// DNS is how external hostnames are resolved.
type DNS struct {
	// DNSRefreshRate is how often a name is looked up where its TTL does not count.
	//
	// +optional
	DNSRefreshRate *gwv1.Duration `json:"dnsRefreshRate,omitempty"`

	// RespectDNSTTL is whether a name is looked up again when its TTL has passed; unset is true.
	//
	// +optional
	RespectDNSTTL *bool `json:"respectDnsTtl,omitempty"`

	// LookupFamily is which addresses are used.
	//
	// +optional
	// +kubebuilder:validation:Enum=IPv4;IPv6;IPv4Preferred;IPv6Preferred;IPv4AndIPv6
	LookupFamily *string `json:"lookupFamily,omitempty"`
}

// HTTP2Settings are for connections to backends in HTTP/2.
type HTTP2Settings struct {
	// InitialStreamWindowSize is that of each stream.
	//
	// +optional
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:Pattern="^[1-9]+[0-9]*([EPTGMK]i|[EPTGMk])?$"
	InitialStreamWindowSize *resource.Quantity `json:"initialStreamWindowSize,omitempty"`

	// InitialConnectionWindowSize is that of a connection.
	//
	// +optional
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:Pattern="^[1-9]+[0-9]*([EPTGMK]i|[EPTGMk])?$"
	InitialConnectionWindowSize *resource.Quantity `json:"initialConnectionWindowSize,omitempty"`

	// MaxConcurrentStreams is how many streams a connection has at most.
	//
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=2147483647
	MaxConcurrentStreams *int64 `json:"maxConcurrentStreams,omitempty"`

	// OnInvalidMessage is what follows a message that is malformed.
	//
	// +optional
	// +kubebuilder:validation:Enum=TerminateConnection;TerminateStream
	OnInvalidMessage *string `json:"onInvalidMessage,omitempty"`

	// ConnectionKeepalive has PINGs sent.
	//
	// +optional
	ConnectionKeepalive *HTTP2ConnectionKeepalive `json:"connectionKeepalive,omitempty"`
}

// HTTP2ConnectionKeepalive has PINGs sent.
//
// +kubebuilder:validation:XValidation:rule="!has(self.timeout) || !has(self.interval) || duration(self.timeout) < duration(self.interval)",message="timeout must be less than interval"
type HTTP2ConnectionKeepalive struct {
	// Interval is the time between two.
	//
	// +optional
	Interval *gwv1.Duration `json:"interval,omitempty"`

	// Timeout is how long an answer may take before the connection is given up.
	//
	// +optional
	Timeout *gwv1.Duration `json:"timeout,omitempty"`

	// IntervalJitter is by which percentage an interval may be longer; unset is 15.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	IntervalJitter *int32 `json:"intervalJitter,omitempty"`

	// IdleInterval is after which silence a PING precedes a new stream.
	//
	// +optional
	IdleInterval *gwv1.Duration `json:"idleInterval,omitempty"`
}

// ProxyProtocol is the PROXY header.
type ProxyProtocol struct {
	// Version is that of the header.
	//
	// +kubebuilder:validation:Enum=V1;V2
	Version string `json:"version"`
}
