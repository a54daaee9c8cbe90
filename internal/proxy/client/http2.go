package client

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/moongate-dev/moongate/internal/observe"
	"github.com/moongate-dev/moongate/internal/proxy/buffer"
	"github.com/moongate-dev/moongate/internal/proxy/exchange"
	"github.com/moongate-dev/moongate/internal/proxy/http1"
	"github.com/moongate-dev/moongate/internal/proxy/http2"
	"github.com/moongate-dev/moongate/internal/proxy/listen"
	"github.com/moongate-dev/moongate/internal/proxy/message"
)

// protocolHTTP2 is the ALPN name of HTTP/2 (RFC 9113 section 3.2).
const protocolHTTP2 = "h2"

// shortestPreface is the least number of bytes of the HTTP/2 preface that have arrived when the HTTP/1 parser rejects
// its version.
const shortestPreface = len("PRI * HTTP/2.0")

// startsHTTP2 reports whether a head that the HTTP/1 parser refused is the preface of HTTP/2 with prior knowledge (RFC
// 9113 section 3.3), at the beginning of a connection without TLS. So the check costs HTTP/1 requests nothing.
func (c *Conn) startsHTTP2() bool {
	if c.served || c.side.Mode.TLS() {
		return false
	}
	got := c.in[c.r:c.w]
	n := min(len(got), len(http2.Preface))
	return n >= shortestPreface && string(got[:n]) == http2.Preface[:n]
}

// serveHTTP2 runs the connection with HTTP/2, from its preface on, until it ends or is parked.
func (c *Conn) serveHTTP2() {
	prior := bytes.Clone(c.in[c.r:c.w])
	c.releaseAll()
	c.nc.SetReadDeadline(never)
	c.beHTTP2(http2.New(c.writingApart(), c.http2Options(), c.serveStream))
	c.runHTTP2(prior)
}

// beHTTP2 makes the connection use HTTP/2.
func (c *Conn) beHTTP2(h *http2.Conn) {
	c.side.Protocol = "HTTP/2.0"
	c.http2.Store(h)
}

func (c *Conn) http2Options() http2.Options {
	t := c.timeouts
	return http2.Options{
		MaxHeaderBytes:  c.set.engine.Limits.MaxHead,
		MaxFields:       c.set.engine.Limits.MaxFields,
		Timeouts:        http2.Timeouts{Idle: t.Idle, Head: t.Head, Write: t.WriteIdle, Linger: t.Linger},
		ExtendedConnect: true,
		ParkAfter:       c.set.parkHTTP2After,
		Scarce:          &c.set.engine.Overloaded,
		Unacknowledged:  func() int { return listen.Unsent(c.raw) },
		Refused:         c.refusedHTTP2,
		Panicked:        func(v any) { c.set.engine.Observer.Panicked("http2", v) },
	}
}

// wakeHTTP2 makes the connection, which is parked, use HTTP/2 as the dormant one did that it replaces. If d is nil, that one
// used HTTP/1.
func (c *Conn) wakeHTTP2(d *http2.Dormant) {
	if d != nil {
		c.beHTTP2(d.Wake(c.writingApart(), c.http2Options(), c.serveStream))
	}
}

// goOnHTTP2 runs an HTTP/2 connection that was parked or dormant. If it was woken in order to end, it does.
func (c *Conn) goOnHTTP2() {
	h := c.http2.Load()
	switch {
	case c.state.Load() == countedEnding: // to make room
		if idle, used := h.Idle(0); idle && !h.EndIfIdle(c.leastIdle(0, used)) { // it is not idle if it is ending already
			c.set.readmit(&c.counted)
		}
	case c.set.engine.Draining.Load():
		h.Drain()
	}
	c.runHTTP2(nil)
}

// runHTTP2 runs a new HTTP/2 connection, or one that was parked, until it ends or is parked.
func (c *Conn) runHTTP2(prior []byte) {
	h := c.http2.Load()
	for h.Serve(prior) == http2.ErrParked { // another error is a protocol error of the client that concerns no request
		if c.parkHTTP2(h) {
			return
		}
		h.NeverPark() // otherwise Serve would return ErrParked each second
		prior = nil
	}
	c.end()
}

// refusedHTTP2 counts a request that was refused before an exchange began.
func (c *Conn) refusedHTTP2(status int, _ error) {
	r := observe.Record{
		StartUnixNano: time.Now().UnixNano(),
		ClientAddr:    c.side.Peer,
		Scheme:        "http",
		Protocol:      c.side.Protocol,
		Reason:        observe.ReasonBadRequest,
		Stats:         c.side.Socket.Stats.Unrouted(),
	}
	if c.side.Mode.TLS() {
		r.Scheme = "https"
	}
	switch status {
	case http.StatusRequestHeaderFieldsTooLarge:
		r.Status, r.Reason = status, observe.ReasonHeadTooLarge // for the other reasons the client gets a reset
	case http.StatusServiceUnavailable:
		r.Reason = observe.ReasonOverloaded
	}
	c.set.engine.Observer.Finish(&r)
}

// errLength cannot occur, since package http2 counts the bytes too. It is a second check, because what a backend takes
// for the end of a request must be its end.
var errLength = errors.New("body is not as long as its Content-Length")

// stream is an HTTP/2 stream as an exchange sees it. It is reused for other streams.
type stream struct {
	c     *Conn
	s     *http2.Stream
	side  exchange.Client
	watch exchange.Watch
	ex    *exchange.Exchange
	head  http1.RequestHead
	leave func(cause error) // the method gone, bound once

	received int64 // bytes of the body received
	stopped  atomic.Bool
	// refusing means that the response reports an error in this request only.
	refusing bool

	limit limit

	// The fields below are for a tunnel.
	own                 *streamTunnel // nil before the first tunnel
	toClient, toBackend waitState
}

var streams sync.Pool

// takeStream returns a stream that is not in use.
func takeStream(e *exchange.Engine) *stream {
	if d, ok := streams.Get().(*stream); ok {
		return d
	}
	e.Budget.Spend(exchange.Cost)
	d := &stream{ex: exchange.New()}
	d.leave = d.gone
	d.limit.expire = d.limit.expired
	return d
}

// serveStream carries out the request of one stream.
func (c *Conn) serveStream(s *http2.Stream) {
	d := takeStream(c.set.engine)
	d.c, d.s = c, s
	defer d.recovered(s)
	d.side = c.side
	d.side.Watch, d.side.Body, d.side.Response, d.side.Limiter = &d.watch, d, d, d
	d.side.Switcher, d.side.Suspends = nil, true
	d.ex.Client = &d.side
	d.limit.stream, d.limit.engine = s, c.set.engine
	s.OnGone(d.leave)
	d.endUnless(d.run())
}

// Resume implements http2.Suspended.
func (d *stream) Resume() {
	defer d.recovered(d.s)
	d.limit.resume()
	d.endUnless(d.ex.Resume().Suspended)
}

// Await implements http2.Suspended.
func (d *stream) Await(wake func()) bool { return d.ex.Await(wake) }

// endUnless ends the stream after its exchange, or suspends the stream if the exchange is suspended.
func (d *stream) endUnless(suspended bool) {
	if suspended {
		d.head = http1.RequestHead{}
		d.limit.suspend()
		d.s.Suspend(d)
		return
	}
	if d.ex.OutOfTime() {
		d.s.Reset(http2.Cancel) // gRPC clients take it as the deadline being exceeded, once their own clock agrees
	}
	d.s.OnGone(nil)
	d.watch.Reset()
	d.limit.stream = nil
	d.c, d.s, d.ex.Client, d.received, d.refusing = nil, nil, nil, 0, false
	d.stopped.Store(false)
	d.limit.late.Store(false)
	streams.Put(d)
}

// recovered is deferred by serveStream. A panic ends only the stream, and its pooled objects are not reused.
func (d *stream) recovered(s *http2.Stream) {
	if v := recover(); v != nil {
		d.ex.Panicked(v)
		s.OnGone(nil)
		d.c.tunnels.remove(d)
		d.leavePlace()
		d.limit.writeBy(time.Time{})
		s.Reset(http2.InternalError)
	}
}

// gone is called when the client has given up the stream, or the connection has ended.
func (d *stream) gone(cause error) {
	if d.limit.late.Load() {
		return // the proxy reset the stream itself, and the backend has the same deadline
	}
	reason, cut := d.c.watch.WasCut()
	switch {
	case cut:
		d.watch.Cut(reason)
	case cause == http2.ErrStarved:
		d.watch.Cut(observe.ReasonOverloaded)
	default:
		d.watch.Leave()
	}
}

// run carries out the request and reports whether the exchange is suspended.
func (d *stream) run() (suspended bool) {
	x, h := d.ex, &d.s.Head
	x.Begin()
	method, extended := h.Method, len(h.Protocol) > 0
	if extended {
		method = methodGet
	}
	err := d.head.Adopt(method, h.Scheme, h.Authority, h.Path, &x.Request.Request, &d.c.set.engine.Limits)
	refused, _ := err.(*http1.Error) // errors.As would allocate
	switch {
	case refused != nil:
		d.refusing = true
		x.Refuse(refused.Status, reasonOf(refused))
		return false
	case h.ExpectOther:
		d.refusing = true
		x.Refuse(http.StatusExpectationFailed, observe.ReasonExpectationFailed)
		return false
	}
	d.s.SwapFields(&x.Header)
	x.Target = h.Path
	if len(h.Path) == 0 { // CONNECT
		x.Target = h.Authority
	}
	x.ExpectContinue, x.TETrailers, x.Upgrade, x.Extended = h.ExpectContinue, h.TETrailers, nil, false
	d.head.Consumed = message.Consumed{Length: h.Length, TETrailers: h.TETrailers, ExpectContinue: h.ExpectContinue}
	if extended || string(method) == http.MethodConnect {
		return d.runTunnel(extended)
	}
	if status, reason := d.takeBody(); reason != observe.ReasonOK {
		d.refusing = true
		x.Refuse(status, reason)
		return false
	}
	return x.Run().Suspended
}

// runTunnel carries out a CONNECT or extended CONNECT (RFC 8441). If the tunnel breaks off, the stream is reset (RFC
// 9113 section 8.5, RFC 8441 section 5).
func (d *stream) runTunnel(extended bool) (suspended bool) {
	if h := &d.s.Head; !extended && h.HasBody && h.ContentLength >= 0 {
		d.refusing = true
		d.ex.Refuse(http.StatusBadRequest, observe.ReasonBadRequest) // a tunnel has no content (RFC 9110 section 9.3.6)
		return false
	}
	if !d.takePlace() {
		d.refusing = true
		d.ex.Refuse(http.StatusServiceUnavailable, observe.ReasonOverloaded)
		return false
	}
	if d.beginTunnel(); extended {
		d.extend()
	}
	outcome := d.ex.Run()
	if d.c.tunnels.remove(d) && !outcome.Complete {
		code := http2.ConnectError
		if extended {
			code = http2.Cancel
		}
		d.s.Reset(code)
	}
	d.leavePlace()
	return outcome.Suspended
}

// takeBody sets what body the backend is to expect, and takes as much of it as has arrived. If the reason is not OK,
// the request cannot be sent.
func (d *stream) takeBody() (status int, reason observe.Reason) {
	x, h := d.ex, &d.s.Head
	x.Whole, x.Streamed, x.Framing, x.Length = nil, false, http1.NoBody, -1
	if !h.HasBody {
		switch string(h.Method) {
		case "POST", "PUT", "PATCH": // RFC 9110 section 8.6
			x.Framing, x.Length = http1.Length, 0
		}
		return 0, observe.ReasonOK
	}
	x.Framing, x.Streamed = http1.Chunked, true
	if h.ContentLength >= 0 {
		x.Framing, x.Length = http1.Length, h.ContentLength
	}
	if h.ExpectContinue {
		return 0, observe.ReasonOK
	}
	if h.ContentLength == 0 {
		// Such a request has only a head for the backend, so it is not sent before it is certain that no body follows.
		if err := d.await(); err != io.EOF {
			return brokenBody(err)
		}
	}
	// What has arrived of an unfinished body stays with its stream, which uses no more memory than that.
	n, last := d.s.Buffered()
	if !last || n > buffer.Size || hasFields(d.s.Trailers()) {
		return 0, observe.ReasonOK
	}
	x.Framing, x.Length, x.Streamed = http1.Length, int64(n), false
	x.Whole = x.Hold(n)
	if got, err := d.read(x.Whole); got < n {
		return brokenBody(err)
	}
	return 0, observe.ReasonOK
}

// brokenBody returns the status and reason of a request whose body could not be awaited.
func brokenBody(err error) (status int, reason observe.Reason) {
	var reset *http2.ResetError
	switch {
	case isTimeout(err):
		return http.StatusRequestTimeout, observe.ReasonClientTimeout
	case errors.Is(err, exchange.ErrHeldBack):
		return observe.ReasonOverloaded.Status(), observe.ReasonOverloaded
	case errors.As(err, &reset) && !reset.ByPeer:
		return 0, observe.ReasonBadRequestBody
	}
	return 0, observe.ReasonClientClosed
}

// await waits until a part of the body has arrived. It returns io.EOF if there is no more. A client that is being
// answered, or that makes a gRPC call, may be silent for as long as it wants; PING shows whether it is still there.
func (d *stream) await() error {
	for {
		d.s.ReadBy(time.Now().Add(d.c.timeouts.BodyIdle))
		if d.stopped.Load() {
			return http2.ErrClosed
		}
		err := d.s.Wait()
		switch {
		case !errors.Is(err, os.ErrDeadlineExceeded) || d.stopped.Load():
			return err
		case d.s.Withheld():
			return exchange.ErrHeldBack
		case !d.ex.MayBeSilent() && !d.s.Answered():
			return err
		}
	}
}

// read fills buf with what has arrived of the body. It returns io.EOF together with the last bytes.
func (d *stream) read(buf []byte) (n int, err error) {
	d.s.ReadBy(longAgo)
	if d.stopped.Load() {
		return 0, http2.ErrClosed
	}
	for n < len(buf) {
		got, err := d.s.Read(buf[n:])
		n += got
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			return n, nil
		case err != nil:
			return n, err
		}
	}
	return n, nil
}

// Next implements exchange.Body.
func (d *stream) Next(buf exchange.Buffer, wait bool) (data []byte, last bool, err error) {
	if there, ended := d.s.Buffered(); there == 0 && !ended {
		if !wait {
			return nil, false, nil
		}
		if err = d.await(); err != nil && err != io.EOF {
			return nil, false, err
		}
	}
	into := buf.Take()
	n, err := d.read(into)
	if last = err == io.EOF; !last && err != nil {
		return nil, false, err
	}
	d.received += int64(n)
	if l := d.ex.Length; l >= 0 && (d.received > l || last && d.received < l) {
		return nil, false, errLength
	}
	return into[:n], last, nil
}

// Trailer implements exchange.Body.
func (d *stream) Trailer() *message.Fields { return d.s.Trailers() }

// Stop implements exchange.Body. It takes no lock: it is also called when the client has reset the stream, by the
// goroutine that holds the connection's lock.
func (d *stream) Stop() {
	d.stopped.Store(true)
	d.s.InterruptReads()
}

// Interim implements exchange.Response.
func (d *stream) Interim(r *message.Response) error {
	if err := d.limit.begin(); err != nil {
		return err
	}
	return d.limit.end(d.s.WriteInformational(r.Status, &r.Header))
}

// Start implements exchange.Response.
func (d *stream) Start(h exchange.Head, p exchange.Part) error {
	if h.Close && !d.refusing {
		d.c.http2.Load().Drain()
	}
	length := int64(-1)
	if h.Framing == http1.Length || h.Framing == http1.NoBody && h.Status != http.StatusNoContent {
		length = h.Length
	}
	if err := d.limit.begin(); err != nil {
		return err
	}
	end := p.Last && p.At == p.End && !hasFields(p.Trailer)
	err := d.s.WriteHead(h.Status, &h.Header, length, end)
	if err == nil && !end {
		err = d.write(&p)
	}
	return d.limit.end(err)
}

// More implements exchange.Response.
func (d *stream) More(p exchange.Part) error {
	if err := d.limit.begin(); err != nil {
		return err
	}
	return d.limit.end(d.write(&p))
}

// write sends a part of the body, which may be empty, after any head that still waits to be sent.
func (d *stream) write(p *exchange.Part) error {
	if p.At < p.End {
		d.c.noteBuffer(p)
	}
	if !p.Last || !hasFields(p.Trailer) {
		return d.s.Write(p.Data(), p.Last)
	}
	if err := d.s.Write(p.Data(), false); err != nil {
		return err
	}
	return d.s.WriteTrailers(p.Trailer)
}

func hasFields(f *message.Fields) bool { return f != nil && f.Len() > 0 }

// WriteBy implements exchange.Limiter.
func (d *stream) WriteBy(t time.Time) { d.limit.writeBy(t) }
