package translate

import (
	"cmp"
	"maps"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	gwx "github.com/moongate-dev/moongate/api/gatewayx/v1alpha1"
	"github.com/moongate-dev/moongate/internal/incremental"
	"github.com/moongate-dev/moongate/internal/kind"
	"github.com/moongate-dev/moongate/internal/translate/condition"
	"github.com/moongate-dev/moongate/internal/translate/listener"
)

// reasonParentNotProgrammed is a reason of condition Programmed. The API names it in a comment and has no constant for it.
const reasonParentNotProgrammed gwv1.ListenerSetConditionReason = "ParentNotProgrammed"

// listenerSet is a ListenerSet of a Gateway that is managed here.
type listenerSet struct {
	Gateway name
	Refused *condition.Problem // why it is not attached to the Gateway
}

func (lis *listeners) declareListenerSets(e *incremental.Engine) {
	lis.sets = incremental.Map(e, "ListenerSet", lis.listenerSetObjects,
		func(v *incremental.View, k kindName, o metav1.Object) (*listenerSet, bool) {
			n := k.Name
			ref, _ := kind.ParentGatewayOf(o)
			if ptr.Deref(ref.Group, gwv1.GroupName) != gwv1.GroupName || ptr.Deref(ref.Kind, gwv1.Kind(KindGateway)) != gwv1.Kind(KindGateway) {
				return nil, false
			}
			set := &listenerSet{Gateway: name{string(ptr.Deref(ref.Namespace, gwv1.Namespace(n.Namespace))), string(ref.Name)}}
			terms, managed := incremental.Fetch(v, lis.gateways.terms, set.Gateway)
			if managed {
				set.Refused = lis.listenerSetRefused(v, n, set.Gateway, terms.ListenerSets)
			}
			return set, managed
		}, sameDeeply[*listenerSet])
	lis.setsNaming = incremental.NewIndex(lis.sets, "ListenerSets that name a Gateway", func(_ kindName, s *listenerSet) []name { return []name{s.Gateway} })
	lis.setsByGateway = incremental.NewIndex(lis.sets, "ListenerSets by Gateway",
		func(_ kindName, s *listenerSet) []name {
			if s.Refused != nil {
				return nil
			}
			return []name{s.Gateway}
		})
}

// listenerSetRefused returns why a Gateway does not accept a ListenerSet, or nil.
func (lis *listeners) listenerSetRefused(v *incremental.View, n, gateway name, allowed listener.Namespaces) *condition.Problem {
	switch from := allowed.From; {
	case from == gwv1.NamespacesFromAll, from == gwv1.NamespacesFromSame && n.Namespace == gateway.Namespace,
		from == gwv1.NamespacesFromSelector && lis.namespaces.selects(v, allowed.Selector, n.Namespace):
		return nil
	}
	return condition.NewProblem(gwv1.ListenerSetReasonNotAllowed, "spec.parentRef", "change spec.allowedListeners of the Gateway, or attach elsewhere",
		"Gateway %s takes no ListenerSets of namespace %s", gateway, n.Namespace)
}

// setListener is a listener of a ListenerSet before the check for conflicts with others of its Gateway.
type setListener struct {
	Created  int64 // of the ListenerSet, in nanoseconds since the epoch
	Position int   // in its spec
	Listener *listener.Listener
}

// declareListenersOfSets adds the listeners of ListenerSets to those of the Gateway itself. Each ListenerSet is read separately, so
// that an edit of one does not affect the others of its Gateway.
func (lis *listeners) declareListenersOfSets(e *incremental.Engine) {
	lis.setSpecs = incremental.FlatMap(e, "ListenerSet listeners", lis.listenerSetObjects,
		func(v *incremental.View, owner kindName, object metav1.Object) (entries []incremental.Entry[listenerKey, setListener]) {
			set, managed := incremental.Fetch(v, lis.sets, owner)
			if !managed || set.Refused != nil {
				return nil
			}
			o, _ := lis.listenerOptions(v, set.Gateway)
			for i, l := range listener.OfSet(object, o) {
				entries = append(entries, incremental.Entry[listenerKey, setListener]{
					Key: listenerKey{set.Gateway, setOf(owner), l.Name}, Value: setListener{createdOf(object), i, l},
				})
			}
			return entries
		}, sameDeeply[setListener])
	lis.declareSetConflicts(e)
	lis.ofSets = incremental.Map(e, "ListenerSet listener", lis.setSpecs,
		func(v *incremental.View, k listenerKey, s setListener) (*listener.Listener, bool) {
			if reason, lost := incremental.Fetch(v, lis.setConflicts, k); lost {
				return s.Listener.Lost(reason), true
			}
			return s.Listener, true
		}, sameDeeply[*listener.Listener])
}

// declareSetConflicts finds the listeners of ListenerSets that lose a conflict: listeners of the Gateway itself come first, then
// those of the oldest ListenerSet, then of the first by name.
func (lis *listeners) declareSetConflicts(e *incremental.Engine) {
	lis.ownByGateway = incremental.NewIndex(lis.own, "Gateways' own listeners",
		func(k listenerKey, _ *listener.Listener) []name { return []name{k.Gateway} })
	lis.setSpecsByGateway = incremental.NewIndex(lis.setSpecs, "listeners of ListenerSets by Gateway",
		func(k listenerKey, _ setListener) []name { return []name{k.Gateway} })
	lis.setSpecsByOwner = incremental.NewIndex(lis.setSpecs, "listeners of ListenerSets by ListenerSet",
		func(k listenerKey, _ setListener) []kindName { return []kindName{k.Owner()} })
	lis.setConflicts = incremental.FlatMap(e, "listener conflicts of ListenerSets", incremental.Keys(lis.setSpecsByGateway, "Gateways with ListenerSets"),
		func(v *incremental.View, n name, _ struct{}) []incremental.Entry[listenerKey, gwv1.ListenerConditionReason] {
			return lis.setConflictsOf(v, n)
		}, same[gwv1.ListenerConditionReason])
}

// httpsPorts returns the ports of a Gateway's own HTTPS listeners, and all with those of its ListenerSets; won are those of listeners
// that lose no conflict.
func (lis *listeners) httpsPorts(v *incremental.View, n name) (own, all, won map[int32]bool) {
	own, all, won = map[int32]bool{}, map[int32]bool{}, map[int32]bool{}
	note := func(k listenerKey, l *listener.Listener) {
		if l.Protocol != gwv1.HTTPSProtocolType {
			return
		}
		all[l.Port] = true
		if l.Conflict == nil && lis.portConflict(v, k, l) == nil {
			won[l.Port] = true
		}
	}
	for _, k := range incremental.Lookup(v, lis.ownByGateway, n) {
		l, _ := incremental.Fetch(v, lis.own, k)
		note(k, l)
	}
	maps.Copy(own, all)
	for _, k := range incremental.Lookup(v, lis.setSpecsByGateway, n) {
		l, _ := incremental.Fetch(v, lis.ofSets, k)
		note(k, l)
	}
	return own, all, won
}

func (lis *listeners) setConflictsOf(v *incremental.View, n name) (lost []incremental.Entry[listenerKey, gwv1.ListenerConditionReason]) {
	var ports listener.Ports
	for _, k := range incremental.Lookup(v, lis.ownByGateway, n) {
		l, _ := incremental.Fetch(v, lis.own, k)
		ports.Reserve(l) // also if it is invalid: otherwise a mistake of the owner would give the port to others
	}
	type contender struct {
		key listenerKey
		setListener
	}
	var all []contender
	for _, k := range incremental.Lookup(v, lis.setSpecsByGateway, n) {
		s, _ := incremental.Fetch(v, lis.setSpecs, k)
		all = append(all, contender{k, s})
	}
	slices.SortFunc(all, func(a, b contender) int {
		return cmp.Or(cmp.Compare(a.Created, b.Created), a.key.Owner().Name.precedence(b.key.Owner().Name), cmp.Compare(a.key.Owner().Kind, b.key.Owner().Kind), cmp.Compare(a.Position, b.Position))
	})
	for _, c := range all {
		if reason := ports.ClaimOfSet(c.Listener); reason != "" {
			lost = append(lost, incremental.Entry[listenerKey, gwv1.ListenerConditionReason]{Key: c.key, Value: reason})
		}
	}
	return lost
}

// listenerSetStatuses computes the statuses of ListenerSets.
type listenerSetStatuses struct {
	listenerStates  *listenerStates
	routes          *routes
	gatewayStatuses *gatewayStatuses

	all     *incremental.Collection[kindName, *status[gwv1.ListenerSetStatus]] // of every kind
	current *incremental.Collection[kindName, *status[gwv1.ListenerSetStatus]] // of ListenerSets
	former  *incremental.Collection[kindName, *status[gwx.ListenerSetStatus]]  // of XListenerSets
}

func newListenerSetStatuses(e *incremental.Engine,
	listenerSetObjects *incremental.Collection[kindName, metav1.Object],
	listeners *listeners, listenerStates *listenerStates, routes *routes, gatewayStatuses *gatewayStatuses) *listenerSetStatuses {
	lst := &listenerSetStatuses{listenerStates: listenerStates, routes: routes, gatewayStatuses: gatewayStatuses}
	lst.all = incremental.Map(e, "ListenerSet status", listenerSetObjects,
		func(v *incremental.View, k kindName, o metav1.Object) (*status[gwv1.ListenerSetStatus], bool) {
			set, managed := incremental.Fetch(v, listeners.sets, k)
			if !managed {
				return nil, false
			}
			return &status[gwv1.ListenerSetStatus]{generationOf(o), lst.listenerSetStatus(v, k, o, set)}, true
		}, sameDeeply[*status[gwv1.ListenerSetStatus]])
	lst.current = incremental.Map(e, "status of a ListenerSet", lst.all,
		func(_ *incremental.View, k kindName, s *status[gwv1.ListenerSetStatus]) (*status[gwv1.ListenerSetStatus], bool) {
			return s, k.Kind == KindListenerSet
		}, sameDeeply[*status[gwv1.ListenerSetStatus]])
	lst.former = incremental.Map(e, "status of an XListenerSet", lst.all,
		func(v *incremental.View, k kindName, s *status[gwv1.ListenerSetStatus]) (*status[gwx.ListenerSetStatus], bool) {
			if k.Kind != KindXListenerSet {
				return nil, false
			}
			o, _ := incremental.Fetch(v, listenerSetObjects, k)
			return &status[gwx.ListenerSetStatus]{s.Generation, formerStatus(o, s.Status)}, true
		}, sameDeeply[*status[gwx.ListenerSetStatus]])
	return lst
}

// formerStatus returns the status of an XListenerSet, which also contains the ports.
func formerStatus(o metav1.Object, s gwv1.ListenerSetStatus) gwx.ListenerSetStatus {
	ports := map[gwv1.SectionName]int32{}
	for _, entry := range listener.EntriesOf(o) {
		ports[entry.Name] = entry.Port
	}
	former := gwx.ListenerSetStatus{Conditions: s.Conditions}
	for _, l := range s.Listeners {
		former.Listeners = append(former.Listeners, gwx.ListenerEntryStatus{
			Name: l.Name, Port: ports[l.Name], SupportedKinds: l.SupportedKinds, AttachedRoutes: l.AttachedRoutes, Conditions: l.Conditions,
		})
	}
	return former
}

func (lst *listenerSetStatuses) listenerSetStatus(v *incremental.View, k kindName, o metav1.Object, set *listenerSet) (s gwv1.ListenerSetStatus) {
	generation := generationOf(o)
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
	on := parentObject{k.Kind, k.Name, set.Gateway}
	for _, entry := range listener.EntriesOf(o) {
		key := on.listener(string(entry.Name))
		state, exists := incremental.Fetch(v, lst.listenerStates.all, key)
		if !exists {
			continue // reading the listeners panicked
		}
		if state.Valid {
			valid++
		} else {
			bad = append(bad, string(entry.Name))
		}
		if state.Programmed {
			programmed++
		}
		s.Listeners = append(s.Listeners, gwv1.ListenerEntryStatus{
			Name: entry.Name, SupportedKinds: state.Kinds, AttachedRoutes: lst.routes.attachedRoutes(v, key),
			Conditions: condition.Observed(generation, state.Conditions...),
		})
	}
	gw, _ := incremental.Fetch(v, lst.gatewayStatuses.outcomes, set.Gateway)
	invalid := "spec.listeners: not valid: " + condition.Some(bad) + "; see status.listeners"
	switch {
	case !gw.ServesSets:
		return refuse(gwv1.ListenerSetReasonParentNotAccepted, reasonParentNotProgrammed, "Gateway "+set.Gateway.String()+" is not accepted; see its status")
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
		message := "Gateway " + set.Gateway.String() + " is not programmed; see its status"
		if programmed > 0 { // otherwise only the Gateway's own listeners may keep it from being programmed
			message += ". Listeners of this " + string(k.Kind) + " that are programmed in status.listeners are served all the same"
		}
		program = condition.False(gwv1.ListenerSetConditionProgrammed, reasonParentNotProgrammed, message)
	case programmed == 0:
		program = condition.False(gwv1.ListenerSetConditionProgrammed, gwv1.ListenerSetReasonListenersNotValid, "no listener can be served; see status.listeners")
	}
	s.Conditions = condition.Observed(generation, accepted, program)
	return s
}
