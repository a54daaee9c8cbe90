package listener

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"
)

// MaxPorts is how many ports ListenerSets may bring a Gateway to, as many as its own listeners may ask for. Each is a port of the Gateway's
// Services, of which a cluster may have a NodePort for each, of 2768 by default.
const MaxPorts = 64

// OfSet returns the listeners of a ListenerSet in the order of its spec, as parts of a Gateway that takes them. Whether they conflict
// with others is for who has all of the Gateway's to judge: there the first wins. Beside other Gateways they are as old as the younger of
// ListenerSet and Gateway.
func OfSet(ls *gwv1.ListenerSet, gw *gwv1.Gateway, o Options) []*Listener {
	created := ls.CreationTimestamp
	if created.Before(&gw.CreationTimestamp) {
		created = gw.CreationTimestamp
	}
	whole := &gwv1.Gateway{ObjectMeta: metav1.ObjectMeta{Namespace: ls.Namespace, CreationTimestamp: created}}
	for _, entry := range ls.Spec.Listeners {
		whole.Spec.Listeners = append(whole.Spec.Listeners, gwv1.Listener(entry))
	}
	list := New(whole, o)
	for _, l := range list {
		l.Conflict, l.Overlap = nil, nil
		if l.Protocol != gwv1.HTTPProtocolType {
			l.invalid(gwv1.ListenerReasonUnsupportedProtocol, ".protocol", "use HTTP, or move the listener to the Gateway",
				"protocol %s is not supported in a ListenerSet yet", l.Protocol)
			l.Certificates = nil // nobody is to wait for what is never served
		}
	}
	return list
}

// Claim marks the listeners of a ListenerSet that cannot be told apart from one that comes before them on the Gateway, of which
// nothing more is told: it may be of a namespace that the ListenerSet's author knows nothing of. It refuses those that would bring the Gateway
// beyond MaxPorts.
func Claim(ports *Ports, list []*Listener) {
	for _, l := range list {
		if l.Invalid == nil && ports.full(l) {
			l.invalid(gwv1.ListenerConditionReason(gwv1.ListenerEntryReasonTooManyListeners), ".port", "use a port that the Gateway has already",
				"the Gateway has %d ports, with those of its ListenerSets, and takes no more", MaxPorts)
		}
		if l.Invalid != nil {
			continue
		}
		if reason := ports.Claim(l); reason != "" {
			l.Conflict = ConflictProblem(reason, l, "a listener that comes before it on the Gateway")
		}
	}
}
