package upstream

import (
	"context"
	"time"
)

// This file is for loops that make connections for tunnels without a goroutine that waits for each. Others use
// ConnectTunnel.

// BeginTunnel takes a turn to make a connection without TLS for a tunnel. If it returns false, there is no turn at the
// moment, or more than a connect is needed: then ConnectTunnel must be called, which may wait. After true, TunnelMade,
// TunnelFailed or TunnelAbandoned must be called.
func (e *Endpoint) BeginTunnel() bool {
	if e.transport.unknown || e.transport.settings(forTunnel) != nil || e.address.Addr().Zone() != "" || e.Gone() {
		return false
	}
	q := &e.use().dials
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.mayDial(forTunnel, e.backend.set.options.MaxDials) || !e.acquireSocket(false) { // evicting a connection could take long
		return false
	}
	q.count(forTunnel, 1)
	return true
}

// TunnelTimeout returns how long it may take until the endpoint has accepted a connection. early means that this is
// less than the connect timeout, because another endpoint is fit, which serves the connection better than one whose
// network drops packets.
func (e *Endpoint) TunnelTimeout() (d time.Duration, early bool) {
	d = e.backend.set.options.ConnectTimeout
	if patience := e.health.backend.patience(); patience < d && e.HasAlternative() {
		return patience, true
	}
	return d, false
}

// TunnelMade counts the connection that BeginTunnel allowed, until TunnelClosed. took is how long it took.
func (e *Endpoint) TunnelMade(took time.Duration) {
	e.dialDone(forTunnel)
	e.reached()
	e.health.backend.connected(took)
	u, t := e.use(), e.backend.totals()
	u.dialled.Add(1)
	t.dialled.Add(1)
	u.open.Add(1)
	e.health.open.Add(1)
	t.open.Add(1)
}

// TunnelClosed must be called when a connection counted by TunnelMade is closed.
func (e *Endpoint) TunnelClosed() {
	e.closed()
}

// TunnelFailed returns why the connection that BeginTunnel allowed could not be made. os.ErrDeadlineExceeded means that
// TunnelTimeout has passed.
func (e *Endpoint) TunnelFailed(err error, early bool) *DialError {
	if early && isTimedOut(err) {
		err = errSlow
	}
	e.releaseSocket()
	e.dialDone(forTunnel)
	if IsExhausted(err) {
		go e.backend.set.EvictIdle() // for the next connection: the caller must not wait
	}
	return e.failed(context.Background(), dialLimit{reason: ReasonTimeout}, ReasonFailed, err)
}

// TunnelAbandoned must be called if the connection is not needed any more.
func (e *Endpoint) TunnelAbandoned() {
	e.releaseSocket()
	e.dialDone(forTunnel)
}

// ByPolicy reports whether a BackendTrafficPolicy configures the backend.
func (b *Backend) ByPolicy() bool { return b.root().config.Load().GetTraffic() != nil }
