package translate_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/anypb"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"
	apisx "sigs.k8s.io/gateway-api/apisx/v1alpha1"

	eg "github.com/moongate-dev/moongate/api/envoygateway/v1alpha1"
	gwx "github.com/moongate-dev/moongate/api/gatewayx/v1alpha1"
	"github.com/moongate-dev/moongate/api/v1alpha1"
	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/kind"
	"github.com/moongate-dev/moongate/internal/translate"
)

// The printed form of config and statuses: YAML of our own making, since the
// encodings of protobuf are unstable by design.

func (w *world) printConfig(t *testing.T) string {
	t.Helper()
	list := &yaml.Node{Kind: yaml.SequenceNode}
	for _, id := range sortedIDs(w.config) {
		m := w.config[id].ProtoReflect()
		inner := m.Get(m.WhichOneof(m.Descriptor().Oneofs().Get(0))).Message()
		list.Content = append(list.Content, mapping(id.String(), messageNode(t, inner, "key")))
	}
	return section(t, "config", list)
}

// printProxySpecs leaves out the parameters where there are none, and the addresses' type, which is one.
func (w *world) printProxySpecs(t *testing.T) string {
	t.Helper()
	list := &yaml.Node{Kind: yaml.SequenceNode}
	for _, key := range slices.Sorted(maps.Keys(w.specs)) {
		p := w.specs[key]
		var shown struct {
			UID         string                          `json:"uid,omitempty"`
			Class       string                          `json:"class"`
			Merged      []string                        `json:"merged,omitempty"`
			Paused      bool                            `json:"paused,omitempty"`
			Ports       []string                        `json:"ports"`
			Addresses   []string                        `json:"addresses,omitempty"`
			Unaddressed bool                            `json:"unaddressed,omitempty"`
			Labels      map[string]string               `json:"labels,omitempty"`
			Annotations map[string]string               `json:"annotations,omitempty"`
			Parameters  *v1alpha1.GatewayParametersSpec `json:"parameters,omitempty"`
		}
		shown.UID, shown.Class, shown.Paused, shown.Ports, shown.Labels, shown.Annotations = string(p.UID), p.Class, p.Paused, []string{}, p.Labels, p.Annotations
		shown.Unaddressed = p.Unaddressed
		for _, m := range p.Merged {
			shown.Merged = append(shown.Merged, fmt.Sprintf("%s/%s %s", m.Namespace, m.Name, m.UID))
		}
		for _, port := range p.Ports {
			shown.Ports = append(shown.Ports, fmt.Sprint(port.Port, map[bool]string{false: "/TCP", true: "/UDP"}[port.UDP]))
		}
		for _, a := range p.Addresses {
			if *a.Type != gwv1.IPAddressType {
				t.Errorf("%s: spec of address %v", key, a)
			}
			shown.Addresses = append(shown.Addresses, strings.TrimSpace(a.Value+" "+string(a.Routability)))
		}
		if !equality.Semantic.DeepEqual(p.Parameters, v1alpha1.GatewayParametersSpec{}) {
			shown.Parameters = &p.Parameters
		}
		text, err := json.Marshal(shown)
		if err != nil {
			t.Fatal(err)
		}
		var n yaml.Node
		if err := yaml.Unmarshal(text, &n); err != nil {
			t.Fatal(err)
		}
		plainStyle(n.Content[0])
		list.Content = append(list.Content, mapping("Gateway "+key, n.Content[0]))
	}
	return section(t, "proxySpecs", list)
}

// plainStyle drops the quotes and braces of JSON, but for lists of scalars.
func plainStyle(n *yaml.Node) {
	n.Style = 0
	flat := true
	for _, c := range n.Content {
		plainStyle(c)
		flat = flat && c.Kind == yaml.ScalarNode
	}
	if n.Kind == yaml.SequenceNode && flat {
		n.Style = yaml.FlowStyle
	}
}

func (w *world) printSecretRequests(t *testing.T) string {
	t.Helper()
	list := &yaml.Node{Kind: yaml.SequenceNode}
	for _, k := range slices.SortedFunc(maps.Keys(w.needed), kind.ObjectKey.Compare) {
		if k.Group != "" || k.Kind != "Secret" {
			t.Errorf("%v is requested", k)
		}
		list.Content = append(list.Content, scalar(k.Kind+" "+k.Namespace+"/"+k.Name))
	}
	return section(t, "secretRequests", list)
}

func section(t *testing.T, title string, list *yaml.Node) string {
	t.Helper()
	if len(list.Content) == 0 {
		list.Style = yaml.FlowStyle
	}
	var b bytes.Buffer
	e := yaml.NewEncoder(&b)
	e.SetIndent(2)
	if err := e.Encode(mapping(title, list)); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func scalar(v any) *yaml.Node {
	n := &yaml.Node{}
	if err := n.Encode(v); err != nil {
		panic(err)
	}
	return n
}

func mapping(pairs ...any) *yaml.Node {
	n := &yaml.Node{Kind: yaml.MappingNode}
	for i := 0; i < len(pairs); i += 2 {
		n.Content = append(n.Content, scalar(pairs[i]), pairs[i+1].(*yaml.Node))
	}
	return n
}

// messageNode prints the fields that are set, in order; skip is one that the
// title tells already. A message of scalars only stands on one line.
func messageNode(t *testing.T, m protoreflect.Message, skip protoreflect.Name) *yaml.Node {
	t.Helper()
	if a, is := m.Interface().(*anypb.Any); is {
		inner, err := a.UnmarshalNew()
		if err != nil {
			t.Fatal(err)
		}
		return mapping(string(inner.ProtoReflect().Descriptor().Name()), messageNode(t, inner.ProtoReflect(), ""))
	}
	out := mapping()
	flat := true
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		if f.Name() == skip || !m.Has(f) {
			continue
		}
		var n *yaml.Node
		switch v := m.Get(f); {
		case f.IsList():
			n = &yaml.Node{Kind: yaml.SequenceNode}
			for j := range v.List().Len() {
				item := fieldNode(t, f, v.List().Get(j))
				n.Content = append(n.Content, item)
				if item.Kind == yaml.MappingNode {
					flat = false
				}
			}
			if f.Kind() != protoreflect.MessageKind {
				n.Style = yaml.FlowStyle
			}
		default:
			n = fieldNode(t, f, v)
			if n.Kind == yaml.MappingNode && n.Style != yaml.FlowStyle {
				flat = false
			}
		}
		out.Content = append(out.Content, scalar(string(f.Name())), n)
	}
	if flat {
		out.Style = yaml.FlowStyle
	}
	return out
}

func fieldNode(t *testing.T, f protoreflect.FieldDescriptor, v protoreflect.Value) *yaml.Node {
	t.Helper()
	switch f.Kind() {
	case protoreflect.MessageKind:
		return messageNode(t, v.Message(), "")
	case protoreflect.EnumKind:
		values := f.Enum().Values()
		first := string(values.Get(0).Name()) // PREFIX_UNSPECIFIED, or what the default is called
		prefix := first[:strings.LastIndexByte(first, '_')+1]
		return scalar(strings.TrimPrefix(string(values.ByNumber(v.Enum()).Name()), prefix))
	case protoreflect.BytesKind:
		return scalar(fmt.Sprintf("%d bytes, sha256 %.4x...", len(v.Bytes()), sha256.Sum256(v.Bytes())))
	}
	if text, is := v.Interface().(string); is && strings.HasPrefix(text, "-----BEGIN ") {
		return scalar(fmt.Sprintf("%d bytes, sha256 %.4x...", len(text), sha256.Sum256([]byte(text))))
	}
	return scalar(v.Interface())
}

func (w *world) printStatus(t *testing.T) string {
	t.Helper()
	list := &yaml.Node{Kind: yaml.SequenceNode}
	for _, k := range slices.SortedFunc(maps.Keys(w.statuses), kind.ObjectKey.Compare) {
		if k.Kind == "GatewayClass" && k.Name == "moongate" {
			continue // the class that a file does not need to mention
		}
		title := k.Kind + " " + k.Name
		if k.Namespace != "" {
			title = k.Kind + " " + k.Namespace + "/" + k.Name
		}
		group := gwv1.GroupName
		switch k.Kind {
		case "GatewayParameters":
			group = v1alpha1.GroupName
		case "BackendTrafficPolicy":
			group = eg.GroupName
		case "XListenerSet", "XBackend", "XBackendTrafficPolicy", "XTelemetryPolicy":
			group = gwx.GroupName
		}
		if k.Group != group {
			t.Errorf("%s: group %q", title, k.Group)
		}
		list.Content = append(list.Content, mapping(title, statusNode(t, w.statuses[k])))
	}
	return section(t, "status", list)
}

func statusNode(t *testing.T, c translate.StatusChange) *yaml.Node {
	t.Helper()
	switch s := c.Status.(type) {
	case *gwv1.GatewayClassStatus:
		features := make([]string, len(s.SupportedFeatures))
		for i, f := range s.SupportedFeatures {
			features[i] = string(f.Name)
		}
		return mapping("conditions", conditionsNode(t, c, s.Conditions), "supportedFeatures", scalar(features))
	case *gwv1.GatewayStatus:
		return gatewayNode(t, c, s)
	case *v1alpha1.GatewayParametersStatus:
		return mapping("conditions", conditionsNode(t, c, s.Conditions))
	case *gwv1.ListenerSetStatus:
		listeners := &yaml.Node{Kind: yaml.SequenceNode}
		for _, l := range s.Listeners {
			listeners.Content = append(listeners.Content, listenerNode(t, c, gwv1.ListenerStatus(l)))
		}
		return mapping("conditions", conditionsNode(t, c, s.Conditions), "listeners", listeners)
	case *gwx.ListenerSetStatus:
		listeners := &yaml.Node{Kind: yaml.SequenceNode}
		for _, l := range s.Listeners {
			node := listenerNode(t, c, gwv1.ListenerStatus{Name: l.Name, SupportedKinds: l.SupportedKinds, AttachedRoutes: l.AttachedRoutes, Conditions: l.Conditions})
			node.Content = append(node.Content, scalar("port"), scalar(l.Port))
			listeners.Content = append(listeners.Content, node)
		}
		return mapping("conditions", conditionsNode(t, c, s.Conditions), "listeners", listeners)
	case *gwv1.RouteStatus:
		parents := &yaml.Node{Kind: yaml.SequenceNode}
		for _, p := range s.Parents {
			parents.Content = append(parents.Content, relationNode(t, c, "parentRef", p.ParentRef, p.ControllerName, p.Conditions))
		}
		return mapping("parents", parents)
	case *gwv1.PolicyStatus:
		ancestors := &yaml.Node{Kind: yaml.SequenceNode}
		for _, a := range s.Ancestors {
			ancestors.Content = append(ancestors.Content, relationNode(t, c, "ancestorRef", a.AncestorRef, a.ControllerName, a.Conditions))
		}
		return mapping("ancestors", ancestors)
	case *apisx.BackendStatus:
		ancestors := &yaml.Node{Kind: yaml.SequenceNode}
		for _, a := range s.Ancestors {
			ancestors.Content = append(ancestors.Content, relationNode(t, c, "ancestorRef", a.AncestorRef, a.ControllerName, a.Conditions))
		}
		return mapping("ancestors", ancestors)
	}
	t.Fatalf("status of type %T", c.Status)
	return nil
}

func gatewayNode(t *testing.T, c translate.StatusChange, s *gwv1.GatewayStatus) *yaml.Node {
	t.Helper()
	addresses := []string{}
	for _, a := range s.Addresses {
		if a.Routability == nil {
			t.Errorf("address %s is without routability", a.Value)
			continue
		}
		addresses = append(addresses, strings.TrimSpace(string(*a.Type)+" "+a.Value+" "+string(*a.Routability)))
	}
	list := scalar(addresses)
	list.Style = yaml.FlowStyle
	listeners := &yaml.Node{Kind: yaml.SequenceNode}
	for _, l := range s.Listeners {
		listeners.Content = append(listeners.Content, listenerNode(t, c, l))
	}
	if n := s.AttachedListenerSets; n != nil {
		return mapping("addresses", list, "attachedListenerSets", scalar(*n), "conditions", conditionsNode(t, c, s.Conditions), "listeners", listeners)
	}
	return mapping("addresses", list, "conditions", conditionsNode(t, c, s.Conditions), "listeners", listeners)
}

func listenerNode(t *testing.T, c translate.StatusChange, l gwv1.ListenerStatus) *yaml.Node {
	t.Helper()
	kinds := []string{}
	for _, k := range l.SupportedKinds {
		kinds = append(kinds, string(*k.Group)+"/"+string(k.Kind))
	}
	names := scalar(kinds)
	names.Style = yaml.FlowStyle
	return mapping("name", scalar(string(l.Name)), "attachedRoutes", scalar(l.AttachedRoutes), "supportedKinds", names,
		"conditions", conditionsNode(t, c, l.Conditions))
}

func relationNode(t *testing.T, c translate.StatusChange, title string, ref gwv1.ParentReference, by gwv1.GatewayController, conditions []metav1.Condition) *yaml.Node {
	t.Helper()
	if by != controllerName {
		t.Errorf("%v: controllerName %q", c.Object, by)
	}
	r := mapping()
	add := func(k string, v any) { r.Content = append(r.Content, scalar(k), scalar(v)) }
	if ref.Group != nil {
		add("group", string(*ref.Group))
	}
	if ref.Kind != nil {
		add("kind", string(*ref.Kind))
	}
	if ref.Namespace != nil {
		add("namespace", string(*ref.Namespace))
	}
	add("name", string(ref.Name))
	if ref.SectionName != nil {
		add("sectionName", string(*ref.SectionName))
	}
	if ref.Port != nil {
		add("port", *ref.Port)
	}
	r.Style = yaml.FlowStyle
	return mapping(title, r, "conditions", conditionsNode(t, c, conditions))
}

// conditionsNode prints "Type: Status/Reason" and the message, and checks what
// holds for every condition.
func conditionsNode(t *testing.T, c translate.StatusChange, list []metav1.Condition) *yaml.Node {
	t.Helper()
	out := mapping()
	seen := map[string]bool{}
	for _, x := range list {
		if seen[x.Type] || len(list) > 8 {
			t.Errorf("%v: conditions %v", c.Object, list)
		}
		seen[x.Type] = true
		if x.ObservedGeneration != c.Generation || c.Generation < 1 {
			t.Errorf("%v: %s is of generation %d, the status of %d", c.Object, x.Type, x.ObservedGeneration, c.Generation)
		}
		if !x.LastTransitionTime.IsZero() || x.Reason == "" || len(x.Message) > 32768 {
			t.Errorf("%v: condition %v", c.Object, x)
		}
		text := string(x.Status) + "/" + x.Reason
		if x.ObservedGeneration != 1 {
			text += fmt.Sprintf("@%d", x.ObservedGeneration)
		}
		if x.Message != "" {
			text += " " + x.Message
		} else if x.Status != metav1.ConditionTrue {
			t.Errorf("%v: %s=%s without a message", c.Object, x.Type, text)
		}
		out.Content = append(out.Content, scalar(x.Type), scalar(text))
	}
	return out
}

// TestPrint keeps the printed form itself from changing unnoticed.
func TestPrint(t *testing.T) {
	w := newWorld()
	r := &config.Resource{Kind: &config.Resource_Backend{Backend: &config.Backend{Key: "Service/a/b/80", Namespace: "a", Name: "b", Port: 80}}}
	w.config[r.ID()] = proto.CloneOf(r)
	want := "config:\n  - Backend Service/a/b/80: {namespace: a, name: b, port: 80}\n"
	if got := w.printConfig(t); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
