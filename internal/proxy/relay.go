package proxy

import (
	"errors"
	"io"
	"net"
	"unsafe"

	"github.com/moongate-dev/moongate/internal/observe"
	"github.com/moongate-dev/moongate/internal/proxy/http1"
)

// relay sends the final response to the client: the head in x.resp and the body, of which
// rest came with the head. complete tells that client and backend agree that it is all there.
func (x *exchange) relay(a *attempt, rest []byte) (keep, complete bool) {
	framing, length := x.clientFraming()
	keep = x.reqHead.KeepAlive && framing != http1.UntilClose && !x.c.proxy.draining.Load() && !x.upload.neverComes()
	x.rec.Status, x.rec.Reason = x.resp.Status, observe.ReasonOK
	x.addDate()
	x.out = http1.AppendResponseHead(x.out[:0], &x.resp, framing, length, x.hop(keep))
	x.respBody.Init(x.respHead.Framing, x.respHead.ContentLength, &x.c.proxy.limits)
	w := bodyWriter{x: x, a: a, chunked: framing == http1.Chunked}
	if x.respHead.Framing == http1.Chunked { // the trailer section comes when a.buf holds other things
		x.fx.Scratch = x.respHead.KeepNominated(x.fx.Scratch)
	}

	data, n, err := x.respBody.Decode(rest)
	surplus := n < len(rest)
	if err == nil {
		err = w.first(data)
	}
	for err == nil && !x.respBody.Done() {
		data, surplus, err = x.readBody(a)
		if err == nil {
			err = w.next(data)
		}
	}
	if err == nil {
		err = w.last()
	}
	if err != nil {
		x.relayFailed(a, err)
		return false, false
	}
	if surplus { // bytes that nobody asked for: the backend's next response would be off
		x.respHead.KeepAlive = false
	}
	return keep, true
}

// clientFraming is how the body is delimited for the client.
func (x *exchange) clientFraming() (http1.Framing, int64) {
	switch f := x.respHead.Framing; f {
	case http1.Chunked, http1.UntilClose:
		if x.reqHead.Minor == 0 {
			return http1.UntilClose, -1
		}
		return http1.Chunked, -1
	default:
		return f, x.respHead.ContentLength
	}
}

// readBody reads the next part of the response body.
func (x *exchange) readBody(a *attempt) (data []byte, surplus bool, err error) {
	c := x.c
	c.wait.set(waitUpstream, c.proxy.now())
	n, err := a.u.ReadInto(a)
	c.wait.leave()
	if n > 0 {
		if x.respHead.Framing == http1.Length {
			n = x.fillUp(a, headroom+n, x.respBody.Remaining()-int64(n)) - headroom
		}
		// An error comes again with the next read.
		data, used, err := x.respBody.Decode(a.buf[headroom : headroom+n])
		return data, used < n, err
	}
	if errors.Is(err, io.EOF) {
		if eof := x.respBody.EOF(); eof != nil {
			return nil, false, eof
		}
		return nil, false, nil
	}
	return nil, false, err
}

// fill adds to a.buf[at:end], which is what came of the body with the head, what has come since,
// so that client and gateway handle fewer and larger parts.
func (x *exchange) fill(a *attempt, at, end int) []byte {
	if x.respHead.Framing == http1.Length {
		end = x.fillUp(a, end, x.respHead.ContentLength-int64(end-at))
	}
	return a.buf[at:end]
}

// fillUp reads up to want bytes behind a.buf[end], without waiting, and returns where they end.
func (x *exchange) fillUp(a *attempt, end int, want int64) int {
	for want > 0 && end < bigBuffer-tailroom {
		n := a.u.ReadMore(a.buf[end:min(int64(bigBuffer-tailroom), int64(end)+want)])
		if n == 0 {
			break
		}
		end += n
		want -= int64(n)
	}
	return end
}

// relayFailed says why a response broke off, and makes sure that the client sees it: the
// connection ends without the end of the body.
func (x *exchange) relayFailed(a *attempt, err error) {
	var toClient errClientWrite
	switch {
	case errors.As(err, &toClient):
		x.rec.Reason = x.writeFailed(toClient.error)
	case x.c.goneNow():
		x.rec.Reason = observe.ReasonClientClosed
	case isTimeout(err):
		x.rec.Reason = x.timeoutReason()
	default:
		x.rec.Reason = observe.ReasonUpstreamTruncated
	}
	if framing, _ := x.clientFraming(); framing == http1.UntilClose {
		x.c.tcp.SetLinger(0) // only a reset tells this end from a complete body
	}
}

// goneNow tells whether the sweeper or the upload found that the client left.
func (c *conn) goneNow() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.clientGone
}

// bodyWriter writes a response body to the client.
type bodyWriter struct {
	x       *exchange
	a       *attempt
	chunked bool
}

// first writes the head in x.out and the part of the body that came with it, in one
// write where there is room for the head before the data.
func (w *bodyWriter) first(data []byte) error {
	x := w.x
	if len(data) == 0 {
		return w.write(x.out)
	}
	x.rec.BytesSent += int64(len(data))
	if w.chunked {
		x.out = http1.AppendChunkHead(x.out, len(data))
	}
	at := w.offset(data)
	end := at + len(data)
	if w.chunked {
		end += copy(w.a.buf[end:], http1.ChunkEnd)
	}
	if len(x.out) <= at {
		start := at - len(x.out)
		copy(w.a.buf[start:], x.out)
		return w.write(w.a.buf[start:end])
	}
	parts := net.Buffers{x.out, w.a.buf[at:end]}
	x.c.wait.set(waitWrite, x.c.proxy.now()+x.c.proxy.timeouts.WriteIdle.Milliseconds())
	_, err := parts.WriteTo(x.c.nc)
	if err = x.wrote(err); err != nil {
		return errClientWrite{err}
	}
	return nil
}

// next writes a further part of the body.
func (w *bodyWriter) next(data []byte) error {
	if len(data) == 0 {
		return nil
	}
	w.x.rec.BytesSent += int64(len(data))
	if !w.chunked {
		return w.write(data)
	}
	w.x.out = http1.AppendChunkHead(w.x.out[:0], len(data))
	at := w.offset(data)
	start := at - len(w.x.out)
	copy(w.a.buf[start:], w.x.out)
	end := at + len(data)
	end += copy(w.a.buf[end:], http1.ChunkEnd)
	return w.write(w.a.buf[start:end])
}

// last writes what ends the body.
func (w *bodyWriter) last() error {
	if !w.chunked {
		return nil
	}
	x := w.x
	if x.respHead.Framing == http1.Chunked {
		trailer := x.respBody.Trailer()
		x.respHead.DropNominated(trailer)
		x.out = http1.AppendLastChunk(x.out[:0], trailer)
	} else {
		x.out = http1.AppendLastChunk(x.out[:0], nil)
	}
	return w.write(x.out)
}

func (w *bodyWriter) write(b []byte) error {
	if err := w.x.write(b); err != nil {
		return errClientWrite{err}
	}
	return nil
}

// offset is where data, a part of the attempt's buffer, begins in it.
func (w *bodyWriter) offset(data []byte) int {
	return int(uintptr(unsafe.Pointer(unsafe.SliceData(data))) - uintptr(unsafe.Pointer(w.a.buf)))
}
