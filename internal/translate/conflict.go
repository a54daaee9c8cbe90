package translate

import (
	"slices"

	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/moongate-dev/moongate/internal/incremental"
	"github.com/moongate-dev/moongate/internal/translate/condition"
)

// findConflicts marks listeners of one Gateway that cannot be told apart: none
// of them wins. It also marks HTTPS listeners whose hostnames overlap.
func findConflicts(list []*listener, gw *gwv1.Gateway) {
	for i, l := range list {
		var clash gwv1.ListenerConditionReason
		var with, overlap []string
		for j, other := range list {
			if i == j || gw.Spec.Listeners[i].Name == gw.Spec.Listeners[j].Name {
				continue
			}
			otherName := string(gw.Spec.Listeners[j].Name)
			switch reason := conflict(l, other); {
			case reason == "":
			case clash == "" || reason == gwv1.ListenerReasonProtocolConflict && clash != reason:
				clash, with = reason, []string{otherName}
			case reason == clash:
				with = append(with, otherName)
			}
			if l.Port == other.Port && l.Protocol == gwv1.HTTPSProtocolType && other.Protocol == l.Protocol &&
				overlaps(l.Hostname, other.Hostname) {
				overlap = append(overlap, otherName)
			}
		}
		if clash != "" {
			l.Conflict = conflictProblem(clash, l, quoted(with)+" of this Gateway")
		}
		if overlap != nil {
			l.Overlap = condition.NewProblem(gwv1.ListenerReasonOverlappingHostnames, l.Field+".hostname", "",
				"hosts of this listener are also hosts of %s on port %d; a request is answered 421 where its connection was opened for another listener",
				quoted(overlap), l.Port)
		}
	}
}

func conflictProblem(reason gwv1.ListenerConditionReason, l *listener, with string) *condition.Problem {
	if reason == gwv1.ListenerReasonProtocolConflict {
		return condition.NewProblem(reason, l.Field+".protocol", "use another port",
			"protocol %s on port %d cannot be told apart from %s", l.Protocol, l.Port, with)
	}
	return condition.NewProblem(reason, l.Field+".hostname", "use another hostname or port",
		"hostname %q on port %d is the same as that of %s", l.Hostname, l.Port, with)
}

// conflict says why two listeners on the same addresses are not distinct, or "".
func conflict(a, b *listener) gwv1.ListenerConditionReason {
	ta, tb := transportOf(a.Protocol), transportOf(b.Protocol)
	switch {
	case a.Port != b.Port || ta == transportUnknown || tb == transportUnknown:
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

// transport is what decides whether protocols can share a port.
type transport uint8

const (
	transportUnknown transport = iota
	transportHTTP              // told apart by Host
	transportTLS               // told apart by SNI
	transportTCP               // not told apart at all
	transportUDP
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

// claim is what a listener takes of a port that several Gateways may share.
type claim struct {
	Age      age
	Listener listener
}

func (t *Translator) declareClaims() {
	t.claims = incremental.Map(t.engine, "listener claim", t.listeners,
		func(_ *incremental.View, k listenerKey, l *listener) (claim, bool) {
			return claim{Age: l.Age, Listener: listener{
				Port: l.Port, Protocol: l.Protocol, Hostname: l.Hostname, Addresses: l.Addresses,
			}}, l.claims()
		}, sameDeeply[claim])
	t.claimsByPort = incremental.NewIndex(t.claims, "claims by port",
		func(_ listenerKey, c claim) []int32 { return []int32{c.Listener.Port} })
}

// taken says which older Gateway's listener has the port and hostname already.
// Between Gateways the oldest wins, so that a new one cannot break what is served.
func (t *Translator) taken(v *incremental.View, k listenerKey, l *listener) *condition.Problem {
	keys := incremental.Lookup(v, t.claimsByPort, l.Port)
	if len(keys) < 2 {
		return nil
	}
	type contender struct {
		key listenerKey
		claim
	}
	var all []contender
	for _, key := range keys {
		c, _ := incremental.Fetch(v, t.claims, key)
		all = append(all, contender{key, c})
	}
	slices.SortStableFunc(all, func(a, b contender) int {
		switch {
		case a.Age.before(b.Age):
			return -1
		case b.Age.before(a.Age):
			return 1
		}
		return 0
	})
	var winners []contender
	for _, c := range all {
		i := slices.IndexFunc(winners, func(w contender) bool {
			return w.key.Gateway != c.key.Gateway && shareAddress(w.Listener.Addresses, c.Listener.Addresses) &&
				conflict(&w.Listener, &c.Listener) != ""
		})
		if c.key == k {
			if i < 0 {
				return nil
			}
			w := winners[i]
			return conflictProblem(conflict(&w.Listener, l), l, "a listener of an older Gateway")
		}
		if i < 0 {
			winners = append(winners, c)
		}
	}
	return nil
}

// shareAddress compares addresses to bind, of which none means the default ones.
func shareAddress(a, b []string) bool {
	if len(a) == 0 || len(b) == 0 {
		return len(a) == len(b)
	}
	return slices.ContainsFunc(a, func(x string) bool { return slices.Contains(b, x) })
}
