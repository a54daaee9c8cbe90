// Package writesched says which stream of a connection writes next (RFC 9218). It exists so that fairness and priorities
// can be read, and tested, apart from what is written.
//
// It is pure, imports nothing, and is not safe for concurrent use. Nothing here allocates.
package writesched

// DefaultUrgency is that of a stream that says nothing (RFC 9218 section 4.1).
const DefaultUrgency = 3

const urgencies = 8

// Entry is the place of a stream S in a Scheduler; it is part of S, and in one list at most.
type Entry[S any] struct {
	Of      *S
	urgency uint8
	whole   bool
	short   bool // by the last Add or Starve

	in         *list[S]
	prev, next *Entry[S]
}

// Begin makes the entry that of s, in no list, and with the default priority.
func (e *Entry[S]) Begin(s *S) { *e = Entry[S]{Of: s, urgency: DefaultUrgency} }

// Waits reports whether the entry is in any list.
func (e *Entry[S]) Waits() bool { return e.in != nil }

// list is a queue by links of the entries' own.
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

// Leave takes the entry out of the list that it is in, if any.
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

// Scheduler is what can be written now: streams that we open, in the order of their numbers, then two lists for each
// urgency; and the streams that only the connection's window keeps back. The zero value is empty.
type Scheduler[S any] struct {
	opening list[S]
	// short are those that one frame ends, and ready all others. They are served by turns, so that a small
	// message need not wait for a frame of each large one.
	short, ready [urgencies]list[S]
	starved      list[S]
	shortServed  bool // the last that was served was a short one
}

// Front is the stream to serve next, nil if there is none.
func (q *Scheduler[S]) Front() *S {
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

// Open adds a stream that we open, which goes before all that are open.
func (q *Scheduler[S]) Open(e *Entry[S]) { q.opening.pushBack(e) }

// Serve takes the stream, which is the front one, out for its turn.
func (q *Scheduler[S]) Serve(e *Entry[S]) {
	q.shortServed = e.in == &q.short[e.urgency]
	e.Leave()
}

// Add adds a stream that has something to be written, unless it waits already; short reports that one frame ends
// it. One that is of use only as a whole keeps its place behind those that came before.
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

// Again puts a stream back that has had its turn and wants more. Streams take turns, but for
// those that were said to be of use only as a whole (RFC 9218 section 10).
func (q *Scheduler[S]) Again(e *Entry[S]) {
	if e.whole {
		q.ready[e.urgency].pushFront(e)
	} else {
		q.ready[e.urgency].pushBack(e)
	}
}

// Starve puts a stream aside until Feed; short is as of Add.
func (q *Scheduler[S]) Starve(e *Entry[S], short bool) {
	e.short = short
	q.starved.pushBack(e)
}

// Starved reports that the stream waits for Feed.
func (q *Scheduler[S]) Starved(e *Entry[S]) bool { return e.in == &q.starved }

// Feed makes those ready that wait for the connection's window.
func (q *Scheduler[S]) Feed() {
	for e := q.starved.first; e != nil; e = q.starved.first {
		e.Leave()
		q.add(e)
	}
}

// Reprioritise moves the stream to where a new priority wants it.
func (q *Scheduler[S]) Reprioritise(e *Entry[S], value []byte) {
	e.Prioritise(value)
	if e.in != nil && e.in != &q.starved {
		e.Leave()
		q.add(e)
	}
}
