package upstream

import (
	"math"
	"net"
	"time"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/proxy/http2"
)

// connections are how connections to a Backend are made and kept, as its config.BackendConnections have it; immutable. What is 0 is as the Set's Options say. What of it
// concerns the making of connections holds for those that are made from then on, the rest for all at once. What makes connections unfit that
// are there is in transport.
type connections struct {
	connectTimeout, idleTimeout time.Duration
	maxDuration                 time.Duration // after which a connection takes no further request; 0 is no limit
	keepalive                   *net.KeepAliveConfig
	socketBuffer                int // bytes, for each direction
	preconnect                  int64
	http2                       http2.ClientOptions // of which the fields of this Backend are set
}

const (
	// maxStreamWindow bounds what the gateway may have to hold of one response, whatever the controller says.
	maxStreamWindow = 16 << 20
	// maxWidened bounds in bytes by how much the windows of all streams together are larger than those that a backend without a policy has.
	maxWidened = 64 << 20
)

// parseConnections reads the part of a Backend; nil is that there is none.
func parseConnections(b *config.Backend) *connections {
	c := b.GetTraffic().GetConnections()
	if c == nil {
		return nil
	}
	s := &connections{
		connectTimeout: time.Duration(c.ConnectTimeoutNanos), idleTimeout: time.Duration(c.IdleTimeoutNanos), maxDuration: time.Duration(c.MaxDurationNanos),
		socketBuffer: int(min(c.SocketBufferBytes, math.MaxInt32)),
		preconnect:   int64(min(c.PreconnectPerEndpointPercent, maxPreconnect)),
	}
	if k := c.Keepalive; k != nil {
		s.keepalive = &net.KeepAliveConfig{Enable: true, Idle: orSystem(k.IdleSeconds), Interval: orSystem(k.IntervalSeconds), Count: -1}
		if k.Probes > 0 {
			s.keepalive.Count = int(min(k.Probes, math.MaxInt16))
		}
	}
	s.http2.MaxStreams = int(min(c.Http2MaxConcurrentStreams, math.MaxInt32))
	s.http2.StreamWindow = int(min(c.Http2InitialStreamWindow, maxStreamWindow))
	s.http2.ConnWindow = int(min(c.Http2InitialConnectionWindow, math.MaxInt32))
	if k := c.Http2Keepalive; k != nil {
		s.http2.Keepalive = http2.Keepalive{Interval: time.Duration(k.IntervalNanos), Timeout: time.Duration(k.TimeoutNanos),
			JitterPercent: int(min(k.IntervalJitterPercent, 100)), Idle: time.Duration(k.IdleIntervalNanos)}
	}
	return s
}

// orSystem is for a field of net.KeepAliveConfig, of which a negative one is the system's.
func orSystem(seconds uint32) time.Duration {
	if seconds == 0 {
		return -1
	}
	return time.Duration(seconds) * time.Second
}

// settings returns what the backend's policy says of connections; nil where there is none.
func (e *Endpoint) settings() *connections { return e.backend.root().connections.Load() }

// connectTimeout bounds one dial.
func (e *Endpoint) connectTimeout() time.Duration {
	if s := e.settings(); s != nil && s.connectTimeout > 0 {
		return s.connectTimeout
	}
	return e.backend.set.options.ConnectTimeout
}

// keepaliveFor returns the keepalive of connections for a purpose; enabled is false where they have none at first.
func (e *Endpoint) keepaliveFor(p purpose) (_ net.KeepAliveConfig, enabled bool) {
	if s := e.settings(); s != nil && s.keepalive != nil {
		return *s.keepalive, true
	}
	if p == forTunnel { // most end soon
		return net.KeepAliveConfig{}, false
	}
	return keepAlive, true
}

// prepare sets what is the socket's.
func (s *connections) prepare(socket *net.TCPConn) {
	if s == nil || s.socketBuffer == 0 {
		return
	}
	socket.SetReadBuffer(s.socketBuffer)  //nolint:errcheck // the system has its own bounds
	socket.SetWriteBuffer(s.socketBuffer) //nolint:errcheck // as above
}

// http2Options are those of a connection to the endpoint.
func (e *Endpoint) http2Options() http2.ClientOptions {
	o := e.backend.set.options.HTTP2
	o.Widening = &e.backend.set.widening
	s := e.settings()
	if s == nil {
		return o
	}
	if s.http2.MaxStreams > 0 {
		o.MaxStreams = s.http2.MaxStreams
	}
	if s.http2.StreamWindow > 0 {
		o.StreamWindow = s.http2.StreamWindow
	}
	if s.http2.ConnWindow > 0 {
		o.ConnWindow = s.http2.ConnWindow
	}
	o.Keepalive = s.http2.Keepalive
	return o
}

// worn reports whether the connection takes no further request.
func (c *Conn) worn() bool {
	b := c.endpoint.backend.root()
	if l := b.breaker.limits.Load(); l != nil && l.perConnection > 0 && c.served >= l.perConnection {
		return true
	}
	s := b.connections.Load()
	return s != nil && s.maxDuration > 0 && time.Since(c.made) >= s.maxDuration
}

// sweepLimits are the bounds of a Sweep for an endpoint: connections that were released at or before idle are closed, and those made before made.
type sweepLimits struct {
	idle int64
	last int64 // the Sweep before
	made time.Time
}

// sweepLimits returns those of a Sweep at a time for the backend; last is the Sweep before.
func (b *Backend) sweepLimits(now time.Time, last int64) sweepLimits {
	l := sweepLimits{idle: now.Add(-b.set.options.IdleTimeout).UnixNano(), last: last}
	if s := b.root().connections.Load(); s != nil {
		if s.idleTimeout > 0 {
			l.idle = now.Add(-s.idleTimeout).UnixNano()
		}
		if s.maxDuration > 0 {
			l.made = time.Now().Add(-s.maxDuration) // made is by the monotonic clock
		}
	}
	return l
}
