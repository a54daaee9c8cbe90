package proxy

import (
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/moongate-dev/moongate/internal/proxy/upstream"
	"github.com/moongate-dev/moongate/internal/testkit"
)

// noStreams is a backend by HTTP/2 whose connections allow no streams until allow is called. It refuses those that are
// opened nevertheless.
type noStreams struct {
	addr  string
	conns atomic.Int64

	mu      sync.Mutex
	peers   []*framePeer
	allowed bool
}

func newNoStreams(t *testing.T) *noStreams {
	b := &noStreams{}
	b.addr = rawFrames(t, []http2.Setting{{ID: http2.SettingMaxConcurrentStreams}}, func(f *framePeer) {
		b.conns.Add(1)
		b.mu.Lock()
		b.peers = append(b.peers, f)
		if b.allowed {
			f.WriteSettings(http2.Setting{ID: http2.SettingMaxConcurrentStreams, Val: 1})
		}
		b.mu.Unlock()
		f.serve(func(stream uint32) bool {
			b.mu.Lock()
			defer b.mu.Unlock()
			if !b.allowed {
				f.WriteRSTStream(stream, http2.ErrCodeRefusedStream)
			}
			return b.allowed
		}, func(stream uint32, _ string) { f.answer(stream, "ok") })
	})
	return b
}

// allow makes all connections allow one stream each.
func (b *noStreams) allow() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.allowed = true
	for _, f := range b.peers {
		http2.NewFramer(f.c, nil).WriteSettings(http2.Setting{ID: http2.SettingMaxConcurrentStreams, Val: 1}) // f is in use
	}
}

// TestNoStreams: for a backend that allows no streams, requests wait up to the connect timeout, and do not make one
// connection after the other.
func TestNoStreams(t *testing.T) {
	t.Parallel()
	checkLeaks(t)
	b := newNoStreams(t)
	g := startGatewayWith(t, Options{Upstream: upstream.Options{ConnectTimeout: 200 * time.Millisecond}})
	g.serveH2C(b.addr, nil)
	const requests = 5
	for range requests {
		if got := g.roundTrip("GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"); !strings.HasPrefix(got, "HTTP/1.1 504 ") {
			t.Errorf("got %q", got)
		}
	}
	for _, reason := range g.reasonsLogged(requests) {
		if reason != "connect_timeout" {
			t.Errorf("logged %q", reason)
		}
	}
	if n := b.conns.Load(); n > 2 {
		t.Errorf("%d connections for %d requests, want at most 2", n, requests)
	}
}

// TestNoStreamsForAWhile: requests that wait for a stream are answered when the backend allows one.
func TestNoStreamsForAWhile(t *testing.T) {
	t.Parallel()
	checkLeaks(t)
	b := newNoStreams(t)
	g := startGatewayWith(t, Options{Upstream: upstream.Options{ConnectTimeout: testkit.Patience}})
	g.serveH2C(b.addr, nil)
	var work sync.WaitGroup
	for range 5 {
		work.Go(func() {
			if status, err := get(g.dial()); status != http.StatusOK || err != nil {
				t.Error(status, err)
			}
		})
	}
	backend := g.upstreams.Get("Service/default/b/80")
	testkit.Eventually(t, "all requests wait", func() bool { return backend.Stats().Waiting == 5 })
	b.allow()
	work.Wait()
}
