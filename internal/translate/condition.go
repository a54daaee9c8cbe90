package translate

import (
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// problem is why something cannot be done as the user asked. It becomes a
// condition, so it names the field and what to do about it.
type problem struct {
	Reason string // the condition's
	Field  string // path from the object's root, such as spec.rules[1].backendRefs[0].name
	What   string
	Remedy string
}

func (p *problem) String() string {
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

func newProblem[R ~string](reason R, field, remedy, format string, args ...any) *problem {
	what := fmt.Sprintf(format, args...)
	if len(what) > maxWhat {
		what = strings.ToValidUTF8(what[:maxWhat], "") + "..."
	}
	return &problem{Reason: string(reason), Field: field, What: what, Remedy: remedy}
}

// A message may have 32768 bytes; users' values in it may be long.
const (
	maxWhat   = 512 // bytes of one problem
	maxListed = 8   // problems of one message
)

func listed[P fmt.Stringer](problems []P) string {
	texts := make([]string, 0, len(problems))
	for i, p := range problems {
		if i == maxListed {
			texts = append(texts, fmt.Sprintf("and %d more", len(problems)-i))
			break
		}
		texts = append(texts, p.String())
	}
	return strings.Join(texts, ". ")
}

// yes is a condition that is True.
func yes[T, R ~string](kind T, reason R) metav1.Condition {
	return metav1.Condition{Type: string(kind), Status: metav1.ConditionTrue, Reason: string(reason)}
}

// no is a condition that is False.
func no[T, R ~string](kind T, reason R, message string) metav1.Condition {
	return metav1.Condition{Type: string(kind), Status: metav1.ConditionFalse, Reason: string(reason), Message: message}
}

// unknown is a condition that cannot be judged yet.
func unknown[T, R ~string](kind T, reason R, message string) metav1.Condition {
	return metav1.Condition{Type: string(kind), Status: metav1.ConditionUnknown, Reason: string(reason), Message: message}
}

// observed copies conditions for an object of that generation.
func observed(generation int64, conditions ...metav1.Condition) []metav1.Condition {
	out := make([]metav1.Condition, len(conditions))
	for i, c := range conditions {
		c.ObservedGeneration = generation
		out[i] = c
	}
	return out
}
