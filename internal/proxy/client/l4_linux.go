package client

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"net/netip"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/moongate-dev/moongate/internal/observe"
	"github.com/moongate-dev/moongate/internal/proxy/exchange"
	"github.com/moongate-dev/moongate/internal/proxy/listen"
	"github.com/moongate-dev/moongate/internal/proxy/snapshot"
	"github.com/moongate-dev/moongate/internal/proxy/socket"
	"github.com/moongate-dev/moongate/internal/proxy/tls"
	"github.com/moongate-dev/moongate/internal/proxy/tunnel"
)

// l4Loops are the loops of a Set, none before the first connection.
type l4Loops struct {
	once  sync.Once
	loops atomic.Pointer[[]*l4Loop]
	next  atomic.Uint32
	open  atomic.Int64 // connections, also while they leave
}

type l4Loop struct {
	*tunnel.Loop
	seed uint64 // for the choice of backends; guarded by the loop
}

// all returns the loops there are.
func (l *l4Loops) all() []*l4Loop {
	if all := l.loops.Load(); all != nil {
		return *all
	}
	return nil
}

// startLoops makes the loops, if need be.
func (s *Set) startLoops() []*l4Loop {
	l := &s.l4
	l.once.Do(func() {
		all := make([]*l4Loop, runtime.GOMAXPROCS(0))
		for i := range all {
			all[i] = &l4Loop{seed: rand.Uint64(), Loop: tunnel.NewLoop(tunnel.LoopOptions{
				Now: s.engine.Now, Idle: s.timeouts.Tunnel, Untaken: s.timeouts.TunnelWrite,
				Panicked: func(v any) { s.engine.Observer.Panicked("tunnel", v) },
			})}
		}
		l.loops.Store(&all)
	})
	return l.all()
}

// close is for loops without connections.
func (l *l4Loops) close() {
	for _, loop := range l.all() {
		loop.Close()
	}
}

func (l *l4Loops) empty() bool { return l.open.Load() == 0 }

func (l *l4Loops) sweep(now int64) {
	for _, loop := range l.all() {
		loop.Sweep(now, func(p *tunnel.Pair) error {
			if p.Handler().(*l4Conn).x.Gone() {
				return errEndpointGone
			}
			return nil
		})
	}
}

// errEndpointGone ends a dial whose endpoint has left the configuration, which upstream finds out by itself.
var errEndpointGone = errors.New("the endpoint is gone")

func (l *l4Loops) cut(reason observe.Reason) {
	for _, loop := range l.all() {
		loop.EndAll(cutError{reason})
	}
}

// each calls f for all connections, with their loop locked. f must end none.
func (l *l4Loops) each(f func(*l4Conn)) {
	for _, loop := range l.all() {
		loop.Each(func(p *tunnel.Pair) { f(p.Handler().(*l4Conn)) })
	}
}

// l4Conn is a connection that a loop drives.
type l4Conn struct {
	counted
	pair    tunnel.Pair
	x       exchange.L4
	set     *Set
	loop    *l4Loop
	socket  *snapshot.Socket
	peer    netip.AddrPort
	port    *snapshot.Port // nil once it is known which listener it is for
	hellos  int            // how often what there is of its ClientHello was looked at
	refused observe.Reason // why it is ended without a connection to a backend; ReasonOK where the end of the tunnel tells
	cause   error          // of refused, where that is about its ClientHello
}

const (
	// longHello is from how many bytes on a ClientHello is not looked at anew for each part that comes, but read by a goroutine, and hellosLooked how many
	// parts are.
	longHello    = 16 << 10
	hellosLooked = 8
)

// ServeL4 is Serve for a connection to a port that L4InLoops has allowed.
func (s *Set) ServeL4(socket *snapshot.Socket, raw listen.Raw, port *snapshot.Port) {
	key, ok := s.enter(socket, raw.Peer.Addr(), port)
	if !ok {
		raw.Refuse()
		return
	}
	c := &l4Conn{set: s, socket: socket, peer: raw.Peer, port: port, refused: observe.ReasonOK}
	c.key = key
	s.l4.open.Add(1)
	socket.Stats.ConnectionOpened()
	loops := s.startLoops()
	n := s.l4.next.Add(1)
	for i := range loops {
		c.loop = loops[(n+uint32(i))%uint32(len(loops))]
		if c.loop.TryLocked(func() { c.begin(raw.FD) }) {
			return
		}
	}
	c.loop = loops[n%uint32(len(loops))]
	c.loop.Locked(func() { c.begin(raw.FD) })
}

// begin enters the connection into its loop.
func (c *l4Conn) begin(fd int) {
	c.x.Begin(c.client(nil))
	if err := c.loop.Add(&c.pair, c, fd); err != nil {
		c.handOver(fd)
		return
	}
	defer func() {
		if v := recover(); v != nil {
			c.set.engine.Observer.Panicked("tunnel", v)
			c.refuse(observe.ReasonInternal)
		}
	}()
	if c.port.Mode == snapshot.TLSPassthrough {
		c.pair.AwaitHello(c.set.engine.Now() + c.set.timeouts.Handshake.Milliseconds())
		return
	}
	c.route(c.client(nil))
}

// client is the connection as its exchange sees it.
func (c *l4Conn) client(serverName []byte) *exchange.L4Client {
	to := &exchange.L4Client{Engine: c.set.engine, Socket: c.socket, Peer: c.peer, Mode: c.port.Mode, Protocol: "TCP", ServerName: serverName}
	if to.Mode == snapshot.TLSPassthrough {
		to.Protocol = "TLS"
	}
	return to
}

// refuse ends the connection for a reason.
func (c *l4Conn) refuse(reason observe.Reason) {
	c.refused = reason
	c.pair.Fail(tunnel.Neither, cutError{reason})
}

// route finds the backend of the connection.
func (c *l4Conn) route(to *exchange.L4Client) {
	c.port = nil
	if reason := c.x.Route(to, c.pair.ClientAddr(), &c.loop.seed); reason != observe.ReasonOK {
		c.refuse(reason)
		return
	}
	c.next()
}

// next dials the next endpoint.
func (c *l4Conn) next() {
	for {
		to, timeout, next, reason := c.x.Next(&c.loop.seed)
		switch next {
		case exchange.L4Join:
			c.handOver(c.pair.GiveUp())
			return
		case exchange.L4End:
			c.refuse(reason)
			return
		}
		// Not by the coarse clock, which may be as old as the timeout is long.
		err := c.pair.Dial(to, time.Now().Add(timeout).UnixMilli())
		if err == nil {
			c.x.Dialling(c.pair.BackendAddr())
			return
		}
		if again, reason := c.x.Failed(err); !again {
			c.refuse(reason)
			return
		}
	}
}

// Dialled implements tunnel.Handler.
func (c *l4Conn) Dialled(err error) {
	if err == nil {
		if reason := c.x.Made(); reason != observe.ReasonOK {
			c.refuse(reason)
		}
		return
	}
	if again, reason := c.x.Failed(err); !again {
		c.refuse(reason)
		return
	}
	c.next()
}

// Hello implements tunnel.Handler.
func (c *l4Conn) Hello(b []byte) {
	var hello tls.Hello
	c.hellos++
	done, err := hello.Complete(b)
	if !done && err == nil {
		if c.hellos >= hellosLooked || len(b) >= longHello {
			c.handOver(c.pair.GiveUp())
		}
		return
	}
	var name []byte
	if err == nil {
		name, err = hello.ServerName(b)
	}
	if err != nil { // what is not a ClientHello has its answer by a handshake, as have those for other listeners
		if !errors.Is(err, tls.ErrNotHello) {
			c.fail(err)
			return
		}
		c.handOver(c.pair.GiveUp())
		return
	}
	to := c.client(lowerASCII(bytes.Clone(name)))
	if l := c.set.listener(c.socket, to.ServerName); l != nil && l.Mode != snapshot.TLSPassthrough {
		c.handOver(c.pair.GiveUp())
		return
	}
	c.route(to)
}

// fail ends a connection that has not begun as TLS does.
func (c *l4Conn) fail(cause error) {
	c.refused, c.cause = observe.ReasonTLSHandshakeFailed, cause
	c.pair.Fail(tunnel.Client, cause)
}

// Ended implements tunnel.Handler.
func (c *l4Conn) Ended(e tunnel.End) {
	if reason, cut := cutReason(e.Err); cut {
		c.refused = reason
	}
	if c.port != nil && e.Failed == tunnel.Client { // its ClientHello has not come
		if c.cause == nil {
			c.cause = e.Err
			if errors.Is(e.Err, os.ErrDeadlineExceeded) {
				c.cause = errHandshakeTimeout
			}
		}
		c.set.handshakeFailed(c.socket, c.peer, snapshot.TLSPassthrough, observe.ReasonTLSHandshakeFailed, "", c.cause)
	} else {
		c.x.Finish(c.refused, e)
	}
	c.socket.Stats.ConnectionClosed()
	c.set.leaveL4(c)
}

// handOver has a Conn go on with the connection, of which nothing was read. It came to a port without the PROXY protocol, and begins with no header that is
// believed, whatever the port has now: nobody has looked whether its peer is trusted.
func (c *l4Conn) handOver(fd int) {
	s := c.set
	port := s.engine.Snapshot.Load().Port(c.socket)
	if port == nil {
		listen.Raw{FD: fd}.Refuse()
		c.x.Finish(observe.ReasonRouteNotFound, tunnel.End{})
		c.socket.Stats.ConnectionClosed()
		s.leaveL4(c)
		return
	}
	defer func() { // it is among the others by then
		s.l4.open.Add(-1)
		s.wakeEmpty()
	}()
	conn := newConn(s, c.socket, socket.New(fd, c.peer), port.Mode, s.timeouts.of(&port.Connections))
	conn.setPeer(c.peer)
	conn.key, conn.opened = c.key, true
	conn.counts.Store(c.counts.Swap(countsNot)) // end may be called yet, by who has seen c among the others
	s.begin(conn, (*Conn).start)
}

// leaveL4 is remove for a connection of a loop, which it has left.
func (s *Set) leaveL4(c *l4Conn) {
	s.leave(&c.counted)
	c.socket.Open.Add(-1)
	s.l4.open.Add(-1)
	s.wakeEmpty()
}

// end evicts and ends a connection, and reports whether that ends by it.
func (c *l4Conn) end() (ends bool) {
	c.loop.Locked(func() {
		ends = c.counts.Load() == countsOpen
		c.set.evict(&c.counted)
		c.pair.Fail(tunnel.Neither, cutError{observe.ReasonOverloaded})
	})
	return ends
}

func (c *l4Conn) held() (n int) {
	c.loop.Locked(func() { n = c.pair.Held() })
	return n
}

// used implements moments, with the loop locked.
func (c *l4Conn) used() (ms int64, tunnel bool) { return c.pair.Used() }

// stuck implements moments, with the loop locked.
func (c *l4Conn) stuck() (ms int64, stuck bool) { return c.pair.Stuck() }

// endAwaitingHello evicts and ends connections whose ClientHello has been awaited for parkAfter at least, of clients that have more than level, up to so many,
// and returns how many. It takes them out of counts.
func (l *l4Loops) endAwaitingHello(counts map[clientKey]int, level, most int, now int64) (ended int) {
	var due []*l4Conn
	l.each(func(c *l4Conn) {
		until, awaits := c.pair.Awaits()
		if awaits && len(due) < most && now >= until-c.set.timeouts.Handshake.Milliseconds()+parkAfter.Milliseconds() && counts[c.key] > level {
			counts[c.key]--
			due = append(due, c)
		}
	})
	for _, c := range due {
		if c.end() {
			ended++
		}
	}
	return ended
}
