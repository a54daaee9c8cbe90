// Package accesslog defines the content of an access log line: the names of its members, its formats, and redaction. It is separate
// from observe, which writes the lines, so that translation validates GatewayParameters by the same rules as the proxy its flags.
//
// It must never import any other package of Moongate.
package accesslog

import "strconv"

// Maximum lengths of the values in a line, in bytes before escaping.
const (
	MaxMethod    = 32
	MaxHost      = 512
	MaxTarget    = 8192
	MaxUserAgent = 1024
	MaxRequestID = 256
	MaxCause     = 256
	MaxHeader    = 512
)

// Member is a member of a line.
type Member uint8

// The members, in their order.
const (
	StartTime Member = iota
	Method
	Scheme
	Authority
	Path
	Protocol
	ResponseCode
	Reason
	BytesReceived
	BytesSent
	Duration
	ClientAddress
	UserAgent
	RequestID
	Gateway
	Listener
	Route
	Rule
	Backend
	UpstreamHost
	UpstreamDuration
	Attempts

	InjectedDelay
	OverriddenResponseCode
	TraceID
	SpanID
	Session
	ContentEncoding
	Port
	Cause

	ClientIP
	CommonTime
	// RequestHeader and ResponseHeader stand for a header with a name.
	RequestHeader
	ResponseHeader
)

// The prefixes of the keys of headers.
const (
	requestHeaderPrefix  = "request_header."
	responseHeaderPrefix = "response_header."
)

// Presence defines which lines contain a member by default.
type Presence uint8

// The values of Presence.
const (
	Always   Presence = iota // in every line
	Optional                 // only in lines in which it has a value
	Chosen                   // only if it is selected
)

// Description is the key and the meaning of a member.
type Description struct {
	Key, Text string
	Presence  Presence
}

// Members describes all members, in order; a Member is an index into it.
var Members = [...]Description{
	StartTime:        {"start_time", "when the first byte of the request arrived; RFC 3339 in UTC with milliseconds", Always},
	Method:           {"method", "request method, at most " + strconv.Itoa(MaxMethod) + " bytes", Always},
	Scheme:           {"scheme", "http or https; tcp or tls for a connection that a layer-4 route forwarded", Always},
	Authority:        {"authority", "Host as received, including the port, or the server name of a connection with scheme tls; at most " + strconv.Itoa(MaxHost) + " bytes", Always},
	Path:             {"path", "path and query as received, at most " + strconv.Itoa(MaxTarget) + " bytes; values of redacted parameters are *", Always},
	Protocol:         {"protocol", "such as HTTP/1.1", Always},
	ResponseCode:     {"response_code", "status sent to the client; 0 if none was sent", Always},
	Reason:           {"reason", "stable word that describes how the request ended; the same as in moongate_requests_total", Always},
	BytesReceived:    {"bytes_received", "bytes of the request body", Always},
	BytesSent:        {"bytes_sent", "bytes of the response body", Always},
	Duration:         {"duration_ms", "milliseconds from the first byte of the request to the last of the response", Always},
	ClientAddress:    {"client_address", "IP address and port of the client: those of the connection's peer, those in the PROXY header of the connection, or those in X-Forwarded-For of a trusted proxy, which may have no port", Always},
	UserAgent:        {"user_agent", "User-Agent, at most " + strconv.Itoa(MaxUserAgent) + " bytes", Always},
	RequestID:        {"request_id", "X-Request-Id as sent to the backend, at most " + strconv.Itoa(MaxRequestID) + " bytes; null if the request was rejected before it got one", Always},
	Gateway:          {"gateway", "<namespace>/<name> of the Gateway", Always},
	Listener:         {"listener", "name of the listener", Always},
	Route:            {"route", "<kind>/<namespace>/<name> of the route", Always},
	Rule:             {"rule", "name of the rule, otherwise its index, starting at 0", Always},
	Backend:          {"backend", "the chosen backend, such as Service/<namespace>/<name>/<port>", Always},
	UpstreamHost:     {"upstream_host", "IP address and port of the endpoint of the last attempt", Always},
	UpstreamDuration: {"upstream_duration_ms", "milliseconds of the last attempt", Always},
	Attempts:         {"attempts", "number of attempts at endpoints", Always},

	InjectedDelay:          {"injected_delay_ms", "milliseconds by which a fault injection delayed the request", Optional},
	OverriddenResponseCode: {"overridden_response_code", "the response_code before the response override of a policy", Optional},
	TraceID:                {"trace_id", "ID of the request's trace, in hexadecimal, if the request is recorded", Optional},
	SpanID:                 {"span_id", "ID of the request's span in that trace, in hexadecimal", Optional},
	Session:                {"session", "result for the client's persistent session: new, kept or moved", Optional},
	ContentEncoding:        {"content_encoding", "encoding that the gateway compressed the response with: gzip, br or zstd", Optional},
	Port:                   {"port", "port of the listener, for a connection that ended before any request", Optional},
	Cause:                  {"cause", "why that connection ended, at most " + strconv.Itoa(MaxCause) + " bytes", Optional},

	ClientIP:       {"client_ip", "IP address of client_address, without the port", Chosen},
	CommonTime:     {"common_time", "start_time as in the Common Log Format, such as 10/Oct/2026:13:55:36 +0000", Chosen},
	RequestHeader:  {requestHeaderPrefix + "<name>", "field of the request as received, at most " + strconv.Itoa(MaxHeader) + " bytes; several lines are joined by a comma", Chosen},
	ResponseHeader: {responseHeaderPrefix + "<name>", "field of the response as sent to the client, at most " + strconv.Itoa(MaxHeader) + " bytes; several lines are joined by a comma", Chosen},
}
