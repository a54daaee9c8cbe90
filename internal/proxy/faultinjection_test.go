package proxy

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"runtime/pprof"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/testkit"
)

const all = 1_000_000

func withFault(f *config.FaultInjection) func(*config.Rule) {
	return func(r *config.Rule) { r.Traffic = &config.RuleTraffic{FaultInjection: f} }
}

// TestFaultAbort: an aborted request has the status that the rule names, by all protocols, and no backend hears of it.
func TestFaultAbort(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		abort *config.FaultAbort
		want  int
	}{
		{"HTTP", &config.FaultAbort{HttpStatus: 418, PerMillion: all}, 418},
		{"the last status", &config.FaultAbort{HttpStatus: 600, PerMillion: all}, 600},
		{"reset content", &config.FaultAbort{HttpStatus: 205, PerMillion: all}, 205},
		{"without a body", &config.FaultAbort{HttpStatus: 204, PerMillion: all}, 204},
		{"gRPC", &config.FaultAbort{GrpcStatus: proto.Uint32(14), PerMillion: all}, 503},
		{"gRPC OK", &config.FaultAbort{GrpcStatus: proto.Uint32(0), PerMillion: all}, 200},
		{"never", &config.FaultAbort{HttpStatus: 418}, 299},
	} {
		for _, client2 := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/HTTP2 %v", c.name, client2), func(t *testing.T) {
				t.Parallel()
				checkLeaks(t)
				var asked atomic.Int64
				g := startGateway(t, Timeouts{})
				g.serve(httpBackend(t, func(w http.ResponseWriter, _ *http.Request) {
					asked.Add(1)
					w.WriteHeader(299)
				}), withFault(&config.FaultInjection{Abort: c.abort}))
				var got int
				if client2 {
					req, _ := http.NewRequestWithContext(t.Context(), "POST", "http://h/", strings.NewReader("body"))
					resp, err := g.http2Client("").RoundTrip(req)
					if err != nil {
						t.Fatal(err)
					}
					got = resp.StatusCode
					if body, err := io.ReadAll(resp.Body); err != nil || got == 205 && len(body) > 0 {
						t.Errorf("the body is %q, %v", body, err)
					}
					resp.Body.Close()
				} else {
					status, err := get(g.dial())
					if err != nil {
						t.Fatal(err)
					}
					got = status
				}
				reason, requests := "fault_injected", int64(0)
				if c.want == 299 {
					reason, requests = "ok", 1
				}
				if r := g.reasonsLogged(1); got != c.want || r[0] != reason || asked.Load() != requests {
					t.Errorf("got %d, logged %q, the backend was asked %d times; want %d, %s, %d", got, r, asked.Load(), c.want, reason, requests)
				}
			})
		}
	}
}

// TestFaultAbortGRPC: gRPC's own client has the status of the fault.
func TestFaultAbortGRPC(t *testing.T) {
	t.Parallel()
	checkLeaks(t)
	g := startGateway(t, Timeouts{})
	cc := g.grpcPair()
	ctx, cancel := context.WithTimeout(t.Context(), testkit.Patience)
	defer cancel()
	for _, c := range []struct {
		abort *config.FaultAbort
		code  codes.Code
	}{
		{&config.FaultAbort{GrpcStatus: proto.Uint32(uint32(codes.DataLoss)), PerMillion: all}, codes.DataLoss},
		{&config.FaultAbort{HttpStatus: 403, PerMillion: all}, codes.PermissionDenied},
	} {
		rule := &config.Rule{Matches: []*config.Match{{Path: &config.PathMatch{Type: config.PathMatchType_PATH_MATCH_TYPE_PREFIX}}},
			BackendRefs: []*config.BackendRef{{Backend: "Service/default/b/80", Weight: 1}}}
		withFault(&config.FaultInjection{Abort: c.abort})(rule)
		g.apply([]*config.Resource{routeOf("r", "default/gw/http", "", rule)})
		err := cc.Invoke(ctx, "/test.Echo/Echo", &emptypb.Empty{}, &emptypb.Empty{}, grpc.WaitForReady(true))
		if s := status.Convert(err); s.Code() != c.code || !strings.Contains(s.Message(), "fault_injected") {
			t.Errorf("%v, want %v", err, c.code)
		}
	}
}

// TestFaultDelay: a delayed request is forwarded when the delay is over, or aborted then, or ends earlier by what requests end by.
func TestFaultDelay(t *testing.T) {
	t.Parallel()
	const forever = int64(time.Hour)
	for _, c := range []struct {
		name   string
		change func(*config.Rule)
		delay  int64
		end    func(*gateway, io.Closer) // while the request is delayed
		status int                       // 0: none
		reason string
	}{
		{name: "over", delay: int64(300 * time.Millisecond), status: 299, reason: "ok"},
		{name: "aborted", delay: int64(300 * time.Millisecond), status: 418, reason: "fault_injected",
			change: func(r *config.Rule) {
				r.Traffic.FaultInjection.Abort = &config.FaultAbort{HttpStatus: 418, PerMillion: all}
			}},
		{name: "deadline", delay: forever, status: 504, reason: "request_timeout", change: func(r *config.Rule) { r.RequestTimeoutNanos = int64(300 * time.Millisecond) }},
		{name: "duration of streams", delay: forever, status: 504, reason: "stream_duration_exceeded",
			change: func(r *config.Rule) { r.Traffic.MaxStreamDurationNanos = int64(300 * time.Millisecond) }},
		{name: "idle", delay: forever, status: 504, reason: "stream_idle", change: func(r *config.Rule) { r.Traffic.StreamIdleTimeoutNanos = int64(300 * time.Millisecond) }},
		{name: "client leaves", delay: forever, reason: "client_closed", end: func(_ *gateway, c io.Closer) { c.Close() }},
		{name: "gateway drains", delay: forever, reason: "shutting_down", end: func(g *gateway, _ io.Closer) {
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
			defer cancel()
			g.Shutdown(ctx)
		}},
	} {
		for _, client2 := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/HTTP2 %v", c.name, client2), func(t *testing.T) {
				t.Parallel()
				checkLeaks(t)
				var asked atomic.Int64
				g := startGateway(t, Timeouts{})
				g.serve(httpBackend(t, func(w http.ResponseWriter, _ *http.Request) {
					asked.Add(1)
					w.WriteHeader(299)
				}), func(r *config.Rule) {
					withFault(&config.FaultInjection{Delay: &config.FaultDelay{DelayNanos: c.delay, PerMillion: all}})(r)
					if c.change != nil {
						c.change(r)
					}
				})
				begun := time.Now()
				answered := make(chan int, 1)
				var conn io.Closer
				if client2 {
					cc := g.http2Client("")
					conn = cc
					go func() {
						req, _ := http.NewRequestWithContext(t.Context(), "GET", "http://h/", nil)
						resp, err := cc.RoundTrip(req)
						if err != nil {
							answered <- 0
							return
						}
						resp.Body.Close()
						answered <- resp.StatusCode
					}()
				} else {
					c := g.dial()
					conn = c
					go func() {
						status, _ := get(c)
						answered <- status
					}()
				}
				if c.end != nil {
					testkit.Eventually(t, "the request is delayed", func() bool { return delayed(t) == 1 })
					c.end(g, conn)
				}
				got := <-answered
				if r := g.reasonsLogged(1); got != c.status || r[0] != c.reason {
					t.Errorf("got %d, logged %q; want %d, %s", got, r, c.status, c.reason)
				}
				if took := time.Since(begun); c.status != 0 && took < 300*time.Millisecond {
					t.Errorf("it took %v", took)
				}
				if n := asked.Load(); (n == 1) != (c.reason == "ok") {
					t.Errorf("the backend was asked %d times", n)
				}
				if line := g.log.String(); !strings.Contains(line, `"injected_delay_ms":`) {
					t.Errorf("logged %s", line)
				}
			})
		}
	}
}

// delayed counts the goroutines of a test's requests that are delayed.
func delayed(t *testing.T) int {
	return strings.Count(fmt.Sprint(stacksOf(t)), "exchange.(*Exchange).injectFault")
}

// stacksOf are the stacks of all goroutines of a test, one for each.
func stacksOf(t *testing.T) (stacks []string) {
	var profile strings.Builder
	pprof.Lookup("goroutine").WriteTo(&profile, 1)
	_, text, _ := strings.Cut(profile.String(), "\n") // behind the total
	for stack := range strings.SplitSeq(text, "\n\n") {
		if strings.Contains(stack, fmt.Sprintf("%q:\"%s ", testLabel, t.Name())) {
			n := 0
			fmt.Sscanf(stack, "%d @", &n)
			for range n {
				stacks = append(stacks, stack)
			}
		}
	}
	return stacks
}

// TestFaultDelayHoldsOneGoroutine: a delayed request holds no goroutine but that on which it waits.
func TestFaultDelayHoldsOneGoroutine(t *testing.T) {
	checkLeaks(t)
	g := startGateway(t, Timeouts{})
	g.serve(refusedAddr(t), withFault(&config.FaultInjection{Delay: &config.FaultDelay{DelayNanos: int64(time.Hour), PerMillion: all}}))
	const requests = 20
	for i := range requests {
		c := g.dial()
		io.WriteString(c, "GET / HTTP/1.1\r\nHost: h\r\n\r\n")
		testkit.Eventually(t, "the request is delayed", func() bool { return delayed(t) == i+1 })
	}
	held := slices.DeleteFunc(stacksOf(t), func(stack string) bool {
		return !strings.Contains(stack, "proxy/client.(*Conn)") && !strings.Contains(stack, "proxy/exchange.")
	})
	if len(held) > requests {
		t.Errorf("%d requests hold %d goroutines\n%s", requests, len(held), strings.Join(held, "\n"))
	}
}
