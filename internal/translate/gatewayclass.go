package translate

import (
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/moongate-dev/moongate/api/v1alpha1"
	"github.com/moongate-dev/moongate/internal/incremental"
	"github.com/moongate-dev/moongate/internal/translate/condition"
	"github.com/moongate-dev/moongate/internal/translate/support"
)

// class is one of our GatewayClasses.
type class struct {
	Problem    *condition.Problem              // why it is not accepted
	Parameters *v1alpha1.GatewayParametersSpec // nil for none, and with Problem
	Denied     []string                        // ranges of addresses that no request is sent to, also with Problem
}

func (t *Translator) declareGatewayClasses() {
	t.classes = incremental.Map(t.engine, "GatewayClass", t.in.classes.Collection,
		func(v *incremental.View, n name, gc *gwv1.GatewayClass) (class, bool) {
			if t.defect != nil {
				t.defect(n)
			}
			if string(gc.Spec.ControllerName) != t.options.ControllerName {
				return class{}, false
			}
			var c class
			c.Parameters, c.Problem = t.classParameters(v, gc)
			c.Denied = t.deniedEndpoints(v, gc)
			return c, true
		}, sameDeeply[class])
}

func (t *Translator) declareGatewayClassStatuses() {
	t.classStatuses = incremental.Map(t.engine, "GatewayClass status", t.in.classes.Collection,
		func(v *incremental.View, n name, gc *gwv1.GatewayClass) (*status[gwv1.GatewayClassStatus], bool) {
			c, ours := incremental.Fetch(v, t.classes, n)
			if !ours {
				return nil, false
			}
			accepted := condition.True(gwv1.GatewayClassConditionStatusAccepted, gwv1.GatewayClassReasonAccepted)
			accepted.Message = t.unread(v)
			if p := c.Problem; p != nil {
				accepted = condition.False(gwv1.GatewayClassConditionStatusAccepted, p.Reason, p.String())
			}
			// Of a version that is not known everything is tried all the same.
			version := condition.True(gwv1.GatewayClassConditionStatusSupportedVersion, gwv1.GatewayClassReasonSupportedVersion)
			if p := t.unsupportedVersion(v); p != nil {
				version = condition.False(gwv1.GatewayClassConditionStatusSupportedVersion, p.Reason, p.String())
			}
			generation := generationOf(gc)
			return &status[gwv1.GatewayClassStatus]{generation, gwv1.GatewayClassStatus{
				Conditions:        condition.Observed(generation, accepted, version),
				SupportedFeatures: support.Features(t.options.Cluster, t.lacks(v)),
			}}, true
		}, sameDeeply[*status[gwv1.GatewayClassStatus]])
}
