package proxyprotocol

import (
	"net/netip"
	"testing"
)

// TestAppend: what is written is what the protocol's text has, and is read as what it says.
func TestAppend(t *testing.T) {
	for _, c := range []struct {
		client, listener string
		v1               string
		read             string // by whoever gets it; "" is nobody
	}{
		{"192.0.2.1:1234", "198.51.100.2:80", "PROXY TCP4 192.0.2.1 198.51.100.2 1234 80\r\n", "192.0.2.1:1234"},
		{"192.0.2.1:0", "198.51.100.2:65535", "PROXY TCP4 192.0.2.1 198.51.100.2 0 65535\r\n", "192.0.2.1:0"},
		{"[2001:db8::1]:1", "[2001:db8::2]:443", "PROXY TCP6 2001:db8::1 2001:db8::2 1 443\r\n", "[2001:db8::1]:1"},
		{"[::ffff:192.0.2.1]:5", "198.51.100.2:80", "PROXY TCP4 192.0.2.1 198.51.100.2 5 80\r\n", "192.0.2.1:5"},
		{"192.0.2.1:5", "[2001:db8::2]:443", "PROXY TCP6 ::ffff:192.0.2.1 2001:db8::2 5 443\r\n", "192.0.2.1:5"},
		{"[fe80::1%eth0]:5", "[2001:db8::2]:443", "PROXY TCP6 fe80::1 2001:db8::2 5 443\r\n", "[fe80::1]:5"},
		{"192.0.2.1:5", "", "PROXY TCP4 192.0.2.1 0.0.0.0 5 0\r\n", "192.0.2.1:5"},
		{"[2001:db8::1]:5", "", "PROXY TCP6 2001:db8::1 :: 5 0\r\n", "[2001:db8::1]:5"},
		{"", "198.51.100.2:80", "PROXY UNKNOWN\r\n", ""},
		{"", "", "PROXY UNKNOWN\r\n", ""},
	} {
		parse := func(s string) (a netip.AddrPort) {
			if s != "" {
				a = netip.MustParseAddrPort(s)
			}
			return a
		}
		for _, v := range []Version{V1, V2} {
			got := Append([]byte("x"), v, parse(c.client), parse(c.listener))[1:]
			if v == V1 && string(got) != c.v1 {
				t.Errorf("%s to %s: %q, want %q", c.client, c.listener, got, c.v1)
			}
			a, n, err := Parse(got)
			if err != nil || n != len(got) || a.Client != parse(c.read) {
				t.Errorf("%s to %s, version %d: read as %v, %d of %d bytes, %v", c.client, c.listener, v, a, n, len(got), err)
			}
			if c.read != "" && c.listener != "" && a.Destination != parse(c.listener) {
				t.Errorf("%s to %s, version %d: the destination is read as %v", c.client, c.listener, v, a.Destination)
			}
		}
	}
}
