// Package files reads Kubernetes manifests from files and folders and follows
// their changes. It exists so that a gateway can run without a cluster and still
// obey exactly the objects that one would hold: what a text means is for package
// manifest to say, which of all definitions is served, and since when, is said here.
//
// # What is served
//
// A file may hold many documents. A document that is wrong is reported and
// leaves all others alone; of its object the previous valid version stays. A
// file that does not parse at all keeps every object that it held. Of several
// definitions of one object the first by order of the paths given, then by path,
// then by line is served. An object goes when its file parses without it, or is
// gone, and has not changed for Options.RemovalGrace (in a file that never rests,
// ten times as long): files that are rewritten in place pass through such states. What else
// has changed in such a file waits as long, so that what is served was in the file at some
// moment. What a link leads to, as in a mounted ConfigMap, is complete, and replaces what was at once. A file that a
// process has open for writing is not read before it is closed, as far as that can be told; of one that was emptied in place the objects go after ten times RemovalGrace.
//
// A path given to New that vanishes later, with all that it holds, is reported and keeps every object
// until it is there again; what it then lacks goes ten times as late as otherwise.
//
// Objects come out only if they changed. Documents whose text is the same are
// not decoded again.
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

// Options has safe zero values.
type Options struct {
	// MaxFileSize bounds a file in bytes; 0 is 16 MiB.
	MaxFileSize int64
	// RemovalGrace is how long a file must rest without an object before the object
	// goes; 0 is 100 ms, negative is not at all.
	RemovalGrace time.Duration
	// Debounce is how long a file that is written in place must be quiet before it is
	// read; 0 is 10 ms. A file that is moved over another is complete and does not wait, nor does on Linux one that is moved in under a
	// new name and that nobody has open for writing.
	Debounce time.Duration
	// Stdin is what the path "-" stands for; nil is that it is the name of a file.
	Stdin io.Reader
}

// StdinName is the file that positions in Options.Stdin have.
const StdinName = "<standard input>"

// Source reads manifests from a list of files and folders.
type Source struct {
	paths   []string
	streams map[string][]byte // the texts of paths that can be read but once
	options Options

	mu      sync.Mutex
	current *catalog // of Run; written by it alone, under mu
}

// Snapshot is everything at one time.
type Snapshot struct {
	Objects  []Object // sorted by key
	Problems []Problem
}

// Change is what happened since the previous Change.
type Change struct {
	Upserts []Object         // new or changed, sorted by key
	Deletes []kind.ObjectKey // sorted by key, disjoint from Upserts
	// Problems is the full current list, shared with other Changes: nobody may modify it.
	Problems []Problem
	// ProblemsChanged is set if it differs from that of the previous Change.
	ProblemsChanged bool
	// Full is set on the first Change, which has everything.
	Full bool
}

// New makes a Source of files and folders; folders are read recursively for
// *.yaml, *.yml and *.json. A path that does not exist is an error. Pipes, as those of a
// shell's process substitution, are read to their end by New, and never change.
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

// readStream reads a path that can be read but once, and does nothing of others.
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

// Streams reports whether there are paths that can be read but once, such as standard input.
func (s *Source) Streams() bool { return len(s.streams) > 0 }

// Text is what the file of a position says now; false is that it cannot be read.
func (s *Source) Text(path string) ([]byte, bool) {
	if text, ok := s.streams[path]; ok {
		return text, true
	}
	text, err := os.ReadFile(path)
	return text, err == nil
}

// Files returns the files that the paths name now, folders read recursively, in the order of the paths and then by name, and what cannot be read of them.
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

// Position is where Run found the served definition of an object; lines follow
// edits that change nothing else. It may be called at any time.
func (s *Source) Position(id kind.ObjectKey) (Position, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.current == nil {
		return Position{}, false
	}
	o := s.current.objects[id]
	return o.position(), o != nil && o.at.Entry != nil
}
