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

// ErrMatchLimit means that matching the request against regular expressions would cost more than one request may. It is
// then unknown whether any rule matches.
var ErrMatchLimit = errors.New("the values of the request are too long for the regular expressions of its routes")

// maxSteps bounds the matching of regular expressions for one request: the sum over those tried of their size times the
// length of the value. A step takes at most about 20 ns, all of them 0.2 s.
const maxSteps = 10_000_000

// stepsLeft is how many of a request's steps are left; it is negative after the limit was exceeded.
type stepsLeft int

const unlimited = stepsLeft(math.MaxInt)

func (b *stepsLeft) exceeded() bool { return *b < 0 }

// take takes steps and reports whether so many were left. Once it has returned false, it always does.
func (b *stepsLeft) take(steps int) bool {
	if *b >= 0 {
		*b -= stepsLeft(steps)
	}
	return *b >= 0
}

// expression is a regular expression that must match the whole of a value.
type expression struct {
	regex  *regexp.Regexp
	prefix string // prefix of all values that match
	size   int    // number of instructions
}

// match reports whether value matches. It returns false if b is exceeded.
func (e *expression) match(value []byte, b *stepsLeft) bool {
	if len(value) < len(e.prefix) || string(value[:len(e.prefix)]) != e.prefix {
		return false
	}
	return b.take(e.size*(len(value)+1)) && e.regex.Match(value)
}

func compileRegex(pattern string) (*expression, error) {
	// Parsed without the group first, so that "a)|(b" cannot escape it below.
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

// literalPrefix returns a prefix, perhaps "", of everything that re matches from the beginning.
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
			// U+FFFD also matches bytes that are not UTF-8.
			prefix, _, _ := strings.Cut(string(re.Rune), string(utf8.RuneError))
			return prefix
		}
	}
	return ""
}
