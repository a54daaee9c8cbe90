package reconcile

import (
	"fmt"
	"sync/atomic"
	"time"
)

// commitLimit is how long a Commit may take before the process counts as dead. The largest clusters
// that are measured need some seconds; what takes this long does not come back by itself.
const commitLimit = 2 * time.Minute

// watchdog keeps since when a Commit runs. Its zero value watches nothing. It has no lock, because who
// asks must get an answer while the translator is in use.
type watchdog struct{ since atomic.Pointer[time.Time] }

// watch calls commit.
func (w *watchdog) watch(commit func()) {
	now := time.Now()
	w.since.Store(&now)
	defer w.since.Store(nil)
	commit()
}

// alive returns an error where a Commit runs for longer than limit.
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

// Alive returns an error where translation hangs. It does not wait for anything.
func (c *Cluster) Alive() error { return c.watchdog.alive(c.o.CommitLimit) }
