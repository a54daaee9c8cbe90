package reconcile

import (
	"fmt"
	"sync/atomic"
	"time"
)

// commitLimit is how long a Commit may take before the process counts as dead. The largest measured clusters need some seconds; a
// Commit that takes this long will not end.
const commitLimit = 2 * time.Minute

// watchdog records since when a Commit runs. The zero value is ready to use. It has no lock, because alive must return while the
// translator is in use.
type watchdog struct{ since atomic.Pointer[time.Time] }

// watch calls commit.
func (w *watchdog) watch(commit func()) {
	now := time.Now()
	w.since.Store(&now)
	defer w.since.Store(nil)
	commit()
}

// alive returns an error if a Commit has been running for longer than limit.
func (w *watchdog) alive(limit time.Duration) error {
	since := w.since.Load()
	if since == nil {
		return nil
	}
	if took := time.Since(*since); took > limit {
		return fmt.Errorf("translation has been at work for %v on one change", took.Round(time.Second))
	}
	return nil
}

// Alive returns an error if translation hangs. It never blocks.
func (c *Cluster) Alive() error { return c.watchdog.alive(c.o.CommitLimit) }
