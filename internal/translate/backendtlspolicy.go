package translate

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/moongate-dev/moongate/internal/incremental"
	"github.com/moongate-dev/moongate/internal/translate/condition"
	"github.com/moongate-dev/moongate/internal/translate/policy"
)

// BackendTLSPolicies are not supported yet. Until then a backend that has one is
// invalid, since reaching it without TLS would be worse than not at all.

// backendTLSLayer is what is known of BackendTLSPolicies.
type backendTLSLayer struct {
	policiesByTarget  *incremental.Index[policy.Target, name, *gwv1.BackendTLSPolicy]
	undecodedPolicies *incremental.Index[string, name, undecodedPolicy] // by namespace
	policyStatuses    *incremental.Collection[name, *status[gwv1.PolicyStatus]]
}

func (t *Translator) declareBackendTLSPolicies() {
	t.policiesByTarget = incremental.NewIndex(t.in.policies.Collection, "BackendTLSPolicies by target",
		func(n name, p *gwv1.BackendTLSPolicy) []policy.Target {
			return policy.Targets(n.Namespace, p.Spec.TargetRefs)
		})
	t.undecodedPolicies = incremental.NewIndex(t.in.undecodedPolicies.Collection, "undecoded BackendTLSPolicies by namespace",
		func(n name, _ undecodedPolicy) []string { return []string{n.Namespace} })
}

// targetOf is a port of a Service as policies name it.
func targetOf(svc name, portName string) policy.Target {
	return policy.Target{Group: corev1.GroupName, Kind: string(KindService), Namespace: svc.Namespace, Name: svc.Name, Section: portName}
}

// undecodedPolicy is what is known of a BackendTLSPolicy that cannot be decoded.
type undecodedPolicy struct {
	Error   string
	Targets []gwv1.LocalPolicyTargetReferenceWithSectionName // none: any Service of the namespace may be one
}

// checkBackendTLS looks for a policy that is for a Service's port, or may be.
func (t *Translator) checkBackendTLS(v *incremental.View, svc name, port *servicePort, field string) *condition.Problem {
	levels := targetOf(svc, port.Name).Levels()
	for _, target := range levels {
		if attached := incremental.Lookup(v, t.policiesByTarget, target); len(attached) > 0 {
			return condition.NewProblem(gwv1.RouteReasonUnsupportedProtocol, field, "remove the BackendTLSPolicy to reach the Service without TLS",
				"BackendTLSPolicy %s asks for TLS to Service %s, which is not supported yet", attached[0], svc)
		}
	}
	for _, n := range incremental.Lookup(v, t.undecodedPolicies, svc.Namespace) {
		p, _ := incremental.Fetch(v, t.in.undecodedPolicies.Collection, n)
		targets := policy.Targets(n.Namespace, p.Targets)
		if len(targets) == 0 || slices.ContainsFunc(targets, func(t policy.Target) bool { return slices.Contains(levels, t) }) {
			return condition.NewProblem(gwv1.RouteReasonUnsupportedProtocol, field, "correct it, or install the CustomResourceDefinitions of this version",
				"BackendTLSPolicy %s, which may ask for TLS to Service %s, cannot be decoded: %s", n, svc, p.Error)
		}
	}
	return nil
}

// declareBackendTLSPolicyStatuses reports on each Gateway that reaches a target
// through a route.
func (t *Translator) declareBackendTLSPolicyStatuses() {
	t.policyStatuses = incremental.Map(t.engine, "BackendTLSPolicy status", t.in.policies.Collection,
		func(v *incremental.View, n name, p *gwv1.BackendTLSPolicy) (*status[gwv1.PolicyStatus], bool) {
			var gateways []policy.Ancestor
			for _, target := range policy.Targets(n.Namespace, p.Spec.TargetRefs) {
				gateways = append(gateways, t.gatewaysOf(v, target)...)
			}
			named, _ := policy.Ancestors(gateways)
			s := &status[gwv1.PolicyStatus]{Generation: generationOf(p)}
			problem := condition.NewProblem(gwv1.PolicyReasonInvalid, "", "remove it to reach the backends without TLS",
				"BackendTLSPolicy is not supported yet; requests to its targets are answered with 500")
			for _, a := range named {
				s.Status.Ancestors = append(s.Status.Ancestors, a.Status(t.options.ControllerName, s.Generation, policy.Accepted(problem, nil)))
			}
			return s, len(named) > 0
		}, sameDeeply[*status[gwv1.PolicyStatus]])
}

// gatewaysOf are those that reach a Service through a route.
func (t *Translator) gatewaysOf(v *incremental.View, target policy.Target) (all []policy.Ancestor) {
	if target.Group != corev1.GroupName || target.Kind != string(KindService) {
		return nil
	}
	for _, route := range incremental.Lookup(v, t.referrers, name{target.Namespace, target.Name}) {
		a, _ := incremental.Fetch(v, t.attachments, route)
		if a == nil {
			continue
		}
		for _, gw := range a.Gateways {
			g, _ := incremental.Fetch(v, t.managedGateways, gw)
			all = append(all, policy.Ancestor{Gateway: types.NamespacedName{Namespace: gw.Namespace, Name: gw.Name}, Created: g.Created})
		}
	}
	return all
}
