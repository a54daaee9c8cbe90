package rule

import (
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

// The size of a regular expression is the number of instructions that it compiles to, of about 40
// bytes, with the tables of its character classes counted by their bytes. Memory grows with it,
// and so does the time of a match: in the worst case by some 20 ns for each of them and each byte of the value.
// Four kibibytes of pattern could have a size of 800,000; what people write seldom has 100.
const (
	maxPatternSize = 2_000
	// MaxRouteSize bounds all expressions of a route.
	MaxRouteSize = 10_000
	// MaxShareSize bounds those of all routes of a namespace on a listener.
	MaxShareSize = 50_000
)

// Expressions are what the regular expressions of a rule amount to.
type Expressions struct {
	Size int
	// Field and Pattern are of the first one.
	Field, Pattern string
}

// expression checks a regular expression against its syntax and the limits, which must be done in this order:
// estimate, parse, measure, compile.
func (s *scope) expression(e, field string) *condition.Problem {
	size := parseSize(e)
	if p := s.fits(e, field, size); p != nil {
		return p
	}
	s.parsed += size
	parsed, err := syntax.Parse(e, syntax.Perl)
	if err != nil {
		return s.unsupported(field, "write a regular expression in RE2 syntax", "%s", oneLine(err.Error()))
	}
	size = max(size, programSize(parsed))
	if p := s.fits(e, field, size); p != nil {
		return p
	}
	// The data plane asks for the whole value, which counts towards RE2's limits too.
	if _, err := regexp.Compile(`\A(?:` + e + `)\z`); err != nil {
		return s.unsupported(field, "write a regular expression in RE2 syntax", "%s", oneLine(err.Error()))
	}
	if s.expressions.Size == 0 {
		s.expressions.Field, s.expressions.Pattern = s.field+field, e
	}
	s.expressions.Size += size
	return nil
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
		_, err = regexp.Compile(`\A(?:` + e + `)\z`)
	}
	if err != nil {
		return 0, oneLine(err.Error()), "write a regular expression in RE2 syntax"
	}
	return size, "", ""
}

// fits returns the problem of an expression that is beyond the limits of patterns or of the route.
func (s *scope) fits(e, field string, size int) *condition.Problem {
	if size > maxPatternSize {
		return s.unsupported(field, "shorten its repetitions, use fewer classes of Unicode, or split it into several matches",
			"regular expression %s has size %d when compiled, and at most %d is supported", QuotePattern(e), size, maxPatternSize)
	}
	if total := s.used + s.expressions.Size + size; total > MaxRouteSize {
		return s.unsupported(field, "shorten it, or move the rule to another route",
			"regular expression %s brings those of the route to size %d when compiled, and at most %d is supported", QuotePattern(e), total, MaxRouteSize)
	}
	return nil
}

// maxWidenedPrefix bounds what is kept of a pattern, in bytes.
const maxWidenedPrefix = 64

// Widened is a rule that fails all requests that r could get and, as far as their values begin like those that its regular expressions match, others:
// for a rule whose expressions there is no room for, and whose filters must not be skipped. It precedes whatever r precedes.
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

// widened matches whatever begins with the literal prefix of a pattern, and is at least as long: of two expressions for paths the longer one precedes.
func widened(pattern string) string {
	prefix := ""
	if re, err := regexp.Compile(pattern); err == nil {
		prefix, _ = re.LiteralPrefix()
	}
	prefix = regexp.QuoteMeta(strings.ToValidUTF8(prefix[:min(len(prefix), maxWidenedPrefix)], ""))
	return "(?" + strings.Repeat("s", max(1, len(pattern)-len(prefix)-len("(?).*"))) + ")" + prefix + ".*"
}

// QuotePattern quotes a pattern for a message, cut to 64 bytes.
func QuotePattern(pattern string) string {
	const most = 64
	if len(pattern) <= most {
		return strconv.Quote(pattern)
	}
	return strconv.Quote(strings.ToValidUTF8(pattern[:most], "")) + "..."
}

// programSize is what regexp/syntax would compile, as its own calcSize has it, with the tables.
func programSize(re *syntax.Regexp) int {
	ranges := 0
	return instructions(re, &ranges) + ranges/rangesOfInstruction
}

const (
	rangesOfInstruction = 5   // 8 bytes each; repetitions share a table
	tableSize           = 150 // the largest, of all letters, has 685 ranges
	foldsOfInstruction  = 25  // runes that parsing looks up one by one
)

// instructions counts those of a tree. syntax.Parse bounds its height and the product of its repetitions.
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
	case syntax.OpRepeat: // x{2,5} is xx(x(x(x)?)?)?, x{2,} is xx+
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

// The runes between which there are others that differ by case alone; see unicode.SimpleFold.
const minFold, maxFold = 0x41, 0x1e943

// parseSize bounds what syntax.Parse does beyond the length of a pattern, in units of size: it copies
// the table of each class of Unicode, and where case does not count it goes through a range rune by rune. 4 KiB of
// such classes take seconds. It may count too much, never too little.
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

// lowRune is at most the rune that a range after text begins with.
func lowRune(text string) int {
	if r, _ := utf8.DecodeLastRuneInString(text); r >= utf8.RuneSelf && r != utf8.RuneError {
		return int(r)
	}
	return 0
}

// highRune is at least the rune that a range ends with before text.
func highRune(text string) int {
	if r, n := utf8.DecodeRuneInString(text); n == 0 || r != '\\' {
		return int(r)
	}
	if len(text) < 2 {
		return 0
	}
	if text[1] != 'x' && (text[1] < '0' || text[1] > '7') {
		return utf8.RuneSelf // a letter or a sign of ASCII
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
