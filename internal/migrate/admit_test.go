package migrate

import (
	"slices"
	"strings"
	"testing"

	"github.com/moongate-dev/moongate/internal/source/manifest"
)

// invalid says what of the output an API server would not accept.
func invalid(out *Output) []string {
	var found []string
	for _, chunk := range manifest.Split(out.YAML()) {
		read := manifest.Decode(chunk.Text)
		for _, p := range read.Problems {
			found = append(found, p.String())
		}
		for _, e := range read.Entries {
			for _, p := range e.Problems {
				found = append(found, p.String())
			}
		}
	}
	return found
}

// beside is an Ingress for a path with annotations, as a YAML flow mapping has them, and one for / of the same host.
func beside(path, annotations string) string {
	return `{apiVersion: networking.k8s.io/v1, kind: Ingress, metadata: {name: guarded, annotations: {nginx.ingress.kubernetes.io/whitelist-source-range: 10.0.0.0/8, ` + annotations + `}},
  spec: {ingressClassName: nginx, rules: [{host: a.test, http: {paths: [{path: "` + path + `", pathType: ImplementationSpecific, backend: {service: {name: secret, port: {number: 80}}}}]}}]}}
---
{apiVersion: networking.k8s.io/v1, kind: Ingress, metadata: {name: site}, spec: {ingressClassName: nginx, rules: [{host: a.test, http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: site, port: {number: 80}}}}]}}]}}
`
}

// entry returns the entries of an Ingress for an annotation or a field.
func entry(out *Output, field string) []Entry {
	return slices.DeleteFunc(slices.Clone(out.Report), func(e Entry) bool { return e.Field != field && e.Field != prefix+field })
}

// TestWhatIsNotAccepted: a value that no field takes leaves the rules of its Ingress without backends, and nothing else. The report says so, and nowhere that it is translated.
func TestWhatIsNotAccepted(t *testing.T) {
	const annotation = "nginx.ingress.kubernetes.io/"
	for _, c := range []struct{ annotations, field string }{
		{annotation + `affinity: cookie, ` + annotation + `session-cookie-name: "a b"`, "session-cookie-name"},
		{annotation + `rewrite-target: /x, ` + annotation + `x-forwarded-prefix: "/é"`, "x-forwarded-prefix"},
		{annotation + `rewrite-target: /x, ` + annotation + `x-forwarded-prefix: "/a  b"`, "x-forwarded-prefix"},
		{annotation + `upstream-vhost: ` + strings.Repeat("a", 254), "upstream-vhost"},
		{annotation + `limit-rps: "99999999999"`, "limit-rps"},
		{annotation + `auth-url: "http://auth.` + strings.Repeat("a", 64) + `.svc/check"`, "auth-url"},
		{annotation + `mirror-target: "http://copies.default.svc:99999$request_uri"`, "mirror-target"},
		{annotation + `permanent-redirect: "https://b.test/` + strings.Repeat("a", 1024) + `"`, "permanent-redirect"},
		{annotation + `rewrite-target: "/` + strings.Repeat("a", 1024) + `"`, "rewrite-target"},
	} {
		out := convert(t, beside("/admin", c.annotations))
		if found := invalid(out); len(found) > 0 {
			t.Errorf("%s: the output is not valid: %v", c.annotations, found)
		}
		if text := string(out.YAML()); strings.Contains(text, "name: secret") || !strings.Contains(text, "/admin") || !strings.Contains(text, "- name: site\n      port: 80\n") || !strings.Contains(text, "would not be accepted: rules without backendRefs answer 500") {
			t.Errorf("%s: the rule must be there without its backend, and that of the other Ingress with it:\n%s", c.annotations, text)
		}
		if e := entry(out, c.field); len(e) == 0 || slices.ContainsFunc(e, func(e Entry) bool { return e.Outcome != NotTranslated }) {
			t.Errorf("%s: the entries are %v", c.annotations, e)
		}
	}
}

// TestRestOfAPolicyIsKept: of a policy that would not be accepted only what is wrong is left out.
func TestRestOfAPolicyIsKept(t *testing.T) {
	text := string(convert(t, beside("/admin", `nginx.ingress.kubernetes.io/limit-rps: "99999999999", nginx.ingress.kubernetes.io/proxy-read-timeout: "7"`)).YAML())
	for _, want := range []string{"value: 10.0.0.0/8\n", "streamIdleTimeout: 7s\n"} {
		if !strings.Contains(text, want) || strings.Contains(text, "Distinct") {
			t.Errorf("the policy must have %q and no limit on rates:\n%s", want, text)
		}
	}
}

// TestLongPath: requests for a path that is too long for a match do not reach a wider path of the host.
func TestLongPath(t *testing.T) {
	long := "/admin/" + strings.Repeat("%41", 400)
	for _, annotations := range []string{"", `nginx.ingress.kubernetes.io/use-regex: "true"`} {
		out := convert(t, beside(long, annotations))
		text := string(out.YAML())
		if found := invalid(out); len(found) > 0 || strings.Contains(text, "name: secret") || !strings.Contains(text, "value: (?i)/admin/%2541%2541") && !strings.Contains(text, "value: (?i)/admin/%41%41") || !strings.Contains(text, "- name: site\n      port: 80\n") {
			t.Errorf("%q: %v in\n%s", annotations, found, text)
		}
		if e := entry(out, "spec.rules[0].http.paths[0]"); !slices.ContainsFunc(e, func(e Entry) bool { return e.Outcome == NotTranslated }) {
			t.Errorf("%q: the entries are %v", annotations, e)
		}
	}
}

// TestAppRootIsNotAccepted: / stays closed, since nginx redirects it.
func TestAppRootIsNotAccepted(t *testing.T) {
	out := convert(t, beside("/admin", `nginx.ingress.kubernetes.io/app-root: "/`+strings.Repeat("a", 1024)+`"`))
	if text := string(out.YAML()); len(invalid(out)) > 0 || !strings.Contains(text, "  - name: rule-2\n    matches:\n    - path:\n        type: Exact\n        value: /\n  ") && !strings.Contains(text, "  - name: rule-1\n    matches:\n    - path:\n        type: Exact\n        value: /\n  - name") || !strings.Contains(text, "name: secret") {
		t.Errorf("%v in\n%s", invalid(out), text)
	}
	if e := entry(out, "app-root"); len(e) != 1 || e[0].Outcome != NotTranslated {
		t.Errorf("the entries are %v", e)
	}
}

// TestRouteIsNotAccepted: where it is not a matter of rules, all paths of the host are closed.
func TestRouteIsNotAccepted(t *testing.T) {
	out := convert(t, strings.Replace(beside("/admin", "x: y"), "name: guarded", "name: Guarded_", 1))
	if text := string(out.YAML()); strings.Contains(text, "backendRefs") && strings.Contains(text, "name: site\n      port") {
		t.Errorf("no rule may have a backend:\n%s", text)
	}
	if e := entry(out, "spec.rules"); !slices.ContainsFunc(e, func(e Entry) bool {
		return e.Outcome == NotTranslated && strings.Contains(e.Message, "all paths of its hosts are answered 500")
	}) {
		t.Errorf("the entries are %v", e)
	}
}

// TestCanaryIsNotAccepted: what is wrong with a canary leaves out the rule for its header, and not the other Ingress.
func TestCanaryIsNotAccepted(t *testing.T) {
	for field, annotations := range map[string]string{
		"canary-by-header-value": `nginx.ingress.kubernetes.io/canary-by-header: X-Canary, nginx.ingress.kubernetes.io/canary-by-header-value: "` + strings.Repeat("a", 4097) + `"`,
		"canary-by-header":       `nginx.ingress.kubernetes.io/canary-by-header: X Canary`,
	} {
		out := convert(t, strings.Replace(beside("/", `nginx.ingress.kubernetes.io/canary: "true", `+annotations), "ImplementationSpecific", "Prefix", 1))
		if text := string(out.YAML()); len(invalid(out)) > 0 || strings.Contains(text, "name: secret") || !strings.Contains(text, "- name: site\n      port: 80\n") {
			t.Errorf("%s: %v in\n%s", field, invalid(out), text)
		}
		if e := entry(out, field); len(e) != 1 || e[0].Outcome != NotTranslated {
			t.Errorf("the entries are %v", e)
		}
	}
}

// TestAuthorizationServers: what the filter cannot say of a server leaves the paths without backends, except what does not matter.
func TestAuthorizationServers(t *testing.T) {
	const server = "http://auth.default.svc.cluster.local"
	many := make([]string, 70)
	for n := range many {
		many[n] = "X-" + itoa(n)
	}
	for _, c := range []struct {
		url, headers string
		closed       bool
		want         string // in the filter
	}{
		{server + "/check", "X-User, X-User,x-user", false, "allowedResponseHeaders:\n          - X-User\n    backendRefs"},
		{server + "/check", "Host, X-User", false, "allowedResponseHeaders:\n          - X-User\n    backendRefs"},
		{server + "/a%25b", "X-User", false, "path: /a%25b\n"},
		{server + "/check", "X-User, X User", true, ""},
		{server + "/check", "Host", true, ""},
		{server + "/check", strings.Join(many, ","), true, ""},
		{server + "/x y", "X-User", true, ""},
		{server + "/chéck", "X-User", true, ""},
		{server + "/a/../b", "X-User", true, ""},
		{server + "/a//b", "X-User", true, ""},
		{server + "/a%2Fb", "X-User", true, ""},
		{server + "/check#x", "X-User", true, ""},
		{server + ":99999/check", "X-User", true, ""},
		{"http://user:secret@auth.default.svc.cluster.local/check", "X-User", true, ""},
	} {
		out := convert(t, beside("/admin", `nginx.ingress.kubernetes.io/auth-url: "`+c.url+`", nginx.ingress.kubernetes.io/auth-response-headers: "`+c.headers+`"`))
		text := string(out.YAML())
		if found := invalid(out); len(found) > 0 || strings.Contains(text, "name: secret") == c.closed || strings.Contains(text, "ExternalAuth") == c.closed || !strings.Contains(text, c.want) {
			t.Errorf("%s with %s: %v in\n%s", c.url, c.headers, found, text)
		}
		if c.closed && !slices.ContainsFunc(append(entry(out, "auth-url"), entry(out, "auth-response-headers")...), func(e Entry) bool {
			return e.Outcome == NotTranslated && strings.Contains(e.Message, "answered 500")
		}) {
			t.Errorf("%s with %s: the report does not say that the paths are closed: %v", c.url, c.headers, out.Report)
		}
	}
}
