package files

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/fsnotify/fsnotify"
)

const (
	// maxDebounce bounds, in Options.Debounce, how long a stream of changes puts
	// off reading.
	maxDebounce = 5
	// pollInterval is how often paths are looked at while one of them is missing
	// or cannot be watched.
	pollInterval = time.Second
)

// Run reads everything, hands it to emit, and then hands over each change until
// ctx ends. emit is called by one goroutine at a time, and only if something
// changed; the watch waits for it. The error says why files cannot be watched.
func (s *Source) Run(ctx context.Context, emit func(Change)) error {
	w, err := fsnotify.NewWatcher()
	if err != nil {
		return fmt.Errorf("files cannot be watched: %w; raise fs.inotify.max_user_instances", err)
	}
	defer w.Close()
	f := &follower{source: s, watcher: w, dirty: map[string]bool{}, rescan: true,
		catalog: newCatalog(s.paths, s.options.MaxFileSize, s.options.RemovalGrace)}
	s.mu.Lock()
	s.current = f.catalog
	s.mu.Unlock()
	first := f.update()
	first.Full = true
	last := first.Problems
	emit(first)
	for f.wait(ctx) {
		change := f.update()
		if len(change.Upserts) > 0 || len(change.Deletes) > 0 || !slices.Equal(change.Problems, last) {
			last = change.Problems
			emit(change)
		}
	}
	return nil
}

// follower is the state of one Run.
type follower struct {
	source  *Source
	watcher *fsnotify.Watcher
	catalog *catalog
	// dirty are files to be read again; rescan says that there may be others.
	dirty  map[string]bool
	rescan bool
}

// update brings the catalog up to date with what events said.
func (f *follower) update() Change {
	f.source.mu.Lock()
	defer f.source.mu.Unlock()
	c, now := f.catalog, time.Now()
	c.begin()
	read := make([]*file, 0, len(f.dirty))
	for path := range f.dirty {
		file := c.files[path]
		info, err := os.Lstat(path)
		if file == nil || err != nil || !info.Mode().IsRegular() {
			f.rescan = true
			break
		}
		read = append(read, file)
	}
	if f.rescan {
		c.rescan(f.watcher.Add, f.dirty, now)
		f.unwatch()
	} else {
		slices.SortFunc(read, compareFiles)
		c.read(read, now)
	}
	f.dirty, f.rescan = map[string]bool{}, false
	return c.commit()
}

// unwatch drops the folders that no longer matter.
func (f *follower) unwatch() {
	for _, dir := range f.watcher.WatchList() {
		if !f.catalog.scan.watch[dir] {
			// It fails if the folder is gone, and the watch with it.
			_ = f.watcher.Remove(dir)
		}
	}
}

// wait returns when there is something to update; false when ctx ended.
func (f *follower) wait(ctx context.Context) bool {
	debounce := f.source.options.Debounce
	var quiet, latest, idle <-chan time.Time
	if due := f.catalog.pending(); !due.IsZero() {
		idle = time.After(time.Until(due))
	} else if f.unsettled() {
		idle = time.After(pollInterval)
	}
	for {
		select {
		case <-ctx.Done():
			return false
		case e, ok := <-f.watcher.Events:
			if !ok {
				return false
			}
			if !f.note(e) {
				continue
			}
			quiet = time.After(debounce)
			if latest == nil {
				latest = time.After(maxDebounce * debounce)
			}
		case _, ok := <-f.watcher.Errors:
			if !ok {
				return false
			}
			// Events were lost: look at everything.
			f.rescan = true
			quiet = time.After(debounce)
		case <-quiet:
			return true
		case <-latest:
			return true
		case <-idle:
			f.rescan = true
			return true
		}
	}
}

// unsettled says that something may change without an event.
func (f *follower) unsettled() bool {
	if len(f.catalog.scan.problems) > 0 {
		return true
	}
	for _, file := range f.catalog.files {
		if file.failed != nil {
			return true
		}
	}
	return false
}

// note takes in an event and says whether it matters.
func (f *follower) note(e fsnotify.Event) bool {
	path := filepath.Clean(e.Name)
	s := f.catalog.scan
	switch {
	case f.catalog.files[path] != nil && !s.links[path]:
		f.dirty[path] = true
	case s.links[path]:
		// What a link leads to changed; which files that is only a scan tells, and
		// the time stamp of a file may be the same.
		f.rescan = true
		for p := range f.catalog.files {
			if info, err := os.Lstat(p); err == nil && info.Mode()&fs.ModeSymlink != 0 {
				f.dirty[p] = true
			}
		}
	case slices.Contains(f.source.paths, path), s.walked[path]:
		f.rescan = true
	case s.walked[filepath.Dir(path)] && !strings.HasPrefix(filepath.Base(path), ".") && (isManifest(path) || isFolder(path)):
		f.rescan = true
	default:
		return false
	}
	return true
}

func isFolder(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}
