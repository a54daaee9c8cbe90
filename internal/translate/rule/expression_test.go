package rule

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"regexp/syntax"
	"strings"
	"testing"
)

// TestParseSize knows patterns that syntax.Parse takes seconds for by their text alone, and lets
// through what people write.
func TestParseSize(t *testing.T) {
	for _, hostile := range []string{
		strings.Repeat(`\pL`, 300), "[" + strings.Repeat(`\pL\PL`, 150) + "]", strings.Repeat(`[^\p{Han}]`, 100),
		"(?i)" + strings.Repeat(`[A-\x{1E942}]`, 70), "(?i)[" + strings.Repeat(`A-\x{1E942}`, 80) + "]",
		"(?i)" + strings.Repeat("[A-\U0001E942]", 70), strings.Repeat(`(?smi:[^!-\x{1E942}])`, 50), "(?-s:(?i-U:" + strings.Repeat(`[\101-\x{1E942}]`, 60) + "))",
		`\Q\\E(?i)` + strings.Repeat(`[\x41-\x{01E942}]`, 60), "(?i)" + strings.Repeat(`[\\-\x{ffffffffff}]`, 60),
	} {
		if size := parseSize(hostile); size <= maxPatternSize {
			t.Errorf("%s: size %d", QuotePattern(hostile), size)
		}
	}
	for _, ordinary := range []string{
		`/users/[0-9]+/orders/[a-f0-9-]{36}`, `(?i)[a-z0-9._%+-]+@[a-z0-9.-]+\.[a-z]{2,}`, `(?i)[а-яё-]+`, `(?i)[\x{4e00}-\x{9fff}]+`,
		`[\p{L}\p{N}_-]+`, `(?i)\p{Lu}\p{L}*`, `\d{4}-\d{2}-\d{2}`, strings.Repeat("en-us|", 160),
	} {
		if size := parseSize(ordinary); size > maxPatternSize {
			t.Errorf("%s: size %d", ordinary, size)
		}
	}
}

// TestParseSizeOfRanges compares with the number of runes that a range has.
func TestParseSizeOfRanges(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	write := []func(rune) string{
		func(c rune) string { return string(c) },
		func(c rune) string { return fmt.Sprintf(`\x{%x}`, c) },
		func(c rune) string { return fmt.Sprintf(`\x{%08X}`, c) },
	}
	for range 5000 {
		low, high := 'A'+r.Int32N(maxFold-'A'), 'A'+r.Int32N(maxFold-'A')
		if low > high {
			low, high = high, low
		}
		if high >= 0xd800 && low <= 0xdfff { // surrogates cannot be written as they are
			continue
		}
		pattern := "(?i)[" + write[r.IntN(3)](low) + "-" + write[r.IntN(3)](high) + "]"
		if _, err := syntax.Parse(pattern, syntax.Perl); err != nil {
			t.Logf("%s: %v", pattern, err) // a sign of the syntax
			continue
		}
		if got, want := parseSize(pattern), int(high-low)/foldsOfInstruction; got < want {
			t.Fatalf("%s: size %d, want at least %d", pattern, got, want)
		}
	}
}

// TestProgramSize compares with what is compiled.
func TestProgramSize(t *testing.T) {
	atoms := []string{"a", "ab", ".", "[a-z]", "[^/]", `\d`, "(?i:k)", "^", "$", `\b`, "(?:)", `[\s\S]`}
	r := rand.New(rand.NewPCG(3, 4))
	var make func(depth int) string
	make = func(depth int) string {
		if depth == 0 {
			return atoms[r.IntN(len(atoms))]
		}
		x := make(depth - 1)
		switch r.IntN(9) {
		case 0:
			return "(" + x + ")"
		case 1:
			return "(?:" + x + ")*"
		case 2:
			return "(?:" + x + ")+?"
		case 3:
			return "(?:" + x + ")?"
		case 4:
			low := r.IntN(4)
			return fmt.Sprintf("(?:%s){%d,%d}", x, low, low+r.IntN(5))
		case 5:
			return fmt.Sprintf("(?:%s){%d,}", x, r.IntN(4))
		case 6:
			return fmt.Sprintf("(?:%s){%d}", x, r.IntN(6))
		case 7:
			return x + "|" + make(depth-1)
		}
		return x + make(depth-1)
	}
	for range 5000 {
		pattern := make(1 + r.IntN(6))
		re, err := syntax.Parse(pattern, syntax.Perl)
		if err != nil {
			continue // repeated too often
		}
		estimate := programSize(re)
		program, err := syntax.Compile(re.Simplify())
		if err != nil {
			t.Fatal(err)
		}
		if got := len(program.Inst); got > estimate+2 { // failure and match
			t.Fatalf("%s: %d instructions, estimated %d", pattern, got, estimate)
		}
	}
}

// TestPlainPrefix checks what is kept of patterns that cannot be parsed, or must not be: never more than all values begin with that the pattern may mean.
func TestPlainPrefix(t *testing.T) {
	for pattern, want := range map[string]string{
		"/v[0-9]+/admin(?!/public)": "/v",
		"/a(?=b)":                   "/a",
		"^/a/b$":                    "/a/b",
		"/plain":                    "/plain",
		"/ab?(?!x)":                 "/a",
		"/ab*(?!x)":                 "/a",
		"/ab{0}(?!x)":               "/a",
		"/ab+(?!x)":                 "/ab",
		"/aé?(?!x)":                 "/a",
		"/a|/b(?!x)":                "",
		"/a(?:b|c)(?!x)":            "/a",
		"/a[|]b(?!x)":               "/a",
		"/a[]|]b(?!x)":              "/a",
		"/a[^]|]b(?!x)":             "/a",
		`/a\|b(?!x)`:                "/a",
		`/a\(b|c(?!x)`:              "",
		"/a(b|c":                    "",
		"/a)b|c":                    "",
		"/a[b|c":                    "",
		"(?i)/a(?!x)":               "",
		"[":                         "",
		"":                          "",
	} {
		if got := plainPrefix(pattern); got != want {
			t.Errorf("%q begins with %q, want %q", pattern, got, want)
		}
	}
	for _, pattern := range []string{"/a(b|c)d", "/ab?c", "/a[xy]", "/a.*", "/a{2}b", "a|b", "/a+b", `/a\.b`, "^/a", "(?i)/a", "/a(?i)b", `\Q/a|b\E`, "/ab??", "/ab*?c", "x{0,1}y", "[[:alpha:]|]a|b"} {
		re := regexp.MustCompile(pattern)
		if most, _ := re.LiteralPrefix(); !strings.HasPrefix(strings.TrimPrefix(pattern, "^"), "/") && plainPrefix(pattern) != "" || most != "" && !strings.HasPrefix(most, plainPrefix(pattern)) {
			t.Errorf("%q begins with %q, and is said to begin with %q", pattern, most, plainPrefix(pattern))
		}
	}
}

// TestWidened checks that what a pattern matches its widened form matches too, that little else is, and that it precedes what the pattern precedes.
func TestWidened(t *testing.T) {
	matches := func(pattern, value string) bool {
		return regexp.MustCompile(`\A(?:` + pattern + `)\z`).MatchString(value)
	}
	long := "/" + strings.Repeat("ä", 100)
	for _, c := range []struct {
		pattern     string
		values, not []string
	}{
		{"/admin/[0-9]+", []string{"/admin/1", "/admin/"}, []string{"/", "/admin"}},
		{"/admin/[0-9]{1,900}", []string{"/admin/1"}, []string{"/other"}},
		{"/(admin|internal)/.*", []string{"/admin/", "/internal/x"}, []string{"admin"}},
		{"(?i)/admin", []string{"/ADMIN", "/admin"}, nil},
		{"/a.c|/b", []string{"/a.c", "/b"}, nil},
		{`/a\.c/.?`, []string{"/a.c/", "/a.c/\n"}, []string{"/abc/"}},
		{"/x*", []string{"/", "/xx"}, []string{"x"}},
		{"", []string{""}, nil},
		{long, []string{long}, []string{"/" + strings.Repeat("a", 100)}},
	} {
		got := widened(c.pattern)
		if len(got) < len(c.pattern) {
			t.Errorf("%s: %s is shorter", c.pattern, got)
		}
		for _, v := range c.values {
			if !matches(got, v) {
				t.Errorf("%s: %s does not match %q", c.pattern, got, v)
			}
		}
		for _, v := range c.not {
			if matches(got, v) {
				t.Errorf("%s: %s matches %q", c.pattern, got, v)
			}
		}
		if parsed, err := syntax.Parse(got, syntax.Perl); err != nil || programSize(parsed) > maxWidenedPrefix+3 {
			t.Errorf("%s: %s is too large, or %v", c.pattern, got, err)
		}
	}
}
