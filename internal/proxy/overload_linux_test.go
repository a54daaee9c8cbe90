package proxy

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/moongate-dev/moongate/internal/observe"
	"github.com/moongate-dev/moongate/internal/proxy/upstream"
	"github.com/moongate-dev/moongate/internal/testkit"
)

// TestDialsAreBounded: to an endpoint that accepts no connection only so many are begun, and only so many requests wait.
// Those beyond are refused at once, other backends do not feel it, and who waited is served when the endpoint recovers.
func TestDialsAreBounded(t *testing.T) {
	t.Parallel()
	checkLeaks(t)
	const full = "Service/default/full/80"
	l := testkit.FullListener(t)
	g := startGatewayWith(t, Options{Metrics: observe.NewMetrics(observe.MetricsOptions{}),
		Upstream: upstream.Options{MaxDials: 4, MaxWaiting: 6, ConnectTimeout: time.Minute}})
	toFull := anyRule()
	toFull.BackendRefs[0].Backend = full
	g.apply(append(append(backend(full, l.Addr().String()), backend("Service/default/b/80", cannedBackend(t, cannedResponse(2), 0))...),
		g.httpListener("http", ""), routeOf("full", "default/gw/http", "full.example", toFull), routeOf("r", "default/gw/http", "h", anyRule())))
	ask := func() net.Conn {
		c := g.dial()
		c.SetDeadline(time.Now().Add(time.Minute))
		io.WriteString(c, "GET / HTTP/1.1\r\nHost: full.example\r\n\r\n")
		return c
	}
	answer := func(c net.Conn) (int, string) {
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Fatal(err)
		}
		b, _ := io.ReadAll(resp.Body)
		return resp.StatusCode, string(b)
	}
	const waiting, inFlight = "moongate_upstream_requests_waiting", "moongate_upstream_requests_in_flight"
	var asked []net.Conn
	for g.counted(waiting, "backend", full) < 6 {
		if len(asked) == 20 {
			t.Fatalf("%d requests to an endpoint that accepts nothing, and %v wait for their turn", len(asked), g.counted(waiting, "backend", full))
		}
		before := len(asked)
		asked = append(asked, ask())
		g.eventually("the request at its endpoint", func() bool {
			connected := g.counted("moongate_upstream_connections_active", "backend", full)
			return g.counted(inFlight, "backend", full) == float64(before+1) &&
				g.counted(waiting, "backend", full) == max(0, float64(before+1)-connected-4)
		})
	}
	const more = 5
	for range more {
		if status, body := answer(ask()); status != 503 || body != "moongate: 503 overloaded\n" {
			t.Errorf("a request beyond the limit got %d %q", status, body)
		}
	}
	if n := g.counted("moongate_upstream_requests_refused_total", "backend", full); n != more {
		t.Errorf("%v refused requests counted, want %d", n, more)
	}
	// A request is counted once its answer has been sent.
	g.eventually("the refused requests in the count", func() bool {
		return g.counted("moongate_requests_total", "reason", "overloaded", "code", "503") == more
	})
	if status, err := get(g.dial()); status != 200 || err != nil {
		t.Errorf("another backend answered %d, %v", status, err)
	}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				r := bufio.NewReader(c)
				for {
					if _, err := readHead(r); err != nil {
						return
					}
					c.Write(cannedResponse(2))
				}
			}()
		}
	}()
	for i, c := range asked {
		if status, _ := answer(c); status != 200 {
			t.Errorf("request %d got %d when the endpoint had recovered", i, status)
		}
	}
}
