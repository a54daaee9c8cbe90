package cli

import (
	"fmt"
	"maps"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"
	apisx "sigs.k8s.io/gateway-api/apisx/v1alpha1"

	gwx "github.com/moongate-dev/moongate/api/gatewayx/v1alpha1"
	"github.com/moongate-dev/moongate/internal/admin"
	"github.com/moongate-dev/moongate/internal/kind"
	"github.com/moongate-dev/moongate/internal/source/files"
	"github.com/moongate-dev/moongate/internal/source/schema"
)

// takeClass has the GatewayClass of a name treated as Moongate's, whosever it is, and adds it where it is missing. It returns
// the objects with that change.
func takeClass(objects []files.Object, name string) []files.Object {
	ours := &gwv1.GatewayClass{ObjectMeta: metav1.ObjectMeta{Name: name, Generation: 1}}
	ours.APIVersion, ours.Kind = gwv1.GroupVersion.String(), kind.GatewayClass.Name
	class := files.Object{ID: kind.GatewayClass.Key("", name)}
	var rest []files.Object
	for _, o := range objects {
		if c, ok := o.Object.(*gwv1.GatewayClass); ok && c.Name == name {
			ours, class.Position = c.DeepCopy(), o.Position
			ours.Spec.ParametersRef = nil // another controller's
			continue
		}
		rest = append(rest, o)
	}
	ours.Spec.ControllerName = controllerName
	class.Object = ours
	return append(rest, class)
}

// references finds what objects refer to in vain so that they have no status at all: parents and classes that are not
// among them, or that another controller manages. In a cluster that may be meant; in files it is a mistake.
type references struct {
	classes  map[string]*gwv1.GatewayClass
	parents  map[kind.ObjectKey]bool           // Gateways and ListenerSets
	scopes   map[gwv1.GatewayDefaultScope]bool // that there are default Gateways of
	problems []admin.Problem
}

func dangling(objects []files.Object) []admin.Problem {
	r := &references{classes: map[string]*gwv1.GatewayClass{}, parents: map[kind.ObjectKey]bool{}, scopes: map[gwv1.GatewayDefaultScope]bool{}}
	for _, o := range objects {
		switch o := o.Object.(type) {
		case *gwv1.GatewayClass:
			r.classes[o.Name] = o
		case *gwv1.Gateway, *gwv1.ListenerSet, *gwx.XListenerSet:
			r.parents[kind.KeyOf(o)] = true
		}
		if gw, ok := o.Object.(*gwv1.Gateway); ok {
			r.scopes[gw.Spec.DefaultScope] = true
		}
	}
	for _, o := range objects {
		switch typed := o.Object.(type) {
		case *gwv1.Gateway:
			r.class(o, string(typed.Spec.GatewayClassName))
		case *apisx.XTelemetryPolicy:
			for i, ref := range typed.Spec.TargetRefs {
				r.target(o, fmt.Sprintf("spec.targetRefs[%d]", i), ref)
			}
		default:
			if p, is := kind.ParentGatewayOf(o.Object); is {
				r.parent(o, "spec.parentRef", kind.Gateway.Kind, p.Namespace, string(p.Name))
			}
			if k := kind.Of(o.Object); k != nil && k.Route() {
				r.route(o, kind.ParentsOf(o.Object), kind.DefaultScopeOf(o.Object))
			}
		}
	}
	return r.problems
}

func (r *references) class(o files.Object, name string) {
	const field = "spec.gatewayClassName"
	switch c := r.classes[name]; {
	case c == nil:
		var names []string
		for known := range r.classes {
			names = append(names, known)
		}
		remedy := fmt.Sprintf("add it, or check with --class %s to have it treated as Moongate's", name)
		if near := schema.Nearest(name, names); near != "" {
			remedy = fmt.Sprintf("did you mean %s? Else %s", near, remedy)
		}
		r.add(o, field, fmt.Sprintf("there is no GatewayClass %q, so nobody serves this Gateway", name), remedy)
	case c.Spec.ControllerName != controllerName:
		r.add(o, field, fmt.Sprintf("GatewayClass %q is of controller %s, so Moongate does not serve this Gateway", name, c.Spec.ControllerName),
			fmt.Sprintf("name a class of controller %s, or check with --class %s to have it treated as Moongate's", controllerName, name))
	}
}

func (r *references) route(o files.Object, refs []gwv1.ParentReference, scope gwv1.GatewayDefaultScope) {
	switch {
	case scope != "" && !r.scopes[scope]:
		r.add(o, "spec.useDefaultGateways", fmt.Sprintf("there is no Gateway with defaultScope: %s, so it has no effect", scope),
			"set spec.defaultScope of a Gateway, or name one: parentRefs: [{name: my-gateway}]")
	case scope == "" && len(refs) == 0:
		r.add(o, "spec.parentRefs", "the route names no parent, so nobody serves it", "name a Gateway: parentRefs: [{name: my-gateway}]")
	}
	for i, ref := range refs {
		parent, group := kind.Gateway.Kind, gwv1.GroupName
		if ref.Kind != nil {
			parent = kind.Named(string(*ref.Kind))
		}
		if ref.Group != nil {
			group = string(*ref.Group)
		}
		if parent != nil && group == parent.Group && (parent == kind.Gateway.Kind || parent.OfListeners()) {
			r.parent(o, fmt.Sprintf("spec.parentRefs[%d]", i), parent, ref.Namespace, string(ref.Name))
		}
	}
}

// target checks that the Gateway is there which a policy is for.
func (r *references) target(o files.Object, field string, ref gwv1.LocalObjectReference) {
	if string(ref.Group) != gwv1.GroupName || string(ref.Kind) != kind.Gateway.Name {
		r.add(o, field+".kind", fmt.Sprintf("%s of group %q has no requests of its own, so the policy has no effect on it", ref.Kind, ref.Group),
			"name a Gateway of group "+gwv1.GroupName)
		return
	}
	r.parent(o, field, kind.Gateway.Kind, nil, string(ref.Name))
}

// parent checks that a parent is there.
func (r *references) parent(o files.Object, field string, k *kind.Kind, namespace *gwv1.Namespace, name string) {
	in := o.ID.Namespace
	if namespace != nil {
		in = string(*namespace)
	}
	if r.parents[k.Key(in, name)] {
		return
	}
	var names []string
	remedy := fmt.Sprintf("add the %s to the files", k.Name)
	for id := range r.parents {
		if id.Kind == k.Name && id.Namespace == in {
			names = append(names, id.Name)
		}
	}
	near := schema.Nearest(name, names)
	for _, id := range slices.SortedFunc(maps.Keys(r.parents), kind.ObjectKey.Compare) {
		if near == "" && id.Kind == k.Name && id.Name == name {
			remedy = fmt.Sprintf("did you mean the one in namespace %s? Then write namespace: %s", id.Namespace, id.Namespace)
		}
	}
	if near != "" {
		remedy = fmt.Sprintf("did you mean %s?", near)
	}
	r.add(o, field+".name", fmt.Sprintf("there is no %s %s/%s", k.Name, in, name), remedy)
}

func (r *references) add(o files.Object, field, message, remedy string) {
	at := fieldPosition(o.Position, field)
	r.problems = append(r.problems, admin.Problem{File: at.File, Line: at.Line, Object: o.ID.String(), Field: field, Message: message, Remedy: remedy})
}
