package files

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// maxLinks is the maximum number of symbolic links that are followed for one path.
const maxLinks = 40

// scan is one listing of the paths: the files, and the folders that must be watched for changes.
type scan struct {
	files []candidate
	// walked are the folders whose files are read, with the index of the path given to New; watch are these and those that contain a
	// path, or a link on the way to one.
	walked map[string]int
	watch  map[string]bool
	// links are the symbolic links on the way, and their final destinations; linked are the files that are links, or whose path as
	// given leads through one.
	links  map[string]bool
	linked map[string]bool
	// through are the folders in walked whose path leads through a link, with links resolved.
	through  map[string]string
	problems []Problem
	// blocked are folders that cannot be listed, and given paths that do not exist: objects that were there or below are kept.
	blocked []string

	// watched is called with each name of a folder before it is listed, so that no change is lost between the listing and the watch.
	watched func(dir string) error
	paths   []string        // those given to New
	real    map[string]bool // folders walked, with links resolved, to detect cycles
	seen    map[string]bool // files
}

// candidate is a file to be read.
type candidate struct {
	path  string
	root  int // index of the path given to New
	stamp stamp
}

// stamp identifies the version of a file that was read.
type stamp struct {
	info fs.FileInfo
	// racy is set if the file had changed so shortly before it was read that the next change may have the same modification time.
	racy bool
	// stream is set for a path that can be read only once.
	stream bool
}

// same reports whether a read would find what was read at s.
func (s stamp) same(o stamp) bool { return !s.racy && s.unchanged(o) }

func (s stamp) unchanged(o stamp) bool {
	return s.stream && o.stream || s.info != nil && o.info != nil && os.SameFile(s.info, o.info) &&
		s.info.Size() == o.info.Size() && s.info.ModTime().Equal(o.info.ModTime())
}

func scanPaths(paths []string, streams map[string][]byte, watched func(string) error) *scan {
	s := &scan{walked: map[string]int{}, watch: map[string]bool{}, links: map[string]bool{}, linked: map[string]bool{}, through: map[string]string{}, real: map[string]bool{}, seen: map[string]bool{}, watched: watched, paths: paths}
	for i, path := range paths {
		if _, ok := streams[path]; ok {
			s.file(path, i, stamp{stream: true})
			continue
		}
		linked := s.follow(path)
		info, err := os.Stat(path)
		switch {
		case err != nil:
			s.problem(path, err)
		case info.IsDir():
			s.walk(path, i, linked)
		default:
			if linked {
				s.linked[path] = true
			}
			s.file(path, i, stamp{info: info})
		}
	}
	return s
}

func (s *scan) problem(path string, err error) {
	s.problems = append(s.problems, unreadable(path, err))
	// If a file below a given path is gone, a user has removed it. If a given path itself is gone, that is a mistake, or a mount is
	// missing: the user still asks for it.
	if !errors.Is(err, fs.ErrNotExist) || slices.Contains(s.paths, path) {
		s.blocked = append(s.blocked, path)
	}
}

func unreadable(path string, err error) Problem {
	p := Problem{Position: Position{File: path}, Reason: Unreadable}
	var pathErr *fs.PathError
	switch {
	case errors.Is(err, fs.ErrNotExist):
		p.Message, p.Remedy, p.Stray = "does not exist", "check the path", true
	case errors.Is(err, fs.ErrPermission):
		p.Message, p.Remedy = "permission denied", "make it readable for the user that runs this process"
	case errors.As(err, &pathErr):
		p.Message, p.Remedy = "cannot be read: "+pathErr.Err.Error(), "check the file system"
	default:
		p.Message, p.Remedy = "cannot be read: "+err.Error(), "check the file system"
	}
	return p
}

func (s *scan) watchDir(dir string) {
	if s.watch[dir] {
		return
	}
	s.watch[dir] = true
	if s.watched == nil {
		return
	}
	if err := s.watched(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		s.problems = append(s.problems, Problem{Position: Position{File: dir}, Reason: Unreadable,
			Message: "cannot be watched, changes are looked for every second: " + err.Error(), Remedy: "raise fs.inotify.max_user_watches and max_user_instances"})
	}
}

// walk lists a folder. linked means that its path leads through a link.
func (s *scan) walk(dir string, root int, linked bool) {
	real, err := filepath.EvalSymlinks(dir)
	if err != nil && slices.Contains(s.paths, dir) {
		s.problem(dir, err)
	}
	if err != nil || s.real[real] {
		return
	}
	s.real[real] = true
	s.watchDir(dir)
	s.walked[dir] = root
	if linked {
		s.through[dir] = real
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		s.problem(dir, err)
		return
	}
	for _, e := range entries {
		// Hidden names belong to editors and version control; a mounted ConfigMap keeps its generations in them, and links to them
		// under visible names.
		if strings.HasPrefix(e.Name(), ".") {
			continue
		}
		path, link := filepath.Join(dir, e.Name()), e.Type()&fs.ModeSymlink != 0
		info, err := s.stat(path, e)
		switch {
		case errors.Is(err, fs.ErrNotExist) && !link:
			// It was removed since it was listed.
		case err != nil:
			if isManifest(path) {
				s.problem(path, err)
			}
		case info.IsDir():
			s.walk(path, root, linked || link)
		case isManifest(path):
			if link {
				s.linked[path] = true
			}
			s.file(path, root, stamp{info: info})
		}
	}
}

func (s *scan) stat(path string, e fs.DirEntry) (fs.FileInfo, error) {
	if e.Type()&fs.ModeSymlink == 0 {
		return e.Info()
	}
	s.follow(path)
	return os.Stat(path)
}

func isManifest(path string) bool {
	return slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(path))
}

func (s *scan) file(path string, root int, st stamp) {
	if s.seen[path] {
		return // the path was given twice
	}
	s.seen[path] = true
	s.files = append(s.files, candidate{path: path, root: root, stamp: st})
}

// indirect reports whether the path of a file leads through a link.
func (s *scan) indirect(path string) bool {
	return s.linked[path] || s.through[filepath.Dir(path)] != ""
}

// linksWithin reports whether a link, or the destination of one, is in dir or below it.
func (s *scan) linksWithin(dir string) bool {
	for link := range s.links {
		if within(link, dir) {
			return true
		}
	}
	return false
}

// together reports whether the path of other leads through a link, and is in the same folder of links as path: in the one that
// contains path, or below the topmost that was reached through a link on the way to it.
func (s *scan) together(path, other string) bool {
	top := filepath.Dir(path)
	for dir := top; dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
		if s.through[dir] != "" {
			top = dir
		}
	}
	return s.indirect(other) && within(other, top)
}

// target returns the final destination of a file whose path leads through a link; "" for all others.
func (s *scan) target(path string) (target string) {
	if real := s.through[filepath.Dir(path)]; real != "" && !s.linked[path] {
		return filepath.Join(real, filepath.Base(path))
	}
	if s.linked[path] {
		target, _ = filepath.EvalSymlinks(path)
	}
	return target
}

// switched reports whether path is below a folder that was reached through a link when before was made, and that is another folder
// now. It returns false if before is nil.
func (s *scan) switched(path string, before *scan) bool {
	if before == nil {
		return false
	}
	for dir := filepath.Dir(path); ; dir = filepath.Dir(dir) {
		then := before.through[dir]
		if then == "" {
			return false
		}
		if now := s.through[dir]; now != "" && now != then {
			return true
		}
	}
}

// follow records the folders in which a change could make path another file: the one that contains it, and those of the links on the
// way. It reports whether there are links on the way.
func (s *scan) follow(path string) (linked bool) {
	s.watchDir(filepath.Dir(path))
	resolved, rest := "", path
	if filepath.IsAbs(path) {
		resolved, rest = string(filepath.Separator), path[1:]
	}
	for links := 0; rest != "" && links < maxLinks; {
		var name string
		name, rest, _ = strings.Cut(rest, string(filepath.Separator))
		at := filepath.Join(resolved, name)
		target, err := os.Readlink(at)
		if err != nil {
			resolved = at
			continue
		}
		links++
		linked = true
		s.links[at] = true
		s.watchDir(filepath.Dir(at))
		if filepath.IsAbs(target) {
			resolved, target = string(filepath.Separator), target[1:]
		}
		rest = filepath.Join(target, rest)
		if rest == "." {
			rest = ""
		}
	}
	if resolved != filepath.Clean(path) {
		s.links[resolved] = true
		s.watchDir(filepath.Dir(resolved))
	}
	return linked
}

func tooLarge(path string, limit int64) *Problem {
	return &Problem{Position: Position{File: path}, Reason: Unreadable, Message: "is larger than " + mebibytes(limit), Remedy: "split it into several files", Stray: true}
}

// readFile reads a regular file of at most limit bytes.
func readFile(path string, limit int64) ([]byte, stamp, *Problem) {
	info, err := os.Stat(path) // before open, which would block on a pipe without a writer
	if err == nil && !info.Mode().IsRegular() {
		return nil, stamp{}, &Problem{Position: Position{File: path}, Reason: Unreadable, Message: "is not a regular file", Remedy: "give a file or a folder"}
	}
	var f *os.File
	if err == nil {
		f, err = os.Open(path)
	}
	if err != nil {
		p := unreadable(path, err)
		return nil, stamp{}, &p
	}
	defer f.Close()
	if info, err = f.Stat(); err != nil {
		p := unreadable(path, err)
		return nil, stamp{}, &p
	}
	st := stamp{info: info, racy: time.Since(info.ModTime()) < 50*time.Millisecond}
	if info.Size() > limit {
		return nil, st, tooLarge(path, limit)
	}
	var text bytes.Buffer
	text.Grow(int(info.Size()) + bytes.MinRead)
	if _, err = text.ReadFrom(io.LimitReader(f, limit+1)); err != nil {
		p := unreadable(path, err)
		return nil, stamp{}, &p
	}
	if int64(text.Len()) > limit { // it has grown in the meantime
		return nil, st, tooLarge(path, limit)
	}
	return text.Bytes(), st, nil
}
