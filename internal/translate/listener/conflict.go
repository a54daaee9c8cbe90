package listener

import (
	"cmp"

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
	if reason == gwv1.ListenerReasonProtocolConflict {
		return condition.NewProblem(reason, l.Field+".protocol", "use another port",
			"protocol %s on port %d cannot be distinguished from %s", l.Protocol, l.Port, with)
	}
	return condition.NewProblem(reason, l.Field+".hostname", "use another hostname or port",
		"hostname %q on port %d is the same as that of %s", l.Hostname, l.Port, with)
}

// Ports are the ports that listeners have, of which the first to claim one wins. The zero value has none.
type Ports struct {
	claimed map[portAddress]*claimedPort
	numbers map[portNumber]struct{} // on whatever address
}

type portAddress struct {
	address string // "" are the default ones
	port    int32
}

type portNumber struct {
	port int32
	udp  bool
}

type claimedPort struct {
	transports [transports]*Listener // the first with each; more than one only where listeners that conflict have reserved it
	hostnames  map[string]*Listener  // the first with each
}

// Claim returns why the listener cannot be told apart from one that was there before, and which, or "" where it has its port and hostname now. A
// listener without addresses is on the default ones.
func (p *Ports) Claim(l *Listener) (gwv1.ListenerConditionReason, *Listener) {
	reason, winner := p.conflict(l)
	if reason == "" {
		p.Reserve(l)
	}
	return reason, winner
}

// conflict returns why the listener cannot be told apart from one that is there, and which, or "".
func (p *Ports) conflict(l *Listener) (gwv1.ListenerConditionReason, *Listener) {
	t := transportOf(l.Protocol)
	for _, a := range addressesOf(l) {
		c := p.claimed[portAddress{a, l.Port}]
		if c == nil {
			continue
		}
		for other, winner := range c.transports {
			if winner != nil && protocolsConflict(t, transport(other)) {
				return gwv1.ListenerReasonProtocolConflict, winner
			}
		}
		if winner := c.hostnames[l.Hostname]; winner != nil && t != transportUDP {
			return gwv1.ListenerReasonHostnameConflict, winner
		}
	}
	return "", nil
}

// Reserve keeps the listener's port and hostname from those that come later, be there others or not. Of a protocol that is not known it is
// the hostname alone.
func (p *Ports) Reserve(l *Listener) {
	if p.claimed == nil {
		p.claimed, p.numbers = map[portAddress]*claimedPort{}, map[portNumber]struct{}{}
	}
	t := transportOf(l.Protocol)
	for _, a := range addressesOf(l) {
		at := portAddress{a, l.Port}
		if p.claimed[at] == nil {
			p.claimed[at] = &claimedPort{hostnames: map[string]*Listener{}}
		}
		c := p.claimed[at]
		c.transports[t] = cmp.Or(c.transports[t], l)
		if t != transportUDP {
			c.hostnames[l.Hostname] = cmp.Or(c.hostnames[l.Hostname], l)
		}
	}
	p.numbers[portNumber{l.Port, t == transportUDP}] = struct{}{}
}

// full reports whether the listener would have one port more than MaxPorts.
func (p *Ports) full(l *Listener) bool {
	_, there := p.numbers[portNumber{l.Port, transportOf(l.Protocol) == transportUDP}]
	return !there && len(p.numbers) >= MaxPorts
}

func addressesOf(l *Listener) []string {
	if len(l.Addresses) == 0 {
		return defaultAddresses
	}
	return l.Addresses
}

var defaultAddresses = []string{""}

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
