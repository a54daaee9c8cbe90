package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// usageManifests serve one route, and have an Ingress beside it.
const usageManifests = `apiVersion: gateway.networking.k8s.io/v1
kind: GatewayClass
metadata: {name: moongate}
spec: {controllerName: moongate.dev/gateway-controller}
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: web}
spec: {gatewayClassName: moongate, listeners: [{name: http, protocol: HTTP, port: 20080}]}
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: r}
spec:
  parentRefs: [{name: web}]
  rules: [{filters: [{type: RequestRedirect, requestRedirect: {hostname: other.test}}]}]
`

const usageIngress = `---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: i}
spec: {rules: [{host: a.test}]}
`

// TestCheckUsage: how check takes its input, what it warns of, and its exit codes.
func TestCheckUsage(t *testing.T) {
	file := filepath.Join(t.TempDir(), "a.yaml")
	if err := os.WriteFile(file, []byte(usageManifests+usageIngress), 0o644); err != nil {
		t.Fatal(err)
	}
	warning := "warning: " + file + ":18: Ingress: ignored: this kind (networking.k8s.io/v1) is not used here, and what it asks for has no effect; moongate migrate translates those of ingress-nginx, else write a Gateway and an HTTPRoute instead\n"
	for _, c := range []struct {
		args string
		code int
	}{{"check " + file, 0}, {"check -f " + file, 0}, {"check --strict " + file, 1}, {"check --strict -f " + file + " -o json", 1}} {
		stdout, stderr, code := moongate(strings.Fields(c.args)...)
		if code != c.code || stderr != "" {
			t.Errorf("%s: exit code %d, %s", c.args, code, stderr)
		}
		if !strings.Contains(c.args, "json") && (!strings.Contains(stdout, warning) || !strings.HasSuffix(stdout, "0 problems, 3 objects, 1 warning\n")) {
			t.Errorf("%s prints\n%s\nwithout\n%s", c.args, stdout, warning)
		}
	}
	if stdout, _, code := moongate("explain", "-f", file, "http://a.test:20080/"); code != 0 || !strings.Contains(stdout, "302") || !strings.Contains(stdout, "Ingress: ignored") {
		t.Errorf("explain, exit code %d:\n%s", code, stdout)
	}
}

// TestCheckWarns: about what is probably not intended, with the line that it is written in.
func TestCheckWarns(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "a.yaml")
	text := strings.Replace(usageManifests, "  rules: [{filters", "  rules:\n  - matches: [{path: {value: /a}}]\n  - matches: [{path: {value: /a}}]\n    filters", 1)
	text = strings.Replace(text, "}}]}]\n", "}}]\n", 1)
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	stdout, stderr, code := moongate("check", file)
	want := "warning: " + file + ":18: HTTPRoute default/r: spec.rules[1].matches[0]: it is the same as spec.rules[0].matches[0], which takes precedence, so it never matches a request; " +
		"remove one of the two, or match more in one of them\n"
	if code != 0 || stderr != "" || !strings.Contains(stdout, want) {
		t.Errorf("exit code %d, %s\n%s\nwithout\n%s", code, stderr, stdout, want)
	}
	if _, _, code := moongate("check", "--strict", file); code != 1 {
		t.Errorf("--strict: exit code %d, want 1", code)
	}
}

// TestStandardInput is not parallel: the standard input is the process's.
func TestStandardInput(t *testing.T) {
	old := os.Stdin
	defer func() { os.Stdin = old }()
	for _, c := range []struct{ args, text, want string }{
		{"check -", usageManifests, "0 problems, 3 objects\n"},
		{"check -f -", usageManifests + "---\nkind: Nothing\n", "problem: <standard input>:18:"},
		{"check -", strings.Replace(usageManifests, "name: web}]", "name: wbe}]", 1), "problem: <standard input>:15: HTTPRoute default/r: spec.parentRefs[0].name: there is no Gateway default/wbe; did you mean web?"},
		{"explain -f - --expect 302 http://a.test:20080/", usageManifests, "other.test"},
	} {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		os.Stdin = r
		go func() {
			w.WriteString(c.text)
			w.Close()
		}()
		if stdout, stderr, _ := moongate(strings.Fields(c.args)...); !strings.Contains(stdout, c.want) {
			t.Errorf("%s prints\n%s%s\nwithout %q", c.args, stdout, stderr, c.want)
		}
		r.Close()
	}
}

func TestVerbs(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{
		"chek":                                  "moongate: there is no verb \"chek\"; did you mean check? See moongate --help\n",
		"xyzzyxyzzy":                            "moongate: there is no verb \"xyzzyxyzzy\"; see moongate --help\n",
		"explain -f x":                          "moongate: explain takes a method and a URL",
		"check":                                 "moongate: no manifests: name a file or folder",
		"explain -f x -H a:b tcp://127.0.0.1:1": "moongate: -H is for requests",
	} {
		if _, stderr, code := moongate(strings.Fields(args)...); code != 2 || !strings.HasPrefix(stderr, want) {
			t.Errorf("moongate %s: exit code %d, %q", args, code, stderr)
		}
	}
	if stdout, _, code := moongate("--version"); code != 0 || !strings.HasPrefix(stdout, "moongate ") {
		t.Errorf("--version: exit code %d, %q", code, stdout)
	}
}
