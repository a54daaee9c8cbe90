package snapshot

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/moongate-dev/moongate/internal/config"
)

// Networks is a set of IP addresses, as a list of ranges. The zero value is empty.
type Networks []netip.Prefix

// ParseNetworks parses ranges such as "192.0.2.0/24".
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

// Contains reports whether one of the ranges contains an address, which must have no zone and must not be an
// IPv4-mapped IPv6 address.
func (n Networks) Contains(a netip.Addr) bool {
	for _, p := range n {
		if p.Contains(a) {
			return true
		}
	}
	return false
}

// Connections are the settings of a port for its connections. The zero value means the defaults.
type Connections struct {
	// ProxyProtocol means that each connection begins with a PROXY header and comes from one of Trusted.
	ProxyProtocol bool
	Trusted       Networks // used if ProxyProtocol is set

	// How long clients may make the proxy wait, see client.Timeouts, and how many connections there may be at a time; 0
	// means the default.
	Idle, Head, BodyIdle time.Duration
	Max                  int64
}

// ConnectionsOf returns the settings of a listener for the connections of its port. trusted are its trusted proxies.
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

// BeginAlike reports whether connections begin in the same way with both settings.
func (c *Connections) BeginAlike(o *Connections) bool {
	return c.ProxyProtocol == o.ProxyProtocol && slices.Equal(c.Trusted, o.Trusted)
}

// Tighten sets each limit to the lower one of both settings.
func (c *Connections) Tighten(o *Connections) {
	c.Idle, c.Head, c.BodyIdle, c.Max = lower(c.Idle, o.Idle), lower(c.Head, o.Head), lower(c.BodyIdle, o.BodyIdle), lower(c.Max, o.Max)
}

// lower returns the lower one of two limits, of which 0 means none.
func lower[T int64 | time.Duration](a, b T) T {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}
