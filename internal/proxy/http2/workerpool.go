package http2

import "sync"

// worker is a goroutine that runs the handlers of streams, one after the other.
type worker struct {
	pool  *workerPool
	s     *Stream
	next  chan *Stream // nil ends the worker
	run   func()       // work, bound once, so that starting it allocates nothing
	below *worker      // next in workerPool.idle
}

// endedWorkers are workers of any connection that have ended.
var endedWorkers sync.Pool

// workerPool holds the workers of a connection that wait for a stream. They are kept because their stacks have grown to
// what handlers need: growing a new stack for each stream was a twelfth of the cost of a small request. The
// connection's mu guards it.
type workerPool struct {
	// do runs the handler of a stream, without the lock, until it ends or is suspended. It calls put at the end if the
	// worker is kept.
	do func(s *Stream, w *worker) (kept bool)

	idle   *worker // the one that worked last is used next
	n      int     // length of idle
	least  int     // least number of idle workers since trimAt was set
	trimAt int64   // when the workers are stopped that were not needed meanwhile; 0 means unset
	// trimAfter is the time until then. It grows each time nothing was to be stopped, so that a long stream does not
	// wake the reader each second. 0 means trimEvery.
	trimAfter int64
}

const (
	trimEvery = 1000          // ms
	trimMost  = 8 * trimEvery // largest trimAfter
)

// start makes a worker run the handler of s.
func (p *workerPool) start(s *Stream) {
	if w := p.idle; w != nil {
		p.idle, w.below = w.below, nil
		p.n--
		p.least = min(p.least, p.n)
		w.next <- s
		return
	}
	p.trimAt, p.trimAfter = 0, 0
	p.startAnother(s)
}

// startAnother is like start, with a worker that is not in the pool yet. It needs no lock.
func (p *workerPool) startAnother(s *Stream) {
	w, ok := endedWorkers.Get().(*worker)
	if !ok {
		w = &worker{next: make(chan *Stream, 1)}
		w.run = w.work
	}
	w.pool, w.s = p, s
	go w.run()
}

func (w *worker) work() {
	p := w.pool
	for s := w.s; s != nil; s = <-w.next {
		w.s = nil
		if !p.do(s, w) {
			break
		}
	}
	w.pool = nil
	endedWorkers.Put(w)
}

// put makes the worker wait for another stream.
func (p *workerPool) put(w *worker) {
	p.idle, w.below = w, p.idle
	p.n++
}

// stop ends n waiting workers.
func (p *workerPool) stop(n int) {
	for ; n > 0; n-- {
		w := p.idle
		p.idle, w.below = w.below, nil
		p.n--
		w.next <- nil
	}
}

// trimDue returns when to call trim, by the clock (in ms) that is at now; 0 if no worker waits or works.
func (p *workerPool) trimDue(now int64, working bool) int64 {
	switch {
	case p.n == 0 && !working:
		p.trimAt = 0
	case p.trimAt == 0:
		p.trimAfter = max(p.trimAfter, trimEvery)
		p.trimAt, p.least = now+p.trimAfter, p.n
	}
	return p.trimAt
}

// trim stops the workers that were not needed since trimDue was first called.
func (p *workerPool) trim() {
	if p.trimAfter = min(2*p.trimAfter, trimMost); p.n > 0 {
		p.trimAfter = 0
	}
	p.stop(p.least)
	p.trimAt = 0
}
