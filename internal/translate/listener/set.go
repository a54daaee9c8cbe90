package listener

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"
)

// OfSet returns the listeners of a ListenerSet in the order of its spec, as parts of a Gateway that takes them. Whether they conflict
// with others is for who has all of the Gateway's to judge: there the first wins.
func OfSet(ls *gwv1.ListenerSet, gw *gwv1.Gateway, o Options) []*Listener {
	whole := &gwv1.Gateway{ObjectMeta: metav1.ObjectMeta{Namespace: ls.Namespace, CreationTimestamp: gw.CreationTimestamp}}
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
// nothing more is told: it may be of a namespace that the ListenerSet's author knows nothing of.
func Claim(ports *Ports, list []*Listener) {
	for _, l := range list {
		if l.Invalid != nil {
			continue
		}
		if reason := ports.Claim(l); reason != "" {
			l.Conflict = ConflictProblem(reason, l, "a listener that comes before it on the Gateway")
		}
	}
}
