package files

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"
)

// one loads text from a file and returns its only object.
func one[T metav1.Object](t *testing.T, name, text string) T {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	write(t, path, text)
	s := source(t, path).Load()
	if len(s.Problems) > 0 {
		t.Fatal(s.Problems)
	}
	for _, o := range s.Objects {
		if v, ok := o.Object.(T); ok && o.Position.File != "" {
			return v
		}
	}
	t.Fatalf("not among %v", s.Objects)
	panic("unreachable")
}

func TestEveryKindComesOutTyped(t *testing.T) {
	dir := t.TempDir()
	const gw = "gateway.networking.k8s.io/"
	for _, test := range []struct{ apiVersion, kind, spec, goType string }{
		{gw + "v1", "GatewayClass", "spec: {controllerName: a.b/c}", "*v1.GatewayClass"},
		{gw + "v1beta1", "GatewayClass", "spec: {controllerName: a.b/c}", "*v1.GatewayClass"},
		{gw + "v1", "Gateway", "spec: {gatewayClassName: a, listeners: [{name: a, port: 80, protocol: HTTP}]}", "*v1.Gateway"},
		{gw + "v1beta1", "Gateway", "spec: {gatewayClassName: a, listeners: [{name: a, port: 80, protocol: HTTP}]}", "*v1.Gateway"},
		{gw + "v1", "HTTPRoute", "spec: {}", "*v1.HTTPRoute"},
		{gw + "v1beta1", "HTTPRoute", "spec: {}", "*v1.HTTPRoute"},
		{gw + "v1", "GRPCRoute", "spec: {}", "*v1.GRPCRoute"},
		{gw + "v1", "TLSRoute", "spec: {hostnames: [a.b], rules: [{backendRefs: [{name: a, port: 1}]}]}", "*v1.TLSRoute"},
		{gw + "v1alpha2", "TLSRoute", "spec: {hostnames: [a.b], rules: [{backendRefs: [{name: a, port: 1}]}]}", "*v1.TLSRoute"},
		{gw + "v1alpha3", "TLSRoute", "spec: {hostnames: [a.b], rules: [{backendRefs: [{name: a, port: 1}]}]}", "*v1.TLSRoute"},
		{gw + "v1", "TCPRoute", "spec: {rules: [{backendRefs: [{name: a, port: 1}]}]}", "*v1.TCPRoute"},
		{gw + "v1alpha2", "TCPRoute", "spec: {rules: [{backendRefs: [{name: a, port: 1}]}]}", "*v1.TCPRoute"},
		{gw + "v1alpha2", "UDPRoute", "spec: {rules: [{backendRefs: [{name: a, port: 1}]}]}", "*v1.UDPRoute"},
		{gw + "v1", "ListenerSet", "spec: {parentRef: {name: a}, listeners: [{name: a, port: 80, protocol: HTTP}]}", "*v1.ListenerSet"},
		{gw + "v1beta1", "ReferenceGrant", "spec: {from: [{group: \"\", kind: A, namespace: b}], to: [{group: \"\", kind: Secret}]}", "*v1.ReferenceGrant"},
		{gw + "v1", "ReferenceGrant", "spec: {from: [{group: \"\", kind: A, namespace: b}], to: [{group: \"\", kind: Secret}]}", "*v1.ReferenceGrant"},
		{gw + "v1alpha3", "BackendTLSPolicy", "spec: {targetRefs: [{group: \"\", kind: Service, name: a}], validation: {hostname: a.b, wellKnownCACertificates: System}}", "*v1.BackendTLSPolicy"},
		{"v1", "Service", "spec: {ports: [{port: 80}]}", "*v1.Service"},
		{"v1", "Secret", "", "*v1.Secret"},
		{"v1", "ConfigMap", "", "*v1.ConfigMap"},
		{"v1", "Namespace", "", "*v1.Namespace"},
		{"discovery.k8s.io/v1", "EndpointSlice", "addressType: IPv4\nendpoints: []", "*v1.EndpointSlice"},
	} {
		path := filepath.Join(dir, "f.yaml")
		write(t, path, fmt.Sprintf("apiVersion: %s\nkind: %s\nmetadata: {name: x}\n%s\n", test.apiVersion, test.kind, test.spec))
		s := source(t, path).Load()
		i := slices.IndexFunc(s.Objects, func(o Object) bool { return o.Position.Line == 1 })
		if len(s.Problems) > 0 || i < 0 {
			t.Errorf("%s %s: %v", test.apiVersion, test.kind, s.Problems)
			continue
		}
		o := s.Objects[i]
		gvk := o.Object.(runtime.Object).GetObjectKind().GroupVersionKind()
		if got := fmt.Sprintf("%T", o.Object); got != test.goType || gvk.Version != "v1" || gvk.Kind != test.kind || gvk.Group != o.ID.Group {
			t.Errorf("%s %s came out as %s, %v", test.apiVersion, test.kind, got, gvk)
		}
		wantNamespace := "default"
		if test.kind == "GatewayClass" || test.kind == "Namespace" {
			wantNamespace = ""
		}
		if o.Object.GetNamespace() != wantNamespace || o.ID.Namespace != wantNamespace || o.Object.GetGeneration() != 1 {
			t.Errorf("%s: namespace %q, generation %d", test.kind, o.Object.GetNamespace(), o.Object.GetGeneration())
		}
	}
}

func TestWhatAServerSetsIsNotTakenFromAFile(t *testing.T) {
	gw := one[*gwv1.Gateway](t, "f.yaml", `
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata:
  name: gw
  namespace: infra
  uid: "0"
  resourceVersion: "7"
  generation: 4
  creationTimestamp: 2024-05-06T07:08:09Z
  managedFields: [{manager: kubectl, operation: Update}]
spec: {gatewayClassName: a, listeners: [{name: a, port: 80, protocol: HTTP}]}
status: {conditions: [{type: Accepted, status: "True", reason: Accepted, message: "", lastTransitionTime: 2024-05-06T07:08:09Z}], junk: 1}
`)
	if gw.UID != "" || gw.ResourceVersion != "" || gw.ManagedFields != nil || gw.Generation != 4 || gw.Namespace != "infra" {
		t.Errorf("metadata: %+v", gw.ObjectMeta)
	}
	if !gw.CreationTimestamp.Equal(&metav1.Time{Time: time.Date(2024, 5, 6, 7, 8, 9, 0, time.UTC)}) {
		t.Errorf("creationTimestamp: %v", gw.CreationTimestamp)
	}
	if len(gw.Status.Conditions) != 2 || gw.Status.Conditions[0].Reason != "Pending" {
		t.Errorf("the status is %v, not the default", gw.Status)
	}
}

func TestClusterScopedObjectsHaveNoNamespace(t *testing.T) {
	if c := one[*gwv1.GatewayClass](t, "f.yaml", "apiVersion: gateway.networking.k8s.io/v1\nkind: GatewayClass\nmetadata: {name: a, namespace: b}\nspec: {controllerName: a.b/c}\n"); c.Namespace != "" {
		t.Errorf("namespace %q", c.Namespace)
	}
}

func TestCoreDefaults(t *testing.T) {
	s := one[*corev1.Service](t, "f.yaml", "apiVersion: v1\nkind: Service\nmetadata: {name: s}\nspec: {ports: [{name: a, port: 80}, {name: b, port: 81, targetPort: http, protocol: UDP}]}\n")
	want := []corev1.ServicePort{
		{Name: "a", Port: 80, Protocol: "TCP", TargetPort: intstr.FromInt32(80)},
		{Name: "b", Port: 81, Protocol: "UDP", TargetPort: intstr.FromString("http")},
	}
	if !reflect.DeepEqual(s.Spec.Ports, want) || s.Spec.Type != "ClusterIP" {
		t.Errorf("Service: %+v", s.Spec)
	}
	e := one[*discoveryv1.EndpointSlice](t, "f.yaml", "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {name: e}\naddressType: IPv4\nports: [{port: 80}]\nendpoints: [{addresses: [127.0.0.1]}]\n")
	if *e.Ports[0].Protocol != "TCP" || *e.Ports[0].Name != "" || e.Endpoints[0].Conditions.Ready != nil {
		t.Errorf("EndpointSlice: %+v", e)
	}
	x := one[*corev1.Secret](t, "f.yaml", "apiVersion: v1\nkind: Secret\nmetadata: {name: s}\ndata: {a: YQ==, b: Yg==}\nstringData: {b: new, c: \"\"}\n")
	if wantData := map[string][]byte{"a": []byte("a"), "b": []byte("new"), "c": {}}; !reflect.DeepEqual(x.Data, wantData) || x.StringData != nil || x.Type != "Opaque" {
		t.Errorf("Secret: %+v", x)
	}
}

func TestNamespacesExistByThemselves(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f.yaml")
	write(t, path, `
{apiVersion: v1, kind: Namespace, metadata: {name: named, labels: {team: a}}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: c, namespace: named}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: c, namespace: implied}}
`)
	labels := map[string]map[string]string{}
	for _, o := range source(t, path).Load().Objects {
		if ns, ok := o.Object.(*corev1.Namespace); ok {
			labels[ns.Name] = ns.Labels
		}
	}
	want := map[string]map[string]string{
		"named":   {"team": "a", "kubernetes.io/metadata.name": "named"},
		"implied": {"kubernetes.io/metadata.name": "implied"},
	}
	if !reflect.DeepEqual(labels, want) {
		t.Errorf("got %v, want %v", labels, want)
	}
}

func TestFormats(t *testing.T) {
	const inJSON = `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"%s"},"data":{"k":"\ud83d\ude00 \/"}}`
	for _, test := range []struct {
		name, file, text string
		want             []string
	}{
		{"several values in JSON", "f.json", fmt.Sprintf(inJSON, "a") + "\n" + fmt.Sprintf(inJSON, "b"), []string{"ConfigMap default/a", "ConfigMap default/b"}},
		{"JSON indented with tabs", "f.json", "{\n\t\"apiVersion\": \"v1\",\n\t\"kind\": \"ConfigMap\",\n\t\"metadata\": {\"name\": \"a\"}\n}", []string{"ConfigMap default/a"}},
		{"flow mapping", "f.yml", "{apiVersion: v1, kind: ConfigMap, metadata: {name: a}}", []string{"ConfigMap default/a"}},
		{"List", "f.yaml", "apiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: ConfigMap, metadata: {name: a}}\n- {apiVersion: v1, kind: Secret, metadata: {name: a}}\n", []string{"ConfigMap default/a", "Secret default/a"}},
		{"typed list", "f.yaml", "apiVersion: v1\nkind: ConfigMapList\nitems:\n- {metadata: {name: a}}\n", []string{"ConfigMap default/a"}},
		{"empty documents, comments, directives, end markers", "f.yaml", "# nothing\n---\n---\n# still\n---\nnull\n...\n%YAML 1.1\n--- # a comment\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n...\n---\n", []string{"ConfigMap default/a"}},
		{"carriage returns and byte order mark", "f.yaml", "\xef\xbb\xbfapiVersion: v1\r\nkind: ConfigMap\r\nmetadata:\r\n  name: a\r\n---\r\napiVersion: v1\r\nkind: ConfigMap\r\nmetadata:\r\n  name: b\r\n", []string{"ConfigMap default/a", "ConfigMap default/b"}},
		{"marker inside a text", "f.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata:\n  k: |\n    ---\n    x\n", []string{"ConfigMap default/a"}},
		{"anchors and merge keys", "f.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, labels: &l {x: z}, annotations: {<<: *l, k: v}}\n", []string{"ConfigMap default/a"}},
		{"an empty file", "f.yaml", "", nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), test.file)
			write(t, path, test.text)
			s := source(t, path).Load()
			if got := names(s.Objects); len(s.Problems) > 0 || !slices.Equal(got, test.want) {
				t.Errorf("got %v, want %v; problems %v", got, test.want, s.Problems)
			}
		})
	}
	if c := one[*corev1.ConfigMap](t, "f.json", fmt.Sprintf(inJSON, "a")); c.Data["k"] != "\U0001f600 /" {
		t.Errorf("JSON escapes: %q", c.Data["k"])
	}
}

func TestUnknownKindsAreListedOnce(t *testing.T) {
	t.Chdir(t.TempDir())
	deployment := "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: d}\n---\n"
	write(t, "a.yaml", deployment+deployment+"{apiVersion: v1, kind: Pod, metadata: {name: p}}\n")
	write(t, "b.yaml", deployment+"{apiVersion: serving.knative.dev/v1, kind: Service, metadata: {name: s}}\n")
	s := source(t, ".").Load()
	var got []string
	for _, p := range s.Problems {
		if !p.Ignored || p.Reason != Ignored {
			t.Errorf("not marked as ignored: %v", p)
		}
		got = append(got, p.String())
	}
	want := []string{
		"a.yaml:1: Deployment: 3 objects ignored: this kind (apps/v1) is not used here; nothing needs to be done",
		"a.yaml:9: Pod: ignored: this kind (v1) is not used here; nothing needs to be done",
		"b.yaml:5: Service: ignored: this kind (serving.knative.dev/v1) is not used here; nothing needs to be done",
	}
	if !slices.Equal(got, want) || len(s.Objects) != 0 {
		t.Errorf("got  %q\nwant %q\nobjects %v", got, want, s.Objects)
	}
}

func TestTheFirstDefinitionWins(t *testing.T) {
	t.Chdir(t.TempDir())
	config := func(value string) string {
		return "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\ndata: {k: " + value + "}\n"
	}
	write(t, "m/b.yaml", config("second"))
	write(t, "m/a.yaml", config("first")+"---\n"+config("again"))
	write(t, "z.yaml", config("third"))
	for _, test := range []struct {
		paths    []string
		value    string
		problems []string
	}{
		{[]string{"m", "z.yaml"}, "first", []string{
			"m/a.yaml:6: ConfigMap default/c: is already defined at m/a.yaml:1, which is used; remove one of the two",
			"m/b.yaml:1: ConfigMap default/c: is already defined at m/a.yaml:1, which is used; remove one of the two",
			"z.yaml:1: ConfigMap default/c: is already defined at m/a.yaml:1, which is used; remove one of the two",
		}},
		{[]string{"z.yaml", "m/b.yaml"}, "third", []string{"m/b.yaml:1: ConfigMap default/c: is already defined at z.yaml:1, which is used; remove one of the two"}},
		{[]string{"m/b.yaml", "m/b.yaml", "./m/b.yaml"}, "second", nil},
	} {
		s := source(t, test.paths...).Load()
		var got []string
		for _, p := range s.Problems {
			got = append(got, p.String())
		}
		if !slices.Equal(got, test.problems) {
			t.Errorf("%v:\ngot  %q\nwant %q", test.paths, got, test.problems)
		}
		for _, o := range s.Objects {
			if c, ok := o.Object.(*corev1.ConfigMap); ok && c.Data["k"] != test.value {
				t.Errorf("%v: the definition %q is used, not %q", test.paths, c.Data["k"], test.value)
			}
		}
	}
	write(t, "m/a.yaml", strings.Replace(config("x"), "\ndata", "\ndate", 1))
	s := source(t, "m").Load()
	if len(s.Problems) != 2 || !strings.Contains(s.Problems[1].Message, "which is invalid, so that this one is used") {
		t.Errorf("first definition invalid: %v", s.Problems)
	}
}

func TestPaths(t *testing.T) {
	t.Chdir(t.TempDir())
	config := func(name string) string {
		return "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: " + name + "}\n"
	}
	write(t, "m/a.yaml", config("a"))
	write(t, "m/deep/er/b.yml", config("b"))
	write(t, "m/c.txt", config("c"))
	write(t, "m/.hidden.yaml", config("d"))
	write(t, "m/.git/e.yaml", config("e"))
	write(t, "explicit.txt", config("f"))
	write(t, "elsewhere/g.yaml", config("g"))
	for link, target := range map[string]string{"m/link.yaml": "../explicit.txt", "m/dir": "../elsewhere", "m/loop": "."} {
		if err := os.Symlink(target, link); err != nil {
			t.Fatal(err)
		}
	}
	s := source(t, "m").Load()
	if got, want := names(s.Objects), []string{"ConfigMap default/a", "ConfigMap default/b", "ConfigMap default/f", "ConfigMap default/g"}; !slices.Equal(got, want) || len(s.Problems) > 0 {
		t.Errorf("got %v, want %v; %v", got, want, s.Problems)
	}
	if got := names(source(t, "explicit.txt").Load().Objects); len(got) != 1 {
		t.Errorf("a file given by name is read whatever it is called; got %v", got)
	}
	if _, err := New([]string{"m", "missing", "gone/too.yaml"}, Options{}); err == nil || err.Error() != "missing: does not exist; check the path\ngone/too.yaml: does not exist; check the path" {
		t.Errorf("missing paths: %v", err)
	}
	if _, err := New(nil, Options{}); err == nil {
		t.Error("no paths at all is fine?")
	}
	if err := os.Symlink("nowhere", "m/broken.yaml"); err != nil {
		t.Fatal(err)
	}
	if got := source(t, "m").Load().Problems; len(got) != 1 || got[0].String() != "m/broken.yaml: does not exist; check the path" {
		t.Errorf("a broken link: %v", got)
	}
}

func TestFilesThatCannotBeRead(t *testing.T) {
	t.Chdir(t.TempDir())
	write(t, "big.yaml", strings.Repeat("#", 2<<20))
	s, err := New([]string{"."}, Options{MaxFileSize: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	if got := s.Load().Problems; len(got) != 1 || got[0].String() != "big.yaml: is larger than 1 MiB; split it into several files" || got[0].Reason != Unreadable {
		t.Errorf("a large file: %v", got)
	}
	if err := os.Remove("big.yaml"); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir("dir.yaml", 0o755); err != nil {
		t.Fatal(err)
	}
	if got := s.Load(); len(got.Problems) != 0 || len(got.Objects) != 0 {
		t.Errorf("a folder called dir.yaml: %v", got)
	}
}

// FuzzDecode: whatever a file holds, the decoder neither panics nor runs away,
// and each thing it reports can be acted on.
func FuzzDecode(f *testing.F) {
	f.Add(manyRoutes(2, unedited))
	for _, seed := range []string{
		"", "---", "{", "[", "a: &a [*a]", "a: *b", "%YAML 1.2\n---\na: b", "? {a: b}\n: c", "<<: [1]", "- - - -", "!!binary x", "a: !!float x",
		`{"apiVersion":"v1","kind":"List","items":[{},[],null,{"apiVersion":"v1","kind":"Secret","metadata":{"name":"a"},"data":{"a":"=="}}]}`,
		"apiVersion: v1\nkind: Service\nmetadata: {name: a, labels: null, creationTimestamp: null}\nspec: {ports: [{port: 1e9}, null]}",
		"apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {name: a}\naddressType: IPv4\nendpoints: [{addresses: null}, {}]\nports: [{}]",
		"apiVersion: gateway.networking.k8s.io/v1\nkind: Gateway\nmetadata: {name: a, ownerReferences: [{}]}\nspec: {listeners: {}}\nstatus: 1",
		"a: &a [1,1,1,1,1,1,1,1]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a]\nc: [*b,*b,*b,*b,*b,*b,*b,*b]",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		if len(text) > 1<<16 {
			return
		}
		lines := strings.Count(string(text), "\n") + 1
		for _, c := range split(text) {
			d := decodeChunk(c.text)
			problems := slices.Clone(d.problems)
			for _, e := range d.entries {
				if (e.object == nil) != (len(e.problems) > 0) {
					t.Fatalf("%v: object %v with problems %v", e.id, e.object, e.problems)
				}
				problems = append(problems, e.problems...)
			}
			for _, p := range problems {
				if p.Message == "" || p.Remedy == "" || strings.Contains(p.String(), "\n") {
					t.Fatalf("not a useful problem: %+v", p)
				}
				if line := c.line + p.Line; line < 1 || line > lines {
					t.Fatalf("line %d of %d: %v", line, lines, p)
				}
			}
		}
	})
}
