package admin

import (
	"cmp"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/moongate-dev/moongate/internal/status"
)

// Maximums of what is kept of one object, so that no object fills the page.
const (
	maxShownRules      = 16
	maxShownMatches    = 4
	maxShownBackends   = 16
	maxShownHostnames  = 16
	maxShownParents    = 16
	maxShownListeners  = 64
	maxShownConditions = 16
)

// forgetAfter is how long what was read of objects is cached without requests.
const forgetAfter = time.Minute

// object is what the dashboard reads of any Gateway API object; its spec depends on the kind.
type object struct {
	Kind     string `json:"kind"`
	Metadata struct {
		Namespace string `json:"namespace"`
		Name      string `json:"name"`
	} `json:"metadata"`
	Spec   json.RawMessage `json:"spec"`
	Status struct {
		Conditions []condition `json:"conditions"`
		Addresses  []struct {
			Value string `json:"value"`
		} `json:"addresses"`
		Listeners []struct {
			Name           string      `json:"name"`
			AttachedRoutes int         `json:"attachedRoutes"`
			Conditions     []condition `json:"conditions"`
		} `json:"listeners"`
		Parents []struct {
			ParentRef  parentRef   `json:"parentRef"`
			Conditions []condition `json:"conditions"`
		} `json:"parents"`
		Ancestors []struct {
			AncestorRef parentRef   `json:"ancestorRef"`
			Conditions  []condition `json:"conditions"`
		} `json:"ancestors"`
	} `json:"status"`
}

// gatewaySpec is the spec of Gateways and ListenerSets.
type gatewaySpec struct {
	GatewayClassName string    `json:"gatewayClassName"`
	ParentRef        parentRef `json:"parentRef"`
	Listeners        []struct {
		Name     string `json:"name"`
		Hostname string `json:"hostname"`
		Port     int    `json:"port"`
		Protocol string `json:"protocol"`
	} `json:"listeners"`
}

// routeSpec is the spec of routes of all kinds.
type routeSpec struct {
	Hostnames []string `json:"hostnames"`
	Rules     []struct {
		Name    string `json:"name"`
		Matches []struct {
			Path *struct {
				Type  string `json:"type"`
				Value string `json:"value"`
			} `json:"path"`
			Method      json.RawMessage `json:"method"` // a string, or a gRPC service and method
			Headers     []matchedValue  `json:"headers"`
			QueryParams []matchedValue  `json:"queryParams"`
		} `json:"matches"`
		Filters []struct {
			Type string `json:"type"`
		} `json:"filters"`
		BackendRefs []struct {
			Kind      string `json:"kind"`
			Namespace string `json:"namespace"`
			Name      string `json:"name"`
			Port      int    `json:"port"`
			Weight    *int   `json:"weight"`
		} `json:"backendRefs"`
	} `json:"rules"`
}

type matchedValue struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// policySpec is what the specs of policies have in common.
type policySpec struct {
	TargetRef       *policyTarget  `json:"targetRef"`
	TargetRefs      []policyTarget `json:"targetRefs"`
	TargetSelectors []struct {
		Kind        string            `json:"kind"`
		MatchLabels map[string]string `json:"matchLabels"`
	} `json:"targetSelectors"`
}

type policyTarget struct {
	Kind        string `json:"kind"`
	Namespace   string `json:"namespace"`
	Name        string `json:"name"`
	SectionName string `json:"sectionName"`
}

type condition struct {
	Type    string `json:"type"`
	Status  string `json:"status"`
	Reason  string `json:"reason"`
	Message string `json:"message"`
}

type parentRef struct {
	Kind        string `json:"kind"`
	Namespace   string `json:"namespace"`
	Name        string `json:"name"`
	SectionName string `json:"sectionName"`
	Port        int    `json:"port"`
}

// String returns "<namespace>/<name>", with listener and port if they are named.
func (p parentRef) String() string {
	s := p.Name
	if p.Namespace != "" {
		s = p.Namespace + "/" + s
	}
	if p.Kind != "" && p.Kind != "Gateway" {
		s = p.Kind + " " + s
	}
	if p.SectionName != "" {
		s += " " + p.SectionName
	}
	if p.Port != 0 {
		s += fmt.Sprintf(" :%d", p.Port)
	}
	return s
}

// neither are conditions that are neither good nor bad: they describe how policies relate.
var neither = map[string]bool{"Aggregated": true, "Merged": true, "Overridden": true, "Warning": true}

func badges(conditions []condition) []badge {
	conditions = conditions[:min(len(conditions), maxShownConditions)]
	out := make([]badge, len(conditions))
	for i, c := range conditions {
		class := "unknown"
		switch {
		case c.Status == "Unknown" || neither[c.Type]:
		case (c.Status == "True") != status.BadWhenTrue(c.Type):
			class = "ok"
		default:
			class = "bad"
		}
		out[i] = badge{c.Type, c.Status, c.Reason, clip(c.Message, maxShownMessage), class}
	}
	return out
}

func anyBad(list []badge) bool {
	return slices.ContainsFunc(list, func(b badge) bool { return b.Class == "bad" })
}

// entry is one object on the dashboard: exactly one of its rows is set. It is immutable.
type entry struct {
	kind, name string
	search     string // the searchable text, in lower case
	trouble    bool   // a condition reports a problem
	item       any    // the item that it was read from

	gateway *gatewayRow
	route   *routeRow
	policy  *policyRow
	other   *objectRow
}

// compare orders entries with problems first, then by kind and name.
func (e *entry) compare(o *entry) int {
	return cmp.Or(boolOrder(e.trouble, o.trouble), cmp.Compare(e.kind, o.kind), cmp.Compare(e.name, o.name))
}

// fits reports whether the searchable text contains text, which must be in lower case.
func (e *entry) fits(text string) bool { return strings.Contains(e.search, text) }

// inventory is what was read of the objects, sorted. An entry is reused while its item, a pointer to an immutable object, is the
// same: thousands of objects are read every other second.
type inventory struct {
	read map[any]*entry
	all  []*entry
	// items are those from which all was made.
	items []any
}

func sameItems(a, b []any) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if !isComparable(a[i]) || !isComparable(b[i]) || a[i] != b[i] {
			return false
		}
	}
	return true
}

// isComparable reports whether an item can be a map key: decoded JSON cannot.
func isComparable(item any) bool { return item != nil && reflect.ValueOf(item).Comparable() }

// update reads new items.
func (in *inventory) update(items []any) error {
	if in.read != nil && sameItems(in.items, items) {
		return nil
	}
	read, all := make(map[any]*entry, len(items)), make([]*entry, 0, len(items))
	for _, item := range items {
		known := isComparable(item)
		var e *entry
		if known {
			e = in.read[item]
		}
		if e == nil {
			var err error
			if e, err = readEntry(item); err != nil {
				return err
			}
		}
		if known {
			read[item] = e
		}
		all = append(all, e)
	}
	slices.SortStableFunc(all, (*entry).compare)
	in.read, in.all, in.items = read, all, items
	return nil
}

func readEntry(item any) (*entry, error) {
	raw, err := json.Marshal(item)
	if err != nil {
		return nil, err
	}
	var o object
	if err := json.Unmarshal(raw, &o); err != nil {
		return nil, err
	}
	e := &entry{kind: o.Kind, name: o.Metadata.Name, item: item}
	if o.Metadata.Namespace != "" {
		e.name = o.Metadata.Namespace + "/" + e.name
	}
	words := []string{e.kind, e.name}
	// A spec that cannot be decoded belongs to an object that was rejected: its name and status are shown.
	switch {
	case o.Kind == "Gateway" || strings.HasSuffix(o.Kind, "ListenerSet"):
		words = append(words, e.readGateway(&o)...)
	case strings.HasSuffix(o.Kind, "Route"):
		words = append(words, e.readRoute(&o)...)
	case strings.HasSuffix(o.Kind, "Policy"):
		words = append(words, e.readPolicy(&o)...)
	default:
		e.other = &objectRow{o.Kind, e.name, o.allConditions()}
		e.trouble = anyBad(e.other.Conditions)
	}
	e.search = strings.ToLower(strings.Join(words, " "))
	return e, nil
}

func (e *entry) readGateway(o *object) (words []string) {
	var spec gatewaySpec
	_ = unmarshalSpec(o.Spec, &spec)
	row := &gatewayRow{Kind: o.Kind, Name: e.name, Class: spec.GatewayClassName, Conditions: badges(o.Status.Conditions)}
	counted := e.name + "/"
	if o.Kind != "Gateway" {
		p := spec.ParentRef
		p.Namespace = cmp.Or(p.Namespace, o.Metadata.Namespace)
		row.Parent = p.String()
		counted = p.Namespace + "/" + p.Name + "/" + e.name + "/"
	}
	e.trouble = anyBad(row.Conditions)
	for _, a := range o.Status.Addresses {
		row.Addresses = append(row.Addresses, a.Value)
	}
	row.MoreListeners = max(len(spec.Listeners)-maxShownListeners, 0)
	for _, l := range spec.Listeners[:len(spec.Listeners)-row.MoreListeners] {
		r := listenerRow{Name: l.Name, Protocol: l.Protocol, Hostname: l.Hostname, Port: l.Port, counted: counted + l.Name}
		for _, s := range o.Status.Listeners {
			if s.Name == l.Name {
				r.AttachedRoutes, r.Conditions = s.AttachedRoutes, badges(s.Conditions)
			}
		}
		e.trouble = e.trouble || anyBad(r.Conditions)
		row.Listeners = append(row.Listeners, r)
		words = append(words, l.Hostname)
	}
	e.gateway = row
	return append(words, row.Parent)
}

func (e *entry) readRoute(o *object) (words []string) {
	var spec routeSpec
	_ = unmarshalSpec(o.Spec, &spec)
	row := &routeRow{Kind: o.Kind, Name: e.name, MoreHostnames: max(len(spec.Hostnames)-maxShownHostnames, 0)}
	row.Hostnames = spec.Hostnames[:len(spec.Hostnames)-row.MoreHostnames]
	words = append(words, row.Hostnames...)
	for _, p := range o.Status.Parents[:min(len(o.Status.Parents), maxShownParents)] {
		b := badges(p.Conditions)
		row.Parents = append(row.Parents, parentRow{p.ParentRef.String(), b})
		words = append(words, p.ParentRef.String())
		e.trouble = e.trouble || anyBad(b)
	}
	row.MoreRules = max(len(spec.Rules)-maxShownRules, 0)
	for i, r := range spec.Rules[:len(spec.Rules)-row.MoreRules] {
		shown := ruleRow{Name: cmp.Or(r.Name, fmt.Sprintf("rules[%d]", i)), MoreMatches: max(len(r.Matches)-maxShownMatches, 0)}
		for _, m := range r.Matches[:len(r.Matches)-shown.MoreMatches] {
			var parts []string
			if m.Path != nil {
				switch m.Path.Type {
				case "Exact":
					parts = append(parts, "path "+m.Path.Value)
				case "RegularExpression":
					parts = append(parts, "path like "+m.Path.Value)
				default:
					parts = append(parts, "path prefix "+m.Path.Value)
				}
			}
			parts = append(parts, shownMethod(m.Method)...)
			for _, h := range m.Headers {
				parts = append(parts, "header "+h.Name+"="+h.Value)
			}
			for _, q := range m.QueryParams {
				parts = append(parts, "query "+q.Name+"="+q.Value)
			}
			shown.Matches = append(shown.Matches, clip(strings.Join(parts, ", "), maxShownText))
		}
		for _, f := range r.Filters[:min(len(r.Filters), maxShownRules)] {
			shown.Filters = append(shown.Filters, f.Type)
		}
		shown.MoreBackends = max(len(r.BackendRefs)-maxShownBackends, 0)
		for _, b := range r.BackendRefs[:len(r.BackendRefs)-shown.MoreBackends] {
			ref := backendRef{Weight: 1, Key: strings.Join([]string{cmp.Or(b.Kind, "Service"), cmp.Or(b.Namespace, o.Metadata.Namespace), b.Name, fmt.Sprint(b.Port)}, "/")}
			if b.Weight != nil {
				ref.Weight = *b.Weight
			}
			shown.Backends = append(shown.Backends, ref)
			words = append(words, ref.Key)
		}
		row.Rules = append(row.Rules, shown)
	}
	e.route = row
	return words
}

// shownMethod returns the method of a match, if any.
func shownMethod(raw json.RawMessage) []string {
	var text string
	var grpc struct{ Service, Method string }
	switch {
	case raw == nil:
	case json.Unmarshal(raw, &text) == nil:
		if text != "" {
			return []string{"method " + text}
		}
	case json.Unmarshal(raw, &grpc) == nil:
		return []string{"method " + cmp.Or(grpc.Service, "*") + "/" + cmp.Or(grpc.Method, "*")}
	}
	return nil
}

func (e *entry) readPolicy(o *object) (words []string) {
	var spec policySpec
	_ = unmarshalSpec(o.Spec, &spec)
	row := &policyRow{Kind: o.Kind, Name: e.name}
	targets := spec.TargetRefs
	if spec.TargetRef != nil {
		targets = append(targets, *spec.TargetRef)
	}
	for _, t := range targets[:min(len(targets), maxShownParents)] {
		text := t.Kind + " " + cmp.Or(t.Namespace, o.Metadata.Namespace) + "/" + t.Name
		if t.SectionName != "" {
			text += " " + t.SectionName
		}
		row.Targets = append(row.Targets, text)
	}
	for _, s := range spec.TargetSelectors[:min(len(spec.TargetSelectors), maxShownParents)] {
		labels := make([]string, 0, len(s.MatchLabels))
		for k, v := range s.MatchLabels {
			labels = append(labels, k+"="+v)
		}
		slices.Sort(labels)
		row.Targets = append(row.Targets, clip("every "+s.Kind+" with "+strings.Join(labels, ", "), maxShownText))
	}
	for _, a := range o.Status.Ancestors[:min(len(o.Status.Ancestors), maxShownParents)] {
		b := badges(a.Conditions)
		row.Ancestors = append(row.Ancestors, parentRow{a.AncestorRef.String(), b})
		e.trouble = e.trouble || anyBad(b)
	}
	e.policy = row
	return append(words, row.Targets...)
}

func unmarshalSpec(raw json.RawMessage, into any) error {
	if raw == nil {
		return nil
	}
	return json.Unmarshal(raw, into)
}

// Maximum lengths of texts of an object in bytes.
const (
	maxShownText    = 256
	maxShownMessage = 1024
)

// clip truncates a text of an object.
func clip(s string, most int) string {
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}

// boolOrder orders true first.
func boolOrder(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	}
	return 1
}

func (o *object) allConditions() []badge {
	out := badges(o.Status.Conditions)
	for _, a := range o.Status.Ancestors[:min(len(o.Status.Ancestors), maxShownParents)] {
		out = append(out, badges(a.Conditions)...)
	}
	return out
}
