//go:build documents

package documents

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// step runs one code block of a document, in a folder that begins as a copy of what the repository has for its users.
type step struct {
	document string // from the root of the repository
	has      string // the block is the only one of the document that contains it
	before   string // commands for what the reader has by then
	after    string // commands that fail where the block has not done what the document says
	prints   string // what the block prints, among other things
	code     int    // the exit code of the block
}

const (
	tasks = "docs/tasks/"

	// uninstall takes away Gateways, then Moongate, as docs/install.md says.
	uninstall = `kubectl delete gateways --all --all-namespaces
helm uninstall moongate --namespace moongate-system --wait
kubectl delete gatewayclass moongate --ignore-not-found
`
	// withoutCRDs is the cluster as it was before any installation.
	withoutCRDs = `kubectl delete validatingadmissionpolicy,validatingadmissionpolicybinding safe-upgrades.gateway.networking.k8s.io --ignore-not-found
crds=$(kubectl get crd -o name | grep -E 'gateway.networking|moongate.dev|envoyproxy' || true)
test -z "$crds" || kubectl delete $crds --timeout=3m || { kubectl describe $crds | grep -E '^Name:|Deletion Timestamp|Conditions:|Reason:|Message:|Status:' || true; kubectl wait --for=delete $crds --timeout=5m; }
`
	accepted = "kubectl wait --for=condition=Accepted --timeout=60s gatewayclass/moongate\n"
	secrets  = `for name in ca shop sites client; do
  openssl req -x509 -newkey rsa:2048 -nodes -days 1 -subj "/CN=$name" -addext "subjectAltName=DNS:$name.example.com" -keyout $name.key -out $name.crt 2>/dev/null
done
`
)

// steps are done in this order on one cluster, which has no CRDs of the Gateway API at first. A block of YAML is applied, or given to Helm where it has values.
var steps = []step{
	{document: "README.md", has: "helm install", prints: `"namespace": "default"`},
	{document: "docs/install.md", has: "rollout status", prints: "True"},
	{document: "docs/check.md", has: "helm template", prints: "0 problems", before: `mkdir -p manifests chart/templates
cp examples/hello.yaml manifests/ && cp examples/hello.yaml chart/templates/
printf 'apiVersion: v2\nname: shop\nversion: 0.1.0\n' > chart/Chart.yaml
`},
	{document: "docs/check.md", has: "check --kube\n", prints: "0 problems"},
	{document: tasks + "review-a-change.md", has: "diff -f new --kube", code: 1, prints: "1 change", before: `mkdir new
cat > new/cart.yaml <<EOF
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata:
  name: cart
spec:
  parentRefs:
  - name: web
  hostnames: [shop.example.com]
  rules:
  - backendRefs:
    - name: echo
      port: 80
EOF
`},
	{document: tasks + "review-a-change.md", has: "check --kube new", prints: "HTTPRoute default/cart"},
	{document: "docs/troubleshooting.md", has: "status --kube", prints: "Gateway default/web"},
	{document: "docs/troubleshooting.md", has: "kubectl events", prints: "BackendNotFound", before: `sed 's/- name: echo/- name: absent/' new/cart.yaml | kubectl apply -f -
until kubectl describe httproute cart | grep -q 'Warning .*BackendNotFound'; do sleep 0.2; done
`, after: `kubectl apply -f new/cart.yaml
until kubectl events --for httproute/cart | grep -q 'Normal .*ResolvedRefs'; do sleep 0.2; done
kubectl delete -f new/cart.yaml
`},
	{document: "docs/troubleshooting.md", has: "kubectl logs", prints: `"reason":"no_endpoints"`, before: `kubectl scale deployment/echo --replicas 0
kubectl wait --for=delete --timeout=60s pod -l app=echo
address=$(kubectl get gateway web -o jsonpath='{.status.addresses[0].value}')
until [ "$(curl -s -o /dev/null -w '%{http_code}' "http://$address/cart")" = 503 ]; do sleep 0.2; done
until kubectl logs deployment/web-moongate | grep -q '"response_code":503'; do sleep 0.2; done
`, after: "kubectl scale deployment/echo --replicas 1\nkubectl rollout status deployment/echo\n"},
	{document: tasks + "debug-404-503.md", has: "kubectl logs", prints: `"reason":"no_endpoints"`},
	{document: tasks + "merged-gateways.md", has: "mergeGateways: true", before: "kubectl create namespace shop\nkubectl create namespace blog\n", after: `kubectl wait --for=condition=Programmed --timeout=60s gateway/shop --namespace shop
kubectl wait --for=condition=Programmed --timeout=60s gateway/blog --namespace blog
test "$(kubectl get gateway shop --namespace shop -o jsonpath='{.status.addresses[0].value}')" = "$(kubectl get gateway blog --namespace blog -o jsonpath='{.status.addresses[0].value}')"
`},
	{document: tasks + "merged-gateways.md", has: "kubectl get gateways", prints: "deployment.apps/shared-gateways", after: `kubectl delete namespace shop blog
kubectl wait --for=delete --timeout=120s deployment/shared-gateways --namespace moongate-system
kubectl delete gatewayclass shared
kubectl delete gatewayparameters shared --namespace moongate-system
`},
	{document: tasks + "migrate-from-ingress-nginx.md", has: "migrate --kube", code: 1 /* a snippet */, before: "sed 's/127.0.0.1/192.0.2.1/' examples/ingress-nginx.yaml | kubectl apply -f -\n", after: "test -s migrated/default.yaml && test -s report.txt && rm -r migrated report.txt\n"},
	{document: tasks + "migrate-from-ingress-nginx.md", has: "kubectl get ingresses", code: 1, after: "test -s migrated/default.yaml && test -s report.txt\n"},
	{document: tasks + "backend-tls.md", has: "create configmap", before: secrets},
	{document: tasks + "backend-tls.md", has: "create secret"},
	{document: tasks + "backend-tls.md", has: "targetPort: 8443"},
	{document: tasks + "backend-tls.md", has: "describe backendtlspolicy", prints: "over TLS to orders.internal"},
	{document: tasks + "client-certificates.md", has: "--from-file=ca.crt\nkubectl create secret"},
	{document: tasks + "client-certificates.md", has: "dry-run", before: "touch ca.crl\n", after: "kubectl get configmap staff-ca -o yaml | grep ca.crl\n"},
	{document: tasks + "client-certificates.md", has: "describe gateway shop"},
	{document: tasks + "https.md", has: "create secret", before: "kubectl create namespace certificates\nkubectl delete secret shop-tls\n"},
	{document: "docs/install.md", has: "name: web\nspec", after: "kubectl wait --for=condition=Programmed --timeout=60s gateway/web\n"},
	{document: "docs/install.md", has: "type: NodePort", after: "kubectl get gatewayparameters -A -o yaml | grep 'type: NodePort'\n"},
	{document: "docs/install.md", has: "locked: [service]", after: "kubectl get gatewayparameters -A -o yaml | grep loadBalancerSourceRanges\n"},
	{document: "docs/install.md", has: "helm install second", after: "kubectl wait --for=condition=Accepted --timeout=60s gatewayclass/second\nhelm uninstall second --namespace second-system\n"},
	{document: "docs/install.md", has: "watchNamespaces", before: uninstall + "kubectl create namespace shop\nkubectl create namespace blog\n", after: accepted},
	{document: "docs/install.md", has: "kubectl patch gatewayclass", before: `kubectl apply --namespace shop -f examples/kubernetes.yaml
until kubectl get gatewayclass moongate -o yaml | grep gateway-exists-finalizer; do sleep 0.2; done
helm uninstall moongate --namespace moongate-system --wait
kubectl delete gatewayclass moongate --wait=false
`, after: "kubectl wait --for=delete --timeout=60s gatewayclass/moongate\n"},
	{document: "docs/install.md", has: "deploy/moongate.yaml\n", before: "kubectl delete gateways --all --all-namespaces\nkubectl delete namespace moongate-system\n" + withoutCRDs, after: accepted +
		"kubectl delete -f deploy/moongate.yaml --wait\n"},
	{document: "docs/install.md", has: "experimental/files/policy", after: "kubectl get crd httproutes.gateway.networking.k8s.io -o yaml | grep 'channel: experimental'\n"},
	{document: "charts/moongate-crds/README.md", has: "helm install", before: withoutCRDs, after: "kubectl get crd httproutes.gateway.networking.k8s.io -o yaml | grep 'channel: experimental'\n"},
	{document: "charts/moongate/README.md", has: "helm install", before: "helm uninstall moongate-crds --namespace moongate-system\n" + withoutCRDs, after: accepted},
	{document: "docs/install.md", has: "crds.enabled=true\n", before: "helm uninstall moongate --namespace moongate-system --wait\nkubectl delete gatewayclass moongate --ignore-not-found\n" + withoutCRDs, after: accepted},
	{document: "docs/install.md", has: "completion bash"},
	{document: "docs/install.md", has: "completion fish", before: "mkdir -p ~/.config/fish/completions\n", after: "grep -q moongate ~/.config/fish/completions/moongate.fish\n"},
}

var fence = regexp.MustCompile("(?ms)^ *```([a-z]*)\n(.*?)^ *```$")

// onCluster reports whether a block has commands that need a cluster, or a program that knows one.
func onCluster(language, content string) bool {
	return language != "yaml" && language != "text" && (strings.Contains(content, "kubectl ") || strings.Contains(content, "helm ") || strings.Contains(content, " --kube"))
}

// TestDocuments does the steps, and fails where a document has a block for a cluster that is not among them.
func TestDocuments(t *testing.T) {
	root := os.Getenv("DOCUMENTS_ROOT")
	dir := t.TempDir()
	t.Setenv("HOME", dir)
	for _, name := range []string{"charts", "deploy", "examples"} {
		if err := os.CopyFS(filepath.Join(dir, name), os.DirFS(filepath.Join(root, name))); err != nil {
			t.Fatal(err)
		}
	}
	done := map[string]bool{}
	for _, s := range steps {
		text, err := os.ReadFile(filepath.Join(root, s.document))
		if err != nil {
			t.Fatal(err)
		}
		var language, content string
		found := 0
		for _, m := range fence.FindAllStringSubmatch(string(text), -1) {
			if strings.Contains(m[2], s.has) {
				language, content = m[1], m[2]
				found++
			}
		}
		if found != 1 {
			t.Fatalf("%s has %d blocks with %q, want one", s.document, found, s.has)
		}
		done[s.document+content] = true
		t.Run(strings.ReplaceAll(strings.TrimPrefix(s.document, "docs/"), "/", "_")+" "+strings.TrimSpace(strings.ReplaceAll(s.has, "\n", " ")), func(t *testing.T) {
			command := content
			if language == "yaml" {
				if err := os.WriteFile(filepath.Join(dir, "block.yaml"), []byte(content), 0o644); err != nil {
					t.Fatal(err)
				}
				command = "kubectl apply -f block.yaml\n"
				if !strings.Contains(content, "apiVersion:") {
					command = "helm upgrade moongate charts/moongate --namespace moongate-system --set crds.enabled=true -f block.yaml --wait --timeout 2m\n"
				}
			}
			shell(t, dir, s.before, 0)
			if out := shell(t, dir, command, s.code); !strings.Contains(out, s.prints) {
				t.Errorf("prints\n%s\nwithout %q", out, s.prints)
			}
			shell(t, dir, s.after, 0)
		})
		if t.Failed() {
			t.FailNow() // what follows begins where this ends
		}
	}
	checked := 0
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := entry.Name()
		if entry.IsDir() && path != root && (strings.HasPrefix(name, ".") || name == "bin" || name == "testdata" || name == "test" || name == "internal") {
			return filepath.SkipDir
		}
		if filepath.Ext(name) != ".md" {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		document, err := filepath.Rel(root, path)
		for _, m := range fence.FindAllStringSubmatch(string(text), -1) {
			if onCluster(m[1], m[2]) {
				checked++
				if !done[document+m[2]] {
					t.Errorf("%s: no step runs\n%s", document, m[2])
				}
			}
		}
		return err
	})
	if err != nil || checked < 20 {
		t.Errorf("%d blocks for a cluster were found, %v", checked, err)
	}
}

// shell runs commands as they stand, each of which must succeed, and returns what they print.
func shell(t *testing.T, dir, commands string, code int) string {
	t.Helper()
	if commands == "" {
		return ""
	}
	ctx, stop := context.WithTimeout(t.Context(), 9*time.Minute) // a cluster has taken 4 minutes to delete the CRDs, once
	defer stop()
	cmd := exec.CommandContext(ctx, "bash", "-euo", "pipefail", "-c", commands)
	cmd.Dir = dir
	cmd.WaitDelay = time.Second
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState == nil || cmd.ProcessState.ExitCode() != code {
		t.Fatalf("%s\n%v, want exit code %d:\n%s", commands, err, code, out)
	}
	return fmt.Sprintf("%s", out)
}
