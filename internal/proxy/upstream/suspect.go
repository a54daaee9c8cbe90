package upstream

import (
	"context"
	"errors"
	"net"
	"os"
	"sync"
	"time"
)

// The states of Endpoint.suspect.
const (
	notSuspect uint32 = iota
	suspected         // avoided, and then for one request to try
	onTrial           // one does
)

const (
	// leastPatience is how long a connect takes at least, in a network whose round trips take a millisecond or a hundred, before another endpoint is tried.
	leastPatience = 250 * time.Millisecond
	// firstPatience is that of a backend to which no connect has succeeded yet, so that nobody knows how long they take.
	firstPatience = time.Second
	// patienceFactor is how much longer than others a connect may take.
	patienceFactor = 4
)

// suspectFor has the endpoint avoided for a time, and then tried by one request at a time until a connect succeeds.
func (e *Endpoint) suspectFor(d time.Duration) { e.suspectAs(d, false) }

func (e *Endpoint) suspectAs(d time.Duration, mistrusted bool) {
	e.mistrusted.Store(mistrusted) // before the endpoint is avoided, so that no session sees that alone
	e.avoidUntil.Store(time.Now().Add(d).UnixNano())
	e.suspect.Store(suspected)
}

// mistrust is suspectFor where the endpoint may be slow only, or the network bad for a moment: requests of sessions are sent to it nevertheless.
func (e *Endpoint) mistrust() { e.suspectAs(avoidFor, true) }

// ConnectPatiently is Connect for a request that no other endpoint can answer as well, because of its session: it waits up to the connect timeout.
func (e *Endpoint) ConnectPatiently(ctx context.Context, deadline time.Time, repeatable bool) (*Conn, *Shared, error) {
	limit := e.connectLimit(deadline)
	limit.patient = true
	return e.connectBy(ctx, limit, repeatable)
}

func isSlow(err error) bool {
	var dial *DialError
	return errors.As(err, &dial) && dial.Reason == ReasonSlow
}

// reached follows a connect that has succeeded.
func (e *Endpoint) reached() {
	if e.suspect.Load() != notSuspect {
		e.suspect.Store(notSuspect)
	}
	e.avoidUntil.Store(0)
}

var errSlow = errors.New("no answer in the time that connects take")

// dialTCP makes the connection. Where the backend has another endpoint that is fit it gives up early, with errSlow: a request is better off there than waiting for an
// endpoint whose network drops what is sent.
func (e *Endpoint) dialTCP(ctx context.Context, d *net.Dialer, limit dialLimit) (net.Conn, error) {
	g := e.health.backend
	start := time.Now()
	patience := g.patience()
	late := start.Add(patience).Before(d.Deadline)
	early := late && !limit.patient && e.HasAlternative()
	switch {
	case early:
		d.Deadline = start.Add(patience)
	case late && limit.slow != nil:
		defer limit.slow.watch(patience, e)()
	}
	c, err := d.DialContext(ctx, "tcp", e.text)
	switch {
	case err == nil && limit.slow != nil && limit.slow.isTold(): // others are not to wait as long
	case err == nil:
		g.connected(time.Since(start))
	case early && ctx.Err() == nil && isTimedOut(err):
		return nil, errSlow
	}
	return c, err
}

// leastUnanswered is how long a connect that a request's own deadline ends must have taken for the endpoint to be judged by it: a client may choose that deadline.
const leastUnanswered = 50 * time.Millisecond

// unanswered follows a connect that a request's own deadline has ended, shorter than patience maybe: an endpoint whose network drops what is sent would never be found
// out by such requests. It is judged as by a connect that was given up for another endpoint, where it has taken much longer than others.
func (e *Endpoint) unanswered(took time.Duration) {
	g := e.health.backend
	least := firstPatience
	if slowest := time.Duration(g.slowest.Load()); slowest > 0 {
		least = max(patienceFactor*slowest, leastUnanswered)
	}
	if took < least {
		return
	}
	e.tookLong()
}

// tookLong follows a connect that has taken much longer than others.
func (e *Endpoint) tookLong() {
	whole := e.whole()
	whole.mistrust()
	whole.failures.Add(1)
	e.backend.totals().failures.Add(1)
	whole.connectFailed(true)
}

// slowDial has a connect that goes on for requests which wait patiently tell, once, that it takes longer than others do, where another endpoint is fit.
type slowDial struct {
	mu         sync.Mutex
	over, told bool
	tell       func()
}

// watch begins with the connect, and is followed by stop at its end, behind which tell is not called, nor running.
func (s *slowDial) watch(patience time.Duration, e *Endpoint) (stop func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.over = false
	t := time.AfterFunc(patience, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		defer func() {
			if v := recover(); v != nil {
				e.backend.set.options.Panicked("connect", v)
			}
		}()
		if !s.over && !s.told && e.HasAlternative() {
			s.told = true
			s.tell()
		}
	})
	return func() {
		t.Stop()
		s.mu.Lock()
		defer s.mu.Unlock()
		s.over = true
	}
}

func (s *slowDial) isTold() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.told
}

func isTimedOut(err error) bool {
	var netErr net.Error
	return errors.Is(err, os.ErrDeadlineExceeded) || errors.As(err, &netErr) && netErr.Timeout()
}

// patience returns how long a connect may take where there is another endpoint.
func (g *backendHealth) patience() time.Duration {
	slowest := time.Duration(g.slowest.Load())
	if slowest == 0 {
		return firstPatience
	}
	return max(patienceFactor*slowest, leastPatience)
}

// connected takes in how long a connect has taken. One that was slow counts at once, and is forgotten over those that follow.
func (g *backendHealth) connected(took time.Duration) {
	before := time.Duration(g.slowest.Load())
	if took < before {
		took = before - (before-took)/8
	}
	if took != before {
		g.slowest.Store(int64(max(took, 1)))
	}
}

// Suspect has the endpoint avoided for a moment, because it does not acknowledge what it was sent on a connection. Those that idle are closed: whether there is
// a way to the endpoint shows before anything is sent on a new one.
func (e *Endpoint) Suspect() {
	e.whole().mistrust()
	for c := e.Idle(); c != nil; c = e.Idle() {
		c.Close()
	}
	for _, s := range e.sharing.list() {
		if s.Lost() {
			e.sharing.forget(s)
			s.retire()
		}
	}
}

// sweepLost looks whether the endpoint acknowledges what it was sent on connections that are shared.
func (e *Endpoint) sweepLost() {
	for _, s := range e.sharing.list() {
		if s.places.Load() > 0 && e.HasAlternative() && s.Lost() {
			e.Suspect()
			return
		}
	}
}

// HasAlternative reports whether the backend has another endpoint that is fit.
func (e *Endpoint) HasAlternative() bool {
	whole := e.whole()
	for _, o := range e.backend.list.Load().usable {
		if o != whole && o.fit() {
			return true
		}
	}
	return false
}

// Lost reports whether what was sent on the connection is not acknowledged though it was sent three times, as far as the system tells. An endpoint that is just slow
// acknowledges it. It may be called while the connection is in use.
func (c *Conn) Lost() bool { return !c.closed.Load() && c.probe.lost() }

// Lost is that of the connection.
func (s *Shared) Lost() bool { return s.conn.Lost() }
