package listener

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	gwx "github.com/moongate-dev/moongate/api/gatewayx/v1alpha1"
)

// MaxPorts is how many ports ListenerSets may bring a Gateway to, as many as its own listeners may ask for. Each is a port of the Gateway's
// Services, of which a cluster may have a NodePort for each, of 2768 by default.
const MaxPorts = 64

// OfSet returns the listeners of a ListenerSet, or of an object of another of kind.ListenerSets, in the order of its spec, as parts of a Gateway that
// takes them and has the options. Whether they conflict with others, of the same object among them, is for who has all of the Gateway's to judge:
// there the first wins. Beside other Gateways they are as old as the younger of the object and the Gateway.
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

// EntriesOf returns the listeners that a ListenerSet, or an object of another kind like it, asks for; what such a kind alone has is left out.
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

// ClaimOfSet is Claim for a listener of a ListenerSet: one that is not valid claims nothing, and none brings the Gateway beyond MaxPorts.
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

// Lost returns the listener of a ListenerSet as one for which ClaimOfSet returned the reason. Of the listener that it cannot be told apart from nothing is
// told: it may be of a namespace that the ListenerSet's author knows nothing of.
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
