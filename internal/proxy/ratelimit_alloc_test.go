//go:build !race

// Without the race detector: it empties pools at random.

package proxy

import (
	"math"
	"testing"

	"github.com/moongate-dev/moongate/internal/config"
)

// TestRateLimitedRequestAllocatesNothing is TestRequestAllocatesNothing with local limits.
func TestRateLimitedRequestAllocatesNothing(t *testing.T) {
	for name, l := range map[string]*config.RateLimit{
		"all":          {},
		"each address": {Sources: []*config.RateLimitSource{{Cidr: "0.0.0.0/0", Distinct: true}}},
		"each value":   {HeaderFields: eachOf("user-agent")},
		"query":        {QueryParams: []*config.RateLimitValue{{Name: "none", Value: "x", Invert: true}}},
	} {
		t.Run(name, func(t *testing.T) {
			l.Requests, l.RequestCost = math.MaxUint32, 1
			g := startGateway(t, Timeouts{})
			g.serve(cannedBackend(t, cannedResponse(1<<10), 0), limited(l))
			c := g.dial()
			request, buf := cannedRequest("GET", 0), make([]byte, 256<<10)
			size := responseSize(t, c, request, buf, 1<<10)
			for range 100 { // grow what grows once
				roundTrip(t, c, request, buf, size)
			}
			if got := testing.AllocsPerRun(1000, func() { roundTrip(t, c, request, buf, size) }); got != 0 {
				t.Errorf("%v allocations per request, want 0", got)
			}
		})
	}
}
