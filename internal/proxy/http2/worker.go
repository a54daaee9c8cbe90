package http2

import "sync"

// worker is a goroutine that carries out streams, one after the other. Its stack has grown to what they need:
// to grow a new one each time was a twelfth of what a small request costs.
type worker struct {
	s    *Stream
	next chan *Stream // nil is the end
	run  func()       // work, made once, so that starting it allocates nothing
	rest *worker      // in Conn.spare
}

var workers sync.Pool

// crew are the workers of a connection that wait for a stream; guarded by mu.
type crew struct {
	spare  *worker // the last that worked is the next
	spares int
	least  int   // how many there were at any time since trimAt was set
	trimAt int64 // when those are dismissed that were not needed meanwhile; 0 is unset
}

const trimEvery = 1000 // ms

// employ has a worker carry out the stream. mu is held.
func (c *Conn) employ(s *Stream) {
	c.handlers.Add(1)
	if w := c.spare; w != nil {
		c.spare, w.rest = w.rest, nil
		c.spares--
		c.least = min(c.least, c.spares)
		w.next <- s
		return
	}
	w, ok := workers.Get().(*worker)
	if !ok {
		w = &worker{next: make(chan *Stream, 1)}
		w.run = w.work
	}
	w.s = s
	go w.run()
}

func (w *worker) work() {
	for s := w.s; s != nil; s = <-w.next {
		w.s = nil
		c := s.c
		c.handle(s)
		stays := c.finish(s, w)
		c.handlers.Done()
		if !stays {
			break
		}
	}
	workers.Put(w)
}

// rejoin makes the worker wait for another stream; false is that there will be none. mu is held.
func (c *Conn) rejoin(w *worker) bool {
	if c.over {
		return false
	}
	c.spare, w.rest = w, c.spare
	c.spares++
	return true
}

// dismiss ends n workers that wait.
func (c *Conn) dismiss(n int) {
	for ; n > 0; n-- {
		w := c.spare
		c.spare, w.rest = w.rest, nil
		c.spares--
		w.next <- nil
	}
}

// trimDue is when to look for workers that are not needed; 0 while there are none.
func (c *Conn) trimDue() int64 {
	switch {
	case c.spares == 0 && len(c.streams) == 0:
		c.trimAt = 0
	case c.trimAt == 0:
		c.trimAt, c.least = c.now+trimEvery, c.spares
	}
	return c.trimAt
}

func (c *Conn) expireTrim() (bool, error) {
	c.dismiss(c.least)
	c.trimAt = 0
	return false, nil
}
