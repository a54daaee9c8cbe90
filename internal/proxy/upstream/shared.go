package upstream

import (
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/moongate-dev/moongate/internal/proxy/http2"
)

// Shared is a connection that carries the streams of many requests at a time (HTTP/2). Who was given
// a place on it opens one stream, and leaves when that is closed.
type Shared struct {
	client   *http2.Client
	conn     *Conn
	endpoint *Endpoint
	// places counts those given and not yet left. It is far below 0 where no more are given.
	places atomic.Int64
	// left is when the last place was left, by the Set's clock.
	left atomic.Int64
	used atomic.Bool
	// carried counts places that were given while a policy says something of connections; spent is that no more are given therefore.
	carried atomic.Int64
	spent   atomic.Bool
	max     atomic.Int64 // streams that the backend allows; 0 is not known
}

// shut is added to Shared.places to give no more of them.
const shut = -1 << 40

// Scheme is that of requests on the connection: "https" over TLS, else "http".
func (s *Shared) Scheme() string {
	if s.conn.secure != nil {
		return "https"
	}
	return "http"
}

// Endpoint is where the connection leads.
func (s *Shared) Endpoint() *Endpoint { return s.endpoint }

// Used tells that a request was answered on the connection before, so that it may turn out to have ended
// without anything being wrong.
func (s *Shared) Used() bool { return s.used.Load() }

// Open opens the stream that belongs to a place. http2.ErrUnavailable is that the backend takes none: leave and
// look for another place.
func (s *Shared) Open(r *http2.ClientRequest) (*http2.ClientStream, error) {
	stream, err := s.client.Open(r)
	switch {
	case err == nil:
	case errors.Is(err, http2.ErrEnds):
		s.gone() // which we shall hear of in a moment
	case errors.Is(err, http2.ErrUnavailable):
		s.learn() // the backend allows fewer than it did
	}
	return stream, err
}

// Leave gives the place back. Its stream must have been closed; answered tells that the backend has
// answered on it.
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

// end ends the connection, on which there is no stream. It may be called more than once.
func (s *Shared) end() {
	if s.places.CompareAndSwap(0, shut) || s.places.Load() == shut {
		s.endpoint.sharing.forget(s)
		s.client.Drain()
	}
}

// take gives a place where there is one.
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

// begun counts a request that was given a place; false is that the connection has carried as many as it may, or is too old, and the place is not given.
func (s *Shared) begun() bool {
	b := s.endpoint.backend.root()
	l, c := b.breaker.limits.Load(), b.connections.Load()
	if l == nil && c == nil {
		return true
	}
	n := s.carried.Add(1)
	old := c != nil && c.maxDuration > 0 && (n > 1 || s.used.Load()) && time.Since(s.conn.made) >= c.maxDuration
	over := l != nil && l.perConnection > 0 && n > l.perConnection
	if old || l != nil && l.perConnection > 0 && n >= l.perConnection { // Leave of the last one ends it
		s.spent.Store(true)
		s.shut()
	}
	if !old && !over {
		return true
	}
	if s.places.Add(-1) == shut {
		go s.end() // the lock that it takes may be held
	}
	return false
}

// shut gives no more places.
func (s *Shared) shut() {
	for n := s.places.Load(); n >= 0; n = s.places.Load() {
		if s.places.CompareAndSwap(n, n+shut) {
			return
		}
	}
}

// limit is how many streams the backend allows, as far as we know.
func (s *Shared) limit() int64 {
	if n := s.max.Load(); n > 0 {
		return n
	}
	return s.learn()
}

// learn asks the connection, and remembers for the endpoint what it says.
func (s *Shared) learn() int64 {
	n, settled := s.client.MaxStreams()
	max, before := int64(n), &s.endpoint.sharing.limit
	switch {
	case settled:
		s.max.Store(max)
		if before.Load() != max {
			before.Store(max)
		}
	case before.Load() > 0:
		max = min(max, before.Load())
	}
	return max
}

// retire gives no more places, and ends the connection when the streams on it have ended.
func (s *Shared) retire() {
	s.shut()
	s.client.Drain()
}

// sharing is what an endpoint knows of connections that are shared. Requests that find no place wait for
// a connection that is being made, of which there are no more than they need.
type sharing struct {
	// conns give places; the list is replaced, so that it can be read without mu.
	conns atomic.Pointer[[]*Shared]
	// limit is how many streams the backend allowed on its last connection; 0 is not known. A
	// new connection is not trusted with more before its SETTINGS have come.
	limit atomic.Int64
	// exclusive tells that the backend chose HTTP/1.1 when it last had the choice.
	exclusive atomic.Bool
	// hungry is len(waiting), to be read without mu.
	hungry atomic.Int64
	// failure is the error of the last dial, nil where it succeeded, or where none has failed since there were none under way.
	failure atomic.Pointer[DialError]

	mu       sync.Mutex
	waiting  []*waiter // in the order in which they came
	dialling int       // connections that are being made
	slow     int       // those of them that take longer than others do
	blocked  blockedQueue
}

// list is conns as a slice, not to be changed.
func (h *sharing) list() []*Shared {
	if p := h.conns.Load(); p != nil {
		return *p
	}
	return nil
}

// Place gives a place on the connection that carries the fewest streams, or nil where all are full or
// there is none. Connect makes another one then.
func (e *Endpoint) Place() *Shared {
	s := e.place()
	if s != nil {
		e.preconnect()
	}
	return s
}

// place is Place, and may be called with mu held.
func (e *Endpoint) place() *Shared {
	list := e.sharing.list()
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

// share begins to give places on c, unless the endpoint has gone: then it closes c and returns nil. mu is held.
func (e *Endpoint) share(c *Conn) *Shared {
	if e.life.Err() != nil {
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
	next := append(slices.Clone(e.sharing.list()), s)
	e.sharing.conns.Store(&next)
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
	s.client.Serve() //nolint:errcheck // the streams that it concerned tell of it
}

// freed is called when there may be more room.
func (s *Shared) freed() {
	s.learn()
	s.endpoint.feed()
}

// gone is called when no stream can be opened any more.
func (s *Shared) gone() {
	s.shut()
	s.endpoint.sharing.forget(s)
}

// forget takes s off the list.
func (h *sharing) forget(s *Shared) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if i := slices.Index(h.list(), s); i >= 0 {
		next := slices.Delete(slices.Clone(h.list()), i, i+1)
		h.conns.Store(&next)
	}
}
