package rule

import (
	"iter"
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"

	"github.com/moongate-dev/moongate/internal/translate/condition"
)

// withoutAnchors returns an expression that matches the same whole values as a part of another one: without the anchors
// at the beginning and the end of each alternative, which would be those of the whole text then. The rest of the text
// stays as it is, since its length decides on precedence.
func (s *scope) withoutAnchors(e, field string) (string, *condition.Problem) {
	if !strings.ContainsAny(e, `^$`) && !strings.Contains(e, `\A`) && !strings.Contains(e, `\z`) {
		return e, nil
	}
	var parts []string
	for part := range alternatives(e) {
		parts = append(parts, trimAnchors(part))
	}
	trimmed := strings.Join(parts, "|")
	parsed, err := syntax.Parse(trimmed, syntax.Perl)
	if err != nil {
		return e, s.notRE2(trimmed, field, err)
	}
	if hasAnchor(parsed) {
		return e, s.unsupported(field, "write ^ and $ only around the whole expression, or leave them out: it must match the whole name anyway",
			"regular expression %s has an anchor within it", QuotePattern(e))
	}
	return trimmed, nil
}

// alternatives yields the parts of a valid expression between the | that are in no group.
func alternatives(e string) iter.Seq[string] {
	return func(yield func(string) bool) {
		start, depth := 0, 0
		for i := 0; i < len(e); i++ {
			switch e[i] {
			case '\\':
				i = escapeEnd(e, i) - 1
			case '[':
				i = classEnd(e, i)
			case '(':
				depth++
			case ')':
				depth--
			case '|':
				if depth == 0 {
					if !yield(e[start:i]) {
						return
					}
					start = i + 1
				}
			}
		}
		yield(e[start:])
	}
}

// classEnd returns the index of the ] that ends the character class at i.
func classEnd(e string, i int) int {
	i++
	if strings.HasPrefix(e[i:], "^") {
		i++
	}
	for first := i; i < len(e); i++ {
		switch {
		case e[i] == '\\':
			i++
		case strings.HasPrefix(e[i:], "[:"):
			if n := strings.Index(e[i:], ":]"); n > 0 {
				i += n + 1
			}
		case e[i] == ']' && i > first:
			return i
		}
	}
	return i
}

// trimAnchors removes the anchors at both ends of an alternative, those at the beginning also behind flags.
func trimAnchors(e string) string {
	flags := leadingFlags.FindString(e)
	e = e[len(flags):]
	for {
		short := strings.TrimPrefix(strings.TrimPrefix(e, "^"), `\A`)
		if n := lastToken(short); short[n:] == "$" || short[n:] == `\z` {
			short = short[:n]
		}
		if short == e {
			return flags + e
		}
		e = short
	}
}

var leadingFlags = regexp.MustCompile(`^(\(\?[a-zA-Z-]+\))*`)

// lastToken returns the index at which the last character, escape sequence or quotation of a valid expression begins.
func lastToken(e string) (last int) {
	for i := 0; i < len(e); {
		last = i
		if e[i] == '\\' {
			i = escapeEnd(e, i)
		} else {
			i++
		}
	}
	return last
}

// CloseQuotation returns a valid expression with an end of the quotation that is open at its end: \Q without \E is valid in RE2, and
// would quote the parenthesis that closes a group around the expression, too.
func CloseQuotation(e string) string {
	if last := e[lastToken(e):]; strings.HasPrefix(last, `\Q`) && !strings.HasSuffix(last, `\E`) {
		return e + `\E`
	}
	return e
}

// escapeEnd returns the index after the backslash at i and the character after it, or after the quotation that they begin.
func escapeEnd(e string, i int) int {
	if quoted, ok := strings.CutPrefix(e[i:], `\Q`); ok {
		if n := strings.Index(quoted, `\E`); n >= 0 {
			return i + len(`\Q`) + n + len(`\E`)
		}
		return len(e)
	}
	return min(i+2, len(e))
}

func hasAnchor(e *syntax.Regexp) bool {
	switch e.Op {
	case syntax.OpBeginText, syntax.OpEndText, syntax.OpBeginLine, syntax.OpEndLine:
		return true
	}
	return slices.ContainsFunc(e.Sub, hasAnchor)
}
