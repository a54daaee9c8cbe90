package exchange

import (
	"bytes"
	"errors"
	"io"
	"net"
	"time"
	"unsafe"

	"github.com/moongate-dev/moongate/internal/proxy/buffer"
	"github.com/moongate-dev/moongate/internal/proxy/http1"
	"github.com/moongate-dev/moongate/internal/proxy/message"
	"github.com/moongate-dev/moongate/internal/proxy/tunnel"
	"github.com/moongate-dev/moongate/internal/proxy/upstream"
)

// http1Transport is the transport for HTTP/1.1. Its memory is kept for the next attempt.
type http1Transport struct {
	a *attempt
	u *upstream.Conn

	out []byte // bytes to send next: the head with a short body after it, or chunk heads
	// body is the request body that readHead sends after out.
	body    []byte
	chunked bool // for the request body
	// own means that the connection was made for this request only.
	own bool
	// expects means that the backend was asked to send a 100 before the body and has not done so: if it does not read
	// the body, it would take the body for the next request.
	expects bool
	// answeredEarly means that the response has begun before the last byte of the body was sent.
	answeredEarly bool
	// authenticated means that the request may have authenticated the connection to the backend, which must then serve
	// no other client.
	authenticated bool
	// sent means that the request was sent, or that the sender of its body does so.
	sent bool
	// parts and buffers are for net.Buffers.WriteTo, which would allocate local ones.
	parts   [2][]byte
	buffers net.Buffers

	at, limit int   // attempt.buf[at:limit] was read but not consumed
	readErr   error // of the last read
	head      http1.ResponseHead
	response  http1.Body
	nominated []byte // copies of the fields that head needs when the trailer section arrives
}

// ampleRead is how many bytes a read must return for more to be likely to have arrived meanwhile. For a body that
// arrives slowly each further read would be in vain.
const ampleRead = 16 << 10

// open implements transport.
func (t *http1Transport) open(r *Request, first []byte, last bool) error {
	if d := t.a.deadline; !d.IsZero() {
		t.u.SetDeadline(d) //nolint:errcheck // if the socket is broken, writing fails
	}
	hop := http1.Hop{TETrailers: r.TETrailers, ExpectContinue: r.ExpectContinue, Upgrade: r.Upgrade}
	t.out = http1.AppendRequestHead(t.out[:0], &r.Request, r.Framing, r.Length, hop)
	t.expects, t.answeredEarly = r.ExpectContinue, false
	t.authenticated = namesConnectionScheme(&r.Header, "authorization")
	t.chunked, t.sent, t.body = r.Framing == http1.Chunked, !last, first
	if len(first) <= copyLimit {
		t.out, t.body = append(t.out, first...), nil
	}
	t.at, t.limit, t.readErr = buffer.Headroom, buffer.Headroom, nil
	return nil
}

// write implements transport. It sends out, which is the head at first, and data.
func (t *http1Transport) write(data []byte, last bool, trailer *message.Fields) error {
	if t.chunked && len(data) > 0 {
		t.out = http1.AppendChunkHead(t.out, len(data))
	}
	if len(data) > copyLimit {
		t.parts = [2][]byte{t.out, data}
		t.buffers = t.parts[:]
		if _, err := t.buffers.WriteTo(t.u.Conn); err != nil {
			return err
		}
		t.out = t.out[:0]
	} else {
		t.out = append(t.out, data...)
	}
	if t.chunked {
		if len(data) > 0 {
			t.out = append(t.out, http1.ChunkEnd...)
		}
		if last {
			t.out = http1.AppendLastChunk(t.out, trailer)
		}
	}
	if len(t.out) == 0 {
		return nil
	}
	_, err := t.u.Write(t.out)
	t.out = t.out[:0]
	return err
}

// releaseBody implements transport. The body passed to open was written before the first bytes of a response were
// awaited.
func (t *http1Transport) releaseBody() bool { return true }

// readHead implements transport.
func (t *http1Transport) readHead(method []byte, resp *message.Response) error {
	for parsed := 0; ; {
		if parsed < t.limit-t.at {
			used, err := http1.ParseResponse(t.unused(), method, resp, &t.head, &t.a.engine.Limits)
			switch {
			case err == nil:
				switch t.at += used; {
				case resp.Status >= 200:
					t.authenticated = t.authenticated || resp.Status == 401 && namesConnectionScheme(&resp.Header, "www-authenticate")
					t.beginBody()
				case resp.Status == 100:
					t.expects = false
				}
				return nil
			case err != http1.ErrIncomplete:
				return err
			}
			parsed = t.limit - t.at
		}
		if err := t.readUnparsed(parsed); err != nil {
			return err
		}
	}
}

// readUnparsed reads until the head, of which the first parsed bytes were too few, is worth parsing again, or the
// stream has ended. It returns the error if nothing was read.
func (t *http1Transport) readUnparsed(parsed int) error {
	for t.readErr == nil {
		n := t.readMore()
		if n > 0 && http1.WorthParsing(t.unused(), parsed, n, &t.a.engine.Limits) {
			return nil
		}
	}
	if t.limit-t.at > parsed {
		return nil
	}
	return t.readErr
}

// readMore sends the request if that has not been done, waits for more of the response, and appends it to what was
// read.
func (t *http1Transport) readMore() (n int) {
	a := t.a
	if a.buf != nil && t.limit == a.buf.End() && t.at < t.limit {
		t.makeRoom()
	}
	if t.sent && a.buf != nil && t.at == t.limit { // only an interim response arrived
		t.head.Forget() // as in readPart
		a.Give()
		t.at, t.limit = buffer.Headroom, buffer.Headroom
	}
	a.waits()
	switch {
	case !t.sent:
		// An error of the write occurs again when the response is read. There may be a response nevertheless, such as a
		// 413 of a server that does not read the body.
		t.sent = true
		n, t.readErr = t.u.WriteRead(t.out, t.body, a)
		t.body = nil
	case t.limit == buffer.Headroom:
		n, t.readErr = t.u.ReadInto(a)
	default:
		n, t.readErr = t.u.Read(a.buf.Bytes()[t.limit:a.buf.End()])
	}
	a.waited()
	t.limit += n
	a.received = a.received || n > 0
	return n
}

// makeRoom makes room in a full buffer: interim responses precede the unused bytes, or it is a little buffer, which
// need not hold a whole head.
func (t *http1Transport) makeRoom() {
	a := t.a
	into := a.buf
	if t.at == buffer.Headroom && into.IsLittle() {
		into = buffer.Take()
	}
	n := copy(into.Bytes()[buffer.Headroom:], t.unused())
	t.at, t.limit = buffer.Headroom, buffer.Headroom+n
	if into != a.buf {
		buffer.Give(a.buf)
		a.buf = into
	}
}

// unused returns what was read but not consumed.
func (t *http1Transport) unused() []byte { return t.a.buf.Bytes()[t.at:t.limit] }

// beginBody prepares the body after the final head.
func (t *http1Transport) beginBody() {
	t.a.framing, t.a.length = t.head.Framing, t.head.ContentLength
	t.response.Init(t.head.Framing, t.head.ContentLength, &t.a.engine.Limits)
	if t.head.Framing == http1.Chunked {
		t.nominated = t.head.KeepNominated(t.nominated[:0])
	}
	// What arrived with the head and what has arrived since become one part, so that client and gateway handle fewer
	// and larger ones.
	if t.head.Framing == http1.Length {
		t.limit = t.fillUp(t.limit, t.head.ContentLength-int64(t.limit-t.at))
	}
}

// fillUp reads up to want bytes into attempt.buf[end:], without waiting, and returns where they end.
func (t *http1Transport) fillUp(end int, want int64) int {
	for most := t.a.buf.End(); want > 0 && end < most; {
		n := t.u.ReadMore(t.a.buf.Bytes()[end : end+int(min(int64(most-end), want))])
		if n == 0 {
			break
		}
		end += n
		want -= int64(n)
	}
	return end
}

// readPart implements transport.
//
//go:noinline
func (t *http1Transport) readPart(wait bool) (Part, error) {
	if wait {
		a := t.a
		t.head.Forget() // its fields would keep a buffer alive that is given back for the wait
		a.waits()
		n, err := t.u.ReadInto(a)
		a.waited()
		if n == 0 {
			return t.ended(err)
		}
		// An error occurs again with the next read.
		t.at, t.limit = buffer.Headroom, buffer.Headroom+n
		if t.head.Framing == http1.Length && n >= ampleRead {
			t.limit = t.fillUp(t.limit, t.response.Remaining()-int64(n))
		}
	}
	data, used, err := t.response.Decode(t.unused())
	if err != nil {
		return Part{}, err
	}
	if used < t.limit-t.at { // excess bytes: the backend's next response would be out of step
		t.head.KeepAlive = false
	}
	return t.part(data), nil
}

// atEnd implements transport.
func (t *http1Transport) atEnd() bool {
	part, err := t.readPart(false)
	return err == nil && part.Last
}

// ended returns what a read that failed with err and returned nothing means for the body.
func (t *http1Transport) ended(err error) (Part, error) {
	if !errors.Is(err, io.EOF) {
		return Part{}, err
	}
	if eof := t.response.EOF(); eof != nil {
		return Part{}, eof
	}
	if t.head.Framing == http1.UntilClose && t.u.BrokeOff() {
		return Part{}, io.ErrUnexpectedEOF
	}
	return t.part(nil), nil
}

// part makes data, which is in attempt.buf if it is not empty, a part of the response.
func (t *http1Transport) part(data []byte) Part {
	p := Part{Last: t.response.Done()}
	if len(data) > 0 {
		p.Buf = t.a.buf.Bytes()
		p.At = int(uintptr(unsafe.Pointer(unsafe.SliceData(data))) - uintptr(unsafe.Pointer(unsafe.SliceData(p.Buf))))
		p.End = p.At + len(data)
	}
	if p.Last && t.head.Framing == http1.Chunked {
		p.Trailer = t.response.Trailer()
		t.head.DropNominated(p.Trailer)
	}
	return p
}

// setDeadline implements transport.
func (t *http1Transport) setDeadline(d time.Time) { t.u.SetDeadline(d) } //nolint:errcheck // as in open

// interrupt implements transport.
func (t *http1Transport) interrupt() { t.u.SetDeadline(longAgo) } //nolint:errcheck // as in open

// abort implements transport.
func (t *http1Transport) abort() { t.u.Close() }

// end implements transport. The connection to a backend that has answered early is closed: if the backend does not read
// the body, it takes the rest of it for the next request. When the response was complete cannot be told, because the
// client may delay the reading of it.
func (t *http1Transport) end(complete bool) {
	if complete && t.head.KeepAlive && !t.own && !t.expects && !t.authenticated && !t.answeredEarly {
		t.u.Release()
	} else {
		t.u.Close()
	}
	t.u, t.body, t.parts, t.buffers = nil, nil, [2][]byte{}, nil
}

// switched implements duplexer.
func (t *http1Transport) switched() []byte { return t.head.Upgrade }

// duplex implements duplexer.
func (t *http1Transport) duplex() (tunnel.Duplex, func()) {
	d := &connDuplex{Conn: t.u, early: bytes.Clone(t.unused())}
	t.head.Forget() // as in readPart
	t.head.Upgrade = nil
	t.a.Give()
	d.SetDeadline(time.Time{}) //nolint:errcheck // as in open
	return d, d.Reset
}
