package cli

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
)

// TestCheckOfController checks that the Gateways of other controllers are no problem of the one that is asked, and what is said of other objects.
func TestCheckOfController(t *testing.T) {
	const status = `{"items":[
 {"kind":"GatewayClass","metadata":{"name":"other"},"spec":{"controllerName":"example.com/other"}},
 {"kind":"Gateway","metadata":{"name":"theirs","namespace":"infra"},"spec":{"gatewayClassName":"other"}},
 {"kind":"BackendTLSPolicy","metadata":{"name":"p","namespace":"infra"},"spec":{"targetRefs":[{"group":"","kind":"Service","name":"web"}]}},
 {"kind":"Unheard","metadata":{"name":"of","namespace":"infra"}}%s],"problems":[]}`
	route := `,{"kind":"HTTPRoute","metadata":{"name":"r","namespace":"infra"},"spec":{"parentRefs":[{"name":"thiers"}]}}`
	for _, c := range []struct {
		more string
		code int
		want string
	}{
		{"", exitOK, "0 problems, 4 objects\n"},
		{route, exitProblems, "problem: HTTPRoute infra/r: spec.parentRefs[0].name: there is no Gateway infra/thiers; did you mean theirs?\n1 problem, 5 objects\n"},
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Write([]byte(strings.Replace(status, "%s", c.more, 1)))
		}))
		code, out := run("check", "--admin", strings.TrimPrefix(server.URL, "http://"))
		server.Close()
		if code != c.code || !strings.HasSuffix(out, c.want) {
			t.Errorf("exit code %d, want %d and %q:\n%s", code, c.code, c.want, out)
		}
	}
}

// TestAnotherControllerName checks that the objects of a controller are judged by its own --controller-name.
func TestAnotherControllerName(t *testing.T) {
	const status = `{"controllerName":"example.com/mine","items":[
 {"kind":"GatewayClass","metadata":{"name":"mine"},"spec":{"controllerName":"example.com/mine"}},
 {"kind":"Gateway","metadata":{"name":"web","namespace":"shop"},"spec":{"gatewayClassName":"mine"},
  "status":{"conditions":[{"type":"Accepted","status":"False","reason":"Invalid","message":"it has a fault"}]}}],"problems":[]}`
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Write([]byte(status)) }))
	defer server.Close()
	address := strings.TrimPrefix(server.URL, "http://")
	if code, out := run("check", "--admin", address, "-o", "text"); code != exitProblems || !strings.Contains(out, "it has a fault") {
		t.Errorf("check: exit code %d\n%s", code, out)
	}
	if code, out := run("status", "--admin-address", address); code != exitOK || !strings.Contains(out, "it has a fault") || strings.Contains(out, "managed by controller") {
		t.Errorf("status: exit code %d\n%s", code, out)
	}
	for _, verb := range []string{"check --admin ", "status --admin-address "} {
		var members map[string]any
		_, out := run(append(strings.Fields(verb+address), "-o", "json")...)
		if err := json.Unmarshal([]byte(out), &members); err != nil || len(members) != 2 {
			t.Errorf("%s-o json does not print the members of docs/check.schema.json: %v\n%s", verb, err, out)
		}
	}
}

// TestExplainOfAFile checks that a file where a URL belongs is no URL that cannot be read.
func TestExplainOfAFile(t *testing.T) {
	base := filepath.Join("testdata", "mistakes", "base.yaml")
	for _, args := range [][]string{{base}, {base, "http://www.example.com:8080/"}, {"-f", base, base}} {
		if code, out := run(append([]string{"explain"}, args...)...); code != exitUsage || !strings.Contains(out, base+" is a file: explain takes manifests by -f and then a URL, as in moongate explain -f "+base+" GET http://") {
			t.Errorf("explain %q: exit code %d\n%s", args, code, out)
		}
	}
	if code, out := run("explain", filepath.Dir(base)); code != exitUsage || !strings.Contains(out, filepath.Dir(base)+" is a folder: explain takes manifests by -f") {
		t.Errorf("explain of a folder: exit code %d\n%s", code, out)
	}
}
