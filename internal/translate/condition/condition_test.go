package condition

import (
	"strings"
	"testing"
	"unicode/utf8"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestProblem(t *testing.T) {
	p := NewProblem("Reason", "spec.a[0]", "remove it", "%q is not known", "x")
	if want := `spec.a[0]: "x" is not known; remove it`; p.String() != want || p.Reason != "Reason" {
		t.Errorf("%s %q, want %q", p.Reason, p, want)
	}
	if p := NewProblem("Reason", "", "", "wrong"); p.String() != "wrong" {
		t.Errorf("%q, want %q", p, "wrong")
	}
}

// TestMessagesFit checks that what users write cannot make a message too long for
// the API server, nor cut a character in two.
func TestMessagesFit(t *testing.T) {
	var problems []*Problem
	for range 100 {
		problems = append(problems, NewProblem("Reason", strings.Repeat("f", 200), strings.Repeat("r", 200), "%s", "a"+strings.Repeat("ä", 5000)))
	}
	message := List(problems)
	if len(message) > 32768 || !utf8.ValidString(message) {
		t.Errorf("%d bytes, valid: %v", len(message), utf8.ValidString(message))
	}
	if !strings.HasSuffix(message, "and 92 more") {
		t.Errorf("the end is %q", message[len(message)-20:])
	}
}

func TestObservedCopies(t *testing.T) {
	list := []metav1.Condition{True("A", "B"), False("C", "D", "e"), Unknown("F", "G", "h")}
	out := Observed(7, list...)
	for i, status := range []metav1.ConditionStatus{"True", "False", "Unknown"} {
		if out[i].ObservedGeneration != 7 || out[i].Status != status || list[i].ObservedGeneration != 0 {
			t.Errorf("%v from %v", out[i], list[i])
		}
	}
}

func TestAnyOf(t *testing.T) {
	for want, list := range map[string][]string{"": nil, "A": {"A"}, "A or B": {"A", "B"}, "A, B or C": {"A", "B", "C"}} {
		if got := AnyOf(list); got != want {
			t.Errorf("%q: %q, want %q", list, got, want)
		}
	}
}
