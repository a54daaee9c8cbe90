package translate

import (
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/moongate-dev/moongate/internal/incremental"
	"github.com/moongate-dev/moongate/internal/translate/condition"
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
			set.Refused = condition.NewProblem(gwv1.ListenerSetReasonNotAllowed, "spec.parentRef", "move its listeners to the Gateway",
				"ListenerSets are not supported yet")
			return set, managed
		}, sameDeeply[*listenerSet])
}

func (t *Translator) declareListenerSetStatuses() {
	t.setStatuses = incremental.Map(t.engine, "ListenerSet status", t.in.listenerSets.Collection,
		func(v *incremental.View, n name, ls *gwv1.ListenerSet) (*status[gwv1.ListenerSetStatus], bool) {
			set, managed := incremental.Fetch(v, t.listenerSets, n)
			if !managed {
				return nil, false
			}
			p, generation := set.Refused, generationOf(ls)
			return &status[gwv1.ListenerSetStatus]{generation, gwv1.ListenerSetStatus{Conditions: condition.Observed(generation,
				condition.False(gwv1.ListenerSetConditionAccepted, p.Reason, p.String()),
				condition.False(gwv1.ListenerSetConditionProgrammed, p.Reason, p.String()))}}, true
		}, sameDeeply[*status[gwv1.ListenerSetStatus]])
}
