package exchange

import (
	"cmp"
	"errors"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/moongate-dev/moongate/internal/observe"
	"github.com/moongate-dev/moongate/internal/proxy/buffer"
	"github.com/moongate-dev/moongate/internal/proxy/http1"
	"github.com/moongate-dev/moongate/internal/proxy/message"
	"github.com/moongate-dev/moongate/internal/proxy/snapshot"
	"github.com/moongate-dev/moongate/internal/proxy/tls"
	"github.com/moongate-dev/moongate/internal/proxy/tunnel"
)

// Client is the client's side of an exchange: what is known of the client, and how to read from it and write to it. The
// protocol in use fills it in. It may serve any number of exchanges, one at a time.
type Client struct {
	Engine *Engine
	Socket *snapshot.Socket
	Peer   netip.AddrPort
	// PeerText is the client's IP address as written in X-Forwarded-For.
	PeerText []byte
	Mode     snapshot.Mode // mode of the listener that the connection is for; until that is known, of the port when the connection was accepted
	// Suspends means that Run may return before the end, see Outcome.Suspended.
	Suspends bool
	// ServerName is the SNI of the TLS handshake, terminated or passed through, in lower case; empty if there was none.
	ServerName []byte
	// TLSPeer is the identity that the client has proved in the TLS handshake.
	TLSPeer  *tls.Peer
	Protocol string // for the access log: "HTTP/1.1", "HTTP/1.0", "HTTP/2.0"

	Body     Body // used only if Exchange.Streamed is set
	Response Response
	Limiter  Limiter
	Watch    *Watch
	// Switcher is nil if the client's protocol cannot be left, or the stream cannot become a tunnel.
	Switcher Switcher
}

// Switcher leaves the client's protocol.
type Switcher interface {
	// Switch sends a final head that confirms the switch. protocol is the name of the next protocol, sent if the
	// client's protocol has a field for it.
	Switch(resp *message.Response, protocol []byte) error
	// Duplex returns the connection as the end of a tunnel. What the client has sent after its request is read first.
	// Afterwards the client's side is used only to be ended, and the bytes of the request are not valid any more.
	Duplex() tunnel.Duplex
	// Moved must be called like tunnel.Tunnel.Moved.
	Moved(to tunnel.Side, writing bool)
}

// Body reads a request body that did not arrive completely with its head, on its own goroutine.
type Body interface {
	// Next returns the next part of the body, in buf's memory: with wait, at least one byte unless last is set; without
	// wait, what has arrived already, perhaps nothing. last means that the body ends with this part. The error is an
	// *http1.Error if the body is malformed, os.ErrDeadlineExceeded if the client was too slow, ErrHeldBack if it was
	// kept from sending, and any other error if the client has left.
	Next(buf Buffer, wait bool) (data []byte, last bool, err error)
	// Trailer returns the trailer section of a body that has ended, without hop-by-hop fields. nil and empty mean the
	// same.
	Trailer() *message.Fields
	// Stop makes the current and all later calls of Next return an error soon.
	Stop()
}

// ErrHeldBack means that no part of a body arrived because memory is scarce and its sender may send no more.
var ErrHeldBack = errors.New("exchange: request body held back")

// Buffer is memory to read into. It is taken when there is something to read, and given back for a wait, so that
// waiting requests hold none.
type Buffer interface {
	Take() []byte // the same memory until Give
	Give()
}

// Response sends the response to the client. Its methods fail with os.ErrDeadlineExceeded if the client was too slow,
// and with any other error if it has left. Nothing is sent after an error.
type Response interface {
	// Interim sends a 1xx head other than 101. A protocol without interim responses drops it.
	Interim(*message.Response) error
	// Start sends the final head and the first part of the body, which may be empty.
	Start(Head, Part) error
	// More sends a further part of the body.
	More(Part) error
}

// located is implemented by a Response that knows the address to which its client has connected. It is rarely needed,
// so it is not stored for each stream.
type located interface {
	// Local returns the gateway's address, or the zero value if it is no longer known.
	Local() netip.AddrPort
	// Destination returns what a load balancer's PROXY header says, or Local if there is none.
	Destination() netip.AddrPort
}

// keeper is implemented by a Response whose connection counts the bytes of request bodies that it holds.
type keeper interface {
	// Keep adds bytes, which may be negative, to the connection's part of Engine.Kept. It may be called by any
	// goroutine.
	Keep(bytes int64)
}

// Limiter bounds the writes of a Response by the timeouts of a rule.
type Limiter interface {
	// WriteBy makes writes that have not finished by t fail with os.ErrDeadlineExceeded. The zero time means never.
	WriteBy(t time.Time)
}

// Head is the head of a final response.
type Head struct {
	*message.Response
	// Framing and Length define the body that follows: Length bytes if Framing is Length, an unknown number with
	// Chunked and UntilClose. With NoBody, a Length of 0 or more is that of the body that another method or status
	// would have had.
	Framing http1.Framing
	Length  int64
	// Close means that the client's connection should take no further requests.
	Close bool
	// Unread means that the request body will not be read completely.
	Unread bool
	// Upgrade is the protocols that a 426 asks for; nil if unknown. Protocols without the field drop it.
	Upgrade []byte
}

// Part is Buf[At:End], a part of a body. The rest of Buf may be written to.
type Part struct {
	Buf     []byte
	At, End int
	// Last means that the body ends with this part. Trailer is then its trailer section; nil if there is none.
	Last    bool
	Trailer *message.Fields
}

// Data returns the bytes of the part.
func (p *Part) Data() []byte { return p.Buf[p.At:p.End] }

// IsLittle reports whether the part is in a little buffer, of which Buf may be the beginning.
func (p *Part) IsLittle() bool { return cap(p.Buf) == buffer.LittleSize }

// longAgo is a deadline that interrupts a blocked read or write.
var longAgo = time.Unix(1, 0)

// Watch ends the wait of an exchange for its backend when the client has left. The zero value is ready for use. A
// connection uses one Watch for all its requests. It is safe for concurrent use.
type Watch struct {
	// since is when the current wait for a backend began, by the coarse clock; 0 if there is none. All waits before a
	// response count as one, so that a request which is retried again and again counts as waiting for the whole time.
	since atomic.Int64
	// first is when the first of these waits began, 0 before it. answered means that the response has arrived. Both
	// belong to the exchange's goroutine.
	first    int64
	answered bool
	// gone means that the client of the current exchange has left, or that Fail was called. It is set with mu held and
	// remains set for the rest of the exchange.
	gone atomic.Bool
	// lapsed means that a limit on the time of the current exchange has expired. It is set with mu held and remains set
	// for the rest of the exchange.
	lapsed atomic.Bool

	// movable is one of the constants in outcome.go: whether the request may be sent to another endpoint if the current
	// one does not acknowledge it, and whether the wait was interrupted for that.
	movable atomic.Uint32

	mu     sync.Mutex
	waiter interrupter    // what waits on behalf of the client; nil at other times
	tried  int64          // when the last attempt was sent, by the coarse clock
	left   bool           // the client has left for good
	cut    observe.Reason // why the gateway has ended the connection; 0 if it has not
}

// Since returns when the current wait for a backend began, by the coarse clock; 0 if there is none.
func (w *Watch) Since() int64 { return w.since.Load() }

// waits shows the sweeper that the exchange waits for a backend, from now on by the coarse clock, until waited is
// called.
func (w *Watch) waits(now int64) {
	if !w.answered {
		w.first = cmp.Or(w.first, now)
		now = w.first
	}
	w.since.Store(now)
}

func (w *Watch) waited() { w.since.Store(0) }

// forget makes later waits count from their own beginning: the wait before was not for a backend.
func (w *Watch) forget() { w.first = 0 }

// Interrupt ends the exchange whose wait for a backend began at since, because the client has left.
func (w *Watch) Interrupt(since int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.since.Load() == since { // otherwise that wait has ended, and perhaps the exchange
		w.interrupt()
	}
}

// Fail ends the current wait for a backend and all later ones of this exchange, because it cannot go on.
func (w *Watch) Fail() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.interrupt()
}

func (w *Watch) interrupt() {
	w.gone.Store(true)
	if w.waiter != nil {
		w.waiter.interrupt()
	}
}

// Expire interrupts the current wait, as a deadline does. The client has not left.
func (w *Watch) Expire() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.waiter != nil {
		w.waiter.interrupt()
	}
}

// lapse ends the current wait of an exchange and all later ones, as a deadline does. The client has not left.
func (w *Watch) lapse() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lapsed.Store(true)
	if w.waiter != nil {
		w.waiter.interrupt()
	}
}

// Suspend makes the exchange release its goroutines if it is a tunnel that moves nothing and can do without them. It
// also enables TCP keep-alive to the backend.
func (w *Watch) Suspend() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if t, ok := w.waiter.(tunnelWaiter); ok {
		t.suspend()
	}
}

// Leave is like Fail, for all later exchanges of the connection too.
func (w *Watch) Leave() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.left = true
	w.interrupt()
}

// Cut is like Leave, if the gateway and not the client has ended the connection. Its requests end with the reason:
// Shutdown has run out of time, or memory is scarce.
func (w *Watch) Cut(reason observe.Reason) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.left, w.cut = true, cmp.Or(w.cut, reason)
	w.interrupt()
}

// Reset prepares the watch for another client. No exchange may be in progress.
func (w *Watch) Reset() {
	w.mu.Lock()
	w.left, w.cut = false, 0
	w.lapsed.Store(false)
	w.gone.Store(false)
	w.mu.Unlock()
}

// WasCut returns why the gateway has ended the connection, and false if it has not.
func (w *Watch) WasCut() (reason observe.Reason, cut bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.cut, w.cut != 0
}

// start must be called at the beginning of an exchange.
func (w *Watch) start() {
	w.first, w.answered = 0, false
	if w.lapsed.Load() {
		w.lapsed.Store(false)
	}
	if !w.gone.Load() {
		return
	}
	w.mu.Lock()
	w.gone.Store(w.left)
	w.mu.Unlock()
}

// interrupter is something that waits for a backend. interrupt ends its current and later waits.
type interrupter interface{ interrupt() }

// interrupterFunc is a function that implements interrupter.
type interrupterFunc func()

func (f interrupterFunc) interrupt() { f() }

// begin sets what to interrupt when the client leaves or Fail is called. If that has already happened, i is interrupted
// at once.
func (w *Watch) begin(i interrupter) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.beginLocked(i)
}

func (w *Watch) beginLocked(i interrupter) {
	w.waiter = i
	if w.gone.Load() || w.lapsed.Load() {
		i.interrupt()
	}
}

// end undoes begin and reports whether the client has left.
func (w *Watch) end() (gone bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.waiter = nil
	return w.gone.Load()
}

// goneNow reports whether the client was found to have left.
func (w *Watch) goneNow() bool { return w.gone.Load() }
