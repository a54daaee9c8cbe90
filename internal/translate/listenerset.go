package translate

import (
	"cmp"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/moongate-dev/moongate/internal/incremental"
	"github.com/moongate-dev/moongate/internal/translate/condition"
	"github.com/moongate-dev/moongate/internal/translate/listener"
)

// listenerSet is a ListenerSet of a Gateway that is managed here.
type listenerSet struct {
	Gateway name
	Refused *condition.Problem // why it is not attached to the Gateway
}

func (t *Translator) declareListenerSets() {
	t.listenerSets = incremental.Map(t.engine, "ListenerSet", t.in.listenerSets.Collection,
		func(v *incremental.View, n name, ls *gwv1.ListenerSet) (*listenerSet, bool) {
			ref := ls.Spec.ParentRef
			if value(ref.Group, gwv1.GroupName) != gwv1.GroupName || value(ref.Kind, gwv1.Kind(KindGateway)) != gwv1.Kind(KindGateway) {
				return nil, false
			}
			set := &listenerSet{Gateway: name{string(value(ref.Namespace, gwv1.Namespace(n.Namespace))), string(ref.Name)}}
			terms, managed := incremental.Fetch(v, t.listenerTerms, set.Gateway)
			if managed {
				set.Refused = t.listenerSetRefused(v, n, set.Gateway, terms.ListenerSets)
			}
			return set, managed
		}, sameDeeply[*listenerSet])
	t.setsByGateway = incremental.NewIndex(t.listenerSets, "ListenerSets by Gateway",
		func(_ name, s *listenerSet) []name {
			if s.Refused != nil {
				return nil
			}
			return []name{s.Gateway}
		})
}

// listenerSetRefused returns why a Gateway does not take a ListenerSet's listeners, or nil.
func (t *Translator) listenerSetRefused(v *incremental.View, n, gateway name, allowed listener.Namespaces) *condition.Problem {
	switch from := allowed.From; {
	case from == gwv1.NamespacesFromAll, from == gwv1.NamespacesFromSame && n.Namespace == gateway.Namespace,
		from == gwv1.NamespacesFromSelector && t.selects(v, allowed.Selector, n.Namespace):
		return nil
	}
	return condition.NewProblem(gwv1.ListenerSetReasonNotAllowed, "spec.parentRef", "change spec.allowedListeners of the Gateway, or attach elsewhere",
		"Gateway %s takes no ListenerSets of namespace %s", gateway, n.Namespace)
}

// setListener is a listener of a ListenerSet before it is compared with others of its Gateway.
type setListener struct {
	Created  int64 // of the ListenerSet, in nanoseconds since the epoch
	Position int   // in its spec
	Listener *listener.Listener
}

// declareListenersOfSets adds the listeners of ListenerSets to a Gateway's own. Each ListenerSet is read by itself, so that an edit of one
// leaves the others of its Gateway alone.
func (t *Translator) declareListenersOfSets() {
	t.setSpecs = incremental.FlatMap(t.engine, "ListenerSet listeners", t.in.listenerSets.Collection,
		func(v *incremental.View, n name, ls *gwv1.ListenerSet) (entries []incremental.Entry[listenerKey, setListener]) {
			set, managed := incremental.Fetch(v, t.listenerSets, n)
			if !managed || set.Refused != nil {
				return nil
			}
			o, _ := t.listenerOptions(v, set.Gateway)
			for i, l := range listener.OfSet(ls, o) {
				entries = append(entries, incremental.Entry[listenerKey, setListener]{
					Key: listenerKey{set.Gateway, n.String(), l.Name}, Value: setListener{createdOf(ls), i, l},
				})
			}
			return entries
		}, sameDeeply[setListener])
	t.declareSetConflicts()
	t.setListeners = incremental.Map(t.engine, "ListenerSet listener", t.setSpecs,
		func(v *incremental.View, k listenerKey, s setListener) (*listener.Listener, bool) {
			if reason, lost := incremental.Fetch(v, t.setConflicts, k); lost {
				return s.Listener.Lost(reason), true
			}
			return s.Listener, true
		}, sameDeeply[*listener.Listener])
}

// declareSetConflicts finds the listeners of ListenerSets that lose: a Gateway's own come first, then those of the oldest ListenerSet, then of the first
// by name.
func (t *Translator) declareSetConflicts() {
	t.ownByGateway = incremental.NewIndex(t.ownListeners, "Gateways' own listeners",
		func(k listenerKey, _ *listener.Listener) []name { return []name{k.Gateway} })
	t.setSpecsByGateway = incremental.NewIndex(t.setSpecs, "listeners of ListenerSets by Gateway",
		func(k listenerKey, _ setListener) []name { return []name{k.Gateway} })
	t.setConflicts = incremental.FlatMap(t.engine, "listener conflicts of ListenerSets", incremental.Keys(t.setSpecsByGateway, "Gateways with ListenerSets"),
		func(v *incremental.View, n name, _ struct{}) []incremental.Entry[listenerKey, gwv1.ListenerConditionReason] {
			return t.setConflictsOf(v, n)
		}, same[gwv1.ListenerConditionReason])
}

func (t *Translator) setConflictsOf(v *incremental.View, n name) (lost []incremental.Entry[listenerKey, gwv1.ListenerConditionReason]) {
	var ports listener.Ports
	for _, k := range incremental.Lookup(v, t.ownByGateway, n) {
		l, _ := incremental.Fetch(v, t.ownListeners, k)
		ports.Reserve(l) // also of one that is not valid: a mistake of the owner hands nothing to others
	}
	type contender struct {
		key listenerKey
		setListener
	}
	var all []contender
	for _, k := range incremental.Lookup(v, t.setSpecsByGateway, n) {
		s, _ := incremental.Fetch(v, t.setSpecs, k)
		all = append(all, contender{k, s})
	}
	slices.SortFunc(all, func(a, b contender) int {
		return cmp.Or(cmp.Compare(a.Created, b.Created), a.key.Owner().Name.Compare(b.key.Owner().Name), cmp.Compare(a.Position, b.Position))
	})
	for _, c := range all {
		if reason := ports.ClaimOfSet(c.Listener); reason != "" {
			lost = append(lost, incremental.Entry[listenerKey, gwv1.ListenerConditionReason]{Key: c.key, Value: reason})
		}
	}
	return lost
}

// attachedSet is a ListenerSet as a part of a Gateway.
type attachedSet struct {
	Gateway name
	Set     string // as in listenerKey
}

func (s attachedSet) Compare(o attachedSet) int {
	return cmp.Or(s.Gateway.Compare(o.Gateway), cmp.Compare(s.Set, o.Set))
}

// declareAcceptedListenerSets finds the ListenerSets of which a listener is accepted.
func (t *Translator) declareAcceptedListenerSets() {
	accepted := incremental.NewIndex(t.states, "accepted listeners by ListenerSet",
		func(k listenerKey, s *listenerState) []attachedSet {
			if k.Set == "" || !s.Accepted {
				return nil
			}
			return []attachedSet{{k.Gateway, k.Set}}
		})
	t.acceptedSets = incremental.NewIndex(incremental.Keys(accepted, "accepted ListenerSets"), "accepted ListenerSets by Gateway",
		func(s attachedSet, _ struct{}) []name { return []name{s.Gateway} })
}

// attachedListenerSets counts the ListenerSets that are accepted, for a Gateway with those conditions; nil for none.
func (t *Translator) attachedListenerSets(v *incremental.View, n name, conditions []metav1.Condition) *int32 {
	if incremental.Count(v, t.setsByGateway, n) == 0 || meta.IsStatusConditionFalse(conditions, string(gwv1.GatewayConditionAccepted)) {
		return nil
	}
	count := int32(incremental.Count(v, t.acceptedSets, n))
	return &count
}

func (t *Translator) declareListenerSetStatuses() {
	t.setStatuses = incremental.Map(t.engine, "ListenerSet status", t.in.listenerSets.Collection,
		func(v *incremental.View, n name, ls *gwv1.ListenerSet) (*status[gwv1.ListenerSetStatus], bool) {
			set, managed := incremental.Fetch(v, t.listenerSets, n)
			if !managed {
				return nil, false
			}
			return &status[gwv1.ListenerSetStatus]{generationOf(ls), t.listenerSetStatus(v, n, ls, set)}, true
		}, sameDeeply[*status[gwv1.ListenerSetStatus]])
}

func (t *Translator) listenerSetStatus(v *incremental.View, n name, ls *gwv1.ListenerSet, set *listenerSet) (s gwv1.ListenerSetStatus) {
	generation := generationOf(ls)
	refuse := func(accepted, programmed gwv1.ListenerSetConditionReason, message string) gwv1.ListenerSetStatus {
		s.Conditions = condition.Observed(generation, condition.False(gwv1.ListenerSetConditionAccepted, accepted, message),
			condition.False(gwv1.ListenerSetConditionProgrammed, programmed, message))
		return s
	}
	if set.Refused != nil {
		return refuse(gwv1.ListenerSetReasonNotAllowed, gwv1.ListenerSetReasonNotAllowed, set.Refused.String())
	}
	var valid, programmed int
	var bad []string
	on := parentObject{KindListenerSet, n, set.Gateway}
	for _, entry := range ls.Spec.Listeners {
		key := on.listener(string(entry.Name))
		state, exists := incremental.Fetch(v, t.states, key)
		if !exists {
			continue // the Gateway's own translation has panicked
		}
		if state.Accepted {
			valid++
		} else {
			bad = append(bad, string(entry.Name))
		}
		if state.Programmed {
			programmed++
		}
		s.Listeners = append(s.Listeners, gwv1.ListenerEntryStatus{
			Name: entry.Name, SupportedKinds: state.Kinds, AttachedRoutes: int32(incremental.Count(v, t.attached, key)),
			Conditions: condition.Observed(generation, state.Conditions...),
		})
	}
	gw, _ := incremental.Fetch(v, t.gatewayOutcomes, set.Gateway)
	invalid := "spec.listeners: not valid: " + condition.Some(bad) + "; see status.listeners"
	switch {
	case !gw.Accepted:
		return refuse(gwv1.ListenerSetReasonParentNotAccepted, gwv1.ListenerSetReasonParentNotAccepted, "Gateway "+set.Gateway.String()+" is not accepted; see its status")
	case valid == 0:
		return refuse(gwv1.ListenerSetReasonListenersNotValid, gwv1.ListenerSetReasonListenersNotValid, invalid)
	}
	accepted := condition.True(gwv1.ListenerSetConditionAccepted, gwv1.ListenerSetReasonAccepted)
	if len(bad) > 0 {
		accepted.Reason, accepted.Message = string(gwv1.ListenerSetReasonListenersNotValid), invalid
	}
	program := condition.True(gwv1.ListenerSetConditionProgrammed, gwv1.ListenerSetReasonProgrammed)
	switch {
	case !gw.Programmed:
		program = condition.False(gwv1.ListenerSetConditionProgrammed, gwv1.ListenerSetConditionReason("ParentNotProgrammed"),
			"Gateway "+set.Gateway.String()+" is not programmed; see its status")
	case programmed == 0:
		program = condition.False(gwv1.ListenerSetConditionProgrammed, gwv1.ListenerSetReasonListenersNotValid, "no listener can be served; see status.listeners")
	}
	s.Conditions = condition.Observed(generation, accepted, program)
	return s
}
