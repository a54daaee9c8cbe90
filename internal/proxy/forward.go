package proxy

import (
	"context"
	"errors"
	"time"

	"github.com/moongate-dev/moongate/internal/observe"
	"github.com/moongate-dev/moongate/internal/proxy/http1"
	"github.com/moongate-dev/moongate/internal/proxy/upstream"
)

const (
	// maxConnects bounds how many endpoints a request asks for a connection.
	maxConnects = 3
	// maxInterim bounds the 1xx responses before a final one.
	maxInterim = 64
	// copyLimit is up to which size in bytes a request body is copied behind its head for one
	// write; above it, writing two pieces with one system call is cheaper.
	copyLimit = 4 << 10
)

// attempt is one try at one endpoint.
type attempt struct {
	u        *upstream.Conn
	deadline time.Time        // the earlier of timeouts.request and timeouts.backendRequest; zero is never
	buf      *[bigBuffer]byte // nil while nothing has come
	// received tells that the backend has sent anything at all.
	received bool
}

// Take is where to read what the backend sends, see upstream.Buffer.
func (a *attempt) Take() []byte {
	if a.buf == nil {
		a.buf = bigBuffers.Get().(*[bigBuffer]byte)
	}
	return a.buf[headroom : bigBuffer-tailroom]
}

// Give gives the buffer back, if there is one; nothing may point into it.
func (a *attempt) Give() {
	if a.buf != nil {
		bigBuffers.Put(a.buf)
		a.buf = nil
	}
}

// forward sends the request to an endpoint of the backend and its response to the client. Another
// endpoint is tried only where nothing of the request can have reached the first.
func (x *exchange) forward(b *backendRef) (keep bool) {
	var tried *upstream.Endpoint
	reason := observe.ReasonNoEndpoints
	for fresh := false; x.rec.Attempts < maxConnects; {
		ep := b.backend.Pick(&x.fx.Seed, tried)
		if ep == nil || ep == tried && !fresh {
			break
		}
		x.rec.Attempts++
		x.rec.Upstream = ep.Address()
		ep.Begin()
		a := &x.attempt
		*a = attempt{deadline: x.attemptDeadline()}
		var retry bool
		if a.u, reason, retry = x.connect(ep, fresh, a.deadline); a.u == nil {
			ep.End()
			if retry {
				tried, fresh = ep, false
				continue
			}
			break
		}
		var sent time.Time
		if x.c.proxy.logging { // nothing else shows it
			sent = time.Now()
		}
		keep, retry = x.converse(a, b, !fresh)
		if x.c.proxy.logging {
			x.rec.UpstreamDurationNano = int64(time.Since(sent))
		}
		ep.End()
		if !retry {
			return keep
		}
		fresh = true // idle connections of this endpoint may all be dead
		reason = observe.ReasonUpstreamReset
	}
	if reason == observe.ReasonClientClosed {
		x.rec.Reason = reason
		return false
	}
	return x.fail(reason)
}

func (x *exchange) attemptDeadline() time.Time {
	if t := x.rule.backendTimeout; t > 0 {
		d := time.Now().Add(t)
		if x.deadline.IsZero() || d.Before(x.deadline) {
			return d
		}
	}
	return x.deadline
}

// connect takes an idle connection, unless fresh, or makes one. retry tells that another
// endpoint may do better.
func (x *exchange) connect(ep *upstream.Endpoint, fresh bool, deadline time.Time) (u *upstream.Conn, reason observe.Reason, retry bool) {
	for !fresh {
		u := ep.Idle()
		if u == nil {
			break
		}
		// What came in while the connection idled would be taken for the response to this request:
		// the body of one to HEAD, a 408 of a server that closes, or a smuggler's.
		// WriteRead looks for itself.
		if x.streamed && !u.Alive() {
			u.Close()
			continue
		}
		return u, observe.ReasonOK, false
	}
	c := x.c
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	c.setDialling(cancel)
	c.wait.set(waitUpstream, c.proxy.now())
	u, err := ep.Dial(ctx, deadline)
	c.wait.leave()
	c.setDialling(nil)
	if err == nil {
		return u, observe.ReasonOK, false
	}
	var dial *upstream.DialError
	if !errors.As(err, &dial) {
		return nil, observe.ReasonConnectFailed, false
	}
	switch dial.Reason {
	case upstream.ReasonTimeout:
		reason = observe.ReasonConnectTimeout
	case upstream.ReasonDeadline:
		reason = x.timeoutReason()
	case upstream.ReasonCanceled:
		reason = observe.ReasonClientClosed
	default:
		reason = observe.ReasonConnectFailed
	}
	return nil, reason, dial.Retryable
}

// repeatable tells whether the request may be sent again when a connection that was
// idle turns out dead: its method is idempotent (RFC 9110 section 9.2.2) and its body is at hand.
func (x *exchange) repeatable() bool {
	if x.streamed {
		return false
	}
	switch string(x.req.Method) {
	case "GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE":
		return true
	}
	return false
}

// timeoutReason tells which of the rule's timeouts ran out.
func (x *exchange) timeoutReason() observe.Reason {
	if !x.deadline.IsZero() && !time.Now().Before(x.deadline) {
		return observe.ReasonRequestTimeout
	}
	return observe.ReasonBackendTimeout
}

// converse sends the request on a connection and relays the response. retry is
// only ever true where nothing was sent to the client and mayRetry is set.
func (x *exchange) converse(a *attempt, b *backendRef, mayRetry bool) (keep, retry bool) {
	c := x.c
	if !a.deadline.IsZero() {
		a.u.SetDeadline(a.deadline) // before setUpstream, which may want none to come later
		if !x.deadline.IsZero() {
			c.nc.SetWriteDeadline(x.deadline)
			defer c.nc.SetWriteDeadline(never)
		}
	}
	c.setUpstream(a.u)
	defer a.Give()
	rest, err := x.readResponseHead(a, x.send(a))
	if err != nil {
		a.u.Close()
		return x.forwardFailed(a, err, mayRetry)
	}
	x.fx.Response = &x.resp
	b.filters.runResponse(&x.fx)
	x.rule.filters.runResponse(&x.fx)
	keep, complete := x.relay(a, rest)
	uploaded := x.upload.end(a.u, complete)
	gone := c.takeUpstream()
	if complete && uploaded && !gone && x.respHead.KeepAlive {
		a.u.Release()
	} else {
		a.u.Close()
	}
	x.complete = complete
	return keep && complete && uploaded, false
}

// sent is what came back while a request was sent.
type sent struct {
	n   int // bytes in a.buf behind the headroom
	err error
	// tried tells that a read was made: without it n and err say nothing.
	tried bool
}

// send writes the request and waits for the first bytes of the response, or starts the upload
// that writes it.
func (x *exchange) send(a *attempt) (s sent) {
	h := &x.reqHead
	hop := http1.Hop{TETrailers: h.TETrailers, ExpectContinue: h.ExpectContinue}
	x.up = http1.AppendRequestHead(x.up[:0], &x.req, h.Framing, h.ContentLength, hop)
	if x.streamed {
		x.upload.start(a.u)
		return s
	}
	body := x.body
	if len(body) <= copyLimit {
		x.up, body = append(x.up, body...), nil
	}
	// An error of the write shows again when the response is read; there may be one
	// nevertheless, such as 413 of a server that does not read the body.
	x.c.wait.set(waitUpstream, x.c.proxy.now())
	s.n, s.err = a.u.WriteRead(x.up, body, a)
	x.c.wait.leave()
	s.tried = true
	return s
}

// readResponseHead reads up to the final response head, passing interim responses on. What
// came behind the head is rest, in a.buf.
func (x *exchange) readResponseHead(a *attempt, first sent) (rest []byte, err error) {
	c := x.c
	at, end := headroom, headroom
	for interim := 0; ; {
		if end == bigBuffer-tailroom { // interim responses have filled the buffer
			end = headroom + copy(a.buf[headroom:], a.buf[at:end])
			at = headroom
		}
		n, err := first.n, first.err
		if !first.tried {
			c.wait.set(waitUpstream, c.proxy.now())
			if end == headroom {
				n, err = a.u.ReadInto(a)
			} else {
				n, err = a.u.Read(a.buf[end : bigBuffer-tailroom])
			}
			c.wait.leave()
		}
		first.tried = false
		end += n
		a.received = a.received || n > 0
		for n > 0 {
			used, perr := http1.ParseResponse(a.buf[at:end], x.req.Method, &x.resp, &x.respHead, &c.proxy.limits)
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

// relayInterim passes a 1xx response on; HTTP/1.0 has none (RFC 9110 section 15.2).
func (x *exchange) relayInterim() error {
	if x.reqHead.Minor == 0 {
		return nil
	}
	if x.resp.Status == 100 {
		x.upload.continued = true
	}
	x.out = http1.AppendResponseHead(x.out[:0], &x.resp, http1.NoBody, -1, http1.Hop{})
	if err := x.write(x.out); err != nil {
		return errClientWrite{err}
	}
	return nil
}

// forwardFailed ends an attempt that brought no final response head: a retry, an
// answer made here, or nothing where the client is gone.
func (x *exchange) forwardFailed(a *attempt, err error, mayRetry bool) (keep, retry bool) {
	c := x.c
	gone := c.takeUpstream() // first: that the upload is interrupted next is our own doing
	x.upload.end(a.u, false)
	if !x.deadline.IsZero() {
		c.nc.SetWriteDeadline(never) // it has passed, maybe, and the client is to be told
	}
	var malformed *http1.Error
	var toClient errClientWrite
	switch {
	case errors.Is(err, upstream.ErrStale):
		return false, true
	case x.streamed && x.upload.clientErr != nil:
		return x.uploadFailed(), false
	case gone:
		x.rec.Reason = observe.ReasonClientClosed
		return false, false
	case errors.As(err, &toClient):
		x.rec.Reason = x.writeFailed(toClient.error)
		return false, false
	case errors.As(err, &malformed):
		return x.fail(observe.ReasonUpstreamMalformed), false
	case isTimeout(err):
		return x.fail(x.timeoutReason()), false
	case mayRetry && a.u.Reused && !a.received && x.repeatable():
		return false, true
	}
	return x.fail(observe.ReasonUpstreamReset), false
}

// uploadFailed answers a request whose body could not be read to its end.
func (x *exchange) uploadFailed() (keep bool) {
	var malformed *http1.Error
	switch err := x.upload.clientErr; {
	case errors.As(err, &malformed):
		return x.failWith(malformed.Status, observe.ReasonBadRequestBody)
	case isTimeout(err):
		return x.fail(observe.ReasonClientTimeout)
	}
	x.rec.Reason = observe.ReasonClientClosed
	return false
}
