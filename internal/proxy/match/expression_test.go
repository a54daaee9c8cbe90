package match

import (
	"errors"
	"fmt"
	"regexp"
	"testing"

	"github.com/moongate-dev/moongate/internal/config"
)

// TestMatchLimit has values of a client meet large regular expressions: the request ends where they would cost
// too much, and never falls to a less specific route.
func TestMatchLimit(t *testing.T) {
	var large []*config.Match
	for i := range 5 { // of size 1,993 each
		large = append(large, written("/a", fmt.Sprintf("h:x~%d?.{0,990}!", i)), written("/q", fmt.Sprintf("q:q~%d?.{0,990}!", i)), written(fmt.Sprintf("~/re.{0,990}%d", i)))
	}
	table := build(t, entry{"a/large", "h", 0, large}, entry{"b/any", "h", 0, one("/")})
	for _, tc := range []struct{ line, field, want string }{
		{"GET h/a", "X: 0" + repeat("x", 900) + "!", "a/large"},
		{"GET h/a", "X: " + repeat("x", 900), "b/any"},
		{"GET h/a", "X: " + repeat("x", 32<<10), ""},
		{"GET h/b", "X: " + repeat("x", 32<<10), "b/any"},
		{"GET h/q?q=" + repeat("x", 32<<10), "X: y", ""},
		{"GET h/q?q=" + repeat("%20", 8<<10), "X: y", ""},
		{"GET h/re" + repeat("x", 8<<10), "X: y", ""},
		{"GET h/is-not-re" + repeat("x", 8<<10), "X: y", "b/any"},
	} {
		got := ""
		r, err := table.Lookup(asked(tc.line, tc.field))
		if r != nil {
			got = r.Route.Namespace + "/" + r.Route.Name
		}
		if got != tc.want || errors.Is(err, ErrMatchLimit) != (tc.want == "") {
			t.Errorf("%.30s, %.30s: %q, %v, want %q", tc.line, tc.field, got, err, tc.want)
		}
	}
	twice := asked("GET h/a", "X: "+repeat("x", 4<<10), "X: "+repeat("x", 4<<10))
	if r, err := table.Lookup(twice); r != nil || err != ErrMatchLimit {
		t.Errorf("joined lines: %v, %v", r, err)
	}
}

// TestLiteralPrefix compares matches with those of the expression alone.
func TestLiteralPrefix(t *testing.T) {
	for pattern, prefix := range map[string]string{
		`/api/v[0-9]+`: "/api/v", `^/api/.*$`: "/api/", `(/a/b)(/.*)?`: "/a/b", `/ab|/ac`: "/a", `/ab|ac`: "", `^/a|b`: "",
		`(?i)/api`: "", `/a(?i)pi`: "/a", `/ab?`: "/a", `/a*`: "/", `(ab)+`: "", `.*`: "", ``: "", `a\x{FFFD}b`: "a", `\Aab\z`: "ab", `a\b/x`: "a", `(?m)^ab`: "",
	} {
		e, err := compileRegex(pattern)
		if err != nil {
			t.Fatal(err)
		}
		if e.prefix != prefix {
			t.Errorf("%q: prefix %q, want %q", pattern, e.prefix, prefix)
		}
		plain := regexp.MustCompile(`\A(?:` + pattern + `)\z`)
		for _, value := range []string{"", "/", "/a", "/A", "/ab", "/ac", "ab", "ac", "abab", "b", "/api", "/API", "/aPI", "/api/", "/api/v1", "/a/b", "/a/b/c", "a\xffb", "a\uFFFDb", "a/x"} {
			b := unlimited
			if got, want := e.match([]byte(value), &b), plain.MatchString(value); got != want {
				t.Errorf("%q, %q: %v, want %v", pattern, value, got, want)
			}
		}
	}
}
