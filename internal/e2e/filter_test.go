package e2e

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// TestFilters checks what filters make of requests and responses.
func TestFilters(t *testing.T) {
	t.Parallel()
	port := freePort(t)
	b := newBackend(t, "b", func(w http.ResponseWriter, r *http.Request) bool {
		w.Header().Set("X-Old", "old")
		w.Header().Set("X-Gone", "gone")
		return false
	})
	rules := ""
	for _, r := range []struct{ path, filter string }{
		{"/request", "{type: RequestHeaderModifier, requestHeaderModifier: {set: [{name: X-Set, value: new}], add: [{name: X-Add, value: second}], remove: [x-remove]}}"},
		{"/response", "{type: ResponseHeaderModifier, responseHeaderModifier: {set: [{name: x-old, value: new}], add: [{name: X-More, value: more}], remove: [X-Gone]}}"},
		{"/full", "{type: URLRewrite, urlRewrite: {hostname: other.example.com, path: {type: ReplaceFullPath, replaceFullPath: /one}}}"},
		{"/prefix", "{type: URLRewrite, urlRewrite: {path: {type: ReplacePrefixMatch, replacePrefixMatch: /new/}}}"},
		{"/strip", "{type: URLRewrite, urlRewrite: {path: {type: ReplacePrefixMatch, replacePrefixMatch: /}}}"},
	} {
		rules += fmt.Sprintf("  - matches: [{path: {value: %s}}]\n    filters: [%s]\n    backendRefs: [{name: b, port: 80}]\n", r.path, r.filter)
	}
	rules += `  - matches: [{path: {value: /ref}}]
    backendRefs: [{name: b, port: 80, filters: [{type: RequestHeaderModifier, requestHeaderModifier: {set: [{name: X-Ref, value: "yes"}]}}]}]
`
	start(t, map[string]string{"all.yaml": gatewayWith(httpListener("http", port, "")) + service("default", "b", b) + route("r", "  rules:\n"+rules)})

	got := ask{url: local(port, "/request"), header: map[string]string{"X-Set": "old", "X-Add": "first", "X-Remove": "x"}}.do(t)
	if h := got.echo.Header; h.Get("X-Set") != "new" || strings.Join(h.Values("X-Add"), ",") != "first,second" || h.Values("X-Remove") != nil {
		t.Errorf("RequestHeaderModifier: %v", h)
	}
	got = ask{url: local(port, "/response")}.do(t)
	if h := got.Header; h.Get("X-Old") != "new" || h.Get("X-More") != "more" || h.Values("X-Gone") != nil {
		t.Errorf("ResponseHeaderModifier: %v", h)
	}
	for path, want := range map[string]string{"/full/x?q=1": "/one?q=1", "/prefix": "/new", "/prefix/a/b?q": "/new/a/b?q", "/strip": "/", "/strip/a": "/a"} {
		if got := (ask{url: local(port, path)}).do(t); got.echo.Path != want {
			t.Errorf("%s reached the backend as %q, want %q", path, got.echo.Path, want)
		}
	}
	if got := (ask{url: local(port, "/full"), host: "example.com"}).do(t); got.echo.Host != "other.example.com" {
		t.Errorf("rewritten host: %q", got.echo.Host)
	}
	if got := (ask{url: local(port, "/ref")}).do(t); got.echo.Header.Get("X-Ref") != "yes" {
		t.Errorf("filter of a backendRef: %v", got.echo.Header)
	}
}

// TestRedirects checks every status code and how Location is put together.
func TestRedirects(t *testing.T) {
	t.Parallel()
	port := freePort(t)
	cases := []struct{ path, filter, location string }{
		{"/301", "scheme: https, hostname: example.org", "https://example.org/301"},
		{"/302", "hostname: example.org", fmt.Sprintf("http://example.org:%d/302", port)},
		{"/303", "scheme: http, port: 8080", "http://example.com:8080/303"},
		{"/307", "port: 80", "http://example.com/307"},
		{"/308", "path: {type: ReplaceFullPath, replaceFullPath: /there}", fmt.Sprintf("http://example.com:%d/there", port)},
		{"/prefix", "path: {type: ReplacePrefixMatch, replacePrefixMatch: /p}", fmt.Sprintf("http://example.com:%d/p/rest?q=1", port)},
	}
	rules := ""
	for _, c := range cases {
		code := ""
		if c.path != "/prefix" {
			code = ", statusCode: " + c.path[1:]
		}
		rules += fmt.Sprintf("  - matches: [{path: {value: %s}}]\n    filters: [{type: RequestRedirect, requestRedirect: {%s%s}}]\n", c.path, c.filter, code)
	}
	start(t, map[string]string{"all.yaml": gatewayWith(httpListener("http", port, "")) + route("r", "  rules:\n"+rules)})
	for _, c := range cases {
		path, want := c.path, http.StatusFound
		if c.path == "/prefix" {
			path += "/rest?q=1"
		} else {
			fmt.Sscanf(c.path, "/%d", &want)
		}
		got := ask{url: local(port, path), host: "example.com"}.do(t)
		if got.StatusCode != want || got.Header.Get("Location") != c.location {
			t.Errorf("%s: %d %q, want %d %q", path, got.StatusCode, got.Header.Get("Location"), want, c.location)
		}
	}
}

// TestForwardedHeaders checks the header policy of docs/defaults.md.
func TestForwardedHeaders(t *testing.T) {
	t.Parallel()
	port := freePort(t)
	start(t, map[string]string{"all.yaml": gatewayWith(httpListener("http", port, "")) + service("default", "b", newBackend(t, "b", nil)) +
		route("r", "  rules: [{backendRefs: [{name: b, port: 80}]}]")})
	got := ask{url: local(port, "/"), host: "example.com", header: map[string]string{
		"X-Forwarded-For": "203.0.113.9", "X-Forwarded-Proto": "https", "X-Forwarded-Host": "evil.example", "X-Forwarded-Port": "1",
		"Forwarded": "for=203.0.113.9", "Via": "1.1 other", "Connection": "X-Hop", "X-Hop": "1", "Keep-Alive": "timeout=5",
	}}.do(t)
	for name, want := range map[string]string{
		"X-Forwarded-For": "127.0.0.1", "X-Forwarded-Proto": "http", "X-Forwarded-Host": "example.com",
		"Forwarded": "", "Via": "1.1 other", "X-Hop": "", "Keep-Alive": "", "X-Forwarded-Port": "",
	} {
		if got := strings.Join(got.echo.Header.Values(name), ","); got != want {
			t.Errorf("the backend sees %s %q, want %q", name, got, want)
		}
	}
	if got.Header.Values("Via") != nil {
		t.Errorf("Via in the response: %q", got.Header.Values("Via"))
	}
}
