package upstream

import (
	"sync/atomic"
	"time"
)

// Without a policy, an endpoint is ejected if it answers only with gateway errors (502, 503, 504, or connections that
// break) while the other endpoints of its backend do not. If only some paths are answered that way, or all endpoints do
// so, none is ejected.
const (
	// failingLimit is the number of consecutive gateway errors after which an endpoint is compared with the others.
	failingLimit = 5
	// comparedResponses is how many responses of other endpoints are examined, of which at most 1 in comparedGood may
	// be a gateway error. Meanwhile all responses of the endpoint must be gateway errors.
	comparedResponses = 20
	comparedGood      = 10
	// compareTime is how long a comparison may take.
	compareTime = 10 * time.Second
	// firstEjection and furtherEjection are how long an endpoint gets no requests before one request tries it: at
	// first, and after each failed trial. So an endpoint that has recovered is used again within furtherEjection plus
	// the time until the next request.
	firstEjection   = time.Second
	furtherEjection = 2 * time.Second
	// maxCompared is the largest number of endpoints examined after a failed trial.
	maxCompared = 64
)

// comparison counts the responses of all endpoints except one.
type comparison struct {
	of    *Endpoint
	until int64 // Unix nanoseconds
	// good and bad count the responses of the others.
	good, bad atomic.Int32
}

// judge takes account of the outcome of a request, if there is no PassiveHealthCheck.
func (e *Endpoint) judge(bad bool) {
	h := e.health
	if c := h.backend.comparison.Load(); c != nil && c.of.health != h {
		c.count(bad)
	}
	if bad {
		h.failed(e)
		return
	}
	m := h.marks.Load()
	if m&markFailing != 0 {
		h.marks.And(^markFailing)
		h.failing.Store(0)
	}
	if m&markEjected != 0 && (h.trial.Load() || time.Now().UnixNano() >= h.ejectedUntil.Load()) { // otherwise the request may have been sent before the ejection
		h.readmit()
	}
}

// failed takes account of a gateway error.
func (h *health) failed(e *Endpoint) {
	n := h.failing.Load() + 1
	if n <= failingLimit { // not counted beyond that; lost concurrent updates do no harm
		h.failing.Store(n)
	}
	m := h.marks.Load()
	if m&markFailing == 0 {
		m = h.marks.Or(markFailing)
	}
	g := h.backend
	switch {
	case m&markEjected != 0:
		if h.trial.CompareAndSwap(true, false) {
			h.failedTrial(e)
		}
	case n >= failingLimit && g.mayLose():
		now := time.Now().UnixNano()
		if c := g.comparison.Load(); c == nil || now >= c.until {
			g.comparison.CompareAndSwap(c, &comparison{of: e, until: now + int64(compareTime)})
		}
	}
}

// count counts a response of another endpoint. The call that counts the last required response decides.
func (c *comparison) count(bad bool) {
	var n int32
	if bad {
		n = c.bad.Add(1) + c.good.Load()
	} else {
		n = c.good.Add(1) + c.bad.Load()
	}
	h := c.of.health
	g := h.backend
	switch now := time.Now().UnixNano(); {
	case now >= c.until, h.failing.Load() == 0, c.of.Gone():
		g.comparison.CompareAndSwap(c, nil)
	case n >= comparedResponses && g.comparison.CompareAndSwap(c, nil) && c.bad.Load()*comparedGood <= n:
		h.eject(c.of, now)
	}
}

// eject ejects the endpoint without a policy.
func (h *health) eject(e *Endpoint, now int64) {
	g := h.backend
	g.ejecting.Lock()
	defer g.ejecting.Unlock()
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.usable || h.marks.Load()&markUnfit != 0 || h.outlier.Load() != nil || !g.mayLose() {
		return
	}
	h.trial.Store(false)
	h.ejectedUntil.Store(now + int64(firstEjection))
	h.mark(markEjected, true)
	e.ejected(EjectedByComparison)
}

// readmit ends the ejection.
func (h *health) readmit() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.trial.Store(false)
	h.failing.Store(0)
	h.mark(markEjected|markFailing, false)
}

// failedTrial continues the ejection, unless the others do no better.
func (h *health) failedTrial(e *Endpoint) {
	if e.othersFail() {
		h.readmit()
		return
	}
	h.ejectedUntil.Store(time.Now().Add(furtherEjection).UnixNano())
}

// othersFail reports whether the last responses of most other usable endpoints were gateway errors.
func (e *Endpoint) othersFail() bool {
	list := e.backend.list.Load().usable
	failing, all := 0, 0
	for _, o := range list[:min(len(list), maxCompared)] {
		m := o.health.marks.Load()
		if o == e || m&markUnfit != 0 {
			continue
		}
		all++
		if m&markFailing != 0 {
			failing++
		}
	}
	return failing*2 > all
}
