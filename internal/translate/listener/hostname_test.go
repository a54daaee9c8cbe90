package listener

import (
	"slices"
	"testing"

	gwv1 "sigs.k8s.io/gateway-api/apis/v1"
)

// overlaps reports whether both have a host in common.
func overlaps(a, b string) bool { return covers(a, b) || covers(b, a) }

// TestHostnameKeys: a route finds exactly the listeners that have hosts in common with it.
func TestHostnameKeys(t *testing.T) {
	hostnames := []string{"", "test", "*.test", "a.test", "b.test", "*.a.test", "x.a.test", "xa.test", "*.b.a.test", "y.b.a.test", "*.y.b.a.test", "org", "*.org"}
	for _, listener := range hostnames {
		keys := HostnameKeys(listener)
		for _, host := range hostnames {
			found := slices.ContainsFunc(MatchingHostnameKeys([]gwv1.Hostname{gwv1.Hostname(host)}), func(key string) bool { return slices.Contains(keys, key) })
			if want := host != "" && overlaps(listener, host); found != want {
				t.Errorf("route %q finds listener %q: %v, want %v", host, listener, found, want)
			}
		}
	}
	if keys := MatchingHostnameKeys([]gwv1.Hostname{"A.test", "*.a.test"}); !slices.Equal(keys, []string{"", "*.a.test", "*.test", ".a.test", "a.test"}) {
		t.Errorf("keys %q", keys)
	}
}
