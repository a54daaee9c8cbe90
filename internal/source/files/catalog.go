package files

import (
	"cmp"
	"crypto/sha256"
	"maps"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/moongate-dev/moongate/internal/source/manifest"
)

// catalog knows what each file holds, and which of all definitions is served.
type catalog struct {
	paths []string
	limit int64         // bytes of a file
	grace time.Duration // see Options.RemovalGrace

	scan     *scan
	files    map[string]*file
	order    []*file              // files in file order; nil after files has changed
	owners   map[ObjectID][]*file // that hold a definition, in file order
	served   map[ObjectID]served
	members  map[string]int  // objects per namespace
	implicit map[string]bool // Namespaces that no file defines
	change   changeSet
}

// file is what is known of one file.
type file struct {
	path  string
	root  int
	stamp stamp
	// changed is when a read first found the file as it is now, or gone.
	changed time.Time
	failed  *Problem // why it could not be read the last time
	// documents are those of the last read by the hash of their text.
	documents map[[sha256.Size]byte]*manifest.Document
	held      map[ObjectID]*definition
	repeats   []placed // definitions of what is defined further up
	problems  []Problem
	ignored   []manifest.Unused
	// pending is when the first of the definitions that are missing is given up; zero if none is.
	pending time.Time
}

// definition is what a file says of one object.
type definition struct {
	now placed // zero if the last read did not have it
	// good is the last that was valid.
	good placed
	// missing is since when each read found that the file parses but lacks the object.
	missing time.Time
}

// placed is an entry at its line in the file, from 1.
type placed struct {
	*manifest.Entry
	at int
}

type served struct {
	entry    *manifest.Entry
	object   metav1.Object
	position Position
}

type changeSet struct {
	upserts map[ObjectID]Object
	deletes map[ObjectID]bool
	touched map[string]bool // namespaces whose members changed
}

func newCatalog(paths []string, limit int64, grace time.Duration) *catalog {
	return &catalog{
		paths: paths, limit: limit, grace: grace,
		files: map[string]*file{}, owners: map[ObjectID][]*file{}, served: map[ObjectID]served{},
		members: map[string]int{}, implicit: map[string]bool{},
	}
}

func (c *catalog) begin() {
	c.change = changeSet{map[ObjectID]Object{}, map[ObjectID]bool{}, map[string]bool{}}
}

// rescan looks at all paths and reads the files that are new or changed, and those in force.
func (c *catalog) rescan(watched func(string) error, force map[string]bool, now time.Time) {
	c.scan = scanPaths(c.paths, watched)
	seen := make(map[string]bool, len(c.scan.files))
	var read []*file
	for _, candidate := range c.scan.files {
		seen[candidate.path] = true
		f := c.files[candidate.path]
		if f == nil {
			f = &file{path: candidate.path, root: candidate.root, held: map[ObjectID]*definition{}}
			c.files[f.path], c.order = f, nil
		}
		if f.failed != nil || !f.pending.IsZero() || force[f.path] || !f.stamp.same(candidate.stamp) {
			read = append(read, f)
		}
	}
	c.read(read, now)
	for _, f := range c.inOrder() {
		if !seen[f.path] && !c.blocked(f.path) {
			c.vanished(f, now)
		}
	}
}

// blocked says that path is below a folder that cannot be listed.
func (c *catalog) blocked(path string) bool {
	return slices.ContainsFunc(c.scan.blocked, func(dir string) bool {
		return path == dir || strings.HasPrefix(path, dir+string(filepath.Separator))
	})
}

// inOrder lists the files in file order.
func (c *catalog) inOrder() []*file {
	if c.order == nil {
		c.order = slices.SortedFunc(maps.Values(c.files), compareFiles)
	}
	return c.order
}

func compareFiles(a, b *file) int {
	return cmp.Or(cmp.Compare(a.root, b.root), cmp.Compare(a.path, b.path))
}

// reading is one file between its text and its documents.
type reading struct {
	file      *file
	chunks    []manifest.Chunk
	hashes    [][sha256.Size]byte
	documents []*manifest.Document
}

// read reads files, decodes what changed in them, and takes it in.
func (c *catalog) read(list []*file, now time.Time) {
	var readings []*reading
	var todo []func()
	for _, f := range list {
		text, st, failed := readFile(f.path, c.limit)
		if !st.unchanged(f.stamp) {
			f.changed = now
		}
		f.stamp, f.failed = st, failed
		if failed != nil {
			continue
		}
		r := &reading{file: f, chunks: manifest.Split(text)}
		r.documents = make([]*manifest.Document, len(r.chunks))
		for i, chunk := range r.chunks {
			hash := sha256.Sum256(chunk.Text)
			r.hashes = append(r.hashes, hash)
			if r.documents[i] = f.documents[hash]; r.documents[i] == nil {
				todo = append(todo, func() { r.documents[i] = manifest.Decode(chunk.Text) })
			}
		}
		readings = append(readings, r)
	}
	inParallel(todo)
	for _, r := range readings {
		c.take(r, now)
	}
}

func inParallel(todo []func()) {
	workers := min(runtime.GOMAXPROCS(0), len(todo))
	if workers <= 1 {
		for _, f := range todo {
			f()
		}
		return
	}
	var next atomic.Int64
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for i := next.Add(1) - 1; i < int64(len(todo)); i = next.Add(1) - 1 {
				todo[i]()
			}
		})
	}
	wg.Wait()
}

// take replaces what a file held by what it holds now.
func (c *catalog) take(r *reading, now time.Time) {
	f := r.file
	f.documents = make(map[[sha256.Size]byte]*manifest.Document, len(r.chunks))
	f.problems, f.ignored, f.repeats = nil, nil, nil
	found := make(map[ObjectID]placed)
	var order []ObjectID
	malformed := false
	for i, d := range r.documents {
		f.documents[r.hashes[i]] = d
		base := r.chunks[i].Line
		for _, p := range d.Problems {
			malformed = true
			f.problems = append(f.problems, located(p, f.path, base))
		}
		for _, g := range d.Unused {
			g.Line += base
			f.ignored = append(f.ignored, g)
		}
		for _, e := range d.Entries {
			for _, p := range e.Problems {
				f.problems = append(f.problems, located(p, f.path, base))
			}
			if _, ok := found[e.ID]; ok {
				f.repeats = append(f.repeats, placed{e, base + e.Line})
				continue
			}
			found[e.ID] = placed{e, base + e.Line}
			order = append(order, e.ID)
		}
	}
	c.missing(f, found, malformed, now)
	for _, id := range order {
		c.define(f, id, found[id])
	}
}

// located is a problem whose line counts from 0 at a chunk's first line.
func located(p Problem, path string, base int) Problem {
	p.File = path
	p.Line += base
	return p
}

func (c *catalog) define(f *file, id ObjectID, p placed) {
	d := f.held[id]
	if d == nil {
		d = new(definition)
		f.held[id] = d
		at, _ := slices.BinarySearchFunc(c.owners[id], f, compareFiles)
		c.owners[id] = slices.Insert(c.owners[id], at, f)
	}
	same := d.now == p
	d.now, d.missing = p, time.Time{}
	if p.Object != nil {
		d.good = p
	}
	if !same {
		c.resolve(id)
	}
}

// maxGrace is how many grace periods an object may outlive its definition in a
// file that never comes to rest.
const maxGrace = 10

// missing handles what f held and no longer has. An object goes only if its file
// parses without it, and rested in that state for the grace period: a file that
// is being written passes through such states.
func (c *catalog) missing(f *file, found map[ObjectID]placed, malformed bool, now time.Time) {
	f.pending = time.Time{}
	for _, id := range c.heldBy(f) {
		if _, ok := found[id]; ok {
			continue
		}
		d := f.held[id]
		d.now = placed{}
		if malformed {
			d.missing = time.Time{} // it may be in what does not parse
		} else if d.missing.IsZero() {
			d.missing = now
		}
		end := f.changed.Add(c.grace)
		if last := d.missing.Add(maxGrace * c.grace); last.Before(end) {
			end = last
		}
		switch {
		case malformed:
		case d.good.Entry != nil && now.Before(end):
			f.await(end)
		default:
			c.forget(f, id)
		}
		c.resolve(id)
	}
}

func (c *catalog) forget(f *file, id ObjectID) {
	delete(f.held, id)
	if c.owners[id] = slices.DeleteFunc(c.owners[id], func(o *file) bool { return o == f }); len(c.owners[id]) == 0 {
		delete(c.owners, id)
	}
}

func (c *catalog) heldBy(f *file) []ObjectID {
	ids := make([]ObjectID, 0, len(f.held))
	for id := range f.held {
		ids = append(ids, id)
	}
	return ids
}

// vanished handles a file that is no longer there.
func (c *catalog) vanished(f *file, now time.Time) {
	if f.stamp.info != nil {
		f.changed = now
	}
	f.failed, f.problems, f.ignored, f.repeats, f.stamp = nil, nil, nil, nil, stamp{}
	c.missing(f, nil, false, now)
	if len(f.held) == 0 {
		delete(c.files, f.path)
		c.order = nil
	}
}

func (f *file) await(t time.Time) {
	if f.pending.IsZero() || t.Before(f.pending) {
		f.pending = t
	}
}

// pending is when the next grace period ends; zero if none runs.
func (c *catalog) pending() time.Time {
	var next file
	for _, f := range c.files {
		if !f.pending.IsZero() {
			next.await(f.pending)
		}
	}
	return next.pending
}

// resolve decides which definition of an object is served.
func (c *catalog) resolve(id ObjectID) {
	var missing placed
	var missingFile *file
	present := false
	for _, f := range c.owners[id] {
		d := f.held[id]
		if d.now.Entry == nil {
			if missing.Entry == nil {
				missing, missingFile = d.good, f
			}
			continue
		}
		present = true
		if d.good.Entry != nil {
			c.serve(id, d.good, f)
			return
		}
	}
	switch {
	case missing.Entry != nil:
		c.serve(id, missing, missingFile)
	case !present:
		c.withdraw(id)
	}
	// Else it moved to another file and is invalid there: what is served stays.
}

// present counts the files that define an object now, and says where the first does.
func (c *catalog) present(id ObjectID) (first Position, n int) {
	for _, f := range c.owners[id] {
		if d := f.held[id]; d.now.Entry != nil {
			if n++; n == 1 {
				first = Position{File: f.path, Line: d.now.at}
			}
		}
	}
	return first, n
}

func mebibytes(n int64) string {
	return strconv.FormatInt(n>>20, 10) + " MiB"
}
