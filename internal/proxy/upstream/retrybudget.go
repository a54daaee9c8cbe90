package upstream

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/moongate-dev/moongate/internal/config"
)

// A RetryBudget limits the retries of requests to a Service, for all rules and ports together (GEP-3388): within a
// sliding interval, retries may be a percentage of the requests of clients, and in any case a minimum rate. A request
// is counted when it is sent to the backend, and each of its retries counts as one. Counting a request takes one atomic
// addition; a retry, which is rare, takes a lock.
type RetryBudget struct {
	requests window // requests of clients
	mu       sync.Mutex
	settings *retrySettings // guarded by mu
	retries  window         // over the same interval as requests; guarded by mu
	recent   window         // the same retries, over the interval of the minimum rate; guarded by mu
	users    int            // number of Backends that use it; guarded by Set.mu
}

// retrySettings is a compiled config.RetryBudget.
type retrySettings struct {
	percent, least     int64
	interval, leastFor time.Duration
}

// Bounds of a config.RetryBudget.
const (
	minRetryInterval = time.Second
	maxRetryInterval = time.Hour
)

// parseRetryBudget validates and compiles the budget of a Backend. It returns nil if there is none.
func parseRetryBudget(b *config.Backend) (*retrySettings, error) {
	c := b.RetryBudget
	if c == nil {
		return nil, nil
	}
	s := &retrySettings{int64(c.Percent), int64(c.MinRetries), time.Duration(c.IntervalNanos), time.Duration(c.MinIntervalNanos)}
	if s.percent > 100 || s.interval < minRetryInterval || s.interval > maxRetryInterval || s.leastFor <= 0 || s.leastFor > maxRetryInterval {
		return nil, fmt.Errorf("upstream: Backend %s: retry_budget is out of bounds: %v", b.Key, c)
	}
	return s, nil
}

// set publishes settings. Counts are reset if the length of their interval changes.
func (b *RetryBudget) set(s *retrySettings) {
	b.mu.Lock()
	defer b.mu.Unlock()
	old := b.settings
	b.settings = s
	if old == nil || old.interval != s.interval {
		b.requests.start(s.interval)
		b.retries.start(s.interval)
	}
	if old == nil || old.leastFor != s.leastFor {
		b.recent.start(s.leastFor)
	}
}

// Request counts a request of a client.
func (b *RetryBudget) Request() { b.requests.add(now()) }

// Retry reports whether a request may be tried again, and counts the retry if so.
func (b *RetryBudget) Retry() bool { return b.retry(now()) }

func (b *RetryBudget) retry(at int64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.settings
	if (b.retries.sum(at)+1)*100 > s.percent*b.requests.sum(at) && b.recent.sum(at) >= s.least {
		return false
	}
	b.retries.add(at)
	b.recent.add(at)
	return true
}

// windowParts is the number of parts of an interval, which expire one at a time.
const windowParts = 32

// window counts events over a sliding interval. add and sum may be called concurrently. start must be called first.
type window struct {
	part  atomic.Int64 // length of a part in nanoseconds
	mu    sync.Mutex   // held to begin a part
	parts [windowParts]struct {
		at    atomic.Int64 // number of the part, counted from the start of the process; 0 means none
		count atomic.Int64
	}
}

// start resets the counts, and sets the interval.
func (w *window) start(interval time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range w.parts {
		w.parts[i].at.Store(0)
	}
	w.part.Store(max(int64(interval)/windowParts, 1))
}

// add counts an event.
func (w *window) add(now int64) {
	at := now/w.part.Load() + 1
	p := &w.parts[at%windowParts]
	if p.at.Load() != at {
		w.mu.Lock()
		if p.at.Load() != at { // it may be later if start has changed the length of parts
			p.count.Store(0)
			p.at.Store(at)
		}
		w.mu.Unlock()
	}
	p.count.Add(1)
}

// sum returns how many events there were in the last interval, which is shorter by up to one part.
func (w *window) sum(now int64) (n int64) {
	last := now/w.part.Load() + 1
	for i := range w.parts {
		p := &w.parts[i]
		if at := p.at.Load(); at > max(last-windowParts, 0) && at <= last {
			n += p.count.Load()
		}
	}
	return n
}

var began = time.Now()

// now returns a monotonic clock in nanoseconds.
func now() int64 { return int64(time.Since(began)) }

// RetryBudget returns the budget that limits the retries of requests to the backend; nil if there is none.
func (b *Backend) RetryBudget() *RetryBudget {
	if b.base != nil {
		b = b.base
	}
	return b.budget.Load()
}

// setBudget gives a Backend the budget of its Service with settings, or removes it if settings is nil. s.mu must be
// held.
func (s *Set) setBudget(b *Backend, service string, settings *retrySettings) {
	old := b.budget.Load()
	if settings != nil {
		shared := s.budgets[service]
		if shared == nil {
			shared = &RetryBudget{}
			s.budgets[service] = shared
		}
		shared.set(settings)
		if shared == old {
			return
		}
		shared.users++
		b.budget.Store(shared)
	} else {
		b.budget.Store(nil)
	}
	if old == nil {
		return
	}
	if old.users--; old.users == 0 && s.budgets[service] == old {
		delete(s.budgets, service)
	}
}

// serviceOf returns the Service or XBackend whose budget a Backend shares.
func serviceOf(c *config.Backend) string {
	kind, _, _ := strings.Cut(c.Key, "/")
	return kind + "/" + c.Namespace + "/" + c.Name
}
