package proxy

import (
	"context"
	stdtls "crypto/tls"
	"errors"
	"net"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/moongate-dev/moongate/internal/proxy/upstream"
)

// Buffer sizes in bytes.
const (
	// parkedBuffer is what a connection that idles for longer waits for a request with.
	parkedBuffer = 512
	// smallBuffer holds most request heads.
	smallBuffer = 4 << 10
	// headroom is kept free before what is read from a backend, so that the head for
	// the client can be put right before the body: one write, no copy of the body.
	headroom = 2 << 10
	// tailroom takes what ends a chunk behind the data.
	tailroom = 64
	// unparsedLimit is how much of a head may come without the end of a line before the parser
	// is asked whether it is too long.
	unparsedLimit = 8 << 10
	// maxHead bounds Limits.MaxHead: the parser must refuse a head before it fills a buffer.
	maxHead = 64 << 10
	// bigBuffer holds a head and 64 KiB of body, so that most responses take one read.
	bigBuffer = headroom + 78<<10 + tailroom
)

var (
	bigBuffers   = sync.Pool{New: func() any { return new([bigBuffer]byte) }}
	smallBuffers = sync.Pool{New: func() any { return new([smallBuffer]byte) }}
	exchanges    = sync.Pool{New: func() any { return newExchange() }}
)

// conn is a client's connection. One goroutine runs it (serve); while a request body
// is uploaded beside a response, a second one (upload) reads from the client. The
// sweeper looks at the atomics and, under mu, at the upstream connection.
type conn struct {
	proxy *Proxy
	sock  *socket
	nc    net.Conn // what is read and written: tcp, or TLS above it
	tcp   *net.TCPConn
	raw   syscall.RawConn
	peer  netip.AddrPort
	// peerText is the client's IP address as X-Forwarded-For shows it.
	peerText []byte
	// serverName is the SNI of the TLS handshake in lower case, "" where there was none.
	serverName []byte

	// in[r:w] is what was read and not consumed. in is parked, small or big, the last two from
	// their pools and nil while they are not needed.
	in     []byte
	r, w   int
	parked [parkedBuffer]byte
	small  *[smallBuffer]byte
	big    *[bigBuffer]byte
	eager  bool // a request filled the small buffer: wait for the next with a big one
	// holding shows the sweeper that there is pooled memory to give back after a while.
	holding atomic.Bool
	https   bool

	// headDeadline is until when the head must be there, by the coarse clock; 0 before its first byte.
	headDeadline int64
	// fresh tells that what is unread has changed so that parsing may get further.
	fresh bool
	// served tells that a request has been carried out.
	served bool
	loop   rawLoop

	// wait says what the goroutine of serve waits for, bodyWait what that of upload does.
	wait, bodyWait waitState

	mu sync.Mutex
	// shrink is the sweeper's wish for a small buffer, with an interrupted wait. Guarded by mu.
	shrink bool
	// upstream is the connection that carries the current exchange, nil at other times. Guarded by mu.
	upstream *upstream.Conn
	// dialling ends the dial that is under way, nil at other times. Guarded by mu.
	dialling context.CancelFunc
	// wasCut tells that Shutdown has lost its patience. Guarded by mu.
	wasCut bool
	// clientGone tells that upstream was interrupted because the client left. Guarded by mu.
	clientGone bool

	// ex is nil until the first byte of a request, and again when the connection is parked.
	ex *exchange
}

// waitState is what a connection waits for and until when, in one word that the sweeper
// can claim: kind in the upper 8 bits, milliseconds of the coarse clock below.
type waitState struct{ v atomic.Uint64 }

type waitKind uint8

const (
	waitNothing   waitKind = iota
	waitIdle               // for the first byte of a request; expires
	waitHandshake          // expires
	waitRead               // for the rest of a head or body; expires
	waitWrite              // for the client to take bytes; expires
	waitUpstream           // for a backend; the time is when that began
	waitExpired            // the sweeper has interrupted the wait
)

func (s *waitState) set(k waitKind, ms int64) { s.v.Store(uint64(k)<<56 | uint64(ms)) }

func (s *waitState) get() (waitKind, int64, uint64) {
	v := s.v.Load()
	return waitKind(v >> 56), int64(v & (1<<56 - 1)), v
}

// claim turns the state seen into waitExpired; false where the wait ended meanwhile. The sweeper
// holds the connection's mu from here until the deadline is set, see conn.leave.
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

func newConn(p *Proxy, s *socket, tcp *net.TCPConn, https bool) *conn {
	c := &conn{proxy: p, sock: s, nc: tcp, tcp: tcp, https: https}
	c.raw, _ = tcp.SyscallConn()
	if a, ok := tcp.RemoteAddr().(*net.TCPAddr); ok {
		ap := a.AddrPort()
		c.peer = netip.AddrPortFrom(ap.Addr().Unmap().WithZone(""), ap.Port())
		c.peerText = c.peer.Addr().AppendTo(nil)
	}
	c.grow() // a request is to come at once
	return c
}

// leave ends a wait on the client; false where the sweeper has claimed it, whose deadline is
// set by then and none will be behind our back.
func (c *conn) leave(s *waitState) bool {
	if s.leave() {
		return true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return false
}

// serve runs the connection, which is in Proxy.conns, to its end.
func (c *conn) serve() {
	c.sock.stats.ConnectionOpened()
	defer func() {
		c.tcp.Close()
		c.park()
		c.sock.stats.ConnectionClosed()
		c.proxy.conns.remove(c)
	}()
	if c.https && !c.handshake() {
		return
	}
	for {
		head, err := c.nextHead()
		if err != nil {
			c.refuse(err)
		}
		if err == nil && head > 0 && c.ex.run(head) {
			continue
		}
		switch {
		case c.ex != nil && c.ex.linger:
			c.closeLingering()
		case c.ex != nil && c.ex.complete || head == 0 && err == nil:
			c.sayClose()
		}
		return
	}
}

// sayClose tells a TLS client that what it got is complete (close_notify); where it is not, the
// lack of that shows it.
func (c *conn) sayClose() {
	if t, ok := c.nc.(*stdtls.Conn); ok {
		t.CloseWrite()
	}
}

// handshake makes the connection a TLS connection.
func (c *conn) handshake() bool {
	tc := stdtls.Server(&wire{c.tcp, c}, c.sock.tls)
	c.wait.set(waitHandshake, c.proxy.now()+c.proxy.timeouts.Handshake.Milliseconds())
	err := tc.Handshake()
	if !c.leave(&c.wait) || err != nil {
		c.proxy.handshakeFailed(c, err)
		return false
	}
	c.nc = tc
	c.serverName = lowerASCII([]byte(tc.ConnectionState().ServerName))
	return true
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
func (c *conn) makeRoom() {
	if c.r == c.w {
		c.r, c.w = 0, 0
		if c.eager && c.big == nil {
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
func (c *conn) grow() {
	old, small := c.in[c.r:c.w], c.small
	switch {
	case c.big != nil:
		return
	case c.small == nil && !c.eager:
		c.small = smallBuffers.Get().(*[smallBuffer]byte)
		c.in = c.small[:]
	default:
		c.big = bigBuffers.Get().(*[bigBuffer]byte)
		c.in, c.small = c.big[:], nil
	}
	c.r, c.w = 0, copy(c.in, old)
	if small != nil {
		smallBuffers.Put(small)
	}
	c.holding.Store(true)
}

// exchange is the one of the connection, made if need be.
func (c *conn) exchange() *exchange {
	if c.ex == nil {
		c.ex = exchanges.Get().(*exchange)
		c.ex.c = c
		c.holding.Store(true)
	}
	return c.ex
}

// park gives all pooled memory back; nothing is unread and nothing points into it.
func (c *conn) park() {
	if c.big != nil {
		bigBuffers.Put(c.big)
	}
	if c.small != nil {
		smallBuffers.Put(c.small)
	}
	if c.ex != nil {
		c.ex.c = nil
		exchanges.Put(c.ex)
	}
	c.big, c.small, c.ex = nil, nil, nil
	c.in, c.r, c.w, c.eager = c.parked[:], 0, 0, false
	c.holding.Store(false)
}

// setUpstream names the connection that the sweeper interrupts when the client leaves.
func (c *conn) setUpstream(u *upstream.Conn) {
	c.mu.Lock()
	c.upstream = u
	c.clientGone = c.wasCut
	if c.wasCut {
		u.SetDeadline(longAgo)
	}
	c.mu.Unlock()
}

// setDialling names what ends a dial, in the same way; nil when it is over.
func (c *conn) setDialling(cancel context.CancelFunc) {
	c.mu.Lock()
	c.dialling = cancel
	if c.wasCut && cancel != nil {
		cancel()
	}
	c.mu.Unlock()
}

// takeUpstream ends that and tells whether the client left.
func (c *conn) takeUpstream() (gone bool) {
	c.mu.Lock()
	c.upstream = nil
	gone = c.clientGone
	c.mu.Unlock()
	return gone
}

// interruptUpstream ends what waits on the upstream connection.
func (c *conn) interruptUpstream() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.upstream != nil {
		c.clientGone = true
		c.upstream.SetDeadline(longAgo)
	}
	if c.dialling != nil {
		c.dialling()
	}
}

// closeLingering ends a connection whose client may still be sending: it says that no
// more comes and throws away what arrives, since closing with unread bytes would
// reset the connection and could take our last response with it.
func (c *conn) closeLingering() {
	type closeWriter interface{ CloseWrite() error }
	if c.nc.(closeWriter).CloseWrite() != nil {
		return
	}
	c.nc.SetReadDeadline(time.Now().Add(c.proxy.timeouts.Linger))
	for budget := 1 << 20; budget > 0; {
		n, err := c.nc.Read(c.in)
		if err != nil {
			return
		}
		budget -= n
	}
}
