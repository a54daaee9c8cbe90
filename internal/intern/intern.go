// Package intern replaces equal values by the same value in memory. It exists because thousands of routes have equal parents,
// conditions and attachments.
//
// It imports the standard library only.
package intern

import "reflect"

// Values returns the same value for equal ones. It only keeps the last few different values: a value that thousands share is soon
// among them, and the others cost a few comparisons each. Returned values must not be modified. The zero value is ready; it is not
// safe for concurrent use.
type Values[V any] struct {
	// Equal reports whether two values are equal; nil means reflect.DeepEqual.
	Equal func(a, b V) bool

	last []V // the most recently used first
}

// kept is the number of values that are kept.
const kept = 8

// Of returns the kept value that is equal to v, else v, which then replaces the least recently used one.
func (vs *Values[V]) Of(v V) V {
	i := 0
	for i < len(vs.last) && !vs.equal(vs.last[i], v) {
		i++
	}
	switch {
	case i < len(vs.last):
		v = vs.last[i]
	case i < kept:
		vs.last = append(vs.last, v)
	default:
		i--
	}
	copy(vs.last[1:i+1], vs.last[:i])
	vs.last[0] = v
	return v
}

func (vs *Values[V]) equal(a, b V) bool {
	if vs.Equal != nil {
		return vs.Equal(a, b)
	}
	return reflect.DeepEqual(a, b)
}
