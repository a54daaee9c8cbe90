// Package upstream keeps one state per endpoint of a backend, shared by all
// routes that refer to it: which endpoints there are, how many requests each has
// in flight, its connections. It exists so that 256 rules to one Service share
// one pool and one opinion of every endpoint, and so that an endpoint can come
// and go without touching a route.
//
// A request picks an endpoint (Backend.Pick), counts itself there (Begin, End),
// takes an idle connection (Endpoint.Idle) or a place on one that carries the streams
// of many requests (Endpoint.Place), else has one made (Endpoint.Connect), and
// gives it back (Conn.Release, Shared.Leave) or closes it (Conn.Close). None of these but
// Connect allocates or waits for another request's I/O. There are no timers per
// connection: the engine calls Set.Sweep about once a second.
//
// Which of both kinds a connection is of says the configuration, or the endpoint by ALPN; the pool is the same.
//
// What becomes of requests is reported to the endpoint (Endpoint.Responded, Endpoint.Broken), by which, and by checks of its own where a policy has them,
// it is judged whether others are sent to it (Endpoint.fit).
//
// It knows of the HTTP of requests only which version is spoken, and imports config and denial, of the proxy http2, orca, resolve, proxyprotocol and what looks at sockets, and the standard
// library (and x/sys for the one system call that looks at an idle socket); never
// translate, a source or k8s.io.
package upstream

import (
	"cmp"
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net/netip"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/proxy/http2"
	"github.com/moongate-dev/moongate/internal/proxy/resolve"
	"github.com/moongate-dev/moongate/internal/proxy/session"
)

// Defaults of Options.
const (
	// DefaultMaxIdle is more than what is in flight to one endpoint, but for floods: under a load that needs more connections
	// than are kept, requests dial anew without end, which costs more than they do and uses up the
	// ports. What is not needed any more goes by DefaultIdleTimeout.
	DefaultMaxIdle = 16384
	// DefaultIdleTimeout is below the 60 s and 75 s after which common servers
	// and the load balancers in front of them close an idle connection, so that
	// we are the side that closes and a request seldom meets a dying connection.
	// Servers with a shorter limit are caught by Sweep, Conn.Alive and the retry
	// on a reused connection.
	DefaultIdleTimeout    = 50 * time.Second
	DefaultConnectTimeout = 5 * time.Second
	// DefaultMaxDials is what a backend's queue for connections takes, mostly (SOMAXCONN was 128, and is 4096).
	DefaultMaxDials = 512
	// DefaultMaxWaiting is what 512 dials at a time get done within the connect timeout, even over a slow network.
	DefaultMaxWaiting = 4096
)

// avoidFor is how long an endpoint is passed over after a failed connect: long
// enough that a burst does not pay for each discovery, short enough that a
// restarted server is used at once.
const avoidFor = time.Second

// Options of a Set; the zero value means the defaults.
type Options struct {
	// MaxIdle is the number of idle connections kept per endpoint; negative keeps none.
	MaxIdle int
	// IdleTimeout closes a connection that idled for that long, to the precision
	// of the interval between two Sweeps.
	IdleTimeout time.Duration
	// ConnectTimeout bounds one dial.
	ConnectTimeout time.Duration
	// MaxDials is how many connections to one endpoint are made at a time, MaxWaiting how many requests wait for a
	// connection to it, or for a place on one that is shared. Tunnels count, and have three quarters of either at most.
	MaxDials, MaxWaiting int
	// MaxOpen bounds the connections to all endpoints together, in use or idle, of which one Backend may have seven eighths; 0 is no bound.
	MaxOpen int
	// PlainIO makes connections be read and written by way of net.Conn alone, as they are on
	// systems other than Linux: for diagnosis, it costs a little more.
	PlainIO bool
	// HTTP2 is for connections that are shared; Freed and Gone are ours.
	HTTP2 http2.ClientOptions
	// Certificate finds what Backends show by its key, nil for what is not there. It is called by Apply alone; nil finds nothing.
	Certificate func(key string) *tls.Certificate
	// Resolver finds the endpoints of Backends that are external hostnames; with nil these have none. It is the caller's, and may be closed once the Set is.
	Resolver *resolve.Resolver
	// Logger is told why TLS to an endpoint failed, once for each second that it is passed over; nil is silence.
	Logger *slog.Logger
	// Output is where health checks are logged whose policy names no file; nil is the standard output.
	Output io.Writer
	// NoHealthChecks leaves out the health checks of policies, for a Set that sends nothing.
	NoHealthChecks bool
	// Panicked is told of a panic that was recovered, by the deferred function; nil is nobody.
	Panicked func(where string, v any)

	reportPause time.Duration // for tests; 0 is minReportPause
}

func (o Options) withDefaults() Options {
	o.MaxIdle = max(cmp.Or(o.MaxIdle, DefaultMaxIdle), 0)
	o.IdleTimeout = cmp.Or(o.IdleTimeout, DefaultIdleTimeout)
	o.ConnectTimeout = cmp.Or(o.ConnectTimeout, DefaultConnectTimeout)
	if o.Output == nil {
		o.Output = os.Stdout
	}
	if o.Panicked == nil {
		o.Panicked = func(string, any) {}
	}
	o.HTTP2.Panicked = func(v any) { o.Panicked("http2", v) }
	o.MaxDials = max(cmp.Or(o.MaxDials, DefaultMaxDials), 1)
	o.MaxWaiting = max(cmp.Or(o.MaxWaiting, DefaultMaxWaiting), 1)
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o
}

// Set holds all backends by key. Its methods may be called at the same time,
// except Sweep, which is one goroutine's.
type Set struct {
	options Options
	// clock is the time of the last Sweep in Unix nanoseconds; a coarse clock, so
	// that releasing a connection does not ask the system for the time.
	clock atomic.Int64
	// recent is the time of the Sweep before that: what was released since is less than two intervals old.
	recent atomic.Int64

	sockets  atomic.Int64 // connections that are open or being made
	eviction eviction

	applying sync.Mutex // held by Apply, and taken before mu; guards trusted
	trusted  authorities

	watching sync.Mutex // held while hosts come to be watched, or not any more; taken before the Resolver's own and never with mu

	mu         sync.Mutex // guards backends, closed and every Backend's known and list changes
	backends   map[string]*Backend
	leaving    []leavingBackend
	identities map[identityKey]*Identity
	budgets    map[string]*RetryBudget // by serviceOf
	closed     bool

	// tick is the time of the last UpdateWeights in Unix nanoseconds.
	tick     atomic.Int64
	zone     atomic.Pointer[string]     // see SetZone; nil is ""
	balanced atomic.Pointer[[]*Backend] // those that UpdateWeights looks at; replaced with mu held, nil is none
	// tableQueue are the backends that makeTables is to make tables for; guarded by mu, and so is whether it runs.
	tableQueue   []*Backend
	makingTables bool
	tableSlots   int       // of all tables that are wanted; guarded by mu
	slotsMade    int       // by the present Apply
	timetable    timetable // of health checks
	checks       checkQueue
	eventLogs    eventLogs

	widening http2.Widening // of the windows of streams to backends
	open     connList
	sweep    []*Backend // Sweep's own memory
}

// NewSet returns an empty Set.
func NewSet(options Options) *Set {
	s := &Set{options: options.withDefaults(), backends: make(map[string]*Backend), identities: make(map[identityKey]*Identity), budgets: make(map[string]*RetryBudget)}
	s.clock.Store(time.Now().UnixNano())
	s.tick.Store(s.clock.Load())
	s.timetable.panicked = s.options.Panicked
	s.widening.Most = maxWidened
	return s
}

// Apply takes the Backends, Endpoints and Authorities out of an update and leaves the other
// resources alone. Nothing is sent to a Backend with fields that are unknown here. It checks the upserts first: with an error
// nothing has changed but that the Authorities are known.
// A Backend whose protocol or TLS has changed loses its connections as if all its endpoints were new.
// An endpoint that stays (same address and port) keeps its state and its
// connections; one that goes closes its idle connections at once, and those in
// use when they are released. Backend and Endpoints of one key may come in any order.
func (s *Set) Apply(upserts []*config.Resource, removals []config.ID) error {
	s.applying.Lock()
	defer s.applying.Unlock()
	for _, r := range upserts { // wherever they stand, Backends refer to them
		if a := r.GetAuthorities(); a != nil && config.CheckKnown(r) == nil {
			s.trusted.add(a)
		}
	}
	names := make([]*externalHost, len(upserts))
	parsed, transports, budgets := make([][]parsedEndpoint, len(upserts)), make([]*transport, len(upserts)), make([]*retrySettings, len(upserts))
	sessions, healths := make([]*session.Settings, len(upserts)), make([]*parsedHealth, len(upserts))
	breakers := make([]*breakerLimits, len(upserts))
	unread := make([]bool, len(upserts))
	balancings := make([]*Balancing, len(upserts))
	for i, r := range upserts {
		var err error
		switch k := r.Kind.(type) {
		case *config.Resource_Backend:
			if unread[i] = config.CheckKnown(r) != nil; unread[i] {
				transports[i] = unknown
			} else {
				transports[i], err = s.newTransport(k.Backend)
			}
			if err == nil {
				budgets[i], err = parseRetryBudget(k.Backend)
			}
			if err == nil {
				sessions[i], err = session.Compile(k.Backend.SessionPersistence)
			}
			if err == nil {
				names[i], err = parseHost(k.Backend)
			}
			if err == nil {
				breakers[i], err = parseBreaker(k.Backend)
			}
			if err == nil {
				balancings[i], err = newBalancing(k.Backend)
			}
			if err == nil {
				healths[i], err = parseHealth(k.Backend)
			}
		case *config.Resource_Endpoints:
			if err = config.CheckKnown(r); err == nil {
				parsed[i], err = parseEndpoints(k.Endpoints)
			}
		}
		if err != nil {
			return err
		}
	}
	var gone, leaving []*Endpoint
	var watches watchChanges
	s.mu.Lock()
	s.slotsMade = 0
	for i, r := range upserts {
		switch k := r.Kind.(type) {
		case *config.Resource_Backend:
			b := s.backend(k.Backend.Key)
			b.config.Store(k.Backend)
			b.unread = unread[i]
			s.setBudget(b, serviceOf(k.Backend), budgets[i])
			b.sessions.Store(sessions[i])
			b.setBreaker(breakers[i])
			b.connections.Store(parseConnections(k.Backend))
			b.setBalancing(balancings[i])
			gone = append(gone, b.setTransport(transports[i])...)
			b.applyPolicy(healths[i])
			gone = append(gone, b.setHost(names[i], &watches)...)
		case *config.Resource_Endpoints:
			b := s.backend(k.Endpoints.Key)
			if b.host != nil { // of an external hostname they come from DNS
				continue
			}
			b.hasEndpoints = true
			gone = append(gone, b.replace(parsed[i])...)
		}
	}
	gone = append(gone, s.showAnew(upserts)...)
	for _, id := range removals {
		if id.Kind == config.KindAuthorities {
			s.trusted.remove(id.Key)
			continue
		}
		ended, left := s.remove(id, &watches)
		gone, leaving = append(gone, ended...), append(leaving, left...)
	}
	gone = append(gone, s.endLeaving(0)...)
	if s.closed { // late configuration must not open what Close has shut
		for _, b := range s.backends {
			gone = append(gone, b.replace(nil)...)
		}
		gone = append(gone, s.endLeaving(math.MaxInt64)...)
	}
	s.mu.Unlock()
	for _, e := range gone {
		e.retire()
	}
	for _, e := range leaving {
		e.closeIdle()
	}
	s.watch(&watches)
	return nil
}

// newTransport reads a Backend. Without the certificate that is to be shown nothing is sent: the backend would not know who that is.
func (s *Set) newTransport(b *config.Backend) (*transport, error) {
	t, err := newTransport(b, &s.trusted)
	if err != nil {
		return nil, err
	}
	key := b.GetTls().GetCertificate()
	if key == "" {
		t.own = b.ExternalHostname != nil // whoever may name a host must not use the Gateway's identity there
		return t, nil
	}
	if s.options.Certificate == nil {
		return t, nil
	}
	shown := s.options.Certificate(key)
	if shown == nil {
		return unknown, nil
	}
	t = t.showing(shown)
	t.own = true
	return t, nil
}

// showAnew has Backends show the certificates of an update that take the place of others, and returns the endpoints that are gone; s.mu is held.
func (s *Set) showAnew(upserts []*config.Resource) (gone []*Endpoint) {
	changed := map[string]bool{}
	for _, r := range upserts {
		if c := r.GetCertificate(); c != nil {
			changed[c.Key] = true
		}
	}
	if len(changed) == 0 {
		return nil
	}
	for _, b := range s.backends {
		c := b.config.Load()
		if key := c.GetTls().GetCertificate(); key == "" || !changed[key] || b.unread {
			continue
		}
		if t, err := s.newTransport(c); err == nil { // else it is refused already
			gone = append(gone, b.setTransport(t)...)
		}
	}
	return gone
}

// Refused is called for a Backend for which Apply has returned an error. Where it asks for TLS, and the one before did not, nothing is sent to its endpoints: the
// version before must not stay.
func (s *Set) Refused(c *config.Backend) {
	if c.Tls == nil {
		return
	}
	var gone []*Endpoint
	s.mu.Lock()
	if b := s.backends[c.Key]; b != nil && b.transport.Load().tls == nil {
		gone = b.setTransport(unknown)
	}
	s.mu.Unlock()
	for _, e := range gone {
		e.retire()
	}
}

// leaveFor is how long the endpoints of a Backend that was removed can be used by requests that had found it before. A request may wait as long for
// its client to send the beginning of a body.
const leaveFor = time.Minute

// maxLeaving bounds how many such endpoints there are: whoever edits a route may have Backends come and go as often. Beyond it the Backends that were
// removed first end early.
const maxLeaving = 4096

// leavingBackend is a Backend that was removed.
type leavingBackend struct {
	*Backend
	at int64 // the Set's clock when it was
}

// endLeaving takes those out that were removed up to a moment, or that are too many, and returns their endpoints; s.mu is held.
func (s *Set) endLeaving(removed int64) (gone []*Endpoint) {
	n, kept := len(s.leaving), 0
	for ; n > 0; n-- { // the newest come last
		b := s.leaving[n-1]
		for range b.everyEndpoint() {
			kept++
		}
		if b.at <= removed || kept > maxLeaving {
			break
		}
	}
	for _, b := range s.leaving[:n] {
		gone = append(gone, b.replace(nil)...)
		if b.base != nil {
			b.base.dropVariant(b.Backend)
		}
	}
	s.leaving = slices.Delete(s.leaving, 0, n)
	return gone
}

// backend returns the entry of key, made if need be; s.mu is held.
func (s *Set) backend(key string) *Backend {
	b := s.backends[key]
	if b == nil {
		b = &Backend{key: key, set: s, sessionID: backendSessionID(key)}
		b.list.Store(&endpointList{})
		b.transport.Store(unknown)
		s.backends[key] = b
	}
	return b
}

// remove forgets one resource, and returns the endpoints that go with it: those that have gone, and those of a Backend of which nothing is left, which
// can be used for leaveFor; s.mu is held.
func (s *Set) remove(id config.ID, watches *watchChanges) (gone, leaving []*Endpoint) {
	b := s.backends[id.Key]
	if b == nil {
		return nil, nil
	}
	switch id.Kind {
	case config.KindBackend:
		if old := b.config.Swap(nil); old != nil {
			s.setBudget(b, serviceOf(old), nil)
			b.setBreaker(nil)
			b.connections.Store(nil)
			b.applyPolicy(nil)
		}
		b.endHost(watches)
	case config.KindEndpoints:
		b.hasEndpoints = false
		if b.config.Load() != nil && b.host == nil {
			gone = b.replace(nil)
		}
	default:
		return nil, nil
	}
	if b.config.Load() == nil && !b.hasEndpoints {
		delete(s.backends, id.Key)
		if b.Balancing() != nil {
			s.listBalanced()
		}
		if leaving = slices.Collect(b.everyEndpoint()); len(leaving) > 0 {
			s.leaving = append(s.leaving, leavingBackend{b, s.clock.Load()})
		}
	}
	return gone, leaving
}

// Get returns the backend of a key, nil where neither its Backend nor its
// Endpoints are there. The pointer follows later updates until both are removed;
// a minute after that, or earlier where many are removed, it has no endpoints.
func (s *Set) Get(key string) *Backend {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.backends[key]
}

// Backends returns all backends, sorted by key.
func (s *Set) Backends() []*Backend {
	s.mu.Lock()
	list := make([]*Backend, 0, len(s.backends))
	for _, b := range s.backends {
		list = append(list, b)
	}
	s.mu.Unlock()
	slices.SortFunc(list, func(a, b *Backend) int { return cmp.Compare(a.key, b.key) })
	return list
}

// Sweep closes the connections that idled too long and those that their peer
// closed or spoke on while they idled. Call it about once a second; its argument is also the
// clock by which idle time is counted. It never holds up a request for more than a few
// system calls.
func (s *Set) Sweep(now time.Time) {
	s.mu.Lock()
	s.sweep = s.sweep[:0]
	for _, b := range s.backends {
		s.sweep = append(s.sweep, b)
	}
	gone := s.endLeaving(now.Add(-leaveFor).UnixNano())
	for _, b := range s.leaving {
		s.sweep = append(s.sweep, b.Backend)
	}
	s.mu.Unlock()
	for _, e := range gone {
		e.retire()
	}
	last := s.clock.Swap(now.UnixNano())
	s.recent.Store(last)
	for _, b := range s.sweep {
		limits := b.sweepLimits(now, last)
		for e := range b.everyEndpoint() {
			e.sweep(limits)
		}
	}
	clear(s.sweep) // keep no removed backend alive
}

// Close ends the Set: every connection is closed, idle or in use, backends have no
// endpoints any more and dialling fails. Drain before.
func (s *Set) Close() {
	var gone []*Endpoint
	s.mu.Lock()
	s.closed = true
	var watches watchChanges
	for _, b := range s.backends {
		b.endHost(&watches)
		gone = append(gone, b.replace(nil)...)
	}
	gone = append(gone, s.endLeaving(math.MaxInt64)...)
	s.mu.Unlock()
	s.watch(&watches)
	for _, e := range gone {
		e.retire()
	}
	s.timetable.close()
	s.eventLogs.close()
	s.open.closeAll()
}

// parsedEndpoint is a config.Endpoint whose address has been read.
type parsedEndpoint struct {
	address     netip.AddrPort
	terminating bool
	sessionID   uint64
	zone        string
	born        int64 // Endpoint.born, where it is known
}

func parseEndpoints(resource *config.Endpoints) ([]parsedEndpoint, error) {
	list := make([]parsedEndpoint, 0, len(resource.Endpoints))
	for i, e := range resource.Endpoints {
		ip, err := netip.ParseAddr(e.Address)
		if err != nil {
			return nil, fmt.Errorf("upstream: Endpoints %s: endpoints[%d].address %q is not an IP address: give the literal address of the endpoint", resource.Key, i, e.Address)
		}
		if e.Port == 0 || e.Port > 65535 {
			return nil, fmt.Errorf("upstream: Endpoints %s: endpoints[%d].port %d is not a port: give one from 1 to 65535", resource.Key, i, e.Port)
		}
		at := netip.AddrPortFrom(ip.Unmap(), uint16(e.Port))
		list = append(list, parsedEndpoint{address: at, terminating: e.Terminating, sessionID: endpointSessionID(e.Identity, at), zone: e.Zone})
	}
	return list, nil
}
