package exchange

import (
	"net/netip"
	"testing"
)

// TestTunnels: what is known of connections is forgotten with them, and not that of others which have got their addresses.
func TestTunnels(t *testing.T) {
	var all tunnels
	address := func(port uint16) netip.AddrPort {
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), port)
	}
	a, b, c := tunnelled{address(1000), address(1)}, tunnelled{address(2000), address(1)}, tunnelled{address(1000), address(2)}
	first := &pass{listener: "one"}
	second := &pass{"two", first}
	all.add(a, first)
	all.add(b, second)
	if all.get(c).has("one") || all.get(a).has("two") || !all.get(b).has("one") || !all.get(b).has("two") {
		t.Errorf("%+v", all.made)
	}
	all.add(a, second)
	all.remove(a, first)
	if all.get(a) != second {
		t.Error("a connection was forgotten with the one before that had its addresses")
	}
	all.remove(a, second)
	all.remove(b, second)
	all.remove(c, nil)
	if all.made != nil {
		t.Errorf("%+v is left", all.made)
	}
}
