package listener

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	gwv1 "sigs.k8s.io/gateway-api/apis/v1"
)

// conflict is what the specification says of two listeners, one by one with all the others: the meaning that the tables must have.
func conflict(a, b *Listener) gwv1.ListenerConditionReason {
	ta, tb := transportOf(a.Protocol), transportOf(b.Protocol)
	switch {
	case a.Port != b.Port:
		return ""
	case ta == transportUDP || tb == transportUDP:
		if ta == tb {
			return gwv1.ListenerReasonProtocolConflict
		}
		return ""
	case ta != tb || ta == transportTCP:
		return gwv1.ListenerReasonProtocolConflict
	case a.Hostname == b.Hostname:
		return gwv1.ListenerReasonHostnameConflict
	}
	return ""
}

func randomListeners(r *rand.Rand) (list []*Listener) {
	protocols := []gwv1.ProtocolType{gwv1.HTTPProtocolType, gwv1.HTTPSProtocolType, gwv1.HTTPSProtocolType, gwv1.TLSProtocolType, gwv1.TCPProtocolType, gwv1.UDPProtocolType}
	hostnames := []string{"", "a.test", "b.test", "*.test", "*.a.test", "x.a.test", "*.b.a.test", "test", "y.b.a.test", "*.org"}
	kinds := 1 + r.IntN(len(protocols))
	for i := range r.IntN(14) {
		l := &Listener{Name: fmt.Sprintf("l%d", i), Port: 80 + r.Int32N(2), Protocol: protocols[r.IntN(kinds)], Hostname: hostnames[r.IntN(len(hostnames))]}
		if l.Protocol == gwv1.TCPProtocolType || l.Protocol == gwv1.UDPProtocolType {
			l.Hostname = ""
		}
		for _, a := range []string{"10.0.0.1", "10.0.0.2", "10.0.0.3", "fd00::1", "fd00::2"} {
			if r.IntN(3) == 0 {
				l.Addresses = append(l.Addresses, a)
			}
		}
		if all := []string{"0.0.0.0", "::"}; r.IntN(6) == 0 {
			l.Addresses = all[r.IntN(2):][:1]
		}
		list = append(list, l)
	}
	return list
}

// TestConflictsOfOneGateway compares what is found by tables with a comparison of each listener with each other.
func TestConflictsOfOneGateway(t *testing.T) {
	for seed := range uint64(3000) {
		list := randomListeners(rand.New(rand.NewPCG(seed, 1)))
		findConflicts(list)
		for _, l := range list {
			var reason gwv1.ListenerConditionReason
			with := map[gwv1.ListenerConditionReason][]string{}
			for _, other := range list {
				if other == l {
					continue
				}
				if why := conflict(l, other); why != "" {
					with[why] = append(with[why], other.Name)
					if reason != gwv1.ListenerReasonProtocolConflict {
						reason = why
					}
				}
			}
			if got := l.Conflict; (got == nil) != (reason == "") || got != nil && (got.Reason != string(reason) || !names(got.What, with[reason])) {
				t.Fatalf("seed %d: %s of %s: %v, want %s with %v", seed, l.Name, show(list), got, reason, with[reason])
			}
		}
	}
}

// names reports whether a message names the first eight, in their order.
func names(message string, all []string) bool {
	list := `"` + strings.Join(all[:min(len(all), 8)], `", "`) + `"`
	return strings.Contains(message, list) && (len(all) <= 8) == !strings.Contains(message, list+" and others")
}

// beside is what the specification, and the sockets of a process, say of two listeners of different Gateways.
func beside(a, b *Listener) (reasons []gwv1.ListenerConditionReason) {
	addresses := func(l *Listener) []string {
		if len(l.Addresses) == 0 {
			return []string{""}
		}
		return l.Addresses
	}
	sameKind := a.Port == b.Port && (a.Protocol == gwv1.UDPProtocolType) == (b.Protocol == gwv1.UDPProtocolType)
	for _, x := range addresses(a) {
		for _, y := range addresses(b) {
			switch {
			case x == y:
				if why := conflict(a, b); why != "" {
					reasons = append(reasons, why)
				}
			case sameKind && (standsFor(x, y) || standsFor(y, x)):
				reasons = append(reasons, gwv1.ListenerReasonPortUnavailable)
			}
		}
	}
	return reasons
}

// standsFor reports whether b is one of the addresses that a stands for.
func standsFor(a, b string) bool {
	return a == "" || a == "0.0.0.0" && strings.Contains(b, ".") || a == "::" && strings.Contains(b, ":")
}

// TestFirstToClaim compares Ports with a comparison of each listener with all that have won.
func TestFirstToClaim(t *testing.T) {
	for seed := range uint64(3000) {
		list := randomListeners(rand.New(rand.NewPCG(seed, 2)))
		var ports Ports
		var winners []*Listener
		for _, l := range list {
			var reasons []gwv1.ListenerConditionReason
			for _, w := range winners {
				reasons = append(reasons, beside(w, l)...)
			}
			got, winner := ports.Claim(l)
			if (winner == nil) != (got == "") || winner != nil && (!slices.Contains(winners, winner) || !slices.Contains(beside(winner, l), got)) {
				t.Fatalf("seed %d: %s of %s: %q with %v", seed, l.Name, show(list), got, winner)
			}
			if (got == "") != (len(reasons) == 0) || got != "" && !slices.Contains(reasons, got) {
				t.Fatalf("seed %d: %s of %s: %q, want one of %q", seed, l.Name, show(list), got, reasons)
			}
			if got == "" {
				winners = append(winners, l)
			}
		}
	}
}

func show(list []*Listener) (text string) {
	for _, l := range list {
		text += fmt.Sprintf("%s:%d %s %q %v; ", l.Name, l.Port, l.Protocol, l.Hostname, l.Addresses)
	}
	return text
}

// TestReserved: what is reserved is nobody else's, whatever was reserved or claimed there before.
func TestReserved(t *testing.T) {
	for seed := range uint64(3000) {
		r := rand.New(rand.NewPCG(seed, 3))
		own, list := randomListeners(r), randomListeners(r)
		var ports Ports
		for _, l := range own {
			ports.Reserve(l)
		}
		for _, l := range list {
			var reasons []gwv1.ListenerConditionReason
			for _, o := range own {
				reasons = append(reasons, beside(o, l)...)
			}
			if got, _ := ports.conflict(l); (got == "") != (len(reasons) == 0) || got != "" && !slices.Contains(reasons, got) {
				t.Fatalf("seed %d: %s beside %s: %q, want one of %q", seed, show([]*Listener{l}), show(own), got, reasons)
			}
		}
	}
}
