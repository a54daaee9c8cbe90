package observe

import "strconv"

// Reason is a stable word for why a request ended as it did. The zero value is ReasonInternal, so that an exit without a reason
// shows up as a defect of the gateway and not as success.
type Reason uint8

// The reasons; their words, sources and meanings are in the table below.
const (
	ReasonInternal Reason = iota
	ReasonOK
	ReasonRedirect
	ReasonPreflight
	ReasonMaxForwards
	ReasonUpgraded
	ReasonUpgradeIgnored
	ReasonTunnelIdle
	ReasonTunnelEnded
	ReasonSessionIdle
	ReasonSessionEnded

	ReasonBadRequest
	ReasonHeadTooLarge
	ReasonTargetTooLong
	ReasonVersionNotSupported
	ReasonNotImplemented
	ReasonExpectationFailed
	ReasonBadRequestBody
	ReasonMisdirected
	ReasonRouteNotFound
	ReasonClientClosed
	ReasonClientTimeout
	ReasonTLSHandshakeFailed
	ReasonHTTPOnTLSPort
	ReasonMatchLimit
	ReasonPreflightRefused
	ReasonProxyHeaderInvalid
	ReasonBodyTooLarge
	ReasonAuthDenied
	ReasonRateLimited

	ReasonConnectFailed
	ReasonConnectTimeout
	ReasonUpstreamTLSFailed
	ReasonUpstreamReset
	ReasonUpstreamMalformed
	ReasonUpstreamTruncated
	ReasonBackendTimeout
	ReasonRequestTimeout
	ReasonGRPCTimeout
	ReasonStreamIdle
	ReasonStreamDurationExceeded
	ReasonRetriesExhausted
	ReasonRetryBodyTooLarge
	ReasonRetryBudgetExhausted
	ReasonAuthFailed
	ReasonCircuitBreakerOpen
	ReasonRateLimitUnavailable
	ReasonAdmissionRejected

	ReasonNoBackend
	ReasonBackendInvalid
	ReasonGatewayCertificateInvalid
	ReasonNoEndpoints
	ReasonRuleInvalid
	ReasonPolicyInvalid
	ReasonListenerInvalid
	ReasonFilterFailed
	ReasonFaultInjected
	ReasonShuttingDown
	ReasonLoopDetected
	ReasonOverloaded

	reasonCount
)

// Source is where the cause of an outcome is.
type Source uint8

// The sources. Internal is the gateway itself or its configuration.
const (
	SourceNone Source = iota
	SourceClient
	SourceUpstream
	SourceInternal
)

var sourceWords = [...]string{"none", "client", "upstream", "internal"}

// String returns the word for documentation and logs.
func (s Source) String() string {
	if int(s) < len(sourceWords) {
		return sourceWords[s]
	}
	return "Source(" + strconv.Itoa(int(s)) + ")"
}

// ReasonInfo describes one Reason.
type ReasonInfo struct {
	Reason Reason
	Word   string // lower case and underscores; never changes once released
	Source Source
	// Status is the status that is sent to the client; 0 if the reason does not determine it, or if nothing can be sent any more.
	Status int
	// Retryable is set if nothing of the request can have reached the backend, so that another endpoint may be tried for any method.
	Retryable   bool
	Description string
}

var reasons = [reasonCount]ReasonInfo{
	ReasonInternal:       {Word: "internal", Source: SourceInternal, Status: 500, Description: "the gateway failed because of a bug; please report it"},
	ReasonOK:             {Word: "ok", Source: SourceNone, Description: "the backend's response was relayed to its end, whatever its status"},
	ReasonRedirect:       {Word: "redirect", Source: SourceNone, Description: "a RequestRedirect filter answered"},
	ReasonPreflight:      {Word: "preflight", Source: SourceNone, Description: "a CORS filter answered a preflight request from an origin that it allows"},
	ReasonMaxForwards:    {Word: "max_forwards", Source: SourceNone, Status: 200, Description: "an OPTIONS request whose Max-Forwards was 0 was answered, and not forwarded"},
	ReasonUpgraded:       {Word: "upgraded", Source: SourceNone, Status: 101, Description: "the connection was switched to another protocol (or the stream of an extended CONNECT, which is answered with 200), or a CONNECT opened a tunnel, and it has ended"},
	ReasonUpgradeIgnored: {Word: "upgrade_ignored", Source: SourceNone, Description: "the request asks for another protocol, by Upgrade or an extended CONNECT, which was not requested from the backend: neither the appProtocol of the Service's port names it (kubernetes.io/ws is for websocket) nor httpUpgrade of a BackendTrafficPolicy if that is set; the backend's response without the switch was relayed, or the extended CONNECT was answered with 501"},
	ReasonTunnelIdle:     {Word: "tunnel_idle", Source: SourceNone, Description: "the connection of a layer-4 route, or one that was switched to another protocol, ended because neither side sent anything for an hour, or one side did not accept data for ten minutes"},
	ReasonTunnelEnded:    {Word: "tunnel_ended", Source: SourceNone, Description: "both sides have ended the connection of a layer-4 route"},
	ReasonSessionIdle:    {Word: "session_idle", Source: SourceNone, Description: "the UDP session ended because there was no datagram for a minute (15 seconds if its client has sent only one datagram, five while the gateway shuts down), or ten minutes after the only datagram of its client"},
	ReasonSessionEnded:   {Word: "session_ended", Source: SourceNone, Description: "the UDP session ended because its endpoint, route or listener was removed; the client's next datagram begins another"},

	ReasonBadRequest:          {Word: "bad_request", Source: SourceClient, Status: 400, Description: "the request head is malformed or its framing is ambiguous (RFC 9112), or the request has no Host although a redirect to another scheme or port needs it"},
	ReasonHeadTooLarge:        {Word: "head_too_large", Source: SourceClient, Status: 431, Description: "the request head has too many bytes or field lines for the gateway or, with HTTP/2, for the backend"},
	ReasonTargetTooLong:       {Word: "target_too_long", Source: SourceClient, Status: 414, Description: "the request target is too long"},
	ReasonVersionNotSupported: {Word: "version_not_supported", Source: SourceClient, Status: 505, Description: "the request's HTTP version is not supported"},
	ReasonNotImplemented:      {Word: "not_implemented", Source: SourceClient, Status: 501, Description: "the request uses a transfer coding or method that the gateway does not implement, or is a TRACE whose Max-Forwards is 0"},
	ReasonExpectationFailed:   {Word: "expectation_failed", Source: SourceClient, Status: 417, Description: "the Expect field asks for something other than 100-continue"},
	ReasonBadRequestBody:      {Word: "bad_request_body", Source: SourceClient, Status: 400, Description: "the request's chunked coding or trailer section is malformed"},
	ReasonMisdirected:         {Word: "misdirected", Source: SourceClient, Status: 421, Description: "the Host belongs to a different listener than the TLS server name, or the listener now requires a certificate that the client has not presented"},
	ReasonRouteNotFound:       {Word: "route_not_found", Source: SourceClient, Status: 404, Description: "no listener has this host, or no route matches"},
	ReasonClientClosed:        {Word: "client_closed", Source: SourceClient, Description: "the client closed the connection before the response was complete"},
	ReasonClientTimeout:       {Word: "client_timeout", Source: SourceClient, Status: 408, Description: "the client was too slow to send its request or to accept the response"},
	ReasonTLSHandshakeFailed:  {Word: "tls_handshake_failed", Source: SourceClient, Description: "the TLS handshake with the client failed"},

	ReasonHTTPOnTLSPort: {Word: "http_on_tls_port", Source: SourceClient, Status: 400, Description: "the client sent HTTP without TLS to a port that has TLS"},
	ReasonMatchLimit:    {Word: "match_limit", Source: SourceClient, Status: 431, Description: "the path, query or headers are too long for the regular expressions that the request would have to be matched against, or a header or query parameter is repeated so that the request matches more than 32 global rate limits"},

	ReasonProxyHeaderInvalid: {Word: "proxy_header_invalid", Source: SourceClient, Description: "the connection to a port with proxyProtocol did not begin with a valid PROXY header, or is not from one of the trustedProxies"},

	ReasonBodyTooLarge: {Word: "body_too_large", Source: SourceClient, Status: 413, Description: "the request body is longer than the maxRequestBodyBytes of the listener, the forwardBody.maxSize of an ExternalAuth filter, or the requestBuffer.limit of a BackendTrafficPolicy; if a response had begun, it broke off"},

	ReasonAuthDenied: {Word: "auth_denied", Source: SourceClient, Status: 403, Description: "the authorization server of an ExternalAuth filter denied the request; its response was relayed"},

	ReasonRateLimited: {Word: "rate_limited", Source: SourceClient, Status: 429, Description: "the request exceeds a limit in rateLimit of the rule's BackendTrafficPolicy; moongate_rate_limit_over_limit_total shows which"},

	ReasonPreflightRefused: {Word: "preflight_refused", Source: SourceClient, Status: 403, Description: "a CORS filter refused a preflight request: its origin is not among allowOrigins"},

	ReasonConnectFailed:     {Word: "connect_failed", Source: SourceUpstream, Status: 502, Retryable: true, Description: "no connection to the endpoint could be established"},
	ReasonConnectTimeout:    {Word: "connect_timeout", Source: SourceUpstream, Status: 504, Retryable: true, Description: "the endpoint did not accept a connection in time"},
	ReasonUpstreamTLSFailed: {Word: "upstream_tls_failed", Source: SourceUpstream, Status: 502, Retryable: true, Description: "the TLS handshake with the endpoint failed, or its certificate is not valid for the backend"},
	ReasonUpstreamReset:     {Word: "upstream_reset", Source: SourceUpstream, Status: 502, Description: "the backend closed the connection before it sent a complete response head"},
	ReasonUpstreamMalformed: {Word: "upstream_malformed", Source: SourceUpstream, Status: 502, Description: "the backend's response is malformed, ambiguous in its framing, or too large in its head"},
	ReasonUpstreamTruncated: {Word: "upstream_truncated", Source: SourceUpstream, Description: "the backend's response broke off after its head was relayed, or it has neither Content-Length nor the chunked coding and its TLS connection ended without the alert close_notify; the client's connection was closed to show it"},
	ReasonBackendTimeout:    {Word: "backend_timeout", Source: SourceUpstream, Status: 504, Description: "the rule's timeouts.backendRequest, the timeout of a single attempt, or the limit on the time without data from a backend, ran out"},
	ReasonRequestTimeout:    {Word: "request_timeout", Source: SourceUpstream, Status: 504, Description: "the rule's timeouts.request ran out"},
	ReasonGRPCTimeout:       {Word: "grpc_timeout", Source: SourceUpstream, Status: 504, Description: "the time that the client set in grpc-timeout of a gRPC call ran out"},
	ReasonStreamIdle:        {Word: "stream_idle", Source: SourceUpstream, Status: 504, Description: "no data passed between client and backend for the streamIdleTimeout of a BackendTrafficPolicy; if a response or a tunnel had begun, it broke off"},
	ReasonRetriesExhausted:  {Word: "retries_exhausted", Source: SourceUpstream, Description: "the backend's response was relayed to its end, although the rule's retry covers its status, because no further attempt was allowed: by the number of attempts, the time left of timeouts.request, a circuit breaker, scarce memory, or because all endpoints are unhealthy and panicThreshold is 0"},
	ReasonRetryBodyTooLarge: {Word: "retry_body_too_large", Source: SourceUpstream, Description: "the backend's response was relayed to its end, although the rule's retry covers its status, because the request body is longer than what is kept for another attempt"},

	ReasonStreamDurationExceeded: {Word: "stream_duration_exceeded", Source: SourceUpstream, Status: 504, Description: "request and response, or a tunnel, took longer than the maxStreamDuration of a BackendTrafficPolicy; if a response or a tunnel had begun, it broke off"},

	ReasonRetryBudgetExhausted: {Word: "retry_budget_exhausted", Source: SourceUpstream, Status: 503, Description: "an attempt failed and the rule's retry covers the failure, but the retryConstraint of the backend's XBackendTrafficPolicy allows no more retries for now"},

	ReasonAuthFailed: {Word: "auth_failed", Source: SourceUpstream, Status: 503, Description: "the authorization server of an ExternalAuth filter gave no answer, or an invalid one, so the request was not forwarded"},

	ReasonCircuitBreakerOpen: {Word: "circuit_breaker_open", Source: SourceUpstream, Status: 503, Description: "a limit of the backend's BackendTrafficPolicy on connections, or on requests in flight or waiting, is reached; moongate_upstream_circuit_breaker_overflows_total shows which"},

	ReasonRateLimitUnavailable: {Word: "rate_limit_unavailable", Source: SourceInternal, Status: 503, Description: "the Redis that stores a global rate limit of the rule did not answer in time, and the failure mode is Closed"},
	ReasonAdmissionRejected:    {Word: "admission_rejected", Source: SourceUpstream, Status: 503, Description: "the admissionControl of a BackendTrafficPolicy rejected the request because too many earlier ones had failed"},

	ReasonNoBackend:                 {Word: "no_backend", Source: SourceInternal, Status: 500, Description: "the rule has no backendRef with a weight above 0"},
	ReasonBackendInvalid:            {Word: "backend_invalid", Source: SourceInternal, Status: 500, Description: "the chosen backendRef cannot be used: see the condition ResolvedRefs of the route"},
	ReasonGatewayCertificateInvalid: {Word: "gateway_certificate_invalid", Source: SourceInternal, Status: 500, Description: "the backend is reached over TLS, and the Gateway's clientCertificateRef cannot be used: see its condition ResolvedRefs"},
	ReasonNoEndpoints:               {Word: "no_endpoints", Source: SourceInternal, Status: 503, Description: "the chosen backend has no endpoint that is ready, or none is healthy and `panicThreshold` is 0"},
	ReasonListenerInvalid:           {Word: "listener_invalid", Source: SourceInternal, Status: 500, Description: "a filter of the listener cannot be applied: it does not exist, or is not valid"},
	ReasonRuleInvalid:               {Word: "rule_invalid", Source: SourceInternal, Status: 500, Description: "the matched rule cannot be applied as configured"},
	ReasonPolicyInvalid:             {Word: "policy_invalid", Source: SourceInternal, Status: 500, Description: "the BackendTrafficPolicy in force for the rule cannot be applied: see its status"},
	ReasonFilterFailed:              {Word: "filter_failed", Source: SourceInternal, Status: 500, Description: "a filter of the rule could not be applied to this request"},
	ReasonFaultInjected:             {Word: "fault_injected", Source: SourceInternal, Description: "the faultInjection.abort of a BackendTrafficPolicy answered with its configured status"},
	ReasonShuttingDown:              {Word: "shutting_down", Source: SourceInternal, Status: 503, Description: "the gateway is shutting down and the request was not finished within --drain-timeout"},
	ReasonLoopDetected:              {Word: "loop_detected", Source: SourceInternal, Status: 508, Description: "the request has passed proxies of Moongate ten times, or the connection of a layer-4 route has passed its listener before: a backend leads back to them"},
	ReasonOverloaded:                {Word: "overloaded", Source: SourceInternal, Status: 503, Description: "a limit of the gateway on connections or requests is reached, or memory is scarce"},
}

var reasonByWord = make(map[string]Reason, reasonCount)

func init() {
	for i := range reasons {
		reasons[i].Reason = Reason(i)
		reasonByWord[reasons[i].Word] = Reason(i)
	}
}

// String returns the stable word.
func (r Reason) String() string { return r.info().Word }

// Source returns where the cause is.
func (r Reason) Source() Source { return r.info().Source }

// Retryable reports whether another endpoint may be tried; see ReasonInfo.
func (r Reason) Retryable() bool { return r.info().Retryable }

// Status returns the status that is sent to the client; 0 as in ReasonInfo.
func (r Reason) Status() int { return r.info().Status }

// Description returns one sentence for documentation and for explain.
func (r Reason) Description() string { return r.info().Description }

func (r Reason) info() *ReasonInfo {
	if r >= reasonCount {
		r = ReasonInternal
	}
	return &reasons[r]
}

// Reasons returns the whole table, in order.
func Reasons() []ReasonInfo {
	out := reasons
	return out[:]
}

// ReasonByWord returns a Reason by its word, such as the reason of a config.Failure or of a parser's error. It is too slow for the
// path of a request: resolve the word once.
func ReasonByWord(word string) (Reason, bool) {
	r, ok := reasonByWord[word]
	return r, ok
}
