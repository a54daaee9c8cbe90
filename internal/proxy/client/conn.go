// Package client owns the connections from clients: it reads request heads and bodies, passes each request to package
// exchange, writes the responses, and keeps, parks, drains and ends connections. It exists so that what HTTP/1 needs of
// a socket (keep-alive, raw reads, lingering closes) and what HTTP/2 needs are separate from how a request is
// processed.
//
// What is idle costs little. A connection without a request is parked: it has no goroutine. After some seconds one
// without TLS is dormant: it has no Conn either. An exchange or a tunnel through which nothing moves is
// suspended: it has no goroutine.
//
// It must never import the engine, and must read configuration only through exchange.
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
	// idleBuffer is the buffer in which an idle connection that cannot be parked waits for a request.
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

// Conn is a client's connection. One goroutine runs it (serve), or none while it is parked. While a request body is
// uploaded and a response is sent at the same time, a second one (upload) reads from the client. The sweeper reads the
// atomics.
type Conn struct {
	set *Set
	// timeouts are those of set, or those of the port at the time when the connection was accepted.
	timeouts *Timeouts
	side     exchange.Client // the connection as its exchanges see it
	watch    exchange.Watch
	nc       net.Conn // read from and written to: tcp, or TLS above it
	tcp      *socket.Conn
	raw      syscall.RawConn // of tcp

	// in[r:w] is what was read but not consumed. in is small or big (both from pools, and nil while not needed), or a
	// slice of idleBuffer bytes, or nil while nothing is read.
	in    []byte
	r, w  int
	small *[smallBuffer]byte
	big   *buffer.Buffer
	eager bool // a request filled the small buffer, so wait for the next with a big one
	// little shows the sweeper that the last part of a response sent, on any stream, was in a little buffer.
	little atomic.Bool
	// holding shows the sweeper that the connection has pooled memory, which it should return after a while.
	holding atomic.Bool

	// until is when the idle time ends, by the coarse clock; 0 if it has not begun.
	until int64
	// headDeadline is when the head must be complete, by the coarse clock; 0 before its first byte.
	headDeadline int64
	// fresh means that the unread bytes have changed so that parsing may get further. parsed is how many there were at
	// the last parse.
	fresh      bool
	parsed     int
	negotiated string // protocol chosen by ALPN
	proxied    bool   // begins with a PROXY header, from a trusted peer
	opened     bool   // a loop has already counted it as opened, see ServeL4
	// served means that a request has been carried out.
	served bool
	// destination is the address to which the client has connected according to the PROXY header; nil if none says it.
	destination *netip.AddrPort
	loop        rawLoop
	methods     methods
	// http2 is nil unless the connection uses HTTP/2.
	http2   atomic.Pointer[http2.Conn]
	tunnels streamTunnels // of the HTTP/2 connection

	// wait is what the goroutine of serve waits for, bodyWait what that of upload waits for. For a tunnel, wait is
	// about the bytes to the client and bodyWait about those to the backend.
	wait, bodyWait waitState
	// wireWait is the wait for the client to take what TLS writes, on whatever goroutine, see writeWire.
	wireWait       waitState
	suspendSettled atomic.Bool // it is a tunnel that is suspended, or that cannot be suspended

	mu sync.Mutex
	// idled means that the sweeper has interrupted the wait in order to park the connection. Guarded by mu.
	idled bool

	// h1 is nil until the first byte of a request arrives, and again while the connection is parked.
	h1 *http1State

	// referred means that something besides the connection's own goroutine and its shard may refer to the Conn, even after the
	// connection has ended, see reuse.
	referred atomic.Bool

	counted
	shard      *shard
	link[Conn]      // links in a list of shard; guarded by its mu
	watched    bool // the idle poller has an entry for it
	disordered bool // the time when it was parked does not tell when its idle time ends, unlike for other connections
	fd         int  // descriptor under which the idle poller knows it
	// staysParked means that the state of an HTTP/2 connection is too complicated for it to become dormant.
	staysParked bool
	// quietSince is when the client of a parked HTTP/2 connection last sent anything, by the coarse clock.
	quietSince int64

	kept    atomic.Int64 // bytes of request bodies held, see exchange.Engine.Kept
	untaken untaken      // used only by the sweeper

	hangUpWatched atomic.Bool // its hang-up is reported by hangUps, or cannot be
	hungUp        atomic.Bool // the client has left, see peerGone; only meaningful if hangUpWatched is set
	hangUpFD      int         // descriptor under which hangUps knows it; negative after it was closed; guarded by the mu of hangUps
}

// noteBuffer shows the sweeper what kind of buffer holds the part that is sent next.
func (c *Conn) noteBuffer(p *exchange.Part) {
	if little := p.IsLittle(); little != c.little.Load() {
		c.little.Store(little)
	}
}

// waitState is what a connection waits for and until when, in one word that the sweeper can claim: a waitKind in the
// upper 8 bits, milliseconds of the coarse clock in the lower 56.
type waitState struct{ v atomic.Uint64 }

type waitKind uint8

const (
	waitNothing     waitKind = iota
	waitIdle                 // for the first byte of a request; expires
	waitHandshake            // expires
	waitHead                 // for the rest of a head; expires
	waitRead                 // for the rest of a body; expires
	waitWrite                // for the client to take bytes; expires
	waitTunnel               // for bytes for one side; expires only together with the wait of the other side
	waitTunnelWrite          // for that side to take bytes; expires
	waitExpired              // the sweeper has interrupted the wait
	waitParked               // until something claims the connection, see park.go
)

func (s *waitState) set(k waitKind, ms int64) { s.v.Store(uint64(k)<<56 | uint64(ms)) }

func (s *waitState) get() (waitKind, int64, uint64) {
	v := s.v.Load()
	return waitKind(v >> 56), int64(v & (1<<56 - 1)), v
}

// claim turns the state seen into waitExpired. It returns false if the wait has ended meanwhile. The sweeper holds the
// connection's mu from the claim until it has set the deadline, see Conn.leave.
func (s *waitState) claim(seen uint64) bool {
	return s.v.CompareAndSwap(seen, uint64(waitExpired)<<56)
}

// leave ends the wait. It returns false if the sweeper has claimed it.
func (s *waitState) leave() bool {
	v := s.v.Load()
	return waitKind(v>>56) != waitExpired && s.v.CompareAndSwap(v, 0)
}

var (
	// longAgo is a deadline that interrupts a blocked read or write.
	longAgo = time.Unix(1, 0)
	never   time.Time
)

func isTimeout(err error) bool { return errors.Is(err, os.ErrDeadlineExceeded) }

// Peer returns the address of the peer, which may be a proxy that connects for the client; the zero value if it is
// unknown.
func (c *Conn) Peer() netip.AddrPort { return c.tcp.Peer() }

// newConn returns a Conn that is not in its Set yet.
func newConn(set *Set, s *snapshot.Socket, tcp *socket.Conn, mode snapshot.Mode, t *Timeouts) *Conn {
	c := unusedConn()
	c.set, c.timeouts, c.nc, c.tcp, c.raw = set, t, tcp, tcp, tcp.Raw()
	c.side = exchange.Client{Engine: set.engine, Socket: s, Mode: mode, Watch: &c.watch,
		Body: http1Side{c}, Response: http1Side{c}, Limiter: http1Side{c}, Switcher: http1Side{c}}
	return c
}

// local returns the gateway's address to which the connection was made.
func (c *Conn) local() netip.AddrPort { return c.tcp.Local() }

// reached returns the address to which the client has connected: that in the PROXY header, or local.
func (c *Conn) reached() netip.AddrPort {
	if c.destination != nil {
		return *c.destination
	}
	return c.local()
}

// Local implements exchange.Response.
func (s http1Side) Local() netip.AddrPort { return s.c.local() }

// Local implements exchange.Response.
func (d *stream) Local() netip.AddrPort { return d.c.local() }

// Destination implements exchange.Response.
func (s http1Side) Destination() netip.AddrPort { return s.c.reached() }

// Destination implements exchange.Response.
func (d *stream) Destination() netip.AddrPort { return d.c.reached() }

// Keep implements exchange.Response.
func (s http1Side) Keep(bytes int64) { s.c.kept.Add(bytes) }

// Keep implements exchange.Response.
func (d *stream) Keep(bytes int64) { d.c.kept.Add(bytes) }

// setPeer records the address of the client.
func (c *Conn) setPeer(client netip.AddrPort) {
	c.side.Peer = client
	if client.IsValid() {
		c.side.PeerText = client.Addr().AppendTo(make([]byte, 0, 16))
	}
}

// leave ends a wait for the client. It returns false if the sweeper has claimed the wait; the sweeper has set its
// deadline by the time leave returns, and sets no other.
func (c *Conn) leave(s *waitState) bool {
	if s.leave() {
		return true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return false
}

// start runs a new connection until it ends, by the mode of its port. It must be in its Set.
func (c *Conn) start() {
	defer c.recovered()
	if !c.opened {
		c.side.Socket.Stats.ConnectionOpened()
	}
	if c.proxied && !c.acceptProxied() {
		c.end()
		return
	}
	switch c.side.Mode {
	case snapshot.HTTP:
		c.serve()
	case snapshot.HTTPS:
		c.acceptHTTPS()
	case snapshot.TCP:
		c.acceptTCP()
	case snapshot.TLS:
		c.acceptTLS()
	case snapshot.TLSPassthrough:
		c.acceptPassthrough()
	default:
		panic("client: a connection to a port that has no connections")
	}
}

// acceptHTTPS runs a connection that begins with a TLS handshake.
func (c *Conn) acceptHTTPS() {
	if !c.handshake(c.handshakeEnd()) {
		c.end()
		return
	}
	c.serveHTTPS()
}

// serveHTTPS runs a connection after its handshake.
func (c *Conn) serveHTTPS() {
	if c.negotiated != protocolHTTP2 {
		c.serve()
		return
	}
	go func() { // on a new stack, which the handshake has not grown
		defer c.recovered()
		c.serveHTTP2()
	}()
}

// serve runs the connection until it ends or is parked.
func (c *Conn) serve() {
	for {
		head, err := c.nextHead()
		if head == parked {
			if c.park() {
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
			c.noteReferred() // by what ends tunnels, and by the goroutines that send its body
			keep, away := c.run(head)
			if away {
				return
			}
			if keep {
				continue
			}
		}
		c.finish(head == 0 && err == nil)
		c.reuse()
		return
	}
}

// finish ends the connection in the way its last request requires. idle means that it waited for another request.
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
	c.releaseAll()
	c.set.engine.ClientGone(c.side.Peer)
	c.side.Socket.Stats.ConnectionClosed()
	c.set.remove(c)
}

// sayClose sends close_notify to a TLS client, which shows that the response is complete. Without it the client knows
// that the response was cut off.
func (c *Conn) sayClose() {
	if t, ok := c.nc.(*stdtls.Conn); ok {
		t.CloseWrite()
	}
}

// handshakeEnd returns the deadline of a handshake that begins now, by the coarse clock.
func (c *Conn) handshakeEnd() int64 {
	return c.set.engine.Now() + c.timeouts.Handshake.Milliseconds()
}

// handshake performs the TLS handshake until by, a time of the coarse clock. Unread bytes are the beginning of what the
// client has sent.
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
		if c.mayHaveSentRequest(&state, err) {
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

// mayHaveSentRequest reports whether a client whose handshake failed may already have sent a request. Closing the connection would
// then send a reset, which could overtake the alert. In TLS 1.3 the client considers the handshake complete before its
// certificate is verified.
func (c *Conn) mayHaveSentRequest(state *stdtls.ConnectionState, err error) bool {
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

// makeRoom makes space after in[w]. The parser refuses a head before it fills a big buffer.
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

// markInUse shows the sweeper that the connection has pooled memory.
func (c *Conn) markInUse() {
	if !c.holding.Load() {
		c.holding.Store(true)
	}
}

// http1State returns the HTTP/1 state of the connection, which it creates if necessary.
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

// releaseMemory returns all pooled memory so that other connections can use it while this one waits: memory that is reused soon
// is still in the CPU cache, and waiting connections hold nothing. Nothing may be unread, and nothing may point into
// the memory.
func (c *Conn) releaseMemory() {
	c.giveInput()
	if c.h1 != nil {
		c.h1.ex.Client = nil
		http1States.Put(c.h1)
	}
	c.h1 = nil
}

// giveInput returns the read buffer to its pool. Nothing may be unread, and nothing may point into the buffer.
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

// releaseAll is like releaseMemory, for a connection that waits longer.
func (c *Conn) releaseAll() {
	c.releaseMemory()
	c.eager = false
	c.holding.Store(false)
}

var errHandshakeTimeout = errors.New("the client was too slow")

// plainAnswer is the response to an HTTP request without TLS on a port that requires TLS.
const plainAnswer = "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\nContent-Length: 68\r\n\r\n" +
	"moongate: 400 http_on_tls_port: this port has TLS, please use https\n"

// looksLikeHTTP reports whether the bytes in place of a TLS record header begin a request: capital letters, perhaps
// followed by a space and more.
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

// closeRefused calls closeLingering for a client whose handshake has failed, so that it receives the alert. If memory
// or connections are scarce, it does not.
func (c *Conn) closeRefused() {
	if !c.set.engine.Refuses() && !c.set.connections.isScarce() {
		c.closeLingering()
	}
}

var errPlain = errors.New("HTTP without TLS")

// handshakeFailed counts and logs a connection that ended before any request.
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

// closeLingering ends a connection whose client may still be sending. It closes the sending side and discards what
// arrives: closing with unread bytes would reset the connection, and the client could lose the last response.
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
