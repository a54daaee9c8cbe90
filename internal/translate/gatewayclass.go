package translate

import (
	"k8s.io/utils/ptr"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/moongate-dev/moongate/api/v1alpha1"
	"github.com/moongate-dev/moongate/internal/incremental"
	"github.com/moongate-dev/moongate/internal/translate/condition"
	"github.com/moongate-dev/moongate/internal/translate/support"
)

// class is a GatewayClass that is managed by this controller.
type class struct {
	Problem    *condition.Problem              // why it is not accepted
	Parameters *v1alpha1.GatewayParametersSpec // nil if none, and with Problem
	Unchecked  *v1alpha1.GatewayParametersSpec // the same also with Problem, as far as they can be read
	Namespace  string                          // of the parameters
	Denied     []string                        // ranges of addresses to which no request is sent, also with Problem
	// Merged names the proxies that serve all Gateways of the class; the zero value if each Gateway has its own.
	Merged  name
	Allowed []string // private ranges that hostnames may resolve to; empty with Problem
}

// gatewayClasses contains the GatewayClasses of this controller.
type gatewayClasses struct {
	all *incremental.Collection[name, class]
}

func newGatewayClasses(e *incremental.Engine, o *Options,
	classObjects *incremental.Collection[name, *gwv1.GatewayClass],
	infrastructures *incremental.Collection[name, Infrastructure],
	gatewayParameters *gatewayParameters) *gatewayClasses {
	cs := &gatewayClasses{}
	cs.all = incremental.Map(e, "GatewayClass", classObjects,
		func(v *incremental.View, n name, gc *gwv1.GatewayClass) (class, bool) {
			if o.defect != nil {
				o.defect(n)
			}
			if string(gc.Spec.ControllerName) != o.ControllerName {
				return class{}, false
			}
			var c class
			c.Parameters, c.Problem = gatewayParameters.classParameters(v, gc)
			c.Unchecked = gatewayParameters.uncheckedOfClass(v, gc)
			if gc.Spec.ParametersRef != nil {
				c.Namespace = string(ptr.Deref(gc.Spec.ParametersRef.Namespace, ""))
			}
			c.Denied = gatewayParameters.deniedEndpoints(v, gc)
			if c.Parameters != nil && c.Parameters.ClassOnly != nil {
				c.Allowed = c.Parameters.ClassOnly.AllowedExternalAddresses
			}
			if o.Cluster || o.OwnPorts {
				c.Merged = gatewayParameters.mergedProxies(v, infrastructures, n.Name, gc)
			}
			return c, true
		}, sameDeeply[class])
	return cs
}

// gatewayClassStatuses computes the statuses of GatewayClasses.
type gatewayClassStatuses struct {
	all *incremental.Collection[name, *status[gwv1.GatewayClassStatus]]
}

func newGatewayClassStatuses(e *incremental.Engine, o *Options,
	classObjects *incremental.Collection[name, *gwv1.GatewayClass],
	installation *installation, gatewayClasses *gatewayClasses) *gatewayClassStatuses {
	cst := &gatewayClassStatuses{}
	cst.all = incremental.Map(e, "GatewayClass status", classObjects,
		func(v *incremental.View, n name, gc *gwv1.GatewayClass) (*status[gwv1.GatewayClassStatus], bool) {
			c, managed := incremental.Fetch(v, gatewayClasses.all, n)
			if !managed {
				return nil, false
			}
			accepted := condition.True(gwv1.GatewayClassConditionStatusAccepted, gwv1.GatewayClassReasonAccepted)
			accepted.Message = installation.unread(v)
			if p := c.Problem; p != nil {
				accepted = condition.False(gwv1.GatewayClassConditionStatusAccepted, p.Reason, p.String())
			}
			// An unknown version is served too, as far as possible.
			version := condition.True(gwv1.GatewayClassConditionStatusSupportedVersion, gwv1.GatewayClassReasonSupportedVersion)
			if p := installation.unsupportedVersion(v); p != nil {
				version = condition.False(gwv1.GatewayClassConditionStatusSupportedVersion, p.Reason, p.String())
			}
			generation := generationOf(gc)
			return &status[gwv1.GatewayClassStatus]{generation, gwv1.GatewayClassStatus{
				Conditions:        condition.Observed(generation, accepted, version),
				SupportedFeatures: support.Features(o.Cluster, installation.lacks(v), installation.experimentalFields(v)),
			}}, true
		}, sameDeeply[*status[gwv1.GatewayClassStatus]])
	return cst
}
