package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/moongate-dev/moongate/internal/cli"
	"github.com/moongate-dev/moongate/internal/testkit"
)

// TestTaskMigrate does what the page says, with the manifest that stands among the examples.
func TestTaskMigrate(t *testing.T) {
	t.Parallel()
	example, err := os.ReadFile("../../examples/ingress-nginx.yaml")
	if err != nil {
		t.Fatal(err)
	}
	blocks := blocksOf(t, "docs/tasks/migrate-from-ingress-nginx.md")
	if _, manifest, _ := strings.Cut(string(example), "\n"); blocks[0].use() != manifest {
		t.Error("the page has another manifest than its example")
	}
	dir := t.TempDir()
	b, port := newBackend(t, "app", nil), freePort(t)
	here := strings.NewReplacer("ingress-nginx.yaml", filepath.Join(dir, "ingress-nginx.yaml"), "8080", fmt.Sprint(port), " migrated", " "+filepath.Join(dir, "migrated"))
	if err := os.WriteFile(filepath.Join(dir, "ingress-nginx.yaml"), []byte(withPorts(blocks[0].content, map[int]int{3000: b.port})), 0o644); err != nil {
		t.Fatal(err)
	}
	printed, ran := "", 0
	for _, block := range blocks[1:] {
		if strings.Contains(block.content, "--kube") || strings.Contains(block.content, "kubectl ") {
			continue // on a cluster: test/documents
		}
		content := here.Replace(block.use())
		switch block.language {
		case "sh":
			printed = ""
			for line := range strings.Lines(content) {
				if ran == 1 {
					start(t, nil, func(o *cli.RunOptions) {
						o.Files, o.Bind = []string{filepath.Join(dir, "migrated"), filepath.Join(dir, "ingress-nginx.yaml")}, nil
					})
				}
				printed += runLine(t, "migrate-from-ingress-nginx.md", strings.TrimSpace(line))
				ran++
			}
		case "text":
			for line := range strings.Lines(content) {
				if !strings.Contains("\n"+printed, "\n"+line) {
					t.Errorf("the page has the line %qin the place of\n%s", line, printed)
				}
			}
		case "yaml":
			written, err := os.ReadFile(filepath.Join(dir, "migrated", "default.yaml"))
			if err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(string(written), content) {
				t.Errorf("the page has an HTTPRoute that is not in\n%s", written)
			}
		}
	}
	if ran != 3 {
		t.Errorf("the page has %d commands, want 3", ran)
	}
}

// TestMigrateUsage: how migrate takes its input, where it writes, and its exit codes.
func TestMigrateUsage(t *testing.T) {
	const ingress = "apiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata: {name: web%s}\nspec: {ingressClassName: %s, rules: [{host: a.test, http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: app, port: {number: 80}}}}]}}]}\n"
	good := testkit.WriteFile(t, "good.yaml", fmt.Appendf(nil, ingress, "", "nginx"))
	snippet := testkit.WriteFile(t, "snippet.yaml", fmt.Appendf(nil, ingress, `, annotations: {nginx.ingress.kubernetes.io/server-snippet: x}`, "nginx"))
	other := testkit.WriteFile(t, "other.yaml", fmt.Appendf(nil, ingress, "", "haproxy"))
	none := testkit.WriteFile(t, "none.yaml", []byte("apiVersion: v1\nkind: Namespace\nmetadata: {name: a}\n"))
	broken := testkit.WriteFile(t, "broken.yaml", fmt.Appendf(nil, ingress+"---\n{\n", "", "nginx"))
	report, folder, unmade := filepath.Join(t.TempDir(), "report.txt"), filepath.Join(t.TempDir(), "made"), filepath.Join(t.TempDir(), "unmade")
	for _, c := range []struct {
		args           []string
		code           int
		stdout, stderr string
	}{
		{[]string{good}, 0, "kind: HTTPRoute", "all: paths: approximated"},
		{[]string{"-f", good, "--gateway-class", "other", "--gateway-name", "edge", "--gateway-namespace", "infra"}, 0, "name: edge\n  namespace: infra", ""},
		{[]string{snippet}, 1, "kind: HTTPRoute", "server-snippet: not translated"},
		{[]string{other}, 1, "", "the class haproxy is not nginx"},
		{[]string{other, "--class", "haproxy"}, 0, "kind: HTTPRoute", ""},
		{[]string{good, "-o", folder}, 0, "", "wrote 2 files to " + folder + "; see what else is wrong with moongate check -f " + folder + "\n"},
		{[]string{other, "-o", unmade}, 1, "", "the class haproxy is not nginx"},
		{[]string{broken}, 1, "kind: HTTPRoute", "problem: " + broken + ":5: is not YAML"},
		{[]string{none}, 2, "", "no Ingress of networking.k8s.io/v1"},
		{[]string{"nowhere.yaml"}, 2, "", "nowhere.yaml"},
		{nil, 2, "", "no manifests"},
		{[]string{good, "--report", report}, 0, "kind: HTTPRoute", ""},
		{[]string{good, "--report", filepath.Join(report, "below")}, 2, "", "not a directory"},
		{[]string{good, "-o", filepath.Join(report, "below")}, 2, "", "not a directory"},
	} {
		stdout, stderr, code := moongate(append([]string{"migrate"}, c.args...)...)
		if code != c.code || !strings.Contains(stdout, c.stdout) || !strings.Contains(stderr, c.stderr) {
			t.Errorf("migrate %q: exit code %d, want %d and %q, %q\n%s\n%s", c.args, code, c.code, c.stdout, c.stderr, stdout, stderr)
		}
	}
	if _, err := os.Stat(unmade); err == nil {
		t.Error("a folder is made for nothing")
	}
	if text, err := os.ReadFile(report); err != nil || !strings.Contains(string(text), "0 translated") {
		t.Errorf("the report is %q, %v", text, err)
	}
}

// TestMigratePorts sends connections and datagrams through what migrate makes of ports for TCP and UDP, and of ssl-passthrough beside a host whose TLS ends at the Gateway.
func TestMigratePorts(t *testing.T) {
	t.Parallel()
	by := testkit.NewAuthority(t)
	db, dns, secure, web := newTCPBackend(t, "db", nil), newUDPBackend(t, "dns"), newTCPBackend(t, "secure", showing(t, by, "secure.test")), newBackend(t, "web", nil)
	tcp, udp, http, https := freePort(t), freePort(t), freePort(t), freePort(t)
	services := ""
	for _, s := range []struct {
		namespace, name, protocol string
		port                      int
	}{{"data", "db", "TCP", db.port}, {"default", "dns", "UDP", dns.port}, {"default", "secure", "TCP", secure.port}, {"default", "web", "TCP", web.port}} {
		services += fmt.Sprintf("---\napiVersion: v1\nkind: Service\nmetadata: {name: %[2]s, namespace: %[1]s}\nspec: {ports: [{port: 443, protocol: %[3]s}]}\n"+
			"---\napiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {name: %[2]s, namespace: %[1]s, labels: {kubernetes.io/service-name: %[2]s}}\naddressType: IPv4\nports: [{port: %[4]d, protocol: %[3]s}]\nendpoints: [{addresses: [127.0.0.1]}]\n",
			s.namespace, s.name, s.protocol, s.port)
	}
	input := fmt.Sprintf("apiVersion: v1\nkind: Namespace\nmetadata: {name: data, labels: {kubernetes.io/metadata.name: data}}\n"+
		"---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: tcp-services, namespace: ingress-nginx}\ndata: {\"%d\": \"data/db:443\"}\n"+
		"---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: udp-services, namespace: ingress-nginx}\ndata: {\"%d\": \"default/dns:443\"}\n", tcp, udp)
	for name, annotations := range map[string]string{"secure": `annotations: {nginx.ingress.kubernetes.io/ssl-passthrough: "true"}`, "web": ""} {
		input += fmt.Sprintf("---\napiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata: {name: %[1]s, %[2]s}\nspec: {ingressClassName: nginx, tls: [{hosts: [%[1]s.test], secretName: web-tls}], rules: [{host: %[1]s.test, http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: %[1]s, port: {number: 443}}}}]}}]}\n", name, annotations)
	}
	path, out := testkit.WriteFile(t, "input.yaml", []byte(input)), t.TempDir()
	if _, stderr, code := moongate("migrate", path, "--tcp-services-configmap", "ingress-nginx/tcp-services", "--udp-services-configmap", "ingress-nginx/udp-services", "--enable-ssl-passthrough", "--http-port", fmt.Sprint(http), "--https-port", fmt.Sprint(https), "-o", out); code > 1 || strings.Contains(stderr, "ssl-passthrough: not translated") {
		t.Fatalf("migrate: exit code %d\n%s", code, stderr)
	}
	services = secret(t, "default", "web-tls", "web.test") + services
	files := map[string]string{"services.yaml": services, "namespace.yaml": "apiVersion: v1\nkind: Namespace\nmetadata: {name: data, labels: {kubernetes.io/metadata.name: data}}\n"}
	written, err := filepath.Glob(filepath.Join(out, "*.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range written {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		files[filepath.Base(name)] = string(text)
	}
	start(t, files)
	if got := greeting(t, tcp); got != "db" {
		t.Errorf("the port for TCP leads to %q, want db", got)
	}
	if got := answered(t, udp); got != "dns" {
		t.Errorf("the port for UDP leads to %q, want dns", got)
	}
	if got := greetingTLS(t, https, "secure.test"); got != "secure (secure.test)" {
		t.Errorf("connections with TLS lead to %q, want the backend with its own certificate", got)
	}
	if c, err := connectTLS(t, https, "web.test"); err != nil || c.shown != "web.test" {
		t.Errorf("the other host shows %v, %v", c, err)
	}
}
