//go:build !race

// Without the race detector: it empties pools at random.

package proxy

import "testing"

// TestRequestBesideUpgradesAllocatesNothing: a request that wants no other protocol pays nothing for the list of its rule.
func TestRequestBesideUpgradesAllocatesNothing(t *testing.T) {
	g := startGateway(t, Timeouts{})
	g.serve(cannedBackend(t, cannedResponse(1<<10), 0), switchingTo(toWebSocket, toSPDY, connectHere))
	c := g.dial()
	request, buf := cannedRequest("GET", 0), make([]byte, 256<<10)
	size := responseSize(t, c, request, buf, 1<<10)
	for range 100 { // grow what grows once
		roundTrip(t, c, request, buf, size)
	}
	if got := testing.AllocsPerRun(1000, func() { roundTrip(t, c, request, buf, size) }); got != 0 {
		t.Errorf("%v allocations per request, want 0", got)
	}
}
