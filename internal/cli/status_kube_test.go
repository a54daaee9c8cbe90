package cli

import (
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// clusterOf serves a Gateway API of classes, Gateways and routes; forbidden are ends of paths that answer 403,
// and "no leader" has the controller's Lease be old. Another installation in the cluster has a leader in any case.
func clusterOf(t *testing.T, forbidden ...string) *httptest.Server {
	t.Helper()
	const group = "/apis/gateway.networking.k8s.io"
	now := time.Now().UTC().Format(time.RFC3339Nano)
	renewed := now
	if slices.Contains(forbidden, "no leader") {
		renewed = "2026-01-02T03:04:05.000000Z"
	}
	answers := map[string]string{
		group:         `{"versions":[{"version":"v1"}]}`,
		group + "/v1": `{"resources":[{"name":"gatewayclasses","kind":"GatewayClass","verbs":["list"]},{"name":"gateways","kind":"Gateway","namespaced":true,"verbs":["list"]},{"name":"httproutes","kind":"HTTPRoute","namespaced":true,"verbs":["list"]}]}`,
		group + "/v1/gatewayclasses": `{"items":[
			{"metadata":{"name":"moongate"},"spec":{"controllerName":"moongate.dev/gateway-controller"},"status":{"conditions":[{"type":"Accepted","status":"True","reason":"Accepted"}]}},
			{"metadata":{"name":"other"},"spec":{"controllerName":"example.com/other"}}]}`,
		group + "/v1/gateways": `{"items":[{"metadata":{"namespace":"shop","name":"gw"},"spec":{"gatewayClassName":"moongate"},"status":{"conditions":[
			{"type":"Accepted","status":"True","reason":"Accepted"},{"type":"Programmed","status":"False","reason":"Pending","message":"no proxy is ready"}]}}]}`,
		group + "/v1/httproutes": `{"items":[]}`,
		"/apis/coordination.k8s.io/v1/leases": `{"items":[
			{"metadata":{"namespace":"moongate-system","name":"moongate-controller","annotations":{"moongate.dev/controller":"moongate.dev/gateway-controller"}},"spec":{"renewTime":"` + renewed + `"}},
			{"metadata":{"namespace":"second-system","name":"moongate-controller","annotations":{"moongate.dev/controller":"example.org/second"}},"spec":{"renewTime":"` + now + `"}}]}`,
	}
	answers[group+"/v1/namespaces/shop/gateways"] = answers[group+"/v1/gateways"]
	answers[group+"/v1/namespaces/shop/httproutes"] = answers[group+"/v1/httproutes"]
	return clusterWith(t, answers, forbidden...)
}

// clusterWith serves answers by path.
func clusterWith(t *testing.T, answers map[string]string, forbidden ...string) *httptest.Server {
	t.Helper()
	refuse := func(w http.ResponseWriter, code int, reason metav1.StatusReason) {
		w.WriteHeader(code)
		json.NewEncoder(w).Encode(metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: "Failure", Code: int32(code), Reason: reason, Message: "no"})
	}
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		for _, path := range forbidden {
			if strings.HasSuffix(r.URL.Path, path) {
				refuse(w, http.StatusForbidden, metav1.StatusReasonForbidden)
				return
			}
		}
		if r.Header.Get("Authorization") != "Bearer secret" {
			refuse(w, http.StatusUnauthorized, metav1.StatusReasonUnauthorized)
		} else if text, ok := answers[r.URL.Path]; ok {
			w.Write([]byte(text))
		} else {
			refuse(w, http.StatusNotFound, metav1.StatusReasonNotFound)
		}
	}))
	t.Cleanup(server.Close)
	return server
}

// kubeconfig writes one with the contexts good, stranger and away, of which good is the current one.
func kubeconfig(t *testing.T, server *httptest.Server) string {
	t.Helper()
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	away := "http://" + closed.Addr().String()
	closed.Close()
	ca := base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}))
	path := filepath.Join(t.TempDir(), "config")
	text := `{"apiVersion":"v1","kind":"Config","current-context":"good",
"clusters":[{"name":"here","cluster":{"server":"` + server.URL + `","certificate-authority-data":"` + ca + `"}},{"name":"away","cluster":{"server":"` + away + `"}}],
"users":[{"name":"me","user":{"token":"secret"}},{"name":"stranger","user":{"token":"wrong"}}],
"contexts":[{"name":"good","context":{"cluster":"here","user":"me"}},{"name":"stranger","context":{"cluster":"here","user":"stranger"}},{"name":"away","context":{"cluster":"away","user":"me"}}]}`
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestStatusOfACluster(t *testing.T) {
	good := kubeconfig(t, clusterOf(t))
	empty := filepath.Join(t.TempDir(), "none")
	for _, c := range []struct {
		name, env, args string
		code            int
		want            []string // in what it prints, wherever
	}{
		{"all", good, "", exitOK, []string{"GatewayClass moongate  ok", "managed by controller example.com/other", "Gateway shop/gw", "Programmed=False", "Pending: no proxy is ready"}},
		{"a namespace", good, "-n shop", exitOK, []string{"Gateway shop/gw"}},
		{"all namespaces", good, "-A", exitOK, []string{"Gateway shop/gw"}},
		{"another controller", good, "--controller-name example.com/other", exitOK, []string{"managed by controller moongate.dev/gateway-controller"}},
		{"a file", empty, "--kubeconfig " + good, exitOK, []string{"Gateway shop/gw"}},
		{"JSON", good, "-o json", exitOK, []string{`"kind": "Gateway"`, `"apiVersion": "gateway.networking.k8s.io/v1"`}},
		{"YAML", good, "-o yaml", exitOK, []string{"kind: Gateway\n"}},
		{"HTTPRoutes forbidden", kubeconfig(t, clusterOf(t, "httproutes")), "", exitProblems, []string{"Gateway shop/gw", "problem: HTTPRoute: cannot be listed: no; name a namespace that you may read"}},
		{"no controller", kubeconfig(t, clusterOf(t, "no leader")), "", exitProblems, []string{"Gateway shop/gw", "problem: Lease moongate-system/moongate-controller: no controller has renewed it since 2026-01-02T03:04:05Z"}},
		{"no controller, a namespace", kubeconfig(t, clusterOf(t, "no leader")), "-n shop", exitProblems, []string{"Gateway shop/gw", "problem: Lease moongate-system/moongate-controller: no controller"}},
		{"no controller, an object", kubeconfig(t, clusterOf(t, "no leader")), "-n shop gateway/gw", exitProblems, []string{"Gateway shop/gw", "problem: Lease moongate-system/moongate-controller: no controller"}},
		{"no controller, another installation", kubeconfig(t, clusterOf(t, "no leader")), "--controller-name example.org/second", exitOK, []string{"Gateway shop/gw"}},
		{"Leases forbidden", kubeconfig(t, clusterOf(t, "leases")), "", exitOK, []string{"Gateway shop/gw"}},
		{"discovery forbidden", kubeconfig(t, clusterOf(t, "gateway.networking.k8s.io")), "", exitProblems, []string{"ask for the ClusterRole system:discovery"}},
		{"a stranger", good, "--context stranger", exitProblems, []string{"does not know you", "log in again"}},
		{"unreachable", good, "--context away", exitProblems, []string{"no API server answers at http://127.0.0.1:", "check that the cluster runs"}},
		{"no such context", good, "--context nothing", exitUsage, []string{`context "nothing" does not exist`, "--context"}},
		{"no kubeconfig", empty, "", exitUsage, []string{"no kubeconfig: name a file with --kubeconfig"}},
		{"a kubeconfig that is not there", good, "--kubeconfig " + empty, exitUsage, []string{"no such file", "--kubeconfig"}},
		{"two minds", good, "-n shop -A", exitUsage, []string{"namespace"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Setenv("KUBECONFIG", c.env)
			t.Setenv("KUBERNETES_SERVICE_HOST", "")
			code, out := run(append([]string{"status", "--kube"}, strings.Fields(c.args)...)...)
			if code != c.code {
				t.Errorf("exit code %d\n%s", code, out)
			}
			for _, want := range c.want {
				if !strings.Contains(out, want) {
					t.Errorf("no %q in\n%s", want, out)
				}
			}
		})
	}
}

func TestClusterFlagsNeedKube(t *testing.T) {
	for _, args := range []string{"--context good", "--kubeconfig x", "--controller-name example.com/other", "--kube --admin-address 127.0.0.1:1"} {
		if code, out := run(append([]string{"status"}, strings.Fields(args)...)...); code != exitUsage || !strings.Contains(out, "kube") {
			t.Errorf("%s: exit code %d\n%s", args, code, out)
		}
	}
}

func run(args ...string) (code int, output string) {
	var b strings.Builder
	code = Main(args, &b, &b)
	return code, b.String()
}
