package client

import "sync"

// shards is how many parts a Set has: so many that cores which accept and end connections seldom
// meet at a lock, and the sweeper's walk over one holds it briefly.
const shards = 64

// shard is a part of a Set.
type shard struct {
	mu   sync.Mutex
	busy list
	// parked is in the order in which the connections were parked, which is that in which their idle
	// times end but for the sweeper's precision.
	parked list
	// parkedOwn holds those with timeouts of their own, and those of HTTP/2 that are disordered, in no order.
	parkedOwn list
	_         [128 - 56]byte // a shard's lock shares no cache line with another's
}

// list holds connections, doubly linked by the fields of Conn.
type list struct{ first, last *Conn }

func (l *list) add(c *Conn) {
	c.before, c.after = l.last, nil
	if l.last != nil {
		l.last.after = c
	} else {
		l.first = c
	}
	l.last = c
}

func (l *list) remove(c *Conn) {
	if c.before != nil {
		c.before.after = c.after
	} else {
		l.first = c.after
	}
	if c.after != nil {
		c.after.before = c.before
	} else {
		l.last = c.before
	}
	c.before, c.after = nil, nil
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

// parkedOf is the list of parked connections that the connection belongs to.
func (s *shard) parkedOf(c *Conn) *list {
	if c.timeouts != &c.set.timeouts || c.disordered {
		return &s.parkedOwn
	}
	return &s.parked
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
	for _, l := range [...]*list{&s.parked, &s.parkedOwn, &s.busy} {
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
	return s.busy.first == nil && s.parked.first == nil && s.parkedOwn.first == nil
}

func (s *shard) each(f func(*Conn)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range [...]*list{&s.busy, &s.parked, &s.parkedOwn} {
		for c := l.first; c != nil; c = c.after {
			f(c)
		}
	}
}

// sweep looks at the connections by the coarse clock now; a parked connection is at its end where
// its idle time ends at idleEnd or before. It returns those whose hang-up must be watched for, no more than fit into due.
func (s *shard) sweep(now, idleEnd int64, due []*Conn) []*Conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := s.busy.first; c != nil; c = c.after {
		if c.sweep(now) && len(due) < cap(due) {
			c.hangUpWatched.Store(true)
			due = append(due, c)
		}
	}
	for c := s.parked.first; c != nil && c.until <= idleEnd; c = c.after {
		if c.claim() {
			go c.expireParked()
		}
	}
	for c := s.parkedOwn.first; c != nil; c = c.after {
		if c.idleEnded(now) && c.claim() {
			go c.expireParked()
		}
	}
	return due
}
