package http2

import (
	"net"
	"testing"
)

// crewOf is a connection whose streams wait for a word to end; nothing is read or written on it.
type crewOf struct {
	*Conn
	end chan struct{}
	id  uint32
}

func newCrew(t *testing.T) *crewOf {
	a, b := net.Pipe()
	t.Cleanup(func() { a.Close(); b.Close() })
	w := &crewOf{end: make(chan struct{})}
	w.Conn = New(a, Options{}, func(*Stream) { <-w.end })
	w.out, w.streams = nil, map[uint32]*Stream{}
	return w
}

// run has n streams be under way together, and ends them.
func (w *crewOf) run(n int) {
	w.mu.Lock()
	for range n {
		w.id += 2
		s := w.newStream(w.id)
		s.remoteEnded, s.localEnded = true, true
		w.streams[s.id] = s
		w.handlers.Add(1)
		w.workers.start(s)
	}
	w.mu.Unlock()
	for range n {
		w.end <- struct{}{}
	}
	w.handlers.Wait()
}

// trim is what the reader does each second, and tells how many workers are left.
func (w *crewOf) trim() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.workers.trimDue(w.now, len(w.streams) > 0) != 0 {
		w.workers.trim()
	}
	w.workers.trimDue(w.now, len(w.streams) > 0)
	return w.workers.n
}

// Workers stay while they are needed at times, and no longer.
func TestWorkersAreTrimmed(t *testing.T) {
	w := newCrew(t)
	w.run(5)
	if n := w.trim(); n != 0 {
		t.Errorf("%d workers are left that nobody has needed since they were looked at first", n)
	}
	w.run(5)
	w.mu.Lock()
	w.workers.trimDue(w.now, len(w.streams) > 0) // begins with 5
	w.mu.Unlock()
	w.run(3) // 3 of them are needed
	if n := w.trim(); n != 3 {
		t.Errorf("%d workers are left, want the 3 that were needed", n)
	}
	if n := w.trim(); n != 0 {
		t.Errorf("%d workers are left after a time without streams", n)
	}
	w.mu.Lock()
	due := w.workers.trimDue(w.now, len(w.streams) > 0)
	w.mu.Unlock()
	if due != 0 {
		t.Error("the reader is to be woken though there is nothing to trim")
	}
}

// A connection that has ended leaves no worker behind, be it waiting or at work.
func TestWorkersEndWithTheConnection(t *testing.T) {
	w := newCrew(t)
	w.run(2)
	w.mu.Lock()
	s := w.newStream(99)
	s.remoteEnded, s.localEnded = true, true
	w.streams[s.id] = s
	w.handlers.Add(1)
	w.workers.start(s)
	w.endAllStreams(ErrClosed)
	w.workers.stop(w.workers.n)
	w.mu.Unlock()
	w.end <- struct{}{}
	w.handlers.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.workers.n != 0 {
		t.Errorf("%d workers wait on a connection that is over", w.workers.n)
	}
}

// TestTrimPauses: a stream that lasts has the reader look for workers to stop less and less often, until there are some again.
func TestTrimPauses(t *testing.T) {
	var p workerPool
	now, times := int64(0), 0
	for ; now < 600_000; times++ {
		now = p.trimDue(now, true)
		p.trim()
	}
	if times > 100 {
		t.Errorf("looked %d times in 10 minutes", times)
	}
	w := newCrew(t)
	w.workers.trimAfter = trimMost
	w.run(1)
	if at := w.workers.trimDue(0, true); at != trimEvery {
		t.Errorf("after a new worker they are looked at in %d ms", at)
	}
}
