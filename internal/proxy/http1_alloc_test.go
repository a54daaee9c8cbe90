//go:build !race

// Without the race detector: it empties pools at random.

package proxy

import (
	"strings"
	"testing"

	"github.com/moongate-dev/moongate/internal/accesslog"
	"github.com/moongate-dev/moongate/internal/config"
)

// TestRequestAllocatesNothing sends requests through sockets, matching, filters, counters and the
// access log, and counts every allocation of the process.
func TestRequestAllocatesNothing(t *testing.T) {
	for _, tc := range []struct {
		name       string
		method     string
		body, resp int
		rule       func(*config.Rule)
		lines      accesslog.Options
	}{
		{name: "GET 1 KiB", method: "GET", resp: 1 << 10},
		{name: "GET 64 KiB", method: "GET", resp: 64 << 10},
		{name: "POST 16 KiB", method: "POST", body: 16 << 10, resp: 1 << 10},
		{name: "admission control", method: "GET", resp: 1 << 10, rule: withAdmission(nil)},
		{name: "faults that are not drawn", method: "GET", resp: 1 << 10, rule: withFault(&config.FaultInjection{Delay: &config.FaultDelay{DelayNanos: 1}, Abort: &config.FaultAbort{HttpStatus: 503}})},
		{name: "request buffer", method: "POST", body: 16 << 10, resp: 1 << 10, rule: withBuffer(16 << 10)},
		{name: "response overrides that do not match", method: "GET", resp: 1 << 10, rule: overriding(&config.ResponseOverride{Statuses: statuses(500, 599), StatusCode: 200})},
		{name: "response override", method: "GET", resp: 1 << 10, rule: overriding(&config.ResponseOverride{Statuses: statuses(200, 200), ContentType: "text/html",
			Body: new(strings.Repeat("b", 1<<10)), Header: &config.ResponseHeaderModifier{Set: []*config.HeaderField{{Name: "X-Set", Value: "1"}}}})},
		{name: "telemetry", method: "GET", resp: 1 << 10, rule: func(r *config.Rule) {
			r.Traffic = &config.RuleTraffic{RouteStatName: "name", Tracing: &config.RuleTracing{Sampling: &config.Share{Numerator: 1, Denominator: 2}}}
		}},
		{name: "logged headers", method: "GET", resp: 1 << 10, lines: accesslog.Options{Redact: []string{"id"}, Members: []string{"all", "request_header.accept", "response_header.etag"}}},
		{name: "filters", method: "GET", resp: 1 << 10, rule: headerFilters(t)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			g := startLoggingGateway(t, Options{}, tc.lines)
			g.serve(cannedBackend(t, cannedResponse(tc.resp), tc.body), tc.rule)
			c := g.dial()
			request, buf := cannedRequest(tc.method, tc.body), make([]byte, 256<<10)
			size := responseSize(t, c, request, buf, tc.resp)
			for range 100 { // grow what grows once
				roundTrip(t, c, request, buf, size)
			}
			// The access log's writer and the sweeper run beside; what they do is no multiple of requests.
			if got := testing.AllocsPerRun(1000, func() { roundTrip(t, c, request, buf, size) }); got != 0 {
				t.Errorf("%v allocations per request, want 0", got)
			}
		})
	}
}

// TestCompressionAllocatesNothing: so it is with a response that is compressed, one that might be, and one that is not fit.
func TestCompressionAllocatesNothing(t *testing.T) {
	for _, accept := range []string{"", "identity", "gzip", "br", "zstd"} {
		t.Run(accept, func(t *testing.T) {
			g := startGateway(t, Timeouts{})
			g.serve(cannedBackend(t, cannedResponse(16<<10), 0), withCompression("gzip", "br", "zstd"))
			c := g.dial()
			request, buf := []byte("GET / HTTP/1.1\r\nHost: h\r\nAccept-Encoding: "+accept+"\r\n\r\n"), make([]byte, 64<<10)
			size := encodedSize(t, c, request, buf)
			for range 100 {
				roundTrip(t, c, request, buf, size)
			}
			if got := testing.AllocsPerRun(1000, func() { roundTrip(t, c, request, buf, size) }); got != 0 {
				t.Errorf("%v allocations per request, want 0", got)
			}
		})
	}
}
