// Package condition makes the conditions of statuses, and the problems that they report: which object, which field, and the remedy.
// It exists so that every message has the same form.
//
// It imports nothing of this module.
package condition

import (
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Problem is why something that the user configured cannot be done. It becomes a condition, so it names the field and the remedy.
type Problem struct {
	Reason string // of the condition
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

// NewProblem returns a problem with a field; format and args make What.
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
	maxMessage = 32_768 // bytes; the API server rejects the whole status if a message is longer
)

// List joins problems, or other values that print as text, into one message.
func List[P fmt.Stringer](problems []P) string {
	texts := make([]string, len(problems))
	for i, p := range problems {
		if i < maxListed { // the others are only counted
			texts[i] = p.String()
		}
	}
	return Sentences(texts)
}

// Sentences is List for strings.
func Sentences(texts []string) string {
	if len(texts) > maxListed {
		texts = append(slices.Clone(texts[:maxListed]), fmt.Sprintf("and %d more", len(texts)-maxListed))
	}
	return strings.Join(texts, ". ")
}

// Quoted returns a quoted list of names for a message.
func Quoted(names []string) string {
	out := make([]string, len(names))
	for i, n := range names {
		out[i] = fmt.Sprintf("%q", n)
	}
	return strings.Join(out, ", ")
}

// MaxQuoted is the maximum number of names in the result of Some: a message with thousands of names would be useless.
const MaxQuoted = maxListed

// Some returns a list of the first names for a message, and mentions that there are others if there are more than MaxQuoted.
func Some(names []string) string {
	if len(names) <= MaxQuoted {
		return Quoted(names)
	}
	return Quoted(names[:MaxQuoted]) + " and others"
}

// OneLine returns a message of another package on one line, for a condition's message.
func OneLine(message string) string { return strings.Join(strings.Fields(message), " ") }

// AnyOf returns alternatives as "A, B or C".
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

// True returns a condition with status True.
func True[T, R ~string](kind T, reason R) metav1.Condition {
	return metav1.Condition{Type: string(kind), Status: metav1.ConditionTrue, Reason: string(reason)}
}

// False returns a condition with status False.
func False[T, R ~string](kind T, reason R, message string) metav1.Condition {
	return metav1.Condition{Type: string(kind), Status: metav1.ConditionFalse, Reason: string(reason), Message: message}
}

// Unknown returns a condition with status Unknown.
func Unknown[T, R ~string](kind T, reason R, message string) metav1.Condition {
	return metav1.Condition{Type: string(kind), Status: metav1.ConditionUnknown, Reason: string(reason), Message: message}
}

// Observed copies conditions and sets their observedGeneration. It truncates messages that are too long.
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
