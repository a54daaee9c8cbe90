package http2

import (
	"errors"
	"time"

	"github.com/moongate-dev/moongate/internal/proxy/http2/head"
)

// suspendAfter is how long, in milliseconds, a response must have brought nothing before the goroutine that waits for
// it is released: its stack costs as much memory as the rest of a stream, and starting another one costs a few
// microseconds.
const suspendAfter = 500

// suspendTogether is how much later, in milliseconds, the next wait may end, so that the reader need not check for each
// separately.
const suspendTogether = 50

// ErrSuspend means that ClientStream.WaitAwhile has waited for a long time.
var ErrSuspend = errors.New("http2: nothing has come for long")

// Suspended is a handler that has returned before the end of its stream, to continue later on another goroutine.
type Suspended interface {
	// Await arranges that wake is called once when the handler is to continue, or returns false if it can continue at
	// once.
	Await(wake func()) bool
	// Resume continues. It is called in place of the handler, and may suspend the stream again.
	Resume()
}

// Suspend lets h continue with the stream after the handler has returned. It must be the handler's last call on the
// stream. Head is empty from then on: an inactive stream must hold no unneeded memory.
func (s *Stream) Suspend(h Suspended) {
	s.c.mu.Lock()
	defer s.c.unlock()
	s.suspended = h
	s.Head = Head{Protocol: s.Head.Protocol} // needed to check what the client sends
	s.header = head.Section{}
	s.giveUpFrames()
}

// giveUpFrames releases the memory of frames that were sent. mu must be held.
func (s *Stream) giveUpFrames() {
	if !s.pending {
		s.head, s.tail = nil, nil
	}
}

// run runs the stream's handler, or the rest of it.
func (s *Stream) run() {
	if h := s.suspended; h != nil {
		s.suspended = nil
		h.Resume()
		return
	}
	s.c.handle(s)
}

// awaitResume reports whether the handler is suspended: then another goroutine may already have the stream.
func (s *Stream) awaitResume() bool {
	return s.suspended.Await(func() { s.c.workers.startAnother(s) })
}

// suspension replaces the goroutine that waits for the response of a stream to a backend. The connection's mu guards
// it.
type suspension struct {
	c     *Conn
	s     *ClientStream // nil when it is over
	wake  func()
	timer *time.Timer // nil without a deadline
}

// end lets the stream's user continue.
func (p *suspension) end() {
	p.s.suspension, p.s = nil, nil
	p.c.suspendable++
	if p.timer != nil {
		p.timer.Stop()
	}
	p.wake()
}

func (p *suspension) expire() {
	p.c.mu.Lock()
	defer p.c.unlock()
	if p.s != nil {
		p.end()
	}
}

// WaitAwhile is like Wait, but if ClientRequest.Suspends was set it returns ErrSuspend when nothing has arrived for a
// long time.
func (s *ClientStream) WaitAwhile() error {
	c := s.s.c
	c.mu.Lock()
	defer c.unlock()
	s.awhile, s.waitsSince = s.suspends, c.now
	err := s.s.await()
	s.awhile, s.long = false, false
	return err
}

// Notify arranges that wake is called once when Wait would return, and returns true; or it returns false if Wait would
// return at once. It is only for streams that were opened with ClientRequest.Suspends and whose final head was read.
// Until wake is called, only Reset and SetDeadline may be called. What ReadHead has returned is not valid any more.
// wake must not block nor call anything of this package.
func (s *ClientStream) Notify(wake func()) bool {
	c := s.s.c
	c.mu.Lock()
	defer c.unlock()
	if s.s.err != nil || s.s.body.len() > 0 || s.s.remoteEnded {
		return false
	}
	p := &suspension{c: c, s: s, wake: wake}
	if d := s.s.readDeadline; !d.IsZero() {
		left := time.Until(d)
		if left <= 0 {
			return false
		}
		p.timer = time.AfterFunc(left, p.expire)
	}
	s.suspension = p
	s.s.giveUpFrames()
	s.s.readable.forget()
	s.s.header, s.interims = head.Section{}, nil
	c.suspendable--
	return true
}

// wakeReader wakes the goroutine that waits to read from the stream. mu must be held.
func (s *Stream) wakeReader() {
	if s.of != nil && s.of.suspension != nil {
		s.of.suspension.end()
		return
	}
	s.readable.send()
}

// suspendDue returns when to call expireSuspend; 0 if no stream can be suspended.
func (c *Conn) suspendDue() int64 {
	switch {
	case c.suspendable == 0:
		c.suspendAt = 0
	case c.suspendAt == 0:
		c.suspendAt = c.now + suspendAfter
	}
	return c.suspendAt
}

// expireSuspend ends waits that have lasted for a long time. It is due again when the first of the others will have.
func (c *Conn) expireSuspend() (bool, error) {
	next := c.now + suspendAfter
	for _, s := range c.streams {
		r := s.of
		switch at := r.waitsSince + suspendAfter; {
		case !r.awhile:
		case at <= c.now:
			r.long = true
			s.readable.send()
		default:
			next = min(next, at)
		}
	}
	c.suspendAt = max(next, c.now+suspendTogether)
	return false, nil
}
