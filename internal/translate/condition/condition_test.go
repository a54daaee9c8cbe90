package condition

import (
	"slices"
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

// TestObservedFits: the API server takes every message.
func TestObservedFits(t *testing.T) {
	c := True("A", "B")
	c.Message = "a" + strings.Repeat("ä", maxMessage)
	got := Observed(1, c)[0].Message
	if len(got) > maxMessage || len(got) < maxMessage-4 || !utf8.ValidString(got) || !strings.HasSuffix(got, "...") {
		t.Errorf("%d bytes, valid: %v, the end is %q", len(got), utf8.ValidString(got), got[len(got)-5:])
	}
	c.Message = strings.Repeat("a", maxMessage)
	if got := Observed(1, c)[0].Message; got != c.Message {
		t.Errorf("a message that fits is cut to %d bytes", len(got))
	}
}

func TestSentences(t *testing.T) {
	texts := slices.Repeat([]string{"a"}, 10)
	if got, want := Sentences(texts), "a. a. a. a. a. a. a. a. and 2 more"; got != want || texts[8] != "a" {
		t.Errorf("%q, want %q", got, want)
	}
	if got := Sentences(texts[:2]); got != "a. a" {
		t.Errorf("%q", got)
	}
}

func TestOneLine(t *testing.T) {
	if got := OneLine(" first:\n\tsecond\r\n third  "); got != "first: second third" {
		t.Errorf("%q", got)
	}
}

func TestAnyOf(t *testing.T) {
	for want, list := range map[string][]string{"": nil, "A": {"A"}, "A or B": {"A", "B"}, "A, B or C": {"A", "B", "C"}} {
		if got := AnyOf(list); got != want {
			t.Errorf("%q: %q, want %q", list, got, want)
		}
	}
}
