package upstream

import (
	"math"
	"net"
	"time"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/proxy/http2"
)

// connections is how connections to a Backend are made and kept, compiled from its config.BackendConnections. It is
// immutable. A field that is 0 takes the value of the Set's Options. Changes that concern how connections are made
// apply to new connections, all others at once. Settings that make existing connections unusable are in transport.
type connections struct {
	connectTimeout, idleTimeout time.Duration
	maxDuration                 time.Duration // after it a connection takes no more requests; 0 means no limit
	keepalive                   *net.KeepAliveConfig
	socketBuffer                int // bytes, for each direction
	preconnect                  int64
	http2                       http2.ClientOptions // with only the fields set that this Backend configures
}

const (
	// maxStreamWindow is the largest number of bytes of one response that the gateway may have to hold, whatever is
	// configured.
	maxStreamWindow = 16 << 20
	// maxWidened is by how many bytes the windows of all streams together may exceed those of backends without a
	// policy.
	maxWidened = 64 << 20
)

// parseConnections compiles the part of a Backend. It returns nil if there is none.
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

// orSystem returns a field of net.KeepAliveConfig. A negative value means the system's default.
func orSystem(seconds uint32) time.Duration {
	if seconds == 0 {
		return -1
	}
	return time.Duration(seconds) * time.Second
}

// settings returns what the backend's policy configures for connections; nil if nothing.
func (e *Endpoint) settings() *connections { return e.backend.root().connections.Load() }

// connectTimeout returns the longest time of one dial.
func (e *Endpoint) connectTimeout() time.Duration {
	if s := e.settings(); s != nil && s.connectTimeout > 0 {
		return s.connectTimeout
	}
	return e.backend.set.options.ConnectTimeout
}

// keepaliveFor returns the TCP keep-alive of connections for a purpose. enabled is false if they begin without it.
func (e *Endpoint) keepaliveFor(p purpose) (_ net.KeepAliveConfig, enabled bool) {
	if s := e.settings(); s != nil && s.keepalive != nil {
		return *s.keepalive, true
	}
	if p == forTunnel { // most end soon
		return net.KeepAliveConfig{}, false
	}
	return keepAlive, true
}

// prepare sets the socket options.
func (s *connections) prepare(socket *net.TCPConn) {
	if s == nil || s.socketBuffer == 0 {
		return
	}
	socket.SetReadBuffer(s.socketBuffer)  //nolint:errcheck // the system has its own limits
	socket.SetWriteBuffer(s.socketBuffer) //nolint:errcheck // as above
}

// http2Options returns the options of an HTTP/2 connection to the endpoint.
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

// worn reports whether the connection takes no more requests.
func (c *Conn) worn() bool {
	b := c.endpoint.backend.root()
	if l := b.limits.Load(); l != nil && l.perConnection > 0 && c.served >= l.perConnection {
		return true
	}
	s := b.connections.Load()
	return s != nil && s.maxDuration > 0 && time.Since(c.made) >= s.maxDuration
}

// sweepLimits are the limits of a Sweep for an endpoint: connections that were released at or before idle, and those
// made before made, are closed.
type sweepLimits struct {
	idle int64
	last int64 // time of the previous Sweep
	made time.Time
}

// sweepLimits returns the backend's limits for a Sweep at now. last is the time of the previous Sweep.
func (b *Backend) sweepLimits(now time.Time, last int64) sweepLimits {
	l := sweepLimits{idle: now.Add(-b.set.options.IdleTimeout).UnixNano(), last: last}
	if s := b.root().connections.Load(); s != nil {
		if s.idleTimeout > 0 {
			l.idle = now.Add(-s.idleTimeout).UnixNano()
		}
		if s.maxDuration > 0 {
			l.made = time.Now().Add(-s.maxDuration) // made uses the monotonic clock
		}
	}
	return l
}
