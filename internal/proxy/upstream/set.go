// Package upstream keeps one state per endpoint of a backend, shared by all routes that refer to it: which endpoints
// exist, how many requests each has in flight, and its connections. It exists so that 256 rules for one Service share
// one pool and one health state of every endpoint, and so that endpoints can be added and removed without changing a
// route.
//
// A request picks an endpoint (Backend.Pick), counts itself there (Begin, End), takes an idle connection
// (Endpoint.Idle) or a place on a shared one (Endpoint.Place), or makes a connection (Endpoint.Connect), and releases
// it (Conn.Release, Shared.Leave) or closes it (Conn.Close). None of these except Connect allocates, after the first
// request to an endpoint, or waits for another request's I/O. There are no timers per connection: the engine calls
// Set.Sweep about once a second.
//
// Whether a connection is shared is configured, or chosen by the endpoint by ALPN. Both kinds are in the same pool.
//
// The outcomes of requests are reported to the endpoint (Endpoint.Responded, Endpoint.Broken). By these, and by active
// checks if a policy configures them, it is decided whether further requests are sent to it (Endpoint.fit).
//
// The package only knows the HTTP version of requests. It imports config and denial, of the proxy http2, orca, resolve,
// proxyprotocol and the packages for sockets, and the standard library (and x/sys for the system call that checks an
// idle socket). It must never import translate, a source or k8s.io.
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
	// DefaultMaxIdle exceeds the requests in flight to one endpoint except under overload: with a lower limit, requests
	// that need more connections than are kept would dial again and again, which costs more than idle connections do
	// and uses up the ports. Unused connections are closed after DefaultIdleTimeout.
	DefaultMaxIdle = 16384
	// DefaultIdleTimeout is below the 60 s and 75 s after which common servers and load balancers close an idle
	// connection, so that the gateway is the side that closes, and a request rarely gets a connection that is being
	// closed. Servers with a shorter limit are handled by Sweep, Conn.Alive and the retry on a reused connection.
	DefaultIdleTimeout    = 50 * time.Second
	DefaultConnectTimeout = 5 * time.Second
	// DefaultMaxDials is the usual length of a backend's accept queue (SOMAXCONN was 128, and is 4096).
	DefaultMaxDials = 512
	// DefaultMaxWaiting is how many connections 512 dials at a time can make within the connect timeout, even over a
	// slow network.
	DefaultMaxWaiting = 4096
)

// avoidFor is how long an endpoint is avoided after a failed connect: long enough that a burst of requests does not try
// it again and again, short enough that a restarted server is used at once.
const avoidFor = time.Second

// Options configures a Set. The zero value means the defaults.
type Options struct {
	// MaxIdle is the largest number of idle connections per endpoint. A negative value means none.
	MaxIdle int
	// IdleTimeout is how long a connection may be idle before it is closed, to the precision of the interval between
	// two Sweeps.
	IdleTimeout time.Duration
	// ConnectTimeout is the longest time of one dial.
	ConnectTimeout time.Duration
	// MaxDials is how many connections to one endpoint are made at a time, MaxWaiting how many requests wait for a
	// connection to it, or for a place on a shared one. Tunnels are included, and may have at most three quarters of
	// either.
	MaxDials, MaxWaiting int
	// MaxOpen is the largest number of connections to all endpoints together, in use or idle, of which one Backend may
	// have seven eighths; 0 means no limit.
	MaxOpen int
	// PlainIO makes connections be read and written only through net.Conn, as on systems other than Linux. It is for
	// diagnosis and costs a little more.
	PlainIO bool
	// HTTP2 configures shared connections. Freed and Gone are set by the Set.
	HTTP2 http2.ClientOptions
	// Certificate returns the client certificate with a key, nil if it does not exist. Only Apply calls it. If it is
	// nil, there are no certificates.
	Certificate func(key string) *tls.Certificate
	// Resolver finds the endpoints of Backends that are external hostnames. If it is nil, these have none. It belongs
	// to the caller, and may be closed after the Set.
	Resolver *resolve.Resolver
	// Logger logs why TLS to an endpoint failed, once for each second that it is avoided. If it is nil, nothing is
	// logged.
	Logger *slog.Logger
	// Output is where health checks are logged whose policy names no file. nil means standard output.
	Output io.Writer
	// NoHealthChecks disables the health checks of policies, for a Set that sends nothing.
	NoHealthChecks bool
	// Panicked is called by the deferred function that has recovered a panic. It may be nil.
	Panicked func(where string, v any)

	reportPause time.Duration // for tests; 0 means minReportPause
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

// Set holds all backends by key. Its methods may be called concurrently, except Sweep, which only one goroutine may
// call.
type Set struct {
	options Options
	// clock is the time of the last Sweep in Unix nanoseconds: a coarse clock, so that releasing a connection does not
	// read the system's clock.
	clock atomic.Int64
	// recent is the time of the Sweep before: what was released since then is less than two intervals old.
	recent atomic.Int64

	clients clients

	sockets  atomic.Int64 // connections that are open or being made
	eviction eviction

	applying sync.Mutex // held by Apply, and locked before mu; guards trusted and plain
	trusted  authorities
	plain    map[transport]*transport // those without TLS, of which thousands of Backends have the same

	watching sync.Mutex // held while watches of hosts begin or end; locked before the Resolver's own lock and never together with mu

	mu         sync.Mutex // guards backends, closed, configured, listed, and every Backend's changes of unread, hasEndpoints, host and list
	backends   map[string]*Backend
	removed    []removedBackend
	identities map[identityKey]*Identity
	budgets    map[string]*RetryBudget // by serviceOf
	closed     bool
	// configured and listed count the Backend and the Endpoints resources.
	configured, listed int

	// tick is the time of the last UpdateWeights in Unix nanoseconds.
	tick     atomic.Int64
	zone     atomic.Pointer[string]     // see SetZone; nil means ""
	balanced atomic.Pointer[[]*Backend] // used by UpdateWeights; replaced with mu held; nil means none
	// tableQueue are the backends for which makeTables is to compute tables; guarded by mu, as is makingTables.
	tableQueue   []*Backend
	makingTables bool
	tableSlots   int       // of all requested tables; guarded by mu
	slotsMade    int       // by the current Apply
	taskQueue    taskQueue // for health checks
	checks       checkQueue
	eventLogs    eventLogs

	widening http2.Widening // the windows of streams to backends
	open     connList
	sweep    []*Backend // memory of Sweep
}

// NewSet returns an empty Set.
func NewSet(options Options) *Set {
	s := &Set{options: options.withDefaults(), backends: make(map[string]*Backend), identities: make(map[identityKey]*Identity), budgets: make(map[string]*RetryBudget), plain: make(map[transport]*transport)}
	s.clock.Store(time.Now().UnixNano())
	s.tick.Store(s.clock.Load())
	s.taskQueue.panicked = s.options.Panicked
	s.widening.Most = maxWidened
	return s
}

// Apply applies the Backends, Endpoints and Authorities of an update and ignores the other resources. Nothing is sent
// to a Backend with unknown fields. Apply validates the upserts first: if it returns an error, nothing has changed
// except that the Authorities are known. A Backend whose protocol or TLS settings have changed loses its connections as
// if all its endpoints were new. An endpoint that stays (same address and port) keeps its state and its connections.
// One that is removed closes its idle connections at once, and those in use when they are released. The Backend and the
// Endpoints of a key may be applied in any order.
func (s *Set) Apply(upserts []*config.Resource, removals []config.ID) error {
	s.applying.Lock()
	defer s.applying.Unlock()
	for _, r := range upserts { // whatever their position, because Backends refer to them
		if a := r.GetAuthorities(); a != nil && config.CheckKnown(r) == nil {
			s.trusted.add(a)
		}
	}
	parsed, err := s.parse(upserts)
	if err != nil {
		return err
	}
	var watches watchChanges
	s.mu.Lock()
	gone, removed := s.applyLocked(upserts, parsed, removals, &watches)
	s.mu.Unlock()
	for _, e := range gone {
		e.retire()
	}
	for _, e := range removed {
		e.closeIdle()
	}
	s.watch(&watches)
	return nil
}

// parsedResource is a Backend or Endpoints as Apply uses it.
type parsedResource struct {
	backend   *parsedBackend // nil for another kind
	endpoints []parsedEndpoint
}

// parsedBackend is what the configuration of a Backend compiles to.
type parsedBackend struct {
	unread      bool // it has unknown fields
	transport   *transport
	budget      *retrySettings
	sessions    *session.Settings
	host        *externalHost
	breaker     *breakerLimits
	connections *connections
	balancing   *Balancing
	health      *parsedHealth
}

// parse validates resources, without changing anything.
func (s *Set) parse(upserts []*config.Resource) ([]parsedResource, error) {
	parsed := make([]parsedResource, len(upserts))
	for i, r := range upserts {
		var err error
		switch k := r.Kind.(type) {
		case *config.Resource_Backend:
			parsed[i].backend, err = s.parseBackend(r, k.Backend)
		case *config.Resource_Endpoints:
			if err = config.CheckKnown(r); err == nil {
				parsed[i].endpoints, err = parseEndpoints(k.Endpoints)
			}
		}
		if err != nil {
			return nil, err
		}
	}
	return parsed, nil
}

func (s *Set) parseBackend(r *config.Resource, c *config.Backend) (*parsedBackend, error) {
	p := &parsedBackend{unread: config.CheckKnown(r) != nil, transport: unknown, connections: parseConnections(c)}
	var err error
	if !p.unread {
		if p.transport, err = s.newTransport(c); err != nil {
			return nil, err
		}
	}
	if p.budget, err = parseRetryBudget(c); err != nil {
		return nil, err
	}
	if p.sessions, err = session.Compile(c.SessionPersistence); err != nil {
		return nil, err
	}
	if p.host, err = parseHost(c); err != nil {
		return nil, err
	}
	if p.breaker, err = parseBreaker(c); err != nil {
		return nil, err
	}
	if p.balancing, err = newBalancing(c); err != nil {
		return nil, err
	}
	if p.health, err = parseHealth(c); err != nil {
		return nil, err
	}
	return p, nil
}

// applyLocked changes the backends. It returns the endpoints that are gone, and those that stay for requests which were
// routed before although their Backend was removed. mu must be held.
func (s *Set) applyLocked(upserts []*config.Resource, parsed []parsedResource, removals []config.ID, watches *watchChanges) (gone, removed []*Endpoint) {
	s.slotsMade = 0
	for i, r := range upserts {
		switch k := r.Kind.(type) {
		case *config.Resource_Backend:
			gone = append(gone, s.applyBackend(k.Backend, parsed[i].backend, watches)...)
		case *config.Resource_Endpoints:
			b := s.backend(k.Endpoints.Key)
			if b.host != nil { // the endpoints of an external hostname come from DNS
				continue
			}
			if !b.hasEndpoints {
				b.hasEndpoints = true
				s.listed++
			}
			gone = append(gone, b.replace(parsed[i].endpoints)...)
		}
	}
	gone = append(gone, s.replaceClientCertificates(upserts)...)
	for _, id := range removals {
		if id.Kind == config.KindAuthorities {
			s.trusted.remove(id.Key)
			continue
		}
		ended, left := s.remove(id, watches)
		gone, removed = append(gone, ended...), append(removed, left...)
	}
	gone = append(gone, s.endRemoved(0)...)
	if s.closed { // late configuration must not undo Close
		for _, b := range s.backends {
			gone = append(gone, b.replace(nil)...)
		}
		gone = append(gone, s.endRemoved(math.MaxInt64)...)
	}
	return gone, removed
}

// applyBackend changes the settings of a backend. It returns the endpoints that are gone. mu must be held.
func (s *Set) applyBackend(c *config.Backend, p *parsedBackend, watches *watchChanges) (gone []*Endpoint) {
	b := s.backend(c.Key)
	if b.config.Swap(c) == nil {
		s.configured++
	}
	b.unread = p.unread
	s.setBudget(b, serviceOf(c), p.budget)
	b.sessions.Store(p.sessions)
	b.setBreaker(p.breaker)
	b.connections.Store(p.connections)
	b.setBalancing(p.balancing)
	gone = b.setTransport(p.transport)
	b.applyPolicy(p.health)
	return append(gone, b.setHost(p.host, watches)...)
}

// newTransport compiles the transport of a Backend. If its client certificate is missing, nothing is sent: the backend
// could not identify the gateway. s.applying must be held.
func (s *Set) newTransport(b *config.Backend) (*transport, error) {
	t, err := newTransport(b, &s.trusted)
	if err != nil {
		return nil, err
	}
	key := b.GetTls().GetCertificate()
	if key == "" {
		t.own = b.ExternalHostname != nil // the owner of a hostname must not be able to use the Gateway's identity there
		if t.tls != nil {
			return t, nil
		}
		if s.plain[*t] == nil {
			s.plain[*t] = t
		}
		return s.plain[*t], nil
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

// replaceClientCertificates updates Backends whose client certificates an update replaces, and returns the endpoints that are gone. s.mu
// must be held.
func (s *Set) replaceClientCertificates(upserts []*config.Resource) (gone []*Endpoint) {
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
		if t, err := s.newTransport(c); err == nil { // on an error it has already been refused
			gone = append(gone, b.setTransport(t)...)
		}
	}
	return gone
}

// Refused must be called for a Backend for which Apply has returned an error. If it configures TLS and its previous
// version did not, nothing is sent to its endpoints from now on, since the previous version must not stay in use.
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

// removedLifetime is how long requests that had found a Backend before it was removed can still use its endpoints. A request
// may wait that long for its client to send the beginning of a body.
const removedLifetime = time.Minute

// maxRemoved is the largest number of such endpoints: a user who edits a route may add and remove Backends as often.
// Beyond it, those that were removed first end early.
const maxRemoved = 4096

// removedBackend is a Backend that was removed.
type removedBackend struct {
	*Backend
	at int64 // the Set's clock when it was removed
}

// endRemoved removes the removed Backends that were removed at or before a time, or that are too many, and returns
// their endpoints. s.mu must be held.
func (s *Set) endRemoved(until int64) (gone []*Endpoint) {
	n, kept := len(s.removed), 0
	for ; n > 0; n-- { // the newest are at the end
		b := s.removed[n-1]
		for range b.everyEndpoint() {
			kept++
		}
		if b.at <= until || kept > maxRemoved {
			break
		}
	}
	for _, b := range s.removed[:n] {
		gone = append(gone, b.replace(nil)...)
		if b.base != nil {
			b.base.dropVariant(b.Backend)
		}
	}
	s.removed = slices.Delete(s.removed, 0, n)
	return gone
}

// backend returns the Backend of a key, which it creates if necessary. s.mu must be held.
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

// remove removes one resource. It returns the endpoints that are gone, and those of a Backend of which nothing is left,
// which can be used for removedLifetime. s.mu must be held.
func (s *Set) remove(id config.ID, watches *watchChanges) (gone, removed []*Endpoint) {
	b := s.backends[id.Key]
	if b == nil {
		return nil, nil
	}
	switch id.Kind {
	case config.KindBackend:
		if old := b.config.Swap(nil); old != nil {
			s.configured--
			s.setBudget(b, serviceOf(old), nil)
			b.setBreaker(nil)
			b.connections.Store(nil)
			b.applyPolicy(nil)
		}
		b.endHost(watches)
	case config.KindEndpoints:
		if b.hasEndpoints {
			b.hasEndpoints = false
			s.listed--
		}
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
		if removed = slices.Collect(b.everyEndpoint()); len(removed) > 0 {
			s.removed = append(s.removed, removedBackend{b, s.clock.Load()})
		}
	}
	return gone, removed
}

// Get returns the backend of a key, nil if neither its Backend nor its Endpoints exist. The result reflects later
// updates until both are removed. A minute after that, or earlier if many are removed, it has no endpoints.
func (s *Set) Get(key string) *Backend {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.backends[key]
}

// Len returns the number of Backend and of Endpoints resources.
func (s *Set) Len() (backends, endpoints int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.configured, s.listed
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

// Sweep closes the connections that have been idle too long, and idle ones that the peer has closed or sent data on. It
// must be called about once a second. now is also the clock for idle times. It delays a request by no more than a few
// system calls.
func (s *Set) Sweep(now time.Time) {
	s.mu.Lock()
	s.sweep = s.sweep[:0]
	for _, b := range s.backends {
		s.sweep = append(s.sweep, b)
	}
	gone := s.endRemoved(now.Add(-removedLifetime).UnixNano())
	for _, b := range s.removed {
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
	clear(s.sweep) // so that no removed backend stays in memory
}

// Close ends the Set: every connection is closed, idle or in use, backends have no endpoints any more, and dialling
// fails. Drain before calling it.
func (s *Set) Close() {
	var gone []*Endpoint
	s.mu.Lock()
	s.closed = true
	var watches watchChanges
	for _, b := range s.backends {
		b.endHost(&watches)
		gone = append(gone, b.replace(nil)...)
	}
	gone = append(gone, s.endRemoved(math.MaxInt64)...)
	s.mu.Unlock()
	s.watch(&watches)
	for _, e := range gone {
		e.retire()
	}
	s.taskQueue.close()
	s.eventLogs.close()
	s.open.closeAll()
}

// parsedEndpoint is a config.Endpoint with its address parsed.
type parsedEndpoint struct {
	address     netip.AddrPort
	terminating bool
	sessionID   uint64
	zone        string
	born        int64 // see Endpoint.born; if known
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
