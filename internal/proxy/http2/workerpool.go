package http2

import "sync"

// worker is a goroutine that runs the handlers of streams, one after the other.
type worker struct {
	pool *workerPool
	s    *Stream
	next chan *Stream // nil is the end
	run  func()       // work, made once, so that starting it allocates nothing
	rest *worker      // in workerPool.idle
}

// endedWorkers are workers of any connection that have ended.
var endedWorkers sync.Pool

// workerPool are the workers of a connection that wait for a stream. They are kept because their stacks have grown to what
// handlers need: to grow a new one for each stream was a twelfth of what a small request costs. The connection's mu guards it.
type workerPool struct {
	// do runs the handler of a stream, without the lock, to its end or until it is suspended, and has called put at its end where the worker is kept.
	do func(s *Stream, w *worker) (kept bool)

	idle   *worker // the last that worked is the next
	n      int     // of idle
	least  int     // how many were idle at any time since trimAt was set
	trimAt int64   // when those are stopped that were not needed meanwhile; 0 is unset
	// trimAfter is the time until then, longer each time where there was nothing to stop: a stream that lasts is not to wake the reader each second. 0 is trimEvery.
	trimAfter int64
}

const (
	trimEvery = 1000          // ms
	trimMost  = 8 * trimEvery // for trimAfter
)

// start has a worker run the handler of s.
func (p *workerPool) start(s *Stream) {
	if w := p.idle; w != nil {
		p.idle, w.rest = w.rest, nil
		p.n--
		p.least = min(p.least, p.n)
		w.next <- s
		return
	}
	p.trimAt, p.trimAfter = 0, 0
	p.startAnother(s)
}

// startAnother is start with a worker that is not of the pool yet. It needs no lock.
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
	p.idle, w.rest = w, p.idle
	p.n++
}

// stop ends n workers that wait.
func (p *workerPool) stop(n int) {
	for ; n > 0; n-- {
		w := p.idle
		p.idle, w.rest = w.rest, nil
		p.n--
		w.next <- nil
	}
}

// trimDue returns when to call trim, by the clock (ms) that says now; 0 while no worker waits or works.
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

// trim stops those that were not needed since trimDue was first asked.
func (p *workerPool) trim() {
	if p.trimAfter = min(2*p.trimAfter, trimMost); p.n > 0 {
		p.trimAfter = 0
	}
	p.stop(p.least)
	p.trimAt = 0
}
