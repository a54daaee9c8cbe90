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
	suspected         // avoided, and afterwards to be tried by one request
	onTrial           // one request tries it
)

const (
	// leastPatience is the least time after which another endpoint is tried while a connect is in progress, whether
	// round trips take a millisecond or a hundred.
	leastPatience = 250 * time.Millisecond
	// firstPatience is that time for a backend to which no connect has succeeded yet, so that the usual duration is
	// unknown.
	firstPatience = time.Second
	// patienceFactor is how many times longer than usual a connect may take.
	patienceFactor = 4
)

// suspectFor makes requests avoid the endpoint for d. Afterwards one request at a time tries it until a connect
// succeeds.
func (e *Endpoint) suspectFor(d time.Duration) { e.suspectAs(d, false) }

func (e *Endpoint) suspectAs(d time.Duration, mistrusted bool) {
	e.mistrusted.Store(mistrusted) // before the endpoint is avoided, so that no session sees only that
	e.avoidUntil.Store(time.Now().Add(d).UnixNano())
	e.suspect.Store(suspected)
}

// mistrust is like suspectFor, if the endpoint may only be slow, or the network bad for a moment: requests with
// sessions are still sent to it.
func (e *Endpoint) mistrust() { e.suspectAs(avoidFor, true) }

// ConnectPatiently is like Connect, for a request that no other endpoint can answer as well, because of its session: it
// waits up to the connect timeout.
func (e *Endpoint) ConnectPatiently(ctx context.Context, deadline time.Time, repeatable bool) (*Conn, *Shared, error) {
	limit := e.connectLimit(deadline)
	limit.patient = true
	return e.connectBy(ctx, limit, repeatable)
}

func isSlow(err error) bool {
	var dial *DialError
	return errors.As(err, &dial) && dial.Reason == ReasonSlow
}

// reached must be called after a successful connect.
func (e *Endpoint) reached() {
	if e.suspect.Load() != notSuspect {
		e.suspect.Store(notSuspect)
	}
	e.avoidUntil.Store(0)
}

var errSlow = errors.New("the connect takes longer than usual")

// dialTCP makes the connection. If the backend has another fit endpoint, it gives up early with errSlow: that endpoint
// serves the request better than one whose network drops packets.
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
	c, err := d.DialContext(ctx, "tcp", e.String())
	switch {
	case err == nil && limit.slow != nil && limit.slow.wasNotified(): // other requests should not wait as long
	case err == nil:
		g.connected(time.Since(start))
	case early && ctx.Err() == nil && isTimedOut(err):
		return nil, errSlow
	}
	return c, err
}

// leastUnanswered is how long a connect must have taken to count against the endpoint if it was ended by a request's
// own deadline, which the client may have chosen.
const leastUnanswered = 50 * time.Millisecond

// unanswered must be called after a connect was ended by a request's own deadline, which may be shorter than patience:
// such requests alone would never detect an endpoint whose network drops packets. If it took much longer than usual, it
// counts like a connect that was given up for another endpoint.
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

// tookLong must be called after a connect took much longer than usual.
func (e *Endpoint) tookLong() {
	whole := e.whole()
	whole.mistrust()
	whole.use().failures.Add(1)
	e.backend.totals().failures.Add(1)
	whole.connectFailed(true)
}

// slowDial calls notify once if a connect that continues for patient requests takes longer than usual and another
// endpoint is fit.
type slowDial struct {
	mu             sync.Mutex
	over, notified bool
	notify         func()
}

// watch must be called at the beginning of the connect, and stop at its end. After stop returns, notify is neither
// running nor called.
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
		if !s.over && !s.notified && e.HasAlternative() {
			s.notified = true
			s.notify()
		}
	})
	return func() {
		t.Stop()
		s.mu.Lock()
		defer s.mu.Unlock()
		s.over = true
	}
}

func (s *slowDial) wasNotified() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.notified
}

func isTimedOut(err error) bool {
	var netErr net.Error
	return errors.Is(err, os.ErrDeadlineExceeded) || errors.As(err, &netErr) && netErr.Timeout()
}

// patience returns how long a connect may take if there is another endpoint.
func (g *backendHealth) patience() time.Duration {
	slowest := time.Duration(g.slowest.Load())
	if slowest == 0 {
		return firstPatience
	}
	return max(patienceFactor*slowest, leastPatience)
}

// connected records how long a connect took. A slow one raises the average at once, and later ones lower it gradually.
func (g *backendHealth) connected(took time.Duration) {
	before := time.Duration(g.slowest.Load())
	if took < before {
		took = before - (before-took)/8
	}
	if took != before {
		g.slowest.Store(int64(max(took, 1)))
	}
}

// Suspect makes requests avoid the endpoint for a moment, because it does not acknowledge what it was sent on a
// connection. Its idle connections are closed: a new connection shows whether the endpoint is reachable before anything
// is sent on it.
func (e *Endpoint) Suspect() {
	e.whole().mistrust()
	for c := e.Idle(); c != nil; c = e.Idle() {
		c.Close()
	}
	for _, s := range e.soFar().sharing.list() {
		if s.Lost() {
			s.forget()
			s.retire()
		}
	}
}

// sweepLost checks whether the endpoint acknowledges what it was sent on shared connections.
func (e *Endpoint) sweepLost() {
	for _, s := range e.soFar().sharing.list() {
		if s.places.Load() > 0 && e.HasAlternative() && s.Lost() {
			e.Suspect()
			return
		}
	}
}

// HasAlternative reports whether the backend has another fit endpoint.
func (e *Endpoint) HasAlternative() bool { return e.hasAlternative((*Endpoint).fit) }

// hasAlternativeWithStreams is like HasAlternative, for endpoints all of whose connections allow streams.
func (e *Endpoint) hasAlternativeWithStreams() bool {
	return e.hasAlternative(func(o *Endpoint) bool { return o.fit() && o.soFar().sharing.streamless() == 0 })
}

func (e *Endpoint) hasAlternative(accepts func(*Endpoint) bool) bool {
	whole := e.whole()
	for _, o := range e.backend.list.Load().usable {
		if o != whole && accepts(o) {
			return true
		}
	}
	return false
}

// Lost reports whether data sent on the connection is not acknowledged although it was sent three times, if the system
// reports that. An endpoint that is only slow acknowledges it. It may be called while the connection is in use.
func (c *Conn) Lost() bool { return !c.closed.Load() && c.probe.lost() }

// Lost reports whether Lost is true for the connection.
func (s *Shared) Lost() bool { return s.conn.Lost() }
