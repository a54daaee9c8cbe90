package exchange

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/moongate-dev/moongate/internal/observe"
	"github.com/moongate-dev/moongate/internal/proxy/http1"
	"github.com/moongate-dev/moongate/internal/proxy/http2"
	"github.com/moongate-dev/moongate/internal/proxy/snapshot"
	"github.com/moongate-dev/moongate/internal/proxy/upstream"
)

const (
	// maxConnects bounds how many endpoints a request asks for a connection.
	maxConnects = 3
	// maxGone bounds how many more it asks for endpoints that have left the configuration meanwhile: that
	// says nothing of those which came.
	maxGone = 16
	// maxReplays bounds how often a request is sent again that a backend has surely not processed.
	maxReplays = 3
	// maxInterim bounds the 1xx responses before a final one.
	maxInterim = 64
	// copyLimit is up to which size in bytes a request body is copied behind its head for one
	// write; above it, writing two pieces with one system call is cheaper.
	copyLimit = 4 << 10
)

// next is what follows an attempt.
type next uint8

const (
	over   next = iota // the exchange has ended
	again              // once more, on a new connection
	stale              // likewise, and nothing was sent
	replay             // the backend has not processed the request: any connection will do
)

// forward sends the request to an endpoint of the backend and its response to the client. Another
// endpoint is tried only where nothing of the request can have reached the first.
func (x *Exchange) forward(b *snapshot.BackendRef) (read bool) {
	if x.Streamed && x.body.begin() != nil { // before a backend hears of it
		return x.bodyFailed()
	}
	if x.Upgrade != nil && (x.Client.Switcher == nil || !b.Backend.Upgrades(x.Upgrade)) {
		x.Upgrade, x.unasked = nil, true
	}
	x.attempt.engine, x.attempt.watch, x.attempt.splices = x.Client.Engine, x.Client.Watch, x.Client.Splicer != nil
	var tried *upstream.Endpoint
	reason := observe.ReasonNoEndpoints
	for fresh, limit, replays := false, maxConnects, 0; x.rec.Attempts < limit; {
		ep := b.Backend.Pick(&x.fx.Seed, tried)
		if ep == nil || ep == tried && !fresh {
			break
		}
		x.rec.Attempts++
		x.rec.Upstream = ep.Address()
		ep.Begin()
		x.endpoint = ep
		a := &x.attempt
		a.attemptState = attemptState{deadline: x.attemptDeadline()}
		var retry bool
		if reason, retry = x.connect(ep, fresh, a); reason != observe.ReasonOK {
			x.endEndpoint()
			if retry {
				tried, fresh = ep, false
				if a.gone {
					limit = min(limit+1, maxConnects+maxGone)
				}
				continue
			}
			break
		}
		var then next
		read, then = x.try(a, !fresh)
		x.endEndpoint()
		if then == over {
			return read
		}
		reason = observe.ReasonUpstreamReset
		// A stale connection was no attempt, unless we asked for a new one and were given one that another had just used: then
		// it counts, so that this ends.
		if then == replay || then == stale && !fresh {
			limit++
		}
		fresh = then != replay // idle connections of this endpoint may all be dead
		if then == replay {
			if replays == maxReplays {
				break
			}
			replays++
		}
	}
	x.body.finish(&x.attempt, false)
	if x.body.failed() != nil {
		return x.bodyFailed()
	}
	if reason == observe.ReasonClientClosed {
		x.rec.Reason = reason
		return false
	}
	return x.fail(reason)
}

// endEndpoint follows the present attempt.
func (x *Exchange) endEndpoint() {
	x.endpoint.End()
	x.endpoint = nil
}

// try waits for the response to a request that was begun, and relays it. Nothing follows where anything was sent to the client; again
// does only where mayRetry is set.
func (x *Exchange) try(a *attempt, mayRetry bool) (read bool, then next) {
	if x.Client.Engine.Logging { // nothing else shows it
		defer x.measure(time.Now())
	}
	if !x.deadline.IsZero() {
		x.Client.Limiter.WriteBy(x.deadline)
		defer x.Client.Limiter.WriteBy(time.Time{})
	}
	x.Client.Watch.begin(a)
	defer a.Give()
	if err := x.readHead(a); err != nil {
		a.abort()
		read, then = x.forwardFailed(a, err, mayRetry)
		a.end(false)
		return read, then
	}
	x.body.settle(a)
	x.filterResponse()
	if x.resp.Status == http.StatusSwitchingProtocols {
		x.tunnel(a)
		return true, over
	}
	complete := x.relay(a)
	uploaded := x.body.finish(a, complete)
	gone := x.Client.Watch.end()
	a.end(complete && uploaded && !gone)
	x.complete = complete || x.complete // with an answer of ours
	return uploaded, over
}

// measure notes how long an attempt took that began at start.
func (x *Exchange) measure(start time.Time) { x.rec.UpstreamDurationNano = int64(time.Since(start)) }

func (x *Exchange) attemptDeadline() time.Time {
	if t := x.rule.BackendTimeout; t > 0 {
		d := time.Now().Add(t)
		if x.deadline.IsZero() || d.Before(x.deadline) {
			return d
		}
	}
	return x.deadline
}

// connect finds an idle connection or a place on a shared one, unless fresh, or makes one, and puts it into
// a. retry tells that another endpoint may do better.
func (x *Exchange) connect(ep *upstream.Endpoint, fresh bool, a *attempt) (reason observe.Reason, retry bool) {
	for !fresh {
		var u *upstream.Conn
		if x.repeatable() {
			u = ep.Idle()
		} else {
			u = ep.IdleRecent()
		}
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
		return x.opened(a, u, nil)
	}
	if place := ep.Place(); place != nil {
		if reason, retry = x.opened(a, nil, place); !retry {
			return reason, false
		}
	}
	for range maxConnects { // a connection may be used up before our stream is opened
		u, place, err := x.dial(ep, a)
		if err != nil {
			return x.dialFailed(a, err)
		}
		if reason, retry = x.opened(a, u, place); !retry {
			return reason, false
		}
	}
	return observe.ReasonConnectFailed, true
}

// opened begins the request on a connection, or on a place where that is nil. retry reports that another one is needed.
func (x *Exchange) opened(a *attempt, u *upstream.Conn, place *upstream.Shared) (reason observe.Reason, retry bool) {
	if u != nil {
		a.useHTTP1(u)
	} else {
		a.useHTTP2(place)
	}
	err := x.open(a)
	if err == nil {
		return observe.ReasonOK, false
	}
	a.end(false)
	if x.body.failed() != nil {
		return observe.ReasonClientClosed, false // forward knows better
	}
	return observe.ReasonConnectFailed, true
}

// open begins the request.
func (x *Exchange) open(a *attempt) error {
	turn, first, last := 0, x.Whole, true
	if x.Streamed {
		var err error
		if turn, err = x.body.rewind(); err != nil {
			return err
		}
		if first, last = nil, false; a.headSent {
			first, last = x.body.opening()
		}
	}
	if err := a.transport.open(&x.Request, first, last); err != nil {
		return err
	}
	if a.whole = last; !last {
		x.body.start(a, turn, len(first))
	}
	return nil
}

// dial waits for a connection, or until the client leaves.
func (x *Exchange) dial(ep *upstream.Endpoint, a *attempt) (*upstream.Conn, *upstream.Shared, error) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	x.Client.Watch.begin(interrupterFunc(cancel))
	a.waits()
	u, place, err := ep.Connect(ctx, a.deadline, x.repeatable())
	a.waited()
	x.Client.Watch.end()
	return u, place, err
}

// dialFailed says why there is no connection.
func (x *Exchange) dialFailed(a *attempt, err error) (reason observe.Reason, retry bool) {
	var dial *upstream.DialError
	if !errors.As(err, &dial) {
		return observe.ReasonConnectFailed, false
	}
	switch dial.Reason {
	case upstream.ReasonTimeout:
		reason = observe.ReasonConnectTimeout
	case upstream.ReasonDeadline:
		reason = x.timeoutReason()
	case upstream.ReasonCanceled:
		reason = observe.ReasonClientClosed
	case upstream.ReasonOverloaded:
		reason = observe.ReasonOverloaded
	case upstream.ReasonTLS:
		reason = observe.ReasonUpstreamTLSFailed
	default:
		reason = observe.ReasonConnectFailed
		a.gone = dial.Reason == upstream.ReasonGone
	}
	return reason, dial.Retryable
}

// repeatable tells whether the request may be sent again when a connection that was
// idle turns out dead, whatever comes of it meanwhile: its method is idempotent (RFC 9110 section 9.2.2) and all of its body at
// hand.
func (x *Exchange) repeatable() bool { return x.idempotent() && x.body.allAtHand() }

func (x *Exchange) idempotent() bool {
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

// forwardFailed ends an attempt that brought no final response head: a retry, an
// answer made here, or nothing where the client is gone.
func (x *Exchange) forwardFailed(a *attempt, err error, mayRetry bool) (read bool, then next) {
	gone := x.Client.Watch.end()
	x.body.detach(a)
	if !x.deadline.IsZero() {
		x.Client.Limiter.WriteBy(time.Time{}) // it has passed, maybe, and the client is to be told
	}
	var toClient errClientWrite
	switch {
	case errors.Is(err, upstream.ErrStale):
		return false, stale
	case x.body.failed() != nil:
	case gone:
	case http2.Unprocessed(err) && x.body.atHand():
		return false, replay
	case errors.As(err, &toClient), isMalformed(err), isTimeout(err):
	case mayRetry && a.reused && !a.received && x.idempotent() && x.body.atHand():
		return false, again
	}
	x.body.finish(a, false)
	switch {
	case x.body.failed() != nil:
		return x.bodyFailed(), over
	case gone:
		x.rec.Reason = observe.ReasonClientClosed
		return false, over
	case errors.As(err, &toClient):
		x.rec.Reason = x.writeFailed(toClient.error)
		return false, over
	case isMalformed(err):
		return x.fail(observe.ReasonUpstreamMalformed), over
	case isTimeout(err):
		return x.fail(x.timeoutReason()), over
	}
	return x.fail(observe.ReasonUpstreamReset), over
}

// bodyFailed answers a request whose body could not be read to its end.
func (x *Exchange) bodyFailed() (read bool) {
	var malformed *http1.Error
	switch err := x.body.failed(); {
	case errors.As(err, &malformed):
		return x.failWith(malformed.Status, observe.ReasonBadRequestBody)
	case isTimeout(err):
		return x.fail(observe.ReasonClientTimeout)
	case errors.Is(err, ErrHeldBack):
		return x.fail(observe.ReasonOverloaded)
	case errors.Is(err, errPanicked):
		return x.fail(observe.ReasonInternal)
	}
	x.rec.Reason = observe.ReasonClientClosed
	return false
}
