package cli

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// checkIn runs check on base.yaml and a route of a misspelt Service, in a folder whose file has a name that needs escaping.
func checkIn(t *testing.T, args ...string) (stdout string, code int) {
	t.Helper()
	dir := t.TempDir()
	base, err := os.ReadFile(filepath.Join("testdata", "mistakes", "base.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	const routes = `apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: shop}
spec:
  parentRefs: [{name: public}]
  rules:
  - backendRefs:
    - {name: wbe, port: 80}
---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: old}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
`
	for name, text := range map[string]string{"base.yaml": string(base), "a, b%.yaml": routes} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(dir)
	var out, errs bytes.Buffer
	code = Main(append([]string{"check", "base.yaml", "a, b%.yaml"}, args...), &out, &errs)
	if errs.Len() > 0 {
		t.Errorf("stderr: %s", &errs)
	}
	return out.String(), code
}

const (
	missing  = "HTTPRoute default/shop: parent public: spec.rules[0].backendRefs[0].name: Service default/wbe does not exist; did you mean web? Else create it"
	unserved = "Ingress: ignored: this kind (networking.k8s.io/v1) is not used here, and what it asks for has no effect; moongate migrate translates those of ingress-nginx, else write a Gateway and an HTTPRoute instead"
	unused   = "Deployment: ignored: this kind (apps/v1) is not used here; nothing needs to be done"
)

func TestCheckText(t *testing.T) {
	got, code := checkIn(t, "-o", "text")
	want := "a, b%.yaml:8: error: " + missing + "\na, b%.yaml:10: warning: " + unserved + "\na, b%.yaml:14: note: " + unused +
		"\n1 problem, 5 objects, 1 warning, 1 kind ignored\n"
	if got != want || code != exitProblems {
		t.Errorf("exit code %d, got\n%s\nwant\n%s", code, got, want)
	}
}

func TestCheckGitHub(t *testing.T) {
	got, code := checkIn(t, "-o", "github")
	want := "::error file=a%2C b%25.yaml,line=8,title=moongate check%3A BackendNotFound::" + missing + "\n" +
		"::warning file=a%2C b%25.yaml,line=10,title=moongate check%3A warning::" + unserved + "\n" +
		"::notice file=a%2C b%25.yaml,line=14,title=moongate check%3A ignored::" + unused + "\n"
	if got != want || code != exitProblems {
		t.Errorf("exit code %d, got\n%s\nwant\n%s", code, got, want)
	}
	var b strings.Builder
	if err := printFaultsGitHub(&b, []fault{{Level: "error", Rule: "problem", Text: "100%\r\nsure: a, b"}}); err != nil {
		t.Fatal(err)
	}
	if want := "::error title=moongate check%3A problem::100%25%0D%0Asure: a, b\n"; b.String() != want {
		t.Errorf("got %q, want %q", b.String(), want)
	}
}

func TestCheckSARIF(t *testing.T) {
	got, code := checkIn(t, "-o", "sarif")
	if code != exitProblems {
		t.Errorf("exit code %d", code)
	}
	var log sarifLog
	strict := json.NewDecoder(strings.NewReader(got))
	strict.DisallowUnknownFields()
	if err := strict.Decode(&log); err != nil {
		t.Fatal(err)
	}
	if log.Version != "2.1.0" || len(log.Runs) != 1 || log.Runs[0].Tool.Driver.Name == "" || len(log.Runs[0].Results) != 3 {
		t.Fatalf("got %s", got)
	}
	run := log.Runs[0]
	for i, want := range []struct {
		level, rule, text string
		line              int
	}{{"error", "BackendNotFound", missing, 8}, {"warning", "warning", unserved, 10}, {"note", "ignored", unused, 14}} {
		r := run.Results[i]
		if r.Level != want.level || r.RuleID != want.rule || r.Message.Text != want.text || len(r.Locations) != 1 {
			t.Errorf("result %d: %+v", i, r)
			continue
		}
		at := r.Locations[0].PhysicalLocation
		if at.ArtifactLocation.URI != "a,%20b%25.yaml" || at.Region == nil || at.Region.StartLine != want.line {
			t.Errorf("result %d is at %+v, %+v", i, at.ArtifactLocation, at.Region)
		}
		if !strings.Contains(got, `"id": "`+want.rule+`"`) {
			t.Errorf("rule %s is not listed", want.rule)
		}
	}
	var empty strings.Builder
	if err := printFaultsSARIF(&empty, nil); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(empty.String(), `"results": []`) {
		t.Errorf("without faults: %s", &empty)
	}
}
