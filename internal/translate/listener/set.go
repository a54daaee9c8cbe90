package listener

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"
)

// MaxPorts is how many ports ListenerSets may bring a Gateway to, as many as its own listeners may ask for. Each is a port of the Gateway's
// Services, of which a cluster may have a NodePort for each, of 2768 by default.
const MaxPorts = 64

// OfSet returns the listeners of a ListenerSet in the order of its spec, as parts of a Gateway that takes them and has the options. Whether they
// conflict with others, of the same ListenerSet among them, is for who has all of the Gateway's to judge: there the first wins. Beside other
// Gateways they are as old as the younger of ListenerSet and Gateway.
func OfSet(ls *gwv1.ListenerSet, o Options) []*Listener {
	if t := ls.CreationTimestamp; !t.IsZero() {
		o.Created = max(o.Created, t.UnixNano())
	}
	whole := &gwv1.Gateway{ObjectMeta: metav1.ObjectMeta{Namespace: ls.Namespace}}
	for _, entry := range ls.Spec.Listeners {
		whole.Spec.Listeners = append(whole.Spec.Listeners, gwv1.Listener(entry))
	}
	list := New(whole, o)
	for _, l := range list {
		l.Conflict = nil
	}
	return list
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
	return p.Claim(l)
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
