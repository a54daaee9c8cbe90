package proxy

import (
	"cmp"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"
	"weak"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/observe"
	"github.com/moongate-dev/moongate/internal/proxy/listen"
	"github.com/moongate-dev/moongate/internal/proxy/match"
	"github.com/moongate-dev/moongate/internal/proxy/ratelimit"
	"github.com/moongate-dev/moongate/internal/proxy/session"
	"github.com/moongate-dev/moongate/internal/proxy/snapshot"
	"github.com/moongate-dev/moongate/internal/proxy/tls"
)

// Result is the result of Apply.
type Result struct {
	Generation uint64
	// Listeners are those that do not serve, or do not serve completely, by config.Listener.key. After every Apply it
	// has all of them, not only new ones.
	Listeners map[string]*ListenerError
	// Rejected are the Resources that this data plane cannot use. The previous version stays in force, except that
	// nothing is sent to a Backend if its new version uses TLS and the previous one does not, or if the new version has
	// unknown fields. Only a bug or a sender of another version causes a rejection.
	Rejected map[config.ID]error
}

// Unbound reports whether an address of a listener could not be bound.
func (r *Result) Unbound() bool {
	for _, e := range r.Listeners {
		if len(e.Unbound) > 0 {
			return true
		}
	}
	return false
}

// state is the configuration as applied; guarded by Proxy.mu.
type state struct {
	certificates map[string]*tls.Certificate
	ticketKeys   map[string][][]byte            // by Gateway
	sessionKeys  map[string]*session.Keys       // by Gateway
	redises      map[string]*ratelimit.Redis    // by Gateway
	authorities  map[string]*config.Authorities // by key; the content of a key never changes
	// clients are those in use by a listener or by connections.
	clients   map[tls.ClientsDigest]weak.Pointer[tls.Clients]
	listeners map[string]*listenerState
	routes    map[string]*snapshot.Route
	l4Routes  map[string]*snapshot.L4Route
	failed    map[string]*ListenerError // by key
}

// listenerState is the state of a listener across generations. Routes may refer to a listener that does not exist yet:
// config is nil then.
type listenerState struct {
	config *config.Listener
	table  *match.Table[*snapshot.Rule]
	l4     attachedL4
	stats  *observe.ListenerStats
	tls    *tls.Listener // only for HTTPS and TLS; nil without a certificate
	// clients becomes snapshot.Listener.Clients.
	clients *tls.Clients
	// closed means that its configuration has unknown fields: it reserves its hostname, but serves nothing.
	closed bool
	placed []*snapshot.Socket // without those of UDP
	bound  []listen.Addr
	failed ListenerError
}

// unused reports whether neither a configuration nor a route refers to the listener.
func (l *listenerState) unused() bool {
	return l.config == nil && l.table.Len() == 0 && l.l4.routes == 0
}

// Apply puts one generation in force as a whole: certificates, authorities, backends and endpoints first, then
// listeners and routes with one atomic store, and removals last. Connections and requests in flight continue. It is
// safe for concurrent use.
func (p *Proxy) Apply(u *config.Update) Result {
	p.mu.Lock()
	defer p.mu.Unlock()
	start := time.Now()
	a := &applying{p: p, result: Result{Generation: u.Generation, Rejected: map[config.ID]error{}}, edits: map[string]*match.Edit[*snapshot.Rule]{},
		l4Edits: map[string]struct{}{}}
	for _, r := range u.Upserts { // Backends may refer to them
		if r.GetCertificate() != nil {
			a.upsert(r)
		}
	}
	if err := p.upstreams.Apply(u.Upserts, nil); err != nil {
		a.applyBackendsSingly(u.Upserts)
	}
	for _, r := range u.Upserts {
		if r.GetCertificate() == nil {
			a.upsert(r)
		}
	}
	for _, id := range u.Removals {
		a.remove(id)
	}
	a.awaitRedises()
	a.publish(u.Generation)
	if err := p.upstreams.Apply(nil, u.Removals); err != nil {
		p.logger.Error("removing backends", "error", err)
	}
	for _, r := range a.replaced {
		r.Release()
	}
	a.report(u, time.Since(start))
	return a.result
}

// Rebind tries again to bind the sockets that could not be bound.
func (p *Proxy) Rebind() Result {
	p.mu.Lock()
	defer p.mu.Unlock()
	a := &applying{p: p, relisten: true, result: Result{Generation: p.engine.Snapshot.Load().Generation}}
	a.publish(a.result.Generation)
	a.result.Listeners = maps.Clone(p.state.failed)
	return a.result
}

// applying is the state of one Apply.
type applying struct {
	p        *Proxy
	result   Result
	edits    map[string]*match.Edit[*snapshot.Rule] // by listener key
	l4Edits  map[string]struct{}                    // keys of listeners whose layer-4 routes changed
	relisten bool                                   // listeners or certificates changed, not only routes
	replaced []interface{ Release() }               // routes that are no longer in force
	redises  []*ratelimit.Redis                     // new in this generation
}

// maxRedisWait is the default of Proxy.redisWait.
const maxRedisWait = time.Second

// awaitRedises waits until it is known whether each new Redis of the generation is reachable, so that limits count from
// their first request on, and a limit with the failure mode Closed does not refuse requests only because the connection
// is still being made.
func (a *applying) awaitRedises() {
	if len(a.redises) == 0 {
		return
	}
	over := time.NewTimer(a.p.redisWait)
	defer over.Stop()
	for _, r := range a.redises {
		select {
		case <-r.Tried():
		case <-a.p.stop:
			return
		case <-over.C:
			return
		}
	}
}

func (a *applying) reject(id config.ID, err error) { a.result.Rejected[id] = err }

// applyBackendsSingly prevents one invalid Backend or Endpoints from affecting the others.
func (a *applying) applyBackendsSingly(upserts []*config.Resource) {
	for _, r := range upserts {
		if err := a.p.upstreams.Apply([]*config.Resource{r}, nil); err != nil {
			a.reject(r.ID(), err)
			if b := r.GetBackend(); b != nil {
				a.p.upstreams.Refused(b)
			}
		}
	}
}

func (a *applying) upsert(r *config.Resource) {
	s := &a.p.state
	if r.GetListener() == nil && r.GetEndpoints() == nil { // see place and upstream.Set.Apply
		if err := config.CheckKnown(r); err != nil {
			a.reject(r.ID(), err)
			return
		}
	}
	switch k := r.Kind.(type) {
	case *config.Resource_Certificate:
		if err := a.upsertCertificate(k.Certificate); err != nil {
			a.reject(r.ID(), err)
			return
		}
	case *config.Resource_TicketKeys:
		err := tls.CheckSecrets(k.TicketKeys.Keys)
		var sessions *session.Keys
		if err == nil {
			sessions, err = session.NewKeys(k.TicketKeys.SessionKeys)
		}
		if err != nil {
			a.reject(r.ID(), err)
			return
		}
		s.ticketKeys[k.TicketKeys.Key], s.sessionKeys[k.TicketKeys.Key] = k.TicketKeys.Keys, sessions
		a.relisten = true
	case *config.Resource_RateLimitService:
		redis, err := a.p.redises.Get(k.RateLimitService)
		if err != nil {
			a.reject(r.ID(), err)
			return
		}
		s.redises[k.RateLimitService.Key] = redis
		a.redises, a.relisten = append(a.redises, redis), true
	case *config.Resource_Authorities:
		s.authorities[k.Authorities.Key] = k.Authorities
		a.relisten = true // a listener may have lacked it
	case *config.Resource_Listener:
		ls := s.listener(k.Listener.Key)
		if ls.config != nil && ls.config.Port != k.Listener.Port { // the port is a metric label
			ls.stats.Release()
			ls.stats = nil
		}
		ls.config = k.Listener
		a.relisten = true
	case *config.Resource_Route:
		rt, err := a.p.compiler.Route(k.Route)
		if err != nil {
			a.reject(r.ID(), err)
			return
		}
		a.removeRoute(k.Route.Key)
		s.routes[k.Route.Key] = rt
		for _, at := range k.Route.Attachments {
			a.edit(at.Listener).Add(rt.Compiled, at.Hostnames)
		}
	case *config.Resource_L4Route:
		if err := a.upsertL4Route(k.L4Route); err != nil {
			a.reject(r.ID(), err)
			return
		}
	}
}

// removeRoute removes a route from the tables. Requests in flight may still use it.
func (a *applying) removeRoute(key string) {
	s := &a.p.state
	old := s.routes[key]
	if old == nil {
		return
	}
	for _, at := range old.Config.Attachments {
		a.edit(at.Listener).Remove(key)
	}
	delete(s.routes, key)
	a.replaced = append(a.replaced, old)
}

func (a *applying) remove(id config.ID) {
	s := &a.p.state
	switch id.Kind {
	case config.KindRoute:
		a.removeRoute(id.Key)
	case config.KindL4Route:
		a.removeL4Route(id.Key)
	case config.KindCertificate:
		delete(s.certificates, id.Key)
		a.relisten = true
		a.p.metrics.RemoveCertificate(id.Key)
	case config.KindTicketKeys:
		delete(s.ticketKeys, id.Key)
		delete(s.sessionKeys, id.Key)
		a.relisten = true
	case config.KindRateLimitService:
		delete(s.redises, id.Key)
		a.relisten = true
	case config.KindAuthorities:
		delete(s.authorities, id.Key)
	case config.KindListener:
		s.listener(id.Key).config = nil
		a.relisten = true
	}
}

func (a *applying) edit(listener string) *match.Edit[*snapshot.Rule] {
	e := a.edits[listener]
	if e == nil {
		e = a.p.state.listener(listener).table.Edit()
		a.edits[listener] = e
	}
	return e
}

func (s *state) listener(key string) *listenerState {
	l := s.listeners[key]
	if l == nil {
		l = &listenerState{}
		s.listeners[key] = l
	}
	return l
}

// publish creates the next snapshot. If only routes changed, it replaces the listeners that have them; otherwise it
// lays out all sockets again.
func (a *applying) publish(generation uint64) {
	p := a.p
	changed := a.l4Edits
	for key, e := range a.edits {
		p.state.listener(key).table = e.Table()
		changed[key] = struct{}{}
	}
	if a.relisten {
		p.relisten(generation)
		return
	}
	old := p.engine.Snapshot.Load()
	next := &snapshot.Snapshot{Generation: generation, Sockets: slices.Clone(old.Sockets), Successors: old.Successors}
	for key := range changed {
		ls := p.state.listeners[key]
		if ls.unused() {
			delete(p.state.listeners, key) // the last route that referred to it is gone
		}
		p.updateUDP(ls)
		for _, s := range ls.placed {
			port := *next.Sockets[s.ID]
			before, _ := port.Listeners.Get(ls.config.Hostname)
			after := *before
			if !ls.closed {
				after.Table, after.L4 = ls.table, ls.l4.hosts
			}
			port.Listeners = port.Listeners.With(ls.config.Hostname, &after)
			next.Sockets[s.ID] = &port
		}
	}
	p.engine.Snapshot.Store(next)
}

// layout is the sockets that the listeners need.
type layout struct {
	ports     map[listen.Addr]*snapshot.Port     // of TCP
	datagrams map[listen.Addr]*snapshot.Listener // of UDP
}

// relisten lays out the sockets for all listeners: it binds new ones, publishes, and then closes those that no listener
// uses any more.
func (p *Proxy) relisten(generation uint64) {
	wanted := layout{map[listen.Addr]*snapshot.Port{}, map[listen.Addr]*snapshot.Listener{}}
	keys := slices.Sorted(maps.Keys(p.state.listeners))
	for _, key := range keys {
		ls := p.state.listeners[key]
		ls.placed, ls.bound, ls.failed = nil, nil, ListenerError{}
		if ls.config == nil {
			if ls.stats != nil {
				ls.stats.Release()
				ls.stats = nil
			}
			if ls.unused() {
				delete(p.state.listeners, key)
			}
			continue
		}
		ls.failed.Invalid = p.place(ls, wanted)
	}
	p.giveWay(wanted.ports)
	fresh := p.bind(wanted.ports)
	next := &snapshot.Snapshot{Generation: generation, Successors: p.successors(wanted.ports)}
	for addr, s := range p.sockets {
		port := wanted.ports[addr]
		if port == nil {
			continue
		}
		for s.ID >= len(next.Sockets) {
			next.Sockets = append(next.Sockets, nil)
		}
		port.Owner = s
		next.Sockets[s.ID] = port
		for _, l := range port.Listeners.All() {
			ls := p.state.listeners[l.Config.Key]
			ls.placed, ls.bound = append(ls.placed, s), append(ls.bound, addr)
			if p.closed { // it stays for the existing connections
				ls.failed.bind(addr, net.ErrClosed)
			}
		}
	}
	p.relistenUDP(wanted.datagrams)
	for _, key := range keys {
		if ls := p.state.listeners[key]; ls != nil && ls.config != nil && !ls.failed.any() && len(ls.bound) == 0 {
			ls.failed.Invalid = fmt.Errorf("no address to bind")
		}
	}
	p.noteFailed()
	p.engine.Snapshot.Store(next)
	p.upstreams.KeepIdentities(next.Identities())
	p.tracers.Keep(next.Tracers())
	p.redises.Keep(maps.Values(p.state.redises))
	for _, s := range fresh {
		p.serve(s)
	}
	for addr, s := range p.sockets {
		if wanted.ports[addr] == nil {
			delete(p.sockets, addr)
			if !p.closed { // otherwise it was already retired, and stays for its connections
				p.retire(s)
			}
		}
	}
}

// retiredSocket is a closed socket that no listener uses any more. It is kept because connections that it has accepted may
// still be open: their requests are for the listeners that a new connection to the same address would reach, see
// Proxy.successors, which drops it once it finds none of them open.
type retiredSocket struct {
	*snapshot.Socket
	began snapshot.Connections // how its connections have begun
}

// remember adds a socket to the retired ones, while the snapshot in force still has its port.
func (p *Proxy) remember(s *snapshot.Socket) {
	if port := p.engine.Snapshot.Load().Port(s); port != nil {
		p.retired = append(p.retired, retiredSocket{s, port.Connections})
	}
}

// giveWay closes the sockets that prevent wanted ones from being bound because their addresses overlap. No listener uses
// them any more, but the clients of some of their addresses will reach the new ones, so no connection may be lost.
func (p *Proxy) giveWay(wanted map[listen.Addr]*snapshot.Port) {
	if p.closed {
		return
	}
	var retired sync.WaitGroup
	for addr, s := range p.sockets {
		if wanted[addr] != nil {
			continue
		}
		for other := range wanted {
			if p.sockets[other] == nil && addr.Overlaps(other) {
				delete(p.sockets, addr)
				p.remember(s)
				retired.Go(func() {
					s.Retire(retireGrace)
					s.Stats.Release()
				})
				break
			}
		}
	}
	retired.Wait()
}

// successors returns snapshot.Snapshot.Successors, also for the sockets that are closed next because they are not wanted.
func (p *Proxy) successors(wanted map[listen.Addr]*snapshot.Port) map[*snapshot.Socket][]*snapshot.Socket {
	p.retired = slices.DeleteFunc(p.retired, func(s retiredSocket) bool { return s.Open.Load() == 0 })
	for addr, s := range p.sockets {
		if wanted[addr] == nil {
			p.remember(s)
		}
	}
	var all map[*snapshot.Socket][]*snapshot.Socket
	for i := range p.retired {
		s := &p.retired[i]
		var found []*snapshot.Socket
		for addr, other := range p.sockets {
			if port := wanted[addr]; port != nil && addr.Overlaps(s.Addr) && port.Connections.BeginAlike(&s.began) {
				found = append(found, other)
				port.Earlier = append(port.Earlier, s.Socket)
			}
		}
		if len(found) == 0 {
			continue
		}
		slices.SortFunc(found, func(a, b *snapshot.Socket) int { return listen.CompareScope(a.Addr, b.Addr) })
		if all == nil {
			all = map[*snapshot.Socket][]*snapshot.Socket{}
		}
		all[s.Socket] = found
	}
	return all
}

// place adds a listener to the sockets that it needs. The error is why it cannot be served. A listener without a
// certificate is placed nevertheless, so that no other listener serves its hostname.
func (p *Proxy) place(ls *listenerState, wanted layout) error {
	mode, ok := snapshot.ModeOf(ls.config.Protocol)
	if !ok {
		return fmt.Errorf("protocol %s is unknown to this proxy: run the version of the controller", ls.config.Protocol)
	}
	l := &snapshot.Listener{Config: ls.config, Mode: mode, Table: ls.table, L4: ls.l4.hosts, Identity: p.chooseIdentity(ls.config), Sessions: p.state.sessionKeys[ls.config.Gateway]}
	if ls.stats == nil {
		gateway, name := config.SplitListenerKey(ls.config.Key)
		ls.stats = p.metrics.Listener(observe.ListenerLabels{Gateway: gateway, Listener: name, Port: uint16(ls.config.Port)})
	}
	l.Stats = ls.stats
	if ls.config.Tracing != nil && (mode == snapshot.HTTP || mode == snapshot.HTTPS) {
		l.Tracer = p.tracers.Get(ls.config.Tracing, ls.config.Gateway, p.upstreams.Get(ls.config.Tracing.Backend), l.Identity)
	}
	if mode == snapshot.HTTP || mode == snapshot.HTTPS {
		l.Redis = p.state.redises[ls.config.Gateway]
	}
	filtersErr := p.compiler.Listener(l, ls.config) // it reserves its hostname nevertheless
	unknown := config.CheckKnown(&config.Resource{Kind: &config.Resource_Listener{Listener: ls.config}})
	if ls.closed = unknown != nil; ls.closed { // an unknown field may restrict who is served
		l.Table, l.L4 = nil, nil
	}
	unknown = cmp.Or(unknown, filtersErr)
	addrs, err := p.addresses(ls.config)
	if err != nil {
		return err
	}
	if l.Trusted, err = snapshot.ParseNetworks(ls.config.TrustedProxies); err != nil {
		return err
	}
	connections := snapshot.ConnectionsOf(ls.config.Connections, l.Trusted)
	if mode == snapshot.UDP {
		return cmp.Or(placeUDP(l, addrs, wanted.datagrams), unknown)
	}
	certErr := unknown
	switch {
	case ls.closed:
		ls.tls, ls.clients = nil, nil // so that every handshake fails
	case mode.TLS():
		before := ls.clients
		certErr = p.state.chooseTLS(ls, mode)
		if ls.clients != before {
			p.warnOfLists(ls)
		}
		l.TLS, l.Clients = ls.tls, ls.clients
	}
	for _, addr := range addrs {
		port := wanted.ports[addr]
		if port == nil {
			port = &snapshot.Port{Mode: mode, Number: addr.Port, Connections: connections}
			wanted.ports[addr] = port
		}
		if !port.Mode.Shares(mode) {
			return fmt.Errorf("port %d is taken by a listener with another protocol", addr.Port)
		}
		if other, ok := port.Listeners.Get(ls.config.Hostname); ok {
			return fmt.Errorf("port %d with hostname %q is taken by listener %s", addr.Port, ls.config.Hostname, other.Config.Key)
		}
		if !port.Connections.BeginAlike(&connections) {
			return fmt.Errorf("port %d is shared with Gateways whose GatewayParameters have another proxyProtocol or other trustedProxies: "+
				"give them the same proxyProtocol and trustedProxies, or this one another port", addr.Port)
		}
		port.Connections.Tighten(&connections)
		port.Listeners, port.Mode = port.Listeners.With(ls.config.Hostname, l), max(port.Mode, mode)
	}
	return certErr
}

// addresses returns the addresses to which a listener is bound.
func (p *Proxy) addresses(c *config.Listener) ([]listen.Addr, error) {
	port := uint16(c.Port)
	if len(c.Addresses) == 0 {
		if len(p.bindTo) == 0 {
			return []listen.Addr{{Port: port}}, nil
		}
		out := make([]listen.Addr, len(p.bindTo))
		for i, ip := range p.bindTo {
			out[i] = listen.Addr{IP: ip, Port: port}
		}
		return out, nil
	}
	var out []listen.Addr
	for _, text := range c.Addresses {
		ip, err := netip.ParseAddr(text)
		if err != nil {
			return nil, fmt.Errorf("address %q is not an IP address", text)
		}
		out = append(out, listen.Addr{IP: ip, Port: port})
	}
	return out, nil
}

// bind opens the needed sockets that are not open, in the order of their addresses: of two that exclude each other,
// such as all addresses and one of them, always the same one gets the port. The listeners of a socket that cannot be
// bound keep their other sockets.
func (p *Proxy) bind(wanted map[listen.Addr]*snapshot.Port) (fresh []*snapshot.Socket) {
	for _, addr := range sortedAddrs(wanted) {
		port := wanted[addr]
		if p.sockets[addr] != nil {
			continue
		}
		s, err := p.open(addr, port)
		if err == nil {
			p.sockets[addr] = s
			fresh = append(fresh, s)
			continue
		}
		for _, l := range port.Listeners.All() {
			p.state.listeners[l.Config.Key].failed.bind(addr, err)
		}
	}
	return fresh
}

// ListenerError is why a listener does not serve, or does not serve completely.
type ListenerError struct {
	// Invalid is why its configuration is not used, or not completely; nil if it is.
	Invalid error
	// Unbound are the addresses that could not be bound, sorted, or all of its addresses in any order if the proxy has
	// closed its sockets.
	Unbound []*BindError
}

func (e *ListenerError) any() bool { return e.Invalid != nil || len(e.Unbound) > 0 }

func (e *ListenerError) bind(addr listen.Addr, err error) {
	e.Unbound = append(e.Unbound, &BindError{addr, err})
}

func (e *ListenerError) Error() string {
	var texts []string
	for _, err := range e.Unwrap() {
		texts = append(texts, err.Error())
	}
	return strings.Join(texts, "; ")
}

// Unwrap returns all errors.
func (e *ListenerError) Unwrap() (all []error) {
	if e.Invalid != nil {
		all = append(all, e.Invalid)
	}
	for _, u := range e.Unbound {
		all = append(all, u)
	}
	return all
}

// BindError means that a listener's address could not be bound.
type BindError struct {
	Addr listen.Addr
	Err  error // of the system
}

func (e *BindError) Error() string { return fmt.Sprintf("cannot bind %s: %v", e.Addr, e.Err) }

// Unwrap returns the system's error.
func (e *BindError) Unwrap() error { return e.Err }

// noteFailed records the listeners that do not serve, after sockets were laid out: nothing else changes them.
func (p *Proxy) noteFailed() {
	p.state.failed = map[string]*ListenerError{}
	for key, ls := range p.state.listeners {
		if ls.config == nil {
			continue
		}
		addrs, err := p.addresses(ls.config)
		ls.stats.SetUp(err == nil && len(ls.bound) == len(addrs) && len(ls.failed.Unbound) == 0) // the address of a closed socket is in both bound and Unbound
		if ls.failed.any() {
			p.state.failed[key] = new(ls.failed)
		}
	}
}

// report fills in the result and the metrics, and logs what was rejected.
func (a *applying) report(u *config.Update, took time.Duration) {
	p := a.p
	a.result.Listeners = maps.Clone(p.state.failed)
	var err error
	for id, e := range a.result.Rejected {
		p.logger.Error("configuration rejected, the previous version stays in force", "resource", id.String(), "error", e)
		err = e
	}
	p.metrics.ConfigApplied(observe.ConfigApply{Generation: u.Generation, Duration: took, At: time.Now(), Err: err})
	p.countResources()
}

// countResources updates the metrics of how many resources of each kind are in force.
func (p *Proxy) countResources() {
	s, listeners := &p.state, 0
	for _, l := range s.listeners {
		if l.config != nil {
			listeners++
		}
	}
	backends, endpoints := p.upstreams.Len()
	for kind, n := range map[config.Kind]int{
		config.KindCertificate:      len(s.certificates),
		config.KindBackend:          backends,
		config.KindEndpoints:        endpoints,
		config.KindListener:         listeners,
		config.KindRoute:            len(s.routes),
		config.KindTicketKeys:       len(s.ticketKeys),
		config.KindL4Route:          len(s.l4Routes),
		config.KindAuthorities:      len(s.authorities),
		config.KindRateLimitService: len(s.redises),
	} {
		p.metrics.SetConfigResources(kind.String(), n)
	}
}

func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }

func sortedAddrs[V any](m map[listen.Addr]V) []listen.Addr {
	return slices.SortedFunc(maps.Keys(m), listen.Addr.Compare)
}
