package http2

import (
	"math"
	"sync/atomic"
	"syscall"
	"time"
)

// ClientOptions configures a connection to a backend. The zero value is ready for production.
type ClientOptions struct {
	// MaxStreams is the largest number of concurrent streams, whatever the backend allows; default 128.
	MaxStreams int
	// MaxHeaderBytes and MaxFields bound a header or trailer section as in Options; default 32 KiB and 128. A larger
	// response is malformed.
	MaxHeaderBytes, MaxFields int
	// StreamWindow is how many bytes of a response body a backend may send before they are read; default 256 KiB, at
	// least 64 KiB. A stream begins with at most 256 KiB, and gets the rest when its response is read, if Widening
	// allows it.
	StreamWindow int
	// Widening limits the windows beyond 256 KiB of several connections together; nil means 4 MiB for each connection.
	Widening *Widening
	// ConnWindow is the window of the connection, at least 64 KiB; default 4 MiB, or StreamWindow if that is more.
	ConnWindow int
	// Keepalive sends PINGs whether streams are open or not.
	Keepalive Keepalive
	// PingAfter is how long the backend may be silent while streams are open before it is sent a PING; default 15 s.
	// Only two PINGs in a row are sent that fast; then one every 5 minutes until the backend sends something on a
	// stream, because gRPC servers treat more as a flood. PingTimeout is how long it may be silent after a PING before
	// the connection is considered dead; default 15 s.
	PingAfter, PingTimeout time.Duration
	// Raw is the socket under nc, if nc sends bytes unchanged. Writes to it never wait, so that a stream need not wait
	// because of others. If it is nil, all bytes are written with methods of nc, on another goroutine.
	Raw syscall.RawConn
	// Freed is called when a stream was returned or the backend allows more streams, so that Available may have risen.
	// Gone is called once when no more streams can be opened: after GOAWAY or Drain, when the stream numbers are used
	// up, or at the end. Both are called without a lock, must not block, and may be nil. They may call Available, Drain
	// and Close.
	Freed, Gone func()
	// Panicked is as in Options.
	Panicked func(v any)
}

// Widening bounds the sum of the bytes by which the windows of streams exceed their initial size, so that a backend and
// clients that do not read cannot make the proxy hold more, however many streams there are. The zero value allows none.
// It is safe for concurrent use.
type Widening struct {
	// Most is the bound in bytes. It must not be changed once connections use the Widening.
	Most int64
	used atomic.Int64
}

// take takes n bytes if the bound allows it, and reports whether it does.
func (w *Widening) take(n int) bool {
	if w.used.Add(int64(n)) <= w.Most {
		return true
	}
	w.give(n)
	return false
}

func (w *Widening) give(n int) { w.used.Add(-int64(n)) }

// Keepalive configures when a connection to a backend is sent PINGs in addition to those of ClientOptions.PingAfter.
type Keepalive struct {
	// Interval is the time between two PINGs, to which up to JitterPercent of it are added; 0 means none. It replaces
	// PingAfter.
	Interval      time.Duration
	JitterPercent int
	// Timeout is how long the backend may be silent after a PING before the connection is considered dead; 0 means
	// PingTimeout.
	Timeout time.Duration
	// Idle is the time without streams after which a PING is sent ahead of the next stream; 0 means never.
	Idle time.Duration
}

const (
	// clientWindow is the default window of the connection. It only bounds what is in transit, since DATA is credited
	// as soon as it arrives.
	clientWindow = 4 << 20
	// unlimited is the number of streams, and the size of header sections, that a backend allows if its SETTINGS do not
	// limit them. assumedStreams is the number of streams before its SETTINGS have arrived.
	unlimited, assumedStreams = math.MaxUint32, 100
)

// connOptions returns the options of a connection, with their defaults.
func (o *ClientOptions) connOptions() Options {
	window := max(positive(o.StreamWindow, 256<<10), minWindow)
	return Options{
		MaxStreams: o.MaxStreams, MaxHeaderBytes: o.MaxHeaderBytes, MaxFields: o.MaxFields,
		StreamWindow: window, widening: o.Widening, ConnWindow: positive(o.ConnWindow, max(clientWindow, window)), Panicked: o.Panicked,
		Timeouts: Timeouts{Ping: positive(o.PingAfter, 15*time.Second), Pong: positive(o.Keepalive.Timeout, positive(o.PingTimeout, 15*time.Second))},
	}
}
