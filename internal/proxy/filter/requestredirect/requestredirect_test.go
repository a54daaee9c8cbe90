package requestredirect

import (
	"bytes"
	"errors"
	"testing"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/proxy/filter"
	"github.com/moongate-dev/moongate/internal/proxy/filter/filtertest"
	"github.com/moongate-dev/moongate/internal/proxy/message"
)

func compile(t testing.TB, c *config.RequestRedirect) filter.Filter {
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
			Scheme, Hostname string
			Path             *filtertest.Path
			Port             uint32
			StatusCode       uint32 `yaml:"statusCode"`
		}
		filtertest.Decode(t, e, "requestRedirect", &y)
		f := compile(t, &config.RequestRedirect{Scheme: y.Scheme, Hostname: y.Hostname, Path: e.Modifier(y.Path), Port: y.Port, StatusCode: y.StatusCode})
		reply := f.Request(filtertest.Exchange(e.Before))
		filtertest.Same(t, "answer", filtertest.ResponseText(reply.Status, &reply.Header), e.After)
	}
}

func full(path string) *config.PathModifier {
	return &config.PathModifier{Kind: &config.PathModifier_ReplaceFullPath{ReplaceFullPath: path}}
}

func TestLocation(t *testing.T) {
	for _, c := range []struct {
		name     string
		config   *config.RequestRedirect
		scheme   string // of the listener
		port     uint16 // of the listener
		host     string
		target   string
		location string
	}{
		{"nothing but the port's default", &config.RequestRedirect{}, "http", 80, "a.example", "/x", "http://a.example/x"},
		{"listener port", &config.RequestRedirect{}, "http", 8080, "a.example", "/x", "http://a.example:8080/x"},
		{"https listener", &config.RequestRedirect{}, "https", 443, "a.example", "/x", "https://a.example/x"},
		{"https listener elsewhere", &config.RequestRedirect{}, "https", 8443, "a.example", "/x", "https://a.example:8443/x"},
		{"https on port 80", &config.RequestRedirect{}, "https", 80, "a.example", "/x", "https://a.example:80/x"},
		{"the Host's port is not the listener's", &config.RequestRedirect{}, "http", 8080, "a.example:30080", "/x", "http://a.example:8080/x"},
		{"scheme decides the port", &config.RequestRedirect{Scheme: "https"}, "http", 8080, "a.example:8080", "/x", "https://a.example/x"},
		{"same scheme decides the port", &config.RequestRedirect{Scheme: "http"}, "http", 8080, "a.example", "/x", "http://a.example/x"},
		{"scheme and port", &config.RequestRedirect{Scheme: "https", Port: 8443}, "http", 80, "a.example", "/x", "https://a.example:8443/x"},
		{"scheme and its own port", &config.RequestRedirect{Scheme: "https", Port: 443}, "http", 8080, "a.example", "/x", "https://a.example/x"},
		{"scheme and the other's port", &config.RequestRedirect{Scheme: "https", Port: 80}, "http", 80, "a.example", "/x", "https://a.example:80/x"},
		{"port alone", &config.RequestRedirect{Port: 8083}, "http", 80, "a.example", "/x", "http://a.example:8083/x"},
		{"default port alone", &config.RequestRedirect{Port: 80}, "http", 8080, "a.example", "/x", "http://a.example/x"},
		{"443 on http", &config.RequestRedirect{Port: 443}, "http", 8080, "a.example", "/x", "http://a.example:443/x"},
		{"hostname", &config.RequestRedirect{Hostname: "b.example"}, "http", 80, "a.example:80", "/x", "http://b.example/x"},
		{"IPv6 Host", &config.RequestRedirect{}, "http", 8080, "[2001:db8::1]:9", "/x", "http://[2001:db8::1]:8080/x"},
		{"IPv6 Host without port", &config.RequestRedirect{}, "http", 80, "[2001:db8::1]", "/x", "http://[2001:db8::1]/x"},
		{"IPv6 hostname", &config.RequestRedirect{Hostname: "2001:db8::2"}, "http", 8080, "a.example", "/x", "http://[2001:db8::2]:8080/x"},
		{"query", &config.RequestRedirect{}, "http", 80, "a.example", "/x?a=%20b&c=d?e", "http://a.example/x?a=%20b&c=d?e"},
		{"empty query", &config.RequestRedirect{}, "http", 80, "a.example", "/x?", "http://a.example/x?"},
		{"full path", &config.RequestRedirect{Path: full("/new")}, "http", 80, "a.example", "/x/y?q", "http://a.example/new?q"},
		{"prefix", &config.RequestRedirect{Path: filtertest.Prefix("/x", "/new")}, "http", 80, "a.example", "/x/y?q", "http://a.example/new/y?q"},
		{"prefix gone", &config.RequestRedirect{Path: filtertest.Prefix("/x", "/")}, "http", 80, "a.example", "/x//evil.example", "http://a.example/evil.example"},
		{"asterisk", &config.RequestRedirect{}, "http", 80, "a.example", "*", "http://a.example/"},
		{"no Host", &config.RequestRedirect{}, "http", 8080, "", "//evil.example/x?q", "/evil.example/x?q"},
		{"no Host, another path", &config.RequestRedirect{Path: full("/new")}, "https", 443, "", "/x?q", "/new?q"},
		{"no Host, its own scheme and port", &config.RequestRedirect{Scheme: "http", Port: 8080, Path: full("/new")}, "http", 8080, "", "/x?q", "/new?q"},
		{"no Host, a hostname", &config.RequestRedirect{Scheme: "https", Hostname: "b.example"}, "http", 80, "", "/x?q", "https://b.example/x?q"},
	} {
		x := filtertest.Exchange("GET " + c.target + " HTTP/1.1\nHost: " + c.host)
		x.Scheme, x.ListenerPort = c.scheme, c.port
		x.Scratch = append(x.Scratch, "before"...)
		reply := compile(t, c.config).Request(x)
		got, _ := reply.Header.Get("location")
		if string(got) != c.location || reply.Status != 302 || reply.Reason != Reason || reply.Header.Len() != 1 {
			t.Errorf("%s: %d %s, want 302 %s", c.name, reply.Status, got, c.location)
		}
		if !bytes.HasPrefix(x.Scratch, []byte("before")) {
			t.Errorf("%s: scratch memory was overwritten", c.name)
		}
	}
}

// TestNowhere: a client that sends no Host is not sent back to where it is by a redirect to another scheme or port, which a reference without a host cannot name.
func TestNowhere(t *testing.T) {
	for _, c := range []*config.RequestRedirect{{Scheme: "https"}, {Port: 8443}, {Scheme: "http"}, {Scheme: "https", Port: 8080, Path: full("/new")}} {
		for _, host := range []string{"", ":8080"} {
			x := filtertest.Exchange("GET /x HTTP/1.1\nHost: " + host)
			x.Scheme, x.ListenerPort = "http", 8080
			if reply := compile(t, c).Request(x); reply.Status != 0 || reply.Reason != badRequest {
				t.Errorf("%v: %d %s", c, reply.Status, reply.Reason)
			}
		}
	}
}

func TestStatus(t *testing.T) {
	x := filtertest.Exchange("GET / HTTP/1.1\nHost: a")
	for _, status := range []uint32{301, 302, 303, 307, 308} {
		if reply := compile(t, &config.RequestRedirect{StatusCode: status}).Request(x); reply.Status != int(status) || reply.Header.Len() != 1 {
			t.Errorf("%d became %d with %d field lines", status, reply.Status, reply.Header.Len())
		}
	}
}

func TestRefused(t *testing.T) {
	for field, c := range map[string]*config.RequestRedirect{
		"status_code":            {StatusCode: 200},
		"scheme":                 {Scheme: "ftp"},
		"port":                   {Port: 65536},
		"hostname":               {Hostname: "a.example/\r\nX: y"},
		"path.replace_full_path": {Path: full("/%00x")},
	} {
		var e *filter.Error
		if _, err := Compile(c, filter.Env{}); !errors.As(err, &e) || e.Field != field || e.Remedy == "" {
			t.Errorf("%s: %v", field, err)
		}
	}
}

// FuzzLocation: whatever a request holds, the value is one that may stand in a field line.
func FuzzLocation(f *testing.F) {
	f.Add("a.example:80", "/x/y", "a=b", "/x", "/new", true)
	f.Add("[::1]", "/x/\r\nSet-Cookie: a=b", "\r\n", "", "", false)
	f.Add("", "//evil.example", "", "/", "/a?b#c d\n", false)
	f.Fuzz(func(t *testing.T, host, path, query, prefix, replacement string, fullPath bool) {
		if bytes.ContainsFunc([]byte(host), func(r rune) bool { return r <= ' ' || r >= 0x7f }) {
			return // the parser lets no such Host through
		}
		modifier := filtertest.Prefix(prefix, replacement)
		if fullPath {
			modifier = full(replacement)
		}
		filtered, err := Compile(&config.RequestRedirect{Path: modifier}, filter.Env{})
		if err != nil {
			return
		}
		x := filter.Exchange{Scheme: "http", ListenerPort: 8080, Request: &message.Request{Host: []byte(host), Path: []byte(path), Query: []byte(query), HasQuery: true}}
		location, _ := filtered.Request(&x).Header.Get("Location")
		for _, c := range location {
			if c <= ' ' || c >= 0x7f {
				t.Fatalf("%q", location)
			}
		}
		if len(location) > 0 && location[0] != '/' && !bytes.HasPrefix(location, []byte("http://")) || bytes.HasPrefix(location, []byte("//")) {
			t.Fatalf("%q leads elsewhere", location)
		}
	})
}

var plain = &config.RequestRedirect{Scheme: "https", Path: filtertest.Prefix("/shop", "/store"), StatusCode: 301}

const request = "GET /shop/cart?id=7 HTTP/1.1\nHost: www.example.com:8080\n"

func BenchmarkRequest(b *testing.B) {
	f := compile(b, plain)
	x := filtertest.Exchange(request)
	b.ReportAllocs()
	for b.Loop() {
		x.Scratch = x.Scratch[:0]
		f.Request(x)
	}
}

func TestAllocations(t *testing.T) {
	f := compile(t, plain)
	filtertest.AllocatesNothing(t, filtertest.Exchange(request), func(x *filter.Exchange) { f.Request(x) })
}
