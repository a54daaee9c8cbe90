package match

import (
	"slices"
	"strings"

	"github.com/moongate-dev/moongate/internal/proxy/message"
)

// candidates are the matches of one hostname whose paths match together: those with one Exact or PathPrefix value, or
// all regular expressions. They are immutable; the zero value is empty.
//
// Many routes may differ only in the value of one header, such as a tenant's name. These are found by the value,
// without examining the others.
type candidates[V any] struct {
	plain   matchList[V]
	guarded []guardedBy[V] // sorted by name
}

// guardedBy holds the matches that are looked up by the value of one header.
type guardedBy[V any] struct {
	name   string
	values pmap[matchList[V]]
}

// guardOf returns the header match by whose value a match is looked up, or nil. It must be a comparison for equality. A
// value with a comma can be equal to several texts (see equalJoined), and joined lines always have a comma, so only
// single lines need be looked up.
func guardOf(headers []valueMatch) *valueMatch {
	for i := range headers {
		if h := &headers[i]; h.regex == nil && !strings.Contains(h.value, ",") {
			return h
		}
	}
	return nil
}

// first returns the first match in the order of precedence that fits, or nil.
func (c *candidates[V]) first(req *message.Request, b *stepsLeft) *match[V] {
	best := c.plain.first(req, b)
	for i := range c.guarded {
		g := &c.guarded[i]
		value, ok := singleValue(req, g.name)
		if !ok {
			continue
		}
		list := g.values.find(value)
		if list == nil {
			continue
		}
		if m := list.first(req, b); m != nil && (best == nil || goesBefore(m, best)) {
			best = m
		}
	}
	return best
}

// singleValue returns a header's value if it has exactly one line.
func singleValue(req *message.Request, name string) (value []byte, ok bool) {
	if value, ok = pseudoHeader(req, name); ok {
		return value, true
	}
	line := nextLine(&req.Header, 0, name)
	if line < 0 || nextLine(&req.Header, line+1, name) >= 0 {
		return nil, false
	}
	return req.Header.At(line).Value, true
}

func (c *candidates[V]) empty() bool { return len(c.plain) == 0 && len(c.guarded) == 0 }

func (c candidates[V]) with(m *match[V]) candidates[V] {
	if m.guard == nil {
		c.plain = c.plain.with(m)
		return c
	}
	i, found := c.search(m.guard.name)
	if !found {
		c.guarded = inserted(c.guarded, i, guardedBy[V]{name: m.guard.name})
	}
	g := c.guarded[i]
	var list matchList[V]
	if l := g.values.find([]byte(m.guard.value)); l != nil {
		list = *l
	}
	g.values = g.values.with(m.guard.value, list.with(m))
	c.guarded = replaced(c.guarded, i, g)
	return c
}

func (c candidates[V]) without(m *match[V]) candidates[V] {
	if m.guard == nil {
		c.plain = c.plain.without(m)
		return c
	}
	i, found := c.search(m.guard.name)
	if !found {
		return c
	}
	g := c.guarded[i]
	l := g.values.find([]byte(m.guard.value))
	if l == nil {
		return c
	}
	if list := l.without(m); len(list) > 0 {
		g.values = g.values.with(m.guard.value, list)
	} else {
		g.values = g.values.without(m.guard.value)
	}
	if g.values.n > 0 {
		c.guarded = replaced(c.guarded, i, g)
	} else {
		c.guarded = removed(c.guarded, i)
	}
	return c
}

func (c *candidates[V]) search(name string) (int, bool) {
	return slices.BinarySearchFunc(c.guarded, name, func(g guardedBy[V], name string) int {
		return strings.Compare(g.name, name)
	})
}

// appendTo appends all matches, in no particular order.
func (c *candidates[V]) appendTo(list []*match[V]) []*match[V] {
	list = append(list, c.plain...)
	for _, g := range c.guarded {
		for _, l := range g.values.all() {
			list = append(list, l...)
		}
	}
	return list
}

// matchList is sorted by precedence and immutable.
type matchList[V any] []*match[V]

func (l matchList[V]) first(req *message.Request, b *stepsLeft) *match[V] {
	for _, m := range l {
		// The regular expression is the most expensive predicate.
		if m.fitsRequest(req, b) && (m.path.regex == nil || m.path.regex.match(req.Path, b)) {
			return m
		}
	}
	return nil
}

func (l matchList[V]) search(m *match[V]) (int, bool) {
	return slices.BinarySearchFunc(l, m, func(a, b *match[V]) int {
		c, _ := compareMatches(a, b)
		return c
	})
}

func (l matchList[V]) with(m *match[V]) matchList[V] {
	i, _ := l.search(m)
	return inserted(l, i, m)
}

func (l matchList[V]) without(m *match[V]) matchList[V] {
	i, found := l.search(m)
	if !found {
		return l
	}
	return removed(l, i)
}
