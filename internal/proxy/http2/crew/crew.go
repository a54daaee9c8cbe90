// Package crew keeps goroutines that carry out the streams of a connection, one after the other. It exists because their stacks
// have then grown to what they need: to grow a new one each time was a twelfth of what a small request costs.
//
// It imports sync only. A Crew is guarded by its connection's lock.
package crew

import "sync"

// Worker is a goroutine that carries out streams S.
type Worker[S any] struct {
	crew *Crew[S]
	s    *S
	next chan *S    // nil is the end
	run  func()     // work, made once, so that starting it allocates nothing
	rest *Worker[S] // in Crew.spare
}

// Crew are the workers of a connection that wait for a stream.
type Crew[S any] struct {
	// Do carries out a stream on a goroutine of its own, without the lock, and has called Rejoin at its end; stays is
	// what that has told.
	Do func(s *S, w *Worker[S]) (stays bool)
	// Pool keeps workers of any crew that have ended.
	Pool *sync.Pool

	spare  *Worker[S] // the last that worked is the next
	spares int
	least  int   // how many there were at any time since trimAt was set
	trimAt int64 // when those are dismissed that were not needed meanwhile; 0 is unset
}

const trimEvery = 1000 // ms

// Len is how many workers wait.
func (c *Crew[S]) Len() int { return c.spares }

// Employ has a worker carry out the stream.
func (c *Crew[S]) Employ(s *S) {
	if w := c.spare; w != nil {
		c.spare, w.rest = w.rest, nil
		c.spares--
		c.least = min(c.least, c.spares)
		w.next <- s
		return
	}
	w, ok := c.Pool.Get().(*Worker[S])
	if !ok {
		w = &Worker[S]{next: make(chan *S, 1)}
		w.run = w.work
	}
	w.crew, w.s = c, s
	go w.run()
}

func (w *Worker[S]) work() {
	c := w.crew
	for s := w.s; s != nil; s = <-w.next {
		w.s = nil
		if !c.Do(s, w) {
			break
		}
	}
	w.crew = nil
	c.Pool.Put(w)
}

// Rejoin makes the worker wait for another stream.
func (c *Crew[S]) Rejoin(w *Worker[S]) {
	c.spare, w.rest = w, c.spare
	c.spares++
}

// Dismiss ends n workers that wait.
func (c *Crew[S]) Dismiss(n int) {
	for ; n > 0; n-- {
		w := c.spare
		c.spare, w.rest = w.rest, nil
		c.spares--
		w.next <- nil
	}
}

// TrimDue is when to call Trim, by the clock (ms) that says now; 0 while no worker waits or works.
func (c *Crew[S]) TrimDue(now int64, working bool) int64 {
	switch {
	case c.spares == 0 && !working:
		c.trimAt = 0
	case c.trimAt == 0:
		c.trimAt, c.least = now+trimEvery, c.spares
	}
	return c.trimAt
}

// Trim dismisses those that were not needed since TrimDue was first asked.
func (c *Crew[S]) Trim() {
	c.Dismiss(c.least)
	c.trimAt = 0
}
