package http2

import (
	"errors"
	"slices"
	"time"
)

// ErrStarved is the error of streams that EndStarved has ended.
var ErrStarved = errors.New("http2: the client has granted the response no flow-control window")

// starving is since when a stream's response has waited for flow-control window without getting any, by the
// connection's clock, and how many bytes were sent by then.
type starving struct{ since, sent int64 }

// EndStarved ends up to most streams whose response has waited for window from the client for least without getting
// any, the longest waiting first, and returns their number. It only knows of waits that earlier calls have observed, so
// it must be called repeatedly.
func (c *Conn) EndStarved(least time.Duration, most int) (ended int) {
	c.mu.Lock()
	defer c.unlock()
	now, before := c.clock(), c.starving
	c.starving = nil
	var due []*Stream
	for id, s := range c.streams {
		if s.err != nil || !s.pending || len(s.data) == 0 || len(s.head) > 0 || s.sendWindow > 0 && c.sendWindow > 0 {
			continue
		}
		is := starving{now, s.dataSent}
		if was, known := before[id]; known && was.sent == is.sent {
			is.since = was.since
		}
		if c.starving == nil {
			c.starving = map[uint32]starving{}
		}
		c.starving[id] = is
		if is.since <= now-least.Milliseconds() {
			due = append(due, s)
		}
	}
	slices.SortFunc(due, func(a, b *Stream) int { return int(c.starving[a.id].since - c.starving[b.id].since) })
	for _, s := range due[:min(most, len(due))] {
		delete(c.starving, s.id)
		c.resetStreamFor(s, EnhanceYourCalm, ErrStarved)
	}
	c.pushAside()
	return min(most, len(due))
}

// Starves reports whether EndStarved has observed a stream that it may end soon: one that has not waited for most yet.
func (c *Conn) Starves(most time.Duration) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.starving {
		if s.since > c.clock()-most.Milliseconds() {
			return true
		}
	}
	return false
}
