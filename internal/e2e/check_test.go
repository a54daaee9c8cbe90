package e2e

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/moongate-dev/moongate/internal/cli"
)

// moongate runs one command line in this process.
func moongate(args ...string) (stdout, stderr string, code int) {
	var out, err bytes.Buffer
	code = cli.Main(args, &out, &err)
	return out.String(), err.String(), code
}

// TestCheckMistakes: every mistake of testdata/mistakes is told with its object, field and remedy.
func TestCheckMistakes(t *testing.T) {
	t.Parallel()
	stdout, stderr, code := moongate("check", "-f", "testdata/mistakes")
	if code != 1 || stderr != "" {
		t.Errorf("exit code %d, stderr %q; want 1 and nothing", code, stderr)
	}
	mistakes := []struct{ file, object, field, remedy string }{
		{"01-protocol", "Gateway default/protocol", "spec.listeners[0].protocol", "use HTTP, HTTPS, TLS, TCP or UDP"},
		{"02-no-secret", "Gateway default/no-secret", "spec.listeners[0].tls.certificateRefs[0].name", "create it"},
		{"03-bad-secret", "Gateway default/bad-secret", "spec.listeners[0].tls.certificateRefs[0].name", "correct the Secret"},
		{"04-foreign-secret", "Gateway default/foreign-secret", "spec.listeners[0].tls.certificateRefs[0].namespace", "add a ReferenceGrant"},
		{"05-protocol-conflict", "Gateway default/protocol-conflict", "spec.listeners[0].protocol", "use another port"},
		{"06-kinds", "Gateway default/kinds", "spec.listeners[0].allowedRoutes.kinds[0].kind", "allow HTTPRoute"},
		{"07-address", "Gateway default/address", "spec.addresses[0].type", "use type IPAddress"},
		{"08-port", "Gateway default/port", "spec.listeners[0].port", "use a number"},
		{"09-section", "HTTPRoute default/section", "spec.parentRefs[0].sectionName", "did you mean http?"},
		{"10-hostname", "HTTPRoute default/hostname", "spec.hostnames", "change spec.hostnames"},
		{"11-namespace", "HTTPRoute other/namespace", "spec.parentRefs[0]", "change allowedRoutes"},
		{"12-no-service", "HTTPRoute default/no-service", "spec.rules[0].backendRefs[0].name", "create it"},
		{"13-service-port", "HTTPRoute default/service-port", "spec.rules[0].backendRefs[0].port", "add the port"},
		{"14-no-grant", "HTTPRoute default/no-grant", "spec.rules[0].backendRefs[0].namespace", "add a ReferenceGrant"},
		{"15-backend-kind", "HTTPRoute default/backend-kind", "spec.rules[0].backendRefs[0].kind", "refer to a Service"},
		{"16-regex", "HTTPRoute default/regex", "spec.rules[0].matches[0].path.value", "RE2"},
		{"17-redirect-rewrite", "HTTPRoute default/redirect-rewrite", "spec.rules[0].filters", "keep RequestRedirect or URLRewrite"},
		{"18-extension", "HTTPRoute default/extension", "spec.rules[0].filters[0].extensionRef.kind", "remove the filter"},
		{"19-misspelled", "HTTPRoute default/misspelled", "spec.rules[0].backendRef", `did you mean "backendRefs"?`},
		{"20-type", "HTTPRoute default/type", "spec.rules[0].backendRefs[0].port", "write a number"},
		{"21-duration", "HTTPRoute default/duration", "spec.rules[0].timeouts.request", ";"},
		{"22-duplicate", "HTTPRoute default/good", "is already defined", "remove one of the two"},
		{"23-syntax", "", "23-syntax.yaml:", "check the indentation"},
		{"25-class-only", "Gateway default/class-only", "spec.infrastructure.parametersRef", "remove classOnly"},
		{"26-telemetry", "XTelemetryPolicy default/telemetry", "spec.targetRefs[0].name", "did you mean good?"},
		{"27-external-auth", "HTTPRoute default/external-auth", "spec.rules[0].filters[0].externalAuth.backendRef.name", "create it"},
		{"28-xbackend", "HTTPRoute default/xbackend", "spec.rules[0].backendRefs[0].name", "create it"},
		{"29-external-host", "XBackend default/external-host", "spec: tls", "tls.validation"},
		{"24-no-parameters", "Gateway default/parameters", "spec.infrastructure.parametersRef", "remove parametersRef"},
	}
	lines := strings.Split(stdout, "\n")
	for _, m := range mistakes {
		told := ""
		for _, line := range lines {
			if strings.Contains(line, m.file+".yaml:") && strings.Contains(line, m.object) {
				told = line
				break
			}
		}
		if !strings.Contains(told, m.field) || !strings.Contains(told, m.remedy) {
			t.Errorf("%s: told as %q, want %s, %q, %q", m.file, told, m.object, m.field, m.remedy)
		}
	}
	files, err := filepath.Glob("testdata/mistakes/*.yaml")
	if err != nil || len(files) != len(mistakes)+1 {
		t.Errorf("%d files (%v) for %d mistakes and what is right", len(files), err, len(mistakes))
	}
	if !strings.Contains(lines[len(lines)-2], " problems, ") {
		t.Errorf("the last line %q is no summary", lines[len(lines)-2])
	}
}

// TestCheckExitCodes checks what scripts rely on.
func TestCheckExitCodes(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	garbage := filepath.Join(dir, "garbage.yaml")
	if err := os.WriteFile(garbage, []byte("\tno yaml"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args string
		code int
	}{
		{"check -f testdata/mistakes/00-good.yaml", 0},
		{"check -f testdata/mistakes/00-good.yaml -o yaml", 0},
		{"check -f testdata/mistakes/00-good.yaml -f testdata/mistakes/09-section.yaml", 1},
		{"check -f testdata/mistakes/00-good.yaml -f testdata/mistakes/09-section.yaml -o json", 1},
		{"check -f " + garbage, 2},
		{"check -f " + filepath.Join(dir, "missing"), 2},
		{"check", 2},
		{"check -o xml -f .", 2},
		{"check --no-such-flag", 2},
		{"no-such-verb", 2},
		{"version", 0},
		{"status --admin-address 127.0.0.1:1", 1},
		{"run -f " + filepath.Join(dir, "missing"), 2},
		{"run -f . --bind localhost", 2},
	} {
		_, stderr, code := moongate(strings.Fields(c.args)...)
		if code != c.code {
			t.Errorf("moongate %s: exit code %d, want %d; stderr %q", c.args, code, c.code, stderr)
		}
		if n := strings.Count(stderr, "\n"); n > 1 {
			t.Errorf("moongate %s: %d lines on stderr, want one: %q", c.args, n, stderr)
		}
	}
}

// TestHelp: every verb has help with an example.
func TestHelp(t *testing.T) {
	t.Parallel()
	for _, verb := range []string{"run", "demo", "check", "explain", "status", "version"} {
		stdout, _, code := moongate(verb, "-h")
		if code != 0 || !strings.Contains(stdout, "Examples:\n  moongate "+verb) {
			t.Errorf("moongate %s -h: exit code %d, no example in\n%s", verb, code, stdout)
		}
	}
}

// TestExplain compares decisions with what must be decided.
func TestExplain(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	text := gatewayWith(httpListener("http", 8080, "*.example.com"), "{name: https, protocol: HTTPS, port: 8443, hostname: a.example.com, tls: {certificateRefs: [{name: one}]}}",
		"{name: other, protocol: HTTPS, port: 8443, hostname: b.example.com, tls: {certificateRefs: [{name: one}]}}") +
		secret(t, "default", "one", "a.example.com") + service("default", "web", &backend{port: 9999}) + service("default", "empty") +
		route("r", `  rules:
  - name: rewrite
    matches: [{path: {value: /old}}]
    filters: [{type: URLRewrite, urlRewrite: {path: {type: ReplacePrefixMatch, replacePrefixMatch: /new}}}]
    backendRefs: [{name: web, port: 80, weight: 3}, {name: empty, port: 80, weight: 1}]
  - matches: [{path: {value: /go}}]
    filters: [{type: RequestRedirect, requestRedirect: {scheme: https, port: 8443}}]
  - matches: [{path: {value: /empty}}]
    backendRefs: [{name: empty, port: 80}]
  - matches: [{path: {value: /nothing}}]
  - matches: [{path: {value: /}, headers: [{name: X-A, value: b}]}]
    backendRefs: [{name: web, port: 80}]`)
	path := filepath.Join(dir, "all.yaml")
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args []string
		want []string // parts of the output
	}{
		{[]string{"GET", "http://x.example.com:8080/old/page?q=1"}, []string{"default/gw/http", "rules[0] (rewrite)", "GET /new/page?q=1 with Host x.example.com:8080",
			"75% to Service default/web port 80", "127.0.0.1:9999", "25% to Service default/empty", "503 no_endpoints", "no match   HTTPRoute default/r rules[4]", "all.yaml:"}},
		{[]string{"GET", "http://x.example.com:8080/a/../go"}, []string{"path /go", "302 redirect, Location: https://x.example.com:8443/go"}},
		{[]string{"GET", "http://x.example.com:8080/empty"}, []string{"503 no_endpoints"}},
		{[]string{"GET", "http://x.example.com:8080/nothing"}, []string{"500 no_backend"}},
		{[]string{"GET", "http://x.example.com:8080/other"}, []string{"404 route_not_found", `no header "x-a"`}},
		{[]string{"-H", "X-A: b", "GET", "http://x.example.com:8080/other"}, []string{"100% to Service default/web", "X-A: b"}},
		{[]string{"GET", "http://example.org:8080/"}, []string{"404 route_not_found", "does not fit example.org"}},
		{[]string{"GET", "https://a.example.com:8443/go"}, []string{"default/gw/https", "302 redirect"}},
		{[]string{"-H", "Host: b.example.com", "GET", "https://a.example.com:8443/"}, []string{"421 misdirected", `chosen by server name "a.example.com"`}},
		{[]string{"GET", "https://c.example.com:8443/"}, []string{"the TLS handshake fails"}},
		{[]string{"GET", "http://x.example.com/"}, []string{"nothing listens on port 80", "8080 (default/gw/http)"}},
		{[]string{"GET", "http://a.example.com:8443/"}, []string{"400 http_on_tls_port", "speaks HTTPS"}},
		{[]string{"GET", "http://x.example.com:8080/%00"}, []string{"400 bad_request"}},
	} {
		stdout, stderr, code := moongate(append([]string{"explain", "-f", path}, c.args...)...)
		for _, want := range c.want {
			if code != 0 || !strings.Contains(stdout, want) {
				t.Errorf("%v: exit code %d, no %q in\n%s%s", c.args, code, want, stdout, stderr)
			}
		}
	}
	stdout, _, _ := moongate("explain", "-f", path, "-o", "json", "GET", "http://x.example.com:8080/old")
	var decoded struct {
		Rule     struct{ Route, Position string }
		Backends []struct{ Share string }
	}
	if err := json.Unmarshal([]byte(stdout), &decoded); err != nil || decoded.Rule.Route != "HTTPRoute default/r" ||
		!strings.HasPrefix(decoded.Rule.Position, path+":") || len(decoded.Backends) != 2 {
		t.Errorf("-o json: %v\n%s", err, stdout)
	}
}

// TestCheckDangling: what nobody serves because of a name that leads nowhere is a problem, at the line of that name.
func TestCheckDangling(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "all.yaml")
	const text = `apiVersion: gateway.networking.k8s.io/v1
kind: GatewayClass
metadata: {name: moongate}
spec: {controllerName: moongate.dev/gateway-controller}
---
apiVersion: gateway.networking.k8s.io/v1
kind: GatewayClass
metadata: {name: eg}
spec: {controllerName: gateway.envoyproxy.io/gatewayclass-controller}
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: web}
spec:
  gatewayClassName: moongate
  listeners: [{name: http, protocol: HTTP, port: 8080}]
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: envoy}
spec:
  gatewayClassName: eg
  listeners: [{name: http, protocol: HTTP, port: 8081}]
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: typo}
spec:
  gatewayClassName: moongat
  listeners: [{name: http, protocol: HTTP, port: 8082}]
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: a}
spec:
  parentRefs:
  - name: web
  - name: wbe
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: b, namespace: elsewhere}
spec:
  parentRefs: [{name: web}]
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: c}
spec:
  hostnames: [c.example.com]
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: d}
spec:
  parentRefs: [{name: envoy}]
  rules:
  - backendRefs:
    - name: absent
      port: 80
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: e}
spec:
  useDefaultGateways: All
`
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	noClass := `Gateway default/typo: spec.gatewayClassName: there is no GatewayClass "moongat", so nobody serves this Gateway; did you mean moongate? `
	always := []string{
		":29: " + noClass,
		":38: HTTPRoute default/a: spec.parentRefs[1].name: there is no Gateway default/wbe; did you mean web?",
		":44: HTTPRoute elsewhere/b: spec.parentRefs[0].name: there is no Gateway elsewhere/web; did you mean the one in namespace default? Then write namespace: default",
		":49: HTTPRoute default/c: spec.parentRefs: the route names no parent, so nobody serves it; name a Gateway: ",
		":66: HTTPRoute default/e: spec.useDefaultGateways: there is no Gateway with defaultScope: All, so it has no effect; set spec.defaultScope of a Gateway, or name one: ",
	}
	foreign := ":22: Gateway default/envoy: spec.gatewayClassName: GatewayClass \"eg\" is of controller gateway.envoyproxy.io/gatewayclass-controller, so Moongate does not serve this Gateway; "
	backend := "spec.rules[0].backendRefs[0].name: Service default/absent does not exist"
	for _, c := range []struct {
		args []string
		want []string
		not  string
	}{
		{nil, append([]string{foreign, "6 problems, 10 objects, 4 warnings\n"}, always...), backend},
		{[]string{"--class", "eg"}, append([]string{backend, ":59)", "6 problems, 10 objects, 4 warnings\n"}, always...), foreign},
		{[]string{"--class", "moongat"}, []string{foreign, "Gateway default/typo "}, noClass},
	} {
		stdout, stderr, code := moongate(append([]string{"check", "-f", path}, c.args...)...)
		if code != 1 || strings.Contains(stdout, c.not) {
			t.Errorf("%v: exit code %d\n%s%s", c.args, code, stdout, stderr)
		}
		for _, want := range c.want {
			if !strings.Contains(stdout, want) {
				t.Errorf("%v: no %q in\n%s", c.args, want, stdout)
			}
		}
	}
}
