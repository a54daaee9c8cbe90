package requestheadermodifier

import (
	"errors"
	"testing"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/proxy/filter"
	"github.com/moongate-dev/moongate/internal/proxy/filter/filtertest"
)

func compile(t testing.TB, c *config.RequestHeaderModifier) filter.Filter {
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

func set(name, value string) *config.RequestHeaderModifier {
	return &config.RequestHeaderModifier{Set: []*config.HeaderField{{Name: name, Value: value}}}
}

func TestREADME(t *testing.T) {
	for _, e := range filtertest.Examples(t) {
		var y filtertest.HeaderFields
		filtertest.Decode(t, e, "requestHeaderModifier", &y)
		f := compile(t, &config.RequestHeaderModifier{Set: filtertest.Fields(y.Set), Add: filtertest.Fields(y.Add), Remove: y.Remove})
		x := filtertest.Exchange(e.Before)
		if f.Request(x) != nil {
			t.Error("a modifier replied")
		}
		filtertest.Same(t, "forwarded", filtertest.Request(x), e.After)
	}
}

func TestHost(t *testing.T) {
	const request = "GET / HTTP/1.1\nHost: www.example.com\n"
	for value, want := range map[string]string{
		"app.internal:8080": "app.internal:8080",
		"[2001:db8::1]:80":  "[2001:db8::1]:80",
		"2001:db8::1":       "[2001:db8::1]",
	} {
		x := filtertest.Exchange(request)
		compile(t, set("hOST", value)).Request(x)
		if string(x.Request.Host) != want || x.Request.Header.Len() != 0 {
			t.Errorf("set %q: Host %q, %d field lines", value, x.Request.Host, x.Request.Header.Len())
		}
	}
	x := filtertest.Exchange(request)
	compile(t, &config.RequestHeaderModifier{Add: set("Host", "a").Set, Remove: []string{"host"}}).Request(x)
	filtertest.Same(t, "add and remove of Host", filtertest.Request(x), request)

	for _, value := range []string{"", "a b", "a:0", "a:65536", "a:b", "user@a", "a/b", "[::1", "a..b", "a,b"} {
		var e *filter.Error
		if _, err := Compile(set("Host", value), filter.Env{}); !errors.As(err, &e) || e.Remedy == "" {
			t.Errorf("Host %q: %v", value, err)
		}
	}
}

func BenchmarkRequest(b *testing.B) {
	f := compile(b, set("X-Env", "prod"))
	x := filtertest.Exchange("GET / HTTP/1.1\nHost: a\nX-Env: staging\nAccept: */*\nUser-Agent: b\n")
	b.ReportAllocs()
	for b.Loop() {
		f.Request(x)
	}
}

func TestAllocations(t *testing.T) {
	c := set("X-Env", "prod")
	c.Add = set("X-New", "1").Set
	c.Remove = []string{"x-new"}
	f := compile(t, c)
	x := filtertest.Exchange("GET / HTTP/1.1\nHost: a\nX-Env: staging\nX_Other: 1\n")
	filtertest.AllocatesNothing(t, x, func(x *filter.Exchange) { f.Request(x) })
}
