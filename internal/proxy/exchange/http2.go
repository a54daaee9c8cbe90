package exchange

import (
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/moongate-dev/moongate/internal/observe"
	"github.com/moongate-dev/moongate/internal/proxy/buffer"
	"github.com/moongate-dev/moongate/internal/proxy/http1"
	"github.com/moongate-dev/moongate/internal/proxy/http2"
	"github.com/moongate-dev/moongate/internal/proxy/snapshot"
	"github.com/moongate-dev/moongate/internal/proxy/upstream"
)

// This file is an attempt by HTTP/2, by a stream on a connection that is shared.

// emptyGrace is how long a response without a body may take to say that it has ended.
const emptyGrace = time.Second

// open opens the stream of a place and sends the request, or leaves the place again.
func (x *Exchange) open(a *attempt, place *upstream.Shared) bool {
	head := http2.RequestHead{Request: &x.Request.Request, Scheme: place.Scheme(), Length: -1,
		TETrailers: x.TETrailers, ExpectContinue: x.ExpectContinue}
	x.out = http2.ClientRequest{RequestHead: head, Body: x.Whole, Last: true, Deadline: a.deadline}
	if x.Framing == http1.Length {
		x.out.Length = x.Length
	}
	turn, err := 0, error(nil)
	if x.Streamed {
		if turn, err = x.body.rewind(); err == nil {
			x.out.Body, x.out.Last = x.body.opening()
		}
	}
	a.place = place
	if err == nil {
		a.stream, err = place.Open(&x.out)
	}
	if err != nil {
		a.stream, a.place = nil, nil
		place.Leave(false)
		return false
	}
	a.reused, a.whole = place.Used(), x.out.Last
	if !a.whole {
		x.body.start(a, turn, len(x.out.Body))
	}
	return true
}

// sendData sends a part of the body, and behind the last the end of the body.
func (x *Exchange) sendData(s *http2.ClientStream, data []byte, last bool) error {
	if !last {
		return s.Write(data, false)
	}
	t := x.Client.Body.Trailer()
	if t == nil || t.Len() == 0 {
		return s.Write(data, true)
	}
	if len(data) > 0 {
		if err := s.Write(data, false); err != nil {
			return err
		}
	}
	return s.WriteTrailers(t)
}

// close ends the stream, and gives its place back.
func (a *attempt) close() {
	a.stream.Close()
	a.stream = nil
	a.place.Leave(a.received)
	a.place = nil
}

// converseStream is converse on a stream, to which the request was sent already.
func (x *Exchange) converseStream(a *attempt, b *snapshot.BackendRef, mayRetry bool) (read bool, then next) {
	if !x.deadline.IsZero() {
		x.Client.Limiter.WriteBy(x.deadline)
		defer x.Client.Limiter.WriteBy(time.Time{})
	}
	x.Client.Watch.begin(a)
	returns := false
	defer func() {
		if !returns { // a panic passes through
			x.Client.Watch.end()
			x.body.finish(a, false)
		}
		a.Give()
		a.close()
	}()
	ended, err := x.readStreamHead(a)
	if err != nil {
		read, then = x.forwardFailed(a, err, mayRetry)
		returns = true
		return read, then
	}
	x.body.settle(a)
	x.filterResponse()
	complete := x.relayStream(a, ended)
	uploaded := x.body.finish(a, complete)
	x.Client.Watch.end()
	x.complete = complete || x.complete // with an answer of ours
	returns = true
	return uploaded, over
}

// readStreamHead reads up to the final response head, passing interim responses on.
func (x *Exchange) readStreamHead(a *attempt) (ended bool, err error) {
	since := &x.Client.Watch.since
	for range maxInterim + 1 {
		since.Store(x.Client.Engine.Now())
		ended, err = a.stream.ReadHead(&x.resp)
		since.Store(0)
		if err != nil {
			return false, err
		}
		a.received = true
		start := len(x.fx.Scratch)
		x.fx.Scratch = append(x.fx.Scratch, http.StatusText(x.resp.Status)...)
		x.resp.Reason = x.fx.Made(start)
		if x.resp.Status >= 200 {
			return ended, nil
		}
		if err := x.relayInterim(); err != nil {
			return false, err
		}
	}
	return false, errInterim
}

// relayStream is relay by HTTP/2. ended tells that there is nothing behind the head.
func (x *Exchange) relayStream(a *attempt, ended bool) (complete bool) {
	x.rec.Status, x.rec.Reason = x.resp.Status, observe.ReasonOK
	x.addDate()
	head := Head{Response: &x.resp, Framing: http1.Chunked, Length: a.stream.ContentLength(),
		Close: x.closes(), Unread: x.body.neverComes()}
	empty := string(x.Method) == "HEAD" || x.resp.Status == http.StatusNoContent || x.resp.Status == http.StatusNotModified
	var part Part
	var err error
	switch {
	case empty:
		head.Framing, part.Last = http1.NoBody, true
	case ended:
		part.Last = true
	default:
		if part, err = x.streamPart(a, 0); err == nil && len(part.Data()) == 0 && !part.Last {
			err = a.stream.Err()
		}
		if err != nil {
			x.brokeOff(err)
			return false
		}
	}
	if head.Length >= 0 && !empty {
		head.Framing = http1.Length
	}
	err = x.sent(part.Data(), x.Client.Response.Start(head, part))
	for err == nil && !part.Last {
		if part, err = x.readStream(a); err == nil {
			err = x.sent(part.Data(), x.Client.Response.More(part))
		}
	}
	if err == nil && empty && !ended {
		err = a.awaitEnd()
	}
	if err != nil {
		x.relayFailed(err)
		return false
	}
	return true
}

// brokeOff answers a request whose response has broken off behind its head, but before anything of it was sent.
func (x *Exchange) brokeOff(err error) {
	if !x.deadline.IsZero() {
		x.Client.Limiter.WriteBy(time.Time{}) // as in forwardFailed
	}
	switch {
	case x.Client.Watch.goneNow():
		x.rec.Status, x.rec.Reason = 0, observe.ReasonClientClosed
	case http2.Malformed(err):
		x.fail(observe.ReasonUpstreamMalformed)
	case isTimeout(err):
		x.fail(x.timeoutReason())
	default:
		x.fail(observe.ReasonUpstreamReset)
	}
}

// awaitEnd waits for END_STREAM of a response that cannot have a body. The client has all of it.
func (a *attempt) awaitEnd() error {
	a.stream.SetDeadline(time.Now().Add(emptyGrace))
	var b [1]byte
	a.stream.Read(b[:]) //nolint:errcheck // closing the stream resets it where it has not ended
	return nil
}

// readStream waits for more of the response body. No buffer is held meanwhile.
func (x *Exchange) readStream(a *attempt) (Part, error) {
	n := 0
	if a.stream.Buffered() == 0 {
		a.Give()
		if a.unsent {
			x.body.settle(a)
		}
		since := &x.Client.Watch.since
		since.Store(x.Client.Engine.Now())
		var err error
		n, err = a.stream.Read(x.first[:])
		since.Store(0)
		if err != nil && !errors.Is(err, io.EOF) {
			return Part{}, err
		}
		copy(a.Take(), x.first[:n])
	}
	return x.streamPart(a, n)
}

// streamPart is a part of the response: the n bytes that stand in the attempt's buffer, and what else has
// come.
func (x *Exchange) streamPart(a *attempt, n int) (Part, error) {
	if a.stream.Buffered() > 0 {
		more, err := a.stream.Read(a.Take()[n:])
		if err != nil {
			return Part{}, err
		}
		n += more
	}
	p := Part{Last: a.stream.Ended()}
	if n > 0 {
		p.Buf, p.At, p.End = a.buf[:], buffer.Headroom, buffer.Headroom+n
	}
	if p.Last {
		p.Trailer = a.stream.Trailers()
	}
	return p, nil
}
