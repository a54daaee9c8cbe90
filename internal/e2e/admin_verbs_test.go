package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/moongate-dev/moongate/internal/testkit"
)

// TestVerbsOfRunningGateway asks a running gateway by check and explain, and compares with what they say of its manifests.
func TestVerbsOfRunningGateway(t *testing.T) {
	t.Parallel()
	port := freePort(t)
	good := strings.Split(strings.Replace(usageManifests, "port: 20080", fmt.Sprintf("port: %d", port), 1), "apiVersion: gateway.networking.k8s.io/v1\nkind: HTTPRoute")[0] + service("default", "app", newBackend(t, "app", nil)) + `
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: app}
spec:
  parentRefs: [{name: web}]
  rules: [{backendRefs: [{name: app, port: 80}]}]
`
	g := start(t, map[string]string{"a.yaml": good})
	g.waitCondition("HTTPRoute", "app", "Accepted=True/Accepted")
	url := fmt.Sprintf("http://127.0.0.1:%d/", port)

	if stdout, stderr, code := moongate("check", "--admin", g.admin); code != 0 || !strings.Contains(stdout, "HTTPRoute default/app") || !strings.HasSuffix(stdout, "0 problems, 3 objects\n") {
		t.Errorf("check: exit code %d\n%s%s", code, stdout, stderr)
	}
	for _, args := range [][]string{{url}, {"GET", url}, {"POST", url + "x?y=z"}, {"tcp://127.0.0.1:1"}} {
		running, stderr, code := moongate(append([]string{"explain", "--admin", g.admin}, args...)...)
		files, _, _ := moongate(append([]string{"explain", "-f", g.dir}, args...)...)
		if running != files || code != 0 || strings.HasPrefix(args[len(args)-1], "http") && !strings.Contains(running, "a.yaml:") {
			t.Errorf("explain %v: exit code %d %s\n%s\nof the manifests:\n%s", args, code, stderr, running, files)
		}
	}
	if _, stderr, code := moongate("explain", "--admin", g.admin, "--expect", "404", url); code != 1 || !strings.Contains(stderr, "expected 404") {
		t.Errorf("explain --expect: exit code %d, %s", code, stderr)
	}
	var steps struct{ Answer struct{ Reason string } }
	if stdout, _, code := moongate("explain", "--admin", g.admin, "-o", "json", url); code != 0 || json.Unmarshal([]byte(stdout), &steps) != nil || steps.Answer.Reason != "ok" {
		t.Errorf("explain -o json: exit code %d\n%s", code, stdout)
	}

	g.write("b.yaml", `apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: typo}
spec:
  parentRefs: [{name: wbe}]
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: section}
spec:
  parentRefs: [{name: web, sectionName: https}]
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: refused}
spec: {rule: []}
`)
	g.waitCondition("HTTPRoute", "section", "Accepted=False/NoMatchingParent")
	g.write("c.yaml", strings.Replace(route("backend", "  rules: [{backendRefs: [{name: ap, port: 80}]}]"), "name: gw", "name: web", 1))
	g.waitCondition("HTTPRoute", "backend", "ResolvedRefs=False/BackendNotFound")
	for _, verb := range []string{"status --admin-address", "check --admin"} {
		if stdout, _, _ := moongate(append(strings.Fields(verb), g.admin)...); !strings.Contains(stdout, "Service default/ap does not exist; did you mean app? Else create it") {
			t.Errorf("%s does not name the Service that was meant:\n%s", verb, stdout)
		}
	}
	g.write("c.yaml", "")
	testkit.Eventually(t, "the route is gone", func() bool {
		stdout, _, _ := moongate("status", "--admin-address", g.admin)
		return !strings.Contains(stdout, "backend")
	})
	stdout, stderr, code := moongate("check", "--admin", g.admin)
	if code != 1 || !strings.HasSuffix(stdout, "3 problems, 5 objects\n") {
		t.Errorf("check: exit code %d\n%s%s", code, stdout, stderr)
	}
	for _, want := range []string{`has no listener named "https"; did you mean http?`, "HTTPRoute default/typo: spec.parentRefs[0].name: there is no Gateway default/wbe; did you mean web?",
		"b.yaml:16: HTTPRoute default/refused: spec.rule: unknown field"} {
		if !strings.Contains(stdout, want) {
			t.Errorf("check says nothing of %q:\n%s", want, stdout)
		}
	}

	for _, c := range []struct {
		args string
		code int
		want string
	}{
		{"check --admin 127.0.0.1:1", 1, "no gateway answers at 127.0.0.1:1"},
		{"explain --admin 127.0.0.1:1 " + url, 1, "no gateway answers at 127.0.0.1:1"},
		{"check --admin http://127.0.0.1:1", 2, "it is a URL"},
		{"check --admin 127.0.0.1:1 a.yaml", 2, "leave out a.yaml"},
		{"check --admin 127.0.0.1:1 -f a.yaml", 2, "filename"},
		{"check --admin 127.0.0.1:1 --kube", 2, "kube"},
		{"explain --admin " + g.admin + " --zone a " + url, 2, "--zone"},
		{"explain --admin " + g.admin + " ftp://127.0.0.1/", 2, "ftp"},
	} {
		if _, stderr, code := moongate(strings.Fields(c.args)...); code != c.code || !strings.Contains(stderr, c.want) || strings.Count(stderr, "\n") != 1 {
			t.Errorf("%s: exit code %d, %s", c.args, code, stderr)
		}
	}
}

// TestStatusWatchOfRunningGateway follows an edit by status --watch, which ends with exit code 0 at an interrupt.
func TestStatusWatchOfRunningGateway(t *testing.T) {
	t.Parallel()
	route := strings.SplitAfter(strings.Replace(usageManifests, "port: 20080", fmt.Sprintf("port: %d", freePort(t)), 1), "---\n")
	g := start(t, map[string]string{"a.yaml": strings.Join(route[:2], "")})
	p := &process{Cmd: command("status", "httproute", "--watch", "--admin-address", g.admin), t: t, stdout: &testkit.Log{}, stderr: &testkit.Log{}, exit: make(chan error, 1)}
	p.Stdout, p.Stderr = p.stdout, p.stderr
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { p.exit <- p.Wait() }()
	t.Cleanup(func() { p.Process.Kill() }) // fails where it has ended
	testkit.Eventually(t, "the empty table is printed", func() bool { return strings.Contains(p.stdout.String(), "OBJECT") })
	g.write("b.yaml", route[2])
	testkit.Eventually(t, "the new route is printed", func() bool { return strings.Contains(p.stdout.String(), "HTTPRoute default/r  ok") })
	g.remove("b.yaml")
	testkit.Eventually(t, "the route is gone", func() bool { return strings.Contains(p.stdout.String(), "HTTPRoute default/r is gone") })
	if strings.Contains(p.stdout.String(), "Gateway default/web") {
		t.Errorf("what was not asked for is printed:\n%s", p.stdout)
	}
	p.signal(os.Interrupt)
	p.waitExit(patience, 0)
}
