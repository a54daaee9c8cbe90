// Package writesched decides which stream of a connection writes next (RFC 9218). It exists so that fairness and
// priorities can be read and tested separately from what is written.
//
// It is pure, imports nothing, and is not safe for concurrent use. It allocates nothing.
package writesched

// DefaultUrgency is the urgency of a stream without a priority (RFC 9218 section 4.1).
const DefaultUrgency = 3

const urgencies = 8

// Entry is the place of a stream S in a Scheduler. It is part of S, and in at most one list.
type Entry[S any] struct {
	Of      *S
	urgency uint8
	whole   bool
	short   bool // as passed to the last Add or Starve

	in         *list[S]
	prev, next *Entry[S]
}

// Begin initializes the entry of s, in no list and with the default priority.
func (e *Entry[S]) Begin(s *S) { *e = Entry[S]{Of: s, urgency: DefaultUrgency} }

// Waits reports whether the entry is in any list.
func (e *Entry[S]) Waits() bool { return e.in != nil }

// list is a doubly linked list of entries.
type list[S any] struct{ first, last *Entry[S] }

func (l *list[S]) pushBack(e *Entry[S]) {
	e.in, e.prev, e.next = l, l.last, nil
	if l.last != nil {
		l.last.next = e
	} else {
		l.first = e
	}
	l.last = e
}

func (l *list[S]) pushFront(e *Entry[S]) {
	e.in, e.prev, e.next = l, nil, l.first
	if l.first != nil {
		l.first.prev = e
	} else {
		l.last = e
	}
	l.first = e
}

// Leave removes the entry from its list, if it is in one.
func (e *Entry[S]) Leave() {
	l := e.in
	if l == nil {
		return
	}
	if e.prev != nil {
		e.prev.next = e.next
	} else {
		l.first = e.next
	}
	if e.next != nil {
		e.next.prev = e.prev
	} else {
		l.last = e.prev
	}
	e.in, e.prev, e.next = nil, nil, nil
}

// Scheduler holds the streams that can write now: streams that this side opens, in the order of their numbers, and two
// lists for each urgency; and the streams that only wait for the connection's window. The zero value is empty.
type Scheduler[S any] struct {
	opening list[S]
	// short are the streams that one frame ends, and ready all others. They are served alternately, so that a small
	// message need not wait for a frame of each large one.
	short, ready [urgencies]list[S]
	starved      list[S]
	shortServed  bool // the last stream served was a short one
}

// Front returns the stream to serve next, nil if there is none. A nil Scheduler is empty.
func (q *Scheduler[S]) Front() *S {
	if q == nil {
		return nil
	}
	if e := q.opening.first; e != nil {
		return e.Of
	}
	for i := range q.ready {
		short, ready := q.short[i].first, q.ready[i].first
		switch {
		case short != nil && (ready == nil || !q.shortServed):
			return short.Of
		case ready != nil:
			return ready.Of
		}
	}
	return nil
}

// Empty reports whether no stream is in any list.
func (q *Scheduler[S]) Empty() bool { return q.starved.first == nil && q.Front() == nil }

// Open adds a stream that this side opens, before all open streams.
func (q *Scheduler[S]) Open(e *Entry[S]) { q.opening.pushBack(e) }

// Serve removes the front stream for its turn.
func (q *Scheduler[S]) Serve(e *Entry[S]) {
	q.shortServed = e.in == &q.short[e.urgency]
	e.Leave()
}

// Add adds a stream that has something to write, unless it already waits. short means that one frame ends it. A stream
// that is sent as a whole keeps its place after those added before.
func (q *Scheduler[S]) Add(e *Entry[S], short bool) {
	if e.in == nil {
		e.short = short
		q.add(e)
	}
}

func (q *Scheduler[S]) add(e *Entry[S]) {
	switch {
	case e.short && !e.whole:
		q.short[e.urgency].pushBack(e)
	default:
		q.ready[e.urgency].pushBack(e)
	}
}

// Again returns a stream that has had its turn and has more to write. Streams take turns, except those that are sent as
// a whole (RFC 9218 section 10).
func (q *Scheduler[S]) Again(e *Entry[S]) {
	if e.whole {
		q.ready[e.urgency].pushFront(e)
	} else {
		q.ready[e.urgency].pushBack(e)
	}
}

// Starve sets a stream aside until Feed. short is as in Add.
func (q *Scheduler[S]) Starve(e *Entry[S], short bool) {
	e.short = short
	q.starved.pushBack(e)
}

// Starved reports whether the stream waits for Feed.
func (q *Scheduler[S]) Starved(e *Entry[S]) bool { return e.in == &q.starved }

// Feed makes the streams ready that wait for the connection's window.
func (q *Scheduler[S]) Feed() {
	for e := q.starved.first; e != nil; e = q.starved.first {
		e.Leave()
		q.add(e)
	}
}

// Reprioritise applies a new priority and moves the stream to its new place.
func (q *Scheduler[S]) Reprioritise(e *Entry[S], value []byte) {
	e.Prioritise(value)
	if e.in != nil && e.in != &q.starved {
		e.Leave()
		q.add(e)
	}
}
