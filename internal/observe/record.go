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

// Record is one finished request. Byte slices may point into the connection's
// buffers: they are read before Finish returns and not kept. A Record is reused
// from request to request; set all of it, or reset it by assigning Record{}.
type Record struct {
	StartUnixNano int64
	DurationNano  int64 // from the first byte of the head to the last byte of the response
	ClientAddr    netip.AddrPort

	Method    []byte
	Scheme    string // "http" or "https"
	Host      []byte // authority as received, port included
	Target    []byte // path with query as received; nil where the head could not be parsed
	Protocol  string // "HTTP/1.1"
	UserAgent []byte
	RequestID []byte // X-Request-Id as sent to the backend; nil where the request was refused before it got one

	Status        int   // as sent to the client; 0 where no response was sent
	BytesReceived int64 // request body, without chunk framing
	BytesSent     int64 // response body, without chunk framing

	// Stats is the handle of the rule that matched. Without one it is the listener's
	// (ListenerStats.Unrouted) or the socket's (SocketStats.Unrouted); nil is
	// Metrics.Unattributed. It also names gateway, listener, route and rule in the log.
	Stats *RuleStats
	// Backend is the 1-based position in RuleLabels.Backends; 0 where none was chosen.
	Backend int32
	// Attempts are the upstream attempts made; 0 where none was made.
	Attempts int32

	Upstream             netip.AddrPort // endpoint of the last attempt; zero where none was made
	UpstreamDurationNano int64          // from sending the last attempt's head to its last byte

	// Cause is set where the record is of a connection that ended before any request: it says why, Port is that of the listener,
	// and Host the server name of TLS. Such a record has no duration.
	Cause string
	Port  uint16

	// OverriddenStatus is what Status would have been without the response override of a policy; 0 where there was none.
	OverriddenStatus uint16

	// InjectedDelayMillis is by how much the request was delayed on purpose; 0 where it was not.
	InjectedDelayMillis uint32

	// Span is that of the request; nil where it is not recorded in a trace.
	Span *SpanID

	// Headers are the values that AccessLog.Headers asks for, in that order, nil where there is none; nil where nothing is known of them.
	Headers *Headers

	Reason Reason // beside what is as small

	// Session is what became of the client's session with the backend.
	Session Session

	// ContentEncoding is what the gateway has compressed the response with.
	ContentEncoding ContentEncoding

	// Shard spreads contention: any number, the same for all requests of one connection.
	Shard uint32
}

// Headers are the values of headers.
type Headers [][]byte

// header is the value of one; nil where it is not there, or not known.
func (r *Record) header(i int) []byte {
	if r.Headers == nil || i >= len(*r.Headers) {
		return nil
	}
	return (*r.Headers)[i]
}

// end is when the request ended, in Unix nanoseconds.
func (r *Record) end() int64 { return r.StartUnixNano + r.DurationNano }

// Observer is the one place where requests end. The zero value counts and logs nothing.
type Observer struct {
	Metrics *Metrics   // nil counts nothing
	Log     *AccessLog // nil or off logs nothing
	// Logger is told of panics; nil is silence.
	Logger *slog.Logger
	// Core numbers the core at hand. It is asked, instead of Record.Shard, where counters are
	// spread; nil is never.
	Core func() uint32
}

// Finish counts and logs one request. It does not block, does not allocate and is
// safe for concurrent use. Of the record it changes Shard at most. A nil Observer does nothing.
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

// Session is what became of a client's session with a backend (GEP-1619).
type Session uint8

// The values of Session.
const (
	SessionNone  Session = iota // no sessions persist there, or the request was not answered by it, or its response broke off, or has a cookie of the backend's own in the place of the session's
	SessionNew                  // it has begun
	SessionKept                 // its endpoint has answered
	SessionMoved                // another endpoint has, which it is with from now on: its own was not there
)

// String is the word of the access log and the metrics; "" for SessionNone.
func (s Session) String() string {
	return [...]string{SessionNone: "", SessionNew: "new", SessionKept: "kept", SessionMoved: "moved"}[s]
}

// ContentEncoding is what the gateway has compressed a response with.
type ContentEncoding uint8

// The values of ContentEncoding.
const (
	ContentEncodingNone ContentEncoding = iota // it has not, whatever the backend has
	ContentEncodingGzip
	ContentEncodingBrotli
	ContentEncodingZstd
)

// String is the word of the access log, as in the field Content-Encoding; "" for ContentEncodingNone.
func (e ContentEncoding) String() string {
	return [...]string{ContentEncodingNone: "", ContentEncodingGzip: "gzip", ContentEncodingBrotli: "br", ContentEncodingZstd: "zstd"}[e]
}
