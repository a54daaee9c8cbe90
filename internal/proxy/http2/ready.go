package http2

import "github.com/moongate-dev/moongate/internal/proxy/http2/frame"

// streamList is a queue of streams by links of their own; a stream is in one at most. Guarded
// by the connection's mu.
type streamList struct{ first, last *Stream }

func (l *streamList) pushBack(s *Stream) {
	s.in, s.prev, s.next = l, l.last, nil
	if l.last != nil {
		l.last.next = s
	} else {
		l.first = s
	}
	l.last = s
}

func (l *streamList) pushFront(s *Stream) {
	s.in, s.prev, s.next = l, nil, l.first
	if l.first != nil {
		l.first.prev = s
	} else {
		l.last = s
	}
	l.first = s
}

// leave takes the stream out of the list that it is in, if any.
func (s *Stream) leave() {
	l := s.in
	if l == nil {
		return
	}
	if s.prev != nil {
		s.prev.next = s.next
	} else {
		l.first = s.next
	}
	if s.next != nil {
		s.next.prev = s.prev
	} else {
		l.last = s.prev
	}
	s.in, s.prev, s.next = nil, nil, nil
}

const urgencies = 8

// queue is what can be written now: streams that we open, in the order of their numbers, then two lists for each
// urgency (RFC 9218 section 4.1); and the streams that only the connection's window keeps back.
type queue struct {
	opening streamList
	// short are those that one frame ends, and ready all others. They are served by turns, so that a small
	// response need not wait for a frame of each large one.
	short, ready [urgencies]streamList
	starved      streamList
	shortServed  bool // the last that was served was a short one
}

// front is the stream to serve next, nil if there is none.
func (q *queue) front() *Stream {
	if s := q.opening.first; s != nil {
		return s
	}
	for i := range q.ready {
		short, ready := q.short[i].first, q.ready[i].first
		switch {
		case short != nil && (ready == nil || !q.shortServed):
			return short
		case ready != nil:
			return ready
		}
	}
	return nil
}

// serve takes the stream, which is the front one, out for its turn.
func (q *queue) serve(s *Stream) {
	q.shortServed = s.in == &q.short[s.urgency]
	s.leave()
}

// add queues a stream that has something to be written. One that is of use only as a whole keeps its place behind
// those that came before.
func (q *queue) add(s *Stream) {
	switch {
	case s.in != nil:
	case (s.end || s.headEnds) && len(s.data) <= frame.MaxPayload && !s.whole:
		q.short[s.urgency].pushBack(s)
	default:
		q.ready[s.urgency].pushBack(s)
	}
}

// again puts a stream back that has had its turn and wants more. Streams take turns, but for
// those that were said to be of use only as a whole (RFC 9218 section 10).
func (q *queue) again(s *Stream) {
	if s.whole {
		q.ready[s.urgency].pushFront(s)
	} else {
		q.ready[s.urgency].pushBack(s)
	}
}

// feed makes those ready that waited for the connection's window.
func (q *queue) feed() {
	for s := q.starved.first; s != nil; s = q.starved.first {
		s.leave()
		q.add(s)
	}
}
