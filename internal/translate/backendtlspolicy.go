package translate

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/moongate-dev/moongate/internal/incremental"
	"github.com/moongate-dev/moongate/internal/translate/condition"
)

// BackendTLSPolicies are not supported yet. Until then a backend that has one is
// invalid, since reaching it without TLS would be worse than not at all.

// maxAncestors is the length that the API server allows for status.ancestors.
const maxAncestors = 16

func (t *Translator) declareBackendTLSPolicies() {
	t.policiesByService = incremental.NewIndex(t.in.policies.Collection, "BackendTLSPolicies by Service",
		func(n name, p *gwv1.BackendTLSPolicy) []name { return targetServices(n, p) })
}

func targetServices(n name, p *gwv1.BackendTLSPolicy) (out []name) {
	for _, ref := range p.Spec.TargetRefs {
		if ref.Group == corev1.GroupName && ref.Kind == gwv1.Kind(KindService) {
			out = append(out, name{n.Namespace, string(ref.Name)})
		}
	}
	return out
}

// backendTLSPolicy finds a policy for a Service's port: one for the whole Service
// or for the port's name.
func (t *Translator) backendTLSPolicy(v *incremental.View, svc name, portName string) (name, bool) {
	for _, n := range incremental.Lookup(v, t.policiesByService, svc) {
		p, _ := incremental.Fetch(v, t.in.policies.Collection, n)
		for _, ref := range p.Spec.TargetRefs {
			if string(ref.Name) == svc.Name && (ref.SectionName == nil || string(*ref.SectionName) == portName) {
				return n, true
			}
		}
	}
	return name{}, false
}

// declareBackendTLSPolicyStatuses reports on each Gateway that reaches a target
// through a route.
func (t *Translator) declareBackendTLSPolicyStatuses() {
	t.policyStatuses = incremental.Map(t.engine, "BackendTLSPolicy status", t.in.policies.Collection,
		func(v *incremental.View, n name, p *gwv1.BackendTLSPolicy) (*status[gwv1.PolicyStatus], bool) {
			var gateways []name
			for _, svc := range targetServices(n, p) {
				for _, route := range incremental.Lookup(v, t.referrers, svc) {
					if a, attached := incremental.Fetch(v, t.attachments, route); attached {
						gateways = append(gateways, a.Gateways...)
					}
				}
			}
			slices.SortFunc(gateways, name.Compare)
			gateways = slices.Compact(gateways)
			s := &status[gwv1.PolicyStatus]{Generation: generationOf(p)}
			for _, gw := range gateways[:min(len(gateways), maxAncestors)] {
				s.Status.Ancestors = append(s.Status.Ancestors, t.ancestor(gw, s.Generation))
			}
			return s, len(gateways) > 0
		}, sameDeeply[*status[gwv1.PolicyStatus]])
}

func (t *Translator) ancestor(gateway name, generation int64) gwv1.PolicyAncestorStatus {
	group, kind, namespace := gwv1.Group(gwv1.GroupName), gwv1.Kind(KindGateway), gwv1.Namespace(gateway.Namespace)
	p := condition.NewProblem(gwv1.PolicyReasonInvalid, "", "remove it to reach the backends without TLS",
		"BackendTLSPolicy is not supported yet; requests to its targets are answered with 500")
	return gwv1.PolicyAncestorStatus{
		AncestorRef:    gwv1.ParentReference{Group: &group, Kind: &kind, Namespace: &namespace, Name: gwv1.ObjectName(gateway.Name)},
		ControllerName: gwv1.GatewayController(t.options.ControllerName),
		Conditions:     condition.Observed(generation, condition.False(gwv1.PolicyConditionAccepted, p.Reason, p.String())),
	}
}
