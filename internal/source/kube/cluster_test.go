//go:build cluster

// Against a real API server: KUBECONFIG says where, as one who may do all, and CLUSTER is
// the command that stops its parts, such as "bin/cluster -name mine".
//
//	go test -tags cluster -run TestCluster ./internal/source/kube
//
// or make packages-on-cluster.

package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"
	"sigs.k8s.io/yaml"

	"github.com/moongate-dev/moongate/internal/kind"
	"github.com/moongate-dev/moongate/internal/testkit"
)

// cluster writes what the tests read.
type cluster struct {
	t      *testing.T
	config *rest.Config
	dynamic.Interface
}

func connect(t *testing.T) *cluster {
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	if err != nil {
		t.Fatal(err)
	}
	config.QPS = -1
	d, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return &cluster{t, config, d}
}

func (c *cluster) resource(group, version, resource, namespace string) dynamic.ResourceInterface {
	r := c.Resource(schema.GroupVersionResource{Group: group, Version: version, Resource: resource})
	if namespace == "" {
		return r
	}
	return r.Namespace(namespace)
}

// apply applies YAML, and goes on trying while the API server is not ready for it.
func (c *cluster) apply(resource, text string) {
	c.t.Helper()
	o := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(text), &o.Object); err != nil {
		c.t.Fatal(err)
	}
	gv, _ := schema.ParseGroupVersion(o.GetAPIVersion())
	r := c.resource(gv.Group, gv.Version, resource, o.GetNamespace())
	var last error
	for deadline := time.Now().Add(patient); time.Now().Before(deadline); time.Sleep(100 * time.Millisecond) {
		if _, last = r.Apply(context.Background(), o.GetName(), o, metav1.ApplyOptions{FieldManager: "test", Force: true}); last == nil {
			return
		}
	}
	c.t.Fatalf("%s: %v", o.GetName(), last)
}

func (c *cluster) delete(group, version, resource, namespace, name string) {
	c.t.Helper()
	if err := c.resource(group, version, resource, namespace).Delete(context.Background(), name, metav1.DeleteOptions{}); err != nil {
		c.t.Fatal(err)
	}
}

func (c *cluster) crd(file string) {
	c.t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		c.t.Fatal(err)
	}
	c.apply("customresourcedefinitions", string(text))
}

func (c *cluster) part(verb string) {
	c.t.Helper()
	command := append(strings.Fields(os.Getenv("CLUSTER")), verb, "kube-apiserver")
	if out, err := exec.Command(command[0], command[1:]...).CombinedOutput(); err != nil {
		c.t.Fatalf("%v: %v\n%s", command, err, out)
	}
}

// permissions are those that the package's documentation lists.
func (c *cluster) permissions(t *testing.T) []any {
	text, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(text), "// # Permissions\n")
	_, table, _ = strings.Cut(table, ":\n//\n")
	table, _, found := strings.Cut(table, "\n//\n")
	if !found {
		t.Fatal("doc.go has no table of permissions under its heading Permissions")
	}
	var rules []any
	for line := range strings.Lines(table) {
		f := strings.Fields(strings.NewReplacer("//\t", "", ",", " ").Replace(line))
		verbs := []string{}
		for len(f) > 0 && slices.Contains([]string{"get", "list", "watch"}, f[len(f)-1]) {
			verbs, f = append(verbs, f[len(f)-1]), f[:len(f)-1]
		}
		if len(verbs) == 0 { // the resources go on
			last := rules[len(rules)-1].(map[string]any)
			last["resources"] = append(last["resources"].([]string), f...)
			continue
		}
		rules = append(rules, map[string]any{"apiGroups": []string{strings.Trim(f[0], `"`)}, "resources": f[1:], "verbs": verbs})
	}
	return rules
}

// TestCluster reads a real API server with exactly the permissions that are documented.
func TestCluster(t *testing.T) {
	c := connect(t)
	list := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/gateway-api")
	out, err := list.Output()
	if err != nil {
		t.Fatal(err)
	}
	crds, err := filepath.Glob(filepath.Join(strings.TrimSpace(string(out)), "config/crd/experimental/gateway.networking.k8s.io_*s.yaml"))
	if err != nil || len(crds) < 10 {
		t.Fatalf("%v: %v", crds, err)
	}
	crds = slices.DeleteFunc(crds, func(f string) bool { return strings.Contains(f, "_vap_") })
	for _, file := range append(crds, "../../../api/v1alpha1/moongate.dev_gatewayparameters.yaml") {
		c.crd(file)
	}
	rules, _ := json.Marshal(c.permissions(t))
	c.apply("clusterroles", `{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: source}, rules: `+string(rules)+`}`)
	c.apply("clusterrolebindings", `{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, metadata: {name: source},
		roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: source}, subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: source}]}`)
	c.apply("namespaces", `{apiVersion: v1, kind: Namespace, metadata: {name: team, labels: {l: "1"}}}`)
	route := func(n, host string) {
		c.apply("httproutes", `{apiVersion: gateway.networking.k8s.io/v1, kind: HTTPRoute, metadata: {name: `+n+`, namespace: team}, spec: {hostnames: [`+host+`]}}`)
	}
	route("one", "a.example")
	c.apply("services", `{apiVersion: v1, kind: Service, metadata: {name: one, namespace: team}, spec: {ports: [{port: 80, name: http}]}}`)
	c.apply("endpointslices", `{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {name: one, namespace: team, labels: {kubernetes.io/service-name: one}},
		addressType: IPv4, ports: [{port: 8080, name: http}], endpoints: [{addresses: [10.1.2.3], conditions: {ready: true}}]}`)
	secret := func(value string) {
		c.apply("secrets", `{apiVersion: v1, kind: Secret, metadata: {name: one, namespace: team}, stringData: {k: `+value+`}}`)
	}
	secret("first")

	as := rest.CopyConfig(c.config)
	as.Impersonate = rest.ImpersonationConfig{UserName: "source"}
	s := follow(t, as)
	t.Cleanup(func() { t.Logf("the log:\n%s", s.log) })
	s.next()
	sliceID := kind.ObjectKey{Group: "discovery.k8s.io", Kind: "EndpointSlice", Namespace: "team", Name: "one"}
	if n := s.objects[kind.ObjectKey{Kind: "Namespace", Name: "team"}]; n == nil || n.GetLabels()["l"] != "1" {
		t.Errorf("namespace %+v", n)
	}
	if r := s.objects[routeID("one")].(*gwv1.HTTPRoute); r.Spec.Hostnames[0] != "a.example" || r.Generation == 0 {
		t.Errorf("route %+v", r)
	}
	if v := s.objects[serviceID("one")].(*corev1.Service); v.Spec.Ports[0].Port != 80 {
		t.Errorf("service %+v", v)
	}
	if e := s.objects[sliceID].(*discoveryv1.EndpointSlice); e.Endpoints[0].Addresses[0] != "10.1.2.3" || *e.Ports[0].Port != 8080 {
		t.Errorf("EndpointSlice %+v", e)
	}
	if len(s.installed.Kinds) < 12 || len(s.installed.Unread) > 0 || len(s.installed.CRDs) != 10 || s.installed.CRDs[0].Channel != "experimental" || s.installed.CRDs[0].BundleVersion != "v1.7.0" {
		t.Errorf("installed %+v", s.installed)
	}
	if found := s.fetch(SecretRequest{"team", "one", true}); len(found) != 1 || s.value("one") != "first" {
		t.Errorf("Secret %+v", found)
	}
	secret("second")
	s.until("the Secret changes", func() bool { return s.value("one") == "second" })
	testTrustBundle(c, s)
	testOutage(c, s, route)
	testDefinition(c, s, crds)
}

func testOutage(c *cluster, s *consumer, route func(n, host string)) {
	route("goes", "a.example")
	s.until("a route comes", func() bool { return s.objects[routeID("goes")] != nil })
	c.part("kill")
	testkit.Eventually(s.t, "the outage is noticed", func() bool { return strings.Contains(s.log.String(), "does not answer") })
	if _, ok := s.Get(routeID("goes")); !ok {
		s.t.Error("a route went with the API server")
	}
	c.part("start")
	route("one", "b.example")
	c.delete(gatewayGroup, "v1", "httproutes", "team", "goes")
	s.until("both differences come", func() bool {
		return s.objects[routeID("goes")] == nil && s.objects[routeID("one")].(*gwv1.HTTPRoute).Spec.Hostnames[0] == "b.example"
	})
}

func testDefinition(c *cluster, s *consumer, crds []string) {
	file := crds[slices.IndexFunc(crds, func(f string) bool { return strings.Contains(f, "tcproutes") })]
	id := kind.ObjectKey{Group: gatewayGroup, Kind: "TCPRoute", Namespace: "team", Name: "one"}
	put := func() {
		c.apply("tcproutes", `{apiVersion: gateway.networking.k8s.io/v1, kind: TCPRoute, metadata: {name: one, namespace: team}, spec: {rules: [{backendRefs: [{name: one, port: 80}]}]}}`)
	}
	put()
	s.until("a TCPRoute comes", func() bool { return s.objects[id] != nil })
	kinds := len(s.installed.Kinds)
	c.delete(crdGroup, "v1", "customresourcedefinitions", "", "tcproutes."+gatewayGroup)
	s.until("its kind goes", func() bool {
		return s.objects[id] == nil && len(s.installed.Kinds) == kinds-1 && len(s.installed.CRDs) == 9
	})
	c.crd(file)
	put()
	s.until("it comes again", func() bool { return s.objects[id] != nil && len(s.installed.Kinds) == kinds })
}

// testTrustBundle: the API server has the kind in one version, which no CRD brings.
func testTrustBundle(c *cluster, s *consumer) {
	id := kind.ClusterTrustBundle.Key("", "roots")
	holds := func(text []byte) func() bool {
		return func() bool {
			b, _ := s.objects[id].(*certificatesv1.ClusterTrustBundle)
			return b != nil && b.Spec.TrustBundle == string(text)
		}
	}
	apply := func(text []byte) {
		c.apply("clustertrustbundles", fmt.Sprintf("{apiVersion: certificates.k8s.io/v1beta1, kind: ClusterTrustBundle, metadata: {name: roots}, spec: {trustBundle: %q}}", text))
	}
	if !slices.ContainsFunc(s.installed.Kinds, func(k Served) bool { return k.Kind == id.Kind && k.Version == "v1beta1" }) {
		c.t.Errorf("served: %+v", s.installed.Kinds)
	}
	one, other := testkit.NewAuthority(c.t).PEM, testkit.NewAuthority(c.t).PEM
	apply(one)
	s.until("a ClusterTrustBundle comes", holds(one))
	apply(other)
	s.until("its change comes", holds(other))
	c.delete(certificatesv1.GroupName, "v1beta1", "clustertrustbundles", "", "roots")
	s.until("it goes", func() bool { return s.objects[id] == nil })
	apply(one)
	s.until("it comes again", holds(one))
}
