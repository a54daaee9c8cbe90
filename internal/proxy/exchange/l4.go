package exchange

import (
	"net/netip"
	"time"

	"github.com/moongate-dev/moongate/internal/observe"
	"github.com/moongate-dev/moongate/internal/proxy/snapshot"
	"github.com/moongate-dev/moongate/internal/proxy/tunnel"
	"github.com/moongate-dev/moongate/internal/proxy/upstream"
)

// L4 is what Join does, in steps that never wait, for loops that drive many layer-4 connections by events: Begin, then
// Next for each endpoint that is dialled, Dialling, Made or Failed, and Finish. It is not safe for concurrent use.
type L4 struct {
	engine   *Engine
	rec      observe.Record
	start    time.Time
	path     tunnelPath
	identity *upstream.Identity
	backend  *upstream.Backend
	endpoint *upstream.Endpoint // Begin was called on it; nil if there is none
	retry    *retryState        // nil before the first failure
	dial     l4Dial
	early    bool           // the connect is given up before the connect timeout
	failed   observe.Reason // the latest failure
	begun    uint32         // when the dial began, in milliseconds since start
}

// l4Dial is the state of the connection to an endpoint.
type l4Dial uint8

const (
	l4NotBegun l4Dial = iota
	l4Begun
	l4Made
)

// L4Client is a layer-4 connection as L4 needs it.
type L4Client struct {
	Engine     *Engine
	Socket     *snapshot.Socket
	Peer       netip.AddrPort
	Mode       snapshot.Mode
	Protocol   string // for the access log
	ServerName []byte // see Client.ServerName
}

// Begin records that a connection has arrived.
func (x *L4) Begin(c *L4Client) {
	x.engine, x.start = c.Engine, time.Now()
	x.rec.ClientAddr, x.rec.Protocol, x.rec.Scheme, x.rec.Shard = c.Peer, c.Protocol, c.Mode.Scheme(), uint32(c.Peer.Port())
	x.rec.Stats = c.Socket.Stats.Unrouted()
}

// Route chooses the backend for the connection, which arrived at the address local. A reason other than ReasonOK must
// be passed to Finish.
func (x *L4) Route(c *L4Client, local netip.AddrPort, seed *uint64) observe.Reason {
	x.rec.Host = c.ServerName
	route := routeL4(c, local, &x.rec, seed)
	if route.reason != observe.ReasonOK {
		return route.reason
	}
	x.path = tunnelPath{tunnels: &c.Engine.tunnels, listener: route.listener.Config.Key, from: tunnelled{c.Peer, local}}
	if x.path.loops() {
		return observe.ReasonLoopDetected
	}
	x.identity = route.listener.Identity
	if x.backend = route.ref.Backend.As(x.identity); x.backend == nil {
		return observe.ReasonGatewayCertificateInvalid
	}
	return observe.ReasonOK
}

// L4Next is what to do next.
type L4Next uint8

// The values of L4Next.
const (
	L4End  L4Next = iota // call Finish with a reason
	L4Dial               // make a connection
	L4Join               // call Join for the connection, as if nothing had been done, and do not call Finish
)

// Next chooses an endpoint to connect to. If it returns L4End, none is left, and the reason must be passed to Finish.
func (x *L4) Next(seed *uint64) (to netip.AddrPort, timeout time.Duration, next L4Next, reason observe.Reason) {
	if x.backend.Resolving() || x.backend.ByPolicy() { // a policy's settings may require a wait, or depend on the client
		return to, 0, L4Join, observe.ReasonOK
	}
	var none upstream.Tried
	tried := &none
	if x.retry != nil {
		tried = &x.retry.tried
	}
	ep := x.backend.PickAs(x.identity, seed, tried)
	switch {
	case ep == nil && x.retry == nil:
		return to, 0, L4End, observe.ReasonNoEndpoints
	case ep == nil, tried.Has(ep) && x.retry.needsOther:
		return to, 0, L4End, x.failed
	case !ep.BeginTunnel():
		return to, 0, L4Join, observe.ReasonOK
	}
	x.rec.Attempts++
	x.rec.Upstream = ep.Address()
	ep.Begin()
	x.endpoint, x.dial, x.begun = ep, l4Begun, uint32(time.Since(x.start).Milliseconds())
	timeout, x.early = ep.TunnelTimeout()
	return ep.Address(), timeout, L4Dial, observe.ReasonOK
}

// Gone reports whether the endpoint that is being dialled was removed from the configuration.
func (x *L4) Gone() bool { return x.endpoint != nil && x.endpoint.Gone() }

// Dialling records the local address of the connection that is being made.
func (x *L4) Dialling(local netip.AddrPort) {
	x.path.made(tunnelled{local, unmapped(x.endpoint.Address())})
}

// Made records that the connection was made. If it returns a reason other than ReasonOK, the reason must be passed to
// Finish and the connection be reset.
func (x *L4) Made() observe.Reason {
	x.dial = l4Made
	x.endpoint.TunnelMade(time.Since(x.start) - time.Duration(x.begun)*time.Millisecond)
	switch {
	case x.path.to.from == x.path.to.to: // the system has connected the socket to itself, since nothing listens there
		return observe.ReasonConnectFailed
	case x.path.loops(): // checked again, because the process that made the client's connection may not have known its address before
		return observe.ReasonLoopDetected
	}
	return observe.ReasonOK
}

// Failed records that no connection could be made. If again is true, Next must be called, otherwise Finish with the
// reason.
func (x *L4) Failed(err error) (again bool, reason observe.Reason) {
	f := connectFailure(x.endpoint.TunnelFailed(err, x.early))
	x.dial = l4NotBegun
	x.path.end()
	if x.retry == nil {
		x.retry = &retryState{}
	}
	x.failed = f.reason
	again = x.retry.connectsAgain(f.kind, x.endpoint, int(x.rec.Attempts))
	x.endEndpoint()
	return again, f.reason
}

func (x *L4) endEndpoint() {
	if x.endpoint == nil {
		return
	}
	switch x.dial {
	case l4Begun:
		x.endpoint.TunnelAbandoned()
	case l4Made:
		x.endpoint.TunnelClosed()
	}
	x.endpoint.End()
	x.endpoint, x.dial = nil, l4NotBegun
}

// Finish records that the connection has ended. reason is why; if it is ReasonOK, end determines it.
func (x *L4) Finish(reason observe.Reason, end tunnel.End) {
	x.endEndpoint()
	if x.path.tunnels != nil {
		x.path.end()
	}
	if reason == observe.ReasonOK {
		if reason = reasonOf(end); reason == observe.ReasonUpgraded {
			reason = observe.ReasonTunnelEnded
		}
	}
	x.rec.Reason = reason
	x.rec.BytesReceived, x.rec.BytesSent = end.ToBackend, end.ToClient
	x.rec.StartUnixNano = x.start.UnixNano()
	x.rec.DurationNano = int64(time.Since(x.start))
	x.engine.Observer.Finish(&x.rec)
}

// routedL4 is where a layer-4 connection is to go. If reason is not ReasonOK, at most rule is set of the others.
type routedL4 struct {
	reason   observe.Reason
	listener *snapshot.Listener
	rule     *snapshot.Rule
	ref      *snapshot.BackendRef
}

// routeL4 chooses the backend of the layer-4 route that the listener of a connection has for its server name.
func routeL4(c *L4Client, local netip.AddrPort, rec *observe.Record, seed *uint64) (to routedL4) {
	p := c.Engine.Snapshot.Load().PortOf(c.Socket, func() netip.AddrPort { return local })
	if p == nil {
		return routedL4{reason: observe.ReasonRouteNotFound}
	}
	l, ok := p.Listeners.Find(c.ServerName)
	if !ok || l.Mode != c.Mode { // not the mode with which the connection began
		return routedL4{reason: observe.ReasonRouteNotFound}
	}
	rec.Stats = l.Stats.Unrouted()
	if c.Engine.Refuses() {
		return routedL4{reason: observe.ReasonOverloaded}
	}
	route, ok := l.L4.Find(c.ServerName)
	if !ok {
		return routedL4{reason: observe.ReasonRouteNotFound}
	}
	rule := route.RuleFor(c.Mode)
	if s := rule.StatsFor(l); s != nil {
		rec.Stats = s
	}
	ref, reason := rule.Choose(seed)
	if reason != observe.ReasonOK {
		return routedL4{reason: reason, rule: rule}
	}
	rec.Backend = int32(ref + 1)
	b := &rule.Backends[ref]
	if b.Failure != nil {
		return routedL4{reason: b.Failure.Reason, rule: rule}
	}
	return routedL4{observe.ReasonOK, l, rule, b}
}
