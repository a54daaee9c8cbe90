package exchange

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/moongate-dev/moongate/internal/proxy/snapshot"
)

func trusted(t testing.TB, ranges ...string) snapshot.Networks {
	t.Helper()
	n, err := snapshot.ParseNetworks(ranges)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// TestForwardedClient: the client is the last one that is not a trusted proxy, in whatever form the addresses are.
func TestForwardedClient(t *testing.T) {
	proxies := trusted(t, "10.0.0.0/8", "2001:db8:1::/48")
	for list, want := range map[string]string{
		"":                   "",
		",, ,":               "",
		"192.0.2.1":          "192.0.2.1:0",
		"192.0.2.1, ":        "192.0.2.1:0",
		"6.6.6.6, 192.0.2.1": "192.0.2.1:0",
		"6.6.6.6,192.0.2.1\t,\t10.0.0.1,10.2.2.2": "192.0.2.1:0",
		"10.0.0.1, 10.0.0.2":                      "10.0.0.1:0",
		"192.0.2.1:81, 10.0.0.1:80":               "192.0.2.1:81",
		"[2001:db8::1]:81, 10.0.0.1":              "[2001:db8::1]:81",
		"[2001:db8::1], 2001:db8:1::1":            "[2001:db8::1]:0",
		"2001:db8::1, [2001:db8:1::1]:1":          "[2001:db8::1]:0",
		"::ffff:192.0.2.1, ::ffff:10.0.0.1":       "192.0.2.1:0",
		"unknown":                                 "",
		"192.0.2.1, unknown":                      "",
		"192.0.2.1, unknown, 10.0.0.1":            "10.0.0.1:0",
		"192.0.2.1 192.0.2.2":                     "",
		"fe80::1%eth0":                            "",
		"[192.0.2.1":                              "",
		"192.0.2.256":                             "",
		strings.Repeat("1", 48):                   "",
		"192.0.2.1" + strings.Repeat(", 10.0.0.1", maxForwarded-1): "192.0.2.1:0",
		"192.0.2.1" + strings.Repeat(", 10.0.0.1", maxForwarded):   "10.0.0.1:0",
	} {
		got, ok := forwardedClient([]byte(list), proxies)
		if wanted, _ := netip.ParseAddrPort(want); got != wanted || ok != (want != "") {
			t.Errorf("%q: %v, %v, want %s", list, got, ok, want)
		}
	}
}

// FuzzForwardedClient: whatever a list has, the client is not one that a trusted proxy has put another behind.
func FuzzForwardedClient(f *testing.F) {
	for _, s := range []string{"", "192.0.2.1", "a, [::1]:80, 10.0.0.1", ",", "10.0.0.1,10.0.0.1"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, list string) {
		proxies := trusted(t, "10.0.0.0/8")
		client, ok := forwardedClient([]byte(list), proxies)
		if ok != client.IsValid() || ok && (client.Addr().Is4In6() || client.Addr().Zone() != "") {
			t.Fatalf("%v, %v", client, ok)
		}
		for _, proxy := range []string{"192.0.2.1", "192.0.2.1, 10.1.1.1"} {
			if got, _ := forwardedClient([]byte(list+", "+proxy), proxies); got != netip.MustParseAddrPort("192.0.2.1:0") {
				t.Fatalf("behind it %s: %v", proxy, got)
			}
		}
	})
}
