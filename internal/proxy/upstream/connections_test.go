package upstream

import (
	"testing"
	"time"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/proxy/http2"
)

// TestHTTP2OptionsOfPolicy: what a policy says takes the place of the Set's options, within bounds, and what it does not say leaves them.
func TestHTTP2OptionsOfPolicy(t *testing.T) {
	srv := listen(t)
	s, b := newSet(t, Options{HTTP2: http2.ClientOptions{MaxStreams: 7, StreamWindow: 1 << 17}}, endpoint(srv.addrPort()))
	for name, c := range map[string]struct {
		policy  *config.BackendConnections
		streams int
		window  int
		conn    int
		alive   http2.Keepalive
	}{
		"none":    {nil, 7, 1 << 17, 0, http2.Keepalive{}},
		"nothing": {&config.BackendConnections{}, 7, 1 << 17, 0, http2.Keepalive{}},
		"all": {&config.BackendConnections{Http2MaxConcurrentStreams: 3, Http2InitialStreamWindow: 1 << 18, Http2InitialConnectionWindow: 1 << 20,
			Http2Keepalive: &config.HTTP2Keepalive{IntervalNanos: 5, TimeoutNanos: 4, IntervalJitterPercent: 15, IdleIntervalNanos: 6}},
			3, 1 << 18, 1 << 20, http2.Keepalive{Interval: 5, Timeout: 4, JitterPercent: 15, Idle: 6}},
		"too much": {&config.BackendConnections{Http2MaxConcurrentStreams: 1<<32 - 1, Http2InitialStreamWindow: 1<<32 - 1, Http2InitialConnectionWindow: 1<<32 - 1,
			Http2Keepalive: &config.HTTP2Keepalive{IntervalJitterPercent: 1000}},
			1<<31 - 1, maxStreamWindow, 1<<31 - 1, http2.Keepalive{JitterPercent: 100}},
	} {
		r := backendResource(key)
		r.GetBackend().Traffic = &config.BackendTraffic{Connections: c.policy}
		apply(t, s, r)
		o := b.Endpoints()[0].http2Options()
		if o.MaxStreams != c.streams || o.StreamWindow != c.window || o.ConnWindow != c.conn || o.Keepalive != c.alive {
			t.Errorf("%s: %d streams, windows %d and %d, %+v", name, o.MaxStreams, o.StreamWindow, o.ConnWindow, o.Keepalive)
		}
	}
}

// TestPolicyKeepsConnections: only what makes connections unfit has them closed by an edit.
func TestPolicyKeepsConnections(t *testing.T) {
	for name, c := range map[string]struct {
		change *config.BackendTraffic
		keeps  bool
	}{
		"timeouts":        {&config.BackendTraffic{Connections: &config.BackendConnections{ConnectTimeoutNanos: 1, IdleTimeoutNanos: int64(time.Hour), MaxDurationNanos: int64(time.Hour)}}, true},
		"sockets":         {&config.BackendTraffic{Connections: &config.BackendConnections{Keepalive: &config.Keepalive{}, SocketBufferBytes: 1 << 16, Http2MaxConcurrentStreams: 1}}, true},
		"breaker":         {&config.BackendTraffic{CircuitBreaker: &config.CircuitBreaker{MaxRequestsPerConnection: 100}}, true},
		"preconnect":      {&config.BackendTraffic{Connections: &config.BackendConnections{PreconnectPerEndpointPercent: 100}}, true},
		"PROXY header":    {&config.BackendTraffic{Connections: &config.BackendConnections{ProxyHeader: config.ProxyHeader_PROXY_HEADER_V1}}, false},
		"client protocol": {&config.BackendTraffic{Connections: &config.BackendConnections{ClientProtocol: true}}, false},
	} {
		srv := listen(t)
		s, b := newSet(t, Options{}, endpoint(srv.addrPort()))
		e := b.Endpoints()[0]
		kept := dial(t, e)
		kept.Release()
		r := backendResource(key)
		r.GetBackend().Traffic = c.change
		apply(t, s, r)
		if now := b.Endpoints()[0]; (now == e) != c.keeps || c.keeps && e.Idle() != kept || !c.keeps && b.Stats().Open != 0 {
			t.Errorf("%s: the endpoint is the same: %v, %+v", name, now == e, b.Stats())
		}
	}
}
