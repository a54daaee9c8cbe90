package proxy

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/observe"
)

// TestLoop makes the gateway its own backend, by HTTP/1.1 and HTTP/2, though a filter would take the count away: the request ends, with 508 for
// the client.
func TestLoop(t *testing.T) {
	t.Parallel()
	for _, h2cBehind := range []bool{false, true} {
		checkLeaks(t)
		g := startGateway(t, Timeouts{})
		serve := g.serve
		if h2cBehind {
			serve = g.serveH2C
		}
		serve(g.addr(), func(r *config.Rule) {
			r.Filters = append(r.Filters, filterOf(t, &config.RequestHeaderModifier{Remove: []string{"cdn-loop", "X-Other"}, Set: fields("CDN-Loop", "x")}))
		})
		got := g.roundTrip("GET / HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\n\r\n")
		if !strings.HasPrefix(got, "HTTP/1.1 508 ") || !strings.Contains(got, "loop_detected") {
			t.Errorf("got %s", got)
		}
		words := g.reasonsLogged(11) // in any order: an exchange may log before the one whose answer it has passed on
		slices.Sort(words)
		if want := append([]string{"loop_detected"}, slices.Repeat([]string{"ok"}, 10)...); !slices.Equal(words, want) {
			t.Errorf("%q, want %q", words, want)
		}
	}
}

// TestMirrorLoop makes the gateway the mirror of its own requests, twice: copies are not copied again, so that they do not double with
// each pass.
func TestMirrorLoop(t *testing.T) {
	t.Parallel()
	checkLeaks(t)
	const self = "Service/default/self/80"
	var requests atomic.Int32
	g := startGatewayWith(t, Options{Metrics: observe.NewMetrics(observe.MetricsOptions{})})
	g.apply(backend(self, g.addr()))
	g.serve(httpBackend(t, func(http.ResponseWriter, *http.Request) { requests.Add(1) }), mirrorTo(t, self, self))
	if status, err := get(g.dial()); status != 200 || err != nil {
		t.Fatal(status, err)
	}
	g.eventually("the end of all copies", func() bool { return g.engine.Mirrors() == 0 })
	if n := requests.Load(); n != 1+2 {
		t.Errorf("one request became %d, want 3: itself and two copies", n)
	}
	if n := g.counted("moongate_upstream_mirror_copies_dropped_total", "reason", "loop_detected"); n != 4 {
		t.Errorf("%v copies counted as dropped, want 4", n)
	}
}

// TestNoLoop sends a request through Gateways one behind the other, and has a backend call through its own Gateway with the fields of the request that it
// serves.
func TestNoLoop(t *testing.T) {
	back := startGateway(t, Timeouts{})
	var calls atomic.Int32
	var front *gateway
	back.serve(httpBackend(t, func(w http.ResponseWriter, r *http.Request) {
		if calls.Add(1) == 3 {
			if n := len(r.Header.Values("Cdn-Loop")); n != 6+1 {
				t.Errorf("%q", r.Header.Values("Cdn-Loop"))
			}
			io.WriteString(w, "hello")
			return
		}
		again, _ := http.NewRequest("GET", "http://"+front.addr()+"/", nil)
		again.Header = r.Header.Clone()
		resp, err := http.DefaultTransport.RoundTrip(again)
		if err != nil {
			t.Error(err)
			return
		}
		defer resp.Body.Close()
		w.WriteHeader(resp.StatusCode)
		io.Copy(w, resp.Body)
	}), nil)
	front = startGateway(t, Timeouts{})
	front.serve(netip.MustParseAddrPort(back.addr()).String(), nil)
	var c net.Conn = front.dial()
	io.WriteString(c, "GET / HTTP/1.1\r\nHost: a.test\r\nCDN-Loop: cdn.example\r\n\r\n")
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	if b, _ := io.ReadAll(resp.Body); resp.StatusCode != 200 || string(b) != "hello" {
		t.Errorf("%d %q", resp.StatusCode, b)
	}
	http.DefaultTransport.(*http.Transport).CloseIdleConnections()
}
