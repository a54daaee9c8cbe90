package status

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/moongate-dev/moongate/api/v1alpha1"
)

const ours = "moongate.dev/gateway-controller"

var (
	then = metav1.NewTime(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
	now  = time.Date(2026, 6, 7, 8, 9, 10, 500, time.UTC)
)

func merger() Merger { return Merger{ControllerName: ours, Now: now} }

func condition(typ, status string, generation int64, at metav1.Time) metav1.Condition {
	return metav1.Condition{Type: typ, Status: metav1.ConditionStatus(status), Reason: typ, ObservedGeneration: generation, LastTransitionTime: at}
}

func TestConditions(t *testing.T) {
	at := metav1.NewTime(now.Truncate(time.Second))
	none := metav1.Time{}
	for _, test := range []struct {
		name                 string
		existing, want, then []metav1.Condition
	}{
		{name: "nothing at all"},
		{
			name: "new conditions come last and are stamped in full seconds",
			want: []metav1.Condition{condition("Accepted", "True", 1, none)},
			then: []metav1.Condition{condition("Accepted", "True", 1, at)},
		},
		{
			name:     "the time stays while the status does, other fields follow",
			existing: []metav1.Condition{condition("Accepted", "True", 1, then)},
			want:     []metav1.Condition{condition("Accepted", "True", 2, none)},
			then:     []metav1.Condition{condition("Accepted", "True", 2, then)},
		},
		{
			name:     "the time follows the status",
			existing: []metav1.Condition{condition("Accepted", "Unknown", 0, then)},
			want:     []metav1.Condition{condition("Accepted", "True", 2, none)},
			then:     []metav1.Condition{condition("Accepted", "True", 2, at)},
		},
		{
			name:     "foreign conditions and the order stay",
			existing: []metav1.Condition{condition("example.com/Audited", "True", 1, then), condition("Programmed", "True", 1, then), condition("Checked", "False", 9, then), condition("Accepted", "True", 1, then)},
			want:     []metav1.Condition{condition("Accepted", "True", 1, none), condition("Programmed", "True", 1, none)},
			then:     []metav1.Condition{condition("example.com/Audited", "True", 1, then), condition("Programmed", "True", 1, then), condition("Checked", "False", 9, then), condition("Accepted", "True", 1, then)},
		},
		{
			name:     "a condition of the Gateway API that is no longer wanted goes",
			existing: []metav1.Condition{condition("Conflicted", "True", 1, then), condition("Accepted", "False", 1, then)},
			want:     []metav1.Condition{condition("Accepted", "True", 2, none)},
			then:     []metav1.Condition{condition("Accepted", "True", 2, at)},
		},
		{
			name:     "a type that is there twice is there once",
			existing: []metav1.Condition{condition("Accepted", "True", 1, then), condition("Accepted", "False", 1, then)},
			want:     []metav1.Condition{condition("Accepted", "True", 1, none)},
			then:     []metav1.Condition{condition("Accepted", "True", 1, then)},
		},
		{
			name:     "a full list takes no more",
			existing: foreignConditions(8),
			want:     []metav1.Condition{condition("Accepted", "True", 1, none)},
			then:     foreignConditions(8),
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			before := slices.Clone(test.existing)
			if got := merger().conditions(test.existing, test.want); !reflect.DeepEqual(got, test.then) {
				t.Errorf("got  %v\nwant %v", got, test.then)
			}
			if !reflect.DeepEqual(before, test.existing) {
				t.Error("the existing conditions were modified")
			}
		})
	}
}

func foreignConditions(n int) []metav1.Condition {
	var list []metav1.Condition
	for i := range n {
		list = append(list, condition(fmt.Sprintf("example.com/C%d", i), "True", 1, then))
	}
	return list
}

func ref(name string) gwv1.ParentReference { return gwv1.ParentReference{Name: gwv1.ObjectName(name)} }

func parent(controller, name string, conditions ...metav1.Condition) gwv1.RouteParentStatus {
	return gwv1.RouteParentStatus{ParentRef: ref(name), ControllerName: gwv1.GatewayController(controller), Conditions: conditions}
}

func TestRouteKeepsForeignParents(t *testing.T) {
	existing := gwv1.RouteStatus{Parents: []gwv1.RouteParentStatus{
		parent("other.io/c", "gw", condition("Accepted", "False", 1, then)),
		parent(ours, "gone", condition("Accepted", "True", 1, then)),
		parent(ours, "gw", condition("Accepted", "True", 1, then)),
		parent("other.io/c", "gone", condition("Accepted", "True", 1, then)),
	}}
	desired := &gwv1.RouteStatus{Parents: []gwv1.RouteParentStatus{
		parent(ours, "new", condition("Accepted", "True", 2, metav1.Time{})),
		parent(ours, "gw", condition("Accepted", "True", 2, metav1.Time{})),
	}}
	want := gwv1.RouteStatus{Parents: []gwv1.RouteParentStatus{
		existing.Parents[0],
		parent(ours, "gw", condition("Accepted", "True", 2, then)),
		existing.Parents[3],
		parent(ours, "new", condition("Accepted", "True", 2, metav1.NewTime(now.Truncate(time.Second)))),
	}}
	got, changed := merger().Route(existing, desired)
	if !changed || !reflect.DeepEqual(got, want) {
		t.Errorf("changed %v\ngot  %v\nwant %v", changed, got, want)
	}
	got, changed = merger().Route(existing, nil)
	if want := []gwv1.RouteParentStatus{existing.Parents[0], existing.Parents[3]}; !changed || !reflect.DeepEqual(got.Parents, want) {
		t.Errorf("after the end: changed %v, got %v, want %v", changed, got.Parents, want)
	}
}

// TestUnknownParentsStay: an entry of ours for a parent that is unknown keeps its place and content, unless something else is wanted there.
func TestUnknownParentsStay(t *testing.T) {
	m := merger()
	m.Unknown = func(ref gwv1.ParentReference) bool { return strings.HasPrefix(string(ref.Name), "unread") }
	existing := gwv1.RouteStatus{Parents: []gwv1.RouteParentStatus{
		parent(ours, "gone", condition("Accepted", "True", 1, then)), parent(ours, "unread", condition("Accepted", "True", 1, then)),
		parent(ours, "gw", condition("Accepted", "True", 1, then)), parent(ours, "unread-and-wanted", condition("Accepted", "True", 1, then)),
	}}
	names := func(s gwv1.RouteStatus) (all []string) {
		for _, p := range s.Parents {
			all = append(all, fmt.Sprint(p.ParentRef.Name, " ", p.Conditions[0].Status))
		}
		return all
	}
	wanted := &gwv1.RouteStatus{Parents: []gwv1.RouteParentStatus{
		parent("", "unread-and-wanted", condition("Accepted", "False", 1, then)), parent("", "gw", condition("Accepted", "False", 1, then))}}
	merged, changed := m.Route(existing, wanted)
	if want := []string{"unread True", "gw False", "unread-and-wanted False"}; !changed || !slices.Equal(names(merged), want) {
		t.Errorf("changed %v to %q, want %q", changed, names(merged), want)
	}
	if again, changed := m.Route(merged, wanted); changed {
		t.Errorf("changed again, to %q", names(again))
	}
	if ended, changed := m.Route(merged, nil); !changed || !slices.Equal(names(ended), []string{"unread True", "unread-and-wanted False"}) {
		t.Errorf("nothing is wanted: changed %v to %q", changed, names(ended))
	}
}

// TestUnknownIsNotMissing: what cannot be read exists, whatever is wanted for it, which was computed without it.
func TestUnknownIsNotMissing(t *testing.T) {
	m := merger()
	m.Unknown = func(ref gwv1.ParentReference) bool { return strings.HasPrefix(string(ref.Name), "unread") }
	missing := condition("Accepted", "False", 1, then)
	missing.Reason = string(gwv1.PolicyReasonTargetNotFound)
	existing := gwv1.RouteStatus{Parents: []gwv1.RouteParentStatus{parent(ours, "unread", condition("Accepted", "True", 1, then)), parent(ours, "gone", condition("Accepted", "True", 1, then))}}
	wanted := &gwv1.RouteStatus{Parents: []gwv1.RouteParentStatus{parent("", "unread", missing), parent("", "unread-too", missing), parent("", "gone", missing)}}
	merged, _ := m.Route(existing, wanted)
	var got []string
	for _, p := range merged.Parents {
		got = append(got, fmt.Sprint(p.ParentRef.Name, " ", p.Conditions[0].Status))
	}
	if want := []string{"unread True", "gone False"}; !slices.Equal(got, want) {
		t.Errorf("merged to %q, want %q", got, want)
	}
}

// TestUnknownParentsGoWithTheReference: what a route does not refer to any more is not kept.
func TestUnknownParentsGoWithTheReference(t *testing.T) {
	m := merger()
	m.Unknown = func(gwv1.ParentReference) bool { return true }
	r := &gwv1.HTTPRoute{Status: gwv1.HTTPRouteStatus{RouteStatus: gwv1.RouteStatus{Parents: []gwv1.RouteParentStatus{
		parent(ours, "stays", condition("Accepted", "True", 1, then)), parent(ours, "left", condition("Accepted", "True", 1, then)),
	}}}}
	r.Spec.ParentRefs = []gwv1.ParentReference{{Name: "stays"}}
	merged, changed, ok := m.Merge(r, nil)
	if s, is := merged.(*gwv1.RouteStatus); !ok || !changed || !is || len(s.Parents) != 1 || s.Parents[0].ParentRef.Name != "stays" {
		t.Errorf("%v, changed %v", merged, changed)
	}
}

// TestUnknownDefaultGatewaysStay: a route that asks for default Gateways may be attached to any that it does not name.
func TestUnknownDefaultGatewaysStay(t *testing.T) {
	m := merger()
	m.Unknown = func(gwv1.ParentReference) bool { return true }
	section := parent(ours, "left", condition("Accepted", "True", 1, then))
	section.ParentRef.SectionName = new(gwv1.SectionName("http"))
	r := &gwv1.HTTPRoute{Status: gwv1.HTTPRouteStatus{RouteStatus: gwv1.RouteStatus{Parents: []gwv1.RouteParentStatus{
		parent(ours, "default", condition("Accepted", "True", 1, then)), section,
	}}}}
	r.Spec.UseDefaultGateways = gwv1.GatewayDefaultScopeAll
	if merged, _, _ := m.Merge(r, nil); len(merged.(*gwv1.RouteStatus).Parents) != 1 || merged.(*gwv1.RouteStatus).Parents[0].ParentRef.Name != "default" {
		t.Errorf("%v", merged)
	}
	r.Spec.UseDefaultGateways = gwv1.GatewayDefaultScopeNone
	if merged, _, _ := m.Merge(r, nil); len(merged.(*gwv1.RouteStatus).Parents) != 0 {
		t.Errorf("%v: it asks for none any more", merged)
	}
}

// TestPolicyConditionsThatEnd: in our entries of a policy what is no longer so goes, whatever group defines it; foreign conditions and entries stay, and in the
// statuses of others those types are foreign.
func TestPolicyConditionsThatEnd(t *testing.T) {
	ended := []metav1.Condition{condition("Accepted", "True", 1, then), condition("Overridden", "True", 1, then), condition("Merged", "True", 1, then),
		condition("Warning", "True", 1, then), condition("Aggregated", "True", 1, then), condition("example.com/Audited", "True", 1, then), condition("Degraded", "True", 1, then)}
	ancestor := func(controller string, conditions ...metav1.Condition) gwv1.PolicyAncestorStatus {
		return gwv1.PolicyAncestorStatus{AncestorRef: ref("gw"), ControllerName: gwv1.GatewayController(controller), Conditions: conditions}
	}
	accepted := condition("Accepted", "True", 1, then)
	existing := gwv1.PolicyStatus{Ancestors: []gwv1.PolicyAncestorStatus{ancestor("other.io/c", ended...), ancestor(ours, ended...)}}
	want := gwv1.PolicyStatus{Ancestors: []gwv1.PolicyAncestorStatus{ancestor("other.io/c", ended...), ancestor(ours, accepted, condition("Merged", "True", 1, then), ended[5])}}
	desired := gwv1.PolicyStatus{Ancestors: []gwv1.PolicyAncestorStatus{ancestor(ours, accepted, condition("Merged", "True", 1, metav1.Time{}))}}
	if got, changed := merger().Policy(existing, &desired); !changed || !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v, changed %v\nwant %+v", got, changed, want)
	}
	route := gwv1.RouteStatus{Parents: []gwv1.RouteParentStatus{parent(ours, "gw", ended...)}}
	if got, _ := merger().Route(route, &gwv1.RouteStatus{Parents: []gwv1.RouteParentStatus{parent(ours, "gw", accepted)}}); !reflect.DeepEqual(got, route) {
		t.Errorf("of a route: got %+v, want %+v", got, route)
	}
}

func TestRouteMatchesDefaultedReferences(t *testing.T) {
	group, kind, section := gwv1.Group(gwv1.GroupName), gwv1.Kind("Gateway"), gwv1.SectionName("web")
	written := parent(ours, "gw", condition("Accepted", "True", 1, then))
	written.ParentRef.Group, written.ParentRef.Kind = &group, &kind
	other := written
	other.ParentRef.SectionName = &section
	desired := &gwv1.RouteStatus{Parents: []gwv1.RouteParentStatus{parent(ours, "gw", condition("Accepted", "True", 1, metav1.Time{}))}}
	got, _ := merger().Route(gwv1.RouteStatus{Parents: []gwv1.RouteParentStatus{other, written}}, desired)
	if len(got.Parents) != 1 || !got.Parents[0].Conditions[0].LastTransitionTime.Equal(&then) {
		t.Errorf("got %v: the entry with defaults is the same one, that with a section is not", got.Parents)
	}
}

func TestStaleStatusChangesNothing(t *testing.T) {
	route := gwv1.RouteStatus{Parents: []gwv1.RouteParentStatus{parent(ours, "gw", condition("Accepted", "True", 3, then))}}
	if got, changed := merger().Route(route, &gwv1.RouteStatus{Parents: []gwv1.RouteParentStatus{parent(ours, "gw", condition("Accepted", "False", 2, metav1.Time{}))}}); changed || !reflect.DeepEqual(got, route) {
		t.Errorf("route: changed %v to %v", changed, got)
	}
	gateway := gwv1.GatewayStatus{Conditions: []metav1.Condition{condition("Accepted", "True", 3, then)}}
	if got, changed := merger().Gateway(gateway, &gwv1.GatewayStatus{Conditions: []metav1.Condition{condition("Accepted", "False", 2, metav1.Time{})}}); changed || !reflect.DeepEqual(got, gateway) {
		t.Errorf("gateway: changed %v to %v", changed, got)
	}
	// A later generation in a foreign entry says nothing of ours.
	route.Parents[0].ControllerName = "other.io/c"
	if _, changed := merger().Route(route, &gwv1.RouteStatus{Parents: []gwv1.RouteParentStatus{parent(ours, "gw", condition("Accepted", "False", 2, metav1.Time{}))}}); !changed {
		t.Error("a foreign entry held ours back")
	}
}

// TestFallBackKeepsTheGeneration: while an earlier version of a route is served, Accepted has the generation of that version.
func TestFallBackKeepsTheGeneration(t *testing.T) {
	entry := func(generation int64, partial string) *gwv1.RouteStatus {
		conditions := []metav1.Condition{condition("Accepted", "True", generation, then), condition("ResolvedRefs", "True", generation, then)}
		if partial != "" {
			c := condition("PartiallyInvalid", "True", generation, then)
			c.Message = partial
			conditions = append(conditions, c)
		}
		return &gwv1.RouteStatus{Parents: []gwv1.RouteParentStatus{parent(ours, "gw", conditions...)}}
	}
	var route gwv1.RouteStatus
	for _, step := range []struct {
		generation int64
		partial    string
		accepted   int64
	}{
		{1, "Fall Back: first", 1}, {2, "", 2}, {3, "Fall Back: no", 2}, {4, "Fall Back: nor this", 2}, {5, "Dropped Rule 1. Fall Back: no", 5}, {6, "Fall Back: no", 5}, {7, "", 7},
	} {
		var changed bool
		if route, changed = merger().Route(route, entry(step.generation, step.partial)); !changed {
			t.Errorf("generation %d changes nothing", step.generation)
		}
		for _, c := range route.Parents[0].Conditions {
			want := step.generation
			if c.Type == "Accepted" {
				want = step.accepted
			}
			if c.ObservedGeneration != want {
				t.Errorf("generation %d, %q: %s has %d, want %d", step.generation, step.partial, c.Type, c.ObservedGeneration, want)
			}
		}
		if _, again := merger().Route(route, entry(step.generation, step.partial)); again {
			t.Errorf("generation %d is written again", step.generation)
		}
	}
}

func TestFullListsTakeNoMore(t *testing.T) {
	var policy gwv1.PolicyStatus
	for i := range MaxAncestors {
		policy.Ancestors = append(policy.Ancestors, gwv1.PolicyAncestorStatus{AncestorRef: ref(fmt.Sprint(i)), ControllerName: "other.io/c"})
	}
	refused := condition("Accepted", "False", 1, metav1.Time{})
	refused.Message = "no"
	desired := &gwv1.PolicyStatus{Ancestors: []gwv1.PolicyAncestorStatus{
		{AncestorRef: ref("gw"), ControllerName: ours, Conditions: []metav1.Condition{refused, condition("ResolvedRefs", "True", 1, metav1.Time{})}},
	}}
	got, changed := merger().Policy(policy, desired)
	if changed || len(got.Ancestors) != MaxAncestors {
		t.Errorf("changed %v, %d ancestors", changed, len(got.Ancestors))
	}
	const want = "status.ancestors has 16 entries, which is the maximum, and no room for: Gateway gw (Accepted=False Accepted: no, ResolvedRefs=True)"
	if omitted := Omitted(&got, desired, ours); omitted != want {
		t.Errorf("omitted: %q", omitted)
	}
	policy.Ancestors = policy.Ancestors[1:]
	if got, changed := merger().Policy(policy, desired); !changed || got.Ancestors[MaxAncestors-1].ControllerName != ours {
		t.Errorf("changed %v, ancestors %v", changed, got.Ancestors)
	} else if omitted := Omitted(&got, desired, ours); omitted != "" {
		t.Errorf("with room, omitted: %q", omitted)
	}
	if omitted := Omitted(&got, (*gwv1.PolicyStatus)(nil), ours); omitted != "" {
		t.Errorf("with nothing desired, omitted: %q", omitted)
	}
}

func TestGatewayListenersAreOurs(t *testing.T) {
	existing := gwv1.GatewayStatus{Listeners: []gwv1.ListenerStatus{
		{Name: "gone", Conditions: []metav1.Condition{condition("Accepted", "True", 1, then)}},
		{Name: "web", AttachedRoutes: 1, Conditions: []metav1.Condition{condition("example.com/Seen", "True", 1, then), condition("OverlappingTLSConfig", "True", 1, then), condition("Accepted", "True", 1, then)}},
	}}
	desired := &gwv1.GatewayStatus{
		Addresses: []gwv1.GatewayStatusAddress{{Value: "127.0.0.1"}},
		Listeners: []gwv1.ListenerStatus{{Name: "api"}, {Name: "web", AttachedRoutes: 2, Conditions: []metav1.Condition{condition("Accepted", "True", 1, metav1.Time{})}}},
	}
	got, changed := merger().Gateway(existing, desired)
	want := gwv1.GatewayStatus{Addresses: desired.Addresses, Listeners: []gwv1.ListenerStatus{
		{Name: "api"},
		{Name: "web", AttachedRoutes: 2, Conditions: []metav1.Condition{condition("example.com/Seen", "True", 1, then), condition("Accepted", "True", 1, then)}},
	}}
	if !changed || !reflect.DeepEqual(got, want) {
		t.Errorf("changed %v\ngot  %v\nwant %v", changed, got, want)
	}
}

// TestEndOfOurRelation: what remains is the status that the CRDs give a new object.
func TestEndOfOurRelation(t *testing.T) {
	at := metav1.NewTime(now.Truncate(time.Second))
	seen := condition("example.com/Seen", "True", 1, then)
	unknown := func(conditionType string) metav1.Condition {
		return metav1.Condition{Type: conditionType, Status: "Unknown", Reason: "Pending", Message: "Waiting for controller", LastTransitionTime: at}
	}
	ofOurs := []metav1.Condition{condition("Accepted", "True", 1, then), seen, condition("ResolvedRefs", "True", 1, then), condition("Programmed", "True", 1, then)}
	object := metav1.ObjectMeta{Generation: 1}
	for _, c := range []struct {
		object metav1.Object
		want   any
	}{
		{&gwv1.GatewayClass{ObjectMeta: object, Status: gwv1.GatewayClassStatus{Conditions: ofOurs, SupportedFeatures: []gwv1.SupportedFeature{{Name: "Gateway"}}}},
			&gwv1.GatewayClassStatus{Conditions: []metav1.Condition{unknown("Accepted"), seen}}},
		{&gwv1.Gateway{ObjectMeta: object, Status: gwv1.GatewayStatus{Conditions: ofOurs, Addresses: []gwv1.GatewayStatusAddress{{Value: "127.0.0.1"}}, Listeners: []gwv1.ListenerStatus{{Name: "web"}}}},
			&gwv1.GatewayStatus{Conditions: []metav1.Condition{unknown("Accepted"), seen, unknown("Programmed")}}},
		{&gwv1.ListenerSet{ObjectMeta: object, Status: gwv1.ListenerSetStatus{Conditions: ofOurs, Listeners: []gwv1.ListenerEntryStatus{{Name: "web"}}}},
			&gwv1.ListenerSetStatus{Conditions: []metav1.Condition{unknown("Accepted"), seen, unknown("Programmed")}}},
		{&v1alpha1.GatewayParameters{ObjectMeta: object, Status: v1alpha1.GatewayParametersStatus{Conditions: ofOurs}},
			&v1alpha1.GatewayParametersStatus{Conditions: []metav1.Condition{seen}}},
	} {
		got, changed, ok := merger().Merge(c.object, nil)
		if !ok || !changed || !reflect.DeepEqual(got, c.want) {
			t.Errorf("%T: changed %v, ok %v\ngot  %v\nwant %v", c.object, changed, ok, got, c.want)
		}
		if again, changed, _ := merger().Merge(stored{c.object, got}.now(), nil); changed {
			t.Errorf("%T: ending it again changed it to %v", c.object, again)
		}
	}
	for _, untouched := range []metav1.Object{&gwv1.GatewayClass{}, &gwv1.Gateway{}, &gwv1.ListenerSet{}, &v1alpha1.GatewayParameters{}, &gwv1.HTTPRoute{}} {
		if got, changed, ok := merger().Merge(untouched, nil); changed || !ok {
			t.Errorf("%T that nobody has written to became %v", untouched, got)
		}
	}
}

func TestGatewayParameters(t *testing.T) {
	object := &v1alpha1.GatewayParameters{ObjectMeta: metav1.ObjectMeta{Generation: 2}}
	desired := &v1alpha1.GatewayParametersStatus{Conditions: []metav1.Condition{condition("Accepted", "False", 2, metav1.Time{})}}
	got, changed, ok := merger().Merge(object, desired)
	if !ok || !changed || len(got.(*v1alpha1.GatewayParametersStatus).Conditions) != 1 {
		t.Fatalf("changed %v, ok %v: %v", changed, ok, got)
	}
	object.Status = *got.(*v1alpha1.GatewayParametersStatus)
	if _, changed, _ := merger().Merge(object, desired); changed {
		t.Error("merging again changed something")
	}
}

// TestImpossibleGeneration: a condition of a generation that the object has not
// reached, as after a restore from a backup, is not newer than ours.
func TestImpossibleGeneration(t *testing.T) {
	object := route("web", 2)
	object.Status.Parents = []gwv1.RouteParentStatus{parent(ours, "gw", condition("Accepted", "False", 7, then))}
	got, changed, _ := merger().Merge(object, accepted(2))
	if !changed || got.(*gwv1.RouteStatus).Parents[0].Conditions[0].ObservedGeneration != 2 {
		t.Errorf("changed %v: %v", changed, got)
	}
	object.Generation = 7
	if got, changed, _ := merger().Merge(object, accepted(2)); changed {
		t.Errorf("a status of generation 2 was written over that of 7: %v", got)
	}
}

func TestMergeRefusesWhatDoesNotGoTogether(t *testing.T) {
	for _, c := range []struct {
		object  metav1.Object
		desired any
		ok      bool
	}{
		{&gwv1.HTTPRoute{}, &gwv1.RouteStatus{}, true}, {&gwv1.TCPRoute{}, nil, true}, {&gwv1.GatewayClass{}, &gwv1.GatewayClassStatus{}, true},
		{&gwv1.ListenerSet{}, &gwv1.ListenerSetStatus{}, true}, {&gwv1.BackendTLSPolicy{}, &gwv1.PolicyStatus{}, true},
		{&gwv1.HTTPRoute{}, &gwv1.GatewayStatus{}, false}, {&gwv1.Gateway{}, gwv1.GatewayStatus{}, false}, {&gwv1.ReferenceGrant{}, nil, false},
	} {
		if _, _, ok := merger().Merge(c.object, c.desired); ok != c.ok {
			t.Errorf("%T with %T: ok %v", c.object, c.desired, ok)
		}
	}
}

// TestRouteProperties tries random statuses against what must hold of every merge.
func TestRouteProperties(t *testing.T) {
	for seed := range uint64(3000) {
		r := rand.New(rand.NewPCG(seed, 1))
		existing, desired := randomParents(r, 1+r.Int64N(3), true), randomParents(r, 1+r.Int64N(3), false)
		before := deepCopy(existing)
		got, changed := merger().Route(existing, &desired)
		if !reflect.DeepEqual(before, existing) {
			t.Fatalf("seed %d: the existing status was modified", seed)
		}
		if changed != !reflect.DeepEqual(got.Parents, existing.Parents) && len(got.Parents)+len(existing.Parents) > 0 {
			t.Fatalf("seed %d: changed is %v", seed, changed)
		}
		if again, changed := (Merger{ControllerName: ours, Now: now.Add(time.Hour)}).Route(got, &desired); changed || !reflect.DeepEqual(again, got) {
			t.Fatalf("seed %d: merging again changed\n%v to\n%v", seed, got, again)
		}
		if f := foreignOf(got); !reflect.DeepEqual(f, foreignOf(existing)) {
			t.Fatalf("seed %d: foreign entries went from\n%v to\n%v", seed, foreignOf(existing), f)
		}
		checkTransitions(t, seed, existing, got)
	}
}

func checkTransitions(t *testing.T, seed uint64, existing, got gwv1.RouteStatus) {
	t.Helper()
	for _, p := range got.Parents {
		for _, c := range p.Conditions {
			kept := false
			for _, e := range existing.Parents {
				if e.ControllerName != p.ControllerName || e.ParentRef.Name != p.ParentRef.Name {
					continue
				}
				b := find(e.Conditions, c.Type)
				kept = kept || b != nil && b.Status == c.Status
			}
			if kept != c.LastTransitionTime.Equal(&then) {
				t.Fatalf("seed %d: %s of %s: the status stayed: %v, the time stayed: %v", seed, c.Type, p.ParentRef.Name, kept, !kept)
			}
		}
	}
}

// randomParents has each reference of ours at most once, as what we write.
func randomParents(r *rand.Rand, generation int64, foreign bool) gwv1.RouteStatus {
	var s gwv1.RouteStatus
	for _, i := range r.Perm(6)[:r.IntN(6)] {
		controller := ours
		if foreign && r.IntN(2) == 0 {
			controller = "other.io/c"
		}
		p := parent(controller, fmt.Sprint("gw", i))
		for _, typ := range []string{"Accepted", "ResolvedRefs", "example.com/X"}[:1+r.IntN(3)] {
			status := []string{"True", "False"}[r.IntN(2)]
			at := metav1.Time{}
			if foreign {
				at = then
			}
			if foreign || typ != "example.com/X" {
				p.Conditions = append(p.Conditions, condition(typ, status, generation, at))
			}
		}
		r.Shuffle(len(p.Conditions), func(i, j int) { p.Conditions[i], p.Conditions[j] = p.Conditions[j], p.Conditions[i] })
		s.Parents = append(s.Parents, p)
	}
	return s
}

func foreignOf(s gwv1.RouteStatus) []gwv1.RouteParentStatus {
	var list []gwv1.RouteParentStatus
	for _, p := range s.Parents {
		if p.ControllerName != ours {
			list = append(list, p)
		}
	}
	return list
}

func deepCopy(s gwv1.RouteStatus) gwv1.RouteStatus { return *s.DeepCopy() }
