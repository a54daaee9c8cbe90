package exchange

import (
	"errors"
	"io"
	"unsafe"

	"github.com/moongate-dev/moongate/internal/observe"
	"github.com/moongate-dev/moongate/internal/proxy/buffer"
	"github.com/moongate-dev/moongate/internal/proxy/http1"
)

// relay sends the final response to the client: the head in x.resp and the body, of which
// rest came with the head. complete tells that client and backend agree that it is all there.
func (x *Exchange) relay(a *attempt, rest []byte) (complete bool) {
	x.rec.Status, x.rec.Reason = x.resp.Status, observe.ReasonOK
	x.addDate()
	head := Head{Response: &x.resp, Framing: x.respHead.Framing, Length: x.respHead.ContentLength,
		Close: x.closes(), Unread: x.body.neverComes()}
	x.respBody.Init(x.respHead.Framing, x.respHead.ContentLength, &x.Client.Engine.Limits)
	if x.respHead.Framing == http1.Chunked { // the trailer section comes when a.buf holds other things
		x.fx.Scratch = x.respHead.KeepNominated(x.fx.Scratch)
	}

	data, n, err := x.respBody.Decode(rest)
	surplus := n < len(rest)
	if err != nil { // malformed, and nothing of it was sent
		x.fail(observe.ReasonUpstreamMalformed)
		return false
	}
	part := x.part(a, data)
	pipe := x.beginSplice(a)
	part.More = pipe != nil && pipe.Held() > 0
	err = x.sent(data, x.Client.Response.Start(head, part))
	if pipe != nil {
		err = x.splice(a, pipe, err)
	}
	for err == nil && !x.respBody.Done() {
		data, surplus, err = x.readBody(a)
		if part := x.part(a, data); err == nil && (part.Last || len(data) > 0) {
			err = x.sent(data, x.Client.Response.More(part))
		}
	}
	if err != nil {
		x.relayFailed(err)
		return false
	}
	if surplus { // bytes that nobody asked for: the backend's next response would be off
		x.respHead.KeepAlive = false
	}
	return true
}

// part makes data, which stands in the attempt's buffer if it is not empty, a part of the response.
func (x *Exchange) part(a *attempt, data []byte) Part {
	p := Part{Last: x.respBody.Done()}
	if len(data) > 0 {
		p.Buf = a.buf[:]
		p.At = int(uintptr(unsafe.Pointer(unsafe.SliceData(data))) - uintptr(unsafe.Pointer(a.buf)))
		p.End = p.At + len(data)
	}
	if p.Last && x.respHead.Framing == http1.Chunked {
		p.Trailer = x.respBody.Trailer()
		x.respHead.DropNominated(p.Trailer)
	}
	return p
}

// sent counts a part of the body, and marks an error as the client's.
func (x *Exchange) sent(data []byte, err error) error {
	x.rec.BytesSent += int64(len(data))
	if err != nil {
		return errClientWrite{err}
	}
	return nil
}

// readBody reads the next part of the response body.
func (x *Exchange) readBody(a *attempt) (data []byte, surplus bool, err error) {
	since := &x.Client.Watch.since
	since.Store(x.Client.Engine.Now())
	n, err := a.u.ReadInto(a)
	since.Store(0)
	if n > 0 {
		if x.respHead.Framing == http1.Length {
			n = x.fillUp(a, buffer.Headroom+n, x.respBody.Remaining()-int64(n)) - buffer.Headroom
		}
		// An error comes again with the next read.
		data, used, err := x.respBody.Decode(a.buf[buffer.Headroom : buffer.Headroom+n])
		return data, used < n, err
	}
	if errors.Is(err, io.EOF) {
		if eof := x.respBody.EOF(); eof != nil {
			return nil, false, eof
		}
		if x.respHead.Framing == http1.UntilClose && a.u.WasReset() {
			return nil, false, io.ErrUnexpectedEOF
		}
		return nil, false, nil
	}
	return nil, false, err
}

// fill adds to a.buf[at:end], which is what came of the body with the head, what has come since,
// so that client and gateway handle fewer and larger parts.
func (x *Exchange) fill(a *attempt, at, end int) []byte {
	a.u.Large = x.spliceable(a, x.respHead.ContentLength)
	if left := x.respHead.ContentLength - int64(end-at); x.respHead.Framing == http1.Length && !x.spliceable(a, left) {
		end = x.fillUp(a, end, left)
	}
	return a.buf[at:end]
}

// fillUp reads up to want bytes behind a.buf[end], without waiting, and returns where they end.
func (x *Exchange) fillUp(a *attempt, end int, want int64) int {
	for want > 0 && end < buffer.End {
		n := a.u.ReadMore(a.buf[end:min(int64(buffer.End), int64(end)+want)])
		if n == 0 {
			break
		}
		end += n
		want -= int64(n)
	}
	return end
}

// relayFailed says why a response broke off. That it did so is for the client's side to show.
func (x *Exchange) relayFailed(err error) {
	var toClient errClientWrite
	switch {
	case errors.As(err, &toClient):
		x.rec.Reason = x.writeFailed(toClient.error)
	case x.Client.Watch.goneNow():
		x.rec.Reason = observe.ReasonClientClosed
	case isTimeout(err):
		x.rec.Reason = x.timeoutReason()
	default:
		x.rec.Reason = observe.ReasonUpstreamTruncated
	}
}
