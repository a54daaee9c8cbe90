package kind

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/yaml"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"
)

func TestRows(t *testing.T) {
	names := map[string]bool{}
	for _, k := range All() {
		if names[k.Name] {
			t.Errorf("two kinds are named %s", k.Name)
		}
		names[k.Name] = true
		o := k.New()
		if Of(o) != k || Named(k.Name) != k || Find(k.Group, k.Name) != k || Find("other.example", k.Name) != nil {
			t.Errorf("%s is not found", k.Name)
		}
		if got := reflect.TypeOf(o).Elem().Name(); got != k.Name {
			t.Errorf("%s has the Go type %s", k.Name, got)
		}
		o.SetNamespace("n")
		o.SetName("x")
		if key := KeyOf(o); key != k.Key("n", "x") || key.Kind != k.Name || key.Group != k.Group {
			t.Errorf("the key of %s is %+v", k.Name, key)
		}
		if len(k.Versions) == 0 || k.Resource == "" {
			t.Errorf("%s has no version or no resource", k.Name)
		}
		if _, list := k.Known(); k.Optional && reflect.TypeOf(list).Elem().Name() != k.Name+"List" {
			t.Errorf("lists of %s are %T", k.Name, list)
		}
		if k.Cluster != Unread && k.keep == nil {
			t.Errorf("%s is read from a cluster, and nothing says what is kept", k.Name)
		}
	}
	if Of(&corev1.Pod{}) != nil || Named("Pod") != nil || StatusOf(&corev1.Service{}) != nil || ParentsOf(&gwv1.Gateway{}) != nil {
		t.Error("something is known of what is in no row")
	}
}

// TestViewOfFiles: an object of a file has nothing that views leave out, and is kept once.
func TestViewOfFiles(t *testing.T) {
	for _, k := range All() {
		o := k.New()
		o.SetName("x")
		o.SetLabels(map[string]string{"l": "1"})
		if v := k.View(o); v != o {
			t.Errorf("the view of %s is a copy", k.Name)
		}
	}
}

// TestRenew: an object with another status and version shares what translation reads with the version before.
func TestRenew(t *testing.T) {
	for _, k := range All() {
		known, o := k.New(), k.New()
		for _, each := range []metav1.Object{known, o} {
			each.SetName("x")
			each.SetUID("1")
			each.SetLabels(map[string]string{"l": "1"})
		}
		if !k.HasStatus() {
			if got := k.Renew(known, o); got != known {
				t.Errorf("%s: the version before is replaced by an equal one", k.Name)
			}
			continue
		}
		known.SetResourceVersion("6")
		known.SetAnnotations(map[string]string{"a": "1"})
		o.SetResourceVersion("7")
		o.SetFinalizers([]string{"f"})
		o.SetOwnerReferences([]metav1.OwnerReference{{Name: "o"}})
		f := reflect.ValueOf(StatusOf(o)).Elem().Field(0)
		f.Set(reflect.MakeSlice(f.Type(), 1, 1))
		got := k.Renew(known, o)
		if got == known || got == o || !reflect.DeepEqual(got, o) {
			t.Errorf("%s: got %+v, want %+v", k.Name, got, o)
		}
		if known.GetLabels()["l"] = "2"; got.GetLabels()["l"] != "2" {
			t.Errorf("%s: the labels are in memory twice", k.Name)
		}
		if known.GetResourceVersion() != "6" || len(known.GetAnnotations()) != 1 || len(known.GetFinalizers()) > 0 {
			t.Errorf("%s: the version before has changed: %+v", k.Name, known)
		}
	}
}

// TestViewHasNoStatus checks that what status writes change is not in views, and that views without it are copies.
func TestViewHasNoStatus(t *testing.T) {
	for _, k := range All() {
		o := k.New()
		o.SetName("x")
		o.SetResourceVersion("7")
		o.SetManagedFields([]metav1.ManagedFieldsEntry{{Manager: "m"}})
		o.SetLabels(map[string]string{"l": "1"})
		if s := StatusOf(o); s != nil { // any field will do
			f := reflect.ValueOf(s).Elem().Field(0)
			f.Set(reflect.MakeSlice(f.Type(), 1, 1))
		}
		v := k.View(o)
		if v == o || v.GetResourceVersion() != "" || v.GetManagedFields() != nil || v.GetLabels()["l"] != "1" || v.GetName() != "x" {
			t.Errorf("the view of %s is %+v", k.Name, v)
		}
		if s := StatusOf(v); s != nil && !reflect.ValueOf(s).Elem().IsZero() {
			t.Errorf("the view of %s has the status %+v", k.Name, s)
		}
		if s := StatusOf(o); o.GetResourceVersion() != "7" || s != nil && reflect.ValueOf(s).Elem().IsZero() {
			t.Errorf("making a view of %s has changed it", k.Name)
		}
	}
}

func TestParentsOfEveryRoute(t *testing.T) {
	routes := 0
	for _, k := range All() {
		if !k.Route() {
			continue
		}
		routes++
		o := k.New()
		spec := reflect.ValueOf(o).Elem().FieldByName("Spec").FieldByName("CommonRouteSpec").Addr().Interface().(*gwv1.CommonRouteSpec)
		spec.ParentRefs = []gwv1.ParentReference{{Name: "gw"}}
		if refs := ParentsOf(o); len(refs) != 1 || refs[0].Name != "gw" {
			t.Errorf("the parents of a %s are %v", k.Name, refs)
		}
		if _, ok := StatusOf(o).(*gwv1.RouteStatus); !ok || !k.Shared() {
			t.Errorf("the status of a %s is a %T, shared %v", k.Name, StatusOf(o), k.Shared())
		}
	}
	if routes != 5 {
		t.Errorf("%d kinds of routes", routes)
	}
}

func TestLeftover(t *testing.T) {
	meta := metav1.ObjectMeta{Namespace: "n", Name: "x"}
	u := BackendTLSPolicy.Leftover([]byte(`{"spec":{"targetRefs":[{"kind":"Service","name":"s"}]}}`), meta, errors.New("bad"))
	if u == nil || u.Kind != "BackendTLSPolicy" || u.Name != "x" || u.Error != "bad" || len(u.Targets) != 1 || u.Targets[0].Name != "s" {
		t.Errorf("of a policy is left %+v", u)
	}
	u = GatewayParameters.Leftover([]byte(`{"spec":{"classOnly":{"deniedEndpoints":["10.0.0.0/8",7],"locked":["ports",{},"listeners"]}}}`), meta, errors.New("bad"))
	if u == nil || !slices.Equal(u.DeniedEndpoints, []string{"10.0.0.0/8"}) || !slices.Equal(u.Locked, []string{"ports", "listeners"}) {
		t.Errorf("of GatewayParameters is left %+v", u)
	}
	if HTTPRoute.Leftover(nil, meta, errors.New("bad")) != nil {
		t.Error("a route closes something")
	}
}

// TestPermissions checks that the chart gives the controller the permissions that the table asks for: of custom resources no others.
func TestPermissions(t *testing.T) {
	granted := chartPermissions(t)
	for _, k := range All() {
		main, status := permissions(k)
		for resource, want := range map[string][]string{k.Resource: main, k.Resource + "/status": status} {
			got := granted[resource+"."+k.Group]
			slices.Sort(want)
			slices.Sort(got)
			switch {
			case k.Custom && !slices.Equal(got, want):
				t.Errorf("the chart grants %v on %s of group %s, and the table asks for %v", got, resource, k.Group, want)
			case !k.Custom: // which are provisioned, too
				for _, verb := range want {
					if !slices.Contains(got, verb) {
						t.Errorf("the chart does not grant %s on %s of group %q", verb, resource, k.Group)
					}
				}
			}
		}
	}
}

// TestShortNames compares with what CustomResourceDefinitions say that kubectl takes.
func TestShortNames(t *testing.T) {
	files, err := filepath.Glob("../../charts/moongate-crds/charts/*/files/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var crd apiextensionsv1.CustomResourceDefinition
		if err := yaml.Unmarshal(data, &crd); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		names := slices.DeleteFunc(crd.Spec.Names.ShortNames, func(n string) bool { return n == crd.Spec.Names.Singular })
		if k := Find(crd.Spec.Group, crd.Spec.Names.Kind); k != nil && k.ShortName != strings.Join(names, " ") {
			t.Errorf("%s has the short name %q, want %q", k.Name, k.ShortName, names)
		}
	}
}

// permissions are the verbs that the controller needs on objects of a kind and on their statuses.
func permissions(k *Kind) (object, status []string) {
	if k.Cluster != Unread {
		object = append(object, "list", "watch")
	}
	if k.Cluster == Fetched || k.HasStatus() { // or read by itself, where the write of its status met another's
		object = append(object, "get")
	}
	if k.Finalizer {
		object = append(object, "patch")
	}
	if k.HasStatus() {
		status = append(status, "patch")
	}
	return object, status
}

// chartPermissions are the verbs of the controller's ClusterRole in the rendered chart, by "<resource>.<group>".
func chartPermissions(t *testing.T) map[string][]string {
	f, err := os.Open("../../deploy/moongate.yaml")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	granted := map[string][]string{}
	for d := yaml.NewYAMLOrJSONDecoder(f, 4096); ; {
		var role rbacv1.ClusterRole
		if err := d.Decode(&role); err == io.EOF {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		if role.Kind != "ClusterRole" {
			continue
		}
		for _, rule := range role.Rules {
			for _, group := range rule.APIGroups {
				for _, resource := range rule.Resources {
					granted[resource+"."+group] = append(granted[resource+"."+group], rule.Verbs...)
				}
			}
		}
	}
	if len(granted) == 0 {
		t.Fatal("the chart has no ClusterRole")
	}
	return granted
}
