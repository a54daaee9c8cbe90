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
	// maxDebounce bounds, in Options.Debounce, how long a stream of changes puts
	// off reading.
	maxDebounce = 5
	// A process that has a file open for writing is waited for until maxWriterPause after the last change of the file, and until maxWriting after the first
	// one that was not read. Most writers close a file within milliseconds; one may keep it open for ever.
	maxWriterPause, maxWriting = 2 * time.Second, 30 * time.Second
	// settle is how long a file that is complete waits, so that several that come together are one change.
	settle = time.Millisecond
	// pollInterval is how often paths are looked at while one of them is missing
	// or cannot be watched.
	pollInterval = time.Second
	// pause is how long events are left to the kernel after one that says nothing of the files, unless events are
	// being read for less than attention after the last pause. A path's folder may be as busy as /tmp, and is watched for the path alone:
	// each event would wake the process. The kernel holds 16384 of them; where they are more, everything is looked at.
	pause     = 50 * time.Millisecond
	attention = pause / 10
	// burst is how many such events are read without a pause; each time that attention passes allows one more. Programs that save a file often write a
	// temporary file beside it first and then rename it.
	burst = 64
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
	catalog *catalog
	// unquiet are files to be looked at when they are quiet; rescan says that there
	// may be others.
	unquiet map[string]wait
	rescan  wait
	// poll is when to look at what may change without an event; zero if nothing may.
	poll     time.Time
	throttle throttle
	// earliest is no later than the first of all that is awaited; zero if nothing is.
	earliest time.Time
}

// wait is for something that changed to be quiet; zero if nothing did.
type wait struct {
	since, due time.Time
	// first and last are when it changed for the first and the last time since it was read.
	first, last time.Time
	// removed is set if the name was gone meanwhile: what has it now may be half written.
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

// written reports whether the file is open for writing, and to be waited for because of it. One that is still empty is waited for longer: a shell may have opened it for a program
// that takes its time, as in "kustomize build > file".
func (w *wait) written(path string, now time.Time) bool {
	return now.Sub(w.first) < maxWriting && (now.Sub(w.last) < maxWriterPause || isEmpty(path)) && openForWriting(path)
}

func isEmpty(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Size() == 0
}

// ready says that it is due, or will be within settle: what changed together is
// read together.
func (w *wait) ready(now time.Time) bool { return !w.since.IsZero() && w.due.Before(now.Add(settle)) }

// update brings the catalog up to date with what is due.
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
		f.rescan = wait{}
		c.rescan(f.watcher.Add, due, now)
		f.unwatch()
	} else {
		c.update(read, gone, now)
	}
	switch {
	case len(c.scan.problems)+len(c.failing) == 0:
		f.poll = time.Time{}
	case f.poll.IsZero() || !now.Before(f.poll): // else what changes all the time would put it off for ever
		f.poll = now.Add(pollInterval)
	}
	return c.commit()
}

// look finds out which of the files that are due are there. If only a scan can
// tell what they are now, all is set.
func (f *follower) look(due map[string]bool) (read, gone []*file, all bool) {
	c := f.catalog
	for path := range due {
		info, err := os.Lstat(path)
		known := c.files[path]
		root, walked := c.scan.walked[filepath.Dir(path)]
		switch {
		case slices.Contains(c.scan.blocked, path):
			return nil, nil, true // a scan takes its problem away
		case err == nil && info.Mode().IsRegular() && (known != nil || walked):
			if known == nil {
				known = c.file(path, root)
			}
			read = append(read, known)
		case errors.Is(err, fs.ErrNotExist) && !slices.Contains(f.source.paths, path):
			if known != nil {
				if _, err := os.Stat(f.source.paths[known.root]); err != nil {
					return nil, nil, true // it is not the file alone
				}
				gone = append(gone, known)
			}
		default:
			return nil, nil, true
		}
	}
	return read, gone, false
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

// throttle says when no events are read. The zero value is ready for use.
type throttle struct {
	until time.Time
	spent time.Time // when a whole burst will be allowed again
}

// idle takes that an event has said nothing, and reports whether events are to be left to the kernel, which is until t.until.
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

// caughtUp is when the events of the last pause have been read.
func (t *throttle) caughtUp() time.Time { return t.until.Add(attention) }

// left is for how long events are to be left to the kernel yet.
func (t *throttle) left(now time.Time) time.Duration { return max(0, t.until.Sub(now)) }

// wait returns when there is something to update; false when ctx ended. While events are left to the kernel, and until those have been read,
// no file counts as quiet: one of them may say that it is still being written.
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
			// Events were lost: look at everything.
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

// next finds out when there will be something to do; zero if only an event tells.
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

// note takes in an event, and reports whether it says anything of the files.
func (f *follower) note(e fsnotify.Event) bool {
	path := filepath.Clean(e.Name)
	s := f.catalog.scan
	_, known := f.catalog.files[path]
	_, walked := s.walked[path]
	_, inWalked := s.walked[filepath.Dir(path)]
	switch {
	case s.links[path]:
		// What a link leads to changed; which files that is only a scan tells, and
		// the time stamp of a file may be the same.
		for p := range s.linked {
			f.await(p, fsnotify.Event{})
		}
		f.rescanLater()
	case known:
		f.await(path, e)
	case slices.Contains(f.source.paths, path), walked:
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

// await lets a file be looked at when it is quiet.
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

// movedOver says that another file has come under the name of one that was read:
// a name that was not free can be had only by moving a file there, which is complete.
func (f *follower) movedOver(path string) bool {
	file := f.catalog.files[path]
	if file == nil || file.stamp.info == nil {
		return false
	}
	info, err := os.Lstat(path)
	return err == nil && info.Mode().IsRegular() && !os.SameFile(info, file.stamp.info)
}

// isNew says that there was no file of that name. A known file that is written again in place waits: it may be closed and opened again between two parts.
func (f *follower) isNew(path string) bool {
	file := f.catalog.files[path]
	return file == nil || file.stamp.info == nil
}

func isFolder(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}
