package translate

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/moongate-dev/moongate/api/v1alpha1"
	"github.com/moongate-dev/moongate/internal/incremental"
	"github.com/moongate-dev/moongate/internal/translate/condition"
	"github.com/moongate-dev/moongate/internal/translate/parameters"
)

// gateway is a Gateway of one of our classes, apart from its listeners.
type gateway struct {
	Generation int64
	Pending    *condition.Problem // its class is not accepted
	Refused    *condition.Problem // why it is not accepted, apart from its listeners
	Refs       *condition.Problem // a reference of the Gateway itself that does not resolve
	Notes      []string           // fields that are not supported and change nothing that is
	Listeners  []string           // names in the order of the spec, distinct
	Unserved   bool               // no listener of it is served
	Binds      []string           // IP addresses of spec.addresses
	Asked      []string           // the same in order, among entries that leave the choice to us, which are ""
	// Default says that the process's default addresses are used: there is no
	// spec.addresses, or only entries that leave the choice to us.
	Default bool
	// Unassigned are the fields of spec.addresses without a value.
	Unassigned []string

	// Parameters and Held are for the Plan.
	Parameters v1alpha1.GatewayParametersSpec
	Held       bool
}

func (t *Translator) declareGateways() {
	t.gateways = incremental.Map(t.engine, "Gateway", t.in.gateways.Collection,
		func(v *incremental.View, n name, gw *gwv1.Gateway) (*gateway, bool) {
			c, ours := incremental.Fetch(v, t.classes, name{"", string(gw.Spec.GatewayClassName)})
			if !ours {
				return nil, false
			}
			return t.newGateway(v, gw, c), true
		}, sameDeeply[*gateway])
	t.owned = incremental.Map(t.engine, "Gateway is ours", t.gateways,
		func(*incremental.View, name, *gateway) (bool, bool) { return true, true }, same[bool])
	t.ownedSets = incremental.Map(t.engine, "ListenerSet is ours", t.in.listenerSets.Collection,
		func(v *incremental.View, n name, ls *gwv1.ListenerSet) (bool, bool) {
			ref := ls.Spec.ParentRef
			if value(ref.Group, gwv1.GroupName) != gwv1.GroupName || value(ref.Kind, gwv1.Kind(KindGateway)) != gwv1.Kind(KindGateway) {
				return false, false
			}
			gw := name{string(value(ref.Namespace, gwv1.Namespace(n.Namespace))), string(ref.Name)}
			return incremental.Fetch(v, t.owned, gw)
		}, same[bool])
}

func (t *Translator) newGateway(v *incremental.View, gw *gwv1.Gateway, c class) *gateway {
	g := &gateway{Generation: generationOf(gw)}
	if c.Problem != nil {
		g.Pending = condition.NewProblem(gwv1.GatewayReasonPending, "spec.gatewayClassName", "see the status of the GatewayClass",
			"GatewayClass %q is not accepted", gw.Spec.GatewayClassName)
	}
	for _, l := range gw.Spec.Listeners {
		if !slices.Contains(g.Listeners, string(l.Name)) {
			g.Listeners = append(g.Listeners, string(l.Name))
		}
	}
	g.addresses(gw.Spec.Addresses)
	g.Default = len(g.Binds) == 0 && g.Refused == nil
	t.applyParameters(v, g, gw, c)
	if tls := gw.Spec.TLS; tls != nil && tls.Backend != nil && tls.Backend.ClientCertificateRef != nil {
		g.Refs = condition.NewProblem(gwv1.GatewayReasonInvalidClientCertificateRef, "spec.tls.backend.clientCertificateRef",
			"remove it: backends are reached without TLS", "client certificates for backends are not supported yet")
	}
	if s := gw.Spec.DefaultScope; s != "" && s != gwv1.GatewayDefaultScopeNone {
		g.Notes = append(g.Notes, fmt.Sprintf("spec.defaultScope: %q is not supported yet: routes attach by their parentRefs only", s))
	}
	return g
}

// applyParameters also decides whether the Gateway is served. In a cluster parameters only say how
// proxies run: where they cannot be used those that run go on as they are, and go on serving.
func (t *Translator) applyParameters(v *incremental.View, g *gateway, gw *gwv1.Gateway, c class) {
	own, wrong := t.ownParameters(v, gw)
	if t.options.Cluster {
		g.Unserved = g.Refused != nil
		g.Held = wrong != nil || c.Problem != nil
		g.Parameters = parameters.Merge(c.Parameters, own)
	} else {
		g.Unserved = g.Refused != nil || wrong != nil || c.Problem != nil
	}
	if wrong != nil {
		g.Refused = wrong
	}
}

// addresses sorts spec.addresses by what can be done with them.
func (g *gateway) addresses(list []gwv1.GatewaySpecAddress) {
	for i, a := range list {
		field := fmt.Sprintf("spec.addresses[%d]", i)
		kind := value(a.Type, gwv1.IPAddressType)
		switch ip, err := netip.ParseAddr(a.Value); {
		case kind != gwv1.IPAddressType:
			g.refuse(condition.NewProblem(gwv1.GatewayReasonUnsupportedAddress, field+".type", "use type IPAddress",
				"addresses of type %s are not supported", kind))
		case a.Routability != "":
			g.refuse(condition.NewProblem(gwv1.GatewayReasonUnsupportedAddress, field+".routability", "remove routability",
				"routability %q is not supported yet", a.Routability))
		case a.Value == "":
			g.Unassigned = append(g.Unassigned, field)
			g.Asked = append(g.Asked, "")
		case err != nil:
			g.refuse(condition.NewProblem(gwv1.GatewayReasonUnsupportedAddress, field+".value", "write an IPv4 or IPv6 address",
				"%q is not an IP address", a.Value))
		case !slices.Contains(g.Binds, ip.String()):
			g.Binds = append(g.Binds, ip.String())
			g.Asked = append(g.Asked, ip.String())
		}
	}
}

// refuse keeps the first problem: one is enough to act on.
func (g *gateway) refuse(p *condition.Problem) {
	if g.Refused == nil {
		g.Refused = p
	}
}

func (t *Translator) declareGatewayStatuses() {
	t.gatewayStates = incremental.Map(t.engine, "Gateway status", t.gateways,
		func(v *incremental.View, n name, g *gateway) (*status[gwv1.GatewayStatus], bool) {
			return &status[gwv1.GatewayStatus]{g.Generation, t.gatewayStatus(v, n, g)}, true
		}, sameDeeply[*status[gwv1.GatewayStatus]])
}

// gatewayStatus reads the listeners and how many routes each has, but no route.
func (t *Translator) gatewayStatus(v *incremental.View, n name, g *gateway) gwv1.GatewayStatus {
	var s gwv1.GatewayStatus
	sum := listenerSummary{}
	for _, listener := range g.Listeners {
		key := listenerKey{n, listener}
		state, _ := incremental.Fetch(v, t.states, key)
		sum.add(listener, state)
		s.Listeners = append(s.Listeners, gwv1.ListenerStatus{
			Name:           gwv1.SectionName(listener),
			SupportedKinds: state.Kinds,
			AttachedRoutes: int32(incremental.Count(v, t.attached, key)),
			Conditions:     condition.Observed(g.Generation, state.Conditions...),
		})
	}
	var unreached *condition.Problem
	if t.options.Cluster {
		s.Addresses, unreached = t.clusterReach(v, n, g)
	} else {
		s.Addresses, unreached = t.ownReach(v, n, g)
	}
	accepted := g.accepted(&sum)
	s.Conditions = condition.Observed(g.Generation, accepted, g.programmed(accepted, &sum, unreached), g.resolved(&sum))
	return s
}

// listenerSummary is what the listeners' states mean for their Gateway.
type listenerSummary struct {
	accepted, refused, unresolved []string
	programmed                    int
}

func (s *listenerSummary) add(listener string, state *listenerState) {
	if state.Accepted {
		s.accepted = append(s.accepted, listener)
	} else {
		s.refused = append(s.refused, listener)
	}
	if !state.Resolved {
		s.unresolved = append(s.unresolved, listener)
	}
	if state.Programmed {
		s.programmed++
	}
}

func (g *gateway) accepted(sum *listenerSummary) metav1.Condition {
	switch {
	case g.Pending != nil:
		return condition.Unknown(gwv1.GatewayConditionAccepted, gwv1.GatewayReasonPending, g.Pending.String())
	case g.Refused != nil:
		return condition.False(gwv1.GatewayConditionAccepted, g.Refused.Reason, g.Refused.String())
	}
	c := condition.True(gwv1.GatewayConditionAccepted, gwv1.GatewayReasonAccepted)
	notes := slices.Clone(g.Notes)
	if len(sum.refused) > 0 || len(sum.accepted) == 0 {
		c.Reason = string(gwv1.GatewayReasonListenersNotValid)
		notes = append(notes, sum.message())
	}
	if len(sum.accepted) == 0 {
		c.Status = metav1.ConditionFalse
	}
	c.Message = strings.Join(notes, ". ")
	return c
}

func (s *listenerSummary) message() string {
	if len(s.refused) == 0 {
		return "spec.listeners: there is no listener; add one"
	}
	valid := "no listener is valid"
	if len(s.accepted) > 0 {
		valid = "accepted: " + condition.Quoted(s.accepted)
	}
	return "spec.listeners: not valid: " + condition.Quoted(s.refused) + "; " + valid + "; see status.listeners"
}

// programmed takes why clients cannot reach the Gateway, or nil.
func (g *gateway) programmed(accepted metav1.Condition, sum *listenerSummary, unreached *condition.Problem) metav1.Condition {
	refuse := func(r gwv1.GatewayConditionReason, message string) metav1.Condition {
		return condition.False(gwv1.GatewayConditionProgrammed, r, message)
	}
	switch {
	case g.Pending != nil:
		return refuse(gwv1.GatewayReasonPending, g.Pending.String())
	case accepted.Status != metav1.ConditionTrue:
		return refuse(gwv1.GatewayReasonInvalid, "the Gateway is not accepted; see condition Accepted")
	case unreached != nil:
		return refuse(gwv1.GatewayConditionReason(unreached.Reason), unreached.String())
	case sum.programmed == 0:
		return refuse(gwv1.GatewayReasonInvalid, "spec.listeners: no listener can be served; see status.listeners")
	}
	return condition.True(gwv1.GatewayConditionProgrammed, gwv1.GatewayReasonProgrammed)
}

func (g *gateway) resolved(sum *listenerSummary) metav1.Condition {
	switch {
	case g.Refs != nil:
		return condition.False(gwv1.GatewayConditionResolvedRefs, g.Refs.Reason, g.Refs.String())
	case len(sum.unresolved) > 0:
		return condition.False(gwv1.GatewayConditionResolvedRefs, gwv1.GatewayReasonListenersNotResolved,
			"spec.listeners: references do not resolve: "+condition.Quoted(sum.unresolved)+"; see status.listeners")
	}
	return condition.True(gwv1.GatewayConditionResolvedRefs, gwv1.GatewayReasonResolvedRefs)
}
