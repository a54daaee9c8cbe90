package listener

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	gwx "github.com/moongate-dev/moongate/api/gatewayx/v1alpha1"
)

// MaxPorts is the maximum number of ports of a Gateway with its ListenerSets, as many as its own listeners may use. Each is a port
// of the Gateway's Services, for which a cluster may need a NodePort, of which there are 2768 by default.
const MaxPorts = 64

// OfSet returns the listeners of a ListenerSet, or of an object of another kind in kind.ListenerSets, in the order of its spec, as
// listeners of a Gateway with these options. Conflicts, also within the same object, are determined by the caller, who knows all
// listeners of the Gateway: there the first wins. For conflicts between Gateways their age is that of the younger of the object and
// the Gateway.
func OfSet(set metav1.Object, o Options) []*Listener {
	if t := set.GetCreationTimestamp(); !t.IsZero() {
		o.Created = max(o.Created, t.UnixNano())
	}
	whole := &gwv1.Gateway{ObjectMeta: metav1.ObjectMeta{Namespace: set.GetNamespace()}}
	for _, entry := range EntriesOf(set) {
		whole.Spec.Listeners = append(whole.Spec.Listeners, gwv1.Listener(entry))
	}
	list := New(whole, o)
	for _, l := range list {
		l.Conflict = nil
	}
	if former, is := set.(*gwx.XListenerSet); is {
		for i, entry := range former.Spec.Listeners {
			if entry.TLS != nil && entry.TLS.FrontendValidation != nil {
				list[i].invalid(gwv1.ListenerReasonUnsupportedValue, ".tls.frontendValidation", "remove it, and have the Gateway's owner set spec.tls.frontend.perPort",
					"clients of one listener cannot be verified by authorities of its own, and must not be served without")
			}
		}
	}
	return list
}

// EntriesOf returns the listeners in a ListenerSet, or in an object of another kind like it, without the fields that only such a
// kind has.
func EntriesOf(set metav1.Object) (entries []gwv1.ListenerEntry) {
	switch set := set.(type) {
	case *gwv1.ListenerSet:
		return set.Spec.Listeners
	case *gwx.XListenerSet:
		for _, entry := range set.Spec.Listeners {
			e := gwv1.ListenerEntry{Name: entry.Name, Hostname: entry.Hostname, Port: entry.Port, Protocol: entry.Protocol, AllowedRoutes: entry.AllowedRoutes}
			if entry.TLS != nil {
				e.TLS = &gwv1.ListenerTLSConfig{Mode: entry.TLS.Mode, CertificateRefs: entry.TLS.CertificateRefs, Options: entry.TLS.Options}
			}
			entries = append(entries, e)
		}
	}
	return entries
}

const tooManyListeners = gwv1.ListenerConditionReason(gwv1.ListenerEntryReasonTooManyListeners)

// ClaimOfSet is Claim for a listener of a ListenerSet: an invalid one claims nothing, and none may exceed MaxPorts.
func (p *Ports) ClaimOfSet(l *Listener) gwv1.ListenerConditionReason {
	switch {
	case l.Invalid != nil:
		return ""
	case p.full(l):
		return tooManyListeners
	}
	reason, _ := p.Claim(l)
	return reason
}

// Lost returns the listener of a ListenerSet with the reason that ClaimOfSet returned. It does not name the other listener, which
// may be in a namespace that the ListenerSet's author must not learn about.
func (l *Listener) Lost(reason gwv1.ListenerConditionReason) *Listener {
	out := *l
	if reason == tooManyListeners {
		out.invalid(reason, ".port", "use a port that the Gateway has already",
			"the Gateway has %d ports, with those of its ListenerSets, and takes no more", MaxPorts)
	} else {
		out.Conflict = ConflictProblem(reason, l, "a listener that comes before it on the Gateway")
	}
	return &out
}
