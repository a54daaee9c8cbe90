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

// catalog contains the content of each file, and which of all definitions is served. The cost of a change depends on what it
// changes: only rescan walks all files.
type catalog struct {
	paths   []string
	streams map[string][]byte // see Source
	limit   int64             // maximum size of a file in bytes
	grace   time.Duration     // see Options.RemovalGrace

	scan     *scan
	files    map[string]*file
	objects  map[kind.ObjectKey]*object
	waiting  map[*file]bool                    // those whose pending is set
	holders  map[kind.ObjectKey]map[*file]bool // the files with an object in heldHas
	failing  map[*file]bool                    // files that could not be read
	members  map[string]int                    // number of objects by namespace
	implicit map[string]bool                   // Namespaces that no file defines
	report   report
	change   changeSet
	// unquiet is follower.unquiet: the present content of these files is not known. It is nil if nothing is watched.
	unquiet map[string]wait
	work    work
	effort  effort
}

// work counts what was done since the start.
type work struct{ scans, read, decoded int }

// effort counts the cost of decisions about objects that files have lost: files that may contain them, and queries to the kernel.
type effort struct{ looked, asked int }

// file is the state of one file.
type file struct {
	path  string
	root  int // index of the path given to New
	stamp stamp
	// changed is when a read first found the file in its present state, or gone.
	changed time.Time
	// hidden is set while the file is below a path that is gone or cannot be listed.
	hidden   bool
	failed   *Problem // why it could not be read the last time
	sections []*section
	held     int                  // number of definitions
	gone     map[*definition]bool // those that the last read did not find
	shared   map[*object]bool     // objects that other files define too
	repeated map[*definition]bool // those that occur more than once
	found    []Problem            // in its sections
	unused   []manifest.Unused    // in its sections
	// problems and reported are all problems and the unused objects as they are in the report.
	problems []Problem
	reported []manifest.Unused
	// pending is when the first of the definitions in gone is given up; zero if none is.
	pending time.Time
	// heldSince is since when a read version is held back, because it lacks objects that may still be written; zero if none is.
	heldSince time.Time
	// heldHas are the objects of the held version that are new, or differ, or are elsewhere in the file.
	heldHas map[kind.ObjectKey]bool
	// target is the final destination when it was last read, if the path leads through a link.
	target string
	// swapped is set if the last read found that the path leads to another destination.
	swapped bool
	// ragged is set if the last read found a text that was written in place and does not end with a line end: more may follow.
	ragged bool
	// recreated is set if the name was gone for a moment since the last read: the file that has it now may not be complete, unlike one
	// that was moved over another.
	recreated bool
}

// section is one document of a file, with its place.
type section struct {
	*manifest.Document
	sum   sum
	index int // in the file
	line  int // of its first line in the file
}

// object is everything that files define for one object, and what of it is served.
type object struct {
	id          kind.ObjectKey
	definitions []*definition // in the order of the files, one for each file
	at          place         // of what is served; zero if nothing is
	file        *file         // the file of at
	typed       metav1.Object // with the generation with which it is served
	// closing is what it denies although no definition is served; nil if it denies nothing.
	closing *kind.Undecoded
}

// definition is one file's definition of an object.
type definition struct {
	object *object
	file   *file
	// places are where the last read found it; only the first counts.
	places []place
	// good is the last valid version.
	good place
	// closing is what the last version denies, while none was valid; nil if it denies nothing.
	closing *kind.Undecoded
	// missing is since when all reads found that the file parses but lacks the object.
	missing time.Time
}

// place is the present or past place of an entry.
type place struct {
	*manifest.Entry
	section *section
}

func (p place) line() int { return p.section.line + p.Line }

// now returns the place that counts; zero if the last read did not find it.
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

// rescan lists all paths and reads the files that are new or changed, and those in due. Those in c.unquiet are still being written
// and wait, unless they are other files now because a link has another destination: then all that it leads to is read together.
func (c *catalog) rescan(watched func(string) error, due map[string]bool, now time.Time) {
	c.work.scans++
	before := c.scan
	c.scan = scanPaths(c.paths, c.streams, watched)
	seen := make(map[string]bool, len(c.scan.files))
	var read, gone []*file
	for _, candidate := range c.scan.files {
		seen[candidate.path] = true
		known := c.files[candidate.path]
		switched := known != nil && known.stamp.info != nil && known.target != c.scan.target(candidate.path)
		if _, ok := c.unquiet[candidate.path]; ok && !switched {
			continue
		}
		f := c.file(candidate.path, candidate.root)
		if c.work.scans > 1 && !due[f.path] && (switched || !f.stamp.unchanged(candidate.stamp)) && openForWriting(f.path) {
			c.unquiet[f.path] = wait{since: now, due: now.Add(settle), first: now, last: now}
			continue
		}
		if switched {
			delete(c.unquiet, f.path) // what happened was about its former destination
		}
		if f.failed != nil || len(f.gone) > 0 || !f.heldSince.IsZero() || due[f.path] || switched || !f.stamp.same(candidate.stamp) {
			read = append(read, f)
		}
	}
	c.scan.files = nil
	for _, f := range c.files {
		switch {
		case seen[f.path]:
		case c.blocked(f.path):
			c.unawait(f) // it is not known whether it has changed
			f.hidden = true
		default:
			if c.scan.switched(f.path, before) {
				delete(c.unquiet, f.path)
			}
			gone = append(gone, f)
		}
	}
	c.update(read, gone, before, now)
	for i, p := range c.scan.problems {
		c.scan.problems[i].Kept = c.holds(p.File)
	}
}

// update reads files, and records that others are gone. before is the scan before the present one if that was just made, otherwise
// nil.
func (c *catalog) update(read, gone []*file, before *scan, now time.Time) {
	slices.SortFunc(read, compareFiles)
	slices.SortFunc(gone, compareFiles)
	c.read(read, now)
	for _, f := range gone {
		c.vanished(f, c.scan.switched(f.path, before), now)
	}
}

// file returns the state of a file, which it creates if there is none.
func (c *catalog) file(path string, root int) *file {
	f := c.files[path]
	if f == nil {
		f = &file{path: path, root: root}
		c.files[path] = f
	}
	return f
}

// holds reports whether objects below a blocked path are served.
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

// blocked reports whether path is below a folder that cannot be listed.
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

// vanished handles a file that no longer exists. switched means that its folder is another one now, see scan.switched.
func (c *catalog) vanished(f *file, switched bool, now time.Time) {
	if f.stamp.info != nil {
		f.changed = now
	}
	if f.hidden {
		// The folder exists again, and may still be filled file by file: that takes longer than a single file.
		f.hidden, f.changed, switched = false, now.Add((maxGrace-1)*c.grace), false
		for d := range f.gone {
			d.missing = time.Time{}
		}
	}
	f.stamp, f.swapped, f.ragged = stamp{}, switched, false
	c.fail(f, nil)
	c.take(f, nil, f.sections, nil, now)
	if f.held == 0 {
		delete(c.files, f.path)
	}
}

// fail records why f could not be read; nil if it could.
func (c *catalog) fail(f *file, failed *Problem) {
	if f.failed = failed; failed != nil {
		c.failing[f] = true
		c.unawait(f)
	} else {
		delete(c.failing, f)
	}
	c.change.files[f] = true
}

// await records that a definition in f is given up at t.
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
