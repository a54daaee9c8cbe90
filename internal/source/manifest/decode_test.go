package manifest

import (
	"fmt"
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

// read decodes a whole text, with the lines of the text.
func read(text string) *Document {
	whole := new(Document)
	for _, c := range Split([]byte(text)) {
		d := Decode(c.Text)
		problems := d.Problems
		for _, e := range d.Entries {
			moved := *e
			moved.Line += c.Line
			whole.Entries = append(whole.Entries, &moved)
			problems = append(problems, e.Problems...)
		}
		for _, p := range problems {
			p.File = "f.yaml"
			p.Line += c.Line
			whole.Problems = append(whole.Problems, p)
		}
		whole.Unused = append(whole.Unused, d.Unused...)
	}
	return whole
}

// names lists the objects of a document that have no problems.
func (d *Document) names() []string {
	var list []string
	for _, e := range d.Entries {
		if e.Object != nil {
			list = append(list, e.ID.String())
		}
	}
	return list
}

// one decodes a text that holds one object.
func one[T metav1.Object](t *testing.T, text string) T {
	t.Helper()
	d := read(text)
	if len(d.Entries) != 1 || len(d.Problems) > 0 {
		t.Fatalf("%v, problems %v", d.names(), d.Problems)
	}
	return d.Entries[0].Object.(T)
}

func TestEveryKindComesOutTyped(t *testing.T) {
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
		{"moongate.dev/v1alpha1", "GatewayParameters", "spec: {drainTimeout: 10s}", "*v1alpha1.GatewayParameters"},
		{"v1", "Service", "spec: {ports: [{port: 80}]}", "*v1.Service"},
		{"v1", "Secret", "", "*v1.Secret"},
		{"v1", "ConfigMap", "", "*v1.ConfigMap"},
		{"v1", "Namespace", "", "*v1.Namespace"},
		{"discovery.k8s.io/v1", "EndpointSlice", "addressType: IPv4\nendpoints: []", "*v1.EndpointSlice"},
	} {
		d := read(fmt.Sprintf("apiVersion: %s\nkind: %s\nmetadata: {name: x}\n%s\n", test.apiVersion, test.kind, test.spec))
		if len(d.Problems) > 0 || len(d.Entries) != 1 {
			t.Errorf("%s %s: %v", test.apiVersion, test.kind, d.Problems)
			continue
		}
		o := d.Entries[0]
		gvk := o.Object.(runtime.Object).GetObjectKind().GroupVersionKind()
		version := strings.TrimPrefix(test.goType[:strings.Index(test.goType, ".")], "*")
		if got := fmt.Sprintf("%T", o.Object); got != test.goType || gvk.Version != version || gvk.Kind != test.kind || gvk.Group != o.ID.Group {
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
	gw := one[*gwv1.Gateway](t, `
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
	if c := one[*gwv1.GatewayClass](t, "apiVersion: gateway.networking.k8s.io/v1\nkind: GatewayClass\nmetadata: {name: a, namespace: b}\nspec: {controllerName: a.b/c}\n"); c.Namespace != "" {
		t.Errorf("namespace %q", c.Namespace)
	}
}

func TestCoreDefaults(t *testing.T) {
	s := one[*corev1.Service](t, "apiVersion: v1\nkind: Service\nmetadata: {name: s}\nspec: {ports: [{name: a, port: 80}, {name: b, port: 81, targetPort: http, protocol: UDP}]}\n")
	want := []corev1.ServicePort{
		{Name: "a", Port: 80, Protocol: "TCP", TargetPort: intstr.FromInt32(80)},
		{Name: "b", Port: 81, Protocol: "UDP", TargetPort: intstr.FromString("http")},
	}
	if !reflect.DeepEqual(s.Spec.Ports, want) || s.Spec.Type != "ClusterIP" {
		t.Errorf("Service: %+v", s.Spec)
	}
	e := one[*discoveryv1.EndpointSlice](t, "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {name: e}\naddressType: IPv4\nports: [{port: 80}]\nendpoints: [{addresses: [127.0.0.1]}]\n")
	if *e.Ports[0].Protocol != "TCP" || *e.Ports[0].Name != "" || e.Endpoints[0].Conditions.Ready != nil {
		t.Errorf("EndpointSlice: %+v", e)
	}
	x := one[*corev1.Secret](t, "apiVersion: v1\nkind: Secret\nmetadata: {name: s}\ndata: {a: YQ==, b: Yg==}\nstringData: {b: new, c: \"\"}\n")
	if wantData := map[string][]byte{"a": []byte("a"), "b": []byte("new"), "c": {}}; !reflect.DeepEqual(x.Data, wantData) || x.StringData != nil || x.Type != "Opaque" {
		t.Errorf("Secret: %+v", x)
	}
}

func TestFormats(t *testing.T) {
	const inJSON = `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"%s"},"data":{"k":"\ud83d\ude00 \/"}}`
	for _, test := range []struct {
		name, text string
		want       []string
	}{
		{"several values in JSON", fmt.Sprintf(inJSON, "a") + "\n" + fmt.Sprintf(inJSON, "b"), []string{"ConfigMap default/a", "ConfigMap default/b"}},
		{"JSON indented with tabs", "{\n\t\"apiVersion\": \"v1\",\n\t\"kind\": \"ConfigMap\",\n\t\"metadata\": {\"name\": \"a\"}\n}", []string{"ConfigMap default/a"}},
		{"flow mapping", "{apiVersion: v1, kind: ConfigMap, metadata: {name: a}}", []string{"ConfigMap default/a"}},
		{"List", "apiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: ConfigMap, metadata: {name: a}}\n- {apiVersion: v1, kind: Secret, metadata: {name: a}}\n", []string{"ConfigMap default/a", "Secret default/a"}},
		{"typed list", "apiVersion: v1\nkind: ConfigMapList\nitems:\n- {metadata: {name: a}}\n", []string{"ConfigMap default/a"}},
		{"empty documents, comments, directives, end markers", "# nothing\n---\n---\n# still\n---\nnull\n...\n%YAML 1.1\n--- # a comment\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n...\n---\n", []string{"ConfigMap default/a"}},
		{"carriage returns and byte order mark", "\xef\xbb\xbfapiVersion: v1\r\nkind: ConfigMap\r\nmetadata:\r\n  name: a\r\n---\r\napiVersion: v1\r\nkind: ConfigMap\r\nmetadata:\r\n  name: b\r\n", []string{"ConfigMap default/a", "ConfigMap default/b"}},
		{"marker inside a text", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata:\n  k: |\n    ---\n    x\n", []string{"ConfigMap default/a"}},
		{"anchors and merge keys", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, labels: &l {x: z}, annotations: {<<: *l, k: v}}\n", []string{"ConfigMap default/a"}},
		{"an empty file", "", nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			d := read(test.text)
			if got := d.names(); len(d.Problems) > 0 || !slices.Equal(got, test.want) {
				t.Errorf("got %v, want %v; problems %v", got, test.want, d.Problems)
			}
		})
	}
	if c := one[*corev1.ConfigMap](t, fmt.Sprintf(inJSON, "a")); c.Data["k"] != "\U0001f600 /" {
		t.Errorf("JSON escapes: %q", c.Data["k"])
	}
}

// FuzzDecode: whatever a file holds, the decoder neither panics nor runs away,
// and each thing it reports can be acted on.
func FuzzDecode(f *testing.F) {
	f.Add([]byte(webRoute))
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
		for _, c := range Split(text) {
			d := Decode(c.Text)
			problems := slices.Clone(d.Problems)
			for _, e := range d.Entries {
				if (e.Object == nil) != (len(e.Problems) > 0) {
					t.Fatalf("%v: object %v with problems %v", e.ID, e.Object, e.Problems)
				}
				problems = append(problems, e.Problems...)
			}
			for _, p := range problems {
				if p.Message == "" || p.Remedy == "" || strings.Contains(p.String(), "\n") {
					t.Fatalf("not a useful problem: %+v", p)
				}
				if line := c.Line + p.Line; line < 1 || line > lines {
					t.Fatalf("line %d of %d: %v", line, lines, p)
				}
			}
		}
	})
}
