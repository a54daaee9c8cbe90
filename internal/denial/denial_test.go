package denial

import (
	"net/netip"
	"testing"
)

func TestAddresses(t *testing.T) {
	for _, c := range []struct {
		address    string
		host, name bool // whether it is refused of an EndpointSlice, and of a name
	}{
		{"192.0.2.1", false, false},
		{"2001:db8::1", false, false},
		{"::ffff:192.0.2.1", false, false},
		{"64:ff9b::c000:201", false, false}, // 192.0.2.1
		{"10.1.2.3", false, true},
		{"172.31.255.255", false, true},
		{"172.32.0.1", false, false},
		{"192.168.0.1", false, true},
		{"100.64.0.1", false, true},
		{"fd12::1", false, true},
		{"fec0::1", false, true},
		{"::ffff:10.0.0.1", false, true},
		{"64:ff9b::a00:1", false, true}, // 10.0.0.1
		{"34.118.224.10", false, true},
		{"34.118.240.1", false, false},
		{"192.0.0.170", false, true},
		{"198.19.0.1", false, true},
		{"240.0.0.1", false, true},
		{"64:ff9b:1::a00:1", false, true},
		{"2002:c000:201::1", false, true},
		{"2002:7f00:1::1", true, true}, // 127.0.0.1 behind 6to4
		{"127.0.0.1", true, true},
		{"127.8.9.10", true, true},
		{"::1", true, true},
		{"::ffff:127.0.0.1", true, true},
		{"64:ff9b::7f00:1", true, true},
		{"0.0.0.0", true, true},
		{"0.1.2.3", true, true},
		{"::", true, true},
		{"169.254.169.254", true, true},
		{"64:ff9b::a9fe:a9fe", true, true},
		{"fe80::1", true, true},
		{"fe80::1%eth0", true, true},
		{"2001:db8::1%eth0", true, true},
		{"168.63.129.16", true, true},
		{"fd00:ec2::254", true, true},
		{"224.0.0.1", true, true},
		{"ff02::1", true, true},
		{"255.255.255.255", true, true},
	} {
		ip := netip.MustParseAddr(c.address)
		if why := OfHost(ip, false); (why != "") != c.host {
			t.Errorf("%s: %q", c.address, why)
		}
		if why := OfName(ip); (why != "") != c.name {
			t.Errorf("%s of a name: %q", c.address, why)
		}
	}
	if OfHost(netip.Addr{}, true) == "" || OfName(netip.Addr{}) == "" {
		t.Error("no address is good")
	}
	for _, loopback := range []string{"127.0.0.1", "::1", "64:ff9b::7f00:1"} {
		if why := OfHost(netip.MustParseAddr(loopback), true); why != "" {
			t.Errorf("%s where loopback is good: %s", loopback, why)
		}
	}
}

func TestWithin(t *testing.T) {
	p := netip.MustParsePrefix("192.0.2.0/24")
	for address, want := range map[string]bool{"192.0.2.9": true, "::ffff:192.0.2.9": true, "64:ff9b::c000:209": true, "192.0.3.9": false, "2001:db8::1": false} {
		if Within(netip.MustParseAddr(address), p) != want {
			t.Errorf("%s within %s: want %v", address, p, want)
		}
	}
	if !Within(netip.MustParseAddr("2001:db8::1%eth0"), netip.MustParsePrefix("2001:db8::/32")) {
		t.Error("a zone takes an address out of a range")
	}
}
