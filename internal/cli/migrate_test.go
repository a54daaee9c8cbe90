package cli

import (
	"bytes"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestMigrateOfACluster: the Ingresses of a cluster are read with their age, Services and the controller's ConfigMap, and manifests count as applied.
func TestMigrateOfACluster(t *testing.T) {
	const networking, core = "/apis/networking.k8s.io/v1", "/api/v1"
	ingress := func(name, created, service, annotations string) string {
		return `{"metadata":{"namespace":"shop","name":"` + name + `","creationTimestamp":"` + created + `","managedFields":[{}],"annotations":{` + annotations + `}},"spec":{"ingressClassName":"nginx","unheardOf":1,
			"rules":[{"host":"a.test","http":{"paths":[{"path":"/","pathType":"Prefix","backend":{"service":{"name":"` + service + `","port":{"name":"web"}}}}]}}]}}`
	}
	answers := map[string]string{
		networking + "/ingresses": `{"items":[` + ingress("a-new", "2026-02-01T00:00:00Z", "second", "") + `,` + ingress("z-old", "2026-01-01T00:00:00Z", "first", `"nginx.ingress.kubernetes.io/server-snippet":"gzip off;"`) + `]}`,
		core + "/services":        `{"items":[{"metadata":{"namespace":"shop","name":"first"},"spec":{"ports":[{"name":"web","port":8081}]}},{"metadata":{"namespace":"shop","name":"third"},"spec":{"ports":[{"name":"web","port":8083}]}}]}`,
		core + "/configmaps":      `{"items":[{"metadata":{"namespace":"ingress-nginx","name":"ingress-nginx-controller"},"data":{"proxy-body-size":"7m","use-http2":"false"}}]}`,
	}
	const own = core + "/namespaces/ingress-nginx/configmaps"
	answers[own] = answers[core+"/configmaps"]
	known := maps.Clone(answers)
	known["/apis/apps/v1/deployments"] = `{"items":[{"metadata":{"namespace":"ingress-nginx","name":"controller"},"spec":{"template":{"spec":{"containers":[{"image":"registry.k8s.io/ingress-nginx/controller:v1.14.0",
		"args":["/nginx-ingress-controller","--configmap=$(POD_NAMESPACE)/mine"]}]}}}},{"metadata":{"namespace":"shop","name":"app"},"spec":{"template":{"spec":{"containers":[{"image":"app"}]}}}}]}`
	known[own] = strings.Replace(answers[own], `"name":"ingress-nginx-controller"`, `"name":"mine"`, 1)
	disputed := maps.Clone(known)
	disputed["/apis/apps/v1/daemonsets"] = strings.NewReplacer(`"ingress-nginx"`, `"shop"`, `"app"`, `"other"`).Replace(known["/apis/apps/v1/deployments"])
	two := maps.Clone(answers)
	two[core+"/configmaps"] = strings.Replace(answers[core+"/configmaps"], `"items":[`, `"items":[{"metadata":{"namespace":"aaa","name":"ingress-nginx-controller"},"data":{"proxy-body-size":"8m","no-auth-locations":"/"}},`, 1)
	good := kubeconfig(t, clusterWith(t, answers))
	edited := filepath.Join(t.TempDir(), "edited.yaml")
	if err := os.WriteFile(edited, []byte("apiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata: {namespace: shop, name: z-old}\n"+
		"spec: {ingressClassName: nginx, rules: [{host: a.test, http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: third, port: {name: web}}}}]}}]}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	empty := kubeconfig(t, clusterWith(t, map[string]string{networking + "/ingresses": `{"items":[]}`, core + "/services": `{"items":[]}`, core + "/configmaps": `{"items":[]}`}))
	for _, c := range []struct {
		name, config, args string
		code               int
		stdout, stderr     []string
		not                string
	}{
		{"all", good, "--kube", exitProblems, []string{"- name: first\n      port: 8081\n", "maxRequestBodyBytes: 7340032"}, []string{
			"\nIngress shop/z-old: nginx.ingress.kubernetes.io/server-snippet: not translated", "ConfigMap ingress-nginx/ingress-nginx-controller: use-http2: not translated"}, "name: second"},
		{"with a manifest", good, "--kube -f " + edited, exitProblems, []string{"- name: third\n      port: 8083\n"}, nil, "name: first"},
		{"what the controller's arguments name", kubeconfig(t, clusterWith(t, known, "v1/configmaps")), "--kube", exitProblems, []string{"maxRequestBodyBytes: 7340032"}, []string{"Deployment ingress-nginx/controller: --configmap: translated: this ConfigMap is read"}, "name: second"},
		{"two controllers", kubeconfig(t, clusterWith(t, disputed)), "--kube", exitUsage, nil, []string{"several controllers serve the class nginx: DaemonSet shop/controller (--configmap shop/mine), Deployment ingress-nginx/controller (--configmap ingress-nginx/mine); name the one"}, "Gateway"},
		{"a ConfigMap of two controllers", kubeconfig(t, clusterWith(t, disputed)), "--kube --configmap ingress-nginx/mine", exitUsage, nil, []string{"name the one that counts with --controller: a user who may write another one could remove"}, "Gateway"},
		{"no such controller", kubeconfig(t, clusterWith(t, disputed)), "--kube --controller ingress-nginx/none", exitUsage, nil, []string{"there is no Deployment or DaemonSet ingress-nginx/none"}, "Gateway"},
		{"one of two controllers", kubeconfig(t, clusterWith(t, disputed)), "--kube --controller ingress-nginx/controller", exitProblems, []string{"maxRequestBodyBytes: 7340032"}, nil, "name: second"},
		{"without Deployments", kubeconfig(t, clusterWith(t, answers, "deployments")), "--kube", exitProblems, []string{"maxRequestBodyBytes: 7340032"}, []string{"problem: Deployment: cannot be listed, so that none seems to exist: no; ask for the verb list on deployments.apps\n"}, "name: second"},
		{"without ConfigMaps", kubeconfig(t, clusterWith(t, answers, "configmaps")), "--kube", exitProblems, []string{"- name: first\n"}, []string{"problem: ConfigMap: cannot be listed, so that none seems to exist: no; ask for the verb list on configmaps\n", "ConfigMaps: not translated: cannot be read"}, "7340032"},
		{"two ConfigMaps of the controller", kubeconfig(t, clusterWith(t, two)), "--kube", exitUsage, nil, []string{"aaa/ingress-nginx-controller, ingress-nginx/ingress-nginx-controller; name the one that counts with --configmap"}, "Gateway"},
		{"one of two", kubeconfig(t, clusterWith(t, two)), "--kube --configmap ingress-nginx/ingress-nginx-controller", exitProblems, []string{"maxRequestBodyBytes: 7340032"}, nil, "8388608"},
		{"without Ingresses", kubeconfig(t, clusterWith(t, answers, "ingresses")), "--kube", exitUsage, nil, []string{"ask for the verb list on ingresses.networking.k8s.io"}, "Gateway"},
		{"none", empty, "--kube", exitUsage, nil, []string{"no Ingress of networking.k8s.io/v1 in the cluster"}, "Gateway"},
		{"unreachable", good, "--kube --context away", exitProblems, nil, []string{"no API server answers"}, "Gateway"},
		{"a flag without a cluster", good, "--context good " + edited, exitUsage, nil, []string{"add --kube"}, "Gateway"},
	} {
		t.Setenv("KUBECONFIG", c.config)
		var stdout, stderr bytes.Buffer
		if code := Main(append([]string{"migrate"}, strings.Fields(c.args)...), &stdout, &stderr); code != c.code {
			t.Errorf("%s: exit code %d, want %d", c.name, code, c.code)
		}
		for _, want := range c.stdout {
			if !strings.Contains(stdout.String(), want) {
				t.Errorf("%s: the output has no %q:\n%s", c.name, want, stdout.String())
			}
		}
		for _, want := range c.stderr {
			if !strings.Contains("\n"+stderr.String(), want) {
				t.Errorf("%s: the report has no %q:\n%s", c.name, want, stderr.String())
			}
		}
		if strings.Contains(stdout.String(), c.not) {
			t.Errorf("%s: the output has %q:\n%s", c.name, c.not, stdout.String())
		}
	}
}

// TestMigrateOfStandardInput reads what kubectl prints of a large cluster: JSON objects that follow each other, and more than a file may have.
func TestMigrateOfStandardInput(t *testing.T) {
	const ingress = `{"apiVersion":"networking.k8s.io/v1","kind":"Ingress","metadata":{"namespace":"shop","name":"a"},"spec":{"ingressClassName":"nginx",
"rules":[{"host":"a.test","http":{"paths":[{"path":"/","pathType":"Prefix","backend":{"service":{"name":"app","port":{"name":"web"}}}}]}}]}}
`
	const service = `{"apiVersion":"v1","kind":"Service","metadata":{"namespace":"shop","name":"app"},"spec":{"ports":[{"name":"web","port":8081}]}}
`
	large := `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"namespace":"shop","name":"large"},"data":{"text":"` + strings.Repeat("x", 17<<20) + `"}}
`
	dir := t.TempDir()
	for _, name := range []string{"blog.yaml", "README.md", "shop.yaml"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("earlier"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var stdout, stderr bytes.Buffer
	cmd := newRoot(&stdout, &stderr)
	cmd.SetIn(strings.NewReader(ingress + service + large))
	cmd.SetArgs([]string{"migrate", "-", "-o", dir, "--report", filepath.Join(dir, "report.txt")})
	if err := cmd.Execute(); err != nil && codeOf(err) == exitUsage {
		t.Errorf("%v", err)
	}
	if text, err := os.ReadFile(filepath.Join(dir, "shop.yaml")); err != nil || !strings.Contains(string(text), "port: 8081") {
		t.Errorf("%v: the Service was not read:\n%s", err, text)
	}
	if want := dir + " has other manifests, which this run did not write: blog.yaml; remove those of an earlier run\n"; !strings.Contains(stderr.String(), want) {
		t.Errorf("no %q in\n%s", want, &stderr)
	}
}
