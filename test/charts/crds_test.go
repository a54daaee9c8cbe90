package charts

import (
	"context"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	release "helm.sh/helm/v4/pkg/release/v1"
	"helm.sh/helm/v4/pkg/storage/driver"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes/fake"
	"sigs.k8s.io/yaml"
)

// copies are the files of the charts that come from elsewhere, and from where.
func copies(t *testing.T) map[string]string {
	t.Helper()
	from := map[string]string{}
	add := func(to, pattern string) {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			t.Fatalf("no %s: %v", pattern, err)
		}
		for _, file := range files {
			folder := filepath.Join(root, "charts", to)
			if strings.Contains(file, "_vap_") {
				// Apart from the CRDs, so that these can be applied without it. And where Helm
				// creates what is absent, and asks for nothing, the policy could come to stand
				// beside CRDs that it then refuses to update.
				if strings.HasSuffix(to, "/crds") {
					continue
				}
				folder = filepath.Join(folder, "policy")
			}
			from[filepath.Join(folder, filepath.Base(file))] = file
		}
	}
	crds := filepath.Join(gatewayAPI(t), "config/crd")
	for _, channel := range []string{"standard", "experimental"} {
		add("moongate-crds/charts/"+channel+"/files", filepath.Join(crds, channel, "gateway.networking.*.yaml"))
	}
	add("moongate/charts/crds/crds", filepath.Join(crds, "standard/gateway.networking.*.yaml"))
	add("moongate/charts/crds/crds", filepath.Join(root, "api/v1alpha1/*.yaml"))
	add("moongate-crds/charts/moongate/files", filepath.Join(root, "api/v1alpha1/*.yaml"))
	add("moongate-crds/charts/envoygateway/files", filepath.Join(root, "api/envoygateway/v1alpha1/*.yaml"))
	return from
}

// TestCopies checks that the charts have the files of the Gateway API's module and of
// api/, no other ones, and nothing changed in them.
func TestCopies(t *testing.T) {
	from := copies(t)
	there := map[string]bool{}
	for _, pattern := range []string{"moongate-crds/charts/*/files/*.yaml", "moongate-crds/charts/*/files/policy/*", "moongate/charts/crds/crds/*"} {
		files, err := filepath.Glob(filepath.Join(root, "charts", pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			there[file] = true
		}
	}
	if *update {
		for file := range there {
			if err := os.Remove(file); err != nil {
				t.Fatal(err)
			}
		}
		clear(there)
		for to, file := range from {
			if err := os.WriteFile(to, []byte(read(t, file)), 0o644); err != nil {
				t.Fatal(err)
			}
			there[to] = true
		}
	}
	for file := range there {
		if from[file] == "" {
			t.Errorf("%s comes from nowhere: run make manifest", file)
		}
	}
	for to, file := range from {
		if !there[to] || read(t, to) != read(t, file) {
			t.Errorf("%s is not %s: run make manifest", to, file)
		}
	}
}

// TestCRDs checks what is created on an empty cluster: everything of the channel, as it
// is upstream, and to be kept.
func TestCRDs(t *testing.T) {
	for _, channel := range []string{"standard", "experimental"} {
		r := mustRender(t, "moongate-crds", map[string]any{"channel": channel})
		r.objects(t) // decodes strictly
		var want, got []string
		for to, file := range copies(t) {
			if strings.Contains(to, "/charts/"+channel+"/") || strings.Contains(to, "moongate-crds/charts/moongate/") {
				for _, document := range documents(read(t, file)) {
					want = append(want, canonical(t, document))
				}
			}
		}
		for _, document := range r.documents {
			if !strings.Contains(document, "helm.sh/resource-policy: keep\n") {
				t.Errorf("Helm would remove this:\n%.300s", document)
			}
			got = append(got, canonical(t, document))
		}
		slices.Sort(want)
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("%s: what is rendered is not what upstream ships, but for annotations", channel)
		}
		if !strings.Contains(r.notes, "v1.7.0, channel "+channel) {
			t.Errorf("notes:\n%s", r.notes)
		}
	}
}

func documents(text string) []string {
	var all []string
	for _, document := range strings.Split("\n"+text, "\n---\n") {
		if strings.TrimSpace(document) != "" {
			all = append(all, document)
		}
	}
	return all
}

// canonical is a document without the annotations that the chart adds.
func canonical(t *testing.T, document string) string {
	t.Helper()
	var object unstructured.Unstructured
	if err := yaml.Unmarshal([]byte(document), &object.Object); err != nil {
		t.Fatal(err)
	}
	annotations := object.GetAnnotations()
	delete(annotations, "helm.sh/resource-policy")
	delete(annotations, "moongate.dev/chart-version")
	object.SetAnnotations(annotations)
	text, err := json.Marshal(object.Object)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

const gatewayCRD, ourCRD, policy = "gateways.gateway.networking.k8s.io", "gatewayparameters.moongate.dev", "safe-upgrades.gateway.networking.k8s.io"

func existing(name string, annotations map[string]string) *unstructured.Unstructured {
	object := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition"}}
	if name == policy {
		object = &unstructured.Unstructured{Object: map[string]any{"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy"}}
	}
	object.SetName(name)
	object.SetAnnotations(annotations)
	return object
}

// bundle are annotations as upstream has them; with is added.
func bundle(version, channel string, with map[string]string) map[string]string {
	annotations := map[string]string{"gateway.networking.k8s.io/bundle-version": version, "gateway.networking.k8s.io/channel": channel}
	maps.Copy(annotations, with)
	return annotations
}

// TestExisting checks that nothing is overwritten that is newer or another's.
func TestExisting(t *testing.T) {
	ours := map[string]string{"meta.helm.sh/release-name": "moongate-crds", "meta.helm.sh/release-namespace": "moongate-crds-system"}
	other := map[string]string{"meta.helm.sh/release-name": "moongate-crds", "meta.helm.sh/release-namespace": "elsewhere"}
	version := func(v string, with map[string]string) map[string]string {
		with = maps.Clone(with)
		with["moongate.dev/chart-version"] = v
		return with
	}
	for _, test := range []struct {
		name    string
		object  *unstructured.Unstructured
		values  string
		written bool   // the bundle that the object belongs to
		notes   string // say why, and what is there
	}{
		{"ours, older", existing(gatewayCRD, bundle("v1.6.1", "standard", ours)), "{}", true, ""},
		{"ours, the same", existing(gatewayCRD, bundle("v1.7.0", "standard", ours)), "{}", true, ""},
		{"ours, a candidate of this version", existing(gatewayCRD, bundle("v1.7.0-rc.1", "standard", ours)), "{}", true, ""},
		{"ours, newer", existing(gatewayCRD, bundle("v1.7.1", "standard", ours)), "{}", false, "newer than v1.7.0"},
		{"ours, a newer minor by its number", existing(gatewayCRD, bundle("v1.10.0", "standard", ours)), "{}", false, "newer than v1.7.0"},
		{"ours, a newer candidate", existing(gatewayCRD, bundle("v1.8.0-rc.1", "standard", ours)), "{}", false, "newer than v1.7.0"},
		{"ours, a version of a branch", existing(gatewayCRD, bundle("main", "standard", ours)), "{}", false, "cannot be told"},
		{"ours, experimental", existing(gatewayCRD, bundle("v1.7.0", "experimental", ours)), "{}", false, "not of channel standard"},
		{"ours, experimental, as asked for", existing(gatewayCRD, bundle("v1.7.0", "experimental", ours)), "{channel: experimental}", true, ""},
		{"applied by hand", existing(gatewayCRD, bundle("v1.6.0", "standard", nil)), "{}", false, "gateways.gateway.networking.k8s.io (v1.6.0, channel standard)"},
		{"without annotations", existing(gatewayCRD, nil), "{}", false, "(no version, channel none)"},
		{"of a release elsewhere", existing(gatewayCRD, bundle("v1.7.0", "standard", other)), "{}", false, "did not create"},
		{"taken over", existing(gatewayCRD, bundle("v1.6.0", "standard", nil)), "{takeOwnership: true}", true, ""},
		{"taken over, newer", existing(gatewayCRD, bundle("v1.8.0", "standard", nil)), "{takeOwnership: true}", false, "newer"},
		{"taken over, experimental", existing(gatewayCRD, bundle("v1.7.0", "experimental", nil)), "{takeOwnership: true}", false, "not of channel"},
		{"taken over, without annotations", existing(gatewayCRD, nil), "{takeOwnership: true}", false, "not of channel"},
		{"experimental kind only", existing("xmeshes.gateway.networking.x-k8s.io", bundle("v1.7.0", "experimental", nil)), "{channel: experimental}", false, "did not create"},
		{"our CRD, ours, older", existing(ourCRD, version("0.0.9", ours)), "{}", true, ""},
		{"our CRD, ours, newer", existing(ourCRD, version("0.2.0", ours)), "{}", false, "newer than 0.1.0"},
		{"our CRD, from the chart moongate", existing(ourCRD, nil), "{}", false, "did not create"},
		{"our CRD, from the chart moongate, taken over", existing(ourCRD, nil), "{takeOwnership: true}", true, ""},
		{"our CRD, newer, taken over", existing(ourCRD, version("0.2.0", map[string]string{})), "{takeOwnership: true}", false, "newer"},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := mustRender(t, "moongate-crds", parse(t, test.values), test.object)
			written := map[bool]int{} // by whether they are of moongate.dev
			for _, name := range r.names(t) {
				written[strings.HasSuffix(name, ".moongate.dev")]++
			}
			concerned := test.object.GetName() == ourCRD
			if (written[concerned] > 0) != test.written || written[!concerned] == 0 {
				t.Errorf("written: %q", r.names(t))
			}
			if !strings.Contains(r.notes, test.notes) {
				t.Errorf("notes lack %q:\n%s", test.notes, r.notes)
			}
			if told := strings.Contains(r.notes, "left as they are"); told == test.written {
				t.Errorf("written %v, notes:\n%s", test.written, r.notes)
			}
		})
	}
}

// TestBackendTrafficPolicy checks that its CRD comes where it is asked for, and never takes the place of another's.
func TestBackendTrafficPolicy(t *testing.T) {
	const name, notes = "backendtrafficpolicies.gateway.envoyproxy.io", "CRD of BackendTrafficPolicy"
	ours := map[string]string{"meta.helm.sh/release-name": "moongate-crds", "meta.helm.sh/release-namespace": "moongate-crds-system", "moongate.dev/chart-version": "0.0.9"}
	for _, test := range []struct {
		name    string
		object  *unstructured.Unstructured
		values  string
		written bool
		notes   string
	}{
		{"not asked for", existing(gatewayCRD, nil), "{}", false, ""},
		{"asked for", existing(gatewayCRD, nil), "{backendTrafficPolicy: true}", true, notes + " is there: 0.1.0"},
		{"ours, older", existing(name, ours), "{backendTrafficPolicy: true}", true, notes + " is there"},
		{"another's", existing(name, nil), "{backendTrafficPolicy: true}", false, notes + " was left as it is: this release did not create them"},
		{"another's, and others are taken over", existing(name, nil), "{backendTrafficPolicy: true, takeOwnership: true}", false, notes + " was left as it is"},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := mustRender(t, "moongate-crds", parse(t, test.values), test.object)
			if got := slices.Contains(r.names(t), "CustomResourceDefinition "+name); got != test.written {
				t.Errorf("written: %v", got)
			}
			if !strings.Contains(r.notes, test.notes) || test.notes == "" && strings.Contains(r.notes, notes) {
				t.Errorf("notes:\n%s", r.notes)
			}
		})
	}
}

// TestForeignPolicy checks that a policy of somebody else's stands, and the CRDs come.
func TestForeignPolicy(t *testing.T) {
	r := mustRender(t, "moongate-crds", nil, existing(policy, bundle("v1.7.0", "standard", nil)))
	names := r.names(t)
	if slices.ContainsFunc(names, func(name string) bool { return strings.HasPrefix(name, "ValidatingAdmissionPolicy") }) {
		t.Errorf("written: %q", names)
	}
	if !slices.Contains(names, "CustomResourceDefinition "+gatewayCRD) {
		t.Errorf("not written: %q", names)
	}
}

// TestReleaseFits checks that a revision of each release fits into the Secret that Helm
// keeps it in.
func TestReleaseFits(t *testing.T) {
	const limit = 1 << 20 // of a Secret's data, as the API server has it
	for _, test := range []struct{ chart, values string }{
		{"moongate", "{}"},
		{"moongate-crds", "{channel: standard}"},
		{"moongate-crds", "{channel: experimental}"},
	} {
		r := mustRender(t, test.chart, parse(t, test.values))
		client := fake.NewClientset().CoreV1().Secrets("default")
		err := driver.NewSecrets(client).Create("v1", &release.Release{
			Name: test.chart, Namespace: "default", Version: 1, Chart: r.chart, Info: &release.Info{Notes: r.notes}, Manifest: strings.Join(r.documents, "---\n"),
		})
		if err != nil {
			t.Fatal(err)
		}
		secrets, err := client.List(context.Background(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		size := len(secrets.Items[0].Data["release"])
		t.Logf("%s %s: %d bytes", test.chart, test.values, size)
		if size == 0 || size > limit*3/4 {
			t.Errorf("a release of %s with %s takes %d bytes, near or over the limit of %d", test.chart, test.values, size, limit)
		}
	}
}
