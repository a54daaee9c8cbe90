//go:build !race

// Without the race detector: it empties pools at random.

package proxy

import (
	"testing"

	"github.com/moongate-dev/moongate/internal/config"
)

// TestBalancedRequestAllocatesNothing is TestRequestAllocatesNothing with load balancers that look at the request.
func TestBalancedRequestAllocatesNothing(t *testing.T) {
	for name, l := range map[string]*config.LoadBalancer{
		"header":      hashBy(&config.ConsistentHash{Headers: []string{"user-agent"}}),
		"query":       hashBy(&config.ConsistentHash{QueryParams: []string{"id"}}),
		"source":      hashBy(&config.ConsistentHash{SourceIp: true}),
		"cookie":      hashBy(&config.ConsistentHash{Cookie: &config.HashCookie{Name: "c"}}),
		"new cookie":  hashBy(&config.ConsistentHash{Cookie: &config.HashCookie{Name: "new"}}),
		"override":    {Type: config.LoadBalancing_LOAD_BALANCING_ROUND_ROBIN, EndpointOverrideHeaders: []string{"x-endpoint"}},
		"utilization": {Type: config.LoadBalancing_LOAD_BALANCING_BACKEND_UTILIZATION, BackendUtilization: &config.BackendUtilization{}},
	} {
		t.Run(name, func(t *testing.T) {
			g := startGateway(t, Timeouts{})
			g.balanced(l, nil, cannedBackend(t, cannedResponse(1<<10), 0))
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
