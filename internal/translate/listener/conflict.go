package listener

import (
	"cmp"
	"net/netip"

	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/moongate-dev/moongate/internal/translate/condition"
)

// findConflicts marks listeners of one Gateway that cannot be distinguished: none of them wins. Listeners that are refused for
// another reason are ignored: they do not conflict with others.
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

// findConflictsOfPort marks those of the listeners on one port that cannot be distinguished.
func findConflictsOfPort(port []*Listener) {
	// The listeners that l conflicts with are the same for all with its transport, or for all with its hostname.
	clashes := map[transport][]*Listener{}
	for _, t := range []transport{transportHTTP, transportTLS, transportTCP, transportUDP} {
		for _, other := range port {
			if protocolsConflict(t, transportOf(other.Protocol)) {
				clashes[t] = append(clashes[t], other)
			}
		}
	}
	byHostname := map[string][]*Listener{} // except those of UDP
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

// namesBeside returns the names of the first listeners of a list, in order and without l.
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

// ConflictProblem reports that the listeners named in with already have what l asks for.
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

// Ports are the ports that listeners use; the first listener that claims a port gets it. The zero value has none.
type Ports struct {
	// Default are the addresses of listeners without any; empty means every address.
	Default []string
	claimed map[portAddress]*claimedPort
	numbers map[portNumber]struct{} // on any address
}

type portAddress struct {
	address string // "" means every address, of IPv4 and IPv6
	port    int32
}

// A claim of a single address is also recorded here, so that a claim of all addresses of a family need not check each.
const someIPv4, someIPv6 = "IPv4", "IPv6"

// excluded lists, for addresses that stand for several, the addresses on which a port cannot be bound at the same time; for a single
// address see excludedBy.
var excluded = map[string][]string{
	"":        {"0.0.0.0", "::", someIPv4, someIPv6},
	"0.0.0.0": {"", someIPv4},
	"::":      {"", someIPv6},
	someIPv4:  {"", "0.0.0.0"},
	someIPv6:  {"", "::"},
}

// excludedBy returns the addresses on which a port cannot be bound if it is bound on a. It does not include a itself, on which
// listeners share a socket.
func excludedBy(a string) []string {
	if all, is := excluded[a]; is {
		return all
	}
	return excluded[familyOf(a)]
}

// familyOf returns someIPv4 or someIPv6 for a single address.
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
	transports [transports]*Listener // the first listener with each; more than one only if conflicting listeners have reserved it
	hostnames  map[string]*Listener  // the first listener with each
}

// Claim claims the listener's port and hostname. If that is not possible, it returns the reason and the earlier listener that
// conflicts; else "" and nil.
func (p *Ports) Claim(l *Listener) (gwv1.ListenerConditionReason, *Listener) {
	reason, winner := p.conflict(l)
	if reason == "" {
		p.Reserve(l)
	}
	return reason, winner
}

// conflict returns the result of Claim without claiming.
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

// of returns a listener that uses the port with the transport's type of socket, UDP or TCP; nil if none does.
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

// Reserve reserves the listener's port and hostname against later ones, even if it conflicts with others. For an unknown protocol it
// reserves only the hostname.
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

// full reports whether the listener's port would exceed MaxPorts.
func (p *Ports) full(l *Listener) bool {
	_, there := p.numbers[portNumber{l.Port, transportOf(l.Protocol) == transportUDP}]
	return !there && len(p.numbers) >= MaxPorts
}

// at returns the claims of a port on an address.
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

// transport determines whether protocols can share a port.
type transport uint8

const (
	transportUnknown transport = iota
	transportHTTP              // distinguished by Host
	transportTLS               // distinguished by SNI
	transportTCP               // not distinguished
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
