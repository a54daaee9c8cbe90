package snapshot

import (
	"testing"

	"github.com/moongate-dev/moongate/internal/config"
)

// TestBandwidthOfRefusedRoute: a route that is refused leaves the rates in force that the one before has, and one that is accepted changes them, of what is under way too.
func TestBandwidthOfRefusedRoute(t *testing.T) {
	p := newCompiler(t)
	route := func(rate uint64, ref *config.BackendRef) (*Route, error) {
		return p.Route(routeOf(
			&config.Rule{BackendRefs: []*config.BackendRef{{Backend: known, Weight: 1}},
				Traffic: &config.RuleTraffic{Policy: "BackendTrafficPolicy default/p", BandwidthLimit: &config.BandwidthLimit{RequestBytesPerSecond: rate, ResponseBytesPerSecond: rate}}},
			&config.Rule{Index: 1, BackendRefs: []*config.BackendRef{ref}}))
	}
	fine := &config.BackendRef{Backend: known, Weight: 1}
	before, err := route(10_000, fine)
	if err != nil {
		t.Fatal(err)
	}
	defer before.Release()
	parts := func(want int) {
		t.Helper()
		b := before.rules[0].Bandwidth
		if got, up := b.Response.Part(), b.Request.Part(); got != want || up != want {
			t.Errorf("parts have %d and %d bytes, want %d", got, up, want)
		}
	}
	parts(200)
	if _, err := route(20_000, &config.BackendRef{Backend: "another", Weight: 1}); err == nil {
		t.Fatal("a route to a backend that is not configured is accepted")
	}
	parts(200)
	after, err := route(30_000, fine)
	if err != nil {
		t.Fatal(err)
	}
	defer after.Release()
	parts(600)
}
