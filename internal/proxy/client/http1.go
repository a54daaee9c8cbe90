package client

import (
	"bytes"
	"io"
	"net"
	"net/http"
	"os"
	"sync/atomic"
	"time"

	"github.com/moongate-dev/moongate/internal/observe"
	"github.com/moongate-dev/moongate/internal/proxy/exchange"
	"github.com/moongate-dev/moongate/internal/proxy/http1"
	"github.com/moongate-dev/moongate/internal/proxy/message"
)

// copyLimit is the largest size in bytes at which data is copied after a head for a single write. Above it, one system
// call with two pieces is cheaper.
const copyLimit = 4 << 10

// lastChunk ends a chunked body without a trailer section.
const lastChunk = "0\r\n\r\n"

// http1State is what an HTTP/1 connection needs while it has a request. It is reused for all requests of the
// connection, and for other connections afterwards.
type http1State struct {
	ex   *exchange.Exchange
	head http1.RequestHead
	body http1.Body // of a request that did not arrive as a whole
	rest []byte     // bytes after that body
	out  []byte     // bytes to the client: the response head, chunk heads
	// framing is that of the response body to the client, set when its head is made.
	framing http1.Framing
	// keep means that the response lets the connection persist.
	keep bool
	// stopped means that reading was interrupted, possibly by two timers at the same time.
	stopped atomic.Bool
	// complete means that the whole response was sent.
	complete bool
	// sends means that the client may send more after what was read of its request.
	sends bool
	// linger means that the connection must be closed by Conn.closeLingering.
	linger bool
}

// run carries out the request whose head of n bytes is at in[r:]. It reports whether the connection can take another
// request, and whether it is away: its tunnel is suspended, and another goroutine may own the connection.
func (c *Conn) run(n int) (keep, away bool) {
	st := c.h1
	x := st.ex
	if c.set.engine.Logging {
		x.Target = targetOf(c.in[c.r : c.r+n])
	}
	c.takeBody(n)
	h := &st.head
	c.side.Protocol = "HTTP/1.1"
	if h.Minor == 0 {
		c.side.Protocol = "HTTP/1.0"
	}
	x.Framing, x.Length, x.ExpectContinue, x.TETrailers, x.Upgrade = h.Framing, h.ContentLength, h.ExpectContinue, h.TETrailers, nil
	if !x.Streamed && len(x.Whole) == 0 && h.Form != http1.Authority {
		x.Upgrade = h.Upgrade
	}
	more := h.KeepAlive || h.Form == http1.Authority // a client may send data for the tunnel before it is open
	if h.Form == http1.Authority {
		h.KeepAlive = false // the following bytes may be meant for the tunnel
	}
	st.framing, st.keep = http1.NoBody, false
	if st.stopped.Load() {
		st.stopped.Store(false)
	}
	st.sends = more || x.Streamed // the next request, or the rest of this one
	return c.ran(x.Run())
}

// ran completes an exchange, or a part of one that may be suspended. It returns the results of run.
func (c *Conn) ran(outcome exchange.Outcome) (keep, away bool) {
	if outcome, away = c.unlessSuspended(outcome); away {
		return false, true
	}
	st := c.h1
	streamed := st.ex.Streamed
	st.complete = outcome.Complete
	keep = st.keep && outcome.Complete && outcome.Read
	st.linger = st.complete && !keep && st.sends
	if !st.complete && st.framing == http1.UntilClose {
		c.tcp.ResetOnClose() // only a reset distinguishes this end from that of a complete body
	}
	if st.stopped.Load() {
		c.nc.SetReadDeadline(never)
	}
	c.served = true
	if keep && streamed && len(st.rest) > 0 {
		c.unread(st.rest)
	}
	return keep, false
}

// targetOf returns the request target as received.
func targetOf(head []byte) []byte {
	head = bytes.TrimPrefix(head, []byte("\r\n"))
	_, rest, _ := bytes.Cut(head, []byte(" "))
	target, _, _ := bytes.Cut(rest, []byte(" "))
	return target
}

// isWhole reports whether the whole request with the head of n bytes at in[r:] has arrived, and no bytes after it
// belong to it. It returns false for Upgrade and CONNECT, whose outcome is not known yet.
func (c *Conn) isWhole(n int) bool {
	h := &c.h1.head
	if h.Upgrade != nil || h.Form == http1.Authority {
		return false
	}
	switch h.Framing {
	case http1.NoBody:
		return true
	case http1.Length:
		return h.ContentLength <= int64(c.w-c.r-n)
	}
	return false
}

// takeBody advances past the head and, if the whole body has arrived, past the body.
func (c *Conn) takeBody(head int) {
	st := c.h1
	c.r += head
	st.ex.Whole, st.ex.Streamed = nil, false
	switch h := &st.head; h.Framing {
	case http1.NoBody:
		return
	case http1.Length:
		if n := h.ContentLength; n <= int64(c.w-c.r) {
			st.ex.Whole = c.in[c.r : c.r+int(n)]
			c.r += int(n)
			return
		}
	}
	st.ex.Streamed = true
	st.body.Init(st.head.Framing, st.head.ContentLength, &c.set.engine.Limits)
	st.rest = st.rest[:0]
}

// unread puts back bytes that were read after a request.
func (c *Conn) unread(b []byte) {
	c.r, c.w = 0, 0
	for len(b) > len(c.in) {
		c.grow()
	}
	c.w = copy(c.in, b)
}

// refuse answers a head that could not be parsed, and ends the connection.
func (c *Conn) refuse(err error) {
	st := c.http1State()
	st.head = http1.RequestHead{Minor: 1}
	c.side.Protocol = "HTTP/1.1"
	switch e := err.(type) {
	case *http1.Error:
		st.complete = st.ex.Refuse(e.Status, reasonOf(e))
	default:
		if err == errHeadTimeout {
			c.nc.SetReadDeadline(never)
			st.complete = st.ex.Refuse(observe.ReasonClientTimeout.Status(), observe.ReasonClientTimeout)
		} else {
			st.complete = st.ex.Refuse(0, observe.ReasonClientClosed)
		}
	}
	st.linger = st.complete
}

// reasonOf returns the reason word for a message that the parser refused.
func reasonOf(e *http1.Error) observe.Reason {
	switch e.Status {
	case http.StatusRequestURITooLong:
		return observe.ReasonTargetTooLong
	case http.StatusExpectationFailed:
		return observe.ReasonExpectationFailed
	case http.StatusRequestHeaderFieldsTooLarge:
		return observe.ReasonHeadTooLarge
	case http.StatusNotImplemented:
		return observe.ReasonNotImplemented
	case http.StatusHTTPVersionNotSupported:
		return observe.ReasonVersionNotSupported
	}
	return observe.ReasonBadRequest
}

// http1Side is an HTTP/1 connection as an exchange sees it.
type http1Side struct{ c *Conn }

// Next implements exchange.Body.
func (s http1Side) Next(b exchange.Buffer, wait bool) (data []byte, last bool, err error) {
	c, st := s.c, s.c.h1
	for {
		n, read := 0, c.r == c.w && wait
		if read {
			if n, err = c.readBody(b); n == 0 {
				if err == nil {
					err = io.ErrUnexpectedEOF
				}
				return nil, false, err
			}
		}
		buf := b.Take()
		if !read {
			n = copy(buf, c.in[c.r:c.w])
			c.r += n
		}
		data, used, err := st.body.Decode(buf[:n])
		if err != nil {
			return nil, false, err
		}
		if last = st.body.Done(); last {
			if read {
				st.rest = append(st.rest[:0], buf[used:n]...)
			} else {
				c.r -= n - used
			}
		}
		if len(data) > 0 || last || !wait {
			return data, last, nil
		}
		b.Give()
	}
}

// readBody reads more of the body from the client.
func (c *Conn) readBody(b exchange.Buffer) (int, error) {
	for {
		c.bodyWait.set(waitRead, c.set.engine.Now()+c.timeouts.BodyIdle.Milliseconds())
		var n int
		var err error
		if c.set.plainIO {
			n, err = c.nc.Read(b.Take())
		} else {
			n, err = c.readSocket(b)
		}
		if !c.leave(&c.bodyWait) {
			return 0, os.ErrDeadlineExceeded
		}
		if n > 0 || err != nil {
			return n, err
		}
	}
}

// Trailer implements exchange.Body.
func (s http1Side) Trailer() *message.Fields {
	st := s.c.h1
	if st.head.Framing != http1.Chunked {
		return nil
	}
	trailer := st.body.Trailer()
	st.head.DropNominated(trailer)
	return trailer
}

// Stop implements exchange.Body.
func (s http1Side) Stop() {
	s.c.h1.stopped.Store(true)
	s.c.nc.SetReadDeadline(longAgo)
}

// WriteBy implements exchange.Limiter.
func (s http1Side) WriteBy(t time.Time) { s.c.nc.SetWriteDeadline(t) }

// Interim implements exchange.Response. HTTP/1.0 has no interim responses (RFC 9110 section 15.2).
func (s http1Side) Interim(r *message.Response) error {
	st := s.c.h1
	if st.head.Minor == 0 {
		return nil
	}
	st.out = http1.AppendResponseHead(st.out[:0], r, http1.NoBody, -1, http1.Hop{})
	return s.c.write(st.out, false)
}

// Start implements exchange.Response.
func (s http1Side) Start(h exchange.Head, p exchange.Part) error {
	st := s.c.h1
	st.framing = h.Framing
	if h.Framing == http1.Chunked || h.Framing == http1.UntilClose {
		st.framing = http1.Chunked
		if st.head.Minor == 0 {
			st.framing = http1.UntilClose
		}
	}
	st.keep = st.head.KeepAlive && !h.Close && !h.Unread && st.framing != http1.UntilClose
	hop := http1.Hop{Close: !st.keep, KeepAlive: st.keep && st.head.Minor == 0}
	if st.head.Minor > 0 {
		hop.Upgrade = h.Upgrade
	}
	st.out = http1.AppendResponseHead(st.out[:0], h.Response, st.framing, h.Length, hop)
	return s.c.send(&p)
}

// More implements exchange.Response.
func (s http1Side) More(p exchange.Part) error {
	s.c.h1.out = s.c.h1.out[:0]
	return s.c.send(&p)
}

// send writes st.out followed by a part of the body: in one write if there is room for st.out before the part, or if
// one of them is short.
func (c *Conn) send(p *exchange.Part) error {
	st := c.h1
	chunked := st.framing == http1.Chunked
	data := p.Data()
	c.noteBuffer(p)
	if chunked && len(data) > 0 {
		st.out = http1.AppendChunkHead(st.out, len(data))
	}
	if len(data) > 0 && len(st.out) <= p.At && len(p.Buf)-p.End >= len(http1.ChunkEnd)+len(lastChunk) {
		start, end := p.At-len(st.out), p.End
		copy(p.Buf[start:], st.out)
		if chunked {
			end += copy(p.Buf[end:], http1.ChunkEnd)
			if p.Last && (p.Trailer == nil || p.Trailer.Len() == 0) {
				end += copy(p.Buf[end:], lastChunk)
				return c.write(p.Buf[start:end], p.Last)
			}
		}
		if err := c.write(p.Buf[start:end], p.Last && !chunked); err != nil || !chunked || !p.Last {
			return err
		}
		st.out = http1.AppendLastChunk(st.out[:0], p.Trailer)
		return c.write(st.out, p.Last)
	}
	if len(data) > copyLimit {
		if err := c.writeBoth(st.out, data); err != nil {
			return err
		}
		st.out = st.out[:0]
	} else {
		st.out = append(st.out, data...)
	}
	if chunked {
		if len(data) > 0 {
			st.out = append(st.out, http1.ChunkEnd...)
		}
		if p.Last {
			st.out = http1.AppendLastChunk(st.out, p.Trailer)
		}
	}
	return c.write(st.out, p.Last)
}

// ends reports whether the connection is to be closed after the response and the client has sent all that it may send.
func (st *http1State) ends() bool {
	return !st.keep && !st.sends && st.head.Upgrade == nil && st.head.Form != http1.Authority
}

// write sends bytes to the client; last reports whether they end a response.
func (c *Conn) write(b []byte, last bool) error {
	if len(b) == 0 {
		return nil
	}
	if c.nc == net.Conn(c.tcp) {
		if b = c.writeRaw(b, last && c.h1.ends()); len(b) == 0 { // nothing waits, as usual
			return nil
		}
	}
	c.wait.set(waitWrite, c.set.engine.Now()+c.timeouts.WriteIdle.Milliseconds())
	_, err := c.nc.Write(b)
	return c.wrote(err)
}

// writeBoth writes two pieces, with one system call if possible.
func (c *Conn) writeBoth(head, data []byte) error {
	c.wait.set(waitWrite, c.set.engine.Now()+c.timeouts.WriteIdle.Milliseconds())
	var err error
	if c.nc == net.Conn(c.tcp) {
		err = c.tcp.WriteBoth(head, data)
	} else {
		parts := net.Buffers{head, data}
		_, err = parts.WriteTo(c.nc)
	}
	return c.wrote(err)
}

// wrote ends the wait of a write to the client that returned err.
func (c *Conn) wrote(err error) error {
	if !c.leave(&c.wait) && err == nil {
		return os.ErrDeadlineExceeded // the next write would fail with it too
	}
	return err
}
