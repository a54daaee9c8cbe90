package translate

import (
	"testing"

	"github.com/moongate-dev/moongate/internal/kind"
)

// TestRouteKinds keeps every kind of route readable: routeKindOf is asked for all of them.
func TestRouteKinds(t *testing.T) {
	for _, k := range kind.All() {
		if rk := routeKindOf(Kind(k.Name)); (rk != nil) != k.Route() {
			t.Errorf("%s is a route: %v, and listeners take it: %v", k.Name, k.Route(), rk != nil)
		}
	}
}
