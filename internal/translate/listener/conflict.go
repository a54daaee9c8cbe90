package listener

import (
	"cmp"
	"net/netip"

	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/moongate-dev/moongate/internal/translate/condition"
)

// findConflicts marks listeners of one Gateway that cannot be told apart: none
// of them wins. Listeners that are refused for another reason are left out: they take no port from the others.
func findConflicts(list []*Listener) {
	byPort := map[int32][]*Listener{}
	for _, l := range list {
		if l.Invalid == nil && transportOf(l.Protocol) != transportUnknown {
			byPort[l.Port] = append(byPort[l.Port], l)
		}
	}
	for _, l := range list {
		if port := byPort[l.Port]; port != nil {
			findConflictsOfPort(port)
			delete(byPort, l.Port)
		}
	}
}

// findConflictsOfPort marks those of the listeners on one port that cannot be told apart.
func findConflictsOfPort(port []*Listener) {
	// What l clashes with is the same for all of its transport, or for all of its hostname.
	clashes := map[transport][]*Listener{}
	for _, t := range []transport{transportHTTP, transportTLS, transportTCP, transportUDP} {
		for _, other := range port {
			if protocolsConflict(t, transportOf(other.Protocol)) {
				clashes[t] = append(clashes[t], other)
			}
		}
	}
	byHostname := map[string][]*Listener{} // not of UDP
	for _, l := range port {
		if transportOf(l.Protocol) != transportUDP {
			byHostname[l.Hostname] = append(byHostname[l.Hostname], l)
		}
	}
	for _, l := range port {
		t := transportOf(l.Protocol)
		if with := namesBeside(l, clashes[t]); with != nil {
			l.Conflict = ConflictProblem(gwv1.ListenerReasonProtocolConflict, l, condition.Some(with)+" of this Gateway")
		} else if with := namesBeside(l, byHostname[l.Hostname]); t != transportUDP && with != nil {
			l.Conflict = ConflictProblem(gwv1.ListenerReasonHostnameConflict, l, condition.Some(with)+" of this Gateway")
		}
	}
}

// namesBeside are the names of the first of some listeners, in their order and without l.
func namesBeside(l *Listener, some []*Listener) (names []string) {
	for _, other := range some {
		if other != l {
			names = append(names, other.Name)
		}
		if len(names) > condition.MaxQuoted {
			break
		}
	}
	return names
}

// ConflictProblem says that what with names has what l asks for.
func ConflictProblem(reason gwv1.ListenerConditionReason, l *Listener, with string) *condition.Problem {
	switch reason {
	case gwv1.ListenerReasonProtocolConflict:
		return condition.NewProblem(reason, l.Field+".protocol", "use another port",
			"protocol %s on port %d cannot be distinguished from %s", l.Protocol, l.Port, with)
	case gwv1.ListenerReasonPortUnavailable:
		return condition.NewProblem(reason, l.Field+".port", "give both the same addresses, or none of them all (spec.addresses, or --bind), or use another port",
			"port %d cannot be bound beside %s: one of the two is on all addresses, the other on some", l.Port, with)
	}
	return condition.NewProblem(reason, l.Field+".hostname", "use another hostname or port",
		"hostname %q on port %d is the same as that of %s", l.Hostname, l.Port, with)
}

// Ports are the ports that listeners have, of which the first to claim one wins. The zero value has none.
type Ports struct {
	// Default are the addresses of listeners without any; none is every address.
	Default []string
	claimed map[portAddress]*claimedPort
	numbers map[portNumber]struct{} // on whatever address
}

type portAddress struct {
	address string // "" is every address, of IPv4 and IPv6
	port    int32
}

// What is claimed of a single address is claimed of these, too, so that who claims all of a family need not look at each.
const someIPv4, someIPv6 = "IPv4", "IPv6"

// excluded are the addresses on which no socket can have a port beside one on the address that is the key; for a single one see excludedBy.
var excluded = map[string][]string{
	"":        {"0.0.0.0", "::", someIPv4, someIPv6},
	"0.0.0.0": {"", someIPv4},
	"::":      {"", someIPv6},
	someIPv4:  {"", "0.0.0.0"},
	someIPv6:  {"", "::"},
}

// excludedBy returns the addresses on which no socket can have a port beside one on a, other than a itself, on which listeners share one.
func excludedBy(a string) []string {
	if all, is := excluded[a]; is {
		return all
	}
	return excluded[familyOf(a)]
}

// familyOf returns what stands for the single address a: someIPv4 or someIPv6.
func familyOf(a string) string {
	if ip, err := netip.ParseAddr(a); err == nil && ip.Unmap().Is4() {
		return someIPv4
	}
	return someIPv6
}

type portNumber struct {
	port int32
	udp  bool
}

type claimedPort struct {
	transports [transports]*Listener // the first with each; more than one only where listeners that conflict have reserved it
	hostnames  map[string]*Listener  // the first with each
}

// Claim returns why the listener cannot be told apart from one that was there before, or cannot have its port beside it, and which, or "" where it has its port and
// hostname now.
func (p *Ports) Claim(l *Listener) (gwv1.ListenerConditionReason, *Listener) {
	reason, winner := p.conflict(l)
	if reason == "" {
		p.Reserve(l)
	}
	return reason, winner
}

// conflict is Claim without claiming.
func (p *Ports) conflict(l *Listener) (gwv1.ListenerConditionReason, *Listener) {
	t := transportOf(l.Protocol)
	for _, a := range p.addressesOf(l) {
		if c := p.claimed[portAddress{a, l.Port}]; c != nil {
			for other, winner := range c.transports {
				if winner != nil && protocolsConflict(t, transport(other)) {
					return gwv1.ListenerReasonProtocolConflict, winner
				}
			}
			if winner := c.hostnames[l.Hostname]; winner != nil && t != transportUDP {
				return gwv1.ListenerReasonHostnameConflict, winner
			}
		}
		for _, b := range excludedBy(a) {
			if winner := p.claimed[portAddress{b, l.Port}].of(t); winner != nil {
				return gwv1.ListenerReasonPortUnavailable, winner
			}
		}
	}
	return "", nil
}

// of returns a listener that has the port for the transport's kind of socket, UDP or TCP; nil where none has.
func (c *claimedPort) of(t transport) *Listener {
	if c == nil || t == transportUnknown {
		return nil
	}
	for other, l := range c.transports {
		if l != nil && transport(other) != transportUnknown && (transport(other) == transportUDP) == (t == transportUDP) {
			return l
		}
	}
	return nil
}

// Reserve keeps the listener's port and hostname from those that come later, be there others or not. Of a protocol that is not known it is
// the hostname alone.
func (p *Ports) Reserve(l *Listener) {
	if p.claimed == nil {
		p.claimed, p.numbers = map[portAddress]*claimedPort{}, map[portNumber]struct{}{}
	}
	t := transportOf(l.Protocol)
	for _, a := range p.addressesOf(l) {
		c := p.at(a, l.Port)
		c.transports[t] = cmp.Or(c.transports[t], l)
		if t != transportUDP {
			c.hostnames[l.Hostname] = cmp.Or(c.hostnames[l.Hostname], l)
		}
		if _, all := excluded[a]; !all {
			some := p.at(familyOf(a), l.Port)
			some.transports[t] = cmp.Or(some.transports[t], l)
		}
	}
	p.numbers[portNumber{l.Port, t == transportUDP}] = struct{}{}
}

// full reports whether the listener would have one port more than MaxPorts.
func (p *Ports) full(l *Listener) bool {
	_, there := p.numbers[portNumber{l.Port, transportOf(l.Protocol) == transportUDP}]
	return !there && len(p.numbers) >= MaxPorts
}

// at returns what is claimed of a port on an address.
func (p *Ports) at(address string, port int32) *claimedPort {
	k := portAddress{address, port}
	c := p.claimed[k]
	if c == nil {
		c = &claimedPort{hostnames: map[string]*Listener{}}
		p.claimed[k] = c
	}
	return c
}

func (p *Ports) addressesOf(l *Listener) []string {
	switch {
	case len(l.Addresses) > 0:
		return l.Addresses
	case len(p.Default) > 0:
		return p.Default
	}
	return everyAddress
}

var everyAddress = []string{""}

// protocolsConflict reports whether listeners with these transports cannot share a port.
func protocolsConflict(a, b transport) bool {
	switch {
	case a == transportUnknown || b == transportUnknown:
		return false
	case a == transportUDP || b == transportUDP:
		return a == b
	}
	return a != b || a == transportTCP
}

// transport is what decides whether protocols can share a port.
type transport uint8

const (
	transportUnknown transport = iota
	transportHTTP              // told apart by Host
	transportTLS               // told apart by SNI
	transportTCP               // not told apart at all
	transportUDP
	transports
)

func transportOf(p gwv1.ProtocolType) transport {
	switch p {
	case gwv1.HTTPProtocolType:
		return transportHTTP
	case gwv1.HTTPSProtocolType, gwv1.TLSProtocolType:
		return transportTLS
	case gwv1.TCPProtocolType:
		return transportTCP
	case gwv1.UDPProtocolType:
		return transportUDP
	}
	return transportUnknown
}
