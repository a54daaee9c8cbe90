package cli

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/moongate-dev/moongate/internal/testkit"
)

// TestExitCodes checks what docs/exit-codes.md says of each.
func TestExitCodes(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	mistake := func(name string) string { return filepath.Join("testdata", "mistakes", name) }
	base, wrong, warned := mistake("base.yaml"), mistake("056-service-name.yaml"), mistake("107-older-version.yaml")
	invalid := mistake("022-misspelt-hostname.yaml")
	right := write("right.yaml", `apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: shop}
spec:
  parentRefs: [{name: public}]
  hostnames: [shop.example.com]
  rules: [{backendRefs: [{name: web, port: 80}]}]
`)
	certificate, private := testkit.Certificate{Hosts: []string{"shop.example.com", "*.example.com"}, NotAfter: time.Now().Add(90 * 24 * time.Hour)}.PEM(t)
	overlapping := write("overlapping.yaml", fmt.Sprintf(`apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: secure}
spec:
  gatewayClassName: moongate
  listeners:
  - {name: one, port: 443, protocol: HTTPS, hostname: shop.example.com, tls: {certificateRefs: [{name: tls}]}}
  - {name: all, port: 443, protocol: HTTPS, hostname: "*.example.com", tls: {certificateRefs: [{name: tls}]}}
---
apiVersion: v1
kind: Secret
metadata: {name: tls}
type: kubernetes.io/tls
stringData: {tls.crt: %q, tls.key: %q}
`, certificate, private))
	garbage, empty := write("garbage.yaml", "\tno yaml"), write("empty.yaml", "")
	others := filepath.Join(dir, "others")
	if err := os.Mkdir(others, 0o755); err != nil {
		t.Fatal(err)
	}
	write("others/values.yaml", "replicas: 3\n")
	mixed := filepath.Join(dir, "mixed")
	if err := os.Mkdir(mixed, 0o755); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(mixed, "link.yaml")
	if err := os.Symlink("nowhere", link); err != nil {
		t.Fatal(err)
	}
	large := write("mixed/data.json", "")
	if err := os.Truncate(large, 16<<20+1); err != nil {
		t.Fatal(err)
	}
	looped := filepath.Join(dir, "looped")
	if err := os.Mkdir(looped, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("unreadable.yaml", filepath.Join(looped, "unreadable.yaml")); err != nil {
		t.Fatal(err)
	}
	overlay := filepath.Join(dir, "overlay")
	if err := os.Mkdir(overlay, 0o755); err != nil {
		t.Fatal(err)
	}
	write("overlay/kustomization.yaml", "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources: [../base]\n")
	second := write("second.yaml", `apiVersion: gateway.networking.k8s.io/v1
kind: GatewayClass
metadata: {name: second}
spec: {controllerName: example.org/second}
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: second}
spec:
  gatewayClassName: second
  listeners: [{name: web, port: 80, protocol: HTTP}]
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: second}
spec:
  parentRefs: [{name: second}]
  rules: [{backendRefs: [{name: missing, port: 80}]}]
`)
	ingress := write("ingress.yaml", "apiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata: {name: a, annotations: {nginx.ingress.kubernetes.io/server-snippet: \"return 200;\"}}\n"+
		"spec: {ingressClassName: nginx, rules: [{host: a.test, http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: web, port: {number: 80}}}}]}}]}\n")
	good, forbidden := "--kubeconfig "+kubeconfig(t, clusterOf(t)), "--kubeconfig "+kubeconfig(t, clusterOf(t, "httproutes"))
	unlisted := "--kubeconfig " + kubeconfig(t, clusterOf(t, "httproutes", "gateways", "gatewayclasses"))
	t.Setenv("KUBECONFIG", filepath.Join(dir, "none"))
	t.Setenv("HOME", dir)
	busy, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer busy.Close()
	const url = " http://shop.example.com:8080/"
	for _, c := range []struct {
		args string
		code int
	}{
		{"", exitOK},
		{"--help", exitOK},
		{"--version", exitOK},
		{"version", exitOK},
		{"check " + base, exitOK},
		{"check " + base + " " + right, exitOK},
		{"check --strict " + base + " " + right, exitOK},
		{"check " + base + " " + warned, exitOK},
		{"check " + base + " " + overlapping, exitOK},
		{"check " + base + " " + empty, exitOK},
		{"check " + base + " " + others, exitOK},
		{"check " + base + " " + overlay, exitOK},
		{"check " + others, exitUsage},
		{"diff -f " + base + " --from " + base, exitOK},
		{"diff " + base + " --from " + base, exitOK},
		{"explain -f " + base + " -f " + right + url, exitOK},
		{"explain -f " + base + " -f " + right + " --expect 200" + url, exitOK},
		{"explain -f " + base + " --expect 404" + url, exitOK},
		{"explain -f " + base + " -f " + right + " -f " + mixed + " --expect 200" + url, exitOK},
		{"diff -f " + base + " -f " + mixed + " --from " + base + " --from " + mixed, exitOK},
		{"status --kube " + good, exitOK},
		{"check --kube " + good + " " + second, exitOK},

		{"check " + base + " " + wrong, exitProblems},
		{"check " + invalid, exitProblems},
		{"check " + invalid + " " + garbage, exitProblems},
		{"check --kube " + good + " " + invalid, exitProblems},
		{"check --kube " + forbidden + " " + invalid, exitProblems},
		{"check --kube " + unlisted, exitProblems},
		{"check --strict " + base + " " + warned, exitProblems},
		{"check --strict " + base + " " + overlapping, exitProblems},
		{"check -o json " + base + " " + wrong, exitProblems},
		{"check -o sarif --strict " + base + " " + warned, exitProblems},
		{"check " + base + " " + garbage, exitProblems},
		{"check " + base + " " + mixed, exitProblems},
		{"diff -f " + right + " --from " + base, exitProblems},
		{"explain -f " + base + " --expect 200" + url, exitProblems},
		{"migrate " + ingress, exitProblems},
		{"status --admin-address 127.0.0.1:1", exitProblems},
		{"status --watch --admin-address 127.0.0.1:1", exitProblems},
		{"backends --admin-address 127.0.0.1:1", exitProblems},
		{"check --admin 127.0.0.1:1", exitProblems},
		{"explain --admin 127.0.0.1:1" + url, exitProblems},
		{"status --kube --context away " + good, exitProblems},
		{"check --kube --context away " + good, exitProblems},
		{"explain --kube --context away " + good + url, exitProblems},
		{"diff --kube --context away " + good + " -f " + right, exitProblems},
		{"status --kube --context stranger " + good, exitProblems},
		{"status --kube " + forbidden, exitProblems},
		{"check --kube --controller-name example.org/second " + good + " " + second, exitProblems},
		{"status --kube " + good + " gateway/none", exitProblems},
		{"run -f " + base + " --admin-address " + busy.Addr().String(), exitProblems},
		{"run " + base + " --admin-address " + busy.Addr().String(), exitProblems},

		{"chekc " + base, exitUsage},
		{"check --no-such-flag " + base, exitUsage},
		{"check", exitUsage},
		{"check -o xml " + base, exitUsage},
		{"check --kube --admin 127.0.0.1:1 " + good, exitUsage},
		{"check " + filepath.Join(dir, "none.yaml"), exitUsage},
		{"check " + garbage, exitUsage},
		{"check " + empty, exitUsage},
		{"check " + t.TempDir(), exitUsage},
		{"check https://example.com/a.yaml", exitUsage},
		{"check --kube", exitUsage},
		{"check " + overlay, exitUsage},
		{"check " + mixed, exitUsage},
		{"check " + base + " " + link, exitUsage},
		{"check " + base + " " + large, exitUsage},
		{"check --class other " + empty, exitUsage},
		{"check --kube " + good + " " + empty, exitUsage},
		{"check --kube " + good + " " + others, exitUsage},
		{"check --kube " + good + " " + garbage, exitUsage},
		{"diff -f " + empty + " --from " + base, exitUsage},
		{"diff -f " + base + " -f " + looped + " --from " + base, exitUsage},
		{"diff -f " + base + " --from " + base + " --from " + looped, exitUsage},
		{"diff -f " + base + " -f " + looped + " --from " + base + " --from " + looped, exitUsage},
		{"diff -f " + overlay + " --from " + base, exitUsage},
		{"diff --kube " + good + " -f " + empty, exitUsage},
		{"diff -f " + base, exitUsage},
		{"diff -f " + base + " --from " + filepath.Join(dir, "none.yaml"), exitUsage},
		{"diff --kube " + forbidden + " -f " + right, exitUsage},
		{"explain -f " + base, exitUsage},
		{"explain -f " + filepath.Join(dir, "none.yaml") + url, exitUsage},
		{"explain -f " + base + " ftp://a.test/", exitUsage},
		{"explain -f " + base + " shop.example.com:8080/", exitUsage},
		{"explain -f " + base + " get" + url, exitUsage},
		{"migrate " + filepath.Join(dir, "none.yaml"), exitUsage},
		{"run", exitUsage},
		{"run -f " + filepath.Join(dir, "none.yaml"), exitUsage},
		{"run -f " + base + " --drain-timeout -1s", exitUsage},
		{"run -f " + base + " --admin-address http://127.0.0.1:1", exitUsage},
		{"proxy", exitUsage},
		{"controller", exitUsage},
		{"status pod", exitUsage},
		{"status --kubeconfig x", exitUsage},
	} {
		var stdout, stderr bytes.Buffer
		if code := Main(strings.Fields(c.args), &stdout, &stderr); code != c.code {
			t.Errorf("moongate %s: exit code %d, want %d\n%s%s", c.args, code, c.code, &stdout, &stderr)
		}
		if c.code == exitUsage && stderr.Len() == 0 && !strings.HasPrefix(c.args, "check ") && !strings.HasPrefix(c.args, "diff --kube") && !strings.Contains(c.args, looped) {
			t.Errorf("moongate %s: nothing on stderr", c.args)
		}
		if lines := strings.Count(stderr.String(), "\n"); lines > 1 && !strings.HasPrefix(c.args, "migrate") {
			t.Errorf("moongate %s: %d lines on stderr: %s", c.args, lines, &stderr)
		}
	}
}

// TestExplainSuggests checks that explain names what was probably meant, as check does.
func TestExplainSuggests(t *testing.T) {
	var stdout, stderr bytes.Buffer
	dir := filepath.Join("testdata", "mistakes")
	code := Main([]string{"explain", "-f", filepath.Join(dir, "base.yaml"), "-f", filepath.Join(dir, "056-service-name.yaml"), "http://shop.example.com:8080/"}, &stdout, &stderr)
	if code != exitOK || !strings.Contains(stdout.String(), "Service default/wbe does not exist; did you mean web?") {
		t.Errorf("exit code %d\n%s%s", code, &stdout, &stderr)
	}
}

// TestNearMisses checks that what is nearly right is answered with what is.
func TestNearMisses(t *testing.T) {
	t.Chdir(filepath.Join("testdata", "mistakes"))
	for args, want := range map[string]string{
		"chekc":                            `there is no verb "chekc"; did you mean check?`,
		"check --stirct":                   "unknown flag: --stirct; did you mean --strict? See moongate check --help",
		"check --xyzzy":                    "unknown flag: --xyzzy; see moongate check --help",
		"check base.yml":                   "base.yml: does not exist; did you mean base.yaml?",
		"run -f ../mistake":                "../mistake: does not exist; did you mean ../mistakes?",
		"check none-of-it.yaml":            "none-of-it.yaml: does not exist; check the path",
		"check https://example.com/a.yaml": "curl -sSfL https://example.com/a.yaml | moongate check -f -",
		"run https://example.com/a.yaml":   "curl -sSfL https://example.com/a.yaml | moongate run -f -",
		"explain -f https://a.test/a.yaml http://a:80/": "curl -sSfL https://a.test/a.yaml | moongate explain -f -",
		"diff base.yaml --from https://a.test/a.yaml":   "curl -sSfL https://a.test/a.yaml | moongate diff --from -",
		"explain -f base.yaml a.example.com:8080/":      "write http://a.example.com:8080/ for a request",
		"explain -f base.yaml get http://a.test:80/":    "write GET for get",
		"explain -f base.yaml GET //a.example.com/":     "write http://a.example.com/ for a request",
		"explain -f base.yaml OPTIONS *":                `"*" has no host; write a URL, as in http://example.com:8080/`,
		"explain -f base.yaml GET /cart":                `"/cart" has no host; write a URL, as in http://example.com:8080/`,
		"explain -f base.yaml ws://a.test:80/chat":      "write it as http://a.test:80/chat",
		"explain -f base.yaml GET grpcs://a.test":       "write it as https://a.test",
		"explain -f base.yaml FIND http://a.test:80/":   "",
		"version now":                       `moongate version takes no arguments, but got "now"; see moongate version --help`,
		"diff base.yaml":                    "give --from or --kube",
		"run --drain-timeout -1s base.yaml": "it is negative",
		"status httpruote":                  "did you mean httproute?",
	} {
		var stdout, stderr bytes.Buffer
		code := Main(strings.Fields(args), &stdout, &stderr)
		if want == "" && code == exitOK {
			continue
		}
		if code != exitUsage || want == "" || !strings.Contains(stderr.String(), want) {
			t.Errorf("moongate %s: exit code %d, %q, want %q", args, code, &stderr, want)
		}
	}
}
