// Package proxy is the data plane: it takes generations of configuration, listens,
// and moves requests from clients to endpoints and responses back. A request
// is handled by straight-line code on the goroutine of its connection; see
// docs/life-of-a-request.md for its phases and exits.
//
// It must import neither translate nor source nor anything of Kubernetes: what it needs to
// know is in package config.
package proxy

import (
	"log/slog"
	"net/netip"
	"time"

	"github.com/moongate-dev/moongate/internal/observe"
	"github.com/moongate-dev/moongate/internal/proxy/http1"
	"github.com/moongate-dev/moongate/internal/proxy/upstream"
)

// Options configures a Proxy; the zero value is ready for production.
type Options struct {
	// Bind is where listeners without addresses are bound; empty means every
	// address of the machine, IPv4 and IPv6.
	Bind []netip.Addr
	// AccessLog and Metrics may be nil: nothing is logged or counted then.
	AccessLog *observe.AccessLog
	Metrics   *observe.Metrics
	Logger    *slog.Logger // nil discards
	// Limits bounds request and response heads; MaxHead is at most 64 KiB.
	Limits   http1.Limits
	Timeouts Timeouts
	// PlainIO makes all clients' connections be read by way of net.Conn, as they are on systems
	// other than Linux: for diagnosis, it costs a little more.
	PlainIO  bool
	Upstream upstream.Options
}

// Timeouts bounds how long a client may keep the proxy waiting. Zero fields take the
// default; they are precise to a quarter of a second.
type Timeouts struct {
	Handshake time.Duration // the whole TLS handshake; default 10 s
	Idle      time.Duration // between requests of a connection; default 75 s
	Head      time.Duration // from the first byte of a request head to its last; default 15 s
	BodyIdle  time.Duration // without a byte of the request body; default 60 s
	WriteIdle time.Duration // for one write to the client, of up to 78 KiB, to be taken; default 60 s
	// Linger is how long bytes of a client that was already answered are thrown away so
	// that the answer is not lost with a reset (RFC 9112 section 9.6); default 2 s.
	Linger time.Duration
}

func (t Timeouts) withDefaults() Timeouts {
	for _, f := range []struct {
		d   *time.Duration
		def time.Duration
	}{
		{&t.Handshake, 10 * time.Second},
		{&t.Idle, 75 * time.Second},
		{&t.Head, 15 * time.Second},
		{&t.BodyIdle, 60 * time.Second},
		{&t.WriteIdle, 60 * time.Second},
		{&t.Linger, 2 * time.Second},
	} {
		if *f.d <= 0 {
			*f.d = f.def
		}
	}
	return t
}
