package match

import (
	"errors"
	"fmt"
	"math"
	"regexp"
	"regexp/syntax"
	"strings"
	"unicode/utf8"
)

// ErrMatchLimit is returned where the regular expressions that a request would have to be matched against cost
// more than one request may. None of the rules is known to take the request then.
var ErrMatchLimit = errors.New("the values of the request are too long for the regular expressions of its routes")

// maxSteps bounds the matching of regular expressions for one request: the sum of size and length of the
// value, multiplied, of those that are tried. A step takes some 20 ns at worst, all of them 0.2 s.
const maxSteps = 10_000_000

// stepsLeft is what is left of a request's steps; less than 0 after one that was too many.
type stepsLeft int

const unlimited = stepsLeft(math.MaxInt)

func (b *stepsLeft) exceeded() bool { return *b < 0 }

// take reports whether so many steps are left, and takes them. After it said no it says so for good.
func (b *stepsLeft) take(steps int) bool {
	if *b >= 0 {
		*b -= stepsLeft(steps)
	}
	return *b >= 0
}

// expression is a regular expression that must match the whole of a value.
type expression struct {
	regex  *regexp.Regexp
	prefix string // that all values begin with that it matches
	size   int    // instructions
}

// match reports whether value matches; false where b is exceeded.
func (e *expression) match(value []byte, b *stepsLeft) bool {
	if len(value) < len(e.prefix) || string(value[:len(e.prefix)]) != e.prefix {
		return false
	}
	return b.take(e.size*(len(value)+1)) && e.regex.Match(value)
}

func compileRegex(pattern string) (*expression, error) {
	// Parsed alone first, so that "a)|(b" cannot escape the group below.
	parsed, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil {
		return nil, err
	}
	prefix := literalPrefix(parsed)
	prog, err := syntax.Compile(parsed.Simplify())
	if err != nil {
		return nil, err
	}
	re, err := regexp.Compile(`\A(?:` + pattern + `)\z`)
	if err != nil {
		return nil, fmt.Errorf("anchored: %w", err)
	}
	return &expression{regex: re, prefix: prefix, size: len(prog.Inst)}, nil
}

// literalPrefix returns a text that everything begins with that re matches from the beginning, maybe "".
func literalPrefix(re *syntax.Regexp) string {
	switch re.Op {
	case syntax.OpCapture:
		return literalPrefix(re.Sub[0])
	case syntax.OpConcat:
		for _, sub := range re.Sub {
			if sub.Op != syntax.OpBeginText {
				return literalPrefix(sub)
			}
		}
	case syntax.OpLiteral:
		if re.Flags&syntax.FoldCase == 0 {
			// U+FFFD matches bytes that are not UTF-8, too.
			prefix, _, _ := strings.Cut(string(re.Rune), string(utf8.RuneError))
			return prefix
		}
	}
	return ""
}
