package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// shopCluster serves a cluster in which Moongate has the Gateway shop/gw, with the older of two routes for /, and a Gateway of another controller.
func shopCluster(t *testing.T, forbidden ...string) string {
	t.Helper()
	const gateway, core = "/apis/gateway.networking.k8s.io", "/api/v1"
	all := `{"items":[]}`
	return kubeconfig(t, clusterWith(t, map[string]string{
		gateway:         `{"versions":[{"version":"v1"}]}`,
		gateway + "/v1": `{"resources":[{"name":"gatewayclasses","kind":"GatewayClass","verbs":["list"]},{"name":"gateways","kind":"Gateway","namespaced":true,"verbs":["list"]},{"name":"httproutes","kind":"HTTPRoute","namespaced":true,"verbs":["list"]}]}`,
		core:            `{"resources":[{"name":"namespaces","kind":"Namespace","verbs":["list"]},{"name":"services","kind":"Service","namespaced":true,"verbs":["list"]},{"name":"secrets","kind":"Secret","namespaced":true,"verbs":["list"]},{"name":"pods","kind":"Pod","namespaced":true,"verbs":["list"]}]}`,
		gateway + "/v1/gatewayclasses": `{"items":[
			{"metadata":{"name":"moongate","uid":"1","managedFields":[{}]},"spec":{"controllerName":"moongate.dev/gateway-controller"}},
			{"metadata":{"name":"other"},"spec":{"controllerName":"example.com/other"}}]}`,
		gateway + "/v1/gateways": `{"items":[{"metadata":{"namespace":"shop","name":"gw","generation":7,"creationTimestamp":"2026-01-01T00:00:00Z"},"spec":{"gatewayClassName":"moongate","listeners":[{"name":"http","protocol":"HTTP","port":8080}]},
			"status":{"conditions":[{"type":"Accepted","status":"False","reason":"Invalid"}]}},
			{"metadata":{"namespace":"shop","name":"theirs"},"spec":{"gatewayClassName":"other","listeners":[{"name":"http","protocol":"HTTP","port":9090}]}}]}`,
		gateway + "/v1/httproutes": `{"items":[
			{"metadata":{"namespace":"shop","name":"z-old","creationTimestamp":"2026-01-01T00:00:00Z"},"spec":{"parentRefs":[{"name":"gw"}],"rules":[{"backendRefs":[{"name":"app","port":80}]}]}},
			{"metadata":{"namespace":"shop","name":"a-new","creationTimestamp":"2026-02-01T00:00:00Z"},"spec":{"parentRefs":[{"name":"gw"}],"rules":[{"backendRefs":[{"name":"app","port":80}]}]}}]}`,
		core + "/namespaces": `{"items":[{"metadata":{"name":"shop"}}]}`,
		core + "/services":   `{"items":[{"metadata":{"namespace":"shop","name":"app"},"spec":{"ports":[{"port":80}],"clusterIP":"10.0.0.1"}}]}`,
		core + "/secrets":    all,
	}, forbidden...))
}

const ofShop = `apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {namespace: shop, name: NAME}
spec: {parentRefs: [{name: gw}], rules: [{matches: [{path: {value: /cart}}], backendRefs: [{name: BACKEND, port: 80}]}]}
`

func manifestOf(t *testing.T, name, backend string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "route.yaml")
	text := strings.NewReplacer("NAME", name, "BACKEND", backend).Replace(ofShop)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestOfACluster: verbs that serve nothing go by the objects of a cluster, with manifests as if applied to it.
func TestOfACluster(t *testing.T) {
	good, cart, broken := shopCluster(t), manifestOf(t, "cart", "app"), manifestOf(t, "cart", "ap")
	later := manifestOf(t, "z-old", "app")
	for _, c := range []struct {
		name, config, args string
		code               int
		want, not          []string
	}{
		{"check all", good, "check --kube", exitOK, []string{"HTTPRoute shop/z-old   ok", "Gateway shop/gw", "managed by controller example.com/other", "0 problems, 8 objects"}, []string{"standard input"}},
		{"check manifests", good, "check --kube " + cart, exitOK, []string{"HTTPRoute shop/cart  ok", "0 problems, 1 object"}, []string{"z-old", "Gateway shop/gw"}},
		{"check a mistake", good, "check --kube " + broken, exitProblems, []string{"route.yaml:4", "Service shop/ap does not exist", "1 problem, 1 object"}, []string{"z-old"}},
		{"check JSON", good, "check --kube -o json " + cart, exitOK, []string{`"name": "cart"`}, []string{"z-old"}},
		{"without Secrets", shopCluster(t, "secrets"), "check --kube", exitProblems, []string{"problem: Secret: cannot be listed, so that none seems to exist: no; ask for the verb list on secrets"}, nil},
		{"diff without Secrets", shopCluster(t, "secrets"), "diff --kube -f " + cart, exitUsage, []string{"problem: Secret: cannot be listed, so that none seems to exist: no; ask for the verb list on secrets\n", "1 change, 0 new"}, nil},
		{"diff without Secrets, JSON", shopCluster(t, "secrets"), "diff --kube -o json -f " + cart, exitUsage, []string{`"problems": [`, "Secret: cannot be listed", `"resources"`}, nil},
		{"explain", good, "explain --kube GET http://any.test:8080/cart", exitOK, []string{"HTTPRoute shop/z-old"}, nil},
		{"explain with a new route", good, "explain --kube -f " + cart + " GET http://any.test:8080/cart", exitOK, []string{"HTTPRoute shop/cart"}, nil},
		{"diff with a new route", good, "diff --kube -f " + cart, exitProblems, []string{"+++ after: Route HTTPRoute/shop/cart", "1 change, 0 new complaints, 0 gone"}, []string{"z-old", "a-new"}},
		{"diff with a mistake", good, "diff --kube -f " + broken, exitProblems, []string{"new: HTTPRoute shop/cart", "Service shop/ap does not exist", "1 new complaint"}, nil},
		{"an edit leaves the age", good, "explain --kube -f " + later + " GET http://any.test:8080/", exitOK, []string{"HTTPRoute shop/a-new"}, nil},
		{"unreachable", good, "diff --kube --context away -f " + cart, exitProblems, []string{"no API server answers"}, nil},
		{"two things to compare with", good, "diff --kube --from x -f " + cart, exitUsage, []string{"from", "kube"}, nil},
		{"nothing to compare with", good, "diff -f " + cart, exitUsage, []string{"give --from or --kube"}, nil},
		{"a flag without a cluster", good, "check --context good " + cart, exitUsage, []string{"add --kube"}, nil},
		{"no manifests", good, "diff --kube", exitUsage, []string{"no manifests"}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Setenv("KUBECONFIG", c.config)
			t.Setenv("KUBERNETES_SERVICE_HOST", "")
			code, out := run(strings.Fields(c.args)...)
			if code != c.code {
				t.Errorf("exit code %d\n%s", code, out)
			}
			for _, want := range c.want {
				if !strings.Contains(out, want) {
					t.Errorf("no %q in\n%s", want, out)
				}
			}
			for _, not := range c.not {
				if strings.Contains(out, not) {
					t.Errorf("%q is in\n%s", not, out)
				}
			}
		})
	}
}

// edgeCluster serves a cluster whose objects have what only an API server writes, and what this build does not know.
func edgeCluster(t *testing.T) string {
	t.Helper()
	const gateway, core = "/apis/gateway.networking.k8s.io", "/api/v1"
	return kubeconfig(t, clusterWith(t, map[string]string{
		gateway:                        `{"versions":[{"version":"v1"}]}`,
		gateway + "/v1":                `{"resources":[{"name":"gatewayclasses","kind":"GatewayClass","verbs":["list"]},{"name":"gateways","kind":"Gateway","namespaced":true,"verbs":["list"]},{"name":"httproutes","kind":"HTTPRoute","namespaced":true,"verbs":["list"]}]}`,
		core:                           `{"resources":[{"name":"namespaces","kind":"Namespace","verbs":["list"]},{"name":"services","kind":"Service","namespaced":true,"verbs":["list"]}]}`,
		gateway + "/v1/gatewayclasses": `{"items":[{"metadata":{"name":"moongate"},"spec":{"controllerName":"moongate.dev/gateway-controller"}}]}`,
		gateway + "/v1/gateways": `{"items":[
			{"metadata":{"namespace":"shop","name":"gw","annotations":{"note":"\u007f\u0085\u009f\ufeff"},"newMeta":1},"spec":{"gatewayClassName":"moongate","new.thing":{"a":1},"listeners":[{"name":"http","protocol":"HTTP","port":80,"novel":[1],
				"allowedRoutes":{"namespaces":{"from":"Selector","selector":{"matchLabels":{"team":"shop"}}}}}]}},
			{"metadata":{"namespace":"blog","name":"gw"},"spec":{"gatewayClassName":"moongate","listeners":[{"name":"http","protocol":"HTTP","port":80}]}}]}`,
		gateway + "/v1/httproutes": `{"items":[
			{"metadata":{"namespace":"shop","name":"bad"},"spec":{"parentRefs":[{"name":"gw"}],"rules":[{"matches":[{"path":{"value":"no/slash"}}]}]}},
			{"metadata":{"namespace":"shop","name":"web"},"spec":{"parentRefs":[{"name":"gw"}],"rules":[{"backendRefs":[{"name":"app","port":80}]}]}}]}`,
		core + "/namespaces": `{"items":[{"metadata":{"name":"shop","labels":{"team":"shop"}}},{"metadata":{"name":"blog"}}]}`,
		core + "/services":   `{"items":[{"metadata":{"namespace":"shop","name":"app"},"spec":{"ports":[{"port":80}],"clusterIP":"10.0.0.1","clusterIPs":["10.0.0.1","fd00::1"],"ipFamilies":["IPv4","IPv6"],"ipFamilyPolicy":"PreferDualStack","novel":true}}]}`,
	}))
}

// TestObjectsOfACluster: objects are read as the cluster has them, and manifests leave what the API server sets.
func TestObjectsOfACluster(t *testing.T) {
	t.Setenv("KUBECONFIG", edgeCluster(t))
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	service := filepath.Join(t.TempDir(), "service.yaml")
	if err := os.WriteFile(service, []byte(`apiVersion: v1
kind: Service
metadata: {namespace: shop, name: app}
spec: {ports: [{port: 80}]}
---
apiVersion: v1
kind: Namespace
metadata: {name: shop, labels: {tier: front}}
`), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, args string
		code       int
		want       []string
		not        []string
	}{
		{"unknown fields, escapes and ports of their own", "check --kube", exitProblems, []string{"Gateway shop/gw", "Gateway blog/gw", "HTTPRoute shop/bad: spec.rules[0].matches[0]", "1 problem,"}, []string{"unknown field", "Conflict", "not valid YAML"}},
		{"nothing of others in a diff", "diff --kube -f " + service, exitOK, []string{"0 changes, 0 new complaints, 0 gone"}, []string{"shop/bad"}},
		{"explain without a Gateway", "explain --kube http://any.test/", exitUsage, []string{"add --gateway with one of blog/gw, shop/gw"}, nil},
		{"explain one", "explain --kube --gateway shop/gw http://any.test/", exitOK, []string{"HTTPRoute shop/web"}, nil},
		{"explain the other", "explain --kube --gateway blog/gw --expect 404 http://any.test/", exitOK, nil, []string{"HTTPRoute shop/web"}},
		{"explain none", "explain --kube --gateway blog/other http://any.test/", exitUsage, []string{"Gateways with listeners: blog/gw, shop/gw"}, nil},
		{"a Gateway of manifests", "explain --gateway shop/gw -f " + service + " http://any.test/", exitUsage, []string{"add --kube"}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			code, out := run(strings.Fields(c.args)...)
			if code != c.code {
				t.Errorf("exit code %d\n%s", code, out)
			}
			for _, want := range c.want {
				if !strings.Contains(out, want) {
					t.Errorf("no %q in\n%s", want, out)
				}
			}
			for _, not := range c.not {
				if strings.Contains(out, not) {
					t.Errorf("%q is in\n%s", not, out)
				}
			}
		})
	}
}

// TestFormerSessions: the session persistence of a cluster's rules is read in the form of versions before v1.7.0, and means the same as
// in the present one.
func TestFormerSessions(t *testing.T) {
	const group = "/apis/gateway.networking.k8s.io"
	const route = `{"metadata":{"namespace":"shop","name":"web"},"spec":{"parentRefs":[{"name":"gw"}],"rules":[{"sessionPersistence":SESSION}]}}`
	answers := map[string]string{
		group: `{"versions":[{"version":"v1"}]}`,
		group + "/v1": `{"resources":[{"name":"gatewayclasses","kind":"GatewayClass","verbs":["list"]},{"name":"gateways","kind":"Gateway","namespaced":true,"verbs":["list"]},
			{"name":"httproutes","kind":"HTTPRoute","namespaced":true,"verbs":["list"]},{"name":"grpcroutes","kind":"GRPCRoute","namespaced":true,"verbs":["list"]}]}`,
		group + "/v1/gatewayclasses": `{"items":[{"metadata":{"name":"moongate"},"spec":{"controllerName":"moongate.dev/gateway-controller"}}]}`,
		group + "/v1/gateways":       `{"items":[{"metadata":{"namespace":"shop","name":"gw"},"spec":{"gatewayClassName":"moongate","listeners":[{"name":"http","protocol":"HTTP","port":80}]}}]}`,
	}
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	for _, c := range []struct{ former, present string }{
		{`{"type":"Cookie","sessionName":"pin"}`, `sessionPersistence: {cookie: {name: pin}}`},
		{`{"sessionName":"pin","absoluteTimeout":"1h","idleTimeout":"5m","cookieConfig":{"lifetimeType":"Permanent"}}`, `sessionPersistence: {absoluteTimeout: 1h, cookie: {name: pin, lifetimeType: Permanent}}`},
		{`{"type":"Cookie"}`, `sessionPersistence: {cookie: {}}`},
		{`{"type":"Header","sessionName":"X-Pin"}`, `sessionPersistence: {type: Header, header: {name: X-Pin}}`},
		{`{"type":"Header"}`, `{}`},
		{`{"cookie":{"name":"pin"}}`, `sessionPersistence: {cookie: {name: pin}}`},
	} {
		list := `{"items":[` + strings.Replace(route, "SESSION", c.former, 1) + `]}`
		answers[group+"/v1/httproutes"], answers[group+"/v1/grpcroutes"] = list, list
		t.Setenv("KUBECONFIG", kubeconfig(t, clusterWith(t, answers)))
		manifest := filepath.Join(t.TempDir(), "routes.yaml")
		var text strings.Builder
		for _, k := range []string{"HTTPRoute", "GRPCRoute"} {
			text.WriteString("apiVersion: gateway.networking.k8s.io/v1\nkind: " + k + "\nmetadata: {namespace: shop, name: web}\nspec:\n  parentRefs: [{name: gw}]\n  rules:\n  - " + c.present + "\n---\n")
		}
		if err := os.WriteFile(manifest, []byte(text.String()), 0o600); err != nil {
			t.Fatal(err)
		}
		if code, out := run("check", "--kube"); code != exitOK {
			t.Errorf("%s: check: exit code %d\n%s", c.former, code, out)
		}
		if code, out := run("explain", "--kube", "GET", "http://any.test/"); code != exitOK || !strings.Contains(out, "HTTPRoute shop/web") {
			t.Errorf("%s: explain: exit code %d\n%s", c.former, code, out)
		}
		if code, out := run("diff", "--kube", "-f", manifest); code != exitOK {
			t.Errorf("%s: diff: exit code %d\n%s", c.former, code, out)
		}
	}
}

// TestSuccessor: what the API server sets stays where a manifest does not set it.
func TestSuccessor(t *testing.T) {
	policy := corev1.IPFamilyPolicyPreferDualStack
	was := corev1.ServiceSpec{ClusterIP: "10.0.0.1", ClusterIPs: []string{"10.0.0.1"}, IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol}, IPFamilyPolicy: &policy, SessionAffinity: corev1.ServiceAffinityClientIP}
	for _, c := range []struct{ now, want corev1.ServiceSpec }{
		{corev1.ServiceSpec{}, corev1.ServiceSpec{ClusterIP: was.ClusterIP, ClusterIPs: was.ClusterIPs, IPFamilies: was.IPFamilies, IPFamilyPolicy: &policy}},
		{corev1.ServiceSpec{ClusterIP: "None"}, corev1.ServiceSpec{ClusterIP: "None", IPFamilies: was.IPFamilies, IPFamilyPolicy: &policy}},
		{corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName}, corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName}},
	} {
		if got := successor(&corev1.Service{Spec: was}, &corev1.Service{Spec: c.now}).(*corev1.Service); !reflect.DeepEqual(got.Spec, c.want) {
			t.Errorf("%+v becomes %+v, want %+v", c.now, got.Spec, c.want)
		}
	}
	labels := func(pairs ...string) *corev1.Namespace {
		n := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{}}}
		for i := 0; i < len(pairs); i += 2 {
			n.Labels[pairs[i]] = pairs[i+1]
		}
		return n
	}
	if got := successor(labels("a", "1", "b", "1"), labels("b", "2")).GetLabels(); !reflect.DeepEqual(got, map[string]string{"a": "1", "b": "2"}) {
		t.Errorf("the labels are %v", got)
	}
}

// TestDiff compares manifests with others.
func TestDiff(t *testing.T) {
	write := func(texts ...string) string {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "all.yaml"), []byte(strings.Join(texts, "---\n")), 0o600); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	const gateway = `apiVersion: gateway.networking.k8s.io/v1
kind: GatewayClass
metadata: {name: moongate}
spec: {controllerName: moongate.dev/gateway-controller}
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {namespace: shop, name: gw}
spec: {gatewayClassName: moongate, listeners: [{name: http, protocol: HTTP, port: 8080}]}
`
	const service = `apiVersion: v1
kind: Service
metadata: {namespace: shop, name: app}
spec: {ports: [{port: 80}]}
`
	route := strings.NewReplacer("NAME", "cart", "BACKEND", "app").Replace(ofShop)
	old := write(gateway, service, route)
	for _, c := range []struct {
		name string
		dir  string
		code int
		want string
	}{
		{"nothing", write(route, "# a comment\n"+service, gateway), exitOK, "0 changes, 0 new complaints, 0 gone\n"},
		{"a path", write(gateway, service, strings.Replace(route, "/cart", "/basket", 1)), exitProblems, "" +
			"--- before: Route HTTPRoute/shop/cart\n+++ after: Route HTTPRoute/shop/cart\n"},
		{"no route", write(gateway, service), exitProblems, "--- before: Route HTTPRoute/shop/cart\n+++ after: Route HTTPRoute/shop/cart\n@@ -1,"},
		{"no Service", write(gateway, route), exitProblems, "new: HTTPRoute shop/cart"},
		{"a Service by another name", write(gateway, strings.Replace(service, "name: app", "name: apps", 1), route), exitProblems, "Service shop/app does not exist; did you mean apps? Else create it"},
	} {
		t.Run(c.name, func(t *testing.T) {
			code, out := run("diff", "-f", c.dir, "--from", old)
			if code != c.code || !strings.Contains(out, c.want) {
				t.Errorf("exit code %d\n%s", code, out)
			}
			code, out = run("diff", "-f", c.dir, "--from", old, "-o", "json")
			var d difference
			if err := json.Unmarshal([]byte(out), &d); err != nil || code != c.code || (len(d.Resources)+len(d.Objects) > 0) != (code == exitProblems) {
				t.Errorf("exit code %d, %v\n%s", code, err, out)
			}
		})
	}
	code, out := run("diff", "-f", write(gateway, strings.Replace(service, "name: app", "name: apps", 1), route), "--from", write(gateway, route)) // what is suggested is no complaint of its own
	if strings.Contains(out, "new:") || strings.Contains(out, "no longer:") {
		t.Errorf("an old complaint with a suggestion is called a new one: exit code %d\n%s", code, out)
	}
	code, out = run("diff", "-f", old, "--from", write(gateway, route))
	if code != exitProblems || !strings.Contains(out, "no longer: HTTPRoute shop/cart") || !strings.Contains(out, "3 changes, 1 new complaint, 1 gone") {
		t.Errorf("a mended mistake: exit code %d\n%s", code, out)
	}
}

// TestDiffNamesFiles: what cannot be compared is shown with its file, once.
func TestDiffNamesFiles(t *testing.T) {
	base, dir := filepath.Join("testdata", "mistakes", "base.yaml"), t.TempDir()
	loop, garbage := filepath.Join(dir, "loop.yaml"), filepath.Join(dir, "garbage.yaml")
	if err := os.Symlink("loop.yaml", loop); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(garbage, []byte("\tno yaml"), 0o600); err != nil {
		t.Fatal(err)
	}
	code, out := run("diff", "-f", base, "-f", dir, "--from", base)
	if code != exitUsage || !strings.Contains(out, "problem: "+loop+": cannot be read") || !strings.Contains(out, "new: problem: "+garbage+":1: ") || strings.Count(out, loop) != 1 {
		t.Errorf("on one side: exit code %d\n%s", code, out)
	}
	code, out = run("diff", "-f", base, "-f", dir, "--from", base, "--from", dir)
	if code != exitUsage || strings.Count(out, loop) != 1 || strings.Contains(out, garbage) || !strings.Contains(out, "0 changes, 0 new complaints, 0 gone") {
		t.Errorf("on both sides: exit code %d\n%s", code, out)
	}
}

// TestTaskReviewAChange runs what the page docs/tasks/review-a-change.md shows.
func TestTaskReviewAChange(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "tasks", "review-a-change.md"))
	if err != nil {
		t.Fatal(err)
	}
	hello, err := os.ReadFile(filepath.Join("..", "..", "examples", "hello.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(t.TempDir())
	for dir, port := range map[string]string{"old": "8080", "new": "8081"} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "hello.yaml"), []byte(strings.Replace(string(hello), "port: 8080", "port: "+port, 1)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	commands := 0
	for line := range strings.Lines(string(page)) {
		line = strings.TrimSpace(line)
		args, ok := strings.CutPrefix(line, "moongate ")
		if !ok || strings.Contains(line, "--kube") { // see TestOfACluster
			continue
		}
		commands++
		code, out := run(strings.Fields(args)...)
		want := exitOK
		if strings.HasPrefix(args, "diff") {
			want = exitProblems
			_, block, _ := strings.Cut(string(page), "```diff\n")
			block, _, _ = strings.Cut(block, "```")
			for line := range strings.Lines(block) {
				if !strings.HasPrefix(line, "@@") && !strings.Contains(out, line) {
					t.Errorf("%s does not print %q:\n%s", line, line, out)
				}
			}
		}
		if code != want {
			t.Errorf("%s: exit code %d\n%s", line, code, out)
		}
	}
	if commands != 3 {
		t.Errorf("%d commands were run", commands)
	}
}
