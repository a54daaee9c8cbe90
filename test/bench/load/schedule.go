//go:build linux

package load

import (
	"math/rand/v2"
	"time"
)

// schedule says when the requests of an open loop are due, whatever became of those before: by it the time that a request had to wait for a connection counts, which a
// client that sends the next one only when the last is answered leaves out. Arrivals are independent of each other, the same in every run.
type schedule struct {
	mean   time.Duration
	random *rand.Rand
	due    time.Time // of the next request
	idle   []*conn   // that may be used for it
}

func newSchedule(rate float64, now time.Time) *schedule {
	s := &schedule{mean: time.Duration(float64(time.Second) / rate), random: rand.New(rand.NewPCG(1, 2)), due: now}
	s.advance()
	return s
}

func (s *schedule) advance() {
	s.due = s.due.Add(time.Duration(s.random.ExpFloat64() * float64(s.mean)))
}

// free takes a connection that has had its answer.
func (s *schedule) free(c *conn) {
	c.sent, c.done = time.Time{}, true
	s.idle = append(s.idle, c)
}

// send starts requests that are due, as far as there are connections, and returns how long none is due.
func (l *loop) send() (pause time.Duration, err error) {
	s := l.schedule
	for len(s.idle) > 0 {
		now := time.Now()
		if now.Before(s.due) {
			return s.due.Sub(now), nil
		}
		c := s.idle[0] // the one that has rested for longest, so that all are used
		s.idle = append(s.idle[:0], s.idle[1:]...)
		if err := c.startAt(l.spec.Request, s.due); err != nil {
			if err := l.restart(c, err); err != nil {
				return 0, err
			}
		}
		s.advance()
	}
	return maxPause, nil
}

// maxPause is for how long the loop waits for answers at most.
const maxPause = 10 * time.Millisecond
