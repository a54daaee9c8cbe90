package exchange

import (
	"testing"
	"time"

	"github.com/moongate-dev/moongate/internal/observe"
)

func TestParseGRPCTimeout(t *testing.T) {
	for value, want := range map[string]time.Duration{
		"1H": time.Hour, "2M": 2 * time.Minute, "3S": 3 * time.Second, "100m": 100 * time.Millisecond, "7u": 7 * time.Microsecond,
		"99999999n": 99999999, "0m": 0, "00000001S": time.Second, "99999999S": 99999999 * time.Second,
	} {
		if d, ok := parseGRPCTimeout([]byte(value)); !ok || d != want {
			t.Errorf("%q: %v %v, want %v", value, d, ok, want)
		}
	}
	for _, value := range []string{"", "S", "1", "1s", "-1S", "1.5S", " 1S", "1S ", "000000001S", "99999999H"} { // the last is longer than any Duration
		if d, ok := parseGRPCTimeout([]byte(value)); ok {
			t.Errorf("%q is read as %v", value, d)
		}
	}
}

func FuzzParseGRPCTimeout(f *testing.F) {
	for _, seed := range []string{"1H", "99999999M", "12345678n", "x", ""} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, value []byte) {
		if d, ok := parseGRPCTimeout(value); d < 0 || !ok && d != 0 || ok && len(value) > 9 {
			t.Errorf("%q: %v %v", value, d, ok)
		}
	})
}

func TestIsGRPC(t *testing.T) {
	type request struct {
		method, protocol, contentType string
		trailers                      bool
	}
	good := request{"POST", "HTTP/2.0", "application/grpc", true}
	for _, c := range []struct {
		change func(*request)
		want   bool
	}{
		{func(*request) {}, true},
		{func(r *request) { r.contentType = "application/grpc+proto" }, true},
		{func(r *request) { r.contentType = "application/grpc;charset=utf-8" }, true},
		{func(r *request) { r.contentType = "application/grpc-web" }, false},
		{func(r *request) { r.contentType = "application/json" }, false},
		{func(r *request) { r.contentType = "" }, false},
		{func(r *request) { r.method = "GET" }, false},
		{func(r *request) { r.protocol = "HTTP/1.1" }, false},
		{func(r *request) { r.trailers = false }, false},
	} {
		r := good
		c.change(&r)
		x := New()
		x.Client = &Client{Protocol: r.protocol}
		x.Method, x.TETrailers = []byte(r.method), r.trailers
		if r.contentType != "" {
			x.Header.Add([]byte("Content-Type"), []byte(r.contentType))
		}
		if got := x.isGRPC(); got != c.want {
			t.Errorf("%+v: %v", r, got)
		}
	}
}

// TestGRPCCodes holds each failure that clients are told of against what its status means by gRPC's table, and what it is for gRPC.
func TestGRPCCodes(t *testing.T) {
	for reason, want := range map[observe.Reason]int{
		observe.ReasonRouteNotFound: grpcUnimplemented, observe.ReasonBadRequestBody: grpcInternal,
		observe.ReasonConnectFailed: grpcUnavailable, observe.ReasonConnectTimeout: grpcUnavailable, observe.ReasonNoEndpoints: grpcUnavailable,
		observe.ReasonOverloaded: grpcUnavailable, observe.ReasonRetryBudgetExhausted: grpcUnavailable, observe.ReasonUpstreamReset: grpcUnavailable, observe.ReasonShuttingDown: grpcUnavailable,
		observe.ReasonRequestTimeout: grpcDeadlineExceeded, observe.ReasonBackendTimeout: grpcDeadlineExceeded, observe.ReasonGRPCTimeout: grpcDeadlineExceeded,
		observe.ReasonInternal: grpcUnknown, observe.ReasonMatchLimit: grpcUnknown,
	} {
		if got := grpcCode(reason.Status(), reason); got != want {
			t.Errorf("%v: %d, want %d", reason, got, want)
		}
	}
	for status, want := range map[int]int{401: grpcUnauthenticated, 403: grpcPermissionDenied, 429: grpcUnavailable} {
		if got := grpcCode(status, observe.ReasonOK); got != want {
			t.Errorf("%d: %d, want %d", status, got, want)
		}
	}
}
