package proxy

import (
	"context"
	stdtls "crypto/tls"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/observe"
	"github.com/moongate-dev/moongate/internal/proxy/http1"
	"github.com/moongate-dev/moongate/internal/proxy/listen"
	"github.com/moongate-dev/moongate/internal/proxy/match"
	"github.com/moongate-dev/moongate/internal/proxy/tls"
	"github.com/moongate-dev/moongate/internal/proxy/upstream"
)

// Proxy is a running data plane. It serves nothing before the first Apply.
type Proxy struct {
	bindTo    []netip.Addr
	limits    http1.Limits
	timeouts  Timeouts
	plainIO   bool
	metrics   *observe.Metrics
	observer  *observe.Observer
	logging   bool // request lines are wanted: remember what only they show
	logger    *slog.Logger
	upstreams *upstream.Set

	snapshot atomic.Pointer[snapshot]
	clock    atomic.Int64 // Unix milliseconds, coarse
	draining atomic.Bool
	conns    connSet
	mirrors  mirrors
	// background ends with Shutdown.
	background context.Context
	cancel     context.CancelFunc
	stop       chan struct{} // ends the sweeper
	stopOnce   sync.Once

	mu      sync.Mutex // guards what follows; held by Apply and the like
	closed  bool       // by Shutdown: no socket is opened any more
	state   state
	sockets map[listen.Addr]*socket
}

// socket is a bound port. Its TLS configuration asks the current snapshot.
type socket struct {
	*listen.Socket
	tls   *stdtls.Config // where its listeners are HTTPS
	stats *observe.SocketStats
}

// New makes a Proxy; Shutdown must be called in the end.
func New(o Options) *Proxy {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	p := &Proxy{
		bindTo:    o.Bind,
		limits:    o.Limits,
		timeouts:  o.Timeouts.withDefaults(),
		plainIO:   o.PlainIO,
		metrics:   o.Metrics,
		observer:  &observe.Observer{Metrics: o.Metrics, Log: o.AccessLog},
		logging:   o.AccessLog != nil,
		logger:    o.Logger,
		upstreams: upstream.NewSet(o.Upstream),
		stop:      make(chan struct{}),
		sockets:   map[listen.Addr]*socket{},
		state: state{
			certificates: map[string]*tls.Certificate{},
			listeners:    map[string]*listenerState{},
			routes:       map[string]*route{},
			kinds:        map[config.Kind]map[string]struct{}{},
		},
	}
	p.limits.MaxHead = min(p.limits.MaxHead, maxHead)
	p.background, p.cancel = context.WithCancel(context.Background())
	if p.metrics == nil {
		p.metrics = observe.NewMetrics(observe.MetricsOptions{})
		p.observer.Metrics = p.metrics
	}
	p.metrics.SetUpstreams(p.reportUpstreams)
	p.snapshot.Store(&snapshot{})
	p.clock.Store(time.Now().UnixMilli())
	go p.sweep()
	return p
}

// now is the coarse clock in Unix milliseconds.
func (p *Proxy) now() int64 { return p.clock.Load() }

// open binds a socket for the listeners in sc.
func (p *Proxy) open(addr listen.Addr, sc *socketConfig) (*socket, error) {
	if p.closed {
		return nil, net.ErrClosed
	}
	ls, err := listen.Open(addr)
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
	s := &socket{Socket: ls}
	labels := observe.SocketLabels{Port: addr.Port}
	if addr.IP.IsValid() {
		labels.Address = addr.IP.String()
	}
	labels.Gateway = soleGateway(sc.listeners)
	s.stats = p.metrics.Socket(labels)
	s.tls = tls.Server(func(serverName string) *stdtls.Config {
		sc := p.snapshot.Load().socket(s)
		if sc == nil {
			return nil
		}
		l, ok := sc.listeners.Find([]byte(serverName))
		if !ok {
			return nil
		}
		return l.tls
	})
	return s, nil
}

// soleGateway is the Gateway of all listeners, "" where there are several.
func soleGateway(hosts *match.Hosts[*listener]) string {
	gateway := ""
	for _, l := range hosts.All() {
		if gateway != "" && gateway != l.config.Gateway {
			return ""
		}
		gateway = l.config.Gateway
	}
	return gateway
}

// serve starts accepting on a socket.
func (p *Proxy) serve(s *socket) {
	go s.Serve(func(tcp *net.TCPConn) { p.accept(s, tcp) },
		func(err error) { p.logger.Error("accept failed", "address", s.Addr.String(), "error", err) })
}

// accept starts a connection. It is registered before Serve can return, so that Shutdown sees it.
func (p *Proxy) accept(s *socket, tcp *net.TCPConn) {
	sc := p.snapshot.Load().socket(s)
	if sc == nil { // the last listener went this moment
		tcp.Close()
		return
	}
	c := newConn(p, s, tcp, sc.https)
	p.conns.add(c)
	go c.serve()
}

// retire stops accepting on a socket that no listener uses. Its connections end with their
// next request: the snapshot knows the socket no more.
func (p *Proxy) retire(s *socket) {
	s.Close()
	s.stats.Release()
}

// handshakeFailed counts a connection that ended before any request.
func (p *Proxy) handshakeFailed(c *conn, _ error) {
	p.observer.Finish(&observe.Record{
		StartUnixNano: time.Now().UnixNano(),
		ClientAddr:    c.peer,
		Scheme:        "https",
		Reason:        observe.ReasonTLSHandshakeFailed,
		Stats:         c.sock.stats.Unrouted(),
	})
}

// BoundListener is a listener that serves.
type BoundListener struct {
	Key, Hostname string
	Protocol      config.Protocol
	Addresses     []string // "<ip>:<port>", or ":<port>" for every address
	Routes        int
}

// Bound lists the listeners that serve, sorted by key.
func (p *Proxy) Bound() []BoundListener {
	p.mu.Lock()
	defer p.mu.Unlock()
	var out []BoundListener
	for _, key := range sortedKeys(p.state.listeners) {
		ls := p.state.listeners[key]
		var unbound *BindError // of one address; the others serve
		if ls.config == nil || len(ls.placed) == 0 || ls.err != nil && !errors.As(ls.err, &unbound) {
			continue
		}
		b := BoundListener{Key: key, Hostname: ls.config.Hostname, Protocol: ls.config.Protocol, Routes: ls.table.Len()}
		for _, pl := range ls.placed {
			b.Addresses = append(b.Addresses, pl.socket.Addr.String())
		}
		out = append(out, b)
	}
	return out
}

func (p *Proxy) reportUpstreams(emit func(observe.UpstreamStats)) {
	for _, b := range p.upstreams.Backends() {
		s := b.Stats()
		emit(observe.UpstreamStats{
			Backend:           b.Key(),
			Endpoints:         len(b.Endpoints()),
			RequestsInFlight:  int(s.InFlight),
			ConnectionsIdle:   int(s.Idle),
			ConnectionsActive: int(s.Open - s.Idle),
			ConnectsTotal:     uint64(s.Dialled),
			ConnectErrors:     uint64(s.Failures),
		})
	}
}

// Drain makes every response from now on end its connection (Connection: close). New
// connections are still accepted: load balancers need a moment to look elsewhere.
func (p *Proxy) Drain() { p.draining.Store(true) }

// Shutdown stops accepting, lets the requests in flight finish and idle connections end, and
// cuts what is left when ctx ends. It returns ctx's error where something had to be cut.
func (p *Proxy) Shutdown(ctx context.Context) error {
	p.Drain()
	p.mu.Lock()
	p.closed = true
	for addr, s := range p.sockets {
		delete(p.sockets, addr)
		p.retire(s)
	}
	p.mu.Unlock()
	var err error
	select {
	case <-p.conns.empty():
	case <-ctx.Done():
		err = ctx.Err()
		p.conns.each(func(c *conn) { c.cut() })
		<-p.conns.empty()
	}
	p.cancel()
	p.upstreams.Close()
	p.mirrors.running.Wait()
	p.stopOnce.Do(func() { close(p.stop) })
	return err
}
