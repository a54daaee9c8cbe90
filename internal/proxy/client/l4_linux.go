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

// l4Loops holds the loops of a Set. There are none before the first connection.
type l4Loops struct {
	once  sync.Once
	loops atomic.Pointer[[]*l4Loop]
	next  atomic.Uint32
	open  atomic.Int64 // number of connections, including those that are leaving
}

type l4Loop struct {
	*tunnel.Loop
	seed uint64 // random state for the choice of backends; guarded by the loop
}

// all returns the existing loops.
func (l *l4Loops) all() []*l4Loop {
	if all := l.loops.Load(); all != nil {
		return *all
	}
	return nil
}

// startLoops returns the loops, which it creates if necessary.
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

// close closes the loops, which must have no connections.
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

// errEndpointGone ends a dial whose endpoint was removed from the configuration; package upstream detects that itself.
var errEndpointGone = errors.New("the endpoint is gone")

func (l *l4Loops) cut(reason observe.Reason) {
	for _, loop := range l.all() {
		loop.EndAll(cutError{reason})
	}
}

// each calls f for all connections, with their loop locked. f must not end any.
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
	port    *snapshot.Port // nil once the connection's listener is known
	hellos  int            // how many times the received part of its ClientHello was parsed
	refused observe.Reason // why it ends without a connection to a backend; ReasonOK if the end of the tunnel determines the reason
	cause   error          // the cause of refused, if it is about the ClientHello
}

const (
	// A ClientHello that is not complete after longHello bytes or hellosLooked parts is no longer parsed again for each
	// part, but read by a goroutine.
	longHello    = 16 << 10
	hellosLooked = 8
)

// ServeL4 is like Serve, for a connection to a port for which L4InLoops returned true.
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

// begin adds the connection to its loop.
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

// client returns the connection as its exchange sees it.
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

// route chooses the backend of the connection.
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
		// Not by the coarse clock, which may lag by as much as the timeout.
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
	if err != nil { // a handshake on a Conn answers what is not a ClientHello, and connections for other listeners
		if !errors.Is(err, tls.ErrNotHello) {
			c.fail(err)
			return
		}
		c.handOver(c.pair.GiveUp())
		return
	}
	to := c.client(lowerASCII(bytes.Clone(name)))
	if l := c.set.listener(c.socket, c.pair.ClientAddr, to.ServerName); l != nil && l.Mode != snapshot.TLSPassthrough {
		c.handOver(c.pair.GiveUp())
		return
	}
	c.route(to)
}

// fail ends a connection that did not begin with a valid ClientHello.
func (c *l4Conn) fail(cause error) {
	c.refused, c.cause = observe.ReasonTLSHandshakeFailed, cause
	c.pair.Fail(tunnel.Client, cause)
}

// Ended implements tunnel.Handler.
func (c *l4Conn) Ended(e tunnel.End) {
	if reason, cut := cutReason(e.Err); cut {
		c.refused = reason
	}
	if c.port != nil && e.Failed == tunnel.Client { // its ClientHello did not arrive
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

// handOver moves the connection, of which nothing was read, to a Conn. The connection arrived at a port without the
// PROXY protocol, so a PROXY header is not accepted even if the port has it now: nothing has checked whether the peer
// is trusted.
func (c *l4Conn) handOver(fd int) {
	s := c.set
	tcp := socket.New(fd, c.peer)
	port := s.engine.Snapshot.Load().PortOf(c.socket, tcp.Local)
	if port == nil {
		tcp.ResetOnClose()
		tcp.Close()
		c.x.Finish(observe.ReasonRouteNotFound, tunnel.End{})
		c.socket.Stats.ConnectionClosed()
		s.leaveL4(c)
		return
	}
	defer func() { // by then it is among the Conns
		s.l4.open.Add(-1)
		s.wakeEmpty()
	}()
	conn := newConn(s, c.socket, tcp, port.Mode, s.timeouts.of(&port.Connections))
	conn.setPeer(c.peer)
	conn.key, conn.opened = c.key, true
	conn.state.Store(c.state.Swap(countedNot)) // a goroutine that has seen c in the loop may still call end
	s.begin(conn, conn.methods.start)
}

// leaveL4 is like remove, for a connection that has left its loop.
func (s *Set) leaveL4(c *l4Conn) {
	s.leave(&c.counted)
	c.socket.Open.Add(-1)
	s.l4.open.Add(-1)
	s.wakeEmpty()
}

// end ends a connection and stops counting it. It reports whether the connection was still open.
func (c *l4Conn) end() (ends bool) {
	c.loop.Locked(func() {
		ends = c.state.Load() == countedOpen
		c.set.evict(&c.counted)
		c.pair.Fail(tunnel.Neither, cutError{observe.ReasonOverloaded})
	})
	return ends
}

func (c *l4Conn) held() (n int) {
	c.loop.Locked(func() { n = c.pair.Held() })
	return n
}

// used implements moments. The loop must be locked.
func (c *l4Conn) used() (ms int64, tunnel bool) { return c.pair.Used() }

// stuck implements moments. The loop must be locked.
func (c *l4Conn) stuck() (ms int64, stuck bool) { return c.pair.Stuck() }

// endAwaitingHello ends up to most connections whose ClientHello has been awaited for at least parkAfter, of clients
// that have more than level connections, and returns their number. It stops counting them and subtracts them from
// counts.
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
