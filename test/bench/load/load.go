//go:build linux

// Package load is the closed-loop load generator of the benchmark: a fixed number of
// connections, each with one request in flight, or in HTTP/2 some. It exists because the measured
// thing is the CPU time of a proxy on another CPU, so the generator has to be cheap
// (it must not be what everybody waits for) and exact (it counts requests and reads
// the proxy's CPU clock at the same two moments). It imports the benchmark's epoll,
// proc and sample packages, the standard library and x/net's HPACK, nothing of Moongate.
package load

import (
	"fmt"
	"net/netip"
	"os"
	"time"

	"github.com/moongate-dev/moongate/test/bench/proc"
	"github.com/moongate-dev/moongate/test/bench/sample"
)

// Spec says what to send and what to measure.
type Spec struct {
	Address netip.AddrPort
	// ServerName makes it TLS 1.3 with that SNI; the certificate is not verified, for it is self-signed.
	ServerName string
	Request    []byte
	BodySize   int // of every response, bytes
	// Connections are open at a time.
	Connections int
	// Streams makes it HTTP/2, with that many requests in flight on each connection: Request, still the
	// text of HTTP/1.1, is translated. By TLS or, without ServerName, by prior knowledge. 0 is HTTP/1.1.
	Streams int
	// Exchange is what goes to and fro. Calls need Streams.
	Exchange Exchange
	// Message is what WebSocket sends after the request, which opens it, and gets back, BodySize bytes long; or a datagram, of 8 bytes or more.
	Message []byte
	// Burst is how many datagrams of a socket are on their way together, up to 32; 0 is one.
	Burst int
	// Rate makes it an open loop of HTTP/1.1: so many requests a second are due, on whichever connection is free, and the latency of each begins when it is due. 0 is a closed
	// loop, in which each connection has a request on its way all the time.
	Rate float64
	// PerRequest opens a new connection for each request; Request must then ask for "Connection: close".
	PerRequest     bool
	Warmup, Window time.Duration
	// Proxy and Origin are the processes whose CPU time is read.
	Proxy, Origin []int
	ProxyCPU      int // the CPU that the proxy is pinned to
}

// Exchange is a kind of work for a connection, or for a stream of it.
type Exchange string

const (
	// Requests are answered, one after the other.
	Requests Exchange = ""
	// Unary are calls of gRPC with one message each way: Request's body, and BodySize bytes, in full with their prefix.
	Unary Exchange = "gRPC unary"
	// Streaming are calls of gRPC that last: Request's body is sent again as soon as BodySize bytes are back.
	Streaming Exchange = "gRPC streaming"
	// Watch are calls of gRPC whose request, with Request's body, ends, and of which BodySize bytes are awaited: only to be held.
	Watch Exchange = "gRPC watch"
	// WebSocket is Message after Message, each when the one before is back.
	WebSocket Exchange = "WebSocket"
	// Datagrams are Message after Message over UDP, Burst of them when those before are back, from as many sockets as there are Connections.
	Datagrams Exchange = "UDP"
)

// call reports whether responses are those of gRPC.
func (e Exchange) call() bool { return e == Unary || e == Streaming || e == Watch }

// lasting reports whether a response goes on when BodySize bytes are there.
func (e Exchange) lasting() bool { return e == Streaming || e == Watch }

// Result is what happened within the window.
type Result struct {
	Requests   int
	Errors     int
	FirstError string
	Window     time.Duration
	Proxy      time.Duration // CPU time of Spec.Proxy
	Origin     time.Duration // CPU time of Spec.Origin
	Load       time.Duration // CPU time of this process
	// Others is the time that the proxy's CPU worked for somebody else or was stolen by
	// the hypervisor, in steps of 10 ms: the noise.
	Others        time.Duration
	P50, P99, Max time.Duration // latency
}

// maxErrors ends a run that cannot give a figure.
const maxErrors = 100

// Run warms up, measures one window and closes the connections.
func Run(spec *Spec) (*Result, error) {
	if spec.PerRequest && spec.ServerName != "" {
		return runHandshakes(spec)
	}
	l, err := newLoop(spec)
	if err != nil {
		return nil, err
	}
	defer l.close()
	if err := l.run(spec.Warmup); err != nil {
		return nil, err
	}
	m, err := begin(spec)
	if err != nil {
		return nil, err
	}
	l.reset()
	if err := l.run(spec.Window); err != nil {
		return nil, err
	}
	return m.end(l.requests, &l.tally)
}

// Hold opens the connections, makes one request on each or on each of its streams, calls opened, and keeps them
// idle until release is closed. With Streaming and Watch the calls stay open.
func Hold(spec *Spec, opened func(), release <-chan struct{}) error {
	l, err := newLoop(spec)
	if err != nil {
		return err
	}
	defer l.close()
	l.once = true
	// No proxy takes a minute for a few thousand requests; a stuck one must not hang the run.
	if err := l.run(time.Minute); err != nil {
		return err
	}
	if want := spec.Connections * max(spec.Streams, 1); l.errors > 0 || l.requests != want {
		return fmt.Errorf("%d of %d connections and streams answered, %d errors, first: %s",
			l.requests, want, l.errors, l.first)
	}
	opened()
	<-release
	for _, c := range l.conns {
		if c.session != nil {
			if err := c.session.silent(); err != nil {
				return fmt.Errorf("an idle connection did not stay open: %w", err)
			}
			continue
		}
		if n, err := c.recv(c.buf[:]); err != errAgain {
			return fmt.Errorf("an idle connection did not stay open and silent: %d bytes, error %v", n, err)
		}
	}
	return nil
}

// tally collects errors and latencies.
type tally struct {
	errors  int
	first   string
	latency sample.Histogram
}

func (t *tally) fail(err error) error {
	if t.errors++; t.errors == 1 {
		t.first = err.Error()
	}
	if t.errors >= maxErrors {
		return fmt.Errorf("%d errors, first: %s", t.errors, t.first)
	}
	return nil
}

// meter is the state of all clocks at the begin of the window.
type meter struct {
	spec                *Spec
	start               time.Time
	proxy, origin, load time.Duration
	busy, stolen        time.Duration
}

func begin(spec *Spec) (*meter, error) {
	m := &meter{spec: spec}
	return m, m.read()
}

// read sets all clocks to now, the proxy's last, for it counts.
func (m *meter) read() (err error) {
	if m.busy, m.stolen, err = proc.Busy(m.spec.ProxyCPU); err != nil {
		return err
	}
	if m.load, err = proc.CPU([]int{os.Getpid()}); err != nil {
		return err
	}
	if m.origin, err = proc.CPU(m.spec.Origin); err != nil {
		return err
	}
	m.start = time.Now()
	m.proxy, err = proc.CPU(m.spec.Proxy)
	return err
}

func (m *meter) end(requests int, t *tally) (*Result, error) {
	now := &meter{spec: m.spec}
	if err := now.read(); err != nil {
		return nil, err
	}
	if requests == 0 {
		return nil, fmt.Errorf("no request was answered within %v; errors: %d, first: %s",
			m.spec.Window, t.errors, t.first)
	}
	r := &Result{
		Requests: requests, Errors: t.errors, FirstError: t.first,
		Window: now.start.Sub(m.start),
		Proxy:  now.proxy - m.proxy, Origin: now.origin - m.origin, Load: now.load - m.load,
		P50: t.latency.Quantile(0.5), P99: t.latency.Quantile(0.99), Max: t.latency.Max(),
	}
	r.Others = max(0, now.busy+now.stolen-m.busy-m.stolen-r.Proxy)
	return r, nil
}
