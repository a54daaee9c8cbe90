package charts

import (
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	chartcommon "helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	chart "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	chartutil "helm.sh/helm/v4/pkg/chart/v2/util"
	"helm.sh/helm/v4/pkg/engine"
	releaseutil "helm.sh/helm/v4/pkg/release/v1/util"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/fake"
	kubernetes "k8s.io/client-go/kubernetes/scheme"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"
	"sigs.k8s.io/yaml"

	"github.com/moongate-dev/moongate/api/v1alpha1"
)

const root = "../.."

// rendered is what Helm would install.
type rendered struct {
	chart     *chart.Chart
	notes     string
	documents []string // in the order in which Helm creates them
}

// load reads a chart of ours.
func load(t *testing.T, name string) *chart.Chart {
	t.Helper()
	c, err := loader.Load(filepath.Join(root, "charts", name))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// render does what `helm install NAME --namespace NAME-system` does with a chart, up to
// where it would ask the API server to create something. In is what the cluster has.
func render(t *testing.T, name string, values map[string]any, in ...*unstructured.Unstructured) (rendered, error) {
	t.Helper()
	c := load(t, name)
	if err := chartutil.ProcessDependencies(c, values); err != nil {
		return rendered{}, err
	}
	options := chartcommon.ReleaseOptions{Name: name, Namespace: name + "-system", IsInstall: true}
	all, err := util.ToRenderValues(c, values, options, nil)
	if err != nil {
		return rendered{}, err
	}
	files, err := engine.RenderWithClientProvider(c, all, cluster(in))
	if err != nil {
		return rendered{}, err
	}
	r := rendered{chart: c, notes: files[path.Join(name, "templates/NOTES.txt")]}
	maps.DeleteFunc(files, func(file, _ string) bool { return path.Base(file) == "NOTES.txt" })
	hooks, manifests, err := releaseutil.SortManifests(files, nil, releaseutil.InstallOrder)
	if err != nil {
		return rendered{}, err
	}
	if len(hooks) > 0 {
		t.Errorf("chart %s has hooks, which no release owns", name)
	}
	for _, m := range manifests {
		r.documents = append(r.documents, strings.TrimSpace(m.Content)+"\n")
	}
	return r, nil
}

func mustRender(t *testing.T, name string, values map[string]any, in ...*unstructured.Unstructured) rendered {
	t.Helper()
	r, err := render(t, name, values, in...)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// cluster is what templates find by lookup.
type cluster []*unstructured.Unstructured

func (c cluster) GetClientFor(apiVersion, kind string) (dynamic.NamespaceableResourceInterface, bool, error) {
	plurals := map[string]string{
		"CustomResourceDefinition":  "customresourcedefinitions",
		"ValidatingAdmissionPolicy": "validatingadmissionpolicies",
	}
	resource := schema.FromAPIVersionAndKind(apiVersion, kind).GroupVersion().WithResource(plurals[kind])
	client := fake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), map[schema.GroupVersionResource]string{resource: kind + "List"})
	for _, object := range c {
		if object.GetKind() == kind {
			if err := client.Tracker().Create(resource, object, ""); err != nil {
				return nil, false, err
			}
		}
	}
	return client.Resource(resource), false, nil
}

// decode turns a document into its Go type, and refuses fields that the type lacks.
func decode(t *testing.T, document string) runtime.Object {
	t.Helper()
	object, _, err := strict.Decode([]byte(document), nil, nil)
	if err != nil {
		t.Fatalf("%v\n%s", err, document)
	}
	return object
}

var strict = func() runtime.Decoder {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		kubernetes.AddToScheme, apiextensions.AddToScheme, gwv1.Install, v1alpha1.AddToScheme, monitoring.AddToScheme,
	} {
		if err := add(scheme); err != nil {
			panic(err)
		}
	}
	return serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDeserializer()
}()

// objects decodes everything that was rendered, by "Kind name", or "Kind namespace/name" outside the release's namespace.
func (r rendered) objects(t *testing.T) map[string]runtime.Object {
	t.Helper()
	objects := map[string]runtime.Object{}
	for _, document := range r.documents {
		var head unstructured.Unstructured
		if err := yaml.Unmarshal([]byte(document), &head.Object); err != nil {
			t.Fatal(err)
		}
		name := head.GetKind() + " " + head.GetName()
		if ns := head.GetNamespace(); ns != "" && ns != r.chart.Name()+"-system" {
			name = head.GetKind() + " " + ns + "/" + head.GetName()
		}
		if objects[name] != nil {
			t.Errorf("%s was rendered twice", name)
		}
		objects[name] = decode(t, document)
	}
	return objects
}

// names are "Kind name" of everything that was rendered, sorted.
func (r rendered) names(t *testing.T) []string {
	t.Helper()
	var names []string
	for _, document := range r.documents {
		kind, name := kindLine.FindStringSubmatch(document), nameLine.FindStringSubmatch(document)
		if kind == nil || name == nil {
			t.Fatalf("no kind or name:\n%.300s", document)
		}
		names = append(names, kind[1]+" "+name[1])
	}
	slices.Sort(names)
	return names
}

var (
	kindLine = regexp.MustCompile(`(?m)^kind: (\w+)$`)
	nameLine = regexp.MustCompile(`(?m)^  name: "?([^"\n]+)`)
)

// get finds an object of a type among them.
func get[T runtime.Object](t *testing.T, r rendered, name string) T {
	t.Helper()
	object, ok := r.objects(t)[name].(T)
	if !ok {
		t.Fatalf("%s was not rendered; there is %q", name, r.names(t))
	}
	return object
}

// gatewayAPI is the folder of the Gateway API's module.
func gatewayAPI(t *testing.T) string {
	t.Helper()
	list := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/gateway-api")
	list.Dir, list.Stderr = root, os.Stderr
	out, err := list.Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(out))
}

func read(t *testing.T, elem ...string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(elem...))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
