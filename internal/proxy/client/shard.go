package client

import "sync"

// shards is the number of parts of a Set: enough that cores which accept and end connections rarely contend for a lock,
// and that the sweeper holds each lock only briefly.
const shards = 64

// shard is a part of a Set with its own lock.
type shard struct {
	mu   sync.Mutex
	busy connList
	// parked is sorted by when the connections were parked, which is when their idle times end, up to the sweeper's
	// precision.
	parked connList
	// parkedPlain is like parked, for connections that can become dormant.
	parkedPlain connList
	// parkedOwn holds connections with timeouts of their own and disordered HTTP/2 connections, in no order.
	parkedOwn connList
	_         [128 - 72]byte // padding: the locks of two shards share no cache line
}

// list is a doubly linked list.
type list[T any, P linked[T]] struct{ first, last *T }

type connList = list[Conn, *Conn]

// linked is an element that can be in one list at a time.
type linked[T any] interface {
	*T
	links() *link[T]
}

// link holds the neighbours of an element in a list.
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

// parkedOf returns the list for a parked connection. It is the same as long as the connection is parked.
func (s *shard) parkedOf(c *Conn) *connList {
	switch {
	case c.timeouts != &c.set.timeouts || c.disordered:
		return &s.parkedOwn
	case c.canBeDormant():
		return &s.parkedPlain
	}
	return &s.parked
}

// lists returns all lists, those of parked connections first.
func (s *shard) lists() [4]*connList {
	return [...]*connList{&s.parkedPlain, &s.parked, &s.parkedOwn, &s.busy}
}

// remove removes a connection that is not parked.
func (s *shard) remove(c *Conn) {
	s.mu.Lock()
	s.busy.remove(c)
	s.mu.Unlock()
}

// end calls end for connections, the parked ones first and in order, until it has returned true most times. It returns
// how many times it did. end must not block.
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

// found collects what the sweeper handles after it has released the shard's lock, up to the capacity of each slice.
type found struct {
	waiting []*Conn // connections whose hang-up must be watched for
	dormant []*Conn // claimed connections that are to become dormant
}

// sweepTimes are times of the coarse clock.
type sweepTimes struct {
	now        int64
	idleEnd    int64 // parked connections with the Set's timeouts end if their idle time ends at or before this
	idledSince int64 // connections that have been idle since then or longer become dormant; 0 means none
}

// sweep checks the connections.
func (s *shard) sweep(t sweepTimes, due *found) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := s.busy.first; c != nil; c = c.after {
		if c.sweep(t.now) && len(due.waiting) < cap(due.waiting) {
			c.hangUpWatched.Store(true)
			c.noteReferred()
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
		case c.canBeDormant() && c.isDormantDue(t) && len(due.dormant) < cap(due.dormant):
			if c.claim() {
				due.dormant = append(due.dormant, c)
			}
		}
	}
}

// isDormantDue reports whether a parked connection has been idle long enough to become dormant.
func (c *Conn) isDormantDue(t sweepTimes) bool {
	return max(c.until-c.timeouts.Idle.Milliseconds(), c.quietSince) <= t.idledSince
}
