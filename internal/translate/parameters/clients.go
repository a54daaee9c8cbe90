package parameters

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/moongate-dev/moongate/api/v1alpha1"
)

// Clients are the parameters about clients of Gateways, normalized so that equivalent parameters are equal.
type Clients struct {
	TrustedProxies []string // ranges of IP addresses, sorted, distinct
	Ports          []v1alpha1.Port
	Listeners      []v1alpha1.Listener
}

// ClientsOf returns the parameters about clients. It ignores invalid fields, so that a mistake in one field does not change the
// effect of another.
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
		c.Ports = append(c.Ports, usable(p))
	}
	for i, l := range s.Listeners {
		if indexOfListener(s.Listeners, l.Name) < i {
			continue
		}
		if n := l.MaxRequestBodyBytes; n != nil && *n < 1 {
			l.MaxRequestBodyBytes = nil
		}
		c.Listeners = append(c.Listeners, l)
	}
	return c
}

// usable returns a port without settings that are out of range.
func usable(p v1alpha1.Port) v1alpha1.Port {
	for _, t := range portTimeouts(&p) {
		if *t.value != nil && !validTimeout(**t.value) {
			*t.value = nil
		}
	}
	if p.MaxConnections != nil && *p.MaxConnections < 1 {
		p.MaxConnections = nil
	}
	return p
}

// Limits of timeouts of clients. The sweeper that enforces them has a resolution of a quarter of a second.
const (
	minTimeout = time.Second
	maxTimeout = 24 * time.Hour
)

func validTimeout(d metav1.Duration) bool {
	return d.Duration >= minTimeout && d.Duration <= maxTimeout
}

// portTimeout is a timeout of a port.
type portTimeout struct {
	field string
	value **metav1.Duration
}

func portTimeouts(p *v1alpha1.Port) []portTimeout {
	return []portTimeout{{"idleTimeout", &p.IdleTimeout}, {"requestHeadTimeout", &p.RequestHeadTimeout}, {"requestBodyIdleTimeout", &p.RequestBodyIdleTimeout}}
}

// CountsInFiles reports whether a field of parameters has an effect without a cluster.
func CountsInFiles(field string) bool { return slices.Contains(fieldsOfFiles, field) }

var fieldsOfFiles = []string{"spec.trustedProxies", "spec.ports", "spec.listeners"}

// Port returns the settings of a port.
func (c *Clients) Port(number int32) v1alpha1.Port {
	if i := indexOfPort(c.Ports, number); i >= 0 {
		return c.Ports[i]
	}
	return v1alpha1.Port{Port: number}
}

// everyListener is the name that stands for listeners without their own entry.
const everyListener = "*"

// Listener returns the settings of a listener of a Gateway. For a listener of a ListenerSet the name is ignored.
func (c *Clients) Listener(name string, ofSet bool) v1alpha1.Listener {
	if i := indexOfListener(c.Listeners, name); i >= 0 && !ofSet {
		return c.Listeners[i]
	}
	if i := indexOfListener(c.Listeners, everyListener); i >= 0 {
		return c.Listeners[i]
	}
	return v1alpha1.Listener{Name: name}
}

// Closed returns the ports that require PROXY headers although no address is trusted to send them.
func (c *Clients) Closed() (ports []int32) {
	for _, p := range c.Ports {
		if p.ProxyProtocol && len(c.TrustedProxies) == 0 {
			ports = append(ports, p.Port)
		}
	}
	return ports
}

func isPort(n int32) bool { return n >= 1 && n <= 65535 }

// indexOfPort returns the first index with that number, or -1.
func indexOfPort(ports []v1alpha1.Port, number int32) int {
	return slices.IndexFunc(ports, func(p v1alpha1.Port) bool { return p.Port == number })
}

// indexOfListener returns the first index with that name, or -1.
func indexOfListener(listeners []v1alpha1.Listener, name string) int {
	return slices.IndexFunc(listeners, func(l v1alpha1.Listener) bool { return l.Name == name })
}

func (c *checker) listeners(listeners []v1alpha1.Listener) {
	for i, l := range listeners {
		field := fmt.Sprintf("spec.listeners[%d]", i)
		if l.Name == "" {
			c.add(field+".name", "name a listener, or * for all that have no entry", "it is empty")
		} else if indexOfListener(listeners, l.Name) < i {
			c.add(field+".name", "say all of a listener in one place", "listener %q is named before", l.Name)
		}
		if n := l.MaxRequestBodyBytes; n != nil && *n < 1 {
			c.add(field+".maxRequestBodyBytes", "use a number of bytes above 0, or remove it for no limit", "%d is out of bounds", *n)
		}
	}
}

func (c *checker) ports(ports []v1alpha1.Port) {
	for i, p := range ports {
		field := fmt.Sprintf("spec.ports[%d]", i)
		c.bounded(field+".port", p.Port, 1, 65535)
		if indexOfPort(ports, p.Port) < i {
			c.add(field+".port", "say all of a port in one place", "port %d is named before", p.Port)
		}
		for _, t := range portTimeouts(&p) {
			if d := *t.value; d != nil && !validTimeout(*d) {
				c.add(field+"."+t.field, fmt.Sprintf("use a duration from %v to %v", minTimeout, maxTimeout), "%v is out of bounds", d.Duration)
			}
		}
		if p.MaxConnections != nil && *p.MaxConnections < 1 {
			c.add(field+".maxConnections", "use a number above 0, or remove it for the default", "%d is out of bounds", *p.MaxConnections)
		}
	}
}
