package cli

import (
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"
	apisx "sigs.k8s.io/gateway-api/apisx/v1alpha1"

	egv1 "github.com/moongate-dev/moongate/api/envoygateway/v1alpha1"
	gwx "github.com/moongate-dev/moongate/api/gatewayx/v1alpha1"
	"github.com/moongate-dev/moongate/internal/admin"
	"github.com/moongate-dev/moongate/internal/kind"
	"github.com/moongate-dev/moongate/internal/source/files"
	"github.com/moongate-dev/moongate/internal/source/schema"
)

// takeClass makes the GatewayClass with a name managed by Moongate, whose controllerName is controller, whatever its own, and adds it
// if it is missing. It returns the objects with that change.
func takeClass(objects []files.Object, name, controller string) []files.Object {
	class := takenClass(name, controller, files.Object{})
	var rest []files.Object
	for _, o := range objects {
		if c, ok := o.Object.(*gwv1.GatewayClass); ok && c.Name == name {
			class = takenClass(name, controller, o)
			continue
		}
		rest = append(rest, o)
	}
	return append(rest, class)
}

// takenClass returns a GatewayClass as managed by Moongate. found is the class with that name in the manifests, the zero value if
// there is none.
func takenClass(name, controller string, found files.Object) files.Object {
	own := &gwv1.GatewayClass{ObjectMeta: metav1.ObjectMeta{Name: name, Generation: 1}}
	own.APIVersion, own.Kind = gwv1.GroupVersion.String(), kind.GatewayClass.Name
	if c, ok := found.Object.(*gwv1.GatewayClass); ok {
		own = c.DeepCopy()
		own.Spec.ParametersRef = nil // of another controller
	}
	own.Spec.ControllerName = gwv1.GatewayController(controller)
	return files.Object{ID: kind.GatewayClass.Key("", name), Position: found.Position, Object: own}
}

// takeClassOf is takeClass for a change of the manifests.
func takeClassOf(c files.Change, name string) files.Change {
	id := kind.GatewayClass.Key("", name)
	missing := c.Full
	var deletes []kind.ObjectKey
	for _, d := range c.Deletes {
		if d == id {
			missing = true
			continue
		}
		deletes = append(deletes, d)
	}
	upserts := make([]files.Object, 0, len(c.Upserts)+1)
	for _, o := range c.Upserts {
		if o.ID == id {
			o, missing = takenClass(name, controllerName, o), false
		}
		upserts = append(upserts, o)
	}
	if missing {
		upserts = append(upserts, takenClass(name, controllerName, files.Object{}))
	}
	c.Deletes, c.Upserts = deletes, upserts
	return c
}

// references finds references of objects that lead nowhere and that no status reports: parents and classes that do not exist, or
// that another controller manages. In a cluster this may be intended; in files it is a mistake.
type references struct {
	classes  map[string]*gwv1.GatewayClass
	parents  *nameIndex                        // Gateways and ListenerSets
	scopes   map[gwv1.GatewayDefaultScope]bool // scopes with default Gateways
	unread   bool                              // whether a Gateway is invalid, so its scope is not known
	known    *nameIndex                        // every object, including rejected ones
	source   *files.Source
	custom   bool // only objects of kinds that are Custom are known
	shared   bool // other controllers may have their own Gateways, as in a cluster
	problems []admin.Problem
}

// dangling returns problems of references that lead nowhere. An object with an entry in problems was rejected: it is not missing,
// and is reported already.
func dangling(source *files.Source, objects []files.Object, problems []files.Problem, cluster bool) []admin.Problem {
	r := newReferences(source, objects, problems)
	r.shared = cluster
	return r.find(objects)
}

func newReferences(source *files.Source, objects []files.Object, problems []files.Problem) *references {
	r := &references{source: source, known: newNameIndex(), classes: map[string]*gwv1.GatewayClass{}, parents: newNameIndex(), scopes: map[gwv1.GatewayDefaultScope]bool{}}
	for _, p := range problems {
		r.known.add(p.Object)
	}
	for _, o := range objects {
		r.known.add(o.ID)
		switch o := o.Object.(type) {
		case *gwv1.GatewayClass:
			r.classes[o.Name] = o
		case *gwv1.Gateway, *gwv1.ListenerSet, *gwx.XListenerSet:
			r.parents.add(kind.KeyOf(o))
		}
		if gw, ok := o.Object.(*gwv1.Gateway); ok {
			r.scopes[gw.Spec.DefaultScope] = true
		}
	}
	for _, p := range problems {
		r.unread = r.unread || p.Object.Group == kind.Gateway.Group && p.Object.Kind == kind.Gateway.Name && !r.parents.has(p.Object)
	}
	return r
}

func (r *references) find(objects []files.Object) []admin.Problem {
	for _, o := range objects {
		switch typed := o.Object.(type) {
		case *gwv1.Gateway:
			r.class(o, string(typed.Spec.GatewayClassName))
		case *gwv1.BackendTLSPolicy:
			for i, ref := range typed.Spec.TargetRefs {
				r.backendTarget(o, fmt.Sprintf("spec.targetRefs[%d]", i), ref, `name a Service: group: "" and kind: Service`)
			}
		case *gwx.XBackendTrafficPolicy:
			for i, ref := range typed.Spec.TargetRefs {
				r.backendTarget(o, fmt.Sprintf("spec.targetRefs[%d]", i), gwv1.LocalPolicyTargetReferenceWithSectionName{LocalPolicyTargetReference: ref},
					`name a Service (group: "" and kind: Service) or an XBackend of group `+gwx.GroupName)
			}
		case *egv1.BackendTrafficPolicy:
			if ref := typed.Spec.TargetRef; ref != nil {
				r.trafficTarget(o, "spec.targetRef", ref)
			}
			for i := range typed.Spec.TargetRefs {
				r.trafficTarget(o, fmt.Sprintf("spec.targetRefs[%d]", i), &typed.Spec.TargetRefs[i])
			}
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
	case c.Spec.ControllerName != controllerName && !r.shared:
		r.add(o, field, fmt.Sprintf("GatewayClass %q is of controller %s, so Moongate does not serve this Gateway", name, c.Spec.ControllerName),
			fmt.Sprintf("name a class of controller %s, or check with --class %s to have it treated as Moongate's", controllerName, name))
	}
}

func (r *references) route(o files.Object, refs []gwv1.ParentReference, scope gwv1.GatewayDefaultScope) {
	switch {
	case scope != "" && !r.scopes[scope] && !r.unread:
		r.add(o, "spec.useDefaultGateways", fmt.Sprintf("there is no Gateway with defaultScope: %s, so it has no effect", scope),
			"set spec.defaultScope of a Gateway, or name one: parentRefs: [{name: my-gateway}]")
	case scope == "" && len(refs) == 0:
		r.add(o, "spec.parentRefs", "the route names no parent, so nobody serves it", "name a Gateway: parentRefs: [{name: my-gateway}]")
	}
	for i, ref := range refs {
		name, group := kind.Gateway.Name, gwv1.GroupName
		if ref.Kind != nil {
			name = string(*ref.Kind)
		}
		if ref.Group != nil {
			group = string(*ref.Group)
		}
		if parent := kind.Named(name); parent != nil && group == parent.Group && (parent == kind.Gateway.Kind || parent.OfListeners()) {
			r.parent(o, fmt.Sprintf("spec.parentRefs[%d]", i), parent, ref.Namespace, string(ref.Name))
		} else if len(refs) == 1 && scope == "" { // in addition to a Gateway, another parent may belong to another controller
			r.add(o, fmt.Sprintf("spec.parentRefs[%d]", i), fmt.Sprintf("%s of group %q is no parent that Moongate serves, so nobody serves the route here", name, group),
				"name a Gateway: parentRefs: [{name: my-gateway}]")
		}
	}
}

// backendTarget checks that the target of a backend policy exists and is of a valid kind: otherwise no status reports it.
func (r *references) backendTarget(o files.Object, field string, ref gwv1.LocalPolicyTargetReferenceWithSectionName, remedy string) {
	if k := kind.Find(string(ref.Group), string(ref.Kind)); k == nil || k != kind.Service.Kind && k != kind.XBackend.Kind {
		r.add(o, field+".kind", fmt.Sprintf("%s of group %q is no backend, so the policy has no effect on it", ref.Kind, ref.Group), remedy)
		return
	}
	r.policyTarget(o, field, ref)
}

// trafficTarget checks that the target of a BackendTrafficPolicy exists in the namespace of the policy: otherwise no status reports
// it.
func (r *references) trafficTarget(o files.Object, field string, ref *egv1.PolicyTargetReference) {
	if ref.Namespace != nil && string(*ref.Namespace) != o.ID.Namespace {
		r.add(o, field+".namespace", fmt.Sprintf("a policy is for objects of its own namespace, %s, so it has no effect on %s %s/%s", o.ID.Namespace, ref.Kind, *ref.Namespace, ref.Name),
			fmt.Sprintf("remove \"namespace\", or put the policy into namespace %s", *ref.Namespace))
		return
	}
	r.policyTarget(o, field, ref.LocalPolicyTargetReferenceWithSectionName)
}

// policyTarget checks that the target of a policy exists. Objects of kinds that are not read may exist elsewhere.
func (r *references) policyTarget(o files.Object, field string, ref gwv1.LocalPolicyTargetReferenceWithSectionName) {
	k := kind.Find(string(ref.Group), string(ref.Kind))
	if k == nil || !k.Namespaced || r.custom && !k.Custom || r.known.has(k.Key(o.ID.Namespace, string(ref.Name))) {
		return
	}
	remedy := r.create(k)
	if near := r.known.nearest(k, o.ID.Namespace, string(ref.Name)); near != "" {
		remedy = fmt.Sprintf("did you mean %s?", near)
	}
	r.add(o, field+".name", fmt.Sprintf("there is no %s %s/%s, so the policy has no effect on it", k.Name, o.ID.Namespace, ref.Name), remedy)
}

// create returns the remedy for an object that does not exist.
func (r *references) create(k *kind.Kind) string {
	if r.shared {
		return "create it, or correct the name"
	}
	return fmt.Sprintf("add the %s to the files, or correct the name", k.Name)
}

// target checks that the Gateway exists that a policy targets.
func (r *references) target(o files.Object, field string, ref gwv1.LocalObjectReference) {
	if string(ref.Group) != gwv1.GroupName || string(ref.Kind) != kind.Gateway.Name {
		r.add(o, field+".kind", fmt.Sprintf("%s of group %q has no requests of its own, so the policy has no effect on it", ref.Kind, ref.Group),
			"name a Gateway of group "+gwv1.GroupName)
		return
	}
	r.parent(o, field, kind.Gateway.Kind, nil, string(ref.Name))
}

// parent checks that a parent exists.
func (r *references) parent(o files.Object, field string, k *kind.Kind, namespace *gwv1.Namespace, name string) {
	in := o.ID.Namespace
	if namespace != nil {
		in = string(*namespace)
	}
	if r.known.has(k.Key(in, name)) {
		return
	}
	remedy := r.create(k)
	for _, other := range []*kind.Kind{kind.Gateway.Kind, kind.ListenerSet.Kind} {
		if other != k && strings.HasPrefix(field, "spec.parentRefs") && r.known.has(other.Key(in, name)) {
			remedy = fmt.Sprintf("did you mean the %s of that name? Then write kind: %s", other.Name, other.Name)
		}
	}
	near := r.parents.nearest(k, in, name)
	if near != "" {
		remedy = fmt.Sprintf("did you mean %s?", near)
	} else if others := r.parents.namespaces(k, name); len(others) > 0 {
		last := slices.Max(others)
		remedy = fmt.Sprintf("did you mean the one in namespace %s? Then write namespace: %s", last, last)
	}
	r.add(o, field+".name", fmt.Sprintf("there is no %s %s/%s", k.Name, in, name), remedy)
}

func (r *references) add(o files.Object, field, message, remedy string) {
	at := fieldPosition(r.source, o.Position, field)
	r.problems = append(r.problems, admin.Problem{File: at.File, Line: at.Line, Object: o.ID.String(), Field: field, Message: message, Remedy: remedy})
}
