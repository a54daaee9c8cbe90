package client

import "sync"

// shards is how many parts a Set has: so many that cores which accept and end connections seldom
// meet at a lock, and the sweeper's walk over one holds it briefly.
const shards = 64

// shard is a part of a Set.
type shard struct {
	mu   sync.Mutex
	busy connList
	// parked is in the order in which the connections were parked, which is that in which their idle
	// times end but for the sweeper's precision.
	parked connList
	// parkedPlain is parked, of those that can become dormant.
	parkedPlain connList
	// parkedOwn holds those with timeouts of their own, and those of HTTP/2 that are disordered, in no order.
	parkedOwn connList
	_         [128 - 72]byte // a shard's lock shares no cache line with another's
}

// list is doubly linked.
type list[T any, P linked[T]] struct{ first, last *T }

type connList = list[Conn, *Conn]

// linked is what can be in one list at a time.
type linked[T any] interface {
	*T
	links() *link[T]
}

// link is a place in a list.
type link[T any] struct{ before, after *T }

func (l *link[T]) links() *link[T] { return l }

func (l *list[T, P]) add(c *T) {
	own := P(c).links()
	own.before, own.after = l.last, nil
	if l.last != nil {
		P(l.last).links().after = c
	} else {
		l.first = c
	}
	l.last = c
}

func (l *list[T, P]) remove(c *T) {
	own := P(c).links()
	if own.before != nil {
		P(own.before).links().after = own.after
	} else {
		l.first = own.after
	}
	if own.after != nil {
		P(own.after).links().before = own.before
	} else {
		l.last = own.before
	}
	own.before, own.after = nil, nil
}

func (s *shard) add(c *Conn) {
	s.mu.Lock()
	s.busy.add(c)
	s.mu.Unlock()
}

func (s *shard) park(c *Conn) {
	s.mu.Lock()
	s.busy.remove(c)
	s.parkedOf(c).add(c)
	s.mu.Unlock()
}

func (s *shard) unpark(c *Conn) {
	s.mu.Lock()
	s.parkedOf(c).remove(c)
	s.busy.add(c)
	s.mu.Unlock()
}

// parkedOf is the list of parked connections that the connection belongs to, the same as long as it is parked.
func (s *shard) parkedOf(c *Conn) *connList {
	switch {
	case c.timeouts != &c.set.timeouts || c.disordered:
		return &s.parkedOwn
	case c.isPlain():
		return &s.parkedPlain
	}
	return &s.parked
}

// lists are all, first those of parked connections.
func (s *shard) lists() [4]*connList {
	return [...]*connList{&s.parkedPlain, &s.parked, &s.parkedOwn, &s.busy}
}

// remove takes out a connection that is not parked.
func (s *shard) remove(c *Conn) {
	s.mu.Lock()
	s.busy.remove(c)
	s.mu.Unlock()
}

// end calls end for connections until it has reported true so often as most says, and returns how often it has: first for those that
// are parked, in their order. end must not block.
func (s *shard) end(most int, end func(*Conn) bool) (ended int) {
	if most <= 0 {
		return 0
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.lists() {
		for c := l.first; c != nil && ended < most; c = c.after {
			if end(c) {
				ended++
			}
		}
	}
	return ended
}

func (s *shard) empty() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.lists() {
		if l.first != nil {
			return false
		}
	}
	return true
}

func (s *shard) each(f func(*Conn)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.lists() {
		for c := l.first; c != nil; c = c.after {
			f(c)
		}
	}
}

// found is what the sweeper deals with after it has released the shard's lock, up to the capacity of each.
type found struct {
	waiting []*Conn // whose hang-up must be watched for
	dormant []*Conn // claimed, to become dormant
}

// sweepTimes are moments by the coarse clock.
type sweepTimes struct {
	now        int64
	idleEnd    int64 // parked connections with the Set's timeouts are at their end whose idle time ends then or before
	idledSince int64 // connections that have idled since then or longer become dormant; 0 is that none does
}

// sweep looks at the connections.
func (s *shard) sweep(t sweepTimes, due *found) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := s.busy.first; c != nil; c = c.after {
		if c.sweep(t.now) && len(due.waiting) < cap(due.waiting) {
			c.hangUpWatched.Store(true)
			due.waiting = append(due.waiting, c)
		}
	}
	for _, l := range [...]*connList{&s.parked, &s.parkedPlain} {
		for c := l.first; c != nil && c.until <= t.idleEnd; c = c.after {
			if c.claim() {
				go c.expireParked()
			}
		}
	}
	for c := s.parkedPlain.first; c != nil && c.isDormantDue(t) && len(due.dormant) < cap(due.dormant); c = c.after {
		if c.claim() {
			due.dormant = append(due.dormant, c)
		}
	}
	for c := s.parkedOwn.first; c != nil; c = c.after {
		switch {
		case c.idleEnded(t.now):
			if c.claim() {
				go c.expireParked()
			}
		case c.isPlain() && c.isDormantDue(t) && len(due.dormant) < cap(due.dormant):
			if c.claim() {
				due.dormant = append(due.dormant, c)
			}
		}
	}
}

// isDormantDue reports whether a parked connection has idled for so long that it is to become dormant.
func (c *Conn) isDormantDue(t sweepTimes) bool {
	return c.until-c.timeouts.Idle.Milliseconds() <= t.idledSince
}
