package proxy

import (
	"bufio"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/observe"
	"github.com/moongate-dev/moongate/internal/proxy/filter"
	"github.com/moongate-dev/moongate/internal/proxy/message"
	"github.com/moongate-dev/moongate/internal/proxy/snapshot"
	"github.com/moongate-dev/moongate/internal/proxy/upstream"
	"github.com/moongate-dev/moongate/internal/testkit"
)

// rule is the compiled rule of the gateway's only route.
func (g *gateway) rule() *snapshot.Rule {
	g.t.Helper()
	m, _ := g.state.listeners["default/gw/http"].table.Lookup(&message.Request{Method: []byte("GET"), MatchHost: []byte("a.test"), Path: []byte("/")})
	if m == nil {
		g.t.Fatal("no rule")
	}
	return m.Value
}

// publish makes what was changed in a rule known to the goroutines of requests.
func (g *gateway) publish() { g.engine.Snapshot.Store(g.engine.Snapshot.Load()) }

// panicFilter panics for requests whose field X-Panic says so.
func panicFilter(x *filter.Exchange) {
	if v, _ := x.Request.Header.Get("x-panic"); len(v) > 0 {
		panic("filter of the test: " + string(v))
	}
}

// panicsIn has the filters of requests, or those of responses, panic for such requests.
func (g *gateway) panicsIn(place string) {
	f := *g.rule().Filters // which rules may share
	if place == "request" {
		f.Request = append(f.Request, func(x *filter.Exchange) *filter.Reply { panicFilter(x); return nil })
	} else {
		f.Response = append(f.Response, panicFilter)
	}
	g.rule().Filters = &f
	g.publish()
}

// panics is the value of moongate_panics_total.
func panics(t *testing.T, m *observe.Metrics, where string) (n float64) {
	t.Helper()
	families, err := m.Gatherer().Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, s := range f.GetMetric() {
			if f.GetName() == "moongate_panics_total" && s.GetLabel()[0].GetValue() == where {
				n += s.GetCounter().GetValue()
			}
		}
	}
	return n
}

// settled waits until nothing is in flight to backends, and no connection to one is in use.
func (g *gateway) settled() {
	g.t.Helper()
	for deadline := time.Now().Add(testkit.Patience); ; time.Sleep(5 * time.Millisecond) {
		busy := ""
		for _, b := range g.upstreams.Backends() {
			if s := b.Stats(); s.InFlight != 0 || s.Open != s.Idle {
				busy = fmt.Sprintf("%s: %+v", b.Key(), s)
			}
		}
		if busy == "" {
			return
		}
		if time.Now().After(deadline) {
			g.t.Fatal(busy)
		}
	}
}

// TestPanicInExchange has filters panic before and behind the backend: the exchange ends as internal with all that it had,
// and nobody else notices.
func TestPanicInExchange(t *testing.T) {
	t.Parallel()
	for _, h2cBehind := range []bool{false, true} {
		for _, place := range []string{"request", "response"} {
			t.Run(fmt.Sprintf("%s, HTTP/2 behind %v", place, h2cBehind), func(t *testing.T) {
				checkLeaks(t)
				logged := &testkit.Log{}
				metrics := observe.NewMetrics(observe.MetricsOptions{})
				g := startGatewayWith(t, Options{Metrics: metrics, Logger: slog.New(slog.NewTextHandler(logged, nil))})
				release := make(chan struct{})
				entered := make(chan struct{}, 1)
				h := func(w http.ResponseWriter, r *http.Request) {
					switch {
					case r.Header.Get("X-Wait") != "":
						entered <- struct{}{}
						<-release
					case r.Header.Get("X-Panic") != "": // answers before it has the body
						http.NewResponseController(w).EnableFullDuplex() // by HTTP/2 it is
						w.WriteHeader(200)
						w.(http.Flusher).Flush()
					}
					io.Copy(io.Discard, r.Body)
					io.WriteString(w, "hello")
				}
				if h2cBehind {
					addr, _ := h2cBackend(t, 0, h)
					g.serveH2C(addr, nil)
				} else {
					g.serve(httpBackend(t, h), nil)
				}
				g.panicsIn(place)

				// By HTTP/2 another stream of the connection goes on.
				cc := g.http2Client("")
				waited := make(chan error, 1)
				go func() {
					r, _ := http.NewRequest("GET", "http://a.test/", nil)
					r.Header.Set("X-Wait", "1")
					resp, err := cc.RoundTrip(r)
					if err == nil {
						var b []byte
						if b, err = io.ReadAll(resp.Body); string(b) != "hello" {
							err = fmt.Errorf("got %q %w", b, err)
						}
					}
					waited <- err
				}()
				<-entered
				const rounds = 3
				for i := range rounds {
					var body io.Reader
					if i == 1 {
						body = strings.NewReader("abc")
					}
					pr, pw := io.Pipe()
					if i == 2 { // a body under way
						body = pr
						go io.WriteString(pw, "begun")
					}
					r, _ := http.NewRequest("POST", "http://a.test/", body)
					r.Header.Set("X-Panic", "by HTTP/2")
					if resp, err := cc.RoundTrip(r); err == nil {
						t.Errorf("answered %d", resp.StatusCode)
					} else if !strings.Contains(err.Error(), "INTERNAL_ERROR") {
						t.Error(err)
					}
					pw.Close()
				}
				close(release)
				if err := <-waited; err != nil {
					t.Errorf("another stream: %v", err)
				}

				// By HTTP/1.1 the connection ends.
				other := g.dial()
				for _, rest := range []string{"\r\n", "Content-Length: 3\r\n\r\nabc", "Content-Length: 10\r\n\r\nabc", "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n"} {
					c := g.dial()
					io.WriteString(c, "POST / HTTP/1.1\r\nHost: a.test\r\nX-Panic: by HTTP/1.1\r\n"+rest)
					if b, _ := io.ReadAll(c); len(b) > 0 {
						t.Errorf("got %q", b)
					}
					io.WriteString(other, "GET / HTTP/1.1\r\nHost: a.test\r\n\r\n")
					resp, err := http.ReadResponse(bufio.NewReader(other), nil)
					if err != nil {
						t.Fatal(err)
					}
					if b, _ := io.ReadAll(resp.Body); string(b) != "hello" {
						t.Errorf("another connection got %q", b)
					}
				}
				other.Close()
				cc.Close()
				g.settled()
				want := map[string]int{"internal": rounds + 4, "ok": 5}
				for _, word := range g.reasonsLogged(rounds + 9) {
					want[word]--
				}
				for word, n := range want {
					if n != 0 {
						t.Errorf("reason %s: %d missing", word, n)
					}
				}
				if n := panics(t, metrics, "exchange"); n != rounds+4 {
					t.Errorf("%v panics counted", n)
				}
				if l := logged.String(); !strings.Contains(l, "filter of the test: by HTTP/2") || !strings.Contains(l, "panicFilter") {
					t.Errorf("logged %s", l)
				}
			})
		}
	}
}

// TestPanicInMirror has a copy panic: the request and later copies go on.
func TestPanicInMirror(t *testing.T) {
	t.Parallel()
	checkLeaks(t)
	metrics := observe.NewMetrics(observe.MetricsOptions{})
	g := startGatewayWith(t, Options{Metrics: metrics})
	g.serve(echo(t), func(r *config.Rule) {})
	g.rule().Filters = &snapshot.Filters{Mirrors: []*filter.Mirror{{Backend: &upstream.Backend{}, Numerator: 1, Denominator: 1}}} // no list of endpoints: a defect
	g.publish()
	for i := range 4 {
		c := g.dial()
		if i%2 == 0 {
			io.WriteString(c, "POST / HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\nContent-Length: 3\r\n\r\nabc")
		} else {
			io.WriteString(c, "POST / HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n")

			io.WriteString(c, "0\r\n\r\n")
		}
		if b, _ := io.ReadAll(c); !strings.Contains(string(b), "200 OK") || !strings.Contains(string(b), "abc") {
			t.Errorf("got %q", b)
		}
	}
	for deadline := time.Now().Add(testkit.Patience); g.engine.Mirrors() > 0 || panics(t, metrics, "mirror") < 4; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d copies under way, %v panics", g.engine.Mirrors(), panics(t, metrics, "mirror"))
		}
	}
	g.settled()
}

// TestPanicInExtendedConnect: where a request for a tunnel over HTTP/2 panics, before or behind its backend's 101, its stream alone ends, and its place
// among the connections of its client is free again.
func TestPanicInExtendedConnect(t *testing.T) {
	t.Parallel()
	for _, place := range []string{"request", "response"} {
		t.Run(place, func(t *testing.T) {
			checkLeaks(t)
			addr, _, accepted := switchingByKey(t)
			metrics := observe.NewMetrics(observe.MetricsOptions{})
			const most, rounds = 3, 8
			g := startGatewayWith(t, Options{Metrics: metrics, Logger: slog.New(slog.DiscardHandler), MaxConnections: 100, MaxConnectionsPerClient: most})
			g.serveWebSocket(addr, nil)
			g.panicsIn(place)
			p := g.connectPeer("")
			open := p.connect("websocket", "http://h/chat")
			backend := <-accepted
			for range rounds {
				c := p.connect("websocket", "http://h/chat", "x-panic", "yes")
				if _, err := io.ReadAll(c); err == nil || c.status() == "200" {
					t.Fatalf("the stream has not ended by a reset: %v, %v", c.Header, err)
				}
			}
			if n := panics(t, metrics, "exchange"); n != rounds {
				t.Errorf("%v panics counted, want %d", n, rounds)
			}
			passes(t, open, backend)
			passes(t, backend, open)
			if c := p.connect("websocket", "http://h/chat"); c.status() != "200" {
				t.Errorf("no room behind panics: %v", c.Header)
			}
		})
	}
}
