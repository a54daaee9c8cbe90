package observe

import (
	"log/slog"
	"net/netip"
)

// SpanID names a span, in hexadecimal.
type SpanID struct {
	Trace [32]byte
	Span  [16]byte // within the trace
}

// Record is one finished request. Byte slices may point into the connection's buffers: they are read before Finish returns and not
// kept. A Record is reused from request to request; set all of it, or reset it by assigning Record{}.
type Record struct {
	StartUnixNano int64
	DurationNano  int64 // from the first byte of the header section to the last byte of the response
	ClientAddr    netip.AddrPort

	Method    []byte
	Scheme    string // "http" or "https"
	Host      []byte // authority as received, port included
	Target    []byte // path with query as received; nil if the header section could not be parsed
	Protocol  string // "HTTP/1.1"
	UserAgent []byte
	RequestID []byte // X-Request-Id as sent to the backend; nil if the request was refused before it got one

	Status        int   // as sent to the client; 0 if no response was sent
	BytesReceived int64 // request body, without chunk framing
	BytesSent     int64 // response body, without chunk framing

	// Stats is the handle of the rule that matched; if there is none, that of the listener (ListenerStats.Unrouted) or of the socket
	// (SocketStats.Unrouted); nil means that it belongs to no listener. It also provides gateway, listener, route and rule for the log.
	Stats *RuleStats
	// Backend is the 1-based position in RuleLabels.Backends; 0 if none was selected.
	Backend int32
	// Attempts is the number of attempts to send the request to a backend; 0 if none.
	Attempts int32

	Upstream             netip.AddrPort // endpoint of the last attempt; zero if there was none
	UpstreamDurationNano int64          // from sending the last attempt's header section to its last byte

	// Cause is set if the record is about a connection that ended before any request, and is the reason. Then Port is that of the
	// listener, and Host the server name of TLS. Such a record has no duration.
	Cause string
	Port  uint16

	// OverriddenStatus is what Status would have been without the response override of a policy; 0 if there was none.
	OverriddenStatus uint16

	// InjectedDelayMillis is the injected delay of the request; 0 if none.
	InjectedDelayMillis uint32

	// Span is that of the request; nil if it is not recorded in a trace.
	Span *SpanID

	// Headers are the values of the headers that AccessLog.Headers returns, in that order, with nil for absent ones; nil if the
	// header section is not known.
	Headers *Headers

	Reason Reason // placed next to other small fields

	// Session is the state of the client's session with the backend.
	Session Session

	// ContentEncoding is the encoding with which the gateway has compressed the response.
	ContentEncoding ContentEncoding

	// Shard distributes contention: any number that is the same for all requests of one connection.
	Shard uint32
}

// Headers are values of headers.
type Headers [][]byte

// header returns the value of one; nil if it is absent, or not known.
func (r *Record) header(i int) []byte {
	if r.Headers == nil || i >= len(*r.Headers) {
		return nil
	}
	return (*r.Headers)[i]
}

// end returns when the request ended, in Unix nanoseconds.
func (r *Record) end() int64 { return r.StartUnixNano + r.DurationNano }

// Observer is the one place where requests end. The zero value counts and logs nothing.
type Observer struct {
	Metrics *Metrics   // nil counts nothing
	Log     *AccessLog // nil, or off, logs nothing
	// Logger is used for panics; may be nil.
	Logger *slog.Logger
	// Core returns a number of the current core. If it is not nil, it is used instead of Record.Shard for counters with copies.
	Core func() uint32
}

// Finish counts and logs one request. It does not block, does not allocate and is safe for concurrent use. It may change only Shard
// of the record. A nil Observer does nothing.
func (o *Observer) Finish(r *Record) {
	if o == nil {
		return
	}
	stats := r.Stats
	if stats == nil && o.Metrics != nil {
		stats = o.Metrics.unattributed
	}
	if o.Log != nil { // by connection, so that its lines keep their order
		o.Log.write(r)
	}
	if stats == nil {
		return
	}
	if o.Core != nil && stats.spread() {
		r.Shard = o.Core()
	}
	stats.count(r)
}

// Session is the state of a client's session with a backend (GEP-1619).
type Session uint8

// The values of Session.
const (
	SessionNone  Session = iota // no session persistence, no complete response of the backend, or the backend has set the session's cookie itself
	SessionNew                  // the session has begun
	SessionKept                 // its endpoint has answered
	SessionMoved                // another endpoint has answered, which has the session from now on: its own was not available
)

// String returns the word in the access log and the metrics; "" for SessionNone.
func (s Session) String() string {
	return [...]string{SessionNone: "", SessionNew: "new", SessionKept: "kept", SessionMoved: "moved"}[s]
}

// ContentEncoding is the encoding with which the gateway has compressed a response.
type ContentEncoding uint8

// The values of ContentEncoding.
const (
	ContentEncodingNone ContentEncoding = iota // the gateway has not compressed it; the backend may have
	ContentEncodingGzip
	ContentEncodingBrotli
	ContentEncodingZstd
)

// String returns the word in the access log, as in the field Content-Encoding; "" for ContentEncodingNone.
func (e ContentEncoding) String() string {
	return [...]string{ContentEncodingNone: "", ContentEncodingGzip: "gzip", ContentEncodingBrotli: "br", ContentEncodingZstd: "zstd"}[e]
}
