//go:build !race

// Without the race detector: it empties pools at random.

package proxy

import (
	"testing"

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
	}{
		{name: "GET 1 KiB", method: "GET", resp: 1 << 10},
		{name: "GET 64 KiB", method: "GET", resp: 64 << 10},
		{name: "POST 16 KiB", method: "POST", body: 16 << 10, resp: 1 << 10},
		{name: "filters", method: "GET", resp: 1 << 10, rule: headerFilters(t)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			g := startGateway(t, Timeouts{})
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
