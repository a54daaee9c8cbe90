package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestExplainFaults: explain shows what a client would meet where something is wrong, and what of the input it could not use.
func TestExplainFaults(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "all.yaml")
	https := func(name, hostname, secret string) string {
		return "{name: " + name + ", protocol: HTTPS, port: 8443, hostname: " + hostname + ", tls: {certificateRefs: [{name: " + secret + "}]}}"
	}
	text := gatewayWith(httpListener("http", 8080, ""), https("good", "a.example.com", "one"), https("other", "b.example.com", "one"), https("bare", "c.example.com", "missing")) +
		secret(t, "default", "one", "a.example.com") + service("default", "web", &backend{port: 9999}) + service("default", "empty") +
		route("r", "  rules: [{backendRefs: [{name: web, port: 80}]}]") +
		route("half", "  hostnames: [half.example.com]\n  rules: [{timeouts: {request: 10s, backendRequest: 500ms}, backendRefs: [{name: web, port: 80}, {name: empty, port: 80}]}]") +
		strings.Replace(route("typo", "  hostnames: [typo.example.com]\n  rules: [{backendRefs: [{name: web, port: eighty}]}]"), "\n", "", 1) + `
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: inside}
spec: {gatewayClassName: moongate, addresses: [{type: IPAddress, value: 127.0.0.2}], listeners: [{name: http, protocol: HTTP, port: 20081}]}
`
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	const refused = "not used   " // the label
	for _, c := range []struct {
		args []string
		code int
		want []string // parts of the output
		not  string
	}{
		{[]string{"GET", "https://a.example.com:8443/"}, 0,
			[]string{"the certificate of Secret default/one for a.example.com, valid until", "what the backend answers"}, "clients will refuse it"},
		{[]string{"GET", "https://b.example.com:8443/"}, 0, []string{"clients will refuse it: it is not for b.example.com"}, ""},
		{[]string{"GET", "https://c.example.com:8443/"}, 0,
			[]string{"the TLS handshake fails: listener default/gw/bare has no certificate", `Secret default/missing`, "ResolvedRefs=False"}, "what the backend answers"},
		{[]string{"GET", "http://typo.example.com:8080/"}, 0, []string{refused, "HTTPRoute default/typo", "spec.rules[0].backendRefs[0].port"}, ""},
		{[]string{"GET", "http://127.0.0.1:20081/"}, 0, []string{"nothing listens on port 20081 of 127.0.0.1; there is ", "127.0.0.2:20081 (default/inside/http)"}, ""},
		{[]string{"GET", "http://half.example.com:8080/"}, 0, []string{"\nsetting    timeouts.request 10s\nsetting    timeouts.backendRequest 500ms\n"}, ""},
		{[]string{"--expect", "200", "GET", "http://x.example.com:8080/"}, 0, []string{"what the backend answers"}, ""},
		{[]string{"--expect", "200", "GET", "http://half.example.com:8080/"}, 1, []string{"expected 200, but the answer is what the backend answers, except"}, ""},
		{[]string{"--expect", "404", "GET", "http://x.example.com:8080/"}, 1, []string{"expected 404, but the answer is what the backend answers"}, ""},
		{[]string{"--expect", "400", "GET", "http://x.example.com:8080/%00"}, 0, nil, ""},
		{[]string{"--expect", "tls_handshake_failed", "GET", "https://c.example.com:8443/"}, 0, nil, ""},
		{[]string{"--expect", "200", "GET", "https://c.example.com:8443/"}, 1, nil, ""},
	} {
		stdout, stderr, code := moongate(append([]string{"explain", "-f", path}, c.args...)...)
		if code != c.code || c.not != "" && strings.Contains(stdout, c.not) {
			t.Errorf("%v: exit code %d\n%s%s", c.args, code, stdout, stderr)
		}
		for _, want := range c.want {
			if !strings.Contains(stdout+stderr, want) {
				t.Errorf("%v: no %q in\n%s%s", c.args, want, stdout, stderr)
			}
		}
	}
}
