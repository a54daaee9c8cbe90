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
	t.undecodedPolicies = incremental.NewIndex(t.in.undecodedPolicies.Collection, "undecoded BackendTLSPolicies by namespace",
		func(n name, _ undecodedPolicy) []string { return []string{n.Namespace} })
}

func targetServices(n name, p *gwv1.BackendTLSPolicy) (out []name) {
	for _, ref := range p.Spec.TargetRefs {
		if ref.Group == corev1.GroupName && ref.Kind == gwv1.Kind(KindService) {
			out = append(out, name{n.Namespace, string(ref.Name)})
		}
	}
	return out
}

// undecodedPolicy is what is known of a BackendTLSPolicy that cannot be decoded.
type undecodedPolicy struct {
	Error   string
	Targets []gwv1.LocalPolicyTargetReferenceWithSectionName // none: any Service of the namespace may be one
}

// checkBackendTLSPolicies looks for a policy that is for a Service's port, or may be.
func (t *Translator) checkBackendTLSPolicies(v *incremental.View, svc name, portName, field string) *condition.Problem {
	for _, n := range incremental.Lookup(v, t.policiesByService, svc) {
		if p, _ := incremental.Fetch(v, t.in.policies.Collection, n); targets(p.Spec.TargetRefs, svc, portName) {
			return condition.NewProblem(gwv1.RouteReasonUnsupportedProtocol, field, "remove the BackendTLSPolicy to reach the Service without TLS",
				"BackendTLSPolicy %s asks for TLS to Service %s, which is not supported yet", n, svc)
		}
	}
	for _, n := range incremental.Lookup(v, t.undecodedPolicies, svc.Namespace) {
		if p, _ := incremental.Fetch(v, t.in.undecodedPolicies.Collection, n); len(p.Targets) == 0 || targets(p.Targets, svc, portName) {
			return condition.NewProblem(gwv1.RouteReasonUnsupportedProtocol, field, "correct it, or install the CustomResourceDefinitions of this version",
				"BackendTLSPolicy %s, which may ask for TLS to Service %s, cannot be decoded: %s", n, svc, p.Error)
		}
	}
	return nil
}

// targets reports whether one of a policy's targetRefs is a Service as a whole, or its port of that name.
func targets(refs []gwv1.LocalPolicyTargetReferenceWithSectionName, svc name, portName string) bool {
	return slices.ContainsFunc(refs, func(ref gwv1.LocalPolicyTargetReferenceWithSectionName) bool {
		return ref.Group == corev1.GroupName && ref.Kind == gwv1.Kind(KindService) && string(ref.Name) == svc.Name &&
			(ref.SectionName == nil || string(*ref.SectionName) == portName)
	})
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
