// Package files reads Kubernetes manifests from files and folders and watches them for changes. It exists so that a gateway can run
// without a cluster and serve exactly the objects that a cluster would contain: package manifest interprets a text, this package
// decides which of all definitions is served, and since when.
//
// # What is served
//
// A file may contain many documents. A document that is wrong is reported and does not affect the others; the previous valid version
// of its object is kept. A file that does not parse at all keeps every object that it contained. Of several definitions of one
// object, the first by order of the paths given, then by path, then by line is served. An object is removed when its file parses
// without it, or is gone, and has not changed for Options.RemovalGrace (ten times as long in a file that keeps changing): files that
// are rewritten in place pass through such states. Other changes in such a file wait as long, so that what is served was in the file
// at some moment. The destination of a link to a file or a folder, as in a mounted ConfigMap, is complete, and replaces the old one at
// once, all files together. A file that a process has open for writing is not read before it is closed, as far as that is known; the
// objects of a file that was emptied in place are removed after ten times RemovalGrace.
//
// A path given to New that disappears later, with all its content, is reported, and its objects are kept until it exists again;
// objects that are then missing are removed after ten times as long as otherwise.
//
// Only objects that have changed are emitted. Documents with the same text are not decoded again.
//
// It imports neither translate nor proxy.
package files

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/moongate-dev/moongate/internal/kind"
)

// Options configure a Source; the zero values are safe.
type Options struct {
	// MaxFileSize is the maximum size of a file in bytes; 0 means 16 MiB.
	MaxFileSize int64
	// RemovalGrace is how long a file must be unchanged without an object before the object is removed; 0 means 100 ms, negative
	// means no wait.
	RemovalGrace time.Duration
	// Debounce is how long a file that is written in place must be unchanged before it is read; 0 means 10 ms. A file that is moved
	// over another is complete and does not wait. On Linux, neither does one that is moved in under a new name and that no process
	// has open for writing.
	Debounce time.Duration
	// Stdin is read for the path "-"; nil means that this is the name of a file.
	Stdin io.Reader
}

// StdinName is the file in positions of objects from Options.Stdin.
const StdinName = "<standard input>"

// Source reads manifests from a list of files and folders.
type Source struct {
	paths   []string
	streams map[string][]byte // the texts of paths that can be read only once
	options Options

	mu      sync.Mutex
	current *catalog // the catalog of Run; modified only by it, under mu
}

// Snapshot is the complete state at one time.
type Snapshot struct {
	Objects  []Object // sorted by key
	Problems []Problem
}

// Change is what has happened since the previous Change.
type Change struct {
	Upserts []Object         // new or changed, sorted by key
	Deletes []kind.ObjectKey // sorted by key, disjoint from Upserts
	// Problems is the full present list, shared with other Changes: it must not be modified.
	Problems []Problem
	// ProblemsChanged is set if it differs from that of the previous Change.
	ProblemsChanged bool
	// Full is set for the first Change, which contains everything.
	Full bool
}

// New returns a Source of files and folders; folders are read recursively for *.yaml, *.yml and *.json. It returns an error if a
// path does not exist. Pipes, such as those of a shell's process substitution, are read to their end by New, and never change.
func New(paths []string, options Options) (*Source, error) {
	if options.MaxFileSize <= 0 {
		options.MaxFileSize = 16 << 20
	}
	switch {
	case options.RemovalGrace == 0:
		options.RemovalGrace = 100 * time.Millisecond
	case options.RemovalGrace < 0:
		options.RemovalGrace = 0
	}
	if options.Debounce <= 0 {
		options.Debounce = 10 * time.Millisecond
	}
	if len(paths) == 0 {
		return nil, errors.New("no manifests: give at least one file or folder")
	}
	s := &Source{options: options, streams: map[string][]byte{}}
	for _, p := range paths {
		if p = filepath.Clean(p); p == "-" && options.Stdin != nil {
			p = StdinName
		}
		if err := s.readStream(p); err != nil {
			return nil, err
		}
		s.paths = append(s.paths, p)
	}
	if wrong := scanPaths(s.paths, s.streams, nil).problems; len(wrong) > 0 {
		var missing []string
		for _, p := range wrong {
			for _, root := range s.paths {
				if p.File == root {
					missing = append(missing, p.String())
				}
			}
		}
		if len(missing) > 0 {
			return nil, errors.New(strings.Join(missing, "\n"))
		}
	}
	return s, nil
}

// readStream reads a path that can be read only once; it does nothing for other paths.
func (s *Source) readStream(path string) error {
	if _, read := s.streams[path]; read {
		return nil
	}
	from := s.options.Stdin
	if path != StdinName || from == nil {
		info, err := os.Stat(path)
		if err != nil || info.Mode()&(fs.ModeNamedPipe|fs.ModeSocket|fs.ModeCharDevice) == 0 {
			return nil
		}
		f, err := os.Open(path)
		if err != nil {
			return errors.New(unreadable(path, err).String())
		}
		defer f.Close()
		from = f
	}
	text, err := io.ReadAll(io.LimitReader(from, s.options.MaxFileSize+1))
	switch {
	case err != nil:
		return errors.New(unreadable(path, err).String())
	case int64(len(text)) > s.options.MaxFileSize:
		return errors.New(tooLarge(path, s.options.MaxFileSize).String())
	}
	s.streams[path] = text
	return nil
}

// Streams reports whether there are paths that can be read only once, such as standard input.
func (s *Source) Streams() bool { return len(s.streams) > 0 }

// Text returns the present text of the file of a position; ok is false if it cannot be read.
func (s *Source) Text(path string) ([]byte, bool) {
	if text, ok := s.streams[path]; ok {
		return text, true
	}
	text, err := os.ReadFile(path)
	return text, err == nil
}

// Files returns the files that the paths name now, folders read recursively, in the order of the paths and then by name, and the
// problems of paths that cannot be read.
func (s *Source) Files() ([]string, []Problem) {
	found := scanPaths(s.paths, s.streams, nil)
	paths := make([]string, len(found.files))
	for i, f := range found.files {
		paths[i] = f.path
	}
	return paths, found.problems
}

// Load reads everything once.
func (s *Source) Load() Snapshot {
	c := newCatalog(s)
	c.begin()
	c.rescan(nil, nil, time.Now())
	change := c.commit()
	return Snapshot{Objects: change.Upserts, Problems: change.Problems}
}

// Position returns where Run has found the served definition of an object; lines are updated by edits that change nothing else. It
// may be called at any time.
func (s *Source) Position(id kind.ObjectKey) (Position, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.current == nil {
		return Position{}, false
	}
	o := s.current.objects[id]
	return o.position(), o != nil && o.at.Entry != nil
}
