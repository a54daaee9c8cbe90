package urlrewrite

import (
	"errors"
	"testing"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/proxy/filter"
	"github.com/moongate-dev/moongate/internal/proxy/filter/filtertest"
)

func compile(t testing.TB, c *config.UrlRewrite) filter.Filter {
	t.Helper()
	f, err := Compile(c, filter.Env{})
	if err != nil {
		t.Fatal(err)
	}
	if f.Response != nil || f.Mirror != nil {
		t.Fatal("more than the request is filtered")
	}
	return f
}

func TestREADME(t *testing.T) {
	for _, e := range filtertest.Examples(t) {
		var y struct {
			Hostname string
			Path     *filtertest.Path
		}
		filtertest.Decode(t, e, "urlRewrite", &y)
		f := compile(t, &config.UrlRewrite{Hostname: y.Hostname, Path: e.Modifier(y.Path)})
		x := filtertest.Exchange(e.Before)
		if f.Request(x) != nil {
			t.Error("a rewrite replied")
		}
		filtertest.Same(t, "forwarded", filtertest.Request(x), e.After)
	}
}

func TestRewrite(t *testing.T) {
	full := &config.PathModifier{Kind: &config.PathModifier_ReplaceFullPath{ReplaceFullPath: "/a b?c"}}
	for _, c := range []struct {
		name          string
		config        *config.UrlRewrite
		before, after string
	}{
		{"nothing", &config.UrlRewrite{}, "GET /a?b HTTP/1.1\nHost: h:8080", "GET /a?b HTTP/1.1\nHost: h:8080"},
		{"hostname drops the port", &config.UrlRewrite{Hostname: "b.example"}, "GET /a HTTP/1.1\nHost: h:8080", "GET /a HTTP/1.1\nHost: b.example"},
		{"full path keeps the query", &config.UrlRewrite{Path: full}, "GET /x?y HTTP/1.1\nHost: h", "GET /a%20b%3Fc?y HTTP/1.1\nHost: h"},
		{"asterisk stays", &config.UrlRewrite{Path: full, Hostname: "b"}, "OPTIONS * HTTP/1.1\nHost: h", "OPTIONS * HTTP/1.1\nHost: b"},
	} {
		x := filtertest.Exchange(c.before)
		compile(t, c.config).Request(x)
		filtertest.Same(t, c.name, filtertest.Request(x), c.after)
	}
}

// TestRuleThenBackendRef: two rewrites follow each other in one scratch memory.
func TestRuleThenBackendRef(t *testing.T) {
	x := filtertest.Exchange("GET /a/b/c HTTP/1.1\nHost: h")
	x.Scratch = make([]byte, 0, 64)
	compile(t, &config.UrlRewrite{Path: filtertest.Prefix("/a", "/x")}).Request(x)
	first := x.Request.Path
	compile(t, &config.UrlRewrite{Path: filtertest.Prefix("/x/b", "/longer")}).Request(x)
	if string(first) != "/x/b/c" || string(x.Request.Path) != "/longer/c" {
		t.Errorf("%s, then %s", first, x.Request.Path)
	}
}

func TestRefused(t *testing.T) {
	for field, c := range map[string]*config.UrlRewrite{
		"hostname":                        {Hostname: "a:80"},
		"path.replace_prefix.replacement": {Path: filtertest.Prefix("/a", "/%00")},
		"path.replace_prefix.prefix":      {Path: filtertest.Prefix("/\x00", "/")},
	} {
		var e *filter.Error
		if _, err := Compile(c, filter.Env{}); !errors.As(err, &e) || e.Field != field || e.Filter != "URLRewrite" {
			t.Errorf("%s: %v", field, err)
		}
	}
}

var plain = &config.UrlRewrite{Hostname: "api.internal", Path: filtertest.Prefix("/api/v1", "/v1")}

const request = "GET /api/v1/users/1234?sort=name HTTP/1.1\nHost: www.example.com"

func BenchmarkRequest(b *testing.B) {
	f := compile(b, plain)
	x := filtertest.Exchange(request)
	path := x.Request.Path
	b.ReportAllocs()
	for b.Loop() {
		x.Scratch, x.Request.Path = x.Scratch[:0], path
		f.Request(x)
	}
}

func TestAllocations(t *testing.T) {
	f := compile(t, plain)
	x := filtertest.Exchange(request)
	path := x.Request.Path
	filtertest.AllocatesNothing(t, x, func(x *filter.Exchange) {
		x.Request.Path = path
		f.Request(x)
	})
}
