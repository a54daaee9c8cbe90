package pathmodifier

import (
	"strings"
	"testing"

	"github.com/moongate-dev/moongate/internal/config"
)

func modifier(fullPath bool, prefix, value string) *config.PathModifier {
	if fullPath {
		return &config.PathModifier{Kind: &config.PathModifier_ReplaceFullPath{ReplaceFullPath: value}}
	}
	return &config.PathModifier{Kind: &config.PathModifier_ReplacePrefix{ReplacePrefix: &config.ReplacePrefix{Prefix: prefix, Replacement: value}}}
}

func modified(t *testing.T, c *config.PathModifier, path string) string {
	t.Helper()
	m, err := Compile("Test", c)
	if err != nil {
		t.Fatalf("%v: %v", c, err)
	}
	return strings.TrimPrefix(string(m.Append([]byte("..."), []byte(path))), "...")
}

// TestReplacePrefix holds the table of HTTPPathModifier.replacePrefixMatch, then cases of our own.
func TestReplacePrefix(t *testing.T) {
	for _, c := range []struct{ path, prefix, replacement, want string }{
		{"/foo/bar", "/foo", "/xyz", "/xyz/bar"},
		{"/foo/bar", "/foo", "/xyz/", "/xyz/bar"},
		{"/foo/bar", "/foo/", "/xyz", "/xyz/bar"},
		{"/foo/bar", "/foo/", "/xyz/", "/xyz/bar"},
		{"/foo", "/foo", "/xyz", "/xyz"},
		{"/foo/", "/foo", "/xyz", "/xyz/"},
		{"/foo/bar", "/foo", "", "/bar"},
		{"/foo/", "/foo", "", "/"},
		{"/foo", "/foo", "", "/"},
		{"/foo/", "/foo", "/", "/"},
		{"/foo", "/foo", "/", "/"},

		{"/bar", "", "/xyz", "/xyz/bar"},
		{"/", "/", "/xyz", "/xyz/"},
		{"/foo/bar", "/foo", "xyz", "/xyz/bar"},
		{"/foobar", "/foo", "/xyz", "/foobar"},
		{"/other", "/foo", "/xyz", "/other"},
		{"/foo//evil.example", "/foo", "/", "/evil.example"},
		{"//evil.example", "/", "/", "/evil.example"},
		{"/foo//bar", "/foo", "/xyz", "/xyz//bar"},
		{"/foo/bar%2Fbaz", "/foo", "/x", "/x/bar%2Fbaz"},
		{"/caf%C3%A9/x", "/café", "/tea", "/tea/x"},
		{"/foo/bar", "/foo", "/a/./b/../c", "/a/c/bar"},
		{"*", "", "/xyz", "/xyz/"},
	} {
		if got := modified(t, modifier(false, c.prefix, c.replacement), c.path); got != c.want {
			t.Errorf("%s, %q for %q: %s, want %s", c.path, c.replacement, c.prefix, got, c.want)
		}
	}
}

func TestReplaceFullPath(t *testing.T) {
	for value, want := range map[string]string{
		"":                "/",
		"/":               "/",
		"/a/b/":           "/a/b/",
		"a":               "/a",
		"/a//b":           "/a//b",
		"/a?b#c":          "/a%3Fb%23c",
		"/a b\r\nX: y":    "/a%20b%0D%0AX:%20y",
		"/%41%2e%2F%7e":   "/A.%2F~",
		"/100%":           "/100%25",
		"/%zz":            "/%25zz",
		"/%c3%a9é":        "/%C3%A9%C3%A9",
		`/a\b`:            "/a%5Cb",
		"/a/.":            "/a/",
		"/a/b/..":         "/a/",
		"/a/%2e%2e/b":     "/b",
		"/..":             "/",
		"/a/../../b":      "/b",
		"/!$&'()*+,;=:@-": "/!$&'()*+,;=:@-",
	} {
		if got := modified(t, modifier(true, "", value), "/x/y"); got != want {
			t.Errorf("%q: %s, want %s", value, got, want)
		}
	}
}

func TestKeep(t *testing.T) {
	m, err := Compile("Test", nil)
	if err != nil || !m.Keeps() || string(m.Append(nil, []byte("/a b"))) != "/a%20b" {
		t.Errorf("%+v, %v", m, err)
	}
}

func TestRefused(t *testing.T) {
	for _, value := range []string{"/a%00b", "/\x00"} {
		for _, c := range []*config.PathModifier{modifier(true, "", value), modifier(false, "/a", value), modifier(false, value, "/a")} {
			if _, err := Compile("Test", c); err == nil {
				t.Errorf("%v is taken", c)
			}
		}
	}
}

// FuzzAppend: the result is a path that can stand in a request line, the configured part
// is normal form, and a second pass of it changes nothing.
func FuzzAppend(f *testing.F) {
	f.Add("/foo/bar", "/foo", "/xyz", false)
	f.Add("/foo/\r\nHost: a", "/foo", "", false)
	f.Add("*", "", "/%2e%2e/%", true)
	f.Add("//a", "/", "/../é", false)
	f.Add("/a", "/a", "/./b/..", false)
	f.Fuzz(func(t *testing.T, path, prefix, value string, fullPath bool) {
		m, err := Compile("Test", modifier(fullPath, prefix, value))
		if err != nil {
			return
		}
		got := string(m.Append(nil, []byte(path)))
		if !strings.HasPrefix(got, "/") || strings.ContainsFunc(got, func(r rune) bool { return r <= ' ' || r >= 0x7f }) {
			t.Fatalf("%q for %q in %q: %q", value, prefix, path, got)
		}
		normal, err := Normal(value)
		if err != nil {
			t.Fatalf("%q was compiled: %v", value, err)
		}
		if again, err := Normal(normal); err != nil || again != normal {
			t.Fatalf("%q, normal %q, again %q, %v", value, normal, again, err)
		}
		for _, segment := range strings.Split(normal, "/") {
			if segment == "." || segment == ".." || strings.ContainsAny(segment, "?#\\") {
				t.Fatalf("%q became %q", value, normal)
			}
		}
		if fullPath && got != normal {
			t.Fatalf("%q became %q, then %q", value, normal, got)
		}
	})
}
