// Package intern makes equal values one in memory. It exists because thousands of routes have the same parents, conditions and attachments.
//
// It imports the standard library only.
package intern

import "reflect"

// Values returns the same value for equal ones. It keeps the last few different values only: what thousands share is soon among them, and the
// others cost a few comparisons each. Whoever gets a value must not modify it. The zero value is ready; it is not safe for concurrent use.
type Values[V any] struct {
	last []V // that was asked for last comes first
}

// kept is how many values are kept.
const kept = 8

// Of returns the value kept that is equal to v by reflect.DeepEqual, and otherwise v, which is kept from now on in the place of the one that was asked for
// longest ago.
func (vs *Values[V]) Of(v V) V {
	i := 0
	for i < len(vs.last) && !reflect.DeepEqual(vs.last[i], v) {
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
