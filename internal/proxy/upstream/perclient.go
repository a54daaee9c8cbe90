package upstream

import (
	"cmp"
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
	// Client is the address of the client, and Listener the address to which it has connected: that of the gateway, or what
	// a load balancer's PROXY header says. An invalid Client means the gateway itself.
	Client, Listener netip.AddrPort
	// HTTP2 means that requests are sent over HTTP/2 if the backend uses the protocol of the client.
	HTTP2 bool
}

// maxWithin is the largest number of Endpoints within one. Beyond it, those that were not used for the longest time make
// room, and if all were used a moment ago, connections are made for one request each.
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
	who   For
	used  atomic.Int64 // the Set's clock when At last returned it
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
	w, clock := &e.use().within, e.backend.set.clock.Load()
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
	in = &Endpoint{backend: e.backend, address: e.address, transport: t, health: e.health, inner: &inner{whole: e, who: f}}
	in.inner.used.Store(clock)
	if len(w.endpoints) >= maxWithin && w.lookedAt != clock {
		w.lookedAt = clock
		w.dropUnused(clock)
		if len(w.endpoints) >= maxWithin {
			w.dropOldest(clock)
		}
	}
	if len(w.endpoints) >= maxWithin || e.Gone() {
		in.drop()
		return in
	}
	if w.endpoints == nil {
		w.endpoints = make(map[For]*Endpoint)
	}
	w.endpoints[f] = in
	e.backend.set.clients.add(in)
	return in
}

// clients are the Endpoints within others by the client that they are for, so that they go when it leaves. A client that
// only a proxy knows, by X-Forwarded-For, does not leave: its Endpoints are dropped when they are unused. So are those that
// are needed after the client has left, for a copy of its request.
type clients struct {
	number atomic.Int64 // len(kept), readable without mu
	mu     sync.Mutex   // locked after that of a within
	kept   map[netip.AddrPort][]*Endpoint
}

func (c *clients) add(e *Endpoint) {
	client := e.inner.who.Client
	if client.Port() == 0 { // not the address of a connection
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.kept == nil {
		c.kept = make(map[netip.AddrPort][]*Endpoint)
	}
	c.kept[client] = append(c.kept[client], e)
	c.number.Store(int64(len(c.kept)))
}

func (c *clients) remove(e *Endpoint) {
	client := e.inner.who.Client
	c.mu.Lock()
	defer c.mu.Unlock()
	all, ok := c.kept[client]
	if !ok {
		return
	}
	if all = slices.DeleteFunc(all, func(other *Endpoint) bool { return other == e }); len(all) > 0 {
		c.kept[client] = all
	} else {
		delete(c.kept, client)
	}
	c.number.Store(int64(len(c.kept)))
}

// take removes and returns all Endpoints of a client.
func (c *clients) take(client netip.AddrPort) []*Endpoint {
	if c.number.Load() == 0 {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	all := c.kept[client]
	delete(c.kept, client)
	c.number.Store(int64(len(c.kept)))
	return all
}

// ClientGone must be called when a connection of a client has ended. The connections that only this client's requests
// may use are closed, those in use when they are released. If the client has another connection, because a proxy names
// the same address for several, that gets new ones.
func (s *Set) ClientGone(client netip.AddrPort) {
	for _, in := range s.clients.take(client) {
		if in.isAwaited() { // by a request of another connection that a proxy says is the client's, or by a copy: see makeRoom
			continue
		}
		w := &in.inner.whole.use().within
		w.mu.Lock()
		if w.endpoints[in.inner.who] == in {
			delete(w.endpoints, in.inner.who)
		}
		w.mu.Unlock()
		in.drop()
	}
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
	u := e.used.Load()
	if u == nil || !e.DiffersByClient() || e.inner != nil {
		return nil
	}
	u.within.mu.Lock()
	defer u.within.mu.Unlock()
	for _, in := range u.within.endpoints {
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
	for _, in := range w.endpoints {
		if in.inner.used.Load() < since && in.unused() {
			w.remove(in)
			in.drop()
		}
	}
}

// dropOldest removes half of the Endpoints that were not returned by At since the last Sweep, those first that were not
// for the longest time. mu must be held.
func (w *within) dropOldest(since int64) {
	var old []*Endpoint
	for _, in := range w.endpoints {
		if in.inner.used.Load() < since && !in.isAwaited() {
			old = append(old, in)
		}
	}
	slices.SortFunc(old, func(a, b *Endpoint) int { return cmp.Compare(a.inner.used.Load(), b.inner.used.Load()) })
	old = old[:(len(old)+1)/2]
	for _, in := range old {
		w.remove(in)
	}
	go func() { // closing thousands of connections takes milliseconds
		for _, in := range old {
			in.drop()
		}
	}()
}

// remove makes At no longer return an Endpoint. mu must be held.
func (w *within) remove(in *Endpoint) {
	delete(w.endpoints, in.inner.who)
	in.backend.set.clients.remove(in)
}

// unused reports whether there are neither connections nor requests that wait for one.
func (e *Endpoint) unused() bool {
	return e.idleCount() == 0 && len(e.soFar().sharing.list()) == 0 && !e.isAwaited()
}

// isAwaited reports whether requests wait for a connection to the endpoint.
func (e *Endpoint) isAwaited() bool {
	u := e.soFar()
	return u.dials.numWaiting.Load() > 0 || u.sharing.numWaiting.Load() > 0
}

// drop closes the idle connections, and makes others be closed when they are released.
func (e *Endpoint) drop() {
	e.inner.dropped.Store(true)
	for _, c := range e.use().own.retire() {
		c.Close()
	}
	e.retireShared()
}

// sweepWithin sweeps the Endpoints within e.
func (e *Endpoint) sweepWithin(limits sweepLimits) {
	for _, in := range e.innerList() {
		in.sweep(limits)
	}
	if e.DiffersByClient() && e.inner == nil {
		w := &e.use().within
		w.mu.Lock()
		defer w.mu.Unlock()
		w.dropUnused(limits.last)
	}
}

// retireWithin ends the waits in the Endpoints within e, and forgets their clients.
func (e *Endpoint) retireWithin() {
	for _, in := range e.innerList() {
		in.dropBlocked()
		e.backend.set.clients.remove(in)
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
		client, listener = e.inner.who.Client, e.inner.who.Listener
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
