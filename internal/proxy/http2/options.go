package http2

import (
	"sync/atomic"
	"time"

	"github.com/moongate-dev/moongate/internal/proxy/http2/frame"
)

const defaultMaxStreams = 128

// Options configures a connection; the zero value is ready for production.
type Options struct {
	// MaxStreams is how many streams a client may have open; 128. Twice as many may run while
	// those that the client has reset come to their ends; above that streams are refused.
	MaxStreams int
	// MaxHeaderBytes bounds a header section, counted as SETTINGS_MAX_HEADER_LIST_SIZE does;
	// 32 KiB. Above it the answer is 431, above twice of it for one field or block the
	// connection ends.
	MaxHeaderBytes int
	MaxFields      int // field lines of a header or trailer section; 128
	// StreamWindow is how many bytes of a request body a client may send ahead of who reads it; 256 KiB, at
	// least 64 KiB. It begins with 64 KiB, and has the rest when some of that has been read.
	// ConnWindow is the connection's; 1 MiB, at least 64 KiB. It bounds what is under way in the
	// network only, since all that comes is credited at once.
	StreamWindow, ConnWindow int
	// ExtendedConnect allows CONNECT with :protocol (RFC 8441).
	ExtendedConnect bool
	Timeouts        Timeouts
	// Rest is how long a client's connection must have had neither streams nor frames for Serve to return ErrRests; 0 is never.
	Rest time.Duration
	// Scarce, while it is true, has bodies that are read give nothing back to the windows of their streams: memory is scarce.
	// Conn.Resume is to be called when it has become false. May be nil.
	Scarce *atomic.Bool
	// Unacknowledged returns how many bytes that were written the peer has yet to acknowledge; nil is none.
	Unacknowledged func() int
	// Refused is told of requests that are answered or reset here and never reach a handler:
	// with the status 400, 431 or 503 and what was wrong. It must not block nor call
	// anything of this package. May be nil.
	Refused func(status int, why error)
	// Panicked is told of a panic that was recovered and ends the connection, by the deferred function. May be nil.
	Panicked func(v any)

	widening *Widening // see ClientOptions
}

// Timeouts bounds how long a client may keep the connection waiting. Zero fields take the default.
type Timeouts struct {
	Idle time.Duration // without open streams; 75 s
	// Head is for the preface with the first SETTINGS, from the first byte of a header block
	// to its last, and for the rest of any other frame that has begun, but DATA; 15 s.
	Head time.Duration
	// Write is for one write to the client to be taken, and for one call of Stream.Write,
	// Flush and so on, flow control included; 60 s.
	Write time.Duration
	// Ping is how long a client with open streams may be silent before it is sent a PING;
	// 30 s.
	Ping        time.Duration
	Pong        time.Duration // how long it may be silent after the PING; as Ping
	SettingsAck time.Duration // for the client's answer to our SETTINGS; 15 s
	// Linger is how long bytes of a client that was told GOAWAY are thrown away, so that it is not
	// lost with a reset of the connection; 1 s.
	Linger time.Duration
	// Drain is how long new streams are still taken after the first GOAWAY of Conn.Drain, unless
	// the client shows earlier that it knows of it; 1 s.
	Drain time.Duration
}

// minWindow is the least window that can be set: a peer may send that much before it knows our settings.
const minWindow = frame.DefaultWindow

// withDefaults has each zero field replaced.
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

// positive is v, or otherwise where v is not positive.
func positive[T int | time.Duration](v, otherwise T) T {
	if v > 0 {
		return v
	}
	return otherwise
}
