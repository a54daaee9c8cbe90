package exchange

import (
	"context"
	"errors"
	"time"

	"github.com/moongate-dev/moongate/internal/observe"
	"github.com/moongate-dev/moongate/internal/proxy/buffer"
	"github.com/moongate-dev/moongate/internal/proxy/http1"
	"github.com/moongate-dev/moongate/internal/proxy/snapshot"
	"github.com/moongate-dev/moongate/internal/proxy/upstream"
)

const (
	// maxConnects bounds how many endpoints a request asks for a connection.
	maxConnects = 3
	// maxGone bounds how many more it asks for endpoints that have left the configuration meanwhile: that
	// says nothing of those which came.
	maxGone = 16
	// maxInterim bounds the 1xx responses before a final one.
	maxInterim = 64
	// copyLimit is up to which size in bytes a request body is copied behind its head for one
	// write; above it, writing two pieces with one system call is cheaper.
	copyLimit = 4 << 10
)

// attempt is one try at one endpoint.
type attempt struct {
	u        *upstream.Conn
	deadline time.Time      // the earlier of timeouts.request and timeouts.backendRequest; zero is never
	buf      *buffer.Buffer // nil while nothing has come
	// gone tells that the endpoint has left the configuration before it was connected.
	gone bool
	// received tells that the backend has sent anything at all.
	received bool
}

// Take is where to read what the backend sends, see upstream.Buffer.
func (a *attempt) Take() []byte {
	if a.buf == nil {
		a.buf = buffer.Take()
	}
	return a.buf[buffer.Headroom:buffer.End]
}

// Give gives the buffer back, if there is one; nothing may point into it.
func (a *attempt) Give() {
	if a.buf != nil {
		buffer.Give(a.buf)
		a.buf = nil
	}
}

// forward sends the request to an endpoint of the backend and its response to the client. Another
// endpoint is tried only where nothing of the request can have reached the first.
func (x *Exchange) forward(b *snapshot.BackendRef) (read bool) {
	var tried *upstream.Endpoint
	reason := observe.ReasonNoEndpoints
	for fresh, limit := false, maxConnects; x.rec.Attempts < limit; {
		ep := b.Backend.Pick(&x.fx.Seed, tried)
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
				if a.gone {
					limit = min(limit+1, maxConnects+maxGone)
				}
				continue
			}
			break
		}
		var sent time.Time
		if x.Client.Engine.Logging { // nothing else shows it
			sent = time.Now()
		}
		read, retry = x.converse(a, b, !fresh)
		if x.Client.Engine.Logging {
			x.rec.UpstreamDurationNano = int64(time.Since(sent))
		}
		ep.End()
		if !retry {
			return read
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

func (x *Exchange) attemptDeadline() time.Time {
	if t := x.rule.BackendTimeout; t > 0 {
		d := time.Now().Add(t)
		if x.deadline.IsZero() || d.Before(x.deadline) {
			return d
		}
	}
	return x.deadline
}

// connect takes an idle connection, unless fresh, or makes one. retry tells that another
// endpoint may do better.
func (x *Exchange) connect(ep *upstream.Endpoint, fresh bool, deadline time.Time) (u *upstream.Conn, reason observe.Reason, retry bool) {
	for !fresh {
		u := ep.Idle()
		if u == nil {
			break
		}
		// What came in while the connection idled would be taken for the response to this request:
		// the body of one to HEAD, a 408 of a server that closes, or a smuggler's.
		// WriteRead looks for itself.
		if x.Streamed && !u.Alive() {
			u.Close()
			continue
		}
		return u, observe.ReasonOK, false
	}
	w, e := x.Client.Watch, x.Client.Engine
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	w.dial(cancel)
	w.since.Store(e.Now())
	u, err := ep.Dial(ctx, deadline)
	w.since.Store(0)
	w.dial(nil)
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
		x.attempt.gone = dial.Reason == upstream.ReasonGone
	}
	return nil, reason, dial.Retryable
}

// repeatable tells whether the request may be sent again when a connection that was
// idle turns out dead: its method is idempotent (RFC 9110 section 9.2.2) and its body is at hand.
func (x *Exchange) repeatable() bool {
	if x.Streamed {
		return false
	}
	switch string(x.Method) {
	case "GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE":
		return true
	}
	return false
}

// timeoutReason tells which of the rule's timeouts ran out.
func (x *Exchange) timeoutReason() observe.Reason {
	if !x.deadline.IsZero() && !time.Now().Before(x.deadline) {
		return observe.ReasonRequestTimeout
	}
	return observe.ReasonBackendTimeout
}

// converse sends the request on a connection and relays the response. retry is
// only ever true where nothing was sent to the client and mayRetry is set.
func (x *Exchange) converse(a *attempt, b *snapshot.BackendRef, mayRetry bool) (read, retry bool) {
	if !a.deadline.IsZero() {
		a.u.SetDeadline(a.deadline) // before Watch.begin, which may want none to come later
		if !x.deadline.IsZero() {
			x.Client.Limiter.WriteBy(x.deadline)
			defer x.Client.Limiter.WriteBy(time.Time{})
		}
	}
	x.Client.Watch.begin(a.u)
	defer a.Give()
	rest, err := x.readResponseHead(a, x.send(a))
	if err != nil {
		a.u.Close()
		return x.forwardFailed(a, err, mayRetry)
	}
	x.fx.Response = &x.resp
	b.Filters.RunResponse(&x.fx)
	x.rule.Filters.RunResponse(&x.fx)
	complete := x.relay(a, rest)
	uploaded := x.upload.end(a.u, complete)
	gone := x.Client.Watch.end()
	if complete && uploaded && !gone && x.respHead.KeepAlive {
		a.u.Release()
	} else {
		a.u.Close()
	}
	x.complete = complete
	return uploaded, false
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
func (x *Exchange) send(a *attempt) (s sent) {
	hop := http1.Hop{TETrailers: x.TETrailers, ExpectContinue: x.ExpectContinue}
	x.up = http1.AppendRequestHead(x.up[:0], &x.Request.Request, x.Framing, x.Length, hop)
	if x.Streamed {
		x.upload.start(a.u)
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
		x.upload.continued = true
	}
	if err := x.Client.Response.Interim(&x.resp); err != nil {
		return errClientWrite{err}
	}
	return nil
}

// forwardFailed ends an attempt that brought no final response head: a retry, an
// answer made here, or nothing where the client is gone.
func (x *Exchange) forwardFailed(a *attempt, err error, mayRetry bool) (read, retry bool) {
	gone := x.Client.Watch.end() // first: that the upload is interrupted next is our own doing
	x.upload.end(a.u, false)
	if !x.deadline.IsZero() {
		x.Client.Limiter.WriteBy(time.Time{}) // it has passed, maybe, and the client is to be told
	}
	var malformed *http1.Error
	var toClient errClientWrite
	switch {
	case errors.Is(err, upstream.ErrStale):
		return false, true
	case x.Streamed && x.upload.clientErr != nil:
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
func (x *Exchange) uploadFailed() (read bool) {
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
