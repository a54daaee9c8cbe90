// Package show prints the statuses of objects: one line for an object without problems, and the condition that is the cause for the
// others. It exists so that all verbs that show objects, from files or from a cluster, agree.
//
// It imports neither translate, proxy nor source, and reads objects only as JSON.
package show

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"
)

// Object is an object of any kind with its status.
type Object struct {
	Kind, Namespace, Name string

	fields fields
	// controller is the name of the only controller of the object: this one, another one, or "" if it is not known, or if the
	// entries of the status name their controllers.
	controller string
	ours       string
	// expected is set if a Gateway of this controller is among the parentRefs, or is a default one that the route asks for.
	expected bool
	// unseen are the Gateways of other namespaces that parentRefs name and that are not shown, in the form of ref.object.
	unseen []string
	// foreignParent is set if a parent is a Gateway that is shown and not of this controller.
	foreignParent bool
	// absent is, for a route with a parentRef to a Gateway of its own namespace that does not exist, the message about that; else
	// "".
	absent string
	// unserved are, for a route, the parents of this controller that have accepted it on listeners none of which is programmed, and
	// the state that they lack.
	unserved map[ref]string
	// causes are the objects with faults of their own, by String, and whether they were rejected; see Blame.
	causes map[string]bool
	// invalidGateways are the Gateways of ListenerSets that were rejected, by the String of the ListenerSet; see Blame.
	invalidGateways map[string]string
	// rewrite improves messages of complaints; nil leaves them unchanged. See Suggest.
	rewrite func(message, namespace string) string
	// reported reports whether a field has been reported elsewhere; nil if none has. See LeaveOut.
	reported func(field string) bool
}

// fields are the fields of an object that are shown.
type fields struct {
	Kind     string `json:"kind"`
	Metadata struct {
		Namespace  string `json:"namespace"`
		Name       string `json:"name"`
		Generation int64  `json:"generation"`
	} `json:"metadata"`
	Spec struct {
		ControllerName     string    `json:"controllerName"`
		GatewayClassName   string    `json:"gatewayClassName"`
		ParentRef          ref       `json:"parentRef"`
		ParentRefs         []ref     `json:"parentRefs"`
		TargetRef          any       `json:"targetRef"`
		TargetRefs         any       `json:"targetRefs"`
		TargetSelectors    any       `json:"targetSelectors"`
		DefaultScope       string    `json:"defaultScope"`
		UseDefaultGateways string    `json:"useDefaultGateways"`
		Listeners          listeners `json:"listeners"`
	} `json:"spec"`
	Status struct {
		Conditions []metav1.Condition `json:"conditions"`
		Listeners  []struct {
			Name           string             `json:"name"`
			AttachedRoutes int32              `json:"attachedRoutes"`
			Conditions     []metav1.Condition `json:"conditions"`
		} `json:"listeners"`
		Parents []struct {
			ParentRef      ref                `json:"parentRef"`
			ControllerName string             `json:"controllerName"`
			Conditions     []metav1.Condition `json:"conditions"`
		} `json:"parents"`
		Ancestors []struct {
			AncestorRef    ref                `json:"ancestorRef"`
			ControllerName string             `json:"controllerName"`
			Conditions     []metav1.Condition `json:"conditions"`
		} `json:"ancestors"`
	} `json:"status"`
}

// Listener contains the fields of a listener that determine which requests and connections it gets.
type Listener struct {
	Name     string `json:"name"`
	Hostname string `json:"hostname"`
	Port     int32  `json:"port"`
	Protocol string `json:"protocol"`
}

// listeners are those of an object's spec; none if this version cannot decode them, because the object must be shown nevertheless.
type listeners []Listener

func (l *listeners) UnmarshalJSON(text []byte) error {
	var list []Listener
	if json.Unmarshal(text, &list) == nil {
		*l = list
	}
	return nil
}

// scopeNone is the scope of no default Gateway.
const scopeNone = string(gwv1.GatewayDefaultScopeNone)

// ref is a parentRef or an ancestorRef.
type ref struct {
	Kind        string `json:"kind"`
	Namespace   string `json:"namespace"`
	Name        string `json:"name"`
	SectionName string `json:"sectionName"`
	Port        int32  `json:"port"`
}

func (r ref) String() string {
	text := r.Name
	if r.Namespace != "" {
		text = r.Namespace + "/" + r.Name
	}
	if r.SectionName != "" {
		text += " listener " + r.SectionName
	}
	if r.Port != 0 {
		text += fmt.Sprintf(" port %d", r.Port)
	}
	return text
}

// key returns the namespace and name of the object to which an object of a namespace refers.
func (r ref) key(namespace string) [2]string {
	if r.Namespace != "" {
		namespace = r.Namespace
	}
	return [2]string{namespace, r.Name}
}

// object returns the object to which an object of a namespace refers, in the form of Object.String.
func (r ref) object(namespace string) string {
	key := r.key(namespace)
	return cmp.Or(r.Kind, "Gateway") + " " + key[0] + "/" + key[1]
}

// unserved returns the state that a Gateway or ListenerSet lacks if none of its listeners that a parentRef selects is programmed; ""
// if one is, or may be.
func (f *fields) unserved(p ref) string {
	named := false
	for _, l := range f.Status.Listeners {
		if p.SectionName != "" && p.SectionName != l.Name || p.Port != 0 && !slices.ContainsFunc(f.Spec.Listeners, func(spec Listener) bool { return spec.Name == l.Name && spec.Port == p.Port }) {
			continue
		}
		if !meta.IsStatusConditionFalse(l.Conditions, string(gwv1.ListenerConditionProgrammed)) {
			return ""
		}
		named = true
	}
	switch {
	case !named:
		return ""
	case meta.IsStatusConditionFalse(f.Status.Conditions, string(gwv1.GatewayConditionAccepted)):
		return "not accepted"
	}
	return "not programmed"
}

// Objects reads objects, or values that encode to such in JSON. It finds problems only in what belongs to the controller with that
// name.
func Objects(items []any, controllerName string) ([]*Object, error) {
	text, err := json.Marshal(items)
	if err != nil {
		return nil, err
	}
	var read []fields
	if err := json.Unmarshal(text, &read); err != nil {
		return nil, err
	}
	classes, gateways := map[string]string{}, map[[2]string]string{} // controller, class
	defaults := map[string][]string{}                                // classes of default Gateways, by scope
	parents := map[string]*fields{}                                  // by ref.object
	for i, f := range read {
		if f.Kind == "Gateway" || f.Kind == "ListenerSet" || f.Kind == "XListenerSet" {
			parents[ref{Kind: f.Kind, Name: f.Metadata.Name}.object(f.Metadata.Namespace)] = &read[i]
		}
		switch f.Kind {
		case "GatewayClass":
			classes[f.Metadata.Name] = f.Spec.ControllerName
		case "Gateway":
			gateways[[2]string{f.Metadata.Namespace, f.Metadata.Name}] = f.Spec.GatewayClassName
			if scope := f.Spec.DefaultScope; scope != "" && scope != scopeNone {
				defaults[scope] = append(defaults[scope], f.Spec.GatewayClassName)
			}
		}
	}
	objects := make([]*Object, len(read))
	for i, f := range read {
		o := &Object{Kind: f.Kind, Namespace: f.Metadata.Namespace, Name: f.Metadata.Name, fields: f, ours: controllerName}
		switch f.Kind {
		case "GatewayClass":
			o.controller = f.Spec.ControllerName
		case "Gateway":
			o.controller = classes[f.Spec.GatewayClassName]
		case "ListenerSet", "XListenerSet":
			o.controller = classes[gateways[f.Spec.ParentRef.key(o.Namespace)]]
		}
		for _, p := range f.Spec.ParentRefs {
			if p.Kind == "" || p.Kind == "Gateway" {
				class, seen := gateways[p.key(o.Namespace)]
				o.expected = o.expected || seen && classes[class] == controllerName
				o.foreignParent = o.foreignParent || seen && classes[class] != controllerName
				elsewhere := p.Namespace != "" && p.Namespace != o.Namespace
				if !seen && elsewhere {
					o.unseen = append(o.unseen, p.object(o.Namespace))
				}
				if !seen && !elsewhere && o.absent == "" && len(gateways) > 0 { // if there are no Gateways at all, they may not have been readable
					o.absent = absentGateway(p, o.Namespace, gateways)
				}
			}
		}
		for _, class := range defaults[f.Spec.UseDefaultGateways] {
			o.expected = o.expected || classes[class] == controllerName
		}
		for _, p := range f.Status.Parents {
			parent := parents[p.ParentRef.object(o.Namespace)]
			if p.ControllerName != controllerName || parent == nil || !meta.IsStatusConditionTrue(p.Conditions, string(gwv1.RouteConditionAccepted)) {
				continue
			}
			if why := parent.unserved(p.ParentRef); why != "" {
				if o.unserved == nil {
					o.unserved = map[ref]string{}
				}
				o.unserved[p.ParentRef] = why + "; see " + p.ParentRef.object(o.Namespace)
			}
		}
		objects[i] = o
	}
	return objects, nil
}

// absentGateway returns the message that the Gateway of a parentRef does not exist, and which one was probably meant.
func absentGateway(p ref, namespace string, gateways map[[2]string]string) string {
	var here, elsewhere []string
	for key := range gateways {
		switch {
		case key[0] == namespace:
			here = append(here, key[1])
		case key[1] == p.Name:
			elsewhere = append(elsewhere, key[0])
		}
	}
	remedy := "create it or correct the name"
	switch {
	case len(elsewhere) > 0:
		there := slices.Min(elsewhere)
		remedy = "did you mean the one in namespace " + there + "? Then write namespace: " + there + " in the parentRef"
	case len(here) > 0:
		slices.Sort(here)
		more := ""
		if most := 5; len(here) > most {
			here, more = here[:most], ", ..."
		}
		remedy += "; this namespace has " + strings.Join(here, ", ") + more
	}
	return p.object(namespace) + " does not exist; " + remedy
}

// String returns the object as "HTTPRoute default/web".
func (o *Object) String() string {
	if o.Namespace == "" {
		return o.Kind + " " + o.Name
	}
	return o.Kind + " " + o.Namespace + "/" + o.Name
}

// Listeners returns those in the spec of a Gateway or ListenerSet.
func (o *Object) Listeners() []Listener { return o.fields.Spec.Listeners }

// Gateway returns the name of a Gateway, or of the Gateway of a ListenerSet, as "<namespace>/<name>".
func (o *Object) Gateway() string {
	key := [2]string{o.Namespace, o.Name}
	if o.ofListeners() {
		key = o.fields.Spec.ParentRef.key(o.Namespace)
	}
	return key[0] + "/" + key[1]
}

// Class returns the GatewayClass of a Gateway.
func (o *Object) Class() string { return o.fields.Spec.GatewayClassName }

func (o *Object) ofListeners() bool { return o.Kind == "ListenerSet" || o.Kind == "XListenerSet" }

// foreign reports whether another controller manages the object.
func (o *Object) foreign() bool { return o.controller != "" && o.controller != o.ours }

// subject is a part of an object that has its own conditions.
type subject struct {
	where      string // "", "listener http" or "parent default/gw"
	conditions []metav1.Condition
	parent     string // of a route, as returned by ref.object
	unserved   string // of a parent, see Object
}

func (o *Object) subjects() []subject {
	if o.foreign() {
		return nil
	}
	var all []subject
	c := o.fields.Status.Conditions
	if (o.Kind == "Gateway" || o.ofListeners()) && o.controller == "" { // these are the defaults of its CRD: its class is unknown, so no controller has written its status
		c = slices.DeleteFunc(slices.Clone(c), func(c metav1.Condition) bool {
			return c.Status == metav1.ConditionUnknown && c.Reason == string(gwv1.GatewayReasonPending)
		})
	}
	if len(c) > 0 {
		all = append(all, subject{conditions: c})
	}
	for _, l := range o.fields.Status.Listeners {
		all = append(all, subject{where: "listener " + l.Name, conditions: l.Conditions})
	}
	for _, p := range o.fields.Status.Parents {
		if p.ControllerName == o.ours {
			all = append(all, subject{"parent " + p.ParentRef.String(), p.Conditions, p.ParentRef.object(o.Namespace), o.unserved[p.ParentRef]})
		}
	}
	for _, a := range o.fields.Status.Ancestors {
		if a.ControllerName == o.ours {
			all = append(all, subject{where: "ancestor " + a.AncestorRef.String(), conditions: a.Conditions})
		}
	}
	return all
}
