package http2

import (
	"sync/atomic"
	"time"

	"github.com/moongate-dev/moongate/internal/proxy/http2/frame"
)

const defaultMaxStreams = 128

// Options configures a connection. The zero value is ready for production.
type Options struct {
	// MaxStreams is how many streams a client may have open; default 128. Twice as many may run while those that the
	// client has reset come to their ends; beyond that, streams are refused.
	MaxStreams int
	// MaxHeaderBytes bounds a header section, counted as SETTINGS_MAX_HEADER_LIST_SIZE counts it; default 32 KiB. A
	// larger section is answered with 431. A field or block of more than twice the bound ends the connection.
	MaxHeaderBytes int
	MaxFields      int // field lines of a header or trailer section; default 128
	// StreamWindow is how many bytes of a request body a client may send before they are read; default 256 KiB, at
	// least 64 KiB. A stream begins with 64 KiB, and gets the rest when some of that has been read. ConnWindow is the
	// connection's window; default 1 MiB, at least 64 KiB. It only bounds what is in transit, since DATA is credited as
	// soon as it arrives.
	StreamWindow, ConnWindow int
	// ExtendedConnect allows CONNECT with :protocol (RFC 8441).
	ExtendedConnect bool
	Timeouts        Timeouts
	// ParkAfter is how long a client's connection must have had neither streams nor frames for Serve to return ErrParked; 0
	// means never.
	ParkAfter time.Duration
	// Scarce means that memory is scarce. While it is true, bodies that are read do not credit the windows of their
	// streams. Conn.Resume must be called when it has become false. May be nil.
	Scarce *atomic.Bool
	// Unacknowledged returns how many written bytes the peer has not acknowledged yet; nil means none.
	Unacknowledged func() int
	// Refused is called for requests that are answered or reset by this package and never reach a handler: with the
	// status 400, 431 or 503, and the reason. It must not block nor call anything of this package. May be nil.
	Refused func(status int, why error)
	// Panicked is called by the deferred function when a panic was recovered, which ends the connection. May be nil.
	Panicked func(v any)

	widening *Widening // see ClientOptions.Widening
}

// Timeouts bounds how long a client may make the connection wait. A zero field takes the default.
type Timeouts struct {
	Idle time.Duration // without open streams; default 75 s
	// Head is for the preface with the first SETTINGS, from the first byte of a header block to its last, and for the
	// rest of any other frame that has begun, except DATA; default 15 s.
	Head time.Duration
	// Write is how long one write to the client may take, and one call of Stream.Write, Flush and the like, including
	// flow control; default 60 s.
	Write time.Duration
	// Ping is how long a client with open streams may be silent before it is sent a PING; default 30 s.
	Ping        time.Duration
	Pong        time.Duration // how long the client may be silent after the PING; default Ping
	SettingsAck time.Duration // for the client to acknowledge SETTINGS; default 15 s
	// Linger is how long bytes of a client are discarded after GOAWAY was sent, so that GOAWAY is not lost to a reset
	// of the connection; default 1 s.
	Linger time.Duration
	// Drain is how long new streams are accepted after the first GOAWAY of Conn.Drain, unless the client shows earlier
	// that it has received it; default 1 s.
	Drain time.Duration
}

// minWindow is the least window that can be set: a peer may send that much before it receives the SETTINGS.
const minWindow = frame.DefaultWindow

// withDefaults returns o with each zero field replaced by its default.
func (o Options) withDefaults() Options {
	o.MaxStreams = positive(o.MaxStreams, defaultMaxStreams)
	o.MaxHeaderBytes = positive(o.MaxHeaderBytes, 32<<10)
	o.MaxFields = positive(o.MaxFields, 128)
	o.StreamWindow = max(positive(o.StreamWindow, 256<<10), minWindow)
	o.ConnWindow = max(positive(o.ConnWindow, 1<<20), minWindow)
	t := &o.Timeouts
	t.Idle = positive(t.Idle, 75*time.Second)
	t.Head = positive(t.Head, 15*time.Second)
	t.Write = positive(t.Write, 60*time.Second)
	t.Ping = positive(t.Ping, 30*time.Second)
	t.Pong = positive(t.Pong, t.Ping)
	t.SettingsAck = positive(t.SettingsAck, 15*time.Second)
	t.Linger = positive(t.Linger, time.Second)
	t.Drain = positive(t.Drain, time.Second)
	return o
}

// positive returns v if it is positive, and otherwise if not.
func positive[T int | time.Duration](v, otherwise T) T {
	if v > 0 {
		return v
	}
	return otherwise
}
