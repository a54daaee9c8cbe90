package files

import (
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

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
	write(t, "same.yaml", "# as in m/a.yaml\n"+config("\"first\""))
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
		{[]string{"m/a.yaml", "same.yaml"}, "first", []string{"m/a.yaml:6: ConfigMap default/c: is already defined at m/a.yaml:1, which is used; remove one of the two"}},
		{[]string{"m/b.yaml", "same.yaml"}, "second", []string{"same.yaml:2: ConfigMap default/c: is already defined at m/b.yaml:1, which is used; remove one of the two"}},
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

// Folders hold files of other programs too; a file that is named is meant to be a manifest.
func TestFilesOfOtherProgramsAreIgnoredInFolders(t *testing.T) {
	t.Chdir(t.TempDir())
	write(t, "values.yaml", "replicas: 3\nimage: {tag: x}\n")
	write(t, "half.yaml", "kind: Service\nmetadata: {name: a}\n")
	write(t, "named.yaml", "services: {web: {image: nginx}}\n")
	write(t, "patch.yaml", "- {op: replace, path: /spec/replicas, value: 3}\n")
	write(t, "package.json", `["a", "b"]`)
	write(t, "note.yaml", "just text\n")
	write(t, "objects.json", `[{"apiVersion": "v1", "kind": "Service", "metadata": {"name": "a"}}]`)
	write(t, "playbook.yaml", "- hosts: all\n")
	write(t, "kubeconfig.yaml", "{apiVersion: v1, kind: Config, clusters: []}\n")
	var got []string
	for _, p := range source(t, ".", "named.yaml", "playbook.yaml").Load().Problems {
		got = append(got, p.String()+" "+string(p.Reason))
	}
	want := []string{
		`half.yaml:1: Service default/a: apiVersion: required field is missing or not a string; add "apiVersion" Malformed`,
		`named.yaml:1: is not an object of Kubernetes: it has neither apiVersion nor kind; begin with "apiVersion:", "kind:" and "metadata:" Foreign`,
		"note.yaml:1: ignored: is not an object; nothing needs to be done Ignored",
		`objects.json:1: is a list, not an object; put it under "items:" of a "kind: List" with "apiVersion: v1" Malformed`,
		"package.json:1: ignored: is a list, not an object; nothing needs to be done Ignored",
		"patch.yaml:1: ignored: is a list, not an object; nothing needs to be done Ignored",
		`playbook.yaml:1: is a list, not an object; put it under "items:" of a "kind: List" with "apiVersion: v1" Foreign`,
		"values.yaml:1: ignored: is not an object of Kubernetes: it has neither apiVersion nor kind; nothing needs to be done Ignored",
		"kubeconfig.yaml:1: Config: ignored: this kind (v1) is not used here; nothing needs to be done Ignored",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}
