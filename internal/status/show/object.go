// Package show tells people what the statuses of objects say: one line for what is
// well, and for what is not the condition that is the cause. It exists because
// several verbs show objects, from files and from a cluster, and should agree.
//
// It imports neither translate, proxy nor source, and reads objects as JSON alone.
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

// Object is an object with its status, whatever its kind.
type Object struct {
	Kind, Namespace, Name string

	fields fields
	// controller is the one that looks after the object alone: ours, a foreign one, or
	// "" where nobody knows, or where entries say whose they are.
	controller string
	ours       string
	// expected says that a Gateway of ours is among the parentRefs, or a default one that the route asks for; unseen, that one
	// of another namespace is that is not shown.
	expected, unseen bool
	// absent is, of a route one of whose parentRefs names a Gateway of its own namespace that does not exist, what to say of it; else "".
	absent string
	// unserved are, of a route, parents of ours that have accepted it on listeners none of which is programmed, and what they are not.
	unserved map[ref]string
	// causes are the objects with faults of their own, by what String returns, and whether they were refused; see Blame.
	causes map[string]bool
	// rewrite improves messages of complaints; nil leaves them. See Suggest.
	rewrite func(message, namespace string) string
}

// fields are what there is to show of an object.
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

// Listener is what decides which requests and connections a listener is for.
type Listener struct {
	Name     string `json:"name"`
	Hostname string `json:"hostname"`
	Port     int32  `json:"port"`
	Protocol string `json:"protocol"`
}

// listeners are those of an object's spec; none where they have a form that this version does not know, which is no reason not to show the object.
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

// key is the namespace and name of what an object of a namespace refers to.
func (r ref) key(namespace string) [2]string {
	if r.Namespace != "" {
		namespace = r.Namespace
	}
	return [2]string{namespace, r.Name}
}

// object names what an object of a namespace refers to, as Object.String does.
func (r ref) object(namespace string) string {
	key := r.key(namespace)
	return cmp.Or(r.Kind, "Gateway") + " " + key[0] + "/" + key[1]
}

// unserved says what a Gateway or ListenerSet is not, where none of its listeners that a parentRef names is programmed; "" where one is, or may be.
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

// Objects reads objects, or whatever prints as such in JSON. Only what is of the
// controller of that name gets a judgement.
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
	parents := map[string]*fields{}                                  // by what ref.object returns
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
				elsewhere := p.Namespace != "" && p.Namespace != o.Namespace
				o.unseen = o.unseen || !seen && elsewhere
				if !seen && !elsewhere && o.absent == "" && len(gateways) > 0 { // with none at all, it may be that Gateways could not be read
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

// absentGateway says that the Gateway of a parentRef does not exist, and which one was probably meant.
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

// String names the object: "HTTPRoute default/web".
func (o *Object) String() string {
	if o.Namespace == "" {
		return o.Kind + " " + o.Name
	}
	return o.Kind + " " + o.Namespace + "/" + o.Name
}

// Listeners are those in the spec of a Gateway or ListenerSet.
func (o *Object) Listeners() []Listener { return o.fields.Spec.Listeners }

// Gateway is the one that a Gateway is, or a ListenerSet is for, as "<namespace>/<name>".
func (o *Object) Gateway() string {
	key := [2]string{o.Namespace, o.Name}
	if o.ofListeners() {
		key = o.fields.Spec.ParentRef.key(o.Namespace)
	}
	return key[0] + "/" + key[1]
}

// Class is the GatewayClass of a Gateway.
func (o *Object) Class() string { return o.fields.Spec.GatewayClassName }

func (o *Object) ofListeners() bool { return o.Kind == "ListenerSet" || o.Kind == "XListenerSet" }

// foreign says that another controller looks after the object.
func (o *Object) foreign() bool { return o.controller != "" && o.controller != o.ours }

// subject is a part of an object that has conditions of its own.
type subject struct {
	where      string // "", "listener http" or "parent default/gw"
	conditions []metav1.Condition
	parent     string // of a route, as ref.object has it
	unserved   string // of a parent, as Object has it
}

func (o *Object) subjects() []subject {
	if o.foreign() {
		return nil
	}
	var all []subject
	c := o.fields.Status.Conditions
	if (o.Kind == "Gateway" || o.ofListeners()) && o.controller == "" { // the defaults of its CRD: of no class that is shown, so nobody has come to it
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
