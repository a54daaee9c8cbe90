package snapshot

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

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

	// How long clients may keep the proxy waiting, as client.Timeouts has it, and how many connections there may be at a time; 0 is the default.
	Idle, Head, BodyIdle time.Duration
	Max                  int64
}

// ConnectionsOf returns what a listener expects of the connections of its port, which trusts those proxies.
func ConnectionsOf(c *config.Connections, trusted Networks) Connections {
	out := Connections{
		Idle:     time.Duration(c.GetIdleTimeoutNanos()),
		Head:     time.Duration(c.GetRequestHeadTimeoutNanos()),
		BodyIdle: time.Duration(c.GetRequestBodyIdleTimeoutNanos()),
		Max:      int64(c.GetMaxConnections()),
	}
	if c.GetProxyProtocol() {
		out.ProxyProtocol, out.Trusted = true, trusted
	}
	return out
}

// BeginAlike reports whether connections begin in the same way with both.
func (c *Connections) BeginAlike(o *Connections) bool {
	return c.ProxyProtocol == o.ProxyProtocol && slices.Equal(c.Trusted, o.Trusted)
}

// Tighten takes the lower of the bounds of both.
func (c *Connections) Tighten(o *Connections) {
	c.Idle, c.Head, c.BodyIdle, c.Max = lower(c.Idle, o.Idle), lower(c.Head, o.Head), lower(c.BodyIdle, o.BodyIdle), lower(c.Max, o.Max)
}

// lower returns the lower one of two bounds, of which 0 is none.
func lower[T int64 | time.Duration](a, b T) T {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}
