package upstream

import (
	"container/heap"
	"sync"
	"time"
)

// taskQueue calls functions at their times, on one goroutine that exists as long as there are any. So ten thousand
// endpoints that are checked every few seconds need no goroutines between their checks. The zero value is ready for
// use.
type taskQueue struct {
	mu      sync.Mutex
	tasks   taskHeap
	running bool
	closed  bool
	woken   chan struct{} // of capacity 1, sent to when an earlier task is added; made with the first task
	// panicked is called when a task panics; it must be set before the first task is added.
	panicked func(where string, v any)
}

// task is a function to be called at a time. It must not block.
type task struct {
	run   func(now time.Time)
	at    time.Time
	index int // in the heap, from 1 on; 0 means that it does not wait
	ended bool
}

// add schedules a task for a time, unless it was stopped before.
func (q *taskQueue) add(k *task, at time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed || k.ended || k.index != 0 {
		return
	}
	k.at = at
	heap.Push(&q.tasks, k)
	if q.woken == nil {
		q.woken = make(chan struct{}, 1)
	}
	if !q.running {
		q.running = true
		go q.loop()
		return
	}
	if k.index == 1 {
		q.wake()
	}
}

func (q *taskQueue) wake() {
	select {
	case q.woken <- struct{}{}:
	default:
	}
}

// stop prevents further runs of a task, which may still be running.
func (q *taskQueue) stop(k *task) {
	q.mu.Lock()
	defer q.mu.Unlock()
	k.ended = true
	if k.index != 0 {
		heap.Remove(&q.tasks, k.index-1)
		if len(q.tasks) == 0 && q.running {
			q.wake()
		}
	}
}

// close stops all tasks.
func (q *taskQueue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	for _, k := range q.tasks {
		k.index = 0
	}
	q.tasks = nil
	if q.running {
		q.wake()
	}
}

func (q *taskQueue) loop() {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		k, wait, done := q.next()
		switch {
		case done:
			return
		case k != nil:
			q.carryOut(k)
			continue
		}
		timer.Reset(wait)
		select {
		case <-timer.C:
		case <-q.woken:
		}
	}
}

// next returns the next task if it is due, or how long it takes until it is. done means that there is none.
func (q *taskQueue) next() (k *task, wait time.Duration, done bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.tasks) == 0 {
		q.running = false
		return nil, 0, true
	}
	if wait = time.Until(q.tasks[0].at); wait > 0 {
		return nil, wait, false
	}
	return heap.Pop(&q.tasks).(*task), 0, false
}

func (q *taskQueue) carryOut(k *task) {
	defer func() {
		if v := recover(); v != nil && q.panicked != nil {
			q.panicked("health", v)
		}
	}()
	k.run(time.Now())
}

// taskHeap is a heap ordered by time.
type taskHeap []*task

func (h taskHeap) Len() int           { return len(h) }
func (h taskHeap) Less(i, j int) bool { return h[i].at.Before(h[j].at) }
func (h taskHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i+1, j+1
}

// Push implements heap.Interface.
func (h *taskHeap) Push(x any) {
	k := x.(*task)
	k.index = len(*h) + 1
	*h = append(*h, k)
}

// Pop implements heap.Interface.
func (h *taskHeap) Pop() any {
	old := *h
	k := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	k.index = 0
	return k
}
