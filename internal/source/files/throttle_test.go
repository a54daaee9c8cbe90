package files

import (
	"context"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/moongate-dev/moongate/internal/testkit"
)

// TestThrottle is how often events that say nothing are read: of those that come all the time, after a burst, those of a fifth of the time.
func TestThrottle(t *testing.T) {
	var th throttle
	begin := time.Unix(1_800_000_000, 0)
	read, pauses := 0, 0
	for at := time.Duration(0); at < 100*(pause+attention); at += pause / 100 {
		now := begin.Add(at)
		if th.left(now) > 0 {
			continue
		}
		if read++; th.idle(now) {
			pauses++
		}
	}
	if per := int(attention/(pause/100) + pause/attention); pauses < 80 || pauses > 100 || read > burst+pauses*(per+4) {
		t.Errorf("of 11000 events %d are read, with %d pauses", read, pauses)
	}
	now := begin.Add(time.Hour)
	for i := range burst {
		if th.left(now) != 0 || th.idle(now) {
			t.Fatalf("number %d of those that come after long: %+v", i, th)
		}
	}
	if !th.idle(now) || th.left(now) != pause {
		t.Errorf("one too many: %+v", th)
	}
}

// TestBusyFolder has a folder given whose parent is busy: what happens there is no reason to look at anything, and a change of the files is seen all the same.
func TestBusyFolder(t *testing.T) {
	parent := t.TempDir()
	dir := filepath.Join(parent, "manifests")
	write(t, filepath.Join(dir, "a.yaml"), config("a", "one"))
	f := followed(t, dir)
	for _, e := range []struct {
		name string
		want bool
	}{
		{filepath.Join(parent, "log"), false}, {filepath.Join(parent, "b.yaml"), false}, {filepath.Join(parent, "other"), false},
		{filepath.Join(dir, "notes.txt"), false}, {filepath.Join(dir, ".a.yaml.swp"), false},
		{dir, true}, {filepath.Join(dir, "a.yaml"), true}, {filepath.Join(dir, "b.yaml"), true},
	} {
		if got := f.note(fsnotify.Event{Name: e.name, Op: fsnotify.Write}); got != e.want {
			t.Errorf("%s says something: %v", e.name, got)
		}
	}

	changes := make(chan Change)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	s := source(t, dir)
	go func() {
		defer close(done)
		if err := s.Run(ctx, func(c Change) {
			select {
			case changes <- c:
			case <-ctx.Done():
			}
		}); err != nil {
			t.Error(err)
		}
	}()
	defer func() { cancel(); <-done }()
	<-changes
	busy := make(chan struct{})
	go func() {
		defer close(busy)
		for ctx.Err() == nil {
			if err := os.WriteFile(filepath.Join(parent, "log"), []byte("line"), 0o600); err != nil {
				t.Error(err)
				return
			}
		}
	}()
	defer func() { cancel(); <-busy }()
	write(t, filepath.Join(dir, "a.yaml"), config("a", "two"))
	testkit.Eventually(t, "the edit is seen", func() bool {
		select {
		case c := <-changes:
			return len(c.Upserts) == 1
		default:
			return false
		}
	})
}

// TestBusyFolderHalfWritten: a file is not taken for quiet while what says that it is written is left to the kernel.
func TestBusyFolderHalfWritten(t *testing.T) {
	dir := t.TempDir()
	a := filepath.Join(dir, "a.yaml")
	write(t, a, config("a", "one"))
	f := followed(t, dir)
	if f.catalog.scan == nil {
		t.Fatal("nothing was read")
	}
	f.throttle.until = time.Now().Add(pause)
	began := time.Now()
	f.await(a, fsnotify.Event{Name: a, Op: fsnotify.Write})
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if !f.wait(ctx) || time.Since(began) < pause {
		t.Errorf("it is due after %v, within a pause of %v", time.Since(began), pause)
	}
	// Noise without end does not put it off for ever.
	began = time.Now()
	f.unquiet, f.throttle = map[string]wait{}, throttle{spent: time.Now().Add(time.Hour)}
	f.await(a, fsnotify.Event{Name: a, Op: fsnotify.Write})
	var noise sync.WaitGroup
	noise.Go(func() {
		for ctx.Err() == nil {
			select {
			case f.watcher.Events <- fsnotify.Event{Name: filepath.Join(dir, "log"), Op: fsnotify.Write}:
			case <-ctx.Done():
			}
		}
	})
	if !f.wait(ctx) {
		t.Errorf("it is not due within %v of noise", time.Since(began))
	}
	cancel()
	noise.Wait() // before the channel is closed
}
