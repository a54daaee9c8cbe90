package cli

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestRedisNeeded: check and explain say of global rate limits that they need a Redis, unless --redis says that there is one, or GatewayParameters name it.
func TestRedisNeeded(t *testing.T) {
	base, limited := filepath.Join("testdata", "mistakes", "base.yaml"), filepath.Join("testdata", "mistakes", "195-btp-global-limit-no-redis.yaml")
	text, err := os.ReadFile(base)
	if err != nil {
		t.Fatal(err)
	}
	named := filepath.Join(t.TempDir(), "named.yaml")
	withParameters := strings.Replace(string(text), "gateway-controller\n", "gateway-controller\n  parametersRef: {group: moongate.dev, kind: GatewayParameters, namespace: default, name: p}\n", 1) + `
---
apiVersion: moongate.dev/v1alpha1
kind: GatewayParameters
metadata: {name: p, namespace: default}
spec: {classOnly: {rateLimit: {redis: {urlSecretRef: {name: redis, key: url}}}}}
---
apiVersion: v1
kind: Secret
metadata: {name: redis, namespace: default}
stringData: {url: "redis.example:6379"}
`
	if err := os.WriteFile(named, []byte(withParameters), 0o644); err != nil {
		t.Fatal(err)
	}
	policy, err := os.ReadFile(limited)
	if err != nil {
		t.Fatal(err)
	}
	called := filepath.Join(t.TempDir(), "rule.yaml") // as a part of the names of limits
	if err := os.WriteFile(called, []byte(strings.Replace(string(policy), "name: policy", "name: rule", 1)), 0o644); err != nil {
		t.Fatal(err)
	}
	const question, warning, note, answer = "http://shop.example.com:8080/", "warning: ", "\nnote ", "what the backend answers, if its global rate limits have a Redis to count in\n"
	for _, c := range []struct {
		args string
		code int
		says []string // all of them, or the contrary where it is empty
	}{
		{"check " + base + " " + limited, exitOK, []string{warning, "spec.rateLimit.global: it counts in a Redis", "1 warning"}},
		{"check " + base + " " + called, exitOK, []string{warning, "rule.yaml:", "BackendTrafficPolicy default/rule"}},
		{"check --strict " + base + " " + limited, exitProblems, []string{warning}},
		{"check --strict --redis 192.0.2.1:6379 " + base + " " + limited, exitOK, nil},
		{"check --strict " + named + " " + limited, exitOK, nil},
		{"check --redis redis.example " + base, exitUsage, []string{"--redis: it is neither host:port"}},
		{"explain --expect 200 -f " + base + " -f " + limited + " " + question, exitOK, []string{note, "without one every request of the rule is answered 500 policy_invalid", answer}},
		{"explain --redis 192.0.2.1:6379 -f " + base + " -f " + limited + " " + question, exitOK, nil},
		{"explain -f " + named + " -f " + limited + " " + question, exitOK, nil},
	} {
		var out bytes.Buffer
		if code := Main(strings.Fields(c.args), &out, &out); code != c.code {
			t.Errorf("%s: exit code %d, want %d\n%s", c.args, code, c.code, &out)
		}
		for _, says := range c.says {
			if !strings.Contains(out.String(), says) {
				t.Errorf("%s: no %q in\n%s", c.args, says, &out)
			}
		}
		if len(c.says) == 0 && strings.Contains(out.String(), "a Redis") {
			t.Errorf("%s: it says something of Redis:\n%s", c.args, &out)
		}
	}
}

// TestRedisOfACluster: a controller that has accepted a policy with global rate limits has a Redis, so that none of them needs a warning.
func TestRedisOfACluster(t *testing.T) {
	const gateway, policies, core = "/apis/gateway.networking.k8s.io", "/apis/gateway.envoyproxy.io", "/api/v1"
	const target, limits = `"targetRefs":[{"group":"gateway.networking.k8s.io","kind":"HTTPRoute","name":"web"}]`, `"rateLimit":{"global":{"rules":[{"limit":{"requests":2,"unit":"Hour"}}]}}`
	entry := func(controller, status string, generation int) string {
		return fmt.Sprintf(`{"ancestorRef":{"name":"gw"},"controllerName":%q,"conditions":[{"type":"Accepted","status":%q,"reason":"R","message":"","lastTransitionTime":"2026-01-01T00:00:00Z","observedGeneration":%d}]}`, controller, status, generation)
	}
	cluster := func(ancestors ...string) string {
		return kubeconfig(t, clusterWith(t, map[string]string{
			gateway:                        `{"versions":[{"version":"v1"}]}`,
			gateway + "/v1":                `{"resources":[{"name":"gatewayclasses","kind":"GatewayClass","verbs":["list"]},{"name":"gateways","kind":"Gateway","namespaced":true,"verbs":["list"]},{"name":"httproutes","kind":"HTTPRoute","namespaced":true,"verbs":["list"]}]}`,
			policies:                       `{"versions":[{"version":"v1alpha1"}]}`,
			policies + "/v1alpha1":         `{"resources":[{"name":"backendtrafficpolicies","kind":"BackendTrafficPolicy","namespaced":true,"verbs":["list"]}]}`,
			core:                           `{"resources":[{"name":"namespaces","kind":"Namespace","verbs":["list"]},{"name":"services","kind":"Service","namespaced":true,"verbs":["list"]}]}`,
			gateway + "/v1/gatewayclasses": `{"items":[{"metadata":{"name":"moongate"},"spec":{"controllerName":"moongate.dev/gateway-controller"}}]}`,
			gateway + "/v1/gateways":       `{"items":[{"metadata":{"namespace":"shop","name":"gw"},"spec":{"gatewayClassName":"moongate","listeners":[{"name":"http","protocol":"HTTP","port":80}]}}]}`,
			gateway + "/v1/httproutes":     `{"items":[{"metadata":{"namespace":"shop","name":"web"},"spec":{"parentRefs":[{"name":"gw"}],"rules":[{"backendRefs":[{"name":"app","port":80}]}]}}]}`,
			policies + "/v1alpha1/backendtrafficpolicies": `{"items":[{"metadata":{"namespace":"shop","name":"limits","generation":3},"spec":{` + target + `,` + limits + `},"status":{"ancestors":[` + strings.Join(ancestors, ",") + `]}}]}`,
			core + "/namespaces":                          `{"items":[{"metadata":{"name":"shop"}}]}`,
			core + "/services":                            `{"items":[{"metadata":{"namespace":"shop","name":"app"},"spec":{"ports":[{"port":80}],"clusterIP":"10.0.0.1"}}]}`,
		}))
	}
	policy := func(name, spec string) string {
		path := filepath.Join(t.TempDir(), "policy.yaml")
		if err := os.WriteFile(path, []byte(`{"apiVersion":"gateway.envoyproxy.io/v1alpha1","kind":"BackendTrafficPolicy","metadata":{"namespace":"shop","name":"`+name+`"},"spec":{`+spec+`}}`), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	const question = "http://any.test/"
	accepted, refused := cluster(entry("example.com/other", "False", 3), entry(controllerName, "True", 3)), cluster(entry(controllerName, "False", 3))
	for _, c := range []struct {
		name, config, args string
		warns              bool
	}{
		{"accepted", accepted, "check --kube", false},
		{"refused", refused, "check --kube", true},
		{"refused, with the flag", refused, "check --kube --redis 192.0.2.1:6379", false},
		{"no status", cluster(), "check --kube", true},
		{"an earlier generation", cluster(entry(controllerName, "True", 2)), "check --kube", true},
		{"another controller", cluster(entry("example.com/other", "True", 3)), "check --kube", true},
		{"one of two Gateways", cluster(entry(controllerName, "True", 3), entry(controllerName, "False", 3)), "check --kube", true},
		{"applied as it is", accepted, "check --kube " + policy("limits", target+","+limits), false},
		{"applied with another spec", accepted, "check --kube " + policy("limits", target+","+strings.Replace(limits, "2", "3", 1)), true},
		{"one more", accepted, "check --kube " + policy("more", strings.Replace(target, `"HTTPRoute","name":"web"`, `"Gateway","name":"gw"`, 1)+","+limits), false},
		{"explained", accepted, "explain --kube " + question, false},
		{"explained without", refused, "explain --kube " + question, true},
	} {
		t.Setenv("KUBECONFIG", c.config)
		t.Setenv("KUBERNETES_SERVICE_HOST", "")
		if code, out := run(strings.Fields(c.args)...); strings.Contains(out, "a Redis") != c.warns {
			t.Errorf("%s: exit code %d\n%s", c.name, code, out)
		}
	}
}

// TestUnknownRedisIsNotShown: where a Redis may be that nobody names is nothing that a change of manifests brings.
func TestUnknownRedisIsNotShown(t *testing.T) {
	base, limited := filepath.Join("testdata", "mistakes", "base.yaml"), filepath.Join("testdata", "mistakes", "195-btp-global-limit-no-redis.yaml")
	for _, format := range []string{"text", "json"} {
		for _, args := range []string{"-f " + base + " -f " + limited + " --from " + base, "-f " + base + " --from " + base + " --from " + limited} {
			if code, out := run(strings.Fields("diff -o " + format + " " + args)...); code != exitProblems || !strings.Contains(out, "Route HTTPRoute/default/shop") ||
				strings.Contains(out, "unknown.invalid") || strings.Contains(out, "RateLimitService") {
				t.Errorf("%s: exit code %d\n%s", args, code, out)
			}
		}
	}
}
