package upstream

import (
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/proxy/proxyprotocol"
)

// A backend may want to be told whose connection it gets, by a PROXY header, or to be sent requests in the version of HTTP that their clients speak. Then connections to an
// endpoint are not the same for all requests: there is an Endpoint for each kind of client within the endpoint, with connections of its own. It counts nothing itself.

// For is whom a connection is for: what differs must not share one.
type For struct {
	// Client is who has sent the request, and Listener where it came to; a Client that is not valid is the gateway itself.
	Client, Listener netip.AddrPort
	// HTTP2 tells that requests are to be sent by HTTP/2 where the backend has what its clients have.
	HTTP2 bool
}

// maxWithin bounds the Endpoints within one. Beyond it connections are made for one request each.
const maxWithin = 4096

// within are the Endpoints within one.
type within struct {
	mu        sync.Mutex
	endpoints map[For]*Endpoint
	lookedAt  int64         // the Set's clock when there was no room last
	speaking  [2]*transport // by version of HTTP, HTTP/2 last; nil before they are needed
}

// inner is what an Endpoint within another has.
type inner struct {
	whole *Endpoint
	client,
	listener netip.AddrPort
	used atomic.Int64 // the Set's clock when For returned it last
	// dropped tells that For does not return it any more: connections are closed when they are given back.
	dropped atomic.Bool
}

// DiffersByClient reports whether connections to the endpoint are not the same for all clients: At returns those for one.
func (e *Endpoint) DiffersByClient() bool {
	return e.transport.header != config.ProxyHeader_PROXY_HEADER_NONE || e.transport.clientProtocol
}

// At returns the endpoint as it is reached for a client. It is e itself unless DiffersByClient. It is used for connections alone: requests are counted with e.
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

// whole is the endpoint within which this is one, or itself.
func (e *Endpoint) whole() *Endpoint {
	if e.inner != nil {
		return e.inner.whole
	}
	return e
}

// innerList are the Endpoints within this one.
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

// innerCount adds up a figure of the Endpoints within this one.
func (e *Endpoint) innerCount(of func(*Endpoint) int64) (n int64) {
	for _, in := range e.innerList() {
		n += of(in)
	}
	return n
}

// dropUnused forgets Endpoints that have no connection and that nobody has asked for since the last Sweep; mu is held.
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
	return e.idleCount() == 0 && len(e.sharing.list()) == 0 && e.dials.hungry.Load() == 0 && e.sharing.hungry.Load() == 0
}

// drop has connections be closed when they are given back.
func (e *Endpoint) drop() {
	e.inner.dropped.Store(true)
	for _, c := range e.own.retire() {
		c.Close()
	}
}

// sweepWithin is Sweep for the Endpoints within e.
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

// retireWithin ends waits for the Endpoints within e.
func (e *Endpoint) retireWithin() {
	for _, in := range e.innerList() {
		in.dropBlocked()
	}
}

// isDropped reports whether connections are for one request each.
func (e *Endpoint) isDropped() bool { return e.inner != nil && e.inner.dropped.Load() }

// PrefersHTTP2 reports whether requests of the gateway itself are sent by HTTP/2 where the backend takes it.
func (e *Endpoint) PrefersHTTP2() bool {
	t := e.transport
	return t.http2 || t.tls != nil && t.upgrade == ""
}

// header is what the endpoint's connections begin with; nil is nothing.
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

// speaking returns t for requests of clients that speak HTTP/2, or do not. Over TLS a backend may choose HTTP/1.1 for the former, as it is offered both.
func (t *transport) speaking(http2 bool) *transport {
	own := *t
	if t.upgrade != "" { // whose requests are sent by HTTP/1.1 whatever their clients speak
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
