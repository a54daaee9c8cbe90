package exchange

import (
	"net/netip"

	"github.com/moongate-dev/moongate/internal/observe"
	"github.com/moongate-dev/moongate/internal/proxy/snapshot"
	"github.com/moongate-dev/moongate/internal/proxy/tunnel"
	"github.com/moongate-dev/moongate/internal/proxy/upstream"
)

// joined is what an exchange needs for a tunnel between its client and a backend.
type joined struct {
	tunnel *tunnel.Tunnel // nil before it begins
	reset  func()         // resets what is sent to the backend
	ended  bool           // the tunnel has ended, and not by a panic
	// The fields below are for a layer-4 route.
	path *tunnelPath    // nil for a request that has changed its protocol
	conn *upstream.Conn // nil before it is made
}

// Join connects the client to a backend of the layer-4 route that its listener has for its server name, and moves bytes
// until both sides have ended (the outcome is complete then), the tunnel breaks off, or it is suspended. from and to
// are the addresses of the connection, without zones and with IPv4 addresses unmapped. from may be a proxy's address
// instead of the client's.
func (x *Exchange) Join(from, to netip.AddrPort) Outcome {
	x.Begin()
	x.Request.Request.Reset()
	x.Request = Request{Request: x.Request.Request, Length: -1}
	x.reset()
	x.rec.Host = x.Client.ServerName
	x.rec.Stats = x.Client.Socket.Stats.Unrouted()
	return x.endJoin(x.join(tunnelled{from, to}))
}

// endJoin completes the exchange after join, unless it is suspended.
func (x *Exchange) endJoin(reason observe.Reason) Outcome {
	if x.suspended {
		return Outcome{Suspended: true}
	}
	x.rec.Reason = reason
	x.finish()
	return Outcome{Complete: x.complete}
}

// resumeJoin is the rest of join.
func (x *Exchange) resumeJoin() observe.Reason {
	defer x.leaveJoined()
	return x.pumpJoined()
}

// pumpJoined runs the tunnel until it ends or is suspended.
func (x *Exchange) pumpJoined() observe.Reason {
	reason := x.pump()
	if reason == observe.ReasonUpgraded {
		return observe.ReasonTunnelEnded
	}
	return reason
}

// leaveJoined releases the connection to the backend, unless the exchange is suspended.
func (x *Exchange) leaveJoined() {
	if x.suspended {
		return
	}
	j := x.joined
	x.joined = nil
	j.breakOff()
	if j.conn != nil {
		j.conn.Close()
		x.endEndpoint()
	}
	j.path.end()
}

// breakOff resets the connection to the backend if a panic has ended the tunnel: what the backend was sent must not
// look complete.
func (j *joined) breakOff() {
	if j.tunnel != nil && !j.ended {
		j.reset()
	}
}

func (x *Exchange) join(from tunnelled) observe.Reason {
	c := x.Client
	to := routeL4(&L4Client{Engine: c.Engine, Socket: c.Socket, Mode: c.Mode, ServerName: c.ServerName}, from.to, &x.rec, &x.fx.Seed)
	x.rule = to.rule
	if to.reason != observe.ReasonOK {
		return to.reason
	}
	l, b := to.listener, to.ref
	j := &joined{path: &tunnelPath{tunnels: &c.Engine.tunnels, listener: l.Config.Key, from: from}}
	if j.path.loops() {
		return observe.ReasonLoopDetected
	}
	x.joined = j
	defer x.leaveJoined()
	var reason observe.Reason
	if j.conn, reason = x.dialBackend(b, l.Identity, j.path); j.conn == nil {
		return reason
	}
	if j.path.loops() { // checked again, because the process that made the client's connection may not have known its address before
		j.conn.Reset()
		return observe.ReasonLoopDetected
	}
	x.newTunnel(&connDuplex{Conn: j.conn}, j.conn.Reset)
	return x.pumpJoined()
}

// dialBackend makes a new, unused connection to an endpoint of the backend, and counts that endpoint as in use.
func (x *Exchange) dialBackend(b *snapshot.BackendRef, identity *upstream.Identity, path *tunnelPath) (*upstream.Conn, observe.Reason) {
	x.ref, x.retry = b, retryState{}
	if x.backend = b.Backend.As(identity); x.backend == nil {
		return nil, observe.ReasonGatewayCertificateInvalid
	}
	x.attempt.engine, x.attempt.watch = x.Client.Engine, x.Client.Watch
	reason, info := observe.ReasonNoEndpoints, x.balancedL4()
	for r := &x.retry; ; {
		resolving := x.backend.Resolving()
		ep := x.backend.PickForAs(identity, &x.fx.Seed, &r.tried, info)
		if ep == nil && resolving && x.awaitHost(x.backend) {
			continue
		}
		if ep == nil && x.Client.Watch.goneNow() {
			return nil, observe.ReasonClientClosed
		}
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
		v := x.decide(f)
		x.endEndpoint()
		if reason = f.reason; !v.again {
			return nil, reason
		}
	}
}

// dialTunnel waits for a connection of its own, or until the client leaves.
func (x *Exchange) dialTunnel(ep *upstream.Endpoint, path *tunnelPath) (*upstream.Conn, error) {
	w := x.beginWait()
	defer w.end()
	if ep.DiffersByClient() {
		ep = ep.At(x.connectionFor())
	}
	return ep.ConnectTunnel(w.ctx, path.connected)
}
