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

// Client is the side of an exchange that faces the client: what is known of the client, and
// how to hear it and to speak to it. The protocol in use fills it in; it may serve any
// number of exchanges, one at a time.
type Client struct {
	Engine *Engine
	Socket *snapshot.Socket
	Peer   netip.AddrPort
	// PeerText is the client's IP address as X-Forwarded-For shows it.
	PeerText []byte
	Mode     snapshot.Mode // of the listener that the connection is for; before that is known, of the port when it was accepted
	// Suspends: Run may return before the end, see Outcome.Suspended.
	Suspends bool
	// ServerName is the SNI of the TLS handshake, or of one that is passed on, in lower case, empty where there was none.
	ServerName []byte
	// TLSPeer is who the client has shown to be in the TLS handshake.
	TLSPeer  *tls.Peer
	Protocol string // for the access log: "HTTP/1.1", "HTTP/1.0", "HTTP/2.0"

	Body     Body // asked where Exchange.Streamed is set only
	Response Response
	Limiter  Limiter
	Watch    *Watch
	// Switcher is nil where the client's protocol cannot be left, or the stream not become a tunnel.
	Switcher Switcher
}

// Switcher leaves the client's protocol.
type Switcher interface {
	// Switch sends a final head that says so, where the client's protocol has it by the name of the next one.
	Switch(resp *message.Response, protocol []byte) error
	// Duplex returns the connection as the end of a tunnel: what the client has sent behind its request is read first. The client's side is not used
	// for anything else after that, but to be ended, and the bytes of the request are not valid any more.
	Duplex() tunnel.Duplex
	// Moved is called as Tunnel.Moved is.
	Moved(to tunnel.Side, writing bool)
}

// Body reads a request body that did not come whole with its head, on a goroutine of its own.
type Body interface {
	// Next gives the next part of the body, which stands in buf's memory: with wait at least one byte
	// unless last is set, without wait what is there already, maybe nothing. last tells that the body ends with this part. An
	// *http1.Error is a malformed body, os.ErrDeadlineExceeded a client that was too slow, ErrHeldBack one
	// that was kept from sending, and any other error a client that left.
	Next(buf Buffer, wait bool) (data []byte, last bool, err error)
	// Trailer is the trailer section of a body that has ended, without the fields that
	// concern this hop only. nil and empty are the same.
	Trailer() *message.Fields
	// Stop makes a Next under way, and all later ones, return an error soon.
	Stop()
}

// ErrHeldBack is that nothing of a body came because memory is scarce, and its sender may send no more.
var ErrHeldBack = errors.New("exchange: request body held back")

// Buffer is memory to read to. It is taken when something is there to be read, and given back for a wait, so that requests which wait
// hold none.
type Buffer interface {
	Take() []byte // the same until Give
	Give()
}

// Response takes what the client gets. Errors are os.ErrDeadlineExceeded where the client was too
// slow to take it, and anything else where it is gone; nothing is sent after one.
type Response interface {
	// Interim sends a 1xx head other than 101; a protocol without them drops it.
	Interim(*message.Response) error
	// Start sends the final head and the first part of the body, which may be empty.
	Start(Head, Part) error
	// More sends a further part of the body.
	More(Part) error
}

// located is a Response of which is known where its client has connected to. It is asked seldom, so that the address is not kept for each stream.
type located interface {
	// Local is the zero value where it is not known any more.
	Local() netip.AddrPort
}

// keeper is a Response whose connection is asked what it holds of request bodies.
type keeper interface {
	// Keep notes that it is so many bytes more of Engine.Kept, or less. It may be called by any goroutine.
	Keep(bytes int64)
}

// Limiter bounds what a Response does by the timeouts of a rule.
type Limiter interface {
	// WriteBy makes writes that are not done by t fail with os.ErrDeadlineExceeded; zero is never.
	WriteBy(t time.Time)
}

// Head is the head of a final response.
type Head struct {
	*message.Response
	// Framing and Length tell what body follows: Length bytes where Framing is Length, an unknown
	// number with Chunked and UntilClose. With NoBody, a Length of 0 or more is that of the
	// body that another method or status would have had.
	Framing http1.Framing
	Length  int64
	// Close: the client's connection should take no further requests.
	Close bool
	// Unread: the request body will not be read to its end.
	Unread bool
	// Upgrade is what a 426 asks for, nil where nothing is known of it. Protocols without the field drop it.
	Upgrade []byte
}

// Part is Buf[At:End], a part of a body. The rest of Buf is free to be written to.
type Part struct {
	Buf     []byte
	At, End int
	// Last tells that the body ends with this part, and Trailer then what follows it; nil is nothing.
	Last    bool
	Trailer *message.Fields
}

// Data are the bytes of the part.
func (p *Part) Data() []byte { return p.Buf[p.At:p.End] }

// IsLittle reports whether the part stands in a little buffer, of which Buf may be the beginning.
func (p *Part) IsLittle() bool { return cap(p.Buf) == buffer.LittleSize }

// longAgo as a deadline interrupts a blocked read or write.
var longAgo = time.Unix(1, 0)

// Watch ends the wait of an exchange for its backend when the client has left. The zero
// value is ready; a connection uses one for all its requests. It is safe for concurrent use.
type Watch struct {
	// since is when the present wait for a backend began, by the coarse clock; 0 without one. All waits before a response count as one, so
	// that a request which is retried again and again is one that waits long.
	since atomic.Int64
	// first is when the first of these began, 0 before it, and answered that the response has come; of the exchange's goroutine alone.
	first    int64
	answered bool
	// gone tells that the client of the present exchange has left, or failed it. It is set with mu held, and stays for all waits
	// of the exchange.
	gone atomic.Bool
	// lapsed tells that the present exchange has lost its time. It is set with mu held, and stays for all waits of the exchange.
	lapsed atomic.Bool

	// movable is whether the request may be sent to another endpoint where that which it was sent to does not acknowledge it, or was interrupted for that.
	movable atomic.Uint32

	mu     sync.Mutex
	waiter interrupter    // what waits on behalf of the client, nil at other times
	tried  int64          // when the last attempt was sent, by the coarse clock
	left   bool           // for good
	cut    observe.Reason // why we have ended the connection; 0 where we have not
}

// Since is when the wait for a backend began that is under way, by the coarse clock; 0 without one.
func (w *Watch) Since() int64 { return w.since.Load() }

// waits shows the sweeper that a backend is waited for, now by the coarse clock, until waited is called.
func (w *Watch) waits(now int64) {
	if !w.answered {
		w.first = cmp.Or(w.first, now)
		now = w.first
	}
	w.since.Store(now)
}

func (w *Watch) waited() { w.since.Store(0) }

// forget has the waits that follow begin a count of their own: what was waited for before was no backend.
func (w *Watch) forget() { w.first = 0 }

// Interrupt ends the exchange whose wait for a backend began at since: the client has left.
func (w *Watch) Interrupt(since int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.since.Load() == since { // else that wait is over, and maybe the exchange
		w.interrupt()
	}
}

// Fail ends the present wait for a backend and all that follow in this exchange: it cannot go on.
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

// Expire interrupts what waits on behalf of the client, as by a deadline. The client has not left.
func (w *Watch) Expire() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.waiter != nil {
		w.waiter.interrupt()
	}
}

// lapse ends the present wait of an exchange, as by a deadline, and all that follow. The client has not left.
func (w *Watch) lapse() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lapsed.Store(true)
	if w.waiter != nil {
		w.waiter.interrupt()
	}
}

// Suspend has the exchange give up its goroutines, if it is a tunnel through which nothing moves and they can be spared, and has the system look after its
// backend.
func (w *Watch) Suspend() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if t, ok := w.waiter.(tunnelWaiter); ok {
		t.rest()
	}
}

// Leave is Fail, of all later exchanges too.
func (w *Watch) Leave() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.left = true
	w.interrupt()
}

// Cut is Leave where not the client but we have ended the connection, for a reason that its requests end with: Shutdown, which has lost
// its patience, or want of memory.
func (w *Watch) Cut(reason observe.Reason) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.left, w.cut = true, cmp.Or(w.cut, reason)
	w.interrupt()
}

// Reset makes the watch ready for another client. No exchange may be under way.
func (w *Watch) Reset() {
	w.mu.Lock()
	w.left, w.cut = false, 0
	w.lapsed.Store(false)
	w.gone.Store(false)
	w.mu.Unlock()
}

// WasCut returns why we have ended the connection; false is that we have not.
func (w *Watch) WasCut() (reason observe.Reason, cut bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.cut, w.cut != 0
}

// start is called at the beginning of an exchange.
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

// interrupter is what waits for a backend: interrupt ends the wait, and those that follow.
type interrupter interface{ interrupt() }

// interrupterFunc is an interrupter that is called.
type interrupterFunc func()

func (f interrupterFunc) interrupt() { f() }

// begin names what to interrupt when the client leaves, or fails the exchange. Where it has done so already, that is interrupted at once.
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

// end ends that and reports whether the client left.
func (w *Watch) end() (gone bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.waiter = nil
	return w.gone.Load()
}

// goneNow tells whether the client was found to have left.
func (w *Watch) goneNow() bool { return w.gone.Load() }
