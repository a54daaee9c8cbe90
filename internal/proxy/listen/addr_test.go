package listen

import (
	"net/netip"
	"slices"
	"testing"
)

func TestScope(t *testing.T) {
	t.Parallel()
	at := func(ip string, port uint16) Addr {
		if ip == "" {
			return Addr{Port: port}
		}
		return Addr{netip.MustParseAddr(ip), port}
	}
	for _, tc := range []struct {
		a, b     Addr
		overlaps bool
	}{
		{at("", 80), at("", 80), true},
		{at("", 80), at("", 81), false},
		{at("", 80), at("192.0.2.1", 80), true},
		{at("", 80), at("::", 80), true},
		{at("0.0.0.0", 80), at("192.0.2.1", 80), true},
		{at("0.0.0.0", 80), at("::ffff:192.0.2.1", 80), true},
		{at("0.0.0.0", 80), at("2001:db8::1", 80), false},
		{at("0.0.0.0", 80), at("::", 80), false},
		{at("::", 80), at("2001:db8::1", 80), true},
		{at("::", 80), at("192.0.2.1", 80), false},
		{at("192.0.2.1", 80), at("192.0.2.1", 80), true},
		{at("192.0.2.1", 80), at("192.0.2.2", 80), false},
	} {
		if tc.a.Overlaps(tc.b) != tc.overlaps || tc.b.Overlaps(tc.a) != tc.overlaps {
			t.Errorf("%s and %s: want %v", tc.a, tc.b, tc.overlaps)
		}
	}
	if local := netip.MustParseAddr("::ffff:192.0.2.1"); !at("192.0.2.1", 80).Covers(local) || !at("", 80).Covers(netip.Addr{}) || at("192.0.2.1", 80).Covers(netip.Addr{}) {
		t.Error("Covers")
	}
	all := []Addr{at("", 80), at("::", 80), at("0.0.0.0", 80), at("2001:db8::1", 80), at("192.0.2.1", 80)}
	slices.SortFunc(all, CompareScope)
	if want := []Addr{at("192.0.2.1", 80), at("2001:db8::1", 80), at("0.0.0.0", 80), at("::", 80), at("", 80)}; !slices.Equal(all, want) {
		t.Errorf("%v", all)
	}
}
