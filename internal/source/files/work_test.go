package files

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/moongate-dev/moongate/internal/kind"
)

// followed is a follower without its event loop.
func followed(t *testing.T, paths ...string) *follower {
	t.Helper()
	s := source(t, paths...)
	f := &follower{source: s, watcher: watcher(t), unquiet: map[string]wait{}, catalog: newCatalog(s)}
	f.rescan.begin(time.Now(), 0)
	if first := f.update(); len(first.Problems) > 0 {
		t.Fatal(first.Problems)
	}
	return f
}

// after brings the catalog up to date with changes of files that are at rest.
func (f *follower) after(paths ...string) (Change, work) {
	before := f.catalog.work
	for _, path := range paths {
		f.unquiet[path] = wait{since: time.Now(), due: time.Now()}
	}
	change := f.update()
	now := f.catalog.work
	return change, work{now.scans - before.scans, now.read - before.read, now.decoded - before.decoded}
}

// TestWorkOfAnEdit holds what a change may cost, however much there is besides.
func TestWorkOfAnEdit(t *testing.T) {
	dir := t.TempDir()
	name := func(i int) string { return filepath.Join(dir, fmt.Sprintf("%03d.yaml", i)) }
	for i := range 200 {
		write(t, name(i), config(fmt.Sprint("c", i), "one")+config(fmt.Sprint("d", i), "one"))
	}
	f := followed(t, dir)
	check := func(what string, change Change, did, want work, upserts, deletes int) {
		t.Helper()
		if did != want || len(change.Upserts) != upserts || len(change.Deletes) != deletes || change.ProblemsChanged {
			t.Errorf("%s: scans, reads and decodes %v, want %v; %d upserts, %d deletes", what, did, want, len(change.Upserts), len(change.Deletes))
		}
	}
	write(t, name(7), config("c7", "two")+config("d7", "one"))
	change, did := f.after(name(7))
	check("an edit", change, did, work{0, 1, 1}, 1, 0)

	write(t, name(7), "# moved down\n"+config("c7", "two")+config("new", "one")+config("d7", "one"))
	change, did = f.after(name(7))
	check("an insertion", change, did, work{0, 1, 2}, 1, 0) // the comment is part of the first document
	if p := f.catalog.objects[kind.ObjectKey{Kind: "ConfigMap", Namespace: "default", Name: "d7"}].position(); p.Line != 12 {
		t.Errorf("the position of what is below is %v", p)
	}

	write(t, name(500), config("c500", "one"))
	change, did = f.after(name(500))
	check("a new file", change, did, work{0, 1, 1}, 1, 0)

	if err := os.Rename(name(8), name(600)); err != nil {
		t.Fatal(err)
	}
	change, did = f.after(name(8), name(600))
	check("a file under a new name", change, did, work{0, 1, 2}, 0, 0)

	if err := os.Remove(name(9)); err != nil {
		t.Fatal(err)
	}
	change, did = f.after(name(9))
	check("a file that is gone", change, did, work{}, 0, 0)
	for f.catalog.files[name(9)] != nil { // more than once if it is woken late
		time.Sleep(time.Until(f.catalog.files[name(9)].pending))
		change, did = f.after()
	}
	check("after the grace period", change, did, work{}, 0, 2)
	if len(f.catalog.waiting) != 0 || f.catalog.files[name(8)] != nil || f.catalog.files[name(9)] != nil {
		t.Errorf("what is gone is still followed: %d", len(f.catalog.waiting))
	}
	if change, did = f.after(name(7)); len(change.Upserts) > 0 {
		t.Error("an unchanged file changed something")
	}
	check("a file that is the same", change, did, work{0, 1, 0}, 0, 0)

	if err := os.Mkdir(filepath.Join(dir, "sub"), 0o755); err != nil {
		t.Fatal(err)
	}
	f.rescan.begin(time.Now(), 0)
	change, did = f.after()
	did.read = min(did.read, 5) // of those that were written within the resolution of time stamps
	check("a folder", change, did, work{1, did.read, 0}, 0, 0)
}

// TestWorkOfRemovals: what is gone is decided without a look at all else that is, and the kernel is asked about a file once.
func TestWorkOfRemovals(t *testing.T) {
	dir := t.TempDir()
	const many = 200
	var paths []string
	for i := range many {
		paths = append(paths, filepath.Join(dir, fmt.Sprintf("%03d.yaml", i)))
		write(t, paths[i], config(fmt.Sprint("c", i), "one"))
	}
	full, text := filepath.Join(dir, "full.yaml"), config("kept", "one")
	for i := range many {
		text += config(fmt.Sprint("f", i), "one")
	}
	write(t, full, text)
	f := followed(t, dir)
	for _, path := range paths {
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
	write(t, full, config("kept", "one"))
	change, _ := f.after(append(paths, full)...)
	deletes, rounds := len(change.Deletes), 0
	for ; len(f.catalog.waiting) > 0; rounds++ {
		time.Sleep(time.Until(f.next()))
		change, _ = f.after()
		deletes += len(change.Deletes)
	}
	if deletes != 2*many {
		t.Errorf("%d objects are gone, want %d", deletes, 2*many)
	}
	if e := f.catalog.effort; e.looked > 0 || e.asked > rounds*(many+1) {
		t.Errorf("looked at %d files that might have them, and asked the kernel %d times in %d rounds", e.looked, e.asked, rounds)
	}
	if len(f.catalog.holders) > 0 {
		t.Errorf("%d objects are waited for in others", len(f.catalog.holders))
	}
}

// TestHolders: which versions that wait have an object is known while they do.
func TestHolders(t *testing.T) {
	dir := t.TempDir()
	a, b := filepath.Join(dir, "a.yaml"), filepath.Join(dir, "b.yaml")
	write(t, a, config("a", "one"))
	write(t, b, config("b", "one"))
	f := followed(t, dir)
	c := f.catalog
	id := func(name string) kind.ObjectKey {
		return kind.ObjectKey{Kind: "ConfigMap", Namespace: "default", Name: name}
	}
	check := func(what, name string, want ...string) {
		t.Helper()
		var got []string
		for file := range c.holders[id(name)] {
			got = append(got, file.path)
		}
		if slices.Sort(got); !slices.Equal(got, want) {
			t.Errorf("%s: %q is held back in %q, want %q", what, name, got, want)
		}
	}
	write(t, a, config("x", "one")) // lacks what it had
	write(t, b, config("x", "two"))
	f.after(a, b)
	check("both wait", "x", a, b)
	write(t, a, config("z", "one"))
	f.after(a)
	check("one has another", "x", b)
	check("one has another", "z", a)
	write(t, b, config("b", "one")+config("x", "two"))
	f.after(b)
	check("one waits no more", "x")
	if err := os.Remove(a); err != nil {
		t.Fatal(err)
	}
	f.after(a)
	check("the other is gone", "z")
	if len(c.holders) > 0 {
		t.Errorf("%d objects are held back", len(c.holders))
	}
}

func TestProblemsComeOnlyWhenTheyChange(t *testing.T) {
	dir := t.TempDir()
	a, b, c := filepath.Join(dir, "a.yaml"), filepath.Join(dir, "b.yaml"), filepath.Join(dir, "c.yaml")
	write(t, a, config("a", "one"))
	write(t, b, config("b", "one"))
	write(t, c, config("c", "one"))
	f := followed(t, dir)
	f.catalog.grace = 0 // a file that lacks an object is not waited for
	step := func(path, text string, changed bool, want ...string) {
		t.Helper()
		write(t, path, text)
		change, _ := f.after(path)
		if change.ProblemsChanged != changed {
			t.Errorf("%q: changed: %v", text, change.ProblemsChanged)
		}
		var got []string
		for _, p := range change.Problems {
			got = append(got, strings.ReplaceAll(p.String(), dir+"/", ""))
		}
		if strings.Join(got, "\n") != strings.Join(want, "\n") {
			t.Errorf("%q:\ngot  %q\nwant %q", text, got, want)
		}
	}
	const again = "ConfigMap default/a: is already defined at a.yaml:%d, which is used; remove one of the two"
	b1, b2, c1 := "b.yaml:6: "+fmt.Sprintf(again, 1), "b.yaml:6: "+fmt.Sprintf(again, 2), "c.yaml:1: "+fmt.Sprintf(again, 2)
	step(b, config("b", "one")+config("a", "two"), true, b1)
	step(b, config("b", "two")+config("a", "two"), false, b1)
	step(a, "# a line\n"+config("a", "one"), true, b2) // the line of the first is told in b
	step(c, config("a", "three"), true, b2, c1)
	step(c, config("a", "one"), true, b2) // it says the same as the first
	step(a, "# a line\n"+config("a", "four"), true, b2, c1)
	step(a, "# a line\n"+config("a", "one"), true, b2)
	step(c, config("a", "three"), true, b2, c1)
	step(c, "a: b: c\n", true, b2, `c.yaml:1: not valid YAML: mapping values are not allowed in this context; check the indentation, and put a value that contains ": " in quotes (the previous version stays in use)`)
	step(c, config("c", "one"), true, b2)
	step(b, config("a", "two")+config("a", "three"), true,
		strings.Replace(b2, ":6:", ":1:", 1), b2)
	step(b, config("b", "two"), true)
	step(a, config("a", "two"), false)
	if len(f.catalog.report.troubled) != 0 {
		t.Errorf("still thought to have problems: %d", len(f.catalog.report.troubled))
	}
}

// TestFollowingIsLoading: after any edits what is known is what a fresh load finds.
func TestFollowingIsLoading(t *testing.T) {
	dir := t.TempDir()
	random := rand.New(rand.NewPCG(1, 2))
	name := func() string { return filepath.Join(dir, fmt.Sprintf("%d.yaml", random.IntN(5))) }
	pieces := []string{"# a line\n", "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: d}\n---\n",
		"{apiVersion: v1, kind: Namespace, metadata: {name: default, labels: {a: b}}}\n---\n"}
	for i := range 6 {
		pieces = append(pieces, config(fmt.Sprint("c", i), "one"), config(fmt.Sprint("c", i), "two"))
	}
	text := func() string {
		var b strings.Builder
		for range random.IntN(8) {
			b.WriteString(pieces[random.IntN(len(pieces))])
		}
		return b.String()
	}
	write(t, name(), text())
	s, err := New([]string{dir}, Options{RemovalGrace: -1})
	if err != nil {
		t.Fatal(err)
	}
	f := &follower{source: s, watcher: watcher(t), unquiet: map[string]wait{}, catalog: newCatalog(s)}
	f.rescan.begin(time.Now(), 0)
	known := map[kind.ObjectKey]Object{}
	apply := func(change Change) {
		for _, o := range change.Upserts {
			known[o.ID] = o
		}
		for _, id := range change.Deletes {
			delete(known, id)
		}
	}
	apply(f.update())
	for step := range 400 {
		a, b := name(), name()
		switch random.IntN(6) {
		case 0:
			_ = os.Remove(a)
		case 1:
			_ = os.Rename(a, b)
		default:
			write(t, a, text())
		}
		change, _ := f.after(a, b)
		apply(change)
		fresh := s.Load()
		if !slices.Equal(change.Problems, fresh.Problems) {
			t.Fatalf("step %d:\ngot  %v\nwant %v", step, change.Problems, fresh.Problems)
		}
		if len(known) != len(fresh.Objects) {
			t.Fatalf("step %d: %d objects, want %d", step, len(known), len(fresh.Objects))
		}
		for _, want := range fresh.Objects {
			got := known[want.ID]
			if position := f.catalog.objects[want.ID].position(); position != want.Position || !reflect.DeepEqual(content(got), content(want)) {
				t.Fatalf("step %d: %v is at %v, want %v\ngot  %v\nwant %v", step, want.ID, position, want.Position, got.Object, want.Object)
			}
		}
	}
}

// content is what an object says but its generation.
func content(o Object) any {
	if c, ok := o.Object.(*corev1.ConfigMap); ok {
		return c.Data
	}
	return o.Object.GetLabels()
}
