package cli

import (
	"strings"
	"testing"
)

// TestMergedGatewaysOfACluster: of a cluster's objects check says which listener loses to another Gateway of its class, and explain decides by the listeners of all of them.
func TestMergedGatewaysOfACluster(t *testing.T) {
	const gateway, ours, core = "/apis/gateway.networking.k8s.io", "/apis/moongate.dev", "/api/v1"
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	t.Setenv("KUBECONFIG", kubeconfig(t, clusterWith(t, map[string]string{
		gateway:            `{"versions":[{"version":"v1"}]}`,
		gateway + "/v1":    `{"resources":[{"name":"gatewayclasses","kind":"GatewayClass","verbs":["list"]},{"name":"gateways","kind":"Gateway","namespaced":true,"verbs":["list"]},{"name":"httproutes","kind":"HTTPRoute","namespaced":true,"verbs":["list"]}]}`,
		ours:               `{"versions":[{"version":"v1alpha1"}]}`,
		ours + "/v1alpha1": `{"resources":[{"name":"gatewayparameters","kind":"GatewayParameters","namespaced":true,"verbs":["list"]}]}`,
		core:               `{"resources":[{"name":"namespaces","kind":"Namespace","verbs":["list"]}]}`,
		gateway + "/v1/gatewayclasses": `{"items":[{"metadata":{"name":"shared"},"spec":{"controllerName":"moongate.dev/gateway-controller",
			"parametersRef":{"group":"moongate.dev","kind":"GatewayParameters","namespace":"infra","name":"shared"}}}]}`,
		ours + "/v1alpha1/gatewayparameters": `{"items":[{"metadata":{"namespace":"infra","name":"shared"},"spec":{"classOnly":{"mergeGateways":true}}}]}`,
		gateway + "/v1/gateways": `{"items":[
			{"metadata":{"namespace":"shop","name":"old","creationTimestamp":"2026-01-01T00:00:00Z"},"spec":{"gatewayClassName":"shared","listeners":[{"name":"http","protocol":"HTTP","port":80,"hostname":"shop.test"}]}},
			{"metadata":{"namespace":"blog","name":"new","creationTimestamp":"2026-01-02T00:00:00Z"},"spec":{"gatewayClassName":"shared","listeners":[
				{"name":"taken","protocol":"HTTP","port":80,"hostname":"shop.test"},{"name":"free","protocol":"HTTP","port":80,"hostname":"blog.test"}]}}]}`,
		gateway + "/v1/httproutes": `{"items":[
			{"metadata":{"namespace":"shop","name":"shop"},"spec":{"parentRefs":[{"name":"old"}],"rules":[{"filters":[{"type":"RequestRedirect","requestRedirect":{"scheme":"https"}}]}]}},
			{"metadata":{"namespace":"blog","name":"blog"},"spec":{"parentRefs":[{"name":"new"}],"rules":[{"filters":[{"type":"RequestRedirect","requestRedirect":{"scheme":"https"}}]}]}}]}`,
		core + "/namespaces": `{"items":[{"metadata":{"name":"shop"}},{"metadata":{"name":"blog"}},{"metadata":{"name":"infra"}}]}`,
	})))
	for _, c := range []struct {
		args string
		code int
		want string
	}{
		{"check --kube", exitProblems, `hostname "shop.test" on port 80 is the same as that of a listener of a Gateway of another namespace, which is older`},
		{"explain --kube http://shop.test/", exitOK, "HTTPRoute shop/shop"},
		{"explain --kube http://blog.test/", exitOK, "HTTPRoute blog/blog"},
		{"explain --kube --gateway shop/old http://blog.test/", exitOK, "HTTPRoute blog/blog"},
	} {
		if code, out := run(strings.Fields(c.args)...); code != c.code || !strings.Contains(out, c.want) {
			t.Errorf("%s: exit code %d, want %d and %q:\n%s", c.args, code, c.code, c.want, out)
		}
	}
}
