package files

import (
	"context"
	"errors"
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
	// maxDebounce is how long, in multiples of Options.Debounce, continuous changes delay reading.
	maxDebounce = 5
	// A file that a process has open for writing is not read until maxWriterPause after its last change, and until maxWriting after
	// the first change that was not read. Most writers close a file within milliseconds; some keep it open forever.
	maxWriterPause, maxWriting = 2 * time.Second, 30 * time.Second
	// settle is how long a complete file waits, so that several that arrive together are one change.
	settle = time.Millisecond
	// pollInterval is the interval of checks while a path is missing or cannot be watched.
	pollInterval = time.Second
	// pause is how long events are left in the kernel after one that does not concern the files, unless the last pause ended less
	// than attention ago. A path's folder may be as busy as /tmp, although it is watched for the path alone: each event would cause
	// work. The kernel queues 16384 events; if there are more, everything is scanned.
	pause     = 50 * time.Millisecond
	attention = pause / 10
	// burst is how many such events are read without a pause; one more is allowed after each time attention. Programs that save a
	// file often first write a temporary file next to it and then rename it.
	burst = 64
)

// Run reads everything, passes it to emit, and then passes each change until ctx ends. emit is called by one goroutine at a time,
// and only if something has changed; the watch waits for it. The error is why files cannot be watched.
func (s *Source) Run(ctx context.Context, emit func(Change)) error {
	w, err := fsnotify.NewWatcher()
	if err != nil {
		return fmt.Errorf("files cannot be watched: %w; raise fs.inotify.max_user_instances", err)
	}
	defer w.Close()
	f := &follower{source: s, watcher: w, unquiet: map[string]wait{},
		catalog: newCatalog(s)}
	s.mu.Lock()
	s.current = f.catalog
	s.mu.Unlock()
	f.rescan.begin(time.Now(), 0)
	first := f.update()
	first.Full = true
	emit(first)
	for f.wait(ctx) {
		if change := f.update(); len(change.Upserts) > 0 || len(change.Deletes) > 0 || change.ProblemsChanged {
			emit(change)
		}
	}
	return nil
}

// follower is the state of one Run.
type follower struct {
	source  *Source
	watcher *fsnotify.Watcher
	watches watches
	catalog *catalog
	// unquiet are files to be read when they are unchanged for a while; rescan is set if there may be others.
	unquiet map[string]wait
	rescan  wait
	// relinked is set if rescan is set because a link may have another destination.
	relinked bool
	// poll is when to check what may change without an event; zero if nothing may.
	poll     time.Time
	throttle throttle
	// earliest is not after the first time in unquiet; zero if there is none.
	earliest time.Time
}

// wait waits until something that has changed is unchanged for a while; the zero value waits for nothing.
type wait struct {
	since, due time.Time
	// first and last are the times of the first and the last change since it was read.
	first, last time.Time
	// removed is set if the name was gone in the meantime: the file that has it now may be incomplete.
	removed bool
}

func (w *wait) begin(now time.Time, quiet time.Duration) {
	if w.since.IsZero() {
		w.since = now
	}
	w.due = now.Add(quiet)
	if last := w.since.Add(maxDebounce * quiet); quiet > 0 && last.Before(w.due) {
		w.due = last
	}
}

// written reports whether the file is open for writing, and must be waited for. An empty file is waited for longer: a shell may have
// opened it for a slow program, as in "kustomize build > file".
func (w *wait) written(path string, now time.Time) bool {
	return now.Sub(w.first) < maxWriting && (now.Sub(w.last) < maxWriterPause || isEmpty(path)) && openForWriting(path)
}

func isEmpty(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Size() == 0
}

// ready reports whether it is due, or will be within settle: what has changed together is read together.
func (w *wait) ready(now time.Time) bool { return !w.since.IsZero() && w.due.Before(now.Add(settle)) }

// update updates the catalog with what is due.
func (f *follower) update() Change {
	f.source.mu.Lock()
	defer f.source.mu.Unlock()
	c, now := f.catalog, time.Now()
	c.begin()
	c.unquiet = f.unquiet
	due := map[string]bool{}
	for path, w := range f.unquiet {
		switch {
		case !w.ready(now):
		case w.written(path, now):
			w.since, w.due = now, now.Add(max(f.source.options.Debounce, settle))
			f.unquiet[path] = w
		default:
			if known := c.files[path]; known != nil {
				known.recreated = known.recreated || w.removed
			}
			due[path] = true
			delete(f.unquiet, path)
		}
	}
	for file := range c.waiting {
		if _, ok := f.unquiet[file.path]; !ok && !now.Before(file.pending) {
			due[file.path] = true
		}
	}
	if !f.poll.IsZero() && !now.Before(f.poll) {
		if len(c.scan.problems) > 0 {
			f.rescan.begin(now, 0)
		}
		for file := range c.failing {
			due[file.path] = true
		}
	}
	read, gone, all := f.look(due)
	if all || f.rescan.ready(now) {
		f.rescan, f.relinked = wait{}, false
		f.watches.begin(f.watcher)
		c.rescan(f.watches.add, due, now)
		f.watches.end()
	} else {
		c.update(read, gone, nil, now)
	}
	switch {
	case len(c.scan.problems)+len(c.failing) == 0:
		f.poll = time.Time{}
	case f.poll.IsZero() || !now.Before(f.poll): // otherwise continuous changes would delay it forever
		f.poll = now.Add(pollInterval)
	}
	return c.commit()
}

// look finds out which of the files that are due exist. all is set if only a scan can determine what they are now.
func (f *follower) look(due map[string]bool) (read, gone []*file, all bool) {
	c := f.catalog
	for path := range due {
		info, err := os.Lstat(path)
		known := c.files[path]
		root, walked := c.scan.walked[filepath.Dir(path)]
		switch {
		case slices.Contains(c.scan.blocked, path):
			return nil, nil, true // a scan removes its problem
		case f.relinked && c.scan.indirect(path):
			return nil, nil, true // it may be one of many files that are others now, which are read together
		case err == nil && info.Mode().IsRegular() && (known != nil || walked):
			if known == nil {
				known = c.file(path, root)
			}
			read = append(read, known)
		case errors.Is(err, fs.ErrNotExist) && !slices.Contains(f.source.paths, path):
			if known != nil {
				if _, err := os.Stat(f.source.paths[known.root]); err != nil {
					return nil, nil, true // more than the file has changed
				}
				gone = append(gone, known)
			}
		default:
			return nil, nil, true
		}
	}
	return read, gone, false
}

// throttle limits how often events are read. The zero value is ready for use.
type throttle struct {
	until time.Time
	spent time.Time // when a whole burst will be allowed again
}

// idle records an event that does not concern the files, and reports whether events must be left in the kernel until t.until.
func (t *throttle) idle(now time.Time) bool {
	if now.Before(t.caughtUp()) {
		return false
	}
	if t.spent.Before(now) {
		t.spent = now
	}
	if t.spent.Sub(now) <= (burst-1)*attention {
		t.spent = t.spent.Add(attention)
		return false
	}
	t.until = now.Add(pause)
	return true
}

// caughtUp returns when the events of the last pause have been read.
func (t *throttle) caughtUp() time.Time { return t.until.Add(attention) }

// left returns for how long events must still be left in the kernel.
func (t *throttle) left(now time.Time) time.Duration { return max(0, t.until.Sub(now)) }

// wait returns true when there is something to update, false when ctx has ended. While events are left in the kernel, and until
// those have been read, no file counts as unchanged: an event may report that it is still being written.
func (f *follower) wait(ctx context.Context) bool {
	next := f.next()
	timer := time.NewTimer(time.Until(next))
	defer timer.Stop()
	events, resume := f.watcher.Events, time.NewTimer(time.Until(f.throttle.caughtUp()))
	defer resume.Stop()
	if left := f.throttle.left(time.Now()); left > 0 {
		events = nil
		resume.Reset(left)
	}
	for {
		due := timer.C
		if next.IsZero() || time.Now().Before(f.throttle.caughtUp()) {
			due = nil
		}
		select {
		case <-ctx.Done():
			return false
		case e, ok := <-events:
			if !ok {
				return false
			}
			if now := time.Now(); !f.note(e) && f.throttle.idle(now) {
				if !next.IsZero() && !now.Before(next) {
					return true // the pause would delay it again
				}
				events = nil
				resume.Reset(pause)
			}
		case <-resume.C:
			if events == nil {
				events = f.watcher.Events
				resume.Reset(attention)
			}
		case _, ok := <-f.watcher.Errors:
			if !ok {
				return false
			}
			// Events were lost: scan everything.
			f.rescan.begin(time.Now(), f.source.options.Debounce)
			f.sooner(f.rescan.due)
		case <-due:
			return true
		}
		if f.earliest != next {
			next = f.earliest
			timer.Reset(time.Until(next))
		}
	}
}

// next returns when there will be something to do; zero if that depends on events.
func (f *follower) next() time.Time {
	f.earliest = time.Time{}
	f.sooner(f.rescan.due)
	f.sooner(f.poll)
	for _, w := range f.unquiet {
		f.sooner(w.due)
	}
	for file := range f.catalog.waiting {
		if _, ok := f.unquiet[file.path]; !ok {
			f.sooner(file.pending)
		}
	}
	return f.earliest
}

func (f *follower) sooner(t time.Time) {
	if !t.IsZero() && (f.earliest.IsZero() || t.Before(f.earliest)) {
		f.earliest = t
	}
}

// note records an event, and reports whether it concerns the files.
func (f *follower) note(e fsnotify.Event) (concerns bool) {
	for _, path := range f.watches.of(filepath.Clean(e.Name)) {
		if f.notePath(path, e) {
			concerns = true
		}
	}
	return concerns
}

// notePath is note for one name of what the event is about.
func (f *follower) notePath(path string, e fsnotify.Event) bool {
	s := f.catalog.scan
	_, known := f.catalog.files[path]
	_, walked := s.walked[path]
	_, inWalked := s.walked[filepath.Dir(path)]
	moved := s.watch[path] && (e.Has(fsnotify.Remove) || e.Has(fsnotify.Rename)) // the folder, and with it the watch
	switch {
	case s.links[path], moved && s.linksWithin(path):
		// The destination of a link has changed; only a scan shows which files that concerns, and the modification time of a file
		// may be the same.
		for p := range s.linked {
			f.await(p, fsnotify.Event{})
		}
		f.relinked = true
		f.rescanLater()
	case known:
		f.await(path, e)
	case slices.Contains(f.source.paths, path), walked, moved:
		f.rescanLater()
	case !inWalked || strings.HasPrefix(filepath.Base(path), "."):
		return false
	case isManifest(path):
		f.await(path, e)
	case isFolder(path):
		f.rescanLater()
	default:
		return false
	}
	return true
}

func (f *follower) rescanLater() {
	f.rescan.begin(time.Now(), f.source.options.Debounce)
	f.sooner(f.rescan.due)
}

// await makes a file be read when it is unchanged for a while.
func (f *follower) await(path string, e fsnotify.Event) {
	w := f.unquiet[path]
	w.removed = w.removed || e.Has(fsnotify.Remove) || e.Has(fsnotify.Rename)
	quiet := f.source.options.Debounce
	if e.Has(fsnotify.Create) && !w.removed && (f.movedOver(path) || f.isNew(path) && complete(path)) {
		quiet = min(quiet, settle)
	}
	now := time.Now()
	if w.last = now; w.first.IsZero() {
		w.first = now
	}
	w.begin(now, quiet)
	f.unquiet[path] = w
	f.sooner(w.due)
}

// movedOver reports whether another file has replaced one that was read: an existing name can only be taken over by moving a file
// there, which is complete.
func (f *follower) movedOver(path string) bool {
	file := f.catalog.files[path]
	if file == nil || file.stamp.info == nil {
		return false
	}
	info, err := os.Lstat(path)
	return err == nil && info.Mode().IsRegular() && !os.SameFile(info, file.stamp.info)
}

// isNew reports whether there was no file with that name. A known file that is written again in place waits: it may be closed and
// opened again between two parts.
func (f *follower) isNew(path string) bool {
	file := f.catalog.files[path]
	return file == nil || file.stamp.info == nil
}

func isFolder(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}
