package exchange

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"golang.org/x/net/html"

	"github.com/moongate-dev/moongate/internal/config"
)

// FuzzAppendEscaped: whatever a client sends, a page has the elements and attributes that its author wrote, with the value as their text, and JSON has it as a string.
func FuzzAppendEscaped(f *testing.F) {
	for _, s := range []string{"", "/path?a=1&b=<2>", `"'><script>alert(1)</script>`, "a onclick=x", "`${x}`", `\`, "\x00\x1b$B\xff\u2028é😀", "--!>", "]]>", "&amp;&#39;", "</textarea>"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, value []byte) {
		escaped := string(appendEscaped(nil, value, config.EscapeHTML))
		if i := strings.IndexFunc(escaped, func(r rune) bool { return r >= 0x80 || strings.ContainsRune(" <>\"'`\\$(){}=\n\r", r) }); i >= 0 {
			t.Fatalf("%q has a byte that may mean something, at %d", escaped, i)
		}
		// The x is there so that an attribute without quotes has a value in any case.
		page := func(v string) string {
			return `<p title="x` + v + `" data-a='x` + v + `' data-b=x` + v + ` class=c>x` + v + `</p><!-- ` + v + ` --><textarea>x` + v + `</textarea><b>end</b>`
		}
		shape := func(v string) (s []string, values []string) {
			z := html.NewTokenizer(strings.NewReader(page(v)))
			for {
				kind := z.Next()
				if kind == html.ErrorToken {
					return s, values
				}
				token := z.Token()
				s = append(s, kind.String())
				if kind != html.TextToken && kind != html.CommentToken {
					s = append(s, token.Data)
				}
				for _, a := range token.Attr {
					s = append(s, a.Key)
					values = append(values, a.Val)
				}
				if kind == html.TextToken {
					values = append(values, token.Data)
				}
			}
		}
		got, values := shape(escaped)
		want, _ := shape("v")
		if strings.Join(got, " ") != strings.Join(want, " ") {
			t.Fatalf("the page has %q, want %q", got, want)
		}
		valid := strings.ToValidUTF8(string(value), "\uFFFD")
		if clean := !strings.ContainsFunc(valid, func(r rune) bool { return r == 0 || r == '\r' || r >= 0x80 && r < 0xa0 || r == '\uFFFD' }); clean {
			for _, v := range values[:3] {
				if v != "x"+valid {
					t.Errorf("the page shows %q, want %q", v, "x"+valid)
				}
			}
		}
		inString := appendEscaped(nil, value, config.EscapeJSON)
		if i := bytes.IndexAny(inString, "<>&'`${\""); i >= 0 {
			t.Fatalf("%q has a byte that may mean something, at %d", inString, i)
		}
		var s string
		if err := json.Unmarshal([]byte(`"`+string(inString)+`"`), &s); err != nil || strings.ReplaceAll(s, "\uFFFD", "") != strings.ReplaceAll(valid, "\uFFFD", "") {
			t.Errorf("JSON has %q (%v), want %q", s, err, valid)
		}
		if plain := appendEscaped(nil, value, config.EscapeNothing); !bytes.Equal(plain, value) {
			t.Errorf("plain text has %q", plain)
		}
	})
}
