package proxy

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/testkit"
)

// TestPreconnect counts the connections that a backend accepts while requests are under way: with 200 percent each of them leaves a spare one for the next, without a
// policy none is made in advance.
func TestPreconnect(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		http2   bool
		percent uint32
	}{"HTTP/1.1": {false, 200}, "HTTP/2": {true, 200}, "HTTP/1.1, none": {false, 0}, "HTTP/2, none": {true, 0}, "HTTP/1.1, 100 percent": {false, 100}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			checkLeaks(t)
			const requests = 4
			begun, goOn := make(chan bool), make(chan bool)
			handle := func(_ http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/first" {
					return
				}
				begun <- true
				<-goOn
			}
			var addr string
			var accepted *atomic.Int64
			b := &config.Backend{Key: "Service/default/b/80", Traffic: &config.BackendTraffic{Connections: &config.BackendConnections{PreconnectPerEndpointPercent: tc.percent}}}
			if tc.http2 {
				addr, accepted = h2cBackend(t, 1, handle) // a stream on each connection
				b.Protocol = config.BackendProtocol_BACKEND_PROTOCOL_H2C
			} else {
				addr, accepted = countingBackend(t, handle)
			}
			g := startGateway(t, Timeouts{})
			g.serve(addr, nil)
			g.apply([]*config.Resource{{Kind: &config.Resource_Backend{Backend: b}}})
			// How many streams a connection carries is known when the first is there.
			if got := g.roundTrip("GET /first HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"); !strings.HasPrefix(got, "HTTP/1.1 200 ") {
				t.Fatal(got)
			}
			var clients []net.Conn
			for i := int64(1); i <= requests; i++ {
				c := g.dial()
				io.WriteString(c, "GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
				clients = append(clients, c)
				<-begun
				if tc.percent > 100 {
					testkit.Eventually(t, "a spare connection", func() bool { return accepted.Load() > i })
				} else if n := accepted.Load(); n != i {
					t.Errorf("%d requests are under way by %d connections", i, n)
				}
			}
			close(goOn)
			for _, c := range clients {
				if resp, err := http.ReadResponse(bufio.NewReader(c), nil); err != nil || resp.StatusCode != 200 {
					t.Errorf("%v, %v", resp, err)
				}
			}
			if n := accepted.Load(); n > 2*requests {
				t.Errorf("%d connections for %d requests", n, requests)
			}
		})
	}
}

// countingBackend is httpBackend, and counts the connections that are made to it.
func countingBackend(t testing.TB, h http.HandlerFunc) (addr string, accepted *atomic.Int64) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	accepted = &atomic.Int64{}
	s := &http.Server{Handler: h, ConnState: func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			accepted.Add(1)
		}
	}}
	go s.Serve(l)
	t.Cleanup(func() { s.Close() })
	return l.Addr().String(), accepted
}
