package policy

import (
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/moongate-dev/moongate/internal/translate/condition"
)

func of(name string, created int64, spec string) Policy[string] {
	namespace, name, _ := strings.Cut(name, "/")
	return Policy[string]{types.NamespacedName{Namespace: namespace, Name: name}, created, spec}
}

func TestTargets(t *testing.T) {
	section := gwv1.SectionName("https")
	refs := []gwv1.LocalPolicyTargetReferenceWithSectionName{
		{LocalPolicyTargetReference: gwv1.LocalPolicyTargetReference{Kind: "Service", Name: "a"}},
		{LocalPolicyTargetReference: gwv1.LocalPolicyTargetReference{Group: "g", Kind: "K", Name: "b"}, SectionName: &section},
	}
	whole, part := Target{"", "Service", "ns", "a", ""}, Target{"g", "K", "ns", "b", "https"}
	if got := Targets("ns", refs); !slices.Equal(got, []Target{whole, part}) {
		t.Errorf("got %v", got)
	}
	if got := part.Levels(); !slices.Equal(got, []Target{part, {"g", "K", "ns", "b", ""}}) {
		t.Errorf("levels of a section: %v", got)
	}
	if got := whole.Levels(); !slices.Equal(got, []Target{whole}) {
		t.Errorf("levels of an object: %v", got)
	}
}

func TestWinner(t *testing.T) {
	if _, ok := Winner[string](nil); ok {
		t.Error("there is a winner of none")
	}
	for name, test := range map[string]struct {
		list []Policy[string]
		want string
	}{
		"the oldest":         {[]Policy[string]{of("ns/a", 2, ""), of("ns/b", 1, "")}, "ns/b"},
		"then by name":       {[]Policy[string]{of("ns/b", 1, ""), of("ns/a", 1, "")}, "ns/a"},
		"namespace before":   {[]Policy[string]{of("b/a", 1, ""), of("a/b", 1, "")}, "a/b"},
		"as one string":      {[]Policy[string]{of("a-b/x", 1, ""), of("a/x", 1, "")}, "a-b/x"},
		"one alone":          {[]Policy[string]{of("ns/a", 5, "")}, "ns/a"},
		"no timestamp: name": {[]Policy[string]{of("ns/b", 0, ""), of("ns/a", 0, "")}, "ns/a"},
	} {
		for range 2 {
			if got, ok := Winner(test.list); !ok || got.Name.String() != test.want {
				t.Errorf("%s: %s, want %s", name, got.Name, test.want)
			}
			slices.Reverse(test.list)
		}
	}
}

func TestAccepted(t *testing.T) {
	target := Target{"", "Service", "ns", "a", "https"}
	won := Outcome{Field: "spec.targetRefs[0]", Target: target}
	noted := Outcome{Field: "spec.targetRefs[0]", Target: target, Note: "spec.targetRefs[0]: not for port 53"}
	lost := Outcome{Field: "spec.targetRefs[1]", Target: target, Lost: &types.NamespacedName{Namespace: "ns", Name: "older"}}
	missing := Outcome{Field: "spec.targetRefs[2]", Target: target, Missing: NotFound("spec.targetRefs[2]", target, "correct the name")}
	blocked := Outcome{Field: "spec.targetRefs[3]", Target: target, Blocked: condition.NewProblem(gwv1.PolicyReasonConflicted, "spec.targetRefs[3]", "correct it", "ns/x cannot be read")}
	invalid := condition.NewProblem(gwv1.PolicyReasonInvalid, "spec.options", "remove it", "it is not known")
	for name, test := range map[string]struct {
		invalid  *condition.Problem
		outcomes []Outcome
		status   metav1.ConditionStatus
		reason   gwv1.PolicyConditionReason
		message  []string
	}{
		"in force":                 {nil, []Outcome{won}, "True", gwv1.PolicyReasonAccepted, nil},
		"lost":                     {nil, []Outcome{lost}, "False", gwv1.PolicyReasonConflicted, []string{"spec.targetRefs[1]: ns/older is in force for Service ns/a, section \"https\""}},
		"blocked":                  {nil, []Outcome{blocked}, "False", gwv1.PolicyReasonConflicted, []string{"spec.targetRefs[3]: ns/x cannot be read; correct it"}},
		"in force beside blocked":  {nil, []Outcome{won, blocked}, "True", gwv1.PolicyReasonAccepted, []string{"targetRefs[3]"}},
		"missing":                  {nil, []Outcome{missing}, "False", gwv1.PolicyReasonTargetNotFound, []string{"spec.targetRefs[2]: ", "does not exist; correct the name"}},
		"lost and missing":         {nil, []Outcome{missing, lost}, "False", gwv1.PolicyReasonConflicted, []string{"targetRefs[1]", "targetRefs[2]"}},
		"in force for one":         {nil, []Outcome{won, lost}, "True", gwv1.PolicyReasonAccepted, []string{"targetRefs[1]", "ns/older"}},
		"invalid and lost":         {invalid, []Outcome{lost}, "False", gwv1.PolicyReasonConflicted, []string{"ns/older is in force", "spec.options: it is not known; remove it"}},
		"invalid and won and lost": {invalid, []Outcome{won, lost}, "False", gwv1.PolicyReasonInvalid, []string{"spec.options: it is not known"}},
		"invalid and missing":      {invalid, []Outcome{missing}, "False", gwv1.PolicyReasonInvalid, []string{"spec.options: it is not known"}},
		"with a note":              {nil, []Outcome{noted}, "True", gwv1.PolicyReasonAccepted, []string{"not for port 53"}},
		"invalid wherever it won":  {invalid, []Outcome{won}, "False", gwv1.PolicyReasonInvalid, []string{"spec.options: it is not known; remove it"}},
	} {
		got := Accepted(test.invalid, test.outcomes)
		if got.Type != "Accepted" || got.Status != test.status || got.Reason != string(test.reason) || test.message == nil && got.Message != "" {
			t.Errorf("%s: %+v", name, got)
		}
		for _, part := range test.message {
			if !strings.Contains(got.Message, part) {
				t.Errorf("%s: message %q lacks %q", name, got.Message, part)
			}
		}
	}
	if got := Accepted(nil, []Outcome{won}, "spec.options: ignored"); got.Message != "spec.options: ignored" {
		t.Errorf("notes: %q", got.Message)
	}
}

func TestAncestors(t *testing.T) {
	var all []Ancestor
	for i := range 20 {
		all = append(all, Ancestor{types.NamespacedName{Namespace: "ns", Name: strconv.Itoa(i)}, int64(100 - i)})
	}
	named, beyond := Ancestors(append(slices.Clone(all), all...), MaxAncestors)
	if len(named) != MaxAncestors || len(beyond) != 4 || named[0].Gateway.Name != "19" || beyond[0].Gateway.Name != "3" || beyond[3].Gateway.Name != "0" {
		t.Errorf("named %v, beyond %v", named, beyond)
	}
	// A Gateway that is younger than all takes no place of theirs.
	again, last := Ancestors(append(all, Ancestor{types.NamespacedName{Namespace: "a", Name: "a"}, 1000}), MaxAncestors)
	if !slices.Equal(again, named) || last[len(last)-1].Gateway.Name != "a" {
		t.Errorf("named %v, beyond %v", again, last)
	}
	if named, beyond = Ancestors(nil, MaxAncestors); len(named)+len(beyond) != 0 {
		t.Errorf("of none: %v, %v", named, beyond)
	}
}

func TestStatus(t *testing.T) {
	group, kind, namespace := gwv1.Group(gwv1.GroupName), gwv1.Kind("Gateway"), gwv1.Namespace("ns")
	got := Ancestor{Gateway: types.NamespacedName{Namespace: "ns", Name: "gw"}}.Status("example.com/c", 7, Accepted(nil, nil))
	want := gwv1.PolicyAncestorStatus{
		AncestorRef:    gwv1.ParentReference{Group: &group, Kind: &kind, Namespace: &namespace, Name: "gw"},
		ControllerName: "example.com/c",
		Conditions:     []metav1.Condition{{Type: "Accepted", Status: "True", Reason: "Accepted", ObservedGeneration: 7}},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v", got)
	}
}

// TestCompareNames: names are compared as the text "{namespace}/{name}".
func TestCompareNames(t *testing.T) {
	names := []string{"a/b", "team/db", "team/da", "team-a/db", "team-a/da", "team.b/x", "team0/a", "tea/z", "team-a-b/a", "/z", "/a"}
	for _, x := range names {
		for _, y := range names {
			a, b := of(x, 1, ""), of(y, 1, "")
			want := strings.Compare(x, y)
			ancestor := Ancestor{Gateway: a.Name, Created: 1}.Compare(Ancestor{Gateway: b.Name, Created: 1})
			if got := CompareNames(a.Name, b.Name); got != want || a.Compare(b) != want || ancestor != want {
				t.Errorf("%s, %s: names %d, policies %d, ancestors %d, want %d", x, y, got, a.Compare(b), ancestor, want)
			}
		}
	}
	a, b := of("team-a/db", 1, "").Name, of("team/db", 1, "").Name
	if n := testing.AllocsPerRun(100, func() { CompareNames(a, b) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}
