package upstream

import (
	"context"
	"time"
)

// This file is for who makes connections for tunnels without a goroutine that waits for them: what ConnectTunnel does otherwise.

// BeginTunnel takes a turn to make a connection in the clear for a tunnel. Where it returns false there is none at the moment, or more is to be done than to
// connect: then ConnectTunnel must be called, which may wait. True is to be followed by TunnelMade, TunnelFailed or TunnelAbandoned.
func (e *Endpoint) BeginTunnel() bool {
	if e.transport.unknown || e.transport.settings(forTunnel) != nil || e.address.Addr().Zone() != "" || e.Gone() {
		return false
	}
	q := &e.dials
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.mayDial(forTunnel, e.backend.set.options.MaxDials) || !e.acquireSocket(false) { // to evict any could take long
		return false
	}
	q.count(forTunnel, 1)
	return true
}

// TunnelTimeout is how long it may take until the endpoint has accepted a connection. early is that it is less than the connect timeout, since another endpoint is fit: a
// connection is better off there than waiting for an endpoint whose network drops what is sent.
func (e *Endpoint) TunnelTimeout() (d time.Duration, early bool) {
	d = e.backend.set.options.ConnectTimeout
	if patience := e.health.backend.patience(); patience < d && e.HasAlternative() {
		return patience, true
	}
	return d, false
}

// TunnelMade counts the connection that BeginTunnel allowed, until TunnelClosed. It took so long.
func (e *Endpoint) TunnelMade(took time.Duration) {
	e.dialDone(forTunnel)
	e.reached()
	e.health.backend.connected(took)
	e.dialled.Add(1)
	e.backend.totals().dialled.Add(1)
	e.open.Add(1)
	e.health.open.Add(1)
	e.backend.totals().open.Add(1)
}

// TunnelClosed is that a connection which TunnelMade has counted is closed.
func (e *Endpoint) TunnelClosed() {
	e.closed()
}

// TunnelFailed says why the connection that BeginTunnel allowed could not be made: os.ErrDeadlineExceeded is that TunnelTimeout has passed.
func (e *Endpoint) TunnelFailed(err error, early bool) *DialError {
	if early && isTimedOut(err) {
		err = errSlow
	}
	e.releaseSocket()
	e.dialDone(forTunnel)
	if IsExhausted(err) {
		go e.backend.set.EvictIdle() // for the next one: who calls this must not wait
	}
	return e.failed(context.Background(), dialLimit{reason: ReasonTimeout}, ReasonFailed, err)
}

// TunnelAbandoned is that the connection is not wanted any more.
func (e *Endpoint) TunnelAbandoned() {
	e.releaseSocket()
	e.dialDone(forTunnel)
}

// ByPolicy reports whether a BackendTrafficPolicy says how the backend is spoken to.
func (b *Backend) ByPolicy() bool { return b.root().config.Load().GetTraffic() != nil }
