// Package client owns the connections from clients: it reads request heads and bodies from them,
// has each request carried out by package exchange, writes the responses, and keeps, parks, drains
// and ends connections. It exists so that what HTTP/1 asks of a socket (keep-alive, raw reads,
// lingering closes) and what HTTP/2 does stand apart from what a request goes through.
//
// It must never import the engine, nor read configuration but through exchange.
package client

import (
	"bytes"
	stdtls "crypto/tls"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/moongate-dev/moongate/internal/observe"
	"github.com/moongate-dev/moongate/internal/proxy/buffer"
	"github.com/moongate-dev/moongate/internal/proxy/exchange"
	"github.com/moongate-dev/moongate/internal/proxy/http2"
	"github.com/moongate-dev/moongate/internal/proxy/listen"
	"github.com/moongate-dev/moongate/internal/proxy/snapshot"
	"github.com/moongate-dev/moongate/internal/proxy/socket"
	"github.com/moongate-dev/moongate/internal/proxy/tls"
)

// Buffer sizes in bytes.
const (
	// idleBuffer is what a connection that idles for longer waits for a request with where it cannot be parked.
	idleBuffer = 512
	// smallBuffer holds most request heads.
	smallBuffer = 4 << 10
	// MaxHead bounds http1.Limits.MaxHead: the parser must refuse a head before it fills a buffer.
	MaxHead = 64 << 10
)

var (
	smallBuffers = sync.Pool{New: func() any { return new([smallBuffer]byte) }}
	http1States  sync.Pool
)

// Conn is a client's connection. One goroutine runs it (serve), none while it is parked; while a request body
// is uploaded beside a response, a second one (upload) reads from the client. The
// sweeper looks at the atomics.
type Conn struct {
	set *Set
	// timeouts are those of set, or of the port when the connection was accepted.
	timeouts *Timeouts
	side     exchange.Client // the connection as its exchanges see it
	watch    exchange.Watch
	nc       net.Conn // what is read and written: tcp, or TLS above it
	tcp      *socket.Conn
	raw      syscall.RawConn // of tcp

	// in[r:w] is what was read and not consumed. in is small or big, which are from their pools and nil
	// while they are not needed, or of idleBuffer, or nil where nothing is read.
	in    []byte
	r, w  int
	small *[smallBuffer]byte
	big   *buffer.Buffer
	eager bool // a request filled the small buffer: wait for the next with a big one
	// little shows the sweeper that the part of a response which was sent last, on any stream, stands in a little buffer.
	little atomic.Bool
	// holding shows the sweeper that there is pooled memory to give back after a while.
	holding atomic.Bool

	// until is when the idle time ends, by the coarse clock; 0 where it has not begun.
	until int64
	// headDeadline is until when the head must be there, by the coarse clock; 0 before its first byte.
	headDeadline int64
	// fresh tells that what is unread has changed so that parsing may get further, and parsed is how much it was the last time.
	fresh      bool
	parsed     int
	negotiated string // by ALPN
	proxied    bool   // begins with a PROXY header, of a peer that is trusted
	opened     bool   // a loop has counted it before, see ServeL4
	// served tells that a request has been carried out.
	served bool
	loop   rawLoop
	// http2 is set where that is spoken.
	http2   atomic.Pointer[http2.Conn]
	tunnels streamTunnels // of it

	// wait says what the goroutine of serve waits for, bodyWait what that of upload does. Of a tunnel they are for what moves to the
	// client, and to the backend.
	wait, bodyWait waitState
	// wireWait is for the client to take what TLS writes, whoever has it do that, see writeWire.
	wireWait waitState
	rests    atomic.Bool // it is a tunnel that is suspended, or cannot be

	mu sync.Mutex
	// idled is why the sweeper has interrupted the wait: to have the connection parked. Guarded by mu.
	idled bool

	// h1 is nil until the first byte of a request, and again when the connection is parked.
	h1 *http1State

	counted
	shard      *shard
	link[Conn]      // in a list of shard; guarded by its mu
	watched    bool // the idle poller has an entry for it
	disordered bool // when it was parked does not tell when its idle time ends, beside others
	fd         int  // which the idle poller knows it by

	kept    atomic.Int64 // bytes of request bodies, see exchange.Engine.Kept
	untaken untaken      // the sweeper's

	hangUpWatched atomic.Bool // its hang-up is reported, or cannot be
	hungUp        atomic.Bool // the client has left, see peerGone; known where hangUpWatched is set only
	hangUpFD      int         // which hangUps knows it by; negative when it was closed; guarded by that one's mu
}

// noteBuffer shows the sweeper what kind of buffer the part stands in that is sent next.
func (c *Conn) noteBuffer(p *exchange.Part) {
	if little := p.IsLittle(); little != c.little.Load() {
		c.little.Store(little)
	}
}

// waitState is what a connection waits for and until when, in one word that the sweeper
// can claim: kind in the upper 8 bits, milliseconds of the coarse clock below.
type waitState struct{ v atomic.Uint64 }

type waitKind uint8

const (
	waitNothing     waitKind = iota
	waitIdle                 // for the first byte of a request; expires
	waitHandshake            // expires
	waitHead                 // for the rest of a head; expires
	waitRead                 // for the rest of a body; expires
	waitWrite                // for the client to take bytes; expires
	waitTunnel               // for bytes for one side; expires where the other's does
	waitTunnelWrite          // for that side to take bytes; expires
	waitExpired              // the sweeper has interrupted the wait
	waitParked               // for whoever claims the connection, see park.go
)

func (s *waitState) set(k waitKind, ms int64) { s.v.Store(uint64(k)<<56 | uint64(ms)) }

func (s *waitState) get() (waitKind, int64, uint64) {
	v := s.v.Load()
	return waitKind(v >> 56), int64(v & (1<<56 - 1)), v
}

// claim turns the state seen into waitExpired; false where the wait ended meanwhile. The sweeper
// holds the connection's mu from here until the deadline is set, see Conn.leave.
func (s *waitState) claim(seen uint64) bool {
	return s.v.CompareAndSwap(seen, uint64(waitExpired)<<56)
}

// leave ends the wait; false where the sweeper has claimed it.
func (s *waitState) leave() bool {
	v := s.v.Load()
	return waitKind(v>>56) != waitExpired && s.v.CompareAndSwap(v, 0)
}

var (
	// longAgo as a deadline interrupts a blocked read or write.
	longAgo = time.Unix(1, 0)
	never   time.Time
)

func isTimeout(err error) bool { return errors.Is(err, os.ErrDeadlineExceeded) }

// Peer is whose connection it is, which may be a proxy's that speaks for the client; the zero value where that is not known.
func (c *Conn) Peer() netip.AddrPort { return c.tcp.Peer() }

func newConn(set *Set, s *snapshot.Socket, tcp *socket.Conn, mode snapshot.Mode, t *Timeouts) *Conn {
	c := &Conn{set: set, timeouts: t, nc: tcp, tcp: tcp, raw: tcp.Raw()}
	c.side = exchange.Client{Engine: set.engine, Socket: s, Mode: mode, Watch: &c.watch,
		Body: http1Side{c}, Response: http1Side{c}, Limiter: http1Side{c}, Switcher: http1Side{c}}
	return c
}

// local is where the client has connected to.
func (c *Conn) local() netip.AddrPort { return c.tcp.Local() }

// Local implements what exchange asks of a Response.
func (s http1Side) Local() netip.AddrPort { return s.c.local() }

// Local is as that of http1Side.
func (d *stream) Local() netip.AddrPort { return d.c.local() }

// Keep implements what exchange asks of a Response.
func (s http1Side) Keep(bytes int64) { s.c.kept.Add(bytes) }

// Keep is as that of http1Side.
func (d *stream) Keep(bytes int64) { d.c.kept.Add(bytes) }

// setPeer notes who the client is.
func (c *Conn) setPeer(client netip.AddrPort) {
	c.side.Peer = client
	if client.IsValid() {
		c.side.PeerText = client.Addr().AppendTo(nil)
	}
}

// leave ends a wait on the client; false where the sweeper has claimed it, whose deadline is
// set by then and none will be behind our back.
func (c *Conn) leave(s *waitState) bool {
	if s.leave() {
		return true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return false
}

// acceptors run new connections to their end, by the mode of their port.
var acceptors = [...]func(*Conn){
	snapshot.HTTP:           (*Conn).serve,
	snapshot.HTTPS:          (*Conn).acceptHTTPS,
	snapshot.TCP:            (*Conn).acceptTCP,
	snapshot.TLS:            (*Conn).acceptTLS,
	snapshot.TLSPassthrough: (*Conn).acceptPassthrough,
}

// start runs a new connection, which is in its Set.
func (c *Conn) start() {
	defer c.recovered()
	if !c.opened {
		c.side.Socket.Stats.ConnectionOpened()
	}
	if c.proxied && !c.acceptProxied() {
		c.end()
		return
	}
	acceptors[c.side.Mode](c)
}

// acceptHTTPS runs a connection that begins with a TLS handshake.
func (c *Conn) acceptHTTPS() {
	if !c.handshake(c.handshakeEnd()) {
		c.end()
		return
	}
	c.serveHTTPS()
}

// serveHTTPS runs a connection behind its handshake.
func (c *Conn) serveHTTPS() {
	if c.negotiated != protocolHTTP2 {
		c.serve()
		return
	}
	go func() { // whose stack the handshake has not made grow
		defer c.recovered()
		c.serveHTTP2()
	}()
}

// serve runs the connection until it ends or is parked.
func (c *Conn) serve() {
	for {
		head, err := c.nextHead()
		if head == parked {
			if c.retire() {
				return
			}
			c.in = make([]byte, idleBuffer)
			continue
		}
		if err != nil {
			if c.startsHTTP2() {
				c.serveHTTP2()
				return
			}
			c.refuse(err)
		}
		if err == nil && head > 0 {
			keep, away := c.run(head)
			if away {
				return
			}
			if keep {
				continue
			}
		}
		c.finish(head == 0 && err == nil)
		return
	}
}

// finish ends the connection as its last request asks for; idle is that it waited for another one.
func (c *Conn) finish(idle bool) {
	switch {
	case c.h1 != nil && c.h1.linger:
		c.closeLingering()
	case c.h1 != nil && c.h1.complete || idle:
		c.sayClose()
	}
	c.end()
}

// end closes the connection and takes it out of its Set.
func (c *Conn) end() {
	c.tcp.Close()
	if l := c.set.hangUps.Load(); l != nil && c.hangUpWatched.Load() {
		l.unwatchHangUp(c)
	}
	c.park()
	c.side.Socket.Stats.ConnectionClosed()
	c.set.remove(c)
}

// sayClose tells a TLS client that what it got is complete (close_notify); where it is not, the
// lack of that shows it.
func (c *Conn) sayClose() {
	if t, ok := c.nc.(*stdtls.Conn); ok {
		t.CloseWrite()
	}
}

// handshakeEnd is when a handshake that begins now must be done, by the coarse clock.
func (c *Conn) handshakeEnd() int64 {
	return c.set.engine.Now() + c.timeouts.Handshake.Milliseconds()
}

// handshake makes the connection a TLS connection, by a moment of the coarse clock. What is unread is the beginning of what the client has sent.
func (c *Conn) handshake(by int64) bool {
	w := &wire{Conn: c.tcp, c: c}
	var transport net.Conn = w
	if c.r < c.w {
		transport = &replay{w, bytes.Clone(c.in[c.r:c.w])}
		c.giveInput()
	}
	tc := stdtls.Server(transport, c.side.Socket.TLS)
	c.wait.set(waitHandshake, by)
	err := tc.Handshake()
	if !c.leave(&c.wait) {
		err = errHandshakeTimeout
	}
	if err != nil {
		var record stdtls.RecordHeaderError
		if errors.As(err, &record) && looksLikeHTTP(record.RecordHeader) {
			c.answerPlain()
			return false
		}
		state := tc.ConnectionState()
		c.handshakeFailed(observe.ReasonTLSHandshakeFailed, state.ServerName, tls.Failure(err))
		if c.spoke(&state, err) {
			c.closeRefused()
		}
		return false
	}
	c.nc = tc
	state := tc.ConnectionState()
	c.side.ServerName = lowerASCII([]byte(state.ServerName))
	c.side.TLSPeer = tls.NewPeer(state.PeerCertificates, w.demanded)
	c.negotiated = state.NegotiatedProtocol
	return true
}

// spoke reports whether a client whose handshake has failed may have sent a request already, which would have the alert that says why overtaken by a reset: in TLS 1.3
// it takes the handshake for done before its certificate is looked at.
func (c *Conn) spoke(state *stdtls.ConnectionState, err error) bool {
	var transport *net.OpError
	return state.Version == stdtls.VersionTLS13 && err != errHandshakeTimeout && !errors.Is(err, io.EOF) && !errors.As(err, &transport)
}

func lowerASCII(b []byte) []byte {
	for i, x := range b {
		if 'A' <= x && x <= 'Z' {
			b[i] = x + 'a' - 'A'
		}
	}
	return b
}

// makeRoom leaves space behind in[w]. The parser refuses heads before they fill a big buffer.
func (c *Conn) makeRoom() {
	if c.r == c.w {
		c.r, c.w = 0, 0
		if len(c.in) == 0 || c.eager && c.big == nil {
			c.grow()
		}
		return
	}
	if c.w < len(c.in) {
		return
	}
	if c.r > 0 {
		c.w = copy(c.in, c.in[c.r:c.w])
		c.r = 0
		return
	}
	c.grow()
}

// grow moves the unread bytes to a larger buffer.
func (c *Conn) grow() {
	old, small := c.in[c.r:c.w], c.small
	switch {
	case c.big != nil:
		return
	case c.small == nil && (!c.eager || c.set.engine.Budget.Short()):
		c.small = smallBuffers.Get().(*[smallBuffer]byte)
		c.in = c.small[:]
	default:
		c.big = buffer.Take()
		c.in, c.small = c.big.Bytes(), nil
	}
	c.r, c.w = 0, copy(c.in, old)
	if small != nil {
		smallBuffers.Put(small)
	}
	c.markInUse()
}

// markInUse shows the sweeper that the connection is in use.
func (c *Conn) markInUse() {
	if !c.holding.Load() {
		c.holding.Store(true)
	}
}

// http1State is the one of the connection, made if need be.
func (c *Conn) http1State() *http1State {
	if c.h1 == nil {
		if c.h1, _ = http1States.Get().(*http1State); c.h1 == nil {
			c.set.engine.Budget.Spend(exchange.Cost)
			c.h1 = &http1State{ex: exchange.New()}
		}
		c.h1.ex.Client = &c.side
		c.markInUse()
	}
	return c.h1
}

// lend gives all pooled memory back, for others to use while this connection waits: what is used again at once is
// in the cache still, and connections that wait hold nothing. Nothing is unread and nothing points into it.
func (c *Conn) lend() {
	c.giveInput()
	if c.h1 != nil {
		c.h1.ex.Client = nil
		http1States.Put(c.h1)
	}
	c.h1 = nil
}

// giveInput gives back what is read to. Nothing is unread and nothing points into it.
func (c *Conn) giveInput() {
	if c.big != nil {
		buffer.Give(c.big)
	}
	if c.small != nil {
		smallBuffers.Put(c.small)
	}
	c.big, c.small = nil, nil
	c.in, c.r, c.w = nil, 0, 0
}

// park is lend for a longer time.
func (c *Conn) park() {
	c.lend()
	c.eager = false
	c.holding.Store(false)
}

var errHandshakeTimeout = errors.New("the client was too slow")

// plainAnswer is for HTTP without TLS on a port that has TLS.
const plainAnswer = "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\nContent-Length: 68\r\n\r\n" +
	"moongate: 400 http_on_tls_port: this port has TLS, please use https\n"

// looksLikeHTTP reports whether what should have been the header of a TLS record begins a request: with letters, and
// maybe a space and what follows it.
func looksLikeHTTP(b [5]byte) bool {
	method, _, _ := bytes.Cut(b[:], []byte(" "))
	for _, x := range method {
		if x < 'A' || x > 'Z' {
			return false
		}
	}
	return len(method) > 0
}

// answerPlain answers a request that came without TLS.
func (c *Conn) answerPlain() {
	c.tcp.SetDeadline(time.Now().Add(c.timeouts.Linger))
	status := 0
	if _, err := io.WriteString(c.tcp, plainAnswer); err == nil {
		status = 400
	}
	c.handshakeFailed(observe.ReasonHTTPOnTLSPort, "", errPlain)
	if status != 0 {
		c.closeRefused()
	}
}

// closeRefused is closeLingering for a client whose handshake has failed. Where connections are scarce it keeps none from others: that the client is told why
// is a courtesy.
func (c *Conn) closeRefused() {
	if !c.set.engine.Refuses() && !c.set.admission.isScarce() {
		c.closeLingering()
	}
}

var errPlain = errors.New("HTTP without TLS")

// handshakeFailed counts a connection that ended before any request, and says why.
func (c *Conn) handshakeFailed(reason observe.Reason, serverName string, cause error) {
	c.set.handshakeFailed(c.side.Socket, c.side.Peer, c.side.Mode, reason, serverName, cause)
}

func (s *Set) handshakeFailed(socket *snapshot.Socket, client netip.AddrPort, mode snapshot.Mode, reason observe.Reason, serverName string, cause error) {
	scheme := "https"
	if mode != snapshot.HTTPS {
		scheme = "tls"
	}
	s.engine.Observer.Finish(&observe.Record{
		StartUnixNano: time.Now().UnixNano(),
		ClientAddr:    client,
		Scheme:        scheme,
		Host:          []byte(serverName),
		Port:          socket.Addr.Port,
		Cause:         cause.Error(),
		Reason:        reason,
		Stats:         socket.Stats.Unrouted(),
	})
}

// closeLingering ends a connection whose client may still be sending: it says that no
// more comes and throws away what arrives, since closing with unread bytes would
// reset the connection and could take our last response with it.
func (c *Conn) closeLingering() {
	type closeWriter interface{ CloseWrite() error }
	if c.nc.(closeWriter).CloseWrite() != nil {
		return
	}
	c.nc.SetReadDeadline(time.Now().Add(c.timeouts.Linger))
	if len(c.in) == 0 {
		c.in = make([]byte, idleBuffer)
	}
	for left := http2.LingerBytes; left > 0 || listen.Unsent(c.raw) > 0; {
		n, err := c.nc.Read(c.in)
		if err != nil {
			return
		}
		left -= n
	}
}
