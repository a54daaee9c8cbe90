package parameters

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/moongate-dev/moongate/api/v1alpha1"
)

// Clients is what parameters say of the clients of Gateways, in a form in which the same is equal.
type Clients struct {
	TrustedProxies []string // ranges of IP addresses, sorted, distinct
	Ports          []v1alpha1.Port
}

// ClientsOf returns what parameters say of clients. What cannot be used of it is left out, so that a mistake in one place neither opens nor closes another.
func ClientsOf(s *v1alpha1.GatewayParametersSpec) Clients {
	var c Clients
	for _, r := range s.TrustedProxies {
		if p, err := netip.ParsePrefix(r); err == nil && !p.Addr().Is4In6() {
			c.TrustedProxies = append(c.TrustedProxies, p.Masked().String())
		}
	}
	slices.Sort(c.TrustedProxies)
	c.TrustedProxies = slices.Compact(c.TrustedProxies)
	for i, p := range s.Ports {
		if !isPort(p.Port) || indexOfPort(s.Ports, p.Port) < i {
			continue
		}
		c.Ports = append(c.Ports, p)
	}
	return c
}

// IsOfClients reports whether a field of parameters is in Clients.
func IsOfClients(field string) bool { return field == "spec.trustedProxies" || field == "spec.ports" }

// Port returns what is said of a port.
func (c *Clients) Port(number int32) v1alpha1.Port {
	if i := indexOfPort(c.Ports, number); i >= 0 {
		return c.Ports[i]
	}
	return v1alpha1.Port{Port: number}
}

// Closed are the ports that expect PROXY headers that nobody is trusted to send.
func (c *Clients) Closed() (ports []int32) {
	for _, p := range c.Ports {
		if p.ProxyProtocol && len(c.TrustedProxies) == 0 {
			ports = append(ports, p.Port)
		}
	}
	return ports
}

func isPort(n int32) bool { return n >= 1 && n <= 65535 }

// indexOfPort returns the first of that number, -1 for none.
func indexOfPort(ports []v1alpha1.Port, number int32) int {
	return slices.IndexFunc(ports, func(p v1alpha1.Port) bool { return p.Port == number })
}

func (c *checker) ports(ports []v1alpha1.Port) {
	for i, p := range ports {
		field := fmt.Sprintf("spec.ports[%d]", i)
		c.bounded(field+".port", p.Port, 1, 65535)
		if indexOfPort(ports, p.Port) < i {
			c.add(field+".port", "say all of a port in one place", "port %d is named before", p.Port)
		}
	}
}
