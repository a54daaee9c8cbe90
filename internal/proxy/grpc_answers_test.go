package proxy

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
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

// TestGRPCAnswers has gRPC's own client see what the gateway answers itself.
func TestGRPCAnswers(t *testing.T) {
	checkLeaks(t)
	g := startGateway(t, Timeouts{})
	cc := g.grpcPair()
	backendKey := "Service/default/b/80"
	ready := func(change func(*config.Rule), more ...*config.Resource) {
		rule := &config.Rule{Matches: []*config.Match{{Path: &config.PathMatch{Type: config.PathMatchType_PATH_MATCH_TYPE_PREFIX}}},
			BackendRefs: []*config.BackendRef{{Backend: backendKey, Weight: 1}}}
		if change != nil {
			change(rule)
		}
		g.apply(append(more, routeOf("r", "default/gw/http", "", rule)))
	}
	ctx, cancel := context.WithTimeout(t.Context(), testkit.Patience)
	defer cancel()
	for _, c := range []struct {
		name    string
		prepare func()
		code    codes.Code
		message string
	}{
		{"a timeout of the rule", func() { ready(func(r *config.Rule) { r.RequestTimeoutNanos = int64(50 * time.Millisecond) }) },
			codes.DeadlineExceeded, "moongate: 504 request_timeout"},
		{"a timeout of the backend", func() { ready(func(r *config.Rule) { r.BackendRequestTimeoutNanos = int64(50 * time.Millisecond) }) },
			codes.DeadlineExceeded, "moongate: 504 backend_timeout"},
		{"no backend", func() { ready(func(r *config.Rule) { r.BackendRefs = nil }) }, codes.Unknown, "moongate: 500 no_backend"},
		{"nobody listens", func() { ready(nil, backend(backendKey, "127.0.0.1:1")[1]) }, codes.Unavailable, "moongate: 502 connect_failed"},
		{"no endpoint", func() { ready(nil, backend(backendKey)[1]) }, codes.Unavailable, "moongate: 503 no_endpoints"},
		{"no route", func() {
			g.apply(nil, config.ID{Kind: config.KindRoute, Key: "HTTPRoute/default/r"})
		}, codes.Unimplemented, "moongate: 404 route_not_found"},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.prepare()
			s, err := cc.NewStream(ctx, &grpcEcho.Streams[1], "/test.Echo/Sleep", grpc.WaitForReady(true))
			if err != nil {
				t.Fatal(err)
			}
			s.SendMsg(&emptypb.Empty{}) // may come too late
			if err := s.RecvMsg(&emptypb.Empty{}); status.Code(err) != c.code || status.Convert(err).Message() != c.message {
				t.Errorf("%v, want %v %q", err, c.code, c.message)
			}
		})
	}
}

// TestGRPCTimeout: a call ends when the time is over that it gives itself, though its client waits on; so it does where the backend has
// begun to answer. A request that is no gRPC call may wait.
func TestGRPCTimeout(t *testing.T) {
	checkLeaks(t)
	for _, c := range []struct {
		name, contentType, timeout string
		begun                      bool // the backend sends a part of its response
		status                     string
		reason                     string
	}{
		{"before the response", "application/grpc", "50m", false, "4", "grpc_timeout"},
		{"within the response", "application/grpc+proto", "1u", true, "", "grpc_timeout"},
		{"no gRPC call", "application/json", "50m", false, "", "ok"},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := startGateway(t, Timeouts{})
			addr, _ := h2cBackend(t, 0, func(w http.ResponseWriter, r *http.Request) {
				if c.reason == "ok" {
					time.Sleep(1100 * time.Millisecond) // longer than the field can say
					return
				}
				if c.begun {
					w.Write([]byte("begun"))
					w.(http.Flusher).Flush()
				}
				<-r.Context().Done()
			})
			g.serveH2C(addr, nil)
			cc := g.http2Client("")
			r, err := http.NewRequestWithContext(t.Context(), "POST", "http://"+g.addr()+"/s/m", bytes.NewReader(make([]byte, 5)))
			if err != nil {
				t.Fatal(err)
			}
			r.Header = http.Header{"Content-Type": {c.contentType}, "Te": {"trailers"}, "Grpc-Timeout": {c.timeout}}
			begin := time.Now()
			resp, err := cc.RoundTrip(r)
			if err != nil {
				t.Fatal(err)
			}
			body, err := io.ReadAll(resp.Body)
			if took := time.Since(begin); took < time.Second {
				t.Errorf("the call has ended after %v: clients could have backends' requests cut off at any rate", took)
			}
			if resp.StatusCode != 200 || resp.Header.Get("Grpc-Status") != c.status || (err != nil) != c.begun {
				t.Errorf("%s, %v, body %q %v", resp.Status, resp.Header, body, err)
			}
			if c.status != "" && (!strings.HasPrefix(resp.Header.Get("Content-Type"), "application/grpc") || len(body) > 0) {
				t.Errorf("%v with %q", resp.Header, body)
			}
			if words := g.reasonsLogged(1); words[0] != c.reason {
				t.Errorf("logged as %s, want %s", words[0], c.reason)
			}
		})
	}
}

// TestGRPCGivenUpByBackend: a backend that keeps the time of a call may be the first to notice that it is over, and resets the stream. That is no fault of
// its own, and the client is told what it would have found itself a moment later.
func TestGRPCGivenUpByBackend(t *testing.T) {
	checkLeaks(t)
	for _, c := range []struct {
		name, timeout string
		begun         bool
		code          http2.ErrCode
		status        string
		reset         http2.ErrCode // of the stream to the client, where there is no status
		reason        string
	}{
		{"its time is over", "1m", false, http2.ErrCodeCancel, "4", 0, "grpc_timeout"},
		{"its time is over, within the response", "1m", true, http2.ErrCodeCancel, "", http2.ErrCodeCancel, "grpc_timeout"},
		{"it has time left", "1H", false, http2.ErrCodeCancel, "14", 0, "upstream_reset"},
		{"it has time left, within the response", "1H", true, http2.ErrCodeCancel, "", http2.ErrCodeInternal, "upstream_truncated"},
		{"another fault", "1m", false, http2.ErrCodeInternal, "14", 0, "upstream_reset"},
		{"no time", "", false, http2.ErrCodeCancel, "14", 0, "upstream_reset"},
	} {
		t.Run(c.name, func(t *testing.T) {
			seen := make(chan struct{})
			addr := rawFrames(t, nil, func(f *framePeer) {
				f.serve(func(stream uint32) bool {
					time.Sleep(5 * time.Millisecond)
					if c.begun {
						f.head(stream, false, ":status", "200", "content-type", "application/grpc")
						<-seen
					}
					f.WriteRSTStream(stream, c.code)
					return false
				}, nil)
			})
			g := startGateway(t, Timeouts{})
			g.serveH2C(addr, nil)
			cc := g.http2Client("")
			r, err := http.NewRequestWithContext(t.Context(), "POST", "http://"+g.addr()+"/s/m", bytes.NewReader(make([]byte, 5)))
			if err != nil {
				t.Fatal(err)
			}
			r.Header = http.Header{"Content-Type": {"application/grpc"}, "Te": {"trailers"}}
			if c.timeout != "" {
				r.Header.Set("Grpc-Timeout", c.timeout)
			}
			resp, err := cc.RoundTrip(r)
			if err != nil {
				t.Fatal(err)
			}
			close(seen)
			_, err = io.ReadAll(resp.Body)
			var reset http2.StreamError
			if errors.As(err, &reset); reset.Code != c.reset {
				t.Errorf("the response ended with %v, want %v", err, c.reset)
			}
			if got := resp.Header.Get("Grpc-Status"); got != c.status {
				t.Errorf("status %q, want %q", got, c.status)
			}
			if words := g.reasonsLogged(1); words[0] != c.reason {
				t.Errorf("logged as %s, want %s", words[0], c.reason)
			}
		})
	}
}
