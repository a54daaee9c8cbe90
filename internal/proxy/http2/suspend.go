package http2

import (
	"errors"
	"time"

	"github.com/moongate-dev/moongate/internal/proxy/http2/head"
)

// suspendAfter is how long, in milliseconds, a response must have brought nothing before the goroutine that waits for it is given up: what
// one costs, with its stack, is as much as all else of a stream, and to start another costs a few microseconds.
const suspendAfter = 500

// suspendTogether is how long, in milliseconds, the next may have to wait, so that the reader need not look for each.
const suspendTogether = 50

// ErrSuspend is that ClientStream.WaitAwhile has waited for long.
var ErrSuspend = errors.New("http2: nothing has come for long")

// Suspended is a handler that has returned before the end of its stream, to go on later on another goroutine.
type Suspended interface {
	// Await has wake called, once, when the handler is to go on, or returns false where that is at once.
	Await(wake func()) bool
	// Resume goes on. It is called in place of the handler, and may suspend itself again.
	Resume()
}

// Suspend has h go on with the stream, when the handler has returned. It must be the last that the handler does with it, and Head is empty
// from then on: while nothing happens a stream is to hold no memory that it can do without.
func (s *Stream) Suspend(h Suspended) {
	s.c.mu.Lock()
	defer s.c.unlock()
	s.suspended = h
	s.Head = Head{Protocol: s.Head.Protocol} // which judges what the client sends
	s.header = head.Section{}
	s.giveUpFrames()
}

// giveUpFrames gives up the memory of frames that were sent; mu is held.
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

// awaitResume reports whether the handler is suspended: then another goroutine may have the stream already.
func (s *Stream) awaitResume() bool {
	return s.suspended.Await(func() { s.c.workers.startAnother(s) })
}

// suspension is what a stream of ours has in place of a goroutine that waits for the response. The connection's mu guards it.
type suspension struct {
	c     *Conn
	s     *ClientStream // nil when it is over
	wake  func()
	timer *time.Timer // nil without a deadline
}

// end has the stream's user go on.
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

// WaitAwhile is Wait, but where ClientRequest.Suspends was set it returns ErrSuspend when nothing has come for long.
func (s *ClientStream) WaitAwhile() error {
	c := s.s.c
	c.mu.Lock()
	defer c.unlock()
	s.awhile, s.waitsSince = s.suspends, c.now
	err := s.s.await()
	s.awhile, s.long = false, false
	return err
}

// Notify has wake called, once, when Wait would return, and reports true; or false where it would at once. It is only for streams that were opened with
// ClientRequest.Suspends and whose final head was read, and until then no call but Reset and SetDeadline may be made that reads.
// What ReadHead has returned is not valid any more. wake must not block nor call anything of this package.
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
	s.s.readable.timer = nil // it was stopped
	s.s.header, s.interims = head.Section{}, nil
	c.suspendable--
	return true
}

// wakeReader wakes who waits to read from the stream; mu is held.
func (s *Stream) wakeReader() {
	if s.of != nil && s.of.suspension != nil {
		s.of.suspension.end()
		return
	}
	s.readable.send()
}

// suspendDue returns when to call expireSuspend; 0 while that concerns no stream.
func (c *Conn) suspendDue() int64 {
	switch {
	case c.suspendable == 0:
		c.suspendAt = 0
	case c.suspendAt == 0:
		c.suspendAt = c.now + suspendAfter
	}
	return c.suspendAt
}

// expireSuspend ends waits that last for long, and is called next when the first of the others will.
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
