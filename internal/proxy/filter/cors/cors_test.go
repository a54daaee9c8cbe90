package cors

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/observe"
	"github.com/moongate-dev/moongate/internal/proxy/filter"
	"github.com/moongate-dev/moongate/internal/proxy/filter/filtertest"
)

func compile(t testing.TB, c *config.CORS) filter.Filter {
	t.Helper()
	f, err := Compile(c, filter.Env{})
	if err != nil {
		t.Fatal(err)
	}
	if f.Mirror != nil {
		t.Fatal("it mirrors")
	}
	return f
}

const ofBackend = "HTTP/1.1 200\nVary: Accept\nX-Total: 3\nAccess-Control-Allow-Origin: *"

// exchange runs the filter as the engine does, with a backend that answers with response.
func exchange(f filter.Filter, x *filter.Exchange, response string) (status int, text, body string) {
	if reply := f.Request(x); reply != nil {
		x.Response = nil
		filtertest.Response(x, "HTTP/1.1 "+fmt.Sprint(reply.Status))
		for i := range reply.Header.Len() {
			x.Response.Header.Append(*reply.Header.At(i))
		}
		body = string(reply.Body)
	} else {
		filtertest.Response(x, response)
	}
	f.Response(x)
	return x.Response.Status, filtertest.ResponseText(x.Response.Status, &x.Response.Header), body
}

func TestREADME(t *testing.T) {
	for _, e := range filtertest.Examples(t) {
		var y struct {
			AllowOrigins     []string `yaml:"allowOrigins"`
			AllowMethods     []string `yaml:"allowMethods"`
			AllowHeaders     []string `yaml:"allowHeaders"`
			ExposeHeaders    []string `yaml:"exposeHeaders"`
			AllowCredentials bool     `yaml:"allowCredentials"`
			MaxAge           uint32   `yaml:"maxAge"`
		}
		filtertest.Decode(t, e, "cors", &y)
		f := compile(t, &config.CORS{AllowOrigins: y.AllowOrigins, AllowMethods: y.AllowMethods, AllowHeaders: y.AllowHeaders,
			ExposeHeaders: y.ExposeHeaders, AllowCredentials: y.AllowCredentials, MaxAgeSeconds: y.MaxAge})
		_, got, _ := exchange(f, filtertest.Exchange(e.Before), ofBackend)
		filtertest.Same(t, "the client gets", got, e.After)
	}
}

const (
	preflightPUT = "OPTIONS / HTTP/1.1\nHost: h\nOrigin: %s\nAccess-Control-Request-Method: PUT"
	get          = "GET / HTTP/1.1\nHost: h\nOrigin: %s"
)

func TestOrigins(t *testing.T) {
	for _, c := range []struct {
		allowed, origin string
		want            bool
	}{
		{"https://www.example.com", "https://www.example.com", true},
		{"https://www.example.com", "https://WWW.Example.com", true},
		{"https://www.example.com", "https://www.example.com:443", true},
		{"https://www.example.com", "https://www.example.com:8443", false},
		{"https://www.example.com", "http://www.example.com", false},
		{"https://www.example.com", "https://www.example.com.evil", false},
		{"https://www.example.com", "https://evil.www.example.com", false},
		{"https://www.example.com:443", "https://www.example.com", true},
		{"http://www.example.com:8080", "http://www.example.com:8080", true},
		{"http://www.example.com:8080", "http://www.example.com", false},
		{"https://*.example.com", "https://a.example.com", true},
		{"https://*.example.com", "https://a.b.example.com", true},
		{"https://*.example.com", "https://example.com", false},
		{"https://*.example.com", "https://.example.com", false},
		{"https://*.example.com", "https://aexample.com", false},
		{"https://*.example.com", "https://a.example.com:8443", false},
		{"https://*.example.com", "https://evil.com/.example.com", false},
		{"https://*.example.com", "https://evil.com#.example.com", false},
		{"https://*.example.com", "https://u@a.example.com", false},
		{"https://*.example.com:8443", "https://a.example.com:8443", true},
		{"https://*", "https://anything.test", true},
		{"https://*", "https://[::1]", true},
		{"https://*", "https://[::1]:443", true},
		{"https://*", "http://anything.test", false},
		{"https://*", "null", false},
		{"https://*", "https://", false},
		{"https://*", "https://a:", false},
		{"https://*", "https://a:0443", true},
		{"https://*", "https://a:99999", false},
		{"https://*", "ftp://a", false},
		{"*", "https://anything.test:1", true},
		{"*", "null", true},
		{"", "https://www.example.com", false},
	} {
		config := &config.CORS{AllowCredentials: true, MaxAgeSeconds: 5}
		if c.allowed != "" {
			config.AllowOrigins = []string{"https://other.test", c.allowed}
		}
		for _, request := range []string{preflightPUT, get} {
			f := compile(t, config)
			status, got, body := exchange(f, filtertest.Exchange(fmt.Sprintf(request, c.origin)), ofBackend)
			allowed := strings.Contains(got, "\nAccess-Control-Allow-Origin: "+c.origin+"\n")
			if allowed != c.want || allowed != strings.Contains(got, "\nAccess-Control-Allow-Credentials: true\n") || strings.Contains(got, "Allow-Origin: *") {
				t.Errorf("%s by %q: %v, want %v\n%s", c.origin, c.allowed, allowed, c.want, got)
			}
			wantStatus, wantBody := 200, ""
			if request == preflightPUT {
				if wantStatus = 204; !c.want {
					wantStatus, wantBody = 403, "moongate: 403 preflight_refused\n"
				}
			}
			if status != wantStatus || body != wantBody || strings.Contains(got, "Access-Control-Allow-") != c.want || !strings.Contains(got, "\nVary: Origin") {
				t.Errorf("%s by %q: %s%s", c.origin, c.allowed, got, body)
			}
		}
	}
}

// TestAnswers holds what is sent against the rules for wildcards and credentials.
func TestAnswers(t *testing.T) {
	all := []string{"*"}
	const preflight = "OPTIONS / HTTP/1.1\nHost: h\nOrigin: https://a\nAccess-Control-Request-Method: PUT\n" +
		"Access-Control-Request-Headers: x-a\nAccess-Control-Request-Headers: Authorization"
	for _, c := range []struct {
		name, request string
		config        *config.CORS
		want          string
	}{
		{"nothing but the origin", preflight, &config.CORS{AllowOrigins: []string{"https://a"}},
			"204 Access-Control-Allow-Origin: https://a; Access-Control-Max-Age: 5; VARY"},
		{"all, without credentials", preflight, &config.CORS{AllowOrigins: all, AllowMethods: all, AllowHeaders: all, ExposeHeaders: all},
			"204 Access-Control-Allow-Origin: *; Access-Control-Allow-Methods: PUT; Access-Control-Allow-Headers: x-a; " +
				"Access-Control-Allow-Headers: Authorization; Access-Control-Expose-Headers: *; Access-Control-Max-Age: 5; VARY"},
		{"all, with credentials", preflight, &config.CORS{AllowOrigins: all, AllowMethods: all, AllowHeaders: all, ExposeHeaders: all, AllowCredentials: true},
			"204 Access-Control-Allow-Origin: https://a; Access-Control-Allow-Credentials: true; Access-Control-Allow-Methods: PUT; " +
				"Access-Control-Allow-Headers: x-a; Access-Control-Allow-Headers: Authorization; Access-Control-Max-Age: 5; VARY"},
		{"no headers asked for", fmt.Sprintf(preflightPUT, "https://a"), &config.CORS{AllowOrigins: all, AllowHeaders: all},
			"204 Access-Control-Allow-Origin: *; Access-Control-Max-Age: 5; VARY"},
		{"no headers asked for, some allowed", fmt.Sprintf(preflightPUT, "https://a"), &config.CORS{AllowOrigins: all, AllowHeaders: []string{"X-A"}},
			"204 Access-Control-Allow-Origin: *; Access-Control-Max-Age: 5; VARY"},
		{"some headers allowed, others asked for", preflight, &config.CORS{AllowOrigins: all, AllowHeaders: []string{"X-B", "X-C"}},
			"204 Access-Control-Allow-Origin: *; Access-Control-Allow-Headers: X-B, X-C; Access-Control-Max-Age: 5; VARY"},
		{"OPTIONS that is no preflight", "OPTIONS / HTTP/1.1\nHost: h\nOrigin: https://a", &config.CORS{AllowOrigins: all, AllowMethods: all},
			"200 Vary: Accept; X-Total: 3; Access-Control-Allow-Origin: *"},
		{"OPTIONS without Origin", "OPTIONS / HTTP/1.1\nHost: h\nAccess-Control-Request-Method: PUT", &config.CORS{AllowOrigins: all, AllowMethods: all},
			"200 Vary: Accept; X-Total: 3; Access-Control-Allow-Origin: *"},
		{"all origins are told so", "GET / HTTP/1.1\nHost: h", &config.CORS{AllowOrigins: all, ExposeHeaders: all},
			"200 Vary: Accept; X-Total: 3; Access-Control-Allow-Origin: *; Access-Control-Expose-Headers: *"},
		{"a request with credentials, which are not allowed", fmt.Sprintf(get, "https://a") + "\nCookie: a=b", &config.CORS{AllowOrigins: []string{"https://a"}},
			"200 Vary: Accept; X-Total: 3; Vary: Origin; Access-Control-Allow-Origin: https://a"},
		{"the same, with all origins", fmt.Sprintf(get, "https://a") + "\nCookie: a=b", &config.CORS{AllowOrigins: all},
			"200 Vary: Accept; X-Total: 3; Access-Control-Allow-Origin: *"},
		{"no Origin", "GET / HTTP/1.1\nHost: h", &config.CORS{AllowOrigins: all, AllowCredentials: true},
			"200 Vary: Accept; X-Total: 3; Vary: Origin"},
		{"an Origin that is empty", "GET / HTTP/1.1\nHost: h\nOrigin: ", &config.CORS{AllowOrigins: all, AllowCredentials: true},
			"200 Vary: Accept; X-Total: 3; Vary: Origin"},
		{"null", fmt.Sprintf(get, "null"), &config.CORS{AllowOrigins: all, AllowCredentials: true, ExposeHeaders: []string{"X-A", "x-b"}},
			"200 Vary: Accept; X-Total: 3; Vary: Origin; Access-Control-Allow-Origin: null; Access-Control-Allow-Credentials: true; Access-Control-Expose-Headers: X-A, x-b"},
		{"another origin", fmt.Sprintf(get, "https://b"), &config.CORS{AllowOrigins: []string{"https://a"}, ExposeHeaders: all},
			"200 Vary: Accept; X-Total: 3; Vary: Origin"},
	} {
		c.config.MaxAgeSeconds = 5
		_, got, _ := exchange(compile(t, c.config), filtertest.Exchange(c.request), ofBackend)
		got = strings.ReplaceAll(strings.TrimPrefix(strings.TrimSpace(got), "HTTP/1.1 "), "\n", "; ")
		got = strings.Replace(strings.Replace(got, "; ", " ", 1), "Vary: Origin, Access-Control-Request-Method, Access-Control-Request-Headers", "VARY", 1)
		if got != c.want {
			t.Errorf("%s:\n%s\nwant\n%s", c.name, got, c.want)
		}
	}
}

func TestVary(t *testing.T) {
	f := compile(t, &config.CORS{AllowOrigins: []string{"https://a"}})
	for _, value := range []string{"Origin", "accept, ORIGIN", "accept ,origin , te", "*"} {
		_, got, _ := exchange(f, filtertest.Exchange(fmt.Sprintf(get, "https://a")), "HTTP/1.1 200\nvary: "+value)
		if strings.Count(strings.ToLower(got), "vary") != 1 {
			t.Errorf("%s:\n%s", value, got)
		}
	}
	if _, got, _ := exchange(f, filtertest.Exchange(fmt.Sprintf(get, "https://a")), "HTTP/1.1 200\nVary: Origin-Trial"); !strings.Contains(got, "\nVary: Origin\n") {
		t.Errorf("Origin-Trial:\n%s", got)
	}
}

// TestOtherFilters: the origin that counts is the client's, and an answer of another filter is readable too.
func TestOtherFilters(t *testing.T) {
	f := compile(t, &config.CORS{AllowOrigins: []string{"https://a"}})
	x := filtertest.Exchange(fmt.Sprintf(get, "https://a"))
	f.Request(x)
	x.Request.Header.Remove([]byte("Origin")) // by a later filter
	filtertest.Response(x, ofBackend)
	if f.Response(x); !strings.Contains(filtertest.ResponseText(200, &x.Response.Header), "Allow-Origin: https://a\n") {
		t.Error("the client's origin is forgotten")
	}
	x = filtertest.Exchange(fmt.Sprintf(get, "https://a"))
	filtertest.Response(x, "HTTP/1.1 302\nLocation: /there") // by an earlier one: Request did not run
	if f.Response(x); !strings.Contains(filtertest.ResponseText(302, &x.Response.Header), "Allow-Origin: https://a\n") {
		t.Error("a redirect cannot be followed")
	}
	x = filtertest.Exchange(fmt.Sprintf(preflightPUT, "https://a"))
	filtertest.Response(x, "HTTP/1.1 302\nLocation: /there")
	if f.Response(x); x.Response.Header.Len() != 1 {
		t.Error("a preflight request must not be redirected")
	}
}

func TestReasons(t *testing.T) {
	for _, word := range []string{Reason, ReasonRefused} {
		if _, ok := observe.ReasonByWord(word); !ok {
			t.Errorf("%s is no reason", word)
		}
	}
}

func TestRefused(t *testing.T) {
	for field, c := range map[string]*config.CORS{
		"allow_origins[1]":  {AllowOrigins: []string{"https://a", "a.example"}},
		"allow_origins[0]":  {AllowOrigins: []string{"https://a.*.example"}},
		"allow_methods[0]":  {AllowMethods: []string{"GET\r\nX: y"}},
		"allow_headers[0]":  {AllowHeaders: []string{""}},
		"expose_headers[0]": {ExposeHeaders: []string{"a b"}},
	} {
		var e *filter.Error
		if _, err := Compile(c, filter.Env{}); !errors.As(err, &e) || e.Field != field || e.Remedy == "" {
			t.Errorf("%s: %v", field, err)
		}
	}
}

// FuzzOrigin: an origin that a pattern allows has the pattern's scheme, and ends with its host and port.
func FuzzOrigin(f *testing.F) {
	for _, s := range []string{"https://a.example.com", "https://evil.com/.example.com", "https://a.example.com:443", "https://.example.com", "null", "https://a:1@b.example.com"} {
		f.Add(s)
	}
	compiled, err := Compile(&config.CORS{AllowOrigins: []string{"https://*.example.com"}, AllowCredentials: true}, filter.Env{})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, text string) {
		x := filtertest.Exchange(fmt.Sprintf(get, "x"))
		x.Request.Header.At(0).Value = []byte(text)
		filtertest.Response(x, "HTTP/1.1 200")
		compiled.Request(x)
		compiled.Response(x)
		if _, allowed := x.Response.Header.Get("Access-Control-Allow-Origin"); !allowed {
			return
		}
		lower := strings.ToLower(text)
		rest, https := strings.CutPrefix(lower, "https://")
		host, _, _ := strings.Cut(rest, ":")
		if !https || !strings.HasSuffix(host, ".example.com") || strings.ContainsAny(host, "/?#@\\ ") {
			t.Fatalf("%q is allowed", text)
		}
	})
}

var plain = &config.CORS{AllowOrigins: []string{"https://a", "https://*.example.com:8443"}, AllowMethods: []string{"*"}, AllowHeaders: []string{"*"},
	ExposeHeaders: []string{"*"}, AllowCredentials: true, MaxAgeSeconds: 5}

const request = "GET / HTTP/1.1\nHost: h\nAccept: */*\nOrigin: https://www.example.com:8443"

func run(f filter.Filter, x *filter.Exchange) {
	seed, scratch := x.Seed, x.Scratch[:0]
	req, resp := x.Request, x.Response
	x.Reset()
	x.Seed, x.Scratch, x.Request, x.Response = seed, scratch, req, resp
	f.Request(x)
	f.Response(x)
}

func BenchmarkExchange(b *testing.B) {
	f, x := compile(b, plain), filtertest.Exchange(request)
	filtertest.Response(x, ofBackend)
	b.ReportAllocs()
	for b.Loop() {
		run(f, x)
	}
}

func TestAllocations(t *testing.T) {
	f, x := compile(t, plain), filtertest.Exchange(request)
	filtertest.Response(x, ofBackend)
	filtertest.AllocatesNothing(t, x, func(x *filter.Exchange) { run(f, x) })
	x = filtertest.Exchange(fmt.Sprintf(preflightPUT, "https://a"))
	filtertest.Response(x, ofBackend)
	filtertest.AllocatesNothing(t, x, func(x *filter.Exchange) { run(f, x) })
}
