package addresses

import (
	"net/netip"
	"testing"
)

func TestAllocate(t *testing.T) {
	a := &Allocator{
		Range: netip.MustParsePrefix("10.0.0.0/29"), byAddr: map[netip.Addr]string{}, byName: map[string]netip.Addr{},
	}
	for i, step := range []struct{ key, asks, want string }{
		{"a", "", "10.0.0.1"}, {"a", "", "10.0.0.1"}, {"b", "10.0.0.2", "10.0.0.2"}, {"c", "", "10.0.0.3"},
		{"d", "10.0.0.3", ""}, {"d", "10.0.0.8", ""}, {"d", "x", ""},
		{"a", "10.0.0.6", "10.0.0.6"}, // moves, and leaves its first address to others
		{"d", "10.0.0.1", "10.0.0.1"}, {"e", "", "10.0.0.4"}, {"f", "", "10.0.0.5"}, {"g", "", ""},
	} {
		got, err := a.allocate(step.key, step.asks)
		if err == nil && got.String() != step.want || err != nil && step.want != "" {
			t.Errorf("step %d, %s asks %q: %s %v, want %q", i, step.key, step.asks, got, err, step.want)
		}
	}
	a.release("c")
	if got, err := a.allocate("g", ""); err != nil || got.String() != "10.0.0.3" {
		t.Errorf("after a release: %s %v, want 10.0.0.3", got, err)
	}
}
