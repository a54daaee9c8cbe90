package rule

import (
	"errors"
	"regexp"
	"regexp/syntax"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/translate/condition"
)

// The size of a regular expression is the number of instructions to which it compiles, of about 40 bytes each, plus the size of the
// tables of its character classes in bytes. Memory grows with it, and so does the time of a match: in the worst case by some 20 ns
// for each instruction and each byte of the value. A pattern of 4 KiB could have a size of 800,000; typical patterns are below 100.
const (
	maxPatternSize = 2_000
	// MaxRouteSize limits all expressions of a route.
	MaxRouteSize = 10_000
	// MaxShareSize limits those of all routes of a namespace on a listener.
	MaxShareSize = 50_000
)

// Expressions summarizes the regular expressions of a rule.
type Expressions struct {
	Size int
	// Field and Pattern are those of the first one.
	Field, Pattern string
}

// expression checks the regular expression of a match. If it cannot be used and the rule has filters, expression replaces it
// by a wider one and records the problem in badExpression: the requests that it should have matched must fail.
func (s *scope) expression(e *string, field string) *condition.Problem {
	p := s.check(*e, field)
	if p == nil {
		*e = CloseQuotation(*e) // the data plane puts more behind it
		return nil
	}
	if !s.spec.filtered() {
		return p
	}
	s.replaced(p)
	wider := widenedTo(plainPrefix(*e), len(*e))
	if s.check(wider, field) != nil {
		wider = widenedTo("", len(*e))
		s.expressions.Size += instructionsOfAny
	}
	*e = wider
	return nil
}

// replaced records the problem of an expression that is replaced by a wider one.
func (s *scope) replaced(p *condition.Problem) {
	if s.badExpression == nil {
		p.What += "; since the rule has filters, whatever begins like what it may mean fails"
		s.badExpression = p
	}
}

// instructionsOfAny is the size of an expression that matches every value.
const instructionsOfAny = 3

// check checks a regular expression against its syntax and the limits, which must be done in this order:
// estimate, parse, measure, compile.
func (s *scope) check(e, field string) *condition.Problem {
	size := parseSize(e)
	if p := s.fits(e, field, size); p != nil {
		return p
	}
	s.parsed += size
	parsed, err := syntax.Parse(e, syntax.Perl)
	if err != nil {
		return s.notRE2(e, field, err)
	}
	size = max(size, programSize(parsed))
	if p := s.fits(e, field, size); p != nil {
		return p
	}
	// The data plane matches the whole value, and the anchors count towards RE2's limits.
	if _, err := regexp.Compile(`\A(?:` + CloseQuotation(e) + `)\z`); err != nil {
		return s.notRE2(e, field, err)
	}
	if s.expressions.Size == 0 {
		s.expressions.Field, s.expressions.Pattern = s.field+field, e
	}
	s.expressions.Size += size
	return nil
}

// checkSyntax checks a part of an expression by itself.
func (s *scope) checkSyntax(e, field string) *condition.Problem {
	if p := s.fits(e, field, parseSize(e)); p != nil {
		return p
	}
	if _, err := syntax.Parse(e, syntax.Perl); err != nil {
		return s.notRE2(e, field, err)
	}
	return nil
}

func (s *scope) notRE2(e, field string, err error) *condition.Problem {
	return s.unsupported(field, remedyRE2(e, err), "%s", condition.OneLine(err.Error()))
}

// remedyRE2 returns how to mend an expression that is not in RE2 syntax.
func remedyRE2(e string, err error) string {
	if syntaxError := (*syntax.Error)(nil); errors.As(err, &syntaxError) && syntaxError.Code == syntax.ErrMissingParen && CloseQuotation(e) != e {
		return `write \E where the quotation that \Q begins ends: it extends over the parenthesis`
	}
	return "write a regular expression in RE2 syntax"
}

// CheckExpression checks a regular expression of a policy. It returns its size, or what is wrong with it and how to mend that. room is what is left of MaxRouteSize for the policy's.
func CheckExpression(e string, room int) (size int, what, remedy string) {
	fits := func() bool {
		switch {
		case size > maxPatternSize:
			what = "regular expression " + QuotePattern(e) + " has size " + strconv.Itoa(size) + " when compiled, and at most " + strconv.Itoa(maxPatternSize) + " is supported"
			remedy = "shorten its repetitions, or use fewer classes of Unicode"
		case size > room:
			what = "regular expression " + QuotePattern(e) + " brings those of the policy to more than size " + strconv.Itoa(MaxRouteSize) + " when compiled, which is not supported"
			remedy = "shorten it, or use fewer"
		}
		return what == ""
	}
	if size = parseSize(e); !fits() {
		return 0, what, remedy
	}
	parsed, err := syntax.Parse(e, syntax.Perl)
	if err == nil {
		if size = max(size, programSize(parsed)); !fits() {
			return 0, what, remedy
		}
		_, err = regexp.Compile(`\A(?:` + CloseQuotation(e) + `)\z`)
	}
	if err != nil {
		return 0, condition.OneLine(err.Error()), remedyRE2(e, err)
	}
	return size, "", ""
}

// fits returns the problem of an expression that exceeds the limits of patterns or of the route, or nil.
func (s *scope) fits(e, field string, size int) *condition.Problem {
	if size > maxPatternSize {
		return s.unsupported(field, "shorten its repetitions, use fewer classes of Unicode, or split it into several matches",
			"regular expression %s has size %d when compiled, and at most %d is supported", QuotePattern(e), size, maxPatternSize)
	}
	if total := s.used + max(s.expressions.Size, s.parsed) + size; total > MaxRouteSize {
		return s.unsupported(field, "shorten it, or move the rule to another route",
			"regular expression %s brings those of the route to size %d when compiled, and at most %d is supported", QuotePattern(e), total, MaxRouteSize)
	}
	return nil
}

// maxWidenedPrefix is the maximum length in bytes of the prefix of a pattern that widened keeps.
const maxWidenedPrefix = 64

// Widened returns a rule that fails all requests that r could match, and also others whose values begin like those that its regular
// expressions match. It replaces a rule whose expressions exceed a limit, and whose filters must not be skipped. It has at least the
// precedence of r.
func Widened(r *config.Rule) *config.Rule {
	out := failing(proto.CloneOf(r))
	for _, m := range out.Matches {
		if m.Path.GetType() == config.PathMatchType_PATH_MATCH_TYPE_REGULAR_EXPRESSION {
			m.Path.Value = widened(m.Path.Value)
		}
		for _, v := range slices.Concat(m.Headers, m.QueryParams) {
			if v.RegularExpression {
				v.Value = widened(v.Value)
			}
		}
	}
	return out
}

// widened returns a pattern that matches whatever begins with the literal prefix of pattern, and that is at least as long, because
// the longer of two path expressions takes precedence.
func widened(pattern string) string {
	prefix := ""
	if re, err := regexp.Compile(pattern); err == nil {
		prefix, _ = re.LiteralPrefix()
	}
	return widenedTo(prefix, len(pattern))
}

// widenedTo returns an expression of at least length bytes for the values that begin with prefix.
func widenedTo(prefix string, length int) string {
	prefix = regexp.QuoteMeta(strings.ToValidUTF8(prefix[:min(len(prefix), maxWidenedPrefix)], ""))
	return "(?" + strings.Repeat("s", max(1, length-len(prefix)-len("(?).*"))) + ")" + prefix + ".*"
}

// plainPrefix returns what all values that a pattern is meant to match begin with, as far as that shows without parsing: the pattern may be too large for it, or of
// another syntax than RE2's.
func plainPrefix(pattern string) string {
	if alternates(pattern) {
		return ""
	}
	anchored := strings.TrimPrefix(pattern, "^")
	end := strings.IndexAny(anchored, `\.+*?()|[]{}^$`)
	if end < 0 {
		return anchored
	}
	if strings.IndexByte("*?{", anchored[end]) >= 0 { // the character before need not be there
		_, size := utf8.DecodeLastRuneInString(anchored[:end])
		end -= size
	}
	return anchored[:end]
}

// alternates reports whether a pattern has an alternative outside of all parentheses, or may have one.
func alternates(pattern string) bool {
	depth, class := 0, false
	for i := 0; i < len(pattern); i++ {
		switch c := pattern[i]; {
		case c == '\\':
			i++
		case class:
			class = c != ']'
		case c == '[':
			class = true
			if rest := strings.TrimPrefix(pattern[i+1:], "^"); strings.HasPrefix(rest, "]") {
				i = len(pattern) - len(rest) // the bracket after it is one of the class
			}
		case c == '(':
			depth++
		case c == ')':
			depth--
		case c == '|' && depth <= 0:
			return true
		}
	}
	return depth != 0 || class
}

// QuotePattern quotes a pattern for a message, truncated to 64 bytes.
func QuotePattern(pattern string) string {
	const most = 64
	if len(pattern) <= most {
		return strconv.Quote(pattern)
	}
	return strconv.Quote(strings.ToValidUTF8(pattern[:most], "")) + "..."
}

// programSize returns the number of instructions that regexp/syntax would compile, as computed by its own calcSize, plus the tables.
func programSize(re *syntax.Regexp) int {
	ranges := 0
	return instructions(re, &ranges) + ranges/rangesOfInstruction
}

const (
	rangesOfInstruction = 5   // 8 bytes each; repetitions share a table
	tableSize           = 150 // the largest table, of all letters, has 685 ranges
	foldsOfInstruction  = 25  // runes that the parser looks up one by one
)

// instructions counts those of a tree. syntax.Parse limits its height and the product of its repetitions.
func instructions(re *syntax.Regexp, ranges *int) (n int) {
	for _, sub := range re.Sub {
		n += instructions(sub, ranges)
	}
	switch re.Op {
	case syntax.OpLiteral:
		n = len(re.Rune)
	case syntax.OpCharClass:
		*ranges += len(re.Rune) / 2
		n = 1
	case syntax.OpCapture, syntax.OpStar:
		n += 2
	case syntax.OpPlus, syntax.OpQuest:
		n++
	case syntax.OpAlternate:
		n += len(re.Sub) - 1
	case syntax.OpRepeat: // x{2,5} is compiled as xx(x(x(x)?)?)?, x{2,} as xx+
		switch {
		case re.Max >= 0:
			n = re.Max*n + re.Max - re.Min
		case re.Min == 0:
			n += 2
		default:
			n = re.Min*n + 1
		}
	}
	return max(n, 1)
}

var foldsCase = regexp.MustCompile(`\(\?[imsU-]*i`)

// Only between these runes are there runes that differ by case alone; see unicode.SimpleFold.
const minFold, maxFold = 0x41, 0x1e943

// parseSize returns an upper bound, in units of size, of the work of syntax.Parse beyond the length of a pattern: it copies the
// table of each Unicode class, and with case-insensitive matching it processes ranges rune by rune. 4 KiB of such classes take
// seconds.
func parseSize(pattern string) int {
	size := tableSize * (strings.Count(pattern, `\p`) + strings.Count(pattern, `\P`))
	if !foldsCase.MatchString(pattern) {
		return size
	}
	folds := 0
	for i := range len(pattern) {
		if pattern[i] == '-' {
			folds += max(0, min(highRune(pattern[i+1:]), maxFold)-max(lowRune(pattern[:i]), minFold))
		}
	}
	return size + folds/foldsOfInstruction
}

// lowRune returns a lower bound of the rune with which a range after text begins.
func lowRune(text string) int {
	if r, _ := utf8.DecodeLastRuneInString(text); r >= utf8.RuneSelf && r != utf8.RuneError {
		return int(r)
	}
	return 0
}

// highRune returns an upper bound of the rune with which a range ends before text.
func highRune(text string) int {
	if r, n := utf8.DecodeRuneInString(text); n == 0 || r != '\\' {
		return int(r)
	}
	if len(text) < 2 {
		return 0
	}
	if text[1] != 'x' && (text[1] < '0' || text[1] > '7') {
		return utf8.RuneSelf // an ASCII character
	}
	if digits, ok := strings.CutPrefix(text, `\x{`); ok {
		digits, _, _ = strings.Cut(digits, "}")
		if n, err := strconv.ParseUint(digits, 16, 31); err == nil {
			return int(n)
		}
		return utf8.MaxRune
	}
	return 0o777 // two hexadecimal digits, or three octal ones
}
