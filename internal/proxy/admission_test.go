package proxy

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/testkit"
)

// withAdmission is admission control of a window that nothing leaves during a test, with changes.
func withAdmission(change func(*config.AdmissionControl)) func(*config.Rule) {
	a := &config.AdmissionControl{SamplingWindowNanos: int64(time.Hour), MinSuccessPercent: 95, Aggression: 1, MaxRejectionPercent: 80}
	if change != nil {
		change(a)
	}
	return func(r *config.Rule) {
		r.Traffic = &config.RuleTraffic{Policy: "BackendTrafficPolicy default/p", AdmissionControl: a}
	}
}

// statuses sends requests one after the other on a connection and counts the answers by status.
func (g *gateway) statuses(n int, each func(status int)) {
	g.t.Helper()
	c := g.dial()
	r := bufio.NewReader(c)
	for range n {
		io.WriteString(c, "GET / HTTP/1.1\r\nHost: h\r\n\r\n")
		resp, err := http.ReadResponse(r, nil)
		if err != nil {
			g.t.Fatal(err)
		}
		io.Copy(io.Discard, resp.Body)
		c.SetDeadline(time.Now().Add(testkit.Patience))
		each(resp.StatusCode)
	}
}

// TestAdmissionCurve: over sockets, as many requests are rejected as the formula says of those before each of them, within 2 %.
func TestAdmissionCurve(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		failing    int // of ten
		aggression uint32
	}{{0, 1}, {2, 1}, {5, 1}, {5, 2}, {10, 1}} {
		t.Run(fmt.Sprintf("%d of 10 fail, aggression %d", c.failing, c.aggression), func(t *testing.T) {
			t.Parallel()
			checkLeaks(t)
			var asked atomic.Int64
			g := startGateway(t, Timeouts{})
			g.serve(httpBackend(t, func(w http.ResponseWriter, _ *http.Request) {
				if asked.Add(1)%10 < int64(c.failing) {
					w.WriteHeader(500)
				}
			}), withAdmission(func(a *config.AdmissionControl) { a.Aggression = c.aggression }))
			const n = 10_000 // at most half a percent is a standard deviation
			total, successes, rejected, expected := 0.0, 0.0, 0, 0.0
			g.statuses(n, func(status int) {
				if p := (total - successes/0.95) / (total + 1); p > 0 {
					expected += min(math.Pow(p, 1/float64(c.aggression)), 0.8)
				}
				switch status {
				case 200:
					total++
					successes++
				case 500:
					total++
				case 503:
					rejected++
				default:
					t.Fatalf("got %d", status)
				}
			})
			if off := math.Abs(float64(rejected)-expected) / n; off > 0.02 {
				t.Errorf("%d of %d are rejected, want %.0f", rejected, n, expected)
			}
			if got := int(asked.Load()); got != n-rejected {
				t.Errorf("the backend was asked %d times, want %d", got, n-rejected)
			}
		})
	}
}

// TestAdmissionRejects: by all protocols, what is rejected is answered 503 with its reason, and gRPC has UNAVAILABLE.
func TestAdmissionRejects(t *testing.T) {
	t.Parallel()
	checkLeaks(t)
	g := startGateway(t, Timeouts{})
	cc := g.grpcPair()
	rule := anyRule()
	withAdmission(func(a *config.AdmissionControl) {
		a.MinSuccessPercent, a.MaxRejectionPercent, a.GrpcSuccesses = 100, 100, []uint32{0}
	})(rule)
	g.apply([]*config.Resource{routeOf("r", "default/gw/http", "", rule)})
	ctx, cancel := context.WithTimeout(t.Context(), testkit.Patience)
	defer cancel()
	call := func(method string) *status.Status {
		return status.Convert(cc.Invoke(ctx, "/test.Echo/"+method, &emptypb.Empty{}, &emptypb.Empty{}, grpc.WaitForReady(true)))
	}
	if s := call("Echo"); s.Code() != codes.OK {
		t.Fatal(s)
	}
	// Of two requests one has failed then, and so on: soon all are rejected, as none may fail.
	for call("Fail").Code() == codes.FailedPrecondition {
	}
	testkit.Eventually(t, "a call is rejected", func() bool {
		s := call("Fail")
		return s.Code() == codes.Unavailable && strings.Contains(s.Message(), "admission_rejected")
	})
	g.statuses(1, func(int) {}) // HTTP shares the window: the backend answers HTTP/1.1 with nothing, or it is rejected
	testkit.Eventually(t, "it is logged", func() bool { return g.log.Count(`"reason":"admission_rejected"`) >= 2 })
}

// TestAdmissionCounts: what counts as a failure of the backend, and what does not count.
func TestAdmissionCounts(t *testing.T) {
	t.Parallel()
	reset := func(c net.Conn, _ *bufio.Reader) {
		c.(*net.TCPConn).SetLinger(0)
	}
	silent := func(_ net.Conn, r *bufio.Reader) { io.Copy(io.Discard, r) }
	timesOut := func(r *config.Rule) { r.RequestTimeoutNanos = int64(100 * time.Millisecond) }
	for _, c := range []struct {
		name    string
		backend func(net.Conn, *bufio.Reader)
		ask     func(*gateway)
		rejects bool // the second request, whatever is drawn
		rule    func(*config.Rule)
	}{
		{"a reset", reset, func(g *gateway) { get(g.dial()) }, true, nil},
		{"a backend that does not answer in time", silent, func(g *gateway) { get(g.dial()) }, true, timesOut},
		{"an upload that does not end in time", silent, func(g *gateway) {
			c := g.dial()
			io.WriteString(c, "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\na")
			if resp, err := http.ReadResponse(bufio.NewReader(c), nil); err != nil || resp.StatusCode != 504 {
				g.t.Errorf("%v, %v", resp, err)
			}
		}, false, timesOut},
		{"an upload that the backend does not wait for", func(_ net.Conn, r *bufio.Reader) { readHead(r); r.ReadByte() }, func(g *gateway) {
			c := g.dial()
			io.WriteString(c, "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\na")
			if resp, err := http.ReadResponse(bufio.NewReader(c), nil); err != nil || resp.StatusCode != 502 {
				g.t.Errorf("%v, %v", resp, err)
			}
		}, false, nil},
		{"a gRPC call that gives itself little time", silent, func(g *gateway) {
			req, _ := http.NewRequestWithContext(g.t.Context(), "POST", "http://h/", strings.NewReader("a"))
			req.Header = http.Header{"Content-Type": {"application/grpc"}, "Te": {"trailers"}, "Grpc-Timeout": {"1m"}}
			resp, err := g.http2Client("").RoundTrip(req)
			if err != nil {
				g.t.Fatal(err)
			}
			if resp.Body.Close(); resp.Header.Get("grpc-status") != "4" { // DEADLINE_EXCEEDED
				g.t.Errorf("%v", resp)
			}
		}, false, nil},
		{"a stream that is idle", silent, func(g *gateway) { get(g.dial()) }, false, func(r *config.Rule) { r.Traffic.StreamIdleTimeoutNanos = int64(100 * time.Millisecond) }},
		{"a stream that takes too long", silent, func(g *gateway) { get(g.dial()) }, false, func(r *config.Rule) { r.Traffic.MaxStreamDurationNanos = int64(100 * time.Millisecond) }},
		{"no endpoint", silent, func(g *gateway) {
			g.apply(backend("Service/default/b/80"))
			get(g.dial())
		}, false, nil},
		{"a client that leaves", func(c net.Conn, r *bufio.Reader) { readHead(r); io.Copy(io.Discard, r) }, func(g *gateway) {
			c := g.dial()
			io.WriteString(c, "GET / HTTP/1.1\r\nHost: h\r\n\r\n")
			testkit.Eventually(g.t, "the backend is asked", func() bool { return g.upstreams.Get("Service/default/b/80").Stats().InFlight == 1 })
			c.Close()
		}, false, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			checkLeaks(t)
			g := startGateway(t, Timeouts{})
			// After one failure of one the probability is a half, of which the hundredth root is taken.
			g.serve(rawBackend(t, c.backend), func(r *config.Rule) {
				withAdmission(func(a *config.AdmissionControl) {
					a.MinSuccessPercent, a.MaxRejectionPercent, a.Aggression = 100, 100, 1<<30
				})(r)
				if c.rule != nil {
					c.rule(r)
				}
			})
			c.ask(g)
			g.reasonsLogged(1)
			if c.rejects {
				g.statuses(1, func(status int) {})
				if r := g.reasonsLogged(2); r[1] != "admission_rejected" {
					t.Errorf("logged %q", r)
				}
				return
			}
			// An edit of the rule leaves the window as it is: still nothing has failed.
			g.serve(refusedAddr(t), withAdmission(func(a *config.AdmissionControl) {
				a.MinSuccessPercent, a.MaxRejectionPercent, a.Aggression = 99, 100, 1<<30
			}))
			g.statuses(2, func(status int) {})
			if r := g.reasonsLogged(3); r[1] != "connect_failed" || r[2] != "admission_rejected" {
				t.Errorf("logged %q", r)
			}
			g.serve(refusedAddr(t), withAdmission(func(a *config.AdmissionControl) {
				a.MinSuccessPercent, a.MaxRejectionPercent, a.Aggression = 98, 100, 1<<30
			}))
			g.statuses(1, func(status int) {})
			if r := g.reasonsLogged(4); r[3] != "admission_rejected" {
				t.Errorf("after an edit logged %q", r)
			}
			// With another window it begins anew.
			g.serve(refusedAddr(t), withAdmission(func(a *config.AdmissionControl) { a.SamplingWindowNanos, a.Aggression = int64(2*time.Hour), 1<<30 }))
			g.statuses(1, func(status int) {})
			if r := g.reasonsLogged(5); r[4] != "connect_failed" {
				t.Errorf("with another window logged %q", r)
			}
			g.apply(nil, config.ID{Kind: config.KindRoute, Key: "HTTPRoute/default/r"})
			if n := g.compiler.Windows(); n != 0 {
				t.Errorf("%d windows are left", n)
			}
		})
	}
}

// TestAdmissionCountsRefusals: a backend that refuses requests fails them, whether their clients have sent all of them or not.
func TestAdmissionCountsRefusals(t *testing.T) {
	t.Parallel()
	checkLeaks(t)
	g := startGateway(t, Timeouts{})
	g.serveH2C(frameBackend(t, nil, func(_ int, f *framePeer) {
		f.serve(func(stream uint32) bool {
			f.WriteRSTStream(stream, http2.ErrCodeRefusedStream)
			return false
		}, nil)
	}), withAdmission(func(a *config.AdmissionControl) {
		a.MinSuccessPercent, a.MaxRejectionPercent, a.Aggression = 100, 100, 1<<30
	}))
	if got := g.roundTrip("POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n3\r\nabc\r\n"); !strings.HasPrefix(got, "HTTP/1.1 502 ") {
		t.Errorf("got %q", got)
	}
	g.reasonsLogged(1)
	g.statuses(1, func(int) {})
	if r := g.reasonsLogged(2); r[1] != "admission_rejected" {
		t.Errorf("logged %q", r)
	}
}
