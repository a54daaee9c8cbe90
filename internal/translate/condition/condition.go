// Package condition makes the conditions of statuses, and the problems that they
// tell of: which object, which field, and what to do about it. It exists so that
// every message has the same form.
//
// It imports nothing of this module.
package condition

import (
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Problem is why something cannot be done as the user asked. It becomes a
// condition, so it names the field and what to do about it.
type Problem struct {
	Reason string // the condition's
	Field  string // path from the object's root, such as spec.rules[1].backendRefs[0].name
	What   string
	Remedy string
}

func (p *Problem) String() string {
	var b strings.Builder
	if p.Field != "" {
		b.WriteString(p.Field + ": ")
	}
	b.WriteString(p.What)
	if p.Remedy != "" {
		b.WriteString("; " + p.Remedy)
	}
	return b.String()
}

// NewProblem says what is wrong in a field; format and args make What.
func NewProblem[R ~string](reason R, field, remedy, format string, args ...any) *Problem {
	what := fmt.Sprintf(format, args...)
	if len(what) > maxWhat {
		what = strings.ToValidUTF8(what[:maxWhat], "") + "..."
	}
	return &Problem{Reason: string(reason), Field: field, What: what, Remedy: remedy}
}

// A message may have 32768 bytes; users' values in it may be long.
const (
	maxWhat    = 512    // bytes of one problem
	maxListed  = 8      // problems of one message
	maxMessage = 32_768 // bytes; the API server refuses the whole status where one is longer
)

// List puts problems, or what prints like one, into one message.
func List[P fmt.Stringer](problems []P) string {
	texts := make([]string, len(problems))
	for i, p := range problems {
		if i < maxListed { // the others are only counted
			texts[i] = p.String()
		}
	}
	return Sentences(texts)
}

// Sentences is List for what is text already.
func Sentences(texts []string) string {
	if len(texts) > maxListed {
		texts = append(slices.Clone(texts[:maxListed]), fmt.Sprintf("and %d more", len(texts)-maxListed))
	}
	return strings.Join(texts, ". ")
}

// Quoted lists names for a message.
func Quoted(names []string) string {
	out := make([]string, len(names))
	for i, n := range names {
		out[i] = fmt.Sprintf("%q", n)
	}
	return strings.Join(out, ", ")
}

// MaxQuoted is how many names Some takes: a message that names thousands is of no use.
const MaxQuoted = maxListed

// Some lists the first of names for a message, and says that there are others where it has more than MaxQuoted.
func Some(names []string) string {
	if len(names) <= MaxQuoted {
		return Quoted(names)
	}
	return Quoted(names[:MaxQuoted]) + " and others"
}

// AnyOf lists alternatives as "A, B or C".
func AnyOf[S ~string](alternatives []S) string {
	names := make([]string, len(alternatives))
	for i, a := range alternatives {
		names[i] = string(a)
	}
	last := len(names) - 1
	if last < 1 {
		return strings.Join(names, "")
	}
	return strings.Join(names[:last], ", ") + " or " + names[last]
}

// True is a condition that is True.
func True[T, R ~string](kind T, reason R) metav1.Condition {
	return metav1.Condition{Type: string(kind), Status: metav1.ConditionTrue, Reason: string(reason)}
}

// False is a condition that is False.
func False[T, R ~string](kind T, reason R, message string) metav1.Condition {
	return metav1.Condition{Type: string(kind), Status: metav1.ConditionFalse, Reason: string(reason), Message: message}
}

// Unknown is a condition that cannot be judged yet.
func Unknown[T, R ~string](kind T, reason R, message string) metav1.Condition {
	return metav1.Condition{Type: string(kind), Status: metav1.ConditionUnknown, Reason: string(reason), Message: message}
}

// Observed copies conditions for an object of that generation. Messages that are too long are cut.
func Observed(generation int64, conditions ...metav1.Condition) []metav1.Condition {
	out := make([]metav1.Condition, len(conditions))
	for i, c := range conditions {
		c.ObservedGeneration = generation
		if len(c.Message) > maxMessage {
			c.Message = strings.ToValidUTF8(c.Message[:maxMessage-len("...")], "") + "..."
		}
		out[i] = c
	}
	return out
}
