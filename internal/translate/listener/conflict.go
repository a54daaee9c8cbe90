package listener

import (
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/moongate-dev/moongate/internal/translate/condition"
)

// findConflicts marks listeners of one Gateway that cannot be told apart: none
// of them wins. It also marks HTTPS listeners whose hostnames overlap. Listeners that
// are refused for another reason are left out: they take no port from the others.
func findConflicts(list []*Listener, gw *gwv1.Gateway) {
	for i, l := range list {
		if l.Invalid != nil {
			continue
		}
		var clash gwv1.ListenerConditionReason
		var with, overlap []string
		for j, other := range list {
			if i == j || other.Invalid != nil || gw.Spec.Listeners[i].Name == gw.Spec.Listeners[j].Name {
				continue
			}
			otherName := string(gw.Spec.Listeners[j].Name)
			switch reason := Conflict(l, other); {
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
			l.Conflict = ConflictProblem(clash, l, condition.Quoted(with)+" of this Gateway")
		}
		if overlap != nil {
			l.Overlap = condition.NewProblem(gwv1.ListenerReasonOverlappingHostnames, l.Field+".hostname", "",
				"hosts of this listener are also hosts of %s on port %d; a request is answered 421 where its connection was opened for another listener",
				condition.Quoted(overlap), l.Port)
		}
	}
}

// ConflictProblem says that what with names has what l asks for.
func ConflictProblem(reason gwv1.ListenerConditionReason, l *Listener, with string) *condition.Problem {
	if reason == gwv1.ListenerReasonProtocolConflict {
		return condition.NewProblem(reason, l.Field+".protocol", "use another port",
			"protocol %s on port %d cannot be told apart from %s", l.Protocol, l.Port, with)
	}
	return condition.NewProblem(reason, l.Field+".hostname", "use another hostname or port",
		"hostname %q on port %d is the same as that of %s", l.Hostname, l.Port, with)
}

// Conflict says why two listeners on the same addresses are not distinct, or "".
func Conflict(a, b *Listener) gwv1.ListenerConditionReason {
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
