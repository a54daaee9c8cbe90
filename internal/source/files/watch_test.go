package files

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fsnotify/fsnotify"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	eg "github.com/moongate-dev/moongate/api/envoygateway/v1alpha1"
	"github.com/moongate-dev/moongate/api/v1alpha1"
	"github.com/moongate-dev/moongate/internal/kind"
)

// watched is a running Source and what a consumer of its changes knows.
type watched struct {
	t       *testing.T
	source  *Source
	changes chan Change
	objects map[kind.ObjectKey]Object
	last    Change
}

func watch(t *testing.T, paths ...string) *watched {
	t.Helper()
	return watchSource(t, source(t, paths...))
}

func watchSource(t *testing.T, s *Source) *watched {
	t.Helper()
	w := &watched{t: t, source: s, changes: make(chan Change, 64), objects: map[kind.ObjectKey]Object{}}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- w.source.Run(ctx, func(c Change) { w.changes <- c }) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	if w.next(); !w.last.Full {
		t.Error("the first change is not full")
	}
	return w
}

// next waits for the next change.
func (w *watched) next() {
	w.t.Helper()
	select {
	case w.last = <-w.changes:
	case <-time.After(10 * time.Second):
		w.t.Fatal("no change arrived")
	}
	for _, o := range w.last.Upserts {
		w.objects[o.ID] = o
	}
	for _, id := range w.last.Deletes {
		if _, ok := w.objects[id]; !ok {
			w.t.Errorf("%v was deleted and never there", id)
		}
		delete(w.objects, id)
	}
}

// until waits until the ConfigMaps are as said: name=value, sorted.
func (w *watched) until(want ...string) {
	w.t.Helper()
	deadline := time.Now().Add(10 * time.Second)
	for !slices.Equal(w.configs(), want) {
		if time.Now().After(deadline) {
			w.t.Fatalf("got %v, want %v; problems %v", w.configs(), want, w.last.Problems)
		}
		w.next()
	}
}

func (w *watched) configs() []string {
	list := []string{}
	for id, o := range w.objects {
		if c, ok := o.Object.(*corev1.ConfigMap); ok {
			list = append(list, id.Name+"="+c.Data["k"])
		}
	}
	slices.Sort(list)
	return list
}

// quiet makes sure that nothing changes for a while.
func (w *watched) quiet(d time.Duration) {
	w.t.Helper()
	select {
	case c := <-w.changes:
		w.t.Fatalf("an unexpected change: %v %v %v", names(c.Upserts), c.Deletes, c.Problems)
	case <-time.After(d):
	}
}

func config(name, value string) string {
	return "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: " + name + "}\ndata: {k: " + value + "}\n---\n"
}

func TestWatchEdits(t *testing.T) {
	dir := t.TempDir()
	a := filepath.Join(dir, "a.yaml")
	write(t, a, config("a", "one")+config("b", "one"))
	w := watch(t, dir)
	w.until("a=one", "b=one")

	write(t, a, config("a", "two")+config("b", "one"))
	w.until("a=two", "b=one")
	if got := names(w.last.Upserts); !slices.Equal(got, []string{"ConfigMap default/a"}) || w.last.Full {
		t.Errorf("more than what changed came out: %v", got)
	}
	if g := w.last.Upserts[0].Object.GetGeneration(); g != 2 {
		t.Errorf("generation %d after one change", g)
	}

	write(t, a+".new", config("a", "three")+config("b", "one"))
	if err := os.Rename(a+".new", a); err != nil { // as editors save
		t.Fatal(err)
	}
	w.until("a=three", "b=one")

	write(t, filepath.Join(dir, "new/sub/c.yaml"), config("c", "one"))
	w.until("a=three", "b=one", "c=one")
	write(t, filepath.Join(dir, "new/sub/c.yaml"), config("c", "two"))
	w.until("a=three", "b=one", "c=two")

	write(t, a, config("b", "one"))
	w.until("b=one", "c=two")
	if err := os.RemoveAll(filepath.Join(dir, "new")); err != nil {
		t.Fatal(err)
	}
	w.until("b=one")
	if err := os.Remove(a); err != nil {
		t.Fatal(err)
	}
	w.until()
	if len(w.objects) != 0 {
		t.Errorf("still there: %v", w.objects)
	}
}

func TestWatchSaysNothingNew(t *testing.T) {
	dir := t.TempDir()
	a := filepath.Join(dir, "a.yaml")
	write(t, a, config("a", "one")+"apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: x}\n---\n"+config("b", "one"))
	w := watch(t, dir)
	w.until("a=one", "b=one")
	now := time.Now()
	if err := os.Chtimes(a, now, now); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "notes.txt"), "nothing")
	write(t, filepath.Join(dir, ".a.yaml.swp"), config("z", "z"))
	w.quiet(200 * time.Millisecond)

	text, err := os.ReadFile(a)
	if err != nil {
		t.Fatal(err)
	}
	write(t, a, "# a comment moves lines and a problem\n"+string(text))
	w.next()
	if len(w.last.Upserts)+len(w.last.Deletes) != 0 || w.last.Problems[0].Line != 7 {
		t.Errorf("moving lines: %v %v %v", names(w.last.Upserts), w.last.Deletes, w.last.Problems)
	}
	if p, ok := w.source.Position(kind.ObjectKey{Kind: "ConfigMap", Namespace: "default", Name: "b"}); !ok || p.Line != 11 {
		t.Errorf("the position of b is %v, %v", p, ok)
	}
}

// TestWatchConfigMapMount does what a kubelet does: the files are links into a
// folder that is itself a link, and only that is replaced.
func TestWatchConfigMapMount(t *testing.T) {
	dir := t.TempDir()
	generation := func(n int, value string) {
		write(t, filepath.Join(dir, fmt.Sprintf("..gen%d", n), "a.yaml"), config("a", "v"+value))
		if err := os.Symlink(fmt.Sprintf("..gen%d", n), filepath.Join(dir, "..data_tmp")); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(filepath.Join(dir, "..data_tmp"), filepath.Join(dir, "..data")); err != nil {
			t.Fatal(err)
		}
	}
	generation(1, "1")
	if err := os.Symlink("..data/a.yaml", filepath.Join(dir, "a.yaml")); err != nil {
		t.Fatal(err)
	}
	folder, file := watch(t, dir), watch(t, filepath.Join(dir, "a.yaml"))
	for n := 2; n < 6; n++ {
		generation(n, fmt.Sprint(n))
		if err := os.RemoveAll(filepath.Join(dir, fmt.Sprintf("..gen%d", n-1))); err != nil {
			t.Fatal(err)
		}
		folder.until(fmt.Sprintf("a=v%d", n))
		file.until(fmt.Sprintf("a=v%d", n))
	}
}

// TestWatchWholeVersions: a file of which objects are gone and others differ is served as it was or as it is, and never something in between.
func TestWatchWholeVersions(t *testing.T) {
	versions := []string{config("a", "one") + config("b", "one"), config("a", "two") + config("c", "two")}
	whole := func(t *testing.T, w *watched, n int) {
		t.Helper()
		want := [][]string{{"a=one", "b=one"}, {"a=two", "c=two"}}[n]
		for !slices.Equal(w.configs(), want) {
			before := w.configs()
			if w.next(); !slices.Equal(w.configs(), want) && !slices.Equal(w.configs(), before) {
				t.Fatalf("between %v and %v: %v", before, want, w.configs())
			}
		}
	}
	t.Run("replaced", func(t *testing.T) {
		dir := t.TempDir()
		a := filepath.Join(dir, "a.yaml")
		write(t, a, versions[0])
		w := watch(t, dir)
		for n := 1; n < 6; n++ {
			write(t, filepath.Join(dir, "new"), versions[n%2])
			if err := os.Rename(filepath.Join(dir, "new"), a); err != nil {
				t.Fatal(err)
			}
			whole(t, w, n%2)
		}
	})
	t.Run("written in place", func(t *testing.T) {
		dir := t.TempDir()
		write(t, filepath.Join(dir, "a.yaml"), versions[0])
		w := watch(t, dir)
		for n := 1; n < 6; n++ {
			write(t, filepath.Join(dir, "a.yaml"), versions[n%2])
			whole(t, w, n%2)
		}
	})
	t.Run("removed and written again", func(t *testing.T) {
		dir := t.TempDir()
		a := filepath.Join(dir, "a.yaml")
		write(t, a, versions[0])
		s, err := New([]string{dir}, Options{RemovalGrace: 500 * time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		w := watchSource(t, s)
		for n := 1; n < 3; n++ {
			if err := os.Remove(a); err != nil {
				t.Fatal(err)
			}
			time.Sleep(100 * time.Millisecond) // that it is gone is seen
			write(t, a, versions[n%2])
			whole(t, w, n%2)
		}
	})
	t.Run("cut in a word, then whole", func(t *testing.T) {
		dir := t.TempDir()
		a := filepath.Join(dir, "a.yaml")
		write(t, a, versions[0])
		s, err := New([]string{dir}, Options{RemovalGrace: 500 * time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		w := watchSource(t, s)
		write(t, a, config("a", "two")+"apiVersion: v1\nkind: ConfigMap\nmeta")
		w.quiet(200 * time.Millisecond)
		write(t, a, versions[1])
		whole(t, w, 1)
	})
	t.Run("cut at the end of a word", func(t *testing.T) {
		dir := t.TempDir()
		a := filepath.Join(dir, "a.yaml")
		write(t, a, config("a", "one"))
		s, err := New([]string{dir}, Options{RemovalGrace: 500 * time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		w := watchSource(t, s)
		text := "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {k: two}"
		write(t, a, text)
		w.quiet(200 * time.Millisecond)
		write(t, a, text+"\n")
		w.next()
		if got := w.configs(); !slices.Equal(got, []string{"a=two"}) {
			t.Errorf("%v", got)
		}
		write(t, a, strings.Replace(text, "two", "three", 1)) // as it is to be
		w.until("a=three")
	})
	t.Run("replaced, without a line end", func(t *testing.T) {
		dir := t.TempDir()
		a := filepath.Join(dir, "a.yaml")
		write(t, a, config("a", "v0"))
		s, err := New([]string{dir}, Options{RemovalGrace: time.Hour}) // which is not waited for
		if err != nil {
			t.Fatal(err)
		}
		w := watchSource(t, s)
		for n := 1; n < 4; n++ {
			value := fmt.Sprint("v", n)
			write(t, filepath.Join(dir, "new"), strings.TrimSuffix(config("a", value), "\n---\n"))
			rename(t, filepath.Join(dir, "new"), a)
			w.until("a=" + value)
		}
	})
	t.Run("removed and written again, without a line end", func(t *testing.T) {
		dir := t.TempDir()
		a, old := filepath.Join(dir, "a.yaml"), filepath.Join(t.TempDir(), "old")
		write(t, a, config("a", "one"))
		f := followed(t, dir)
		f.catalog.grace = time.Hour
		f.note(fsnotify.Event{Name: a, Op: fsnotify.Rename})
		rename(t, a, old) // it stays, so that the next file is another one
		write(t, a, strings.TrimSuffix(config("a", "two"), "\n---\n"))
		time.Sleep(f.source.options.Debounce)
		if change := f.update(); len(change.Upserts) > 0 || f.catalog.files[a].heldSince.IsZero() {
			t.Errorf("%v before the grace period is over", names(change.Upserts))
		}
	})
	t.Run("mounted", func(t *testing.T) {
		dir := t.TempDir()
		generation := func(n int) {
			t.Helper()
			write(t, filepath.Join(dir, fmt.Sprintf("..gen%d", n), "a.yaml"), versions[n%2])
			if err := os.Symlink(fmt.Sprintf("..gen%d", n), filepath.Join(dir, "..data_tmp")); err != nil {
				t.Fatal(err)
			}
			if err := os.Rename(filepath.Join(dir, "..data_tmp"), filepath.Join(dir, "..data")); err != nil {
				t.Fatal(err)
			}
		}
		generation(0)
		if err := os.Symlink("..data/a.yaml", filepath.Join(dir, "a.yaml")); err != nil {
			t.Fatal(err)
		}
		s, err := New([]string{dir}, Options{RemovalGrace: time.Hour}) // which is not waited for
		if err != nil {
			t.Fatal(err)
		}
		w := watchSource(t, s)
		for n := 1; n < 6; n++ {
			generation(n)
			whole(t, w, n%2)
		}
	})
	t.Run("folder link", func(t *testing.T) {
		dir := t.TempDir()
		current := filepath.Join(dir, "current")
		release := func(n int) (want []string) {
			t.Helper()
			want = writeRelease(t, filepath.Join(dir, fmt.Sprint(n)), n)
			link(t, fmt.Sprint(n), current)
			return want
		}
		first := release(0)
		s, err := New([]string{current}, Options{RemovalGrace: time.Hour}) // which is not waited for
		if err != nil {
			t.Fatal(err)
		}
		w := watchSource(t, s)
		w.until(first...)
		for n := 1; n < 6; n++ {
			want := release(n)
			if err := os.RemoveAll(filepath.Join(dir, fmt.Sprint(n-1))); err != nil {
				t.Fatal(err)
			}
			if w.next(); !slices.Equal(w.configs(), want) {
				t.Fatalf("after %d: %v, want %v", n, w.configs(), want)
			}
		}
	})
}

// writeRelease writes a folder of files of which each has something of its own, and returns the ConfigMaps in it. An odd one has a folder more.
func writeRelease(t *testing.T, dir string, n int) (want []string) {
	t.Helper()
	app, value := fmt.Sprintf("app%d", n), fmt.Sprintf("v%d", n)
	write(t, filepath.Join(dir, "services.yaml"), config(app, value))
	write(t, filepath.Join(dir, "routes.yaml"), config("route", value))
	want = []string{app + "=" + value, "route=" + value}
	if n%2 == 1 {
		write(t, filepath.Join(dir, "more", "extra.yaml"), config("extra", value))
		want = slices.Insert(want, 1, "extra="+value)
	}
	return want
}

// link makes a link lead to another destination, in one step.
func link(t *testing.T, to, path string) {
	t.Helper()
	if err := os.Symlink(to, path+".new"); err != nil {
		t.Fatal(err)
	}
	rename(t, path+".new", path)
}

// TestFolderLinkWithOtherEvents: what happens to the files of the former destination does not make one of them be read before the others.
func TestFolderLinkWithOtherEvents(t *testing.T) {
	dir := t.TempDir()
	current := filepath.Join(dir, "current")
	writeRelease(t, filepath.Join(dir, "0"), 0)
	writeRelease(t, filepath.Join(dir, "1"), 1)
	link(t, "1", current)
	f := followed(t, current)
	f.catalog.grace = time.Hour
	link(t, "0", current)
	f.note(fsnotify.Event{Name: current, Op: fsnotify.Create})
	f.note(fsnotify.Event{Name: filepath.Join(current, "routes.yaml"), Op: fsnotify.Remove})
	change, did := f.after(filepath.Join(current, "services.yaml"))
	if did.scans != 1 || len(change.Upserts) != 2 || len(change.Deletes) != 2 {
		t.Errorf("%v, %v after %d scans", names(change.Upserts), change.Deletes, did.scans)
	}
}

// TestFolderLinkBesideWrittenFile: a file elsewhere that is being written does not keep the objects of the former destination.
func TestFolderLinkBesideWrittenFile(t *testing.T) {
	for _, c := range []struct {
		written string
		deletes int
	}{
		{"other.yaml", 2},
		{"m/other.yaml", 2},
		{"m/current/routes.yaml", 0}, // it may be the one that gets the objects
	} {
		dir := t.TempDir()
		current := filepath.Join(dir, "m", "current")
		writeRelease(t, filepath.Join(dir, "0"), 0)
		writeRelease(t, filepath.Join(dir, "1"), 1)
		write(t, filepath.Join(dir, "other.yaml"), config("other", "one"))
		write(t, filepath.Join(dir, "m", "other.yaml"), config("inner", "one"))
		link(t, "../1", current)
		f := followed(t, filepath.Join(dir, "m"), filepath.Join(dir, "other.yaml"))
		f.catalog.grace = time.Hour
		link(t, "../0", current)
		f.note(fsnotify.Event{Name: current, Op: fsnotify.Create})
		f.rescan.due = time.Now()
		writing := filepath.Join(dir, c.written)
		f.unquiet[writing] = wait{since: time.Now(), due: time.Now().Add(time.Hour), first: time.Now(), last: time.Now()}
		if c.deletes == 0 { // as if it were still open for writing
			file, err := os.OpenFile(writing, os.O_WRONLY, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer file.Close()
		}
		change, _ := f.after()
		if len(change.Deletes) != c.deletes {
			t.Errorf("%s is being written: %v, %v", c.written, names(change.Upserts), change.Deletes)
		}
	}
}

// TestHeldFileOutOfSight: a version that waits is not forgotten while the folder of its file cannot be seen, and a link that is taken away and put back is waited for.
func TestHeldFileOutOfSight(t *testing.T) {
	dir := t.TempDir()
	a := filepath.Join(dir, "a.yaml")
	write(t, a, config("a", "one")+config("b", "one"))
	f := followed(t, dir)
	f.catalog.grace = time.Hour
	write(t, a, config("a", "two"))
	time.Sleep(60 * time.Millisecond) // else its time stamp alone has it read again
	if change, _ := f.after(a); len(change.Upserts)+len(change.Deletes) > 0 {
		t.Fatalf("%v, %v before the grace period is over", names(change.Upserts), change.Deletes)
	}
	file := f.catalog.files[a]
	f.catalog.unawait(file) // as where the folder could not be listed
	f.catalog.grace = 0
	f.rescan.begin(time.Now(), 0)
	if change, _ := f.after(); len(change.Upserts) != 1 || len(change.Deletes) != 1 || !file.heldSince.IsZero() {
		t.Errorf("then %v, %v, held since %v", names(change.Upserts), change.Deletes, file.heldSince)
	}

	link, target := filepath.Join(dir, "link.yaml"), filepath.Join(t.TempDir(), "target")
	for n, text := range []string{config("c", "one"), config("c", "two")} {
		write(t, target+fmt.Sprint(n), text)
		_ = os.Remove(link)
		if err := os.Symlink(target+fmt.Sprint(n), link); err != nil {
			t.Fatal(err)
		}
		f.rescan.begin(time.Now(), 0)
		f.after()
	}
	f.catalog.grace = time.Hour
	if err := os.Remove(link); err != nil {
		t.Fatal(err)
	}
	f.rescan.begin(time.Now(), 0)
	if change, _ := f.after(); len(change.Deletes) > 0 {
		t.Errorf("the link is away for a moment, and %v are deleted", change.Deletes)
	}
}

// TestObjectsChangePlaces: objects that two files exchange are there all the time, however and in whichever order the files are written.
func TestObjectsChangePlaces(t *testing.T) {
	inPlace := func(t *testing.T, path, text string) { write(t, path, text) }
	renamed := func(t *testing.T, path, text string) {
		t.Helper()
		write(t, path+".new", text)
		if err := os.Rename(path+".new", path); err != nil {
			t.Fatal(err)
		}
	}
	type how func(*testing.T, string, string)
	for name, hows := range map[string][2]how{
		"in place": {inPlace, inPlace}, "renamed": {renamed, renamed}, "in place, renamed": {inPlace, renamed}, "renamed, in place": {renamed, inPlace},
	} {
		for _, order := range [][2]int{{0, 1}, {1, 0}} {
			t.Run(fmt.Sprint(name, order), func(t *testing.T) {
				dir := t.TempDir()
				paths := [2]string{filepath.Join(dir, "a.yaml"), filepath.Join(dir, "b.yaml")}
				texts := [2]string{config("a", "one") + config("p", "one"), config("b", "one") + config("q", "one")}
				write(t, paths[0], texts[0])
				write(t, paths[1], texts[1])
				w := watch(t, dir)
				want := []string{"a=one", "b=one", "p=one", "q=one"}
				w.until(want...)
				texts[0], texts[1] = config("a", "one")+config("q", "one"), config("b", "one")+config("p", "one")
				hows[0](t, paths[order[0]], texts[order[0]])
				hows[1](t, paths[order[1]], texts[order[1]])
				for end := time.After(time.Second); ; {
					select {
					case w.last = <-w.changes:
						if len(w.last.Deletes) > 0 {
							t.Fatalf("%v are gone for a while", w.last.Deletes)
						}
						continue
					case <-end:
					}
					break
				}
				for i, name := range []string{"q", "p"} {
					if at, _ := w.source.Position(kind.ObjectKey{Kind: "ConfigMap", Namespace: "default", Name: name}); at.File != paths[i] {
						t.Errorf("%s is at %v", name, at)
					}
				}
			})
		}
	}
}

// TestPauseOfAWriter: what a file lacks that a process has open for writing stays, however long the process pauses between two objects.
func TestPauseOfAWriter(t *testing.T) {
	dir := t.TempDir()
	a := filepath.Join(dir, "a.yaml")
	write(t, a, config("a", "one")+config("b", "one"))
	w := watch(t, dir)
	f, err := os.OpenFile(a, os.O_WRONLY|os.O_TRUNC, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString(config("a", "one")); err != nil {
		t.Fatal(err)
	}
	w.quiet(maxWriterPause + 1500*time.Millisecond)
	f.Close()
	w.until("a=one")
}

// TestEmptiedFile: objects of a file that was emptied go, but not while the process that has emptied it may yet write.
func TestEmptiedFile(t *testing.T) {
	dir := t.TempDir()
	a := filepath.Join(dir, "a.yaml")
	write(t, a, config("a", "one"))
	w := watch(t, dir)
	f, err := os.OpenFile(a, os.O_WRONLY|os.O_TRUNC, 0) // as a shell does for a generator
	if err != nil {
		t.Fatal(err)
	}
	w.quiet(maxWriterPause + 500*time.Millisecond)
	if _, err := f.WriteString(config("a", "two")); err != nil {
		t.Fatal(err)
	}
	f.Close()
	w.until("a=two")
	write(t, a, "")
	w.quiet(300 * time.Millisecond)
	w.until()
}

// TestScanOfOpenFile: a scan does not read a file that is being written.
func TestScanOfOpenFile(t *testing.T) {
	dir := t.TempDir()
	f := followed(t, dir)
	a := filepath.Join(dir, "a.yaml")
	open, err := os.Create(a)
	if err != nil {
		t.Fatal(err)
	}
	defer open.Close()
	if _, err := open.WriteString(config("a", "one")); err != nil {
		t.Fatal(err)
	}
	f.rescan.begin(time.Now(), 0)
	if change, did := f.after(); did.scans != 1 || did.read != 0 || len(change.Upserts) > 0 || f.next().IsZero() {
		t.Errorf("while it is open: %v, %v", names(change.Upserts), did)
	}
	open.Close()
	if change, _ := f.after(a); len(change.Upserts) == 0 {
		t.Errorf("then: %v", names(change.Upserts))
	}
}

// TestWrittenForLong: a file is waited for as long as its writer goes on, which takes no more looks than one for each quiet time, and not for ever.
func TestWrittenForLong(t *testing.T) {
	dir := t.TempDir()
	a := filepath.Join(dir, "a.yaml")
	write(t, a, config("a", "one"))
	f := followed(t, dir)
	open, err := os.OpenFile(a, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer open.Close()
	now := time.Now()
	for name, c := range map[string]struct {
		first, last time.Duration
		want        bool
	}{
		"just now":         {0, 0, true},
		"for long":         {maxWriting - time.Second, time.Second, true},
		"for too long":     {maxWriting, 0, false},
		"nothing any more": {maxWriterPause, maxWriterPause, false},
	} {
		w := wait{first: now.Add(-c.first), last: now.Add(-c.last)}
		if got := w.written(a, now); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
	f.note(fsnotify.Event{Name: a, Op: fsnotify.Write})
	w := f.unquiet[a]
	w.due = time.Now()
	f.unquiet[a] = w
	if f.update(); !f.unquiet[a].due.After(time.Now()) || f.unquiet[a].since.Before(now) {
		t.Errorf("looked at again at once: %+v", f.unquiet[a])
	}
	open.Close()
	if change, did := f.after(a); did.read != 1 || len(f.unquiet) > 0 {
		t.Errorf("when it is closed: %v, %v", change, did)
	}
}

// TestPollIsNotPutOff: what is looked at once in a second is, however often something else changes.
func TestPollIsNotPutOff(t *testing.T) {
	dir := t.TempDir()
	a := filepath.Join(dir, "a.yaml")
	write(t, a, config("a", "one"))
	f := followed(t, dir)
	f.catalog.scan.problems = []Problem{{}} // a folder that cannot be watched, say
	f.after(a)
	first := f.poll
	if f.after(a); first.IsZero() || !f.poll.Equal(first) {
		t.Errorf("looked at %v, then %v", first, f.poll)
	}
}

func TestWatchLinkTargets(t *testing.T) {
	dir, other := t.TempDir(), t.TempDir()
	write(t, filepath.Join(other, "v1/a.yaml"), config("a", "one"))
	write(t, filepath.Join(other, "v2/a.yaml"), config("a", "two"))
	current := filepath.Join(other, "current")
	for link, target := range map[string]string{current: "v1", filepath.Join(dir, "a.yaml"): filepath.Join(current, "a.yaml")} {
		if err := os.Symlink(target, link); err != nil {
			t.Fatal(err)
		}
	}
	w := watch(t, dir)
	w.until("a=one")
	write(t, filepath.Join(other, "v1/a.yaml"), config("a", "edited"))
	w.until("a=edited")
	if err := os.Symlink("v2", current+".new"); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(current+".new", current); err != nil {
		t.Fatal(err)
	}
	w.until("a=two")
}

// TestWatchFolderOfTwoNames: a folder may be known under the name by which it is listed and under others by which links or paths lead to it.
func TestWatchFolderOfTwoNames(t *testing.T) {
	for name, paths := range map[string]func(dir string) []string{
		"link": func(dir string) []string {
			if err := os.Symlink(filepath.Join(dir, "manifests/shared/a.yaml"), "manifests/app/link.yaml"); err != nil {
				t.Fatal(err)
			}
			return []string{"manifests"}
		},
		"paths": func(dir string) []string {
			return []string{"manifests/shared/a.yaml", filepath.Join(dir, "manifests")}
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			t.Chdir(dir)
			write(t, "manifests/shared/a.yaml", config("a", "one"))
			write(t, "manifests/shared/other.yaml", config("other", "one"))
			write(t, "manifests/app/b.yaml", config("b", "one"))
			w := watch(t, paths(dir)...)
			w.until("a=one", "b=one", "other=one")
			write(t, "manifests/shared/other.yaml", config("other", "two"))
			w.until("a=one", "b=one", "other=two")
			write(t, "manifests/shared/new.yaml", config("new", "one"))
			w.until("a=one", "b=one", "new=one", "other=two")
			write(t, "manifests/shared/a.yaml", config("a", "two"))
			w.until("a=two", "b=one", "new=one", "other=two")
			if name == "paths" {
				return
			}
			// The other name goes, and with it not the watch.
			if err := os.Remove("manifests/app/link.yaml"); err != nil {
				t.Fatal(err)
			}
			write(t, "manifests/more/c.yaml", config("c", "one")) // which a scan finds
			w.until("a=two", "b=one", "c=one", "new=one", "other=two")
			write(t, "manifests/shared/other.yaml", config("other", "three"))
			w.until("a=two", "b=one", "c=one", "new=one", "other=three")
		})
	}
}

func TestWatchHalfWrittenFiles(t *testing.T) {
	dir := t.TempDir()
	a := filepath.Join(dir, "a.yaml")
	whole := config("a", "one") + config("b", "one") + config("c", "one")
	write(t, a, whole)
	w := watch(t, dir)
	w.until("a=one", "b=one", "c=one")

	// Each prefix of the new text is what a reader may find in between.
	edited := strings.ReplaceAll(whole, "one", "two")
	f, err := os.Create(a)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(edited); i += 16 {
		if _, err := f.WriteString(edited[i:min(i+16, len(edited))]); err != nil {
			t.Fatal(err)
		}
		time.Sleep(3 * time.Millisecond)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	for !slices.Equal(w.configs(), []string{"a=two", "b=two", "c=two"}) {
		w.next()
		if len(w.last.Deletes) > 0 || len(w.configs()) != 3 {
			t.Fatalf("objects got lost: %v, %v", w.last.Deletes, w.configs())
		}
	}

	// Nor is a version read of which the last object is cut where it is valid, while its writer pauses.
	if f, err = os.Create(a); err != nil {
		t.Fatal(err)
	}
	if !openForWriting(a) {
		t.Fatal("the kernel grants no lease here; set TMPDIR to a folder on a local file system")
	}
	thrice := strings.ReplaceAll(whole, "one", "three")
	cut := strings.LastIndex(thrice, "data:")
	for _, part := range []string{thrice[:cut], thrice[cut:]} {
		if _, err := f.WriteString(part); err != nil {
			t.Fatal(err)
		}
		w.quiet(200 * time.Millisecond)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if w.next(); !slices.Equal(w.configs(), []string{"a=three", "b=three", "c=three"}) {
		t.Errorf("read when it was closed: %v", w.configs())
	}

	// Neither is a writer waited for that never closes it.
	if f, err = os.OpenFile(a, os.O_WRONLY|os.O_TRUNC, 0); err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString(edited); err != nil {
		t.Fatal(err)
	}
	w.until("a=two", "b=two", "c=two")
	f.Close() // else what is lost below would be waited for

	// A file that does not parse keeps what it held, for as long as it takes.
	write(t, a, config("a", "three")+"apiVersion: v1\nkind: ConfigMap\nmetadata: {na")
	w.until("a=three", "b=two", "c=two")
	w.quiet(300 * time.Millisecond)
	if len(w.last.Problems) != 1 || !w.last.Problems[0].Kept {
		t.Errorf("problems: %v", w.last.Problems)
	}
	write(t, a, config("a", "three"))
	w.until("a=three")
	if len(w.last.Problems) != 0 {
		t.Errorf("problems stay: %v", w.last.Problems)
	}
}

func TestWatchInvalidVersionsKeepTheGoodOne(t *testing.T) {
	dir := t.TempDir()
	a, b := filepath.Join(dir, "a.yaml"), filepath.Join(dir, "b.yaml")
	bad := func(name string) string { return strings.Replace(config(name, "bad"), "\ndata", "\ndate", 1) }
	write(t, a, config("a", "one")+config("b", "one"))
	w := watch(t, dir)
	w.until("a=one", "b=one")

	write(t, a, bad("a")+config("b", "two"))
	w.until("a=one", "b=two")
	want := a + `:4: ConfigMap default/a: date: unknown field; did you mean "data"? (the previous version stays in use)`
	if len(w.last.Problems) != 1 || w.last.Problems[0].String() != want {
		t.Errorf("got  %v\nwant %s", w.last.Problems, want)
	}

	// Moved to another file, and wrong there.
	write(t, b, bad("a"))
	write(t, a, config("b", "three"))
	w.until("a=one", "b=three")
	w.quiet(300 * time.Millisecond)
	write(t, b, config("a", "two"))
	w.until("a=two", "b=three")
	if o := w.objects[kind.ObjectKey{Kind: "ConfigMap", Namespace: "default", Name: "a"}]; o.Position != (Position{File: b, Line: 1}) || o.Object.GetGeneration() != 2 {
		t.Errorf("%v at generation %d", o.Position, o.Object.GetGeneration())
	}
}

// TestWatchInvalidPolicyCloses: a policy that was never valid is told as what it closes, through moments in which its file is being written,
// until it is valid or gone.
func TestWatchInvalidPolicyCloses(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "policy.yaml")
	policy := func(service, validation string) string {
		return "apiVersion: gateway.networking.k8s.io/v1\nkind: BackendTLSPolicy\nmetadata: {name: p}\nspec:\n" +
			"  targetRefs: [{group: \"\", kind: Service, name: " + service + "}]\n  validation: {" + validation + "}\n---\n"
	}
	bad, good := "hostname: web.internal", "hostname: web.internal, wellKnownCACertificates: System"
	id := kind.BackendTLSPolicy.Key("default", "p")
	write(t, path, policy("web", bad))
	w := watch(t, dir)
	closes := func(service string) bool {
		u, ok := w.objects[id].Object.(*kind.Undecoded)
		return ok && u.Kind == "BackendTLSPolicy" && u.Name == "p" && u.Namespace == "default" && u.Error != "" &&
			len(u.Targets) == 1 && string(u.Targets[0].Name) == service
	}
	if !closes("web") {
		t.Fatalf("told of the policy: %+v", w.objects[id])
	}
	if len(w.last.Problems) != 1 || w.last.Problems[0].Kept {
		t.Errorf("problems: %v", w.last.Problems)
	}
	write(t, path, policy("shop", bad))
	for !closes("shop") {
		w.next()
	}
	write(t, path, "") // as an editor does before it writes
	write(t, path, policy("cart", bad))
	for !closes("cart") {
		if w.next(); len(w.last.Deletes) > 0 {
			t.Fatalf("in between: %v", w.last.Deletes)
		}
	}
	valid := func() bool {
		_, ok := w.objects[id].Object.(*gwv1.BackendTLSPolicy)
		return ok
	}
	write(t, path, policy("cart", good))
	for !valid() {
		w.next()
	}
	write(t, path, policy("other", bad)) // what was valid last stays
	for w.next(); len(w.last.Problems) != 1; {
		w.next()
	}
	if !valid() {
		t.Errorf("the valid version went: %+v", w.objects[id])
	}
	write(t, path, "")
	for w.objects[id].Object != nil {
		w.next()
	}
	write(t, path, policy("web", bad))
	for !closes("web") {
		w.next()
	}
	write(t, path, "")
	for w.objects[id].Object != nil {
		w.next()
	}
}

// TestInvalidDefinitionBesideValid: of several definitions a valid one is served, and nothing is told of what others close.
func TestInvalidDefinitionBesideValid(t *testing.T) {
	dir := t.TempDir()
	parameters := func(denied, more string) string {
		return "apiVersion: moongate.dev/v1alpha1\nkind: GatewayParameters\nmetadata: {name: p}\nspec:\n  classOnly: {deniedEndpoints: [" + denied + "]}\n" + more
	}
	write(t, filepath.Join(dir, "a.yaml"), parameters("10.0.0.0/8", "  nonsense: true\n"))
	find := func() metav1.Object {
		for _, o := range source(t, dir).Load().Objects {
			if o.ID == kind.GatewayParameters.Key("default", "p") {
				return o.Object
			}
		}
		return nil
	}
	if u, ok := find().(*kind.Undecoded); !ok || !slices.Equal(u.DeniedEndpoints, []string{"10.0.0.0/8"}) {
		t.Errorf("alone: %+v", u)
	}
	write(t, filepath.Join(dir, "b.yaml"), parameters("11.0.0.0/8", ""))
	if _, ok := find().(*v1alpha1.GatewayParameters); !ok {
		t.Errorf("beside a valid one: %+v", find())
	}
}

// TestInvalidTrafficPolicy: a BackendTrafficPolicy that was never valid is told with its targets, and the problem says what that does; one that was valid stays.
func TestInvalidTrafficPolicy(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "policy.yaml")
	policy := func(more string) string {
		return "apiVersion: gateway.envoyproxy.io/v1alpha1\nkind: BackendTrafficPolicy\nmetadata: {name: p}\nspec:\n" +
			"  targetRefs: [{group: gateway.networking.k8s.io, kind: HTTPRoute, name: web}]\n" + more
	}
	id := kind.BackendTrafficPolicy.Key("default", "p")
	write(t, path, policy("  newField: {a: 1}\n"))
	w := watch(t, dir)
	if u, ok := w.objects[id].Object.(*kind.Undecoded); !ok || len(u.TrafficTargets) != 1 || u.TrafficTargets[0].Name != "web" {
		t.Errorf("told of the policy: %+v", w.objects[id])
	}
	if p := w.last.Problems; len(p) != 1 || p[0].Kept || p[0].Effect != "until it is valid, requests for its targets are answered with 500 where it would be in force, alone or merged with another policy" {
		t.Errorf("problems: %+v", p)
	}
	write(t, path, policy("  loadBalancer: {type: Random}\n"))
	valid := func() bool {
		_, ok := w.objects[id].Object.(*eg.BackendTrafficPolicy)
		return ok
	}
	for !valid() {
		w.next()
	}
	write(t, path, policy("  loadBalancer: {type: Foo}\n"))
	for w.next(); len(w.last.Problems) != 1; {
		w.next()
	}
	if p := w.last.Problems[0]; !valid() || !p.Kept || p.Effect != "" {
		t.Errorf("the valid version did not stay: %+v, %+v", w.objects[id], p)
	}
}

func TestWatchDuplicatesTakeOver(t *testing.T) {
	dir := t.TempDir()
	a, b := filepath.Join(dir, "a.yaml"), filepath.Join(dir, "b.yaml")
	write(t, a, config("x", "first"))
	write(t, b, config("x", "second"))
	w := watch(t, dir)
	w.until("x=first")
	if err := os.Remove(a); err != nil {
		t.Fatal(err)
	}
	w.until("x=second")
	if len(w.last.Deletes) != 0 || len(w.last.Problems) != 0 {
		t.Errorf("%v %v", w.last.Deletes, w.last.Problems)
	}
	write(t, a, config("x", "first"))
	w.until("x=first")
	if len(w.last.Problems) != 1 || w.last.Problems[0].Reason != Duplicate {
		t.Errorf("%v", w.last.Problems)
	}
}

func TestWatchGeneration(t *testing.T) {
	dir := t.TempDir()
	a := filepath.Join(dir, "a.yaml")
	route := func(metadata, path string) string {
		return "apiVersion: gateway.networking.k8s.io/v1\nkind: HTTPRoute\nmetadata: {name: r" + metadata + "}\nspec: {rules: [{matches: [{path: {value: " + path + "}}]}]}\n"
	}
	write(t, a, route("", "/"))
	w := watch(t, dir)
	id := kind.ObjectKey{Group: gwv1.GroupName, Kind: "HTTPRoute", Namespace: "default", Name: "r"}
	for _, step := range []struct {
		metadata, path string
		want           int64
	}{{"", "/b", 2}, {", labels: {a: b}", "/b", 2}, {", labels: {a: b}", "/c", 3}, {", generation: 9", "/c", 9}, {", generation: 9", "/d", 9}, {"", "/e", 10}, {", generation: 4", "/e", 4}} {
		write(t, a, route(step.metadata, step.path))
		w.next()
		if got := w.objects[id].Object.GetGeneration(); got != step.want {
			t.Errorf("%+v: generation %d", step, got)
		}
	}
}

func TestWatchNamespacesFollowTheirObjects(t *testing.T) {
	dir := t.TempDir()
	a, b := filepath.Join(dir, "a.yaml"), filepath.Join(dir, "b.yaml")
	id := kind.ObjectKey{Kind: "Namespace", Name: "default"}
	write(t, a, config("a", "one"))
	write(t, b, "apiVersion: v1\nkind: Namespace\nmetadata: {name: default, labels: {team: z}}\n")
	w := watch(t, dir)
	if got := w.objects[id].Object.GetLabels()["team"]; got != "z" {
		t.Errorf("the defined namespace has label %q", got)
	}
	if err := os.Remove(b); err != nil {
		t.Fatal(err)
	}
	w.next()
	if o, ok := w.objects[id]; !ok || len(o.Object.GetLabels()) != 1 || o.Position != (Position{}) {
		t.Errorf("after its definition went: %v, %v", o, ok)
	}
	if err := os.Remove(a); err != nil {
		t.Fatal(err)
	}
	w.until()
	if len(w.objects) != 0 {
		t.Errorf("still there: %v", w.objects)
	}
}

func TestWatchRootsThatGoAndComeBack(t *testing.T) {
	parent := t.TempDir()
	dir, file := filepath.Join(parent, "m"), filepath.Join(parent, "single.yaml")
	write(t, filepath.Join(dir, "a.yaml"), config("a", "one"))
	write(t, file, config("s", "one"))
	w := watch(t, dir, file)
	w.until("a=one", "s=one")
	for _, path := range []string{dir, file} {
		// It goes in one step: files that are removed one by one are objects that are to go.
		rename(t, path, path+".away")
		w.next()
		if len(w.last.Problems) != 1 || w.last.Problems[0].String() != path+": does not exist; check the path (the previous version stays in use)" {
			t.Errorf("problems: %v", w.last.Problems)
		}
		w.quiet(3 * 100 * time.Millisecond) // the grace for objects that are gone
		w.until("a=one", "s=one")
		rename(t, path+".away", path)
		w.next()
		if len(w.last.Problems)+len(w.last.Upserts)+len(w.last.Deletes) != 0 {
			t.Errorf("back as it was, but there is news: %+v", w.last)
		}
	}

	// What came back with other contents is what is said now.
	rename(t, dir, dir+".away")
	w.next()
	write(t, filepath.Join(parent, "next", "a.yaml"), config("a", "two"))
	write(t, filepath.Join(parent, "next", "b.yaml"), config("b", "two"))
	rename(t, filepath.Join(parent, "next"), dir)
	w.until("a=two", "b=two", "s=one")
	rename(t, dir, dir+".again")
	w.next()
	write(t, filepath.Join(parent, "next", "b.yaml"), config("b", "three"))
	rename(t, filepath.Join(parent, "next"), dir)
	w.until("b=three", "s=one")
	rename(t, file, file+".away")
	w.next()
	write(t, file, config("s", "two"))
	w.until("b=three", "s=two")
	if len(w.last.Problems) != 0 {
		t.Errorf("problems stay: %v", w.last.Problems)
	}
}

// TestWatchFolderOfAPath moves the folder that contains a path, or the destination of a link: no event is about the path itself then.
func TestWatchFolderOfAPath(t *testing.T) {
	for _, c := range []struct{ name, path, from string }{
		{"file", "mg/app.yaml", ""},
		{"folder", "mg/manifests", ""},
		{"link to a file", "current", "mg/app.yaml"},
		{"link to a folder", "current", "mg/manifests"},
	} {
		t.Run(c.name, func(t *testing.T) {
			parent := t.TempDir()
			release := func(name, value string) {
				write(t, filepath.Join(parent, name, "app.yaml"), config("a", value))
				write(t, filepath.Join(parent, name, "manifests", "a.yaml"), config("a", value))
			}
			release("mg", "one")
			path, dir := filepath.Join(parent, c.path), filepath.Join(parent, "mg")
			if c.from != "" {
				link(t, c.from, path)
			}
			w := watch(t, path)
			w.until("a=one")
			release("mg.new", "two")
			rename(t, dir, dir+".old")
			rename(t, dir+".new", dir)
			w.until("a=two")
			rename(t, dir, dir+".away")
			for len(w.last.Problems) == 0 {
				w.next()
			}
			if got := w.last.Problems[0].String(); got != path+": does not exist; check the path (the previous version stays in use)" {
				t.Errorf("problem: %s", got)
			}
			release("mg.new", "three")
			rename(t, dir+".new", dir)
			w.until("a=three")
			release("mg.new", "four")
			rename(t, dir, dir+".older")
			rename(t, dir+".new", dir)
			w.until("a=four")
		})
	}
}

// TestWatchRootThatIsFilledSlowly has a folder come back empty, as a mount or a copy does: what it held
// before is served while the files come.
func TestWatchRootThatIsFilledSlowly(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "m")
	write(t, filepath.Join(dir, "a.yaml"), config("a", "one"))
	write(t, filepath.Join(dir, "b.yaml"), config("b", "one"))
	s, err := New([]string{dir}, Options{RemovalGrace: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	w := watchSource(t, s)
	w.until("a=one", "b=one")
	rename(t, dir, dir+".away")
	w.next()
	write(t, filepath.Join(dir, "a.yaml"), config("a", "two"))
	w.until("a=two", "b=one") // b would have gone after a second, which lies behind the folder's coming back
	w.quiet(1200 * time.Millisecond)
	write(t, filepath.Join(dir, "b.yaml"), config("b", "two"))
	w.until("a=two", "b=two")
}

func rename(t *testing.T, from, to string) {
	t.Helper()
	if err := os.Rename(from, to); err != nil {
		t.Fatal(err)
	}
}

// TestWatchManyRewrites rewrites a file in place much faster than it is read;
// nothing may ever be missing, and the last version must arrive.
func TestWatchManyRewrites(t *testing.T) {
	dir := t.TempDir()
	a := filepath.Join(dir, "a.yaml")
	write(t, a, config("a", "v")+config("b", "v"))
	s, err := New([]string{dir}, Options{RemovalGrace: 5 * time.Second}) // on a busy machine the file may be empty for long: write may pause within
	if err != nil {
		t.Fatal(err)
	}
	w := watchSource(t, s)
	for i := range 100 {
		write(t, a, config("a", fmt.Sprintf("v%d", i))+config("b", fmt.Sprintf("v%d", i)))
		time.Sleep(2 * time.Millisecond)
	}
	deadline := time.Now().Add(10 * time.Second)
	for !slices.Equal(w.configs(), []string{"a=v99", "b=v99"}) && time.Now().Before(deadline) {
		w.next()
		if len(w.configs()) != 2 {
			t.Fatalf("only %v", w.configs())
		}
	}
}

// TestWhatWaitsToBeQuiet: only a file that was moved over one that is known is
// certain to be complete.
func TestWhatWaitsToBeQuiet(t *testing.T) {
	dir := t.TempDir()
	a, other := filepath.Join(dir, "a.yaml"), filepath.Join(dir, "other")
	rewritten := func(path string) { write(t, path, config("a", "two")) }
	rename := func(from, to string) {
		if err := os.Rename(from, to); err != nil {
			t.Fatal(err)
		}
	}
	remove := func() {
		if err := os.Remove(a); err != nil {
			t.Fatal(err)
		}
	}
	event := func(op fsnotify.Op) fsnotify.Event { return fsnotify.Event{Name: a, Op: op} }
	for _, test := range []struct {
		name   string
		do     func()
		events []fsnotify.Op
		atOnce bool
	}{
		{"moved over it", func() { rewritten(other); rename(other, a) }, []fsnotify.Op{fsnotify.Create}, true},
		{"moved over it, then written", func() { rewritten(other); rename(other, a); rewritten(a) }, []fsnotify.Op{fsnotify.Create, fsnotify.Write}, false},
		{"written in place", func() { rewritten(a) }, []fsnotify.Op{fsnotify.Write}, false},
		{"removed and created", func() { remove(); rewritten(a) }, []fsnotify.Op{fsnotify.Remove, fsnotify.Create}, false},
		{"moved away and created", func() { rename(a, other); rewritten(a) }, []fsnotify.Op{fsnotify.Rename, fsnotify.Create}, false},
		{"the event of what was read already", func() {}, []fsnotify.Op{fsnotify.Create}, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			write(t, a, config("a", "one"))
			f := followed(t, dir)
			test.do()
			began := time.Now()
			for _, op := range test.events {
				f.note(event(op))
			}
			if got := f.unquiet[a].due.Sub(began) < f.source.options.Debounce; got != test.atOnce || f.earliest.IsZero() {
				t.Errorf("read at once: %v", got)
			}
		})
	}
}

// TestWaitIsBounded: neither a file that is written for ever nor one that cannot be
// read any more keeps the loop from resting, or others from being read.
func TestWaitIsBounded(t *testing.T) {
	var w wait
	began := time.Now()
	for i := range 100 {
		w.begin(began.Add(time.Duration(i)*time.Millisecond), 10*time.Millisecond)
	}
	if got := w.due.Sub(began); got != maxDebounce*10*time.Millisecond {
		t.Errorf("read after %v", got)
	}

	dir := t.TempDir()
	a := filepath.Join(dir, "a.yaml")
	write(t, a, config("a", "one")+config("b", "one"))
	f := followed(t, dir)
	write(t, a, config("a", "one"))
	f.after(a) // b is waited for
	if next := f.next(); !next.Equal(f.catalog.files[a].pending) {
		t.Errorf("woken at %v", next)
	}
	f.catalog.begin()
	f.catalog.fail(f.catalog.files[a], &Problem{})
	f.poll = time.Now().Add(pollInterval)
	if next := f.next(); !next.Equal(f.poll) {
		t.Errorf("woken at %v for a file that cannot be read", next)
	}
	f.catalog.limit = 1
	if change, _ := f.after(a); len(change.Problems) != 1 || len(change.Deletes) > 0 {
		t.Errorf("%v", change)
	}
	f.catalog.limit = 1 << 20
	f.poll = time.Now()
	time.Sleep(f.source.options.RemovalGrace)
	if change, did := f.after(); did.read != 1 || did.scans != 0 || len(change.Problems) != 0 || len(change.Deletes) != 1 {
		t.Errorf("after it can be read again: %v, %v", change, did)
	}
}
