package cli

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const routeOfRules = `apiVersion: gateway.networking.k8s.io/v1
kind: GatewayClass
metadata: {name: moongate}
spec: {controllerName: moongate.dev/gateway-controller}
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: web}
spec: {gatewayClassName: moongate, listeners: [{name: http, protocol: HTTP, port: 8080}]}
---
apiVersion: v1
kind: Service
metadata: {name: app}
spec: {ports: [{port: 80}]}
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: r}
spec:
  parentRefs: [{name: web}]
  rules:
`

// TestDiffMatchesRules: rules are compared with what they were before, whatever their index.
func TestDiffMatchesRules(t *testing.T) {
	const (
		a       = "  - {matches: [{path: {value: /a}}], backendRefs: [{name: app, port: 80}]}\n"
		b       = "  - {matches: [{path: {value: /b}}], backendRefs: [{name: app, port: 80}]}\n"
		lost    = "  - {matches: [{path: {value: /lost}}], backendRefs: [{name: none, port: 80}]}\n"
		lostToo = "  - {matches: [{path: {value: /too}}], backendRefs: [{name: none, port: 80}]}\n"
		invalid = "  - {matches: [{path: {type: RegularExpression, value: '/('}}], backendRefs: [{name: app, port: 80}]}\n"
		named   = "  - {name: named, matches: [{path: {value: /n}}], backendRefs: [{name: none, port: 80}]}\n"
		renamed = "  - {name: named, matches: [{path: {value: /n2}}], backendRefs: [{name: none, port: 80}]}\n"
	)
	for name, c := range map[string]struct {
		before, after string
		want          []string // the lines that differ, new complaints and the summary; nil if only a summary without complaints counts
	}{
		"a rule before others": {b + lost, a + b + lost, []string{
			"+  - backendRefs:", "+    - backend: Service/default/app/80", "+      weight: 1", "+    matches:", "+    - path:", "+        type: PATH_MATCH_TYPE_PREFIX", "+        value: /a",
			"1 change, 0 new complaints, 0 gone"}},
		"a rule removed": {a + b + lost, b + lost, []string{
			"-  - backendRefs:", "-    - backend: Service/default/app/80", "-      weight: 1", "-    matches:", "-    - path:", "-        type: PATH_MATCH_TYPE_PREFIX", "-        value: /a",
			"1 change, 0 new complaints, 0 gone"}},
		"a rule that is dropped": {a + lost, invalid + a + lost, []string{
			"new: HTTPRoute default/r parent web: PartiallyInvalid=True UnsupportedValue: Dropped Rule 0: spec.rules[0].matches[0].path.value: error parsing regexp: missing closing ): `/(`; write a regular expression in RE2 syntax",
			"0 changes, 1 new complaint, 0 gone"}},
		"two that are dropped": {invalid + a, a + invalid, []string{"0 changes, 0 new complaints, 0 gone"}},
		"a named rule":         {a + named, named + a, nil},
		"a fault of another rule with the index": {lost + a, lostToo + lost + a, []string{
			"+        value: /too", "+  - backendRefs:", "+    - failure:", "+        reason: backend_invalid", "+        status: 500", "+      weight: 1", "+    matches:", "+    - path:", "+        type: PATH_MATCH_TYPE_PREFIX",
			"new: HTTPRoute default/r parent web: ResolvedRefs=False BackendNotFound: spec.rules[0].backendRefs[0].name: Service default/none does not exist; create it or correct the name. spec.rules[1].backendRefs[0].name: Service default/none does not exist; create it or correct the name",
			"1 change, 1 new complaint, 1 gone"}},
		"an edit of a named rule": {named + a, a + renamed, nil},
	} {
		dir := t.TempDir()
		write := func(file, rules string) string {
			path := filepath.Join(dir, file)
			if err := os.WriteFile(path, []byte(routeOfRules+rules), 0o600); err != nil {
				t.Fatal(err)
			}
			return path
		}
		_, out := run("diff", "-f", write("after.yaml", c.after), "--from", write("before.yaml", c.before))
		if c.want == nil {
			if !strings.HasSuffix(out, "1 change, 0 new complaints, 0 gone\n") || strings.Contains(out, "new:") {
				t.Errorf("%s:\n%s", name, out)
			}
			continue
		}
		var got []string
		for line := range strings.Lines(out) {
			line = strings.TrimSuffix(line, "\n")
			if strings.HasPrefix(line, "new: ") || strings.Contains(line, " gone") || (line[0] == '+' || line[0] == '-') && !strings.HasPrefix(line, "+++") && !strings.HasPrefix(line, "---") {
				got = append(got, line)
			}
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: got\n%s\nwant\n%s", name, strings.Join(got, "\n"), strings.Join(c.want, "\n"))
		}
	}
}
