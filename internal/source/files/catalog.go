package files

import (
	"cmp"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/moongate-dev/moongate/internal/kind"
	"github.com/moongate-dev/moongate/internal/source/manifest"
)

// catalog knows what each file holds, and which of all definitions is served. What
// a change costs depends on what it changes: nothing here walks all files or all
// objects but rescan.
type catalog struct {
	paths   []string
	streams map[string][]byte // see Source
	limit   int64             // bytes of a file
	grace   time.Duration     // see Options.RemovalGrace

	scan     *scan
	files    map[string]*file
	objects  map[kind.ObjectKey]*object
	waiting  map[*file]bool                    // whose pending is set
	holders  map[kind.ObjectKey]map[*file]bool // in whose heldHas an object is
	failing  map[*file]bool                    // that could not be read
	members  map[string]int                    // objects per namespace
	implicit map[string]bool                   // Namespaces that no file defines
	report   report
	change   changeSet
	// unquiet is follower.unquiet: what these files have now, nobody knows. It is nil where nothing is followed.
	unquiet map[string]wait
	work    work
	effort  effort
}

// work counts what was done since the beginning.
type work struct{ scans, read, decoded int }

// effort counts what decisions about objects took that files have lost: files that may have them, and questions to the kernel.
type effort struct{ looked, asked int }

// file is what is known of one file.
type file struct {
	path  string
	root  int // index of the path given that led here
	stamp stamp
	// changed is when a read first found the file as it is now, or gone.
	changed time.Time
	// hidden is set while the file is below a path that is gone or cannot be listed.
	hidden   bool
	failed   *Problem // why it could not be read the last time
	sections []*section
	held     int                  // definitions
	gone     map[*definition]bool // that the last read did not find
	shared   map[*object]bool     // that other files define too
	repeated map[*definition]bool // that are there more than once
	found    []Problem            // in its sections
	unused   []manifest.Unused    // in its sections
	// problems and reported are all problems and the unused as the report has them.
	problems []Problem
	reported []manifest.Unused
	// pending is when the first of the definitions that are gone is given up; zero if none is.
	pending time.Time
	// heldSince is since when what was read waits to be taken in, because it lacks objects that may come yet; zero if it does not wait.
	heldSince time.Time
	// heldHas are the objects of the version that waits which are new, or differ, or stand elsewhere in the file.
	heldHas map[kind.ObjectKey]bool
	// target is what the name led to when it was read last, where it is a link.
	target string
	// swapped is that the last read found that the name is a link which leads elsewhere.
	swapped bool
	// ragged is that the last read found a text that was written in place and whose last line does not end: more may come.
	ragged bool
}

// section is one document of a file at its place.
type section struct {
	*manifest.Document
	sum   sum
	index int // in the file
	line  int // of its first line in the file
}

// object is all that files say of one object, and what of it is served.
type object struct {
	id          kind.ObjectKey
	definitions []*definition // in file order, one for each file
	at          place         // of what is served; zero if nothing is
	file        *file         // that at is in
	typed       metav1.Object // with the generation that it is served with
	// closing is what it closes though nothing of it is served; nil if it closes nothing.
	closing *kind.Undecoded
}

// definition is what a file says of one object.
type definition struct {
	object *object
	file   *file
	// places are where the last read found it; only the first counts.
	places []place
	// good is the last that was valid.
	good place
	// closing is what the last one closes, while none was valid; nil if that closes nothing.
	closing *kind.Undecoded
	// missing is since when each read found that the file parses but lacks the object.
	missing time.Time
}

// place is where an entry is, or was.
type place struct {
	*manifest.Entry
	section *section
}

func (p place) line() int { return p.section.line + p.Line }

// now is what counts; zero if the last read did not find it.
func (d *definition) now() place {
	if len(d.places) == 0 {
		return place{}
	}
	return d.places[0]
}

func newCatalog(s *Source) *catalog {
	return &catalog{
		paths: s.paths, streams: s.streams, limit: s.options.MaxFileSize, grace: s.options.RemovalGrace,
		files: map[string]*file{}, objects: map[kind.ObjectKey]*object{}, waiting: map[*file]bool{}, holders: map[kind.ObjectKey]map[*file]bool{}, failing: map[*file]bool{},
		members: map[string]int{}, implicit: map[string]bool{},
	}
}

func (c *catalog) begin() {
	c.change = changeSet{
		upserts: map[kind.ObjectKey]Object{}, deletes: map[kind.ObjectKey]bool{}, namespaces: map[string]bool{},
		objects: map[*object]bool{}, files: map[*file]bool{},
	}
}

// rescan looks at all paths and reads the files that are new or changed, and those
// in due. Those in c.unquiet are still being written and wait.
func (c *catalog) rescan(watched func(string) error, due map[string]bool, now time.Time) {
	c.work.scans++
	c.scan = scanPaths(c.paths, c.streams, watched)
	seen := make(map[string]bool, len(c.scan.files))
	var read, gone []*file
	for _, candidate := range c.scan.files {
		seen[candidate.path] = true
		if _, ok := c.unquiet[candidate.path]; ok {
			continue
		}
		f := c.file(candidate.path, candidate.root)
		if c.work.scans > 1 && !due[f.path] && !f.stamp.unchanged(candidate.stamp) && openForWriting(f.path) {
			c.unquiet[f.path] = wait{since: now, due: now.Add(settle), first: now, last: now}
			continue
		}
		if f.failed != nil || len(f.gone) > 0 || !f.heldSince.IsZero() || due[f.path] || !f.stamp.same(candidate.stamp) {
			read = append(read, f)
		}
	}
	c.scan.files = nil
	for _, f := range c.files {
		switch {
		case seen[f.path]:
		case c.blocked(f.path):
			c.unawait(f) // nobody knows whether it changed
			f.hidden = true
		default:
			gone = append(gone, f)
		}
	}
	c.update(read, gone, now)
	for i, p := range c.scan.problems {
		c.scan.problems[i].Kept = c.holds(p.File)
	}
}

// update reads files, and takes in that others are gone.
func (c *catalog) update(read, gone []*file, now time.Time) {
	slices.SortFunc(read, compareFiles)
	slices.SortFunc(gone, compareFiles)
	c.read(read, now)
	for _, f := range gone {
		c.vanished(f, now)
	}
}

// file finds a file, or takes it in.
func (c *catalog) file(path string, root int) *file {
	f := c.files[path]
	if f == nil {
		f = &file{path: path, root: root}
		c.files[path] = f
	}
	return f
}

// holds reports whether a path that is blocked has objects that are served.
func (c *catalog) holds(path string) bool {
	if !slices.Contains(c.scan.blocked, path) {
		return false
	}
	for _, f := range c.files {
		if f.held > 0 && within(f.path, path) {
			return true
		}
	}
	return false
}

// blocked says that path is below a folder that cannot be listed.
func (c *catalog) blocked(path string) bool {
	return slices.ContainsFunc(c.scan.blocked, func(dir string) bool {
		return within(path, dir)
	})
}

// within reports whether path is dir or below it.
func within(path, dir string) bool {
	return path == dir || dir == "." && filepath.IsLocal(path) || strings.HasPrefix(path, strings.TrimSuffix(dir, string(filepath.Separator))+string(filepath.Separator))
}

func compareFiles(a, b *file) int {
	return cmp.Or(cmp.Compare(a.root, b.root), cmp.Compare(a.path, b.path))
}

// vanished handles a file that is no longer there.
func (c *catalog) vanished(f *file, now time.Time) {
	if f.stamp.info != nil {
		f.changed = now
	}
	if f.hidden {
		// Where it was is there again, perhaps to be filled file by file: that takes longer than one file does.
		f.hidden, f.changed = false, now.Add((maxGrace-1)*c.grace)
		for d := range f.gone {
			d.missing = time.Time{}
		}
	}
	f.stamp, f.swapped, f.ragged = stamp{}, false, false
	c.fail(f, nil)
	c.take(f, nil, f.sections, nil, now)
	if f.held == 0 {
		delete(c.files, f.path)
	}
}

// fail notes why f could not be read; nil if it could.
func (c *catalog) fail(f *file, failed *Problem) {
	if f.failed = failed; failed != nil {
		c.failing[f] = true
		c.unawait(f)
	} else {
		delete(c.failing, f)
	}
	c.change.files[f] = true
}

// await notes that a definition in f is given up at t.
func (c *catalog) await(f *file, t time.Time) {
	if f.pending.IsZero() || t.Before(f.pending) {
		f.pending = t
	}
	c.waiting[f] = true
}

func (c *catalog) unawait(f *file) {
	f.pending = time.Time{}
	delete(c.waiting, f)
}

func mebibytes(n int64) string {
	return strconv.FormatInt(n>>20, 10) + " MiB"
}
