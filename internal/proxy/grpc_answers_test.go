package proxy

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

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
