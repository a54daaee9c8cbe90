package exchange

import (
	"time"

	"github.com/moongate-dev/moongate/internal/proxy/buffer"
	"github.com/moongate-dev/moongate/internal/proxy/http1"
	"github.com/moongate-dev/moongate/internal/proxy/snapshot"
	"github.com/moongate-dev/moongate/internal/proxy/upstream"
)

// This file is an attempt by HTTP/1.1, on a connection that it has for itself.

// converse sends the request on a connection and relays the response. Nothing follows where
// anything was sent to the client; again does only where mayRetry is set.
func (x *Exchange) converse(a *attempt, b *snapshot.BackendRef, mayRetry bool) (read bool, then next) {
	if !a.deadline.IsZero() {
		a.u.SetDeadline(a.deadline) // before Watch.begin, which may want none to come later
		if !x.deadline.IsZero() {
			x.Client.Limiter.WriteBy(x.deadline)
			defer x.Client.Limiter.WriteBy(time.Time{})
		}
	}
	x.Client.Watch.begin(a)
	defer a.Give()
	rest, err := x.readResponseHead(a, x.send(a))
	if err != nil {
		a.u.Close()
		return x.forwardFailed(a, err, mayRetry)
	}
	x.body.settle(a)
	x.filterResponse()
	complete := x.relay(a, rest)
	uploaded := x.body.finish(a, complete)
	gone := x.Client.Watch.end()
	if complete && uploaded && !gone && x.respHead.KeepAlive {
		a.u.Release()
	} else {
		a.u.Close()
	}
	a.u = nil                           // it may be another's
	x.complete = complete || x.complete // with an answer of ours
	return uploaded, over
}

// sent is what came back while a request was sent.
type sent struct {
	n   int // bytes in a.buf behind the headroom
	err error
	// tried tells that a read was made: without it n and err say nothing.
	tried bool
}

// send writes the request and waits for the first bytes of the response, or starts what
// writes it together with its body.
func (x *Exchange) send(a *attempt) (s sent) {
	hop := http1.Hop{TETrailers: x.TETrailers, ExpectContinue: x.ExpectContinue}
	x.up = http1.AppendRequestHead(x.up[:0], &x.Request.Request, x.Framing, x.Length, hop)
	if x.Streamed {
		turn, err := x.body.rewind()
		if err != nil {
			return sent{err: err, tried: true}
		}
		x.body.start(a, turn, 0)
		return s
	}
	body := x.Whole
	if len(body) <= copyLimit {
		x.up, body = append(x.up, body...), nil
	}
	// An error of the write shows again when the response is read; there may be one
	// nevertheless, such as 413 of a server that does not read the body.
	since := &x.Client.Watch.since
	since.Store(x.Client.Engine.Now())
	s.n, s.err = a.u.WriteRead(x.up, body, a)
	since.Store(0)
	s.tried = true
	return s
}

// readResponseHead reads up to the final response head, passing interim responses on. What
// came behind the head is rest, in a.buf.
func (x *Exchange) readResponseHead(a *attempt, first sent) (rest []byte, err error) {
	c := x.Client
	at, end := buffer.Headroom, buffer.Headroom
	for interim := 0; ; {
		if end == buffer.End { // interim responses have filled the buffer
			end = buffer.Headroom + copy(a.buf[buffer.Headroom:], a.buf[at:end])
			at = buffer.Headroom
		}
		n, err := first.n, first.err
		if !first.tried {
			c.Watch.since.Store(c.Engine.Now())
			if end == buffer.Headroom {
				n, err = a.u.ReadInto(a)
			} else {
				n, err = a.u.Read(a.buf[end:buffer.End])
			}
			c.Watch.since.Store(0)
		}
		first.tried = false
		end += n
		a.received = a.received || n > 0
		for n > 0 {
			used, perr := http1.ParseResponse(a.buf[at:end], x.Method, &x.resp, &x.respHead, &c.Engine.Limits)
			if perr == http1.ErrIncomplete {
				break
			}
			if perr != nil {
				return nil, perr
			}
			at += used
			if x.resp.Status >= 200 {
				return x.fill(a, at, end), nil
			}
			if interim++; interim > maxInterim || x.resp.Status == 101 {
				return nil, errInterim // we asked for no upgrade
			}
			if err := x.relayInterim(); err != nil {
				return nil, err
			}
			n = end - at
		}
		if err != nil {
			return nil, err
		}
	}
}

var errInterim = &http1.Error{Status: 502, Reason: "upstream_malformed", Detail: "interim responses without end, or a switch of protocols that nobody asked for"}

// errClientWrite wraps what went wrong with the client while its backend was being read.
type errClientWrite struct{ error }

// relayInterim passes a 1xx response on.
func (x *Exchange) relayInterim() error {
	if x.resp.Status == 100 {
		x.body.continued = true
	}
	if err := x.Client.Response.Interim(&x.resp); err != nil {
		return errClientWrite{err}
	}
	return nil
}

// sendChunk sends what stands in x.up, which is the head if this is the first part of the body, then the part, and behind the last
// the end of the body.
func (x *Exchange) sendChunk(u *upstream.Conn, data []byte, last bool) error {
	chunked := x.Framing == http1.Chunked
	if chunked && len(data) > 0 {
		x.up = http1.AppendChunkHead(x.up, len(data))
	}
	if len(data) > copyLimit {
		x.parts = [2][]byte{x.up, data}
		x.buffers = x.parts[:]
		if _, err := x.buffers.WriteTo(u.Conn); err != nil {
			return err
		}
		x.up = x.up[:0]
	} else {
		x.up = append(x.up, data...)
	}
	if chunked {
		if len(data) > 0 {
			x.up = append(x.up, http1.ChunkEnd...)
		}
		if last {
			x.up = http1.AppendLastChunk(x.up, x.Client.Body.Trailer())
		}
	}
	if len(x.up) == 0 {
		return nil
	}
	_, err := u.Write(x.up)
	x.up = x.up[:0]
	return err
}
