package match

import (
	"bytes"
	"slices"
	"strings"
)

// depths counts the keys of each depth: labels of a wildcard's suffix, or segments of a path prefix. It is immutable;
// the last count is not 0.
type depths []int32

// deepest returns the greatest depth of any key, 0 if there is no key.
func (d depths) deepest() int { return max(0, len(d)-1) }

func (d depths) with(depth int) depths {
	next := make(depths, max(len(d), depth+1))
	copy(next, d)
	next[depth]++
	return next
}

func (d depths) without(depth int) depths {
	next := slices.Clone(d)
	next[depth]--
	for len(next) > 0 && next[len(next)-1] == 0 {
		next = next[:len(next)-1]
	}
	return next
}

// prefixMap holds the matches of each PathPrefix value. It is immutable; the zero value is empty.
type prefixMap[V any] struct {
	root candidates[V] // of ""
	keys pmap[candidates[V]]
	// segments[n] is the number of keys with n segments, n > 0.
	segments depths
	// longest is at least the length of the longest key, in bytes. It does not shrink.
	longest int
}

func (p prefixMap[V]) with(m *match[V]) prefixMap[V] {
	key := m.path.value
	if key == "" {
		p.root = p.root.with(m)
		return p
	}
	n := p.keys.n
	p.keys = withMatch(p.keys, m)
	if p.keys.n > n {
		p.segments = p.segments.with(strings.Count(key, "/"))
		p.longest = max(p.longest, len(key))
	}
	return p
}

func (p prefixMap[V]) without(m *match[V]) prefixMap[V] {
	key := m.path.value
	if key == "" {
		p.root = p.root.without(m)
		return p
	}
	n := p.keys.n
	p.keys = withoutMatch(p.keys, m)
	if p.keys.n < n {
		p.segments = p.segments.without(strings.Count(key, "/"))
	}
	return p
}

func withMatch[V any](keys pmap[candidates[V]], m *match[V]) pmap[candidates[V]] {
	var c candidates[V]
	if found := keys.find([]byte(m.path.value)); found != nil {
		c = *found
	}
	return keys.with(m.path.value, c.with(m))
}

func withoutMatch[V any](keys pmap[candidates[V]], m *match[V]) pmap[candidates[V]] {
	found := keys.find([]byte(m.path.value))
	if found == nil {
		return keys
	}
	if c := found.without(m); !c.empty() {
		return keys.with(m.path.value, c)
	}
	return keys.without(m.path.value)
}

// prefixWalk looks up the prefixes of a path that end at its segments, from the longest that can be a key to "". Paths
// of thousands of segments cost no more than the deepest key.
type prefixWalk[V any] struct {
	keys  *prefixMap[V]
	path  []byte
	depth int // segments of path; -1 after the end
}

func (p *prefixMap[V]) fitting(path []byte) prefixWalk[V] {
	w := prefixWalk[V]{keys: p}
	limit := p.segments.deepest()
	end := 0
	for end < len(path) && path[end] == '/' && w.depth < limit {
		w.depth++
		next := bytes.IndexByte(path[end+1:], '/')
		if next < 0 {
			end = len(path)
			break
		}
		end += 1 + next
	}
	w.path = path[:end]
	return w
}

// next returns nil at the end.
func (w *prefixWalk[V]) next() *candidates[V] {
	for w.depth > 0 {
		prefix, depth := w.path, w.depth
		w.depth--
		w.path = prefix[:bytes.LastIndexByte(prefix, '/')]
		if w.keys.segments[depth] == 0 || len(prefix) > w.keys.longest {
			continue
		}
		if c := w.keys.keys.find(prefix); c != nil {
			return c
		}
	}
	if w.depth == 0 {
		w.depth = -1
		return &w.keys.root
	}
	return nil
}

const upperHex = "0123456789ABCDEF"

// normalPath normalizes the value of an Exact or PathPrefix match to the form that paths of requests have: unreserved
// characters (RFC 3986 section 2.3) unescaped, other escapes in upper case, and everything that a request's path cannot
// contain escaped: all except visible ASCII, and "#", "?" and a "%" that begins no escape.
func normalPath(value string) string {
	out := make([]byte, 0, len(value))
	for i := 0; i < len(value); i++ {
		c := value[i]
		if c == '%' {
			d, ok := escaped(value[i:])
			if ok && unreserved(d) {
				out = append(out, d)
				i += 2
				continue
			}
			if ok {
				c = d
				i += 2
			}
		} else if '!' <= c && c <= '~' && c != '#' && c != '?' {
			out = append(out, c)
			continue
		}
		out = append(out, '%', upperHex[c>>4], upperHex[c&15])
	}
	return string(out)
}

func unreserved(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' ||
		c == '-' || c == '.' || c == '_' || c == '~'
}

// escaped decodes the "%XX" at the beginning of s.
func escaped[S string | []byte](s S) (c byte, ok bool) {
	if len(s) < 3 || s[0] != '%' {
		return 0, false
	}
	hi, lo := hexValue(s[1]), hexValue(s[2])
	return hi<<4 | lo&15, hi < 16 && lo < 16
}

// hexValue returns 16 or more for a byte that is not a hexadecimal digit.
func hexValue(c byte) byte {
	switch {
	case '0' <= c && c <= '9':
		return c - '0'
	case 'a' <= c && c <= 'f':
		return c - 'a' + 10
	case 'A' <= c && c <= 'F':
		return c - 'A' + 10
	}
	return 16
}
