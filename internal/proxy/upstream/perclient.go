package upstream

import (
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/proxy/proxyprotocol"
)

// A backend may require a PROXY header that names the client, or requests in the HTTP version of their clients. Then
// connections to an endpoint differ by client: within the endpoint there is an Endpoint for each kind of client, with
// its own connections. It has no counters of its own.

// For identifies the client that a connection is for. Requests with different values must not share a connection.
type For struct {
	// Client is the address of the client, and Listener the address at which its request arrived. An invalid Client
	// means the gateway itself.
	Client, Listener netip.AddrPort
	// HTTP2 means that requests are sent over HTTP/2 if the backend uses the protocol of the client.
	HTTP2 bool
}

// maxWithin is the largest number of Endpoints within one. Beyond it, connections are made for one request each.
const maxWithin = 4096

// within holds the Endpoints within one.
type within struct {
	mu        sync.Mutex
	endpoints map[For]*Endpoint
	lookedAt  int64         // the Set's clock when there was last no room
	speaking  [2]*transport // for HTTP/1.1 and HTTP/2; nil before they are needed
}

// inner is the additional state of an Endpoint within another.
type inner struct {
	whole *Endpoint
	client,
	listener netip.AddrPort
	used atomic.Int64 // the Set's clock when At last returned it
	// dropped means that At does not return it any more: connections are closed when they are released.
	dropped atomic.Bool
}

// DiffersByClient reports whether connections to the endpoint differ by client. Then At returns the endpoint for one
// client.
func (e *Endpoint) DiffersByClient() bool {
	return e.transport.header != config.ProxyHeader_PROXY_HEADER_NONE || e.transport.clientProtocol
}

// At returns the endpoint for a client. It is e itself unless DiffersByClient. It is used for connections only:
// requests are counted by e.
func (e *Endpoint) At(f For) *Endpoint {
	t := e.transport
	if t.header == config.ProxyHeader_PROXY_HEADER_NONE {
		f.Client, f.Listener = netip.AddrPort{}, netip.AddrPort{}
	}
	if !t.clientProtocol {
		f.HTTP2 = false
	}
	w, clock := &e.within, e.backend.set.clock.Load()
	w.mu.Lock()
	defer w.mu.Unlock()
	in := w.endpoints[f]
	if in != nil {
		in.inner.used.Store(clock)
		return in
	}
	if t.clientProtocol {
		version := 0
		if f.HTTP2 {
			version = 1
		}
		if w.speaking[version] == nil {
			w.speaking[version] = t.speaking(f.HTTP2)
		}
		t = w.speaking[version]
	}
	in = &Endpoint{backend: e.backend, address: e.address, text: e.text, transport: t, health: e.health, life: e.life, end: func() {}, inner: &inner{whole: e, client: f.Client, listener: f.Listener}}
	in.inner.used.Store(clock)
	in.dials.blocked.breaker, in.sharing.blocked.breaker = e.dials.blocked.breaker, e.dials.blocked.breaker
	if len(w.endpoints) >= maxWithin && w.lookedAt != clock {
		w.lookedAt = clock
		w.dropUnused(clock)
	}
	if len(w.endpoints) >= maxWithin || e.life.Err() != nil {
		in.drop()
		return in
	}
	if w.endpoints == nil {
		w.endpoints = make(map[For]*Endpoint)
	}
	w.endpoints[f] = in
	return in
}

// whole returns the endpoint within which e is, or e itself.
func (e *Endpoint) whole() *Endpoint {
	if e.inner != nil {
		return e.inner.whole
	}
	return e
}

// innerList returns the Endpoints within e.
func (e *Endpoint) innerList() (all []*Endpoint) {
	if !e.DiffersByClient() || e.inner != nil {
		return nil
	}
	e.within.mu.Lock()
	defer e.within.mu.Unlock()
	for _, in := range e.within.endpoints {
		all = append(all, in)
	}
	return all
}

// innerCount returns the sum of a number over the Endpoints within e.
func (e *Endpoint) innerCount(of func(*Endpoint) int64) (n int64) {
	for _, in := range e.innerList() {
		n += of(in)
	}
	return n
}

// dropUnused removes Endpoints that have no connections and were not returned by At since the last Sweep. mu must be
// held.
func (w *within) dropUnused(since int64) {
	for f, in := range w.endpoints {
		if in.inner.used.Load() < since && in.unused() {
			in.drop()
			delete(w.endpoints, f)
		}
	}
}

// unused reports whether there are neither connections nor requests that wait for one.
func (e *Endpoint) unused() bool {
	return e.idleCount() == 0 && len(e.sharing.list()) == 0 && e.dials.numWaiting.Load() == 0 && e.sharing.numWaiting.Load() == 0
}

// drop makes connections be closed when they are released.
func (e *Endpoint) drop() {
	e.inner.dropped.Store(true)
	for _, c := range e.own.retire() {
		c.Close()
	}
}

// sweepWithin sweeps the Endpoints within e.
func (e *Endpoint) sweepWithin(limits sweepLimits) {
	for _, in := range e.innerList() {
		in.sweep(limits)
	}
	if e.DiffersByClient() && e.inner == nil {
		e.within.mu.Lock()
		defer e.within.mu.Unlock()
		e.within.dropUnused(limits.last)
	}
}

// retireWithin ends the waits in the Endpoints within e.
func (e *Endpoint) retireWithin() {
	for _, in := range e.innerList() {
		in.dropBlocked()
	}
}

// isDropped reports whether each connection is for one request only.
func (e *Endpoint) isDropped() bool { return e.inner != nil && e.inner.dropped.Load() }

// PrefersHTTP2 reports whether requests of the gateway itself are sent over HTTP/2 if the backend supports it.
func (e *Endpoint) PrefersHTTP2() bool {
	t := e.transport
	return t.http2 || t.tls != nil && t.upgrade == ""
}

// header returns the PROXY header of the endpoint's connections; nil if there is none.
func (e *Endpoint) header() []byte {
	var client, listener netip.AddrPort
	if e.inner != nil {
		client, listener = e.inner.client, e.inner.listener
	}
	switch e.transport.header {
	case config.ProxyHeader_PROXY_HEADER_V1:
		return proxyprotocol.Append(nil, proxyprotocol.V1, client, listener)
	case config.ProxyHeader_PROXY_HEADER_V2:
		return proxyprotocol.Append(nil, proxyprotocol.V2, client, listener)
	}
	return nil
}

// speaking returns t for requests of clients that use HTTP/2, or do not. With TLS, a backend that is offered both may
// choose HTTP/1.1.
func (t *transport) speaking(http2 bool) *transport {
	own := *t
	if t.upgrade != "" { // its requests are sent over HTTP/1.1, whatever their clients use
		return &own
	}
	if t.tls == nil {
		own.http2 = http2
		return &own
	}
	own.http2 = false
	own.tls = t.tls.Clone()
	own.tls.NextProtos = []string{protocolHTTP1}
	if http2 {
		own.tls.NextProtos = slices.Insert(own.tls.NextProtos, 0, protocolHTTP2)
	}
	return &own
}
