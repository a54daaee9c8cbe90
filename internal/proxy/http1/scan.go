package http1

import (
	"encoding/binary"
	"math/bits"
)

// Classes of bytes, one bit each.
const (
	isToken  = 1 << iota // tchar, RFC 9110 section 5.6.2
	isValue              // field-vchar, SP, HTAB
	isTarget             // visible ASCII without "#"
	isHost               // letters, digits, "-", "_", "~"
	isDigit
	isHex
	isUnreserved // RFC 3986 section 2.3
	isPathWork   // a path byte that normalisation must examine: % . \
)

var class = func() (t [256]uint8) {
	for i := range t {
		c := byte(i)
		letter := 'a' <= c|0x20 && c|0x20 <= 'z'
		digit := '0' <= c && c <= '9'
		if letter || digit {
			t[i] |= isToken | isHost | isUnreserved
		}
		if digit {
			t[i] |= isDigit | isHex
		}
		if letter && c|0x20 <= 'f' {
			t[i] |= isHex
		}
		if c >= 0x20 && c != 0x7f || c == '\t' {
			t[i] |= isValue
		}
		if c > 0x20 && c < 0x7f && c != '#' {
			t[i] |= isTarget
		}
	}
	mark := func(s string, bit uint8) {
		for i := range len(s) {
			t[s[i]] |= bit
		}
	}
	mark("!#$%&'*+-.^_`|~", isToken)
	mark("-_~", isHost)
	mark("-._~", isUnreserved)
	mark("%.\\", isPathWork)
	return t
}()

const (
	ones = 0x0101010101010101
	tops = 0x8080808080808080
)

// valueEnd returns the index of the first byte at or after p that is not allowed in a field value, or len(b). It
// examines 8 bytes at a time: a byte below 0x20 or equal to 0x7f sets its top bit; only the lowest such bit is exact,
// and only that one is used.
func valueEnd(b []byte, p int) int {
	for p+8 <= len(b) {
		x := binary.LittleEndian.Uint64(b[p:])
		del := x ^ 0x7f*ones
		m := ((x-0x20*ones)&^x | (del-ones)&^del) & tops
		if m == 0 {
			p += 8
			continue
		}
		p += bits.TrailingZeros64(m) >> 3
		if b[p] != '\t' {
			return p
		}
		p++
	}
	for p < len(b) && class[b[p]]&isValue != 0 {
		p++
	}
	return p
}

// fieldLine has the positions of the parts of one field line in the buffer.
type fieldLine struct {
	colon      int // end of the name
	value, end int // the value without surrounding white space
	next       int // after CRLF
}

// scanField finds the parts of the field line at p, which must be within b.
func scanField(b []byte, p int) (l fieldLine, err error) {
	i := p
	for i < len(b) && class[b[i]]&isToken != 0 {
		i++
	}
	if i == len(b) {
		return l, ErrIncomplete
	}
	if b[i] != ':' || i == p {
		return l, badName(b, p, i)
	}
	l.colon = i
	i++
	for i < len(b) && (b[i] == ' ' || b[i] == '\t') {
		i++
	}
	l.value = i
	i = valueEnd(b, i)
	if i+1 >= len(b) || b[i] != '\r' || b[i+1] != '\n' {
		return l, badValue(b, i)
	}
	l.next = i + 2
	for i > l.value && (b[i-1] == ' ' || b[i-1] == '\t') {
		i--
	}
	l.end = i
	return l, nil
}

// badName returns why the line at p, whose token ends at i, has no valid name.
func badName(b []byte, p, i int) error {
	switch c := b[i]; {
	case i == p && (c == ' ' || c == '\t'):
		return errFold
	case c == '\n':
		return errBareLF
	}
	return errName
}

// badValue returns why the value that stops at i is not followed by CRLF.
func badValue(b []byte, i int) error {
	switch {
	case i == len(b) || b[i] == '\r' && i+1 == len(b):
		return ErrIncomplete
	case b[i] == '\r':
		return errBareCR
	case b[i] == '\n':
		return errBareLF
	}
	return errControl
}

// is compares a token with a lower-case one, ignoring case. Setting bit 5 maps no token byte except the two cases of a
// letter to a letter, and only "-" to "-".
func is(token []byte, lower string) bool {
	if len(token) != len(lower) {
		return false
	}
	for i := range len(lower) {
		if token[i]|0x20 != lower[i] {
			return false
		}
	}
	return true
}

func isTokenAll(b []byte) bool {
	for _, c := range b {
		if class[c]&isToken == 0 {
			return false
		}
	}
	return len(b) > 0
}

// member cuts the first member, which may be empty, from a comma-separated list (RFC 9110 section 5.6.1), without
// surrounding white space.
func member(list []byte) (first, rest []byte) {
	i := 0
	for i < len(list) && list[i] != ',' {
		i++
	}
	first = list[:i]
	if i < len(list) {
		rest = list[i+1:]
	}
	for len(first) > 0 && (first[0] == ' ' || first[0] == '\t') {
		first = first[1:]
	}
	for n := len(first); n > 0 && (first[n-1] == ' ' || first[n-1] == '\t'); n-- {
		first = first[:n-1]
	}
	return first, rest
}
