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
			_, managed := incremental.Fetch(v, t.managedGateways, set.Gateway)
			if managed {
				set.Refused = t.listenerSetRefused(v, n, set.Gateway)
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
func (t *Translator) listenerSetRefused(v *incremental.View, n, gateway name) *condition.Problem {
	gw, _ := incremental.Fetch(v, t.in.gateways.Collection, gateway)
	from, selector := gwv1.NamespacesFromNone, (*metav1.LabelSelector)(nil)
	if allowed := gw.Spec.AllowedListeners; allowed != nil && allowed.Namespaces != nil {
		from, selector = value(allowed.Namespaces.From, from), allowed.Namespaces.Selector
	}
	switch {
	case from == gwv1.NamespacesFromAll, from == gwv1.NamespacesFromSame && n.Namespace == gateway.Namespace,
		from == gwv1.NamespacesFromSelector && t.selects(v, selector, n.Namespace):
		return nil
	}
	return condition.NewProblem(gwv1.ListenerSetReasonNotAllowed, "spec.parentRef", "change spec.allowedListeners of the Gateway, or attach elsewhere",
		"Gateway %s takes no ListenerSets of namespace %s", gateway, n.Namespace)
}

// listenersOfSets are the listeners that ListenerSets add to a Gateway's own: the oldest ListenerSet comes first, then by name, and of
// listeners in conflict the first wins.
func (t *Translator) listenersOfSets(v *incremental.View, n name, gw *gwv1.Gateway, own []*listener.Listener, o listener.Options) (entries []incremental.Entry[listenerKey, *listener.Listener]) {
	var sets []*gwv1.ListenerSet
	for _, set := range incremental.Lookup(v, t.setsByGateway, n) {
		ls, _ := incremental.Fetch(v, t.in.listenerSets.Collection, set)
		sets = append(sets, ls)
	}
	if len(sets) == 0 {
		return nil
	}
	var ports listener.Ports
	for _, l := range own {
		ports.Reserve(l) // also of one that is not valid: a mistake of the owner hands nothing to others
	}
	slices.SortStableFunc(sets, func(a, b *gwv1.ListenerSet) int { return cmp.Compare(createdOf(a), createdOf(b)) })
	for _, ls := range sets {
		list := listener.OfSet(ls, gw, o)
		listener.Claim(&ports, list)
		for _, l := range list {
			entries = append(entries, incremental.Entry[listenerKey, *listener.Listener]{Key: listenerKey{n, nameOf(ls).String(), l.Name}, Value: l})
		}
	}
	return entries
}

// attachedListenerSets counts the ListenerSets that are accepted, for a Gateway with those conditions; nil for none.
func (t *Translator) attachedListenerSets(v *incremental.View, n name, conditions []metav1.Condition) *int32 {
	sets := incremental.Lookup(v, t.setsByGateway, n)
	if len(sets) == 0 || meta.IsStatusConditionFalse(conditions, string(gwv1.GatewayConditionAccepted)) {
		return nil
	}
	accepted := map[string]bool{}
	for _, k := range incremental.Lookup(v, t.listenersByGateway, n) {
		if state, _ := incremental.Fetch(v, t.states, k); k.Set != "" && state.Accepted {
			accepted[k.Set] = true
		}
	}
	count := int32(len(accepted))
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
	gw, _ := incremental.Fetch(v, t.gatewayStates, set.Gateway)
	is := func(c gwv1.GatewayConditionType) bool {
		return gw != nil && meta.IsStatusConditionTrue(gw.Status.Conditions, string(c))
	}
	invalid := "spec.listeners: not valid: " + condition.Some(bad) + "; see status.listeners"
	switch {
	case !is(gwv1.GatewayConditionAccepted):
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
	case !is(gwv1.GatewayConditionProgrammed):
		program = condition.False(gwv1.ListenerSetConditionProgrammed, gwv1.ListenerSetConditionReason("ParentNotProgrammed"),
			"Gateway "+set.Gateway.String()+" is not programmed; see its status")
	case programmed == 0:
		program = condition.False(gwv1.ListenerSetConditionProgrammed, gwv1.ListenerSetReasonListenersNotValid, "no listener can be served; see status.listeners")
	}
	s.Conditions = condition.Observed(generation, accepted, program)
	return s
}
