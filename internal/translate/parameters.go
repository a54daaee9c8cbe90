package translate

import (
	"k8s.io/utils/ptr"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/moongate-dev/moongate/api/v1alpha1"
	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/incremental"
	"github.com/moongate-dev/moongate/internal/translate/condition"
	"github.com/moongate-dev/moongate/internal/translate/gateway"
	"github.com/moongate-dev/moongate/internal/translate/parameters"
)

// checked is a GatewayParameters object with the result of its validation.
type checked struct {
	Generation int64
	Spec       *v1alpha1.GatewayParametersSpec
	Problems   []*condition.Problem
}

// undecodedParameters is what can be read of GatewayParameters that cannot be decoded.
type undecodedParameters struct {
	Error                 string
	Denied                []string
	Locked                []string
	RedisSecret, RedisKey string
}

// gatewayParameters contains GatewayParameters, and their use by GatewayClasses and Gateways.
type gatewayParameters struct {
	undecodedParameters *incremental.Collection[name, undecodedParameters]
	grants              *grants

	checked *incremental.Collection[name, *checked]
}

func newGatewayParameters(e *incremental.Engine,
	undecodedParameters *incremental.Collection[name, undecodedParameters],
	parametersObjects *incremental.Collection[name, *v1alpha1.GatewayParameters],
	grants *grants) *gatewayParameters {
	gp := &gatewayParameters{undecodedParameters: undecodedParameters, grants: grants}
	gp.checked = incremental.Map(e, "GatewayParameters", parametersObjects,
		func(_ *incremental.View, _ name, p *v1alpha1.GatewayParameters) (*checked, bool) {
			return &checked{generationOf(p), &p.Spec, parameters.Check(&p.Spec)}, true
		}, sameDeeply[*checked])
	return gp
}

// findParameters returns the parameters that a parametersRef names, or why they cannot be used. The reason is the one for
// GatewayClasses and for Gateways alike.
func (gp *gatewayParameters) findParameters(v *incremental.View, field string, group gwv1.Group, kind gwv1.Kind, n name) (*v1alpha1.GatewayParametersSpec, *condition.Problem) {
	reason := gwv1.GatewayReasonInvalidParameters
	if !isParameters(group, kind) {
		return nil, condition.NewProblem(reason, field+".kind", "refer to "+string(KindGatewayParameters)+" of group "+v1alpha1.GroupName+", or remove parametersRef",
			"%s of group %q cannot hold parameters", kind, group)
	}
	p, exists := incremental.Fetch(v, gp.checked, n)
	u, unread := incremental.Fetch(v, gp.undecodedParameters, n)
	switch {
	case unread:
		return nil, condition.NewProblem(reason, field+".name", "correct it, or install the CustomResourceDefinitions of this version",
			"GatewayParameters %s cannot be read: %s", n, u.Error)
	case !exists && gp.grants.unseen(v, n.Namespace) != "":
		return nil, condition.NewProblem(reason, field+".namespace", gp.grants.unseen(v, n.Namespace), "GatewayParameters %s cannot be seen", n)
	case !exists:
		return nil, condition.NewProblem(reason, field+".name", "create it or correct the reference", "GatewayParameters %s does not exist", n)
	case len(p.Problems) > 0:
		return nil, condition.NewProblem(reason, field+".name", "correct it, see its status", "GatewayParameters %s is not valid: %s", n, p.Problems[0])
	}
	return p.Spec, nil
}

// unchecked returns parameters even if they are invalid; nil if they do not exist or cannot be read.
func (gp *gatewayParameters) unchecked(v *incremental.View, group gwv1.Group, kind gwv1.Kind, n name) *v1alpha1.GatewayParametersSpec {
	if !isParameters(group, kind) {
		return nil
	}
	if p, exists := incremental.Fetch(v, gp.checked, n); exists {
		return p.Spec
	}
	return nil
}

// uncheckedOfClass returns the parameters of a GatewayClass even if they are invalid. If they cannot be decoded, it returns only the
// fields that they lock and their Redis server: a mistake in another field must not change these.
func (gp *gatewayParameters) uncheckedOfClass(v *incremental.View, gc *gwv1.GatewayClass) *v1alpha1.GatewayParametersSpec {
	ref := gc.Spec.ParametersRef
	if ref == nil {
		return nil
	}
	n := name{string(ptr.Deref(ref.Namespace, "")), ref.Name}
	if u, undecoded := incremental.Fetch(v, gp.undecodedParameters, n); undecoded && isParameters(ref.Group, ref.Kind) {
		locks := &v1alpha1.ClassOnly{}
		for _, field := range u.Locked {
			locks.Locked = append(locks.Locked, v1alpha1.LockedField(field))
		}
		if u.RedisSecret != "" { // limits must not be counted elsewhere in the meantime
			locks.RateLimit = &v1alpha1.RateLimit{Redis: &v1alpha1.Redis{URLSecretRef: v1alpha1.SecretKeyReference{Name: u.RedisSecret, Key: u.RedisKey}}}
		}
		return &v1alpha1.GatewayParametersSpec{ClassOnly: locks}
	}
	return gp.unchecked(v, ref.Group, ref.Kind, n)
}

// uncheckedOfGateway returns a Gateway's own parameters even if they are invalid.
func (gp *gatewayParameters) uncheckedOfGateway(v *incremental.View, gw *gwv1.Gateway) *v1alpha1.GatewayParametersSpec {
	if gw.Spec.Infrastructure == nil || gw.Spec.Infrastructure.ParametersRef == nil {
		return nil
	}
	ref := gw.Spec.Infrastructure.ParametersRef
	return gp.unchecked(v, ref.Group, ref.Kind, name{gw.Namespace, ref.Name})
}

// mergedProxies returns the name of the proxies of all Gateways of a class; the zero value if each Gateway has its own. A mistake in
// the parameters must not move a Gateway to other proxies: if they cannot be read, the existing infrastructure decides.
func (gp *gatewayParameters) mergedProxies(v *incremental.View, infrastructures *incremental.Collection[name, Infrastructure], class string, gc *gwv1.GatewayClass) name {
	ref := gc.Spec.ParametersRef
	if ref == nil || ptr.Deref(ref.Namespace, "") == "" {
		return name{}
	}
	n := name{string(*ref.Namespace), ref.Name}
	proxies := name{n.Namespace, config.MergedName(class)}
	merges := false
	if spec := gp.unchecked(v, ref.Group, ref.Kind, n); spec != nil {
		merges = spec.ClassOnly != nil && spec.ClassOnly.MergeGateways
	} else {
		_, merges = incremental.Fetch(v, infrastructures, proxies)
	}
	if !merges {
		return name{}
	}
	return proxies
}

func (gp *gatewayParameters) classParameters(v *incremental.View, gc *gwv1.GatewayClass) (*v1alpha1.GatewayParametersSpec, *condition.Problem) {
	ref, field := gc.Spec.ParametersRef, "spec.parametersRef"
	if ref == nil {
		return nil, nil
	}
	n := name{string(ptr.Deref(ref.Namespace, "")), ref.Name}
	if n.Namespace == "" && ref.Group == v1alpha1.GroupName && ref.Kind == gwv1.Kind(KindGatewayParameters) {
		return nil, condition.NewProblem(gwv1.GatewayClassReasonInvalidParameters, field+".namespace", "name the namespace",
			"GatewayParameters %q are in a namespace", ref.Name)
	}
	return gp.findParameters(v, field, ref.Group, ref.Kind, n)
}

// ownParameters returns the parameters of a Gateway, or why they cannot be used. They must be in its namespace and set no fields
// that only a class may set.
func (gp *gatewayParameters) ownParameters(v *incremental.View, gw *gwv1.Gateway) (*v1alpha1.GatewayParametersSpec, *condition.Problem) {
	if gw.Spec.Infrastructure == nil || gw.Spec.Infrastructure.ParametersRef == nil {
		return nil, nil
	}
	ref, field := gw.Spec.Infrastructure.ParametersRef, "spec.infrastructure.parametersRef"
	n := name{gw.Namespace, ref.Name}
	spec, p := gp.findParameters(v, field, ref.Group, ref.Kind, n)
	if p == nil && spec.ClassOnly != nil {
		return nil, condition.NewProblem(gwv1.GatewayReasonInvalidParameters, field+".name", "remove classOnly from it, or let the GatewayClass refer to it",
			"GatewayParameters %s has spec.classOnly, which a Gateway must not use", n)
	}
	return spec, p
}

// gatewayParametersStatuses computes the statuses of the GatewayParameters that GatewayClasses or Gateways of this controller use.
type gatewayParametersStatuses struct {
	o            *Options
	classObjects *incremental.Collection[name, *gwv1.GatewayClass]
	gateways     *gateways

	classesUsing  *incremental.Index[name, name, *gwv1.GatewayClass]
	gatewaysUsing *incremental.Index[name, name, *gateway.Gateway]
	all           *incremental.Collection[name, *status[v1alpha1.GatewayParametersStatus]]
}

func newGatewayParametersStatuses(e *incremental.Engine, o *Options,
	classObjects *incremental.Collection[name, *gwv1.GatewayClass],
	gatewayParameters *gatewayParameters, gateways *gateways) *gatewayParametersStatuses {
	pst := &gatewayParametersStatuses{o: o, classObjects: classObjects, gateways: gateways}
	pst.declareParametersUsers(e)
	pst.all = incremental.Map(e, "GatewayParameters status", gatewayParameters.checked,
		func(v *incremental.View, n name, p *checked) (*status[v1alpha1.GatewayParametersStatus], bool) {
			if incremental.Count(v, pst.classesUsing, n) == 0 && incremental.Count(v, pst.gatewaysUsing, n) == 0 {
				return nil, false
			}
			accepted := condition.True(v1alpha1.ConditionAccepted, v1alpha1.ReasonAccepted)
			if len(p.Problems) > 0 {
				accepted = condition.False(v1alpha1.ConditionAccepted, v1alpha1.ReasonInvalid, condition.List(p.Problems))
			}
			return &status[v1alpha1.GatewayParametersStatus]{p.Generation, v1alpha1.GatewayParametersStatus{
				Conditions: condition.Observed(p.Generation, accepted),
			}}, true
		}, sameDeeply[*status[v1alpha1.GatewayParametersStatus]])
	return pst
}

// declareParametersUsers indexes the GatewayClasses and Gateways of this controller by the GatewayParameters that they refer to.
// Other GatewayParameters may belong to another installation, which reports what is wrong with them.
func (pst *gatewayParametersStatuses) declareParametersUsers(e *incremental.Engine) {
	pst.classesUsing = incremental.NewIndex(pst.classObjects, "GatewayClasses by GatewayParameters",
		func(_ name, gc *gwv1.GatewayClass) []name {
			ref := gc.Spec.ParametersRef
			if ref == nil || string(gc.Spec.ControllerName) != pst.o.ControllerName || !isParameters(ref.Group, ref.Kind) {
				return nil
			}
			return []name{{string(ptr.Deref(ref.Namespace, "")), ref.Name}}
		})
	pst.gatewaysUsing = incremental.NewIndex(pst.gateways.all, "Gateways by GatewayParameters",
		func(n name, g *gateway.Gateway) []name {
			if g.OwnParameters == "" {
				return nil
			}
			return []name{{n.Namespace, g.OwnParameters}}
		})
}

func isParameters(group gwv1.Group, kind gwv1.Kind) bool {
	return group == v1alpha1.GroupName && kind == gwv1.Kind(KindGatewayParameters)
}

// deniedEndpoints returns the ranges that a class's parameters deny, even if another field of the parameters is invalid: a mistake
// there must not allow what is denied.
func (gp *gatewayParameters) deniedEndpoints(v *incremental.View, gc *gwv1.GatewayClass) []string {
	ref := gc.Spec.ParametersRef
	if ref == nil || ref.Group != v1alpha1.GroupName || ref.Kind != gwv1.Kind(KindGatewayParameters) {
		return nil
	}
	n := name{string(ptr.Deref(ref.Namespace, gwv1.Namespace(""))), ref.Name}
	if u, undecoded := incremental.Fetch(v, gp.undecodedParameters, n); undecoded {
		return u.Denied
	}
	p, exists := incremental.Fetch(v, gp.checked, n)
	if !exists || p.Spec.ClassOnly == nil {
		return nil
	}
	return p.Spec.ClassOnly.DeniedEndpoints
}
