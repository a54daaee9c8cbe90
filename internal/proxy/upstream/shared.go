package upstream

import (
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/moongate-dev/moongate/internal/proxy/http2"
)

// Shared is a connection that carries the streams of many requests at a time (HTTP/2). A request with a place on it
// opens one stream, and calls Leave when that is closed.
type Shared struct {
	client   *http2.Client
	conn     *Conn
	endpoint *Endpoint
	// places is the number of places in use. It is far below 0 if no more are given out.
	places atomic.Int64
	// left is when the last place was returned, by the Set's clock.
	left atomic.Int64
	used atomic.Bool
	// carried counts the places given out while a policy limits connections. spent means that no more are given out for
	// that reason.
	carried atomic.Int64
	spent   atomic.Bool
	max     atomic.Int64 // streams that the backend allows; 0 means unknown
}

// shut is added to Shared.places to give out no more of them.
const shut = -1 << 40

// Scheme returns the scheme of requests on the connection: "https" with TLS, otherwise "http".
func (s *Shared) Scheme() string {
	if s.conn.secure != nil {
		return "https"
	}
	return "http"
}

// Endpoint returns the endpoint of the connection.
func (s *Shared) Endpoint() *Endpoint { return s.endpoint }

// Used reports whether a request was answered on the connection before, so that it may have ended without an error.
func (s *Shared) Used() bool { return s.used.Load() }

// Open opens the stream that belongs to a place. If it returns http2.ErrUnavailable, the backend takes no stream: the
// caller must call Leave and get another place.
func (s *Shared) Open(r *http2.ClientRequest) (*http2.ClientStream, error) {
	stream, err := s.client.Open(r)
	switch {
	case err == nil:
	case errors.Is(err, http2.ErrEnds):
		s.gone() // http2 reports it a moment later too
	case errors.Is(err, http2.ErrUnavailable):
		s.learn() // the backend allows fewer streams than before
	}
	return stream, err
}

// Leave returns the place. Its stream must have been closed. answered means that the backend has answered on it.
func (s *Shared) Leave(answered bool) {
	if answered && !s.used.Load() {
		s.used.Store(true)
	}
	s.left.Store(s.endpoint.backend.set.clock.Load())
	left := s.places.Add(-1)
	s.endpoint.feed()
	if left == 0 && (!s.endpoint.mayKeep() || s.endpoint.isDropped()) || left == shut && s.spent.Load() {
		s.end()
	}
}

// end ends the connection, which must have no streams. It may be called more than once.
func (s *Shared) end() {
	if s.places.CompareAndSwap(0, shut) || s.places.Load() == shut {
		s.forget()
		s.client.Drain()
	}
}

// take takes a place. It returns false if there is none.
func (s *Shared) take() bool {
	n := s.places.Load()
	for n >= 0 && n < s.limit() {
		if s.places.CompareAndSwap(n, n+1) {
			return s.begun()
		}
		n = s.places.Load()
	}
	return false
}

// begun counts a request that got a place. It returns false and releases the place if the connection has carried as
// many requests as it may, or is too old.
func (s *Shared) begun() bool {
	b := s.endpoint.backend.root()
	l, c := b.limits.Load(), b.connections.Load()
	if l == nil && c == nil {
		return true
	}
	n := s.carried.Add(1)
	old := c != nil && c.maxDuration > 0 && (n > 1 || s.used.Load()) && time.Since(s.conn.made) >= c.maxDuration
	over := l != nil && l.perConnection > 0 && n > l.perConnection
	if old || l != nil && l.perConnection > 0 && n >= l.perConnection { // Leave of the last request ends the connection
		s.spent.Store(true)
		s.shut()
	}
	if !old && !over {
		return true
	}
	if s.places.Add(-1) == shut {
		go s.end() // a lock that end takes may be held
	}
	return false
}

// shut gives out no more places.
func (s *Shared) shut() {
	for n := s.places.Load(); n >= 0; n = s.places.Load() {
		if s.places.CompareAndSwap(n, n+shut) {
			return
		}
	}
}

// limit returns how many streams the backend allows, as far as known.
func (s *Shared) limit() int64 {
	if n := s.max.Load(); n > 0 {
		return n
	}
	return s.learn()
}

// learn gets the limit from the connection, and stores it for the endpoint.
func (s *Shared) learn() int64 {
	n, settled := s.client.MaxStreams()
	max, before := int64(n), &s.endpoint.use().sharing.limit
	switch {
	case settled:
		s.max.Store(max)
		known := max
		if max == 0 {
			known = noneAllowed
		}
		if before.Load() != known {
			before.Store(known)
		}
	case before.Load() == noneAllowed:
		return 0
	case before.Load() > 0:
		max = min(max, before.Load())
	}
	return max
}

// retire gives out no more places, and ends the connection when its streams have ended.
func (s *Shared) retire() {
	s.shut()
	s.client.Drain()
}

// sharing is the state of an endpoint's shared connections. Requests that find no place wait for a connection that is
// being made; only as many are made as the requests need.
type sharing struct {
	// conns are the connections with places. The slice is replaced when it changes, so that it can be read without mu.
	conns atomic.Pointer[[]*Shared]
	// limit is how many streams the backend allowed on its last connection, or noneAllowed; 0 means unknown. A new
	// connection gets no more than that before its SETTINGS have arrived.
	limit atomic.Int64
	// exclusive means that the backend chose HTTP/1.1 when it last had the choice.
	exclusive atomic.Bool
	// numWaiting is len(waiting), readable without mu.
	numWaiting atomic.Int64
	// failure is the error of the last dial; nil if it succeeded, or if none has failed since no dials were in
	// progress.
	failure atomic.Pointer[DialError]

	mu       sync.Mutex
	waiting  []*waiter // in the order of their arrival
	dialling int       // connections being made
	slow     int       // how many of them take longer than usual
	blocked  blockedQueue
}

// noneAllowed is the value of sharing.limit for a backend that allows no streams.
const noneAllowed = -1

// list returns conns. The slice must not be changed.
func (h *sharing) list() []*Shared {
	if p := h.conns.Load(); p != nil {
		return *p
	}
	return nil
}

// Place returns a place on the connection with the fewest streams, or nil if all are full or there is none. Connect
// then makes another one.
func (e *Endpoint) Place() *Shared {
	s := e.place()
	if s != nil {
		e.preconnect()
	}
	return s
}

// place is Place without preconnecting. It may be called with mu held.
func (e *Endpoint) place() *Shared {
	list := e.soFar().sharing.list()
	for tries := len(list); tries > 0; tries-- {
		var best *Shared
		var least int64
		for _, s := range list {
			if n := s.places.Load(); n >= 0 && n < s.limit() && (best == nil || n < least) {
				best, least = s, n
			}
		}
		if best == nil {
			return nil
		}
		if best.take() {
			return best
		}
	}
	return nil
}

// share makes c a shared connection. If the endpoint was removed, it closes c and returns nil. mu must be held.
func (e *Endpoint) share(c *Conn) *Shared {
	if e.Gone() {
		c.Close()
		return nil
	}
	s := &Shared{conn: c, endpoint: e}
	s.left.Store(e.backend.set.clock.Load())
	o := e.http2Options()
	o.Freed, o.Gone = s.freed, s.gone
	if !c.plain {
		o.Raw = c.probe.rawConn()
	}
	s.client = http2.NewClient(c, o)
	h := &e.use().sharing
	next := append(slices.Clone(h.list()), s)
	h.conns.Store(&next)
	go s.serve()
	return s
}

func (s *Shared) serve() {
	defer func() {
		if v := recover(); v != nil {
			s.endpoint.backend.set.options.Panicked("http2", v)
		}
		s.gone()
		s.conn.Close()
	}()
	s.client.Serve() //nolint:errcheck // the streams return the error
}

// freed is called when there may be more room.
func (s *Shared) freed() {
	s.learn()
	s.endpoint.feed()
	s.endpoint.dialForWaiting()
}

// gone is called when no more streams can be opened.
func (s *Shared) gone() {
	s.shut()
	s.forget()
}

// forget removes s from the list.
func (s *Shared) forget() {
	h := &s.endpoint.use().sharing
	h.mu.Lock()
	if i := slices.Index(h.list(), s); i >= 0 {
		next := slices.Delete(slices.Clone(h.list()), i, i+1)
		h.conns.Store(&next)
	}
	h.mu.Unlock()
	s.endpoint.dialForWaiting()
}

// streamless returns how many of the connections allow no streams and have never carried any that was answered. One that
// has may be ended by its server in this way, which may well allow streams on another.
func (h *sharing) streamless() (n int) {
	for _, s := range h.list() {
		if s.places.Load() >= 0 && !s.Used() && s.limit() <= 0 {
			n++
		}
	}
	return n
}

// dialForWaiting makes the connections that requests wait for, after a connection that allowed no streams has ended or
// allows some. Those that wait for a limit of the Breaker are served when it allows more.
func (e *Endpoint) dialForWaiting() {
	h := &e.use().sharing
	if h.numWaiting.Load() == 0 {
		return
	}
	h.mu.Lock()
	before := h.blocked.by
	if before == notLimited {
		e.dialMore()
	}
	after := h.blocked.by
	h.mu.Unlock()
	if after != before {
		e.backend.serveBlocked() // as in await
	}
}
