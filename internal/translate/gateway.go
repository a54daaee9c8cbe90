package translate

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/moongate-dev/moongate/internal/incremental"
	"github.com/moongate-dev/moongate/internal/translate/condition"
	"github.com/moongate-dev/moongate/internal/translate/gateway"
	"github.com/moongate-dev/moongate/internal/translate/parameters"
)

// managedGateway is what does not change of a Gateway of one of our classes.
type managedGateway struct {
	UID     types.UID // "" in manifests that name none
	Created int64     // in nanoseconds since the epoch
}

func (t *Translator) declareGateways() {
	t.gateways = incremental.Map(t.engine, "Gateway", t.in.gateways.Collection,
		func(v *incremental.View, n name, gw *gwv1.Gateway) (*gateway.Gateway, bool) {
			c, ours := incremental.Fetch(v, t.classes, name{"", string(gw.Spec.GatewayClassName)})
			if t.defect != nil {
				t.defect(n)
			}
			if !ours {
				return nil, false
			}
			return t.newGateway(v, gw, c), true
		}, sameDeeply[*gateway.Gateway])
	t.managedGateways = incremental.Map(t.engine, "managed Gateway", t.gateways,
		func(_ *incremental.View, _ name, g *gateway.Gateway) (managedGateway, bool) {
			return managedGateway{g.UID, g.Created}, true
		}, same[managedGateway])
}

func (t *Translator) newGateway(v *incremental.View, gw *gwv1.Gateway, c class) *gateway.Gateway {
	g := gateway.New(gw)
	if c.Problem != nil {
		g.Pending = condition.NewProblem(gwv1.GatewayReasonPending, "spec.gatewayClassName", "see the status of the GatewayClass",
			"GatewayClass %q is not accepted", gw.Spec.GatewayClassName)
	}
	t.applyParameters(v, g, gw, c)
	return g
}

// applyParameters also decides whether the Gateway is served. In a cluster parameters only say how
// proxies run: where they cannot be used those that run go on as they are, and go on serving.
func (t *Translator) applyParameters(v *incremental.View, g *gateway.Gateway, gw *gwv1.Gateway, c class) {
	if infra := gw.Spec.Infrastructure; infra != nil && infra.ParametersRef != nil && isParameters(infra.ParametersRef.Group, infra.ParametersRef.Kind) {
		g.OwnParameters = infra.ParametersRef.Name
	}
	own, wrong := t.ownParameters(v, gw)
	if t.options.Cluster {
		g.Unserved = g.Refused != nil
		g.ParametersUnknown = wrong != nil || c.Problem != nil
		own, refused := parameters.Unlocked(c.Parameters, own)
		for _, field := range refused {
			g.Notes = append(g.Notes, fmt.Sprintf("spec.infrastructure.parametersRef: %s is not used, because GatewayClass %q locks it; remove it",
				field, gw.Spec.GatewayClassName))
		}
		g.Parameters = parameters.Merge(c.Parameters, own)
		if infra := gw.Spec.Infrastructure; infra != nil && !g.ParametersUnknown {
			_, _, leftOut := parameters.Allowed(g.Parameters.ClassOnly, plain(infra.Labels), plain(infra.Annotations))
			for _, field := range leftOut {
				g.Notes = append(g.Notes, fmt.Sprintf("spec.infrastructure.%s: left out, because GatewayClass %q does not allow it; "+
					"remove it, or have it allowed by classOnly.infrastructure of the class's GatewayParameters", field, gw.Spec.GatewayClassName))
			}
		}
	} else {
		g.Unserved = g.Refused != nil || wrong != nil || c.Problem != nil
	}
	if wrong != nil {
		g.Refused = wrong
	}
}

// gatewayOutcome is what ListenerSets need of the status of their Gateway.
type gatewayOutcome struct{ Accepted, Programmed bool }

func (t *Translator) declareGatewayStatuses() {
	t.gatewayStates = incremental.Map(t.engine, "Gateway status", t.gateways,
		func(v *incremental.View, n name, g *gateway.Gateway) (*status[gwv1.GatewayStatus], bool) {
			return &status[gwv1.GatewayStatus]{g.Generation, t.gatewayStatus(v, n, g)}, true
		}, sameDeeply[*status[gwv1.GatewayStatus]])
	t.gatewayOutcomes = incremental.Map(t.engine, "Gateway's outcome", t.gatewayStates,
		func(_ *incremental.View, _ name, s *status[gwv1.GatewayStatus]) (gatewayOutcome, bool) {
			is := func(c gwv1.GatewayConditionType) bool {
				return meta.IsStatusConditionTrue(s.Status.Conditions, string(c))
			}
			return gatewayOutcome{is(gwv1.GatewayConditionAccepted), is(gwv1.GatewayConditionProgrammed)}, true
		}, same[gatewayOutcome])
}

// gatewayStatus reads the listeners and how many routes each has, but no route.
func (t *Translator) gatewayStatus(v *incremental.View, n name, g *gateway.Gateway) gwv1.GatewayStatus {
	var s gwv1.GatewayStatus
	var sum gateway.Summary
	for _, listener := range g.Listeners {
		key := listenerKey{Gateway: n, Name: listener}
		state, _ := incremental.Fetch(v, t.states, key)
		sum.Add(listener, state.Accepted, state.Resolved, state.Programmed)
		s.Listeners = append(s.Listeners, gwv1.ListenerStatus{
			Name:           gwv1.SectionName(listener),
			SupportedKinds: state.Kinds,
			AttachedRoutes: int32(incremental.Count(v, t.attached, key)),
			Conditions:     condition.Observed(g.Generation, state.Conditions...),
		})
	}
	var unreached *condition.Problem
	var lagging string
	if t.options.Cluster {
		s.Addresses, unreached, lagging = t.clusterAddresses(v, n, g)
	} else {
		s.Addresses, unreached = t.localAddresses(v, n, g)
	}
	s.Conditions = condition.Observed(g.Generation, g.Conditions(&sum, unreached, lagging)...)
	s.AttachedListenerSets = t.attachedListenerSets(v, n, s.Conditions)
	return s
}
