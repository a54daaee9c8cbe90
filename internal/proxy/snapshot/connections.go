package snapshot

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/moongate-dev/moongate/internal/config"
)

// Networks is a set of IP addresses, as ranges of them. The zero value is empty.
type Networks []netip.Prefix

// ParseNetworks reads ranges such as "192.0.2.0/24".
func ParseNetworks(ranges []string) (Networks, error) {
	n := make(Networks, len(ranges))
	for i, r := range ranges {
		p, err := netip.ParsePrefix(r)
		if err != nil {
			return nil, fmt.Errorf("%q is not a range of IP addresses", r)
		}
		n[i] = p
	}
	return n, nil
}

// Contains reports whether an address, which is not one of IPv4 in the form of IPv6 and has no zone, is in one of the ranges.
func (n Networks) Contains(a netip.Addr) bool {
	for _, p := range n {
		if p.Contains(a) {
			return true
		}
	}
	return false
}

// Connections is what a port expects of its connections. The zero value expects nothing.
type Connections struct {
	// ProxyProtocol: each begins with a PROXY header, and comes from one of Trusted.
	ProxyProtocol bool
	Trusted       Networks // where ProxyProtocol is set
}

// ConnectionsOf returns what a listener expects of the connections of its port, which trusts those proxies.
func ConnectionsOf(c *config.Connections, trusted Networks) Connections {
	if !c.GetProxyProtocol() {
		return Connections{}
	}
	return Connections{ProxyProtocol: true, Trusted: trusted}
}

// Equal reports whether both expect the same.
func (c *Connections) Equal(o *Connections) bool {
	return c.ProxyProtocol == o.ProxyProtocol && slices.Equal(c.Trusted, o.Trusted)
}
