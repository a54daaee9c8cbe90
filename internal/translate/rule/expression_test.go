package rule

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"regexp/syntax"
	"strings"
	"testing"

	gwv1 "sigs.k8s.io/gateway-api/apis/v1"
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

// TestReplacedExpressions: an expression that cannot be used is replaced by one that matches what it may mean, precedes what it would precede, and costs no more time
// than there is for the expressions of a route.
func TestReplacedExpressions(t *testing.T) {
	filters := []gwv1.HTTPRouteFilter{{Type: gwv1.HTTPRouteFilterRequestHeaderModifier, RequestHeaderModifier: &gwv1.HTTPHeaderFilter{Remove: []string{"a"}}}}
	service, method, expressions := `com\.example\.admin\.(?!Health).*`, "Get", gwv1.GRPCMethodMatchRegularExpression
	spec := GRPC(&gwv1.GRPCRouteRule{Matches: []gwv1.GRPCRouteMatch{{Method: &gwv1.GRPCMethodMatch{Type: &expressions, Service: &service, Method: &method}}}})
	spec.Filters = filters
	r := Compile(&spec, 0, 0, resolved)
	if r.Problem == nil || r.Rule.GetFailure() == nil {
		t.Fatalf("%+v", r)
	}
	path := r.Rule.Matches[0].Path.Value
	if re := regexp.MustCompile(`\A(?:` + path + `)\z`); !re.MatchString("/com.example.admin.Users/Get") || re.MatchString("/com.example.admin.Users/Set") || len(path) < len("/(?:"+service+")/(?:Get)") {
		t.Errorf("%s in place of %s", path, service)
	}

	regular := gwv1.PathMatchRegularExpression
	long := "/api/admin/" + strings.Repeat("a", 1000)
	var matches []gwv1.HTTPRouteMatch
	for range 2000 { // too many to parse them all
		bad := "/(?i)" + strings.Repeat(`[\x{41}-\x{500}]`, 20) + "(?!x)"
		matches = append(matches, gwv1.HTTPRouteMatch{Path: &gwv1.HTTPPathMatch{Type: &regular, Value: &bad}})
	}
	matches = append(matches, gwv1.HTTPRouteMatch{Path: &gwv1.HTTPPathMatch{Type: &regular, Value: &long}})
	http := HTTP(&gwv1.HTTPRouteRule{Matches: matches, Filters: filters})
	r = Compile(&http, 0, 0, resolved)
	if r.Problem == nil || len(r.Rule.GetMatches()) != len(matches) || r.Used > 2*MaxRouteSize {
		t.Fatalf("%d matches of %d, size %d, %v", len(r.Rule.GetMatches()), len(matches), r.Used, r.Problem)
	}
	last := r.Rule.Matches[len(matches)-1].Path.Value // there was no room for it any more
	if re := regexp.MustCompile(`\A(?:` + last + `)\z`); !re.MatchString(long) || !re.MatchString(long+"\n") || len(last) < len(long) {
		t.Errorf("%s in place of the last one", last)
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
