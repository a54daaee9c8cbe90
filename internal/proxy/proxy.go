package proxy

import (
	"context"
	cryptotls "crypto/tls"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"sync"
	"syscall"
	"time"
	"weak"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/observe"
	"github.com/moongate-dev/moongate/internal/proxy/client"
	"github.com/moongate-dev/moongate/internal/proxy/cores"
	"github.com/moongate-dev/moongate/internal/proxy/datagram"
	"github.com/moongate-dev/moongate/internal/proxy/exchange"
	"github.com/moongate-dev/moongate/internal/proxy/listen"
	"github.com/moongate-dev/moongate/internal/proxy/match"
	"github.com/moongate-dev/moongate/internal/proxy/ratelimit"
	"github.com/moongate-dev/moongate/internal/proxy/resolve"
	"github.com/moongate-dev/moongate/internal/proxy/session"
	"github.com/moongate-dev/moongate/internal/proxy/snapshot"
	"github.com/moongate-dev/moongate/internal/proxy/socket"
	"github.com/moongate-dev/moongate/internal/proxy/splice"
	"github.com/moongate-dev/moongate/internal/proxy/tls"
	"github.com/moongate-dev/moongate/internal/proxy/tracing"
	"github.com/moongate-dev/moongate/internal/proxy/upstream"
)

// Proxy is a running data plane. It serves nothing before the first Apply.
type Proxy struct {
	bindTo    []netip.Addr
	metrics   *observe.Metrics
	logger    *slog.Logger
	upstreams *upstream.Set
	// rateLimits holds the counters of the rate limits of rules.
	rateLimits ratelimit.Store
	redises    ratelimit.Redises
	redisWait  time.Duration // the longest time that a generation waits for a new Redis
	resolver   *resolve.Resolver
	compiler   snapshot.Compiler

	engine   *exchange.Engine
	clients  *client.Set
	sessions *datagram.Set
	tracers  *tracing.Set
	memory   *memory
	cancel   context.CancelFunc // ends the background work
	stop     chan struct{}      // ends the sweeper
	swept    chan struct{}      // closed when the sweeper has ended
	stopOnce sync.Once

	mu     sync.Mutex // guards the fields below; held by Apply and similar methods
	closed bool       // set by Shutdown or Release: no socket is opened any more
	state  state
	// sockets are those of TCP. When closed is set they are closed, and remain in the map for the connections that they
	// have accepted.
	sockets map[listen.Addr]*snapshot.Socket
	// retired are closed sockets that may still have connections, other than those in sockets.
	retired []retiredSocket
	// datagrams are the sockets of UDP.
	datagrams map[listen.Addr]*datagram.Socket
	// predecessor is the process whose sockets are taken over; nil means none.
	predecessor listen.Predecessor
}

// tick is the precision of the coarse clock and of the timeouts that use it.
const tick = 250 * time.Millisecond

// New creates a Proxy. Shutdown must be called in the end.
func New(o Options) *Proxy {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	o.Upstream.PlainIO = o.Upstream.PlainIO || o.PlainIO
	o.Upstream.Logger = o.Logger
	if o.Upstream.MaxOpen == 0 {
		o.Upstream.MaxOpen = backendConnections(o.connectionLimits().Total)
	}
	splice.Limit(mostPipes())
	o.Upstream.HTTP2.MaxHeaderBytes, o.Upstream.HTTP2.MaxFields = o.Limits.MaxHead, o.Limits.MaxFields
	var p *Proxy
	o.Upstream.Panicked = func(where string, v any) { p.engine.Observer.Panicked(where, v) }
	resolver := resolve.New(resolve.Options{Servers: o.DNSServers, MinTTL: o.minTTL, Logger: o.Logger, Panicked: o.Upstream.Panicked})
	o.Upstream.Resolver = resolver
	o.Upstream.Certificate = func(key string) *cryptotls.Certificate { return p.clientCertificate(key) }
	p = &Proxy{
		resolver:    resolver,
		bindTo:      o.Bind,
		predecessor: o.Predecessor,
		metrics:     o.Metrics,
		logger:      o.Logger,
		redisWait:   maxRedisWait,
		upstreams:   upstream.NewSet(o.Upstream),
		stop:        make(chan struct{}),
		swept:       make(chan struct{}),
		sockets:     map[listen.Addr]*snapshot.Socket{},
		datagrams:   map[listen.Addr]*datagram.Socket{},
		state: state{
			certificates: map[string]*tls.Certificate{},
			ticketKeys:   map[string][][]byte{},
			sessionKeys:  map[string]*session.Keys{},
			redises:      map[string]*ratelimit.Redis{},
			authorities:  map[string]*config.Authorities{},
			clients:      map[tls.ClientsDigest]weak.Pointer[tls.Clients]{},
			listeners:    map[string]*listenerState{},
			routes:       map[string]*snapshot.Route{},
			l4Routes:     map[string]*snapshot.L4Route{},
		},
	}
	if p.metrics == nil {
		p.metrics = observe.NewMetrics(observe.MetricsOptions{})
	}
	p.metrics.SetUpstreams(p.reportUpstreams)
	p.compiler = snapshot.Compiler{Backend: p.upstreams.Get, Metrics: p.metrics, RateLimits: &p.rateLimits}
	p.redises.Logger = o.Logger
	p.metrics.SetRateLimits(p.reportRateLimits)
	p.metrics.SetRedises(p.reportRedises)
	p.metrics.SetCompression(p.reportCompression)
	loggedRequest, loggedResponse := o.AccessLog.Headers()
	p.engine = &exchange.Engine{Limits: o.Limits, Logging: o.AccessLog != nil, LoggedRequest: loggedRequest, LoggedResponse: loggedResponse, KeepRequestIDs: o.KeepRequestIDs, Observer: &observe.Observer{Metrics: p.metrics, Log: o.AccessLog, Logger: o.Logger, Core: cores.Here}}
	p.engine.Limits.MaxHead = min(p.engine.Limits.MaxHead, client.MaxHead)
	p.engine.Upstreams = p.upstreams
	p.engine.Background, p.cancel = context.WithCancel(context.Background())
	p.engine.Snapshot.Store(&snapshot.Snapshot{})
	p.engine.Clock.Store(time.Now().UnixMilli())
	p.clients = client.NewSet(p.engine, o.Timeouts, o.PlainIO)
	p.sessions = datagram.NewSet(o.datagramOptions(p.engine))
	p.tracers = tracing.NewSet(p.engine.Send, o.Upstream.Panicked)
	p.memory = newMemory(o.MemoryLimit, o.memoryUsed, &p.engine.Budget)
	p.engine.MaxKept = p.memory.mostKept()
	p.clients.Limit(o.connectionLimits(), p.logger)
	p.SetZone(o.Zone)
	go p.sweep()
	return p
}

// SetZone sets the zone of the proxy, for backends whose load balancer prefers it; "" means unknown. It may be called
// at any time.
func (p *Proxy) SetZone(zone string) { p.upstreams.SetZone(zone) }

// Zone returns the zone last set by SetZone.
func (p *Proxy) Zone() string { return p.upstreams.Zone() }

// sweep advances the coarse clock and interrupts what has waited too long. It is one goroutine instead of a timer for
// each request.
func (p *Proxy) sweep() {
	defer close(p.swept)
	t := time.NewTicker(tick)
	defer t.Stop()
	for round := 0; ; {
		select {
		case <-p.stop:
			return
		case now := <-t.C:
			p.sweepAt(now, round%4 == 0)
			round++
		case <-p.memory.look:
			p.lookAtMemory()
		}
	}
}

// lookAtMemory calls watchMemory between two rounds.
func (p *Proxy) lookAtMemory() {
	defer p.recovered("sweep")
	p.watchMemory(time.Now())
}

// sweepAt is one round of the sweeper, with backends also for the connections to backends.
func (p *Proxy) sweepAt(now time.Time, backends bool) {
	defer p.recovered("sweep")
	p.engine.Clock.Store(now.UnixMilli())
	p.clients.Sweep(now.UnixMilli())
	p.watchMemory(now)
	p.upstreams.UpdateWeights(now)
	if backends {
		p.upstreams.Sweep(now)
		p.sessions.Sweep()
	}
}

// recovered is deferred where a panic must not end the goroutine.
func (p *Proxy) recovered(where string) {
	if v := recover(); v != nil {
		p.engine.Observer.Panicked(where, v)
	}
}

// open binds a socket for the listeners in sc.
func (p *Proxy) open(addr listen.Addr, port *snapshot.Port) (*snapshot.Socket, error) {
	if p.closed {
		return nil, net.ErrClosed
	}
	ls, err := listen.Open(addr, p.predecessor)
	if err != nil {
		return nil, err
	}
	used := map[int]bool{}
	for _, s := range p.sockets {
		used[s.ID] = true
	}
	for used[ls.ID] {
		ls.ID++
	}
	s := &snapshot.Socket{Socket: ls}
	labels := observe.SocketLabels{Port: addr.Port}
	if addr.IP.IsValid() {
		labels.Address = addr.IP.String()
	}
	labels.Gateway = soleGateway(port.Listeners)
	s.Stats = p.metrics.Socket(labels)
	s.TLS = tls.Server(func(c net.Conn, serverName string) *tls.Listener {
		port := p.engine.Snapshot.Load().PortOf(s, func() netip.AddrPort { return socket.AddrPortOf(c.LocalAddr()) })
		if port == nil {
			return nil
		}
		l, ok := port.Listeners.Find([]byte(serverName))
		if !ok {
			return nil
		}
		return l.TLS
	})
	return s, nil
}

// soleGateway returns the Gateway of all listeners, "" if there are several.
func soleGateway(hosts *match.Hosts[*snapshot.Listener]) string {
	gateway := ""
	for _, l := range hosts.All() {
		if gateway != "" && gateway != l.Config.Gateway {
			return ""
		}
		gateway = l.Config.Gateway
	}
	return gateway
}

// serve starts accepting on a socket.
func (p *Proxy) serve(s *snapshot.Socket) {
	s.ServeRaw(func() bool { return p.clients.L4InLoops(p.engine.Snapshot.Load().Port(s)) }, func(raw listen.Raw) { p.acceptRaw(s, raw) })
	go s.Serve(func(c *socket.Conn) { p.accept(s, c) }, func(err error) {
		if upstream.IsExhausted(err) && p.upstreams.EvictIdle() {
			return // accepting is tried again in a moment, and reports an error if that was not enough
		}
		p.logger.Error("accept failed", "address", s.Addr.String(), "error", err)
	})
}

// accept starts a connection. It is in the set before the socket's Serve can return, so that Shutdown sees it.
func (p *Proxy) accept(s *snapshot.Socket, c *socket.Conn) {
	defer p.recovered("accept")
	served := false
	defer func() {
		if !served { // the last listener was just removed, or accept panics
			c.Close()
		}
	}()
	if port := p.engine.Snapshot.Load().Port(s); port != nil {
		p.clients.Serve(s, c, port)
		served = true
	}
}

// acceptRaw is like accept, for a connection to a layer-4 port.
func (p *Proxy) acceptRaw(s *snapshot.Socket, raw listen.Raw) {
	defer p.recovered("accept")
	port := p.engine.Snapshot.Load().Port(s)
	if p.clients.L4InLoops(port) {
		p.clients.ServeL4(s, raw, port)
		return
	}
	p.accept(s, raw.Conn()) // the listeners of the port have just changed
}

// retire stops accepting on a socket that no listener uses. Its connections end with their next request, unless another
// socket has taken its place by then; see snapshot.Snapshot.PortOf.
func (p *Proxy) retire(s *snapshot.Socket) {
	s.Close()
	s.Stats.Release()
}

// BoundListener is a listener that serves.
type BoundListener struct {
	Key, Hostname string
	Protocol      config.Protocol
	Addresses     []string // "<ip>:<port>", or ":<port>" for every address
	Routes        int      // for a TCP, TLS or UDP listener, the routes that get connections or datagrams
}

// Bound lists the listeners that serve, sorted by key.
func (p *Proxy) Bound() []BoundListener {
	p.mu.Lock()
	defer p.mu.Unlock()
	var out []BoundListener
	for _, key := range sortedKeys(p.state.listeners) {
		ls := p.state.listeners[key]
		if ls.config == nil || len(ls.bound) == 0 || ls.failed.Invalid != nil || ls.closed {
			continue
		}
		if p := ls.config.Protocol; ls.tls == nil && (p == config.Protocol_PROTOCOL_HTTPS || p == config.Protocol_PROTOCOL_TLS) {
			continue // without a certificate every handshake fails
		}
		b := BoundListener{Key: key, Hostname: ls.config.Hostname, Protocol: ls.config.Protocol, Routes: ls.table.Len() + ls.l4.routes}
		for _, addr := range ls.bound {
			b.Addresses = append(b.Addresses, addr.String())
		}
		out = append(out, b)
	}
	return out
}

// Backends returns the current state of each backend and its endpoints, sorted by key. It is for people, since it takes
// locks that requests take too.
func (p *Proxy) Backends() (all []upstream.BackendState) {
	now := time.Now()
	for _, b := range p.upstreams.Backends() {
		all = append(all, b.State(now))
	}
	return all
}

// Unchecked reports whether there is an endpoint with health checks that was not checked yet.
func (p *Proxy) Unchecked() bool {
	return slices.ContainsFunc(p.upstreams.Backends(), func(b *upstream.Backend) bool {
		return slices.ContainsFunc(b.Endpoints(), func(e *upstream.Endpoint) bool { return e.Health() == upstream.Unknown })
	})
}

func (p *Proxy) reportRateLimits(emit func(observe.RateLimitStats)) {
	p.rateLimits.Report(func(o ratelimit.OverLimit) {
		emit(observe.RateLimitStats{Rule: o.Rule, Scope: string(o.Scope), OverLimit: o.Enforced, Shadowed: o.Shadow})
	})
}

func (p *Proxy) reportCompression(emit func(observe.CompressionStats)) {
	for _, s := range p.engine.Encoders.Stats() {
		emit(observe.CompressionStats{Encoding: s.Encoding.String(), Responses: s.Responses, Refused: s.Refused, In: s.In, Out: s.Out})
	}
}

// Unavailable returns, for each RateLimitService that has been unreachable for some seconds, a sentence that stays the
// same as long as it is. It is safe for concurrent use.
func (p *Proxy) Unavailable() map[config.ID]string {
	p.mu.Lock()
	defer p.mu.Unlock()
	var all map[config.ID]string
	for gateway, r := range p.state.redises {
		if said := r.Unavailable(); said != "" {
			if all == nil {
				all = map[config.ID]string{}
			}
			all[config.ID{Kind: config.KindRateLimitService, Key: gateway}] = said
		}
	}
	return all
}

func (p *Proxy) reportRedises(emit func(observe.RedisStats)) {
	p.redises.Report(func(address string, up bool, undecided, uncharged uint64) {
		emit(observe.RedisStats{Address: address, Up: up, Undecided: undecided, Uncharged: uncharged})
	})
}

func (p *Proxy) reportUpstreams(emit func(observe.UpstreamStats)) {
	for _, b := range p.upstreams.Backends() {
		s, h := b.Stats(), b.HealthStats()
		var limits []observe.BreakerLimitStats
		for _, l := range b.BreakerStats() {
			limits = append(limits, observe.BreakerLimitStats{Limit: l.Limit.String(), Open: l.Open, Overflows: uint64(l.Overflows)})
		}
		emit(observe.UpstreamStats{
			BreakerLimits:     limits,
			Backend:           b.Key(),
			Endpoints:         len(b.Endpoints()),
			RequestsInFlight:  int(s.InFlight),
			ConnectionsIdle:   int(s.Idle),
			ConnectionsActive: int(s.Open - s.Idle),
			ConnectsTotal:     uint64(s.Dialled),
			ConnectErrors:     uint64(s.Failures),
			RequestsWaiting:   int(s.Waiting),
			RequestsRefused:   uint64(s.Refused),
			Retries:           uint64(s.Retries),
			MirrorsRefused:    uint64(s.MirrorsRefused),
			MirrorsFailed:     uint64(s.MirrorsFailed),
			SessionsBegun:     uint64(s.SessionsBegun),
			SessionsKept:      uint64(s.SessionsKept),
			SessionsMoved:     uint64(s.SessionsMoved),
			MirrorsLooped:     uint64(s.MirrorsLooped),
			SpansSent:         uint64(s.SpansSent),
			SpansDropped:      uint64(s.SpansDropped),

			Unhealthy:          h.Unhealthy(),
			Ejections:          h.EjectionsByReason(),
			ChecksPassed:       uint64(h.ChecksPassed),
			ChecksFailed:       uint64(h.ChecksFailed),
			CheckEventsDropped: uint64(h.EventsDropped),
		})
	}
}

// Drain makes every response from now on end its connection (Connection: close). New connections are still accepted:
// load balancers need a moment to choose other endpoints.
func (p *Proxy) Drain() { p.engine.Draining.Store(true) }

// Socket returns the socket bound to an address, for passing it to another process, or nil; see listen.Predecessor.
func (p *Proxy) Socket(network, address string) syscall.Conn {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch network {
	case "tcp":
		for addr, s := range p.sockets {
			if addr.String() == address {
				return s
			}
		}
	case "udp":
		for addr, s := range p.datagrams {
			if addr.String() == address {
				return s
			}
		}
	}
	return nil
}

// Release leaves all sockets to another process that also has them open. After it returns true, nothing more is
// accepted or received over UDP here, and Shutdown must be called. If has returns false for a socket, or after Shutdown
// or Release, it does nothing and returns false.
func (p *Proxy) Release(has func(syscall.Conn) bool) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || !p.allSockets(has) {
		return false
	}
	p.Drain()
	p.closed = true
	var released sync.WaitGroup // at the same time, because arriving connections and datagrams wait meanwhile
	for _, s := range p.sockets {
		released.Go(s.Close)
	}
	for _, s := range p.datagrams {
		released.Go(s.Release)
	}
	released.Wait()
	for _, s := range p.sockets {
		s.Stats.Release()
	}
	return true
}

// AllSockets reports whether has returns true for each open socket, as Socket returns it.
func (p *Proxy) AllSockets(has func(syscall.Conn) bool) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.allSockets(has)
}

func (p *Proxy) allSockets(has func(syscall.Conn) bool) bool {
	for _, s := range p.sockets {
		if !has(s) {
			return false
		}
	}
	for _, s := range p.datagrams {
		if !has(s) {
			return false
		}
	}
	return true
}

// retireGrace is for connections that clients have begun when Shutdown is called: a round trip over half the world.
const retireGrace = 100 * time.Millisecond

// flushTimeout is how long Shutdown waits until ended spans are sent.
const flushTimeout = 2 * time.Second

// Shutdown stops accepting, lets the requests in flight finish and idle connections end, and cuts the rest when ctx
// ends. It returns ctx's error if something had to be cut.
func (p *Proxy) Shutdown(ctx context.Context) error {
	p.Drain()
	p.mu.Lock()
	if !p.closed {
		p.closed = true
		var retired sync.WaitGroup
		for _, s := range p.sockets {
			retired.Go(func() { s.Retire(retireGrace) })
		}
		retired.Wait()
		for _, s := range p.sockets {
			s.Stats.Release()
		}
	}
	p.mu.Unlock()
	err := p.drainAll(ctx)
	p.clients.Close()
	p.mu.Lock()
	p.tracers.Retire()
	p.mu.Unlock()
	p.tracers.Wait(flushTimeout)
	p.cancel()
	p.upstreams.Close()
	p.redises.Close()
	p.resolver.Close()
	p.engine.Wait()
	p.stopSweeping()
	return err
}

// stopSweeping ends the sweeper and waits until it has ended. It may be called more than once.
func (p *Proxy) stopSweeping() {
	p.stopOnce.Do(func() { close(p.stop) })
	<-p.swept
}
