package exchange

import (
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/moongate-dev/moongate/internal/proxy/buffer"
	"github.com/moongate-dev/moongate/internal/proxy/http1"
	"github.com/moongate-dev/moongate/internal/proxy/http2"
	"github.com/moongate-dev/moongate/internal/proxy/message"
	"github.com/moongate-dev/moongate/internal/proxy/tunnel"
	"github.com/moongate-dev/moongate/internal/proxy/upstream"
)

// emptyGrace is how long a response without a body may take to end its stream.
const emptyGrace = time.Second

// http2Transport is the transport for HTTP/2. Its memory is kept for the next attempt.
type http2Transport struct {
	a      *attempt
	place  *upstream.Shared
	stream *http2.ClientStream // nil before open, and if open has failed

	out    http2.ClientRequest
	reason []byte // reason phrase of the status, for HTTP/1.1 clients
	// empty means that the response cannot have a body, and ended that nothing follows its head.
	empty, ended bool
	// suspends means that readPart may fail with errSuspend.
	suspends bool
}

// open implements transport.
func (t *http2Transport) open(r *Request, first []byte, last bool) (err error) {
	head := http2.RequestHead{Request: &r.Request, Scheme: t.place.Scheme(), Length: -1,
		TETrailers: r.TETrailers, ExpectContinue: r.ExpectContinue}
	t.out = http2.ClientRequest{RequestHead: head, Body: first, Last: last, Deadline: t.a.deadline, Suspends: t.suspends}
	if r.Framing == http1.Length {
		t.out.Length = r.Length
	}
	t.empty, t.ended = false, false
	t.stream, err = t.place.Open(&t.out)
	return err
}

// write implements transport.
func (t *http2Transport) write(data []byte, last bool, trailer *message.Fields) error {
	if !last || trailer == nil || trailer.Len() == 0 {
		return t.stream.Write(data, last)
	}
	if len(data) > 0 {
		if err := t.stream.Write(data, false); err != nil {
			return err
		}
	}
	return t.stream.WriteTrailers(trailer)
}

// releaseBody implements transport.
func (t *http2Transport) releaseBody() bool { return t.stream.GiveUpBody() }

// readHead implements transport.
func (t *http2Transport) readHead(method []byte, resp *message.Response) (err error) {
	a := t.a
	a.waits()
	t.ended, err = t.stream.ReadHead(resp)
	a.waited()
	if err != nil {
		a.received = a.received || t.stream.Answered()
		return err
	}
	a.received = true
	t.reason = append(t.reason[:0], http.StatusText(resp.Status)...)
	resp.Reason = t.reason
	if resp.Status < 200 {
		return nil
	}
	if string(method) == http.MethodConnect && resp.Status >= 300 { // no data is sent if the tunnel was not opened
		t.stream.Write(nil, true) //nolint:errcheck // if the stream has failed, reading the response fails too
	}
	t.empty = string(method) == "HEAD" || resp.Status == http.StatusNoContent || resp.Status == http.StatusNotModified
	a.framing, a.length = http1.Chunked, t.stream.ContentLength()
	switch {
	case t.empty:
		a.framing = http1.NoBody
	case a.length >= 0:
		a.framing = http1.Length
	}
	return nil
}

// readPart implements transport. It holds no buffer while it waits.
func (t *http2Transport) readPart(wait bool) (p Part, err error) {
	a := t.a
	switch {
	case t.empty || t.ended:
		return Part{Last: true}, nil
	case !wait:
		if p, err = t.part(); err == nil && len(p.Data()) == 0 && !p.Last {
			err = t.stream.Err()
		}
		return p, err
	case t.stream.Buffered() == 0:
		a.Give()
		a.waits()
		err = t.stream.WaitAwhile()
		a.waited()
		if err != nil && !errors.Is(err, io.EOF) {
			return Part{}, err
		}
	}
	return t.part()
}

// atEnd implements transport. It is not enough that a response cannot have a body, because end would wait for the end
// of the stream.
func (t *http2Transport) atEnd() bool { return t.ended || t.stream.Ended() }

// part returns what has arrived of the response.
func (t *http2Transport) part() (Part, error) {
	a, n := t.a, 0
	if t.stream.Buffered() > 0 {
		var err error
		if n, err = t.stream.Read(a.Take()); err != nil {
			return Part{}, err
		}
	}
	p := Part{Last: t.stream.Ended()}
	if n > 0 {
		p.Buf, p.At, p.End = a.buf.Bytes(), buffer.Headroom, buffer.Headroom+n
	}
	if p.Last {
		p.Trailer = t.stream.Trailers()
	}
	return p, nil
}

// setDeadline implements transport.
func (t *http2Transport) setDeadline(d time.Time) { t.stream.SetDeadline(d) }

// interrupt implements transport.
func (t *http2Transport) interrupt() { t.stream.SetDeadline(longAgo) }

// abort implements transport.
func (t *http2Transport) abort() { t.stream.Reset(http2.Cancel) }

// switched implements duplexer. HTTP/2 has no 101.
func (t *http2Transport) switched() []byte { return nil }

// duplex implements duplexer, for a CONNECT.
func (t *http2Transport) duplex() (tunnel.Duplex, func()) {
	t.a.Give()
	t.stream.SetDeadline(time.Time{})
	return clientStreamDuplex{t.stream}, t.abort
}

// clientStreamDuplex is a stream to a backend as the end of a tunnel: END_STREAM corresponds to the FIN of TCP,
// RST_STREAM to RST (RFC 9113 section 8.5).
type clientStreamDuplex struct{ s *http2.ClientStream }

// ReadInto implements tunnel.Duplex.
func (d clientStreamDuplex) ReadInto(b tunnel.Buffer) (int, error) {
	if err := d.s.Wait(); err != nil {
		return 0, err
	}
	return d.s.Read(b.Take())
}

// WasReset implements tunnel.Duplex. A read reports RST_STREAM, whatever was written.
func (d clientStreamDuplex) WasReset() bool { return false }

// Write implements tunnel.Duplex.
func (d clientStreamDuplex) Write(b []byte) (int, error) {
	if err := d.s.Write(b, false); err != nil {
		return 0, err
	}
	return len(b), nil
}

// CloseWrite implements tunnel.Duplex.
func (d clientStreamDuplex) CloseWrite() error { return d.s.Write(nil, true) }

// Interrupt implements tunnel.Duplex.
func (d clientStreamDuplex) Interrupt() { d.s.SetDeadline(longAgo) }

// end implements transport. A stream that has not ended is reset.
func (t *http2Transport) end(complete bool) {
	if t.stream != nil {
		if complete && t.empty && !t.ended { // the client has all of it
			t.stream.SetDeadline(time.Now().Add(emptyGrace))
			t.stream.Wait() //nolint:errcheck // only the end of the stream is awaited
		}
		t.stream.Close()
		t.stream = nil
	}
	t.place.Leave(t.a.received)
	t.place = nil
}
