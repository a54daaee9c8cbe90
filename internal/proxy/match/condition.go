package match

import (
	"strings"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/proxy/message"
)

// Conditions of policies on single parts of a request, with the same meaning as in routes. Conditions are immutable and
// allocate nothing.

// Steps bounds the cost of the regular expressions of one request, as Lookup does for those of routes. It must be
// created by NewSteps.
type Steps struct{ left stepsLeft }

// NewSteps returns the steps that one request may use.
func NewSteps() Steps { return Steps{maxSteps} }

// Exceeded reports whether a condition needed more steps than were left. That condition did not hold, whatever it has
// returned.
func (s *Steps) Exceeded() bool { return s.left.exceeded() }

// Expression is a regular expression that must match the whole of a value.
type Expression struct{ e *expression }

// CompileExpression compiles an RE2 pattern.
func CompileExpression(pattern string) (Expression, error) {
	e, err := compileRegex(pattern)
	return Expression{e}, err
}

// Matches reports whether value matches. It returns false if s is exceeded.
func (e Expression) Matches(value []byte, s *Steps) bool { return e.e.match(value, &s.left) }

// HeaderCondition is a condition on the values of header fields with a name. Unlike conditions of routes it examines
// every value that a recipient may take for that of the field, so that a client cannot evade it with another field
// line.
type HeaderCondition struct{ v valueMatch }

// CompileHeader compiles a condition. The name may be in any case. "host" and ":authority" mean the host in the form of
// message.Request.MatchHost; an exact value is normalized to that form.
func CompileHeader(c *config.ValueMatch) (HeaderCondition, error) {
	name := strings.ToLower(c.Name)
	if name == ":authority" {
		name = "host"
	}
	v, err := compileValue(name, c)
	if name == "host" && v.regex == nil {
		v.value = bareHost(v.value)
	}
	return HeaderCondition{v}, err
}

// bareHost returns an authority in lower case, without port and trailing dot.
func bareHost(authority string) string {
	host := strings.ToLower(authority)
	if i := strings.LastIndexByte(host, ':'); i >= 0 && i > strings.LastIndexByte(host, ']') {
		host = host[:i]
	}
	return strings.TrimSuffix(host, ".")
}

// value returns the value for a name that does not refer to header lines.
func (c *HeaderCondition) value(req *message.Request) (value []byte, ok bool) {
	if c.v.name == "host" {
		return req.MatchHost, true
	}
	return pseudoHeader(req, c.v.name)
}

// Holds reports whether the value of any field line with the name fits, or those of several joined by commas (RFC 9110
// section 5.3). With invert it reports whether any of these does not fit, or there is no line.
func (c *HeaderCondition) Holds(req *message.Request, invert bool, s *Steps) bool {
	if value, ok := c.value(req); ok {
		return c.v.fitsValue(value, &s.left) != invert
	}
	i := nextLine(&req.Header, 0, c.v.name)
	if i < 0 {
		return invert
	}
	lines := 0
	for ; i >= 0; i = nextLine(&req.Header, i+1, c.v.name) {
		if c.v.fitsValue(req.Header.At(i).Value, &s.left) != invert {
			return true
		}
		lines++
	}
	return lines > 1 && c.v.fitsHeader(req, &s.left) != invert
}

// Value returns the value of the first field line with the condition's name. lines is the number of lines, at most 2.
func (c *HeaderCondition) Value(req *message.Request) (value []byte, lines int) {
	if value, ok := c.value(req); ok {
		return value, 1
	}
	for i := nextLine(&req.Header, 0, c.v.name); i >= 0 && lines < 2; i = nextLine(&req.Header, i+1, c.v.name) {
		if lines++; lines == 1 {
			value = req.Header.At(i).Value
		}
	}
	return value, lines
}

// QueryCondition is a condition on the query parameters with a name, each treated as in HeaderCondition.
type QueryCondition struct{ v valueMatch }

// CompileQuery compiles a condition.
func CompileQuery(c *config.ValueMatch) (QueryCondition, error) {
	v, err := compileValue(c.Name, c)
	return QueryCondition{v}, err
}

// Holds reports whether the value of any parameter with the name in a query fits. With invert it reports whether any
// does not fit, or there is none.
func (c *QueryCondition) Holds(query []byte, invert bool, s *Steps) bool {
	raw, rest, ok := nextQueryParam(query, c.v.name)
	if !ok {
		return invert
	}
	for ; ok; raw, rest, ok = nextQueryParam(rest, c.v.name) {
		if c.v.fitsRaw(raw, &s.left) != invert {
			return true
		}
	}
	return false
}

// AppendValue appends the decoded value of the first parameter in a query. params is the number of parameters, at most
// 2.
func (c *QueryCondition) AppendValue(dst, query []byte) (_ []byte, params int) {
	raw, rest, ok := nextQueryParam(query, c.v.name)
	if !ok {
		return dst, 0
	}
	if _, _, more := nextQueryParam(rest, c.v.name); more {
		return appendDecoded(dst, raw), 2
	}
	return appendDecoded(dst, raw), 1
}

// PathCondition is a condition on the path.
type PathCondition struct{ p pathMatch }

// CompilePath compiles a condition.
func CompilePath(c *config.PathMatch) (PathCondition, error) {
	p, err := compilePath(c)
	return PathCondition{p}, err
}

// Holds reports whether a path, in the form of message.Request.Path, fits.
func (c *PathCondition) Holds(path []byte, s *Steps) bool { return c.p.fits(path, &s.left) }
