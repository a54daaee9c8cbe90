package v1alpha1

import (
	"k8s.io/apimachinery/pkg/api/resource"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"
)

// Retry configures when a request is retried.
type Retry struct {
	// NumRetries is the maximum number of retries, not counting the first attempt. Defaults to 2.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	NumRetries *int32 `json:"numRetries,omitempty"`

	// NumAttemptsPerPriority is the number of attempts at endpoints of one priority before those of the next; 0 means all. All endpoints of a Service or
	// XBackend have the same priority.
	//
	// +optional
	NumAttemptsPerPriority *int32 `json:"numAttemptsPerPriority,omitempty"`

	// RetryOn are the failures to retry. Defaults to connect-failure, refused-stream, unavailable, cancelled, and status 503.
	//
	// +optional
	RetryOn *RetryOn `json:"retryOn,omitempty"`

	// PerRetry configures each attempt.
	//
	// +optional
	PerRetry *PerRetryPolicy `json:"perRetry,omitempty"`
}

// RetryOn selects failures.
type RetryOn struct {
	// Triggers are the kinds of failures to retry.
	//
	// +optional
	Triggers []TriggerEnum `json:"triggers,omitempty"`

	// HTTPStatusCodes are the status codes of the trigger retriable-status-codes.
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

// HTTPStatus is an HTTP status code.
//
// +kubebuilder:validation:Minimum=100
// +kubebuilder:validation:Maximum=599
type HTTPStatus int

// PerRetryPolicy configures each attempt.
type PerRetryPolicy struct {
	// Timeout is the time limit of an attempt.
	//
	// +optional
	Timeout *gwv1.Duration `json:"timeout,omitempty"`

	// BackOff is the time to wait before a retry.
	//
	// +optional
	BackOff *BackOffPolicy `json:"backOff,omitempty"`
}

// BackOffPolicy is a random wait that grows with each retry.
type BackOffPolicy struct {
	// BaseInterval is the maximum wait before the first retry. Defaults to 25ms.
	//
	// +optional
	BaseInterval *gwv1.Duration `json:"baseInterval,omitempty"`

	// MaxInterval is the maximum wait before any retry. Defaults to ten times baseInterval.
	//
	// +optional
	MaxInterval *gwv1.Duration `json:"maxInterval,omitempty"`
}

// CircuitBreaker limits the connections and requests to a backend at a time, in each proxy. Requests over a limit are answered with 503.
type CircuitBreaker struct {
	// MaxConnections limits connections. Defaults to 1024.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=4294967295
	MaxConnections *int64 `json:"maxConnections,omitempty"`

	// MaxPendingRequests limits requests that are waiting for a connection. Defaults to 1024.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=4294967295
	MaxPendingRequests *int64 `json:"maxPendingRequests,omitempty"`

	// MaxParallelRequests limits requests. Defaults to 1024.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=4294967295
	MaxParallelRequests *int64 `json:"maxParallelRequests,omitempty"`

	// MaxParallelRetries limits retries, unless retryBudget is set. Defaults to 1024.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=4294967295
	MaxParallelRetries *int64 `json:"maxParallelRetries,omitempty"`

	// MaxRequestsPerConnection is the maximum number of requests over one connection.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=4294967295
	MaxRequestsPerConnection *int64 `json:"maxRequestsPerConnection,omitempty"`

	// PerEndpoint are limits for each endpoint.
	//
	// +optional
	PerEndpoint *PerEndpointCircuitBreakers `json:"perEndpoint,omitempty"`

	// RetryBudget limits retries in proportion to the requests in flight.
	//
	// +optional
	RetryBudget *RetryBudget `json:"retryBudget,omitempty"`
}

// PerEndpointCircuitBreakers are limits for each endpoint.
type PerEndpointCircuitBreakers struct {
	// MaxConnections limits connections. Defaults to 1024.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=4294967295
	MaxConnections *int64 `json:"maxConnections,omitempty"`
}

// RetryBudget limits retries in proportion to requests.
type RetryBudget struct {
	// Percent is the maximum share of retries among the requests in flight or waiting.
	Percent gwv1.Fraction `json:"percent"`

	// MinRetryConcurrency is the number of retries that are always allowed. Defaults to 3.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	MinRetryConcurrency *int32 `json:"minRetryConcurrency,omitempty"`
}

// Timeout configures timeouts.
type Timeout struct {
	// TCP configures timeouts of connections.
	//
	// +optional
	TCP *TCPTimeout `json:"tcp,omitempty"`

	// HTTP configures timeouts of HTTP.
	//
	// +optional
	HTTP *HTTPTimeout `json:"http,omitempty"`
}

// TCPTimeout configures timeouts of connections.
type TCPTimeout struct {
	// ConnectTimeout is the time limit for establishing a connection, including TLS.
	//
	// +optional
	ConnectTimeout *gwv1.Duration `json:"connectTimeout,omitempty"`
}

// HTTPTimeout configures timeouts of HTTP. 0s means no limit.
type HTTPTimeout struct {
	// ConnectionIdleTimeout is how long an idle connection to a backend is kept.
	//
	// +optional
	ConnectionIdleTimeout *gwv1.Duration `json:"connectionIdleTimeout,omitempty"`

	// MaxConnectionDuration is the maximum time that a connection to a backend is used.
	//
	// +optional
	MaxConnectionDuration *gwv1.Duration `json:"maxConnectionDuration,omitempty"`

	// RequestTimeout is the time limit for a request and its complete response. If the rule of an HTTPRoute sets timeouts.request, that is used instead.
	//
	// +optional
	RequestTimeout *gwv1.Duration `json:"requestTimeout,omitempty"`

	// MaxStreamDuration is the time limit for a request and its complete response, streamed or not, or for a tunnel.
	//
	// +optional
	MaxStreamDuration *gwv1.Duration `json:"maxStreamDuration,omitempty"`

	// StreamIdleTimeout is how long a request and its response may be idle in both directions.
	//
	// +optional
	StreamIdleTimeout *gwv1.Duration `json:"streamIdleTimeout,omitempty"`
}

// TCPKeepalive configures TCP keepalive probes.
type TCPKeepalive struct {
	// Probes is the number of unanswered probes after which the connection is closed. Defaults to the setting of the operating system.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	Probes *int32 `json:"probes,omitempty"`

	// IdleTime is how long a connection is idle before the first probe, in whole seconds. Defaults to the setting of the operating system.
	//
	// +optional
	IdleTime *gwv1.Duration `json:"idleTime,omitempty"`

	// Interval is the time between probes, in whole seconds. Defaults to the setting of the operating system.
	//
	// +optional
	Interval *gwv1.Duration `json:"interval,omitempty"`
}

// BackendConnection configures buffers of connections to backends, and connections that are opened in advance.
type BackendConnection struct {
	// BufferLimit limits how much of a request is kept for retries.
	//
	// +optional
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:Pattern="^[1-9]+[0-9]*([EPTGMK]i|[EPTGMk])?$"
	BufferLimit *resource.Quantity `json:"bufferLimit,omitempty"`

	// SocketBufferLimit is the size of the operating system's buffers of a connection.
	//
	// +optional
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:Pattern="^[1-9]+[0-9]*([EPTGMK]i|[EPTGMk])?$"
	SocketBufferLimit *resource.Quantity `json:"socketBufferLimit,omitempty"`

	// Preconnect opens connections before they are needed.
	//
	// +optional
	Preconnect *PreconnectPolicy `json:"preconnect,omitempty"`
}

// PreconnectPolicy opens connections before they are needed.
type PreconnectPolicy struct {
	// PerEndpointPercent is the number of connections to an endpoint for every 100 that are in use.
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

// DNS configures how external hostnames are resolved.
type DNS struct {
	// DNSRefreshRate is how often a hostname is resolved if its TTL is not used.
	//
	// +optional
	DNSRefreshRate *gwv1.Duration `json:"dnsRefreshRate,omitempty"`

	// RespectDNSTTL resolves a hostname again when its TTL has expired. Defaults to true.
	//
	// +optional
	RespectDNSTTL *bool `json:"respectDnsTtl,omitempty"`

	// LookupFamily specifies which addresses are used.
	//
	// +optional
	// +kubebuilder:validation:Enum=IPv4;IPv6;IPv4Preferred;IPv6Preferred;IPv4AndIPv6
	LookupFamily *string `json:"lookupFamily,omitempty"`
}

// HTTP2Settings configures HTTP/2 connections to backends.
type HTTP2Settings struct {
	// InitialStreamWindowSize is the initial window size of a stream.
	//
	// +optional
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:Pattern="^[1-9]+[0-9]*([EPTGMK]i|[EPTGMk])?$"
	InitialStreamWindowSize *resource.Quantity `json:"initialStreamWindowSize,omitempty"`

	// InitialConnectionWindowSize is the initial window size of a connection.
	//
	// +optional
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:Pattern="^[1-9]+[0-9]*([EPTGMK]i|[EPTGMk])?$"
	InitialConnectionWindowSize *resource.Quantity `json:"initialConnectionWindowSize,omitempty"`

	// MaxConcurrentStreams is the maximum number of concurrent streams of a connection.
	//
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=2147483647
	MaxConcurrentStreams *int64 `json:"maxConcurrentStreams,omitempty"`

	// OnInvalidMessage specifies what happens after a malformed message.
	//
	// +optional
	// +kubebuilder:validation:Enum=TerminateConnection;TerminateStream
	OnInvalidMessage *string `json:"onInvalidMessage,omitempty"`

	// ConnectionKeepalive sends PING frames.
	//
	// +optional
	ConnectionKeepalive *HTTP2ConnectionKeepalive `json:"connectionKeepalive,omitempty"`
}

// HTTP2ConnectionKeepalive sends PING frames.
//
// +kubebuilder:validation:XValidation:rule="!has(self.timeout) || !has(self.interval) || duration(self.timeout) < duration(self.interval)",message="timeout must be less than interval"
type HTTP2ConnectionKeepalive struct {
	// Interval is the time between PING frames.
	//
	// +optional
	Interval *gwv1.Duration `json:"interval,omitempty"`

	// Timeout is the time to wait for an answer before the connection is closed.
	//
	// +optional
	Timeout *gwv1.Duration `json:"timeout,omitempty"`

	// IntervalJitter is the maximum percentage by which an interval is extended at random. Defaults to 15.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	IntervalJitter *int32 `json:"intervalJitter,omitempty"`

	// IdleInterval is the idle time after which a PING frame is sent before a new stream.
	//
	// +optional
	IdleInterval *gwv1.Duration `json:"idleInterval,omitempty"`
}

// ProxyProtocol configures the PROXY protocol header.
type ProxyProtocol struct {
	// Version is the version of the PROXY protocol.
	//
	// +kubebuilder:validation:Enum=V1;V2
	Version string `json:"version"`
}
