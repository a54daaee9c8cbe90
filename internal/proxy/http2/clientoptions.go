package http2

import (
	"math"
	"sync/atomic"
	"syscall"
	"time"
)

// ClientOptions configures a connection to a backend; the zero value is ready for production.
type ClientOptions struct {
	// MaxStreams is how many streams there are at once at most, whatever the backend allows; 128.
	MaxStreams int
	// MaxHeaderBytes and MaxFields bound a header or trailer section as in Options; 32 KiB and 128. Above
	// them a response is malformed.
	MaxHeaderBytes, MaxFields int
	// StreamWindow is how many bytes of a response body a backend may send ahead of who reads it; 256 KiB,
	// at least 64 KiB. A stream begins with 256 KiB of a larger one, and has the rest when its response is read, as far as Widening has it.
	StreamWindow int
	// Widening is what streams of several connections have beyond 256 KiB; nil is 4 MiB for each connection.
	Widening *Widening
	// ConnWindow is that of the connection, at least 64 KiB; 4 MiB, or StreamWindow where that is more.
	ConnWindow int
	// Keepalive has PINGs sent whether streams are open or not.
	Keepalive Keepalive
	// PingAfter is how long the backend may be silent while streams are open before it is sent a PING;
	// 15 s, but twice in a row at most; then every 5 minutes until it says something on a stream, because servers
	// of gRPC take more for a flood. PingTimeout is how long it may be silent after that before the connection is taken for dead; 15 s.
	PingAfter, PingTimeout time.Duration
	// Raw is the socket under nc, where nc sends bytes as they are. Writes to it never wait, so that a stream need
	// not wait because of others. With nil all bytes go through methods of nc, on another goroutine.
	Raw syscall.RawConn
	// Freed is called when a stream was given back or the backend allows more of them, so that Available
	// may have risen. Gone is called once when no stream can be opened any more: after GOAWAY or Drain,
	// when the stream numbers are used up, or at the end. Both are called without a lock, must not
	// block, and may be nil. They may call Available, and Drain and Close.
	Freed, Gone func()
	// Panicked is as in Options.
	Panicked func(v any)
}

// Widening bounds by how many bytes streams have larger windows than they begin with, all together, so that a backend and clients that do not read cannot have
// the proxy hold more, however many streams there are. The zero value allows none. It is safe for concurrent use.
type Widening struct {
	// Most is the bound in bytes. It is not to be changed once connections have it.
	Most int64
	used atomic.Int64
}

// take reports whether there is room for n bytes more, and takes it then.
func (w *Widening) take(n int) bool {
	if w.used.Add(int64(n)) <= w.Most {
		return true
	}
	w.give(n)
	return false
}

func (w *Widening) give(n int) { w.used.Add(-int64(n)) }

// Keepalive says when a connection to a backend is sent PINGs beside those of ClientOptions.PingAfter.
type Keepalive struct {
	// Interval is that between two PINGs, to which up to JitterPercent of it are added; 0 is never. It takes the place of PingAfter.
	Interval      time.Duration
	JitterPercent int
	// Timeout is how long the backend may be silent after a PING before the connection is taken for dead; 0 is PingTimeout.
	Timeout time.Duration
	// Idle is after how long without a stream a PING is sent ahead of the next one; 0 is never.
	Idle time.Duration
}

const (
	// clientWindow is the connection's window. It bounds nothing but what is under way in the
	// network, since all that comes is credited at once.
	clientWindow = 4 << 20
	// unlimited is how many streams a backend allows, and how large header sections, that says nothing of it, and assumedStreams how many streams one does
	// that has said nothing yet.
	unlimited, assumedStreams = math.MaxUint32, 100
)

// connOptions returns those of a connection, with their defaults.
func (o *ClientOptions) connOptions() Options {
	window := max(positive(o.StreamWindow, 256<<10), minWindow)
	return Options{
		MaxStreams: o.MaxStreams, MaxHeaderBytes: o.MaxHeaderBytes, MaxFields: o.MaxFields,
		StreamWindow: window, widening: o.Widening, ConnWindow: positive(o.ConnWindow, max(clientWindow, window)), Panicked: o.Panicked,
		Timeouts: Timeouts{Ping: positive(o.PingAfter, 15*time.Second), Pong: positive(o.Keepalive.Timeout, positive(o.PingTimeout, 15*time.Second))},
	}
}
