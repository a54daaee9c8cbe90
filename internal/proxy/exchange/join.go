package exchange

import (
	"context"
	"net"

	"github.com/moongate-dev/moongate/internal/observe"
	"github.com/moongate-dev/moongate/internal/proxy/snapshot"
	"github.com/moongate-dev/moongate/internal/proxy/upstream"
)

// Join carries a connection whose bytes are not looked into to a backend of the layer-4 route that its listener has for its server name, until both sides
// have ended it. It reports whether they have; else the client must be shown that the connection is not complete. from and to are the ends of the connection,
// of which from may be a proxy's and not the client's.
func (x *Exchange) Join(from, to net.Addr) (complete bool) {
	x.Begin()
	x.Request.Request.Reset()
	x.Request = Request{Request: x.Request.Request, Length: -1}
	x.reset()
	x.rec.Host = x.Client.ServerName
	x.rec.Stats = x.Client.Socket.Stats.Unrouted()
	x.rec.Reason = x.join(tunnelled{addrPort(from), addrPort(to)})
	x.finish()
	return x.complete
}

func (x *Exchange) join(from tunnelled) observe.Reason {
	c := x.Client
	p := c.Engine.Snapshot.Load().Port(c.Socket)
	if p == nil {
		return observe.ReasonRouteNotFound
	}
	l, ok := p.Listeners.Find(c.ServerName)
	if !ok || l.Mode != c.Mode { // another one than when the connection began
		return observe.ReasonRouteNotFound
	}
	x.rec.Stats = l.Stats.Unrouted()
	if c.Engine.Overloaded.Load() {
		return observe.ReasonOverloaded
	}
	route, ok := l.L4.Find(c.ServerName)
	if !ok {
		return observe.ReasonRouteNotFound
	}
	rule := route.RuleFor(c.Mode)
	x.rule = rule
	if s := rule.StatsFor(l); s != nil {
		x.rec.Stats = s
	}
	ref, reason := rule.Choose(&x.fx.Seed)
	if reason != observe.ReasonOK {
		return reason
	}
	x.rec.Backend = ref + 1
	b := &rule.Backends[ref]
	if b.Failure != nil {
		return b.Failure.Reason
	}
	path := tunnelPath{tunnels: &c.Engine.tunnels, listener: l.Config.Key, from: from}
	if path.loops() {
		return observe.ReasonLoopDetected
	}
	defer path.end()
	u, reason := x.dialBackend(b, l.Identity, &path)
	if u == nil {
		return reason
	}
	defer func() {
		u.Close()
		x.endEndpoint()
	}()
	if path.loops() { // who made the client's connection may not have known its address before
		u.Reset()
		return observe.ReasonLoopDetected
	}
	if reason = x.pump(&connDuplex{Conn: u}, u.Reset); reason == observe.ReasonUpgraded {
		reason = observe.ReasonTunnelEnded
	}
	return reason
}

// dialBackend makes a new connection to an endpoint of the backend, on which nothing was sent before, and counts that endpoint in use.
func (x *Exchange) dialBackend(b *snapshot.BackendRef, identity *upstream.Identity, path *tunnelPath) (*upstream.Conn, observe.Reason) {
	x.ref, x.retry = b, retryState{}
	if x.backend = b.Backend.As(identity); x.backend == nil {
		return nil, observe.ReasonGatewayCertificateInvalid
	}
	x.attempt.engine, x.attempt.watch = x.Client.Engine, x.Client.Watch
	reason := observe.ReasonNoEndpoints
	for r := &x.retry; ; {
		ep := x.backend.PickAs(identity, &x.fx.Seed, &r.tried)
		if ep == nil || r.needsOther && r.tried.Has(ep) {
			return nil, reason
		}
		x.rec.Attempts++
		x.rec.Upstream = ep.Address()
		ep.Begin()
		x.endpoint = ep
		u, err := x.dialTunnel(ep, path)
		if err == nil {
			return u, observe.ReasonOK
		}
		f := x.dialFailure(err)
		v := x.judge(f)
		x.endEndpoint()
		if reason = f.reason; !v.again {
			return nil, reason
		}
	}
}

// dialTunnel waits for a connection that is nobody else's, or until the client leaves.
func (x *Exchange) dialTunnel(ep *upstream.Endpoint, path *tunnelPath) (*upstream.Conn, error) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	x.Client.Watch.begin(interrupterFunc(cancel))
	x.attempt.waits()
	u, err := ep.ConnectTunnel(ctx, path.connected)
	x.attempt.waited()
	x.Client.Watch.end()
	return u, err
}
