package exchange

import (
	"bytes"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/moongate-dev/moongate/internal/observe"
	"github.com/moongate-dev/moongate/internal/proxy/message"
	"github.com/moongate-dev/moongate/internal/proxy/upstream"
)

// This file reports the outcome of requests to endpoints, whose health is judged by it (upstream.Endpoint.Responded,
// Broken).

// reportStatus reports the final head of a response. The status of a gRPC call may follow at its end, see
// reportTrailer.
func (x *Exchange) reportStatus() {
	status := x.resp.Status
	x.statusAwaited = false
	if x.grpc && status == http.StatusOK {
		value, ok := x.resp.Header.Get("grpc-status")
		if !ok {
			x.statusAwaited = true
			x.endpoint.Answered()
			return
		}
		status = grpcHTTPStatus(value)
	}
	x.endpoint.Responded(status)
}

// reportTrailer reports the status of a gRPC call at the end of a response.
func (x *Exchange) reportTrailer(p *Part) {
	if !x.grpc || p.Trailer == nil || x.endpoint == nil {
		return
	}
	if value, ok := p.Trailer.Get("grpc-status"); ok {
		x.endpoint.Responded(grpcHTTPStatus(value))
		x.recordTrailer(value)
	}
}

// reportFailure reports an attempt without a response. It ignores what the endpoint did not cause: an idle connection
// that turns out to be closed, a client that has left, a connection closed while the client keeps the endpoint waiting
// for the rest of the body (starved), and a timeout before the endpoint was sent all of the request (sent).
func (x *Exchange) reportFailure(f failure, err error, sent, starved bool) {
	var toClient errClientWrite
	switch {
	case f.kind == failedByReset && starved:
	case f.kind == failedByReset, f.kind == failedByLoss:
		x.endpoint.Broken(upstream.FailureReset)
	case f.silent || errors.As(err, &toClient) || x.body.failed() != nil:
	case isMalformed(err):
		x.endpoint.Broken(upstream.FailureReset)
	case isTimeout(err) && sent && f.reason != observe.ReasonGRPCTimeout: // the gRPC timeout is the client's
		x.endpoint.Broken(upstream.FailureTimeout)
	}
}

// reportTruncated reports a response that the backend has broken off after its head. If the head had the status, that
// was already reported; the status of a gRPC call may still be missing.
func (x *Exchange) reportTruncated() {
	if x.statusAwaited && x.endpoint != nil {
		x.endpoint.Broken(upstream.FailureReset)
	}
}

// grpcHTTPStatus returns the HTTP status by which a grpc-status counts for the health of endpoints, mapped as Envoy
// does.
func grpcHTTPStatus(value []byte) int {
	code, err := strconv.Atoi(string(bytes.TrimSpace(value)))
	if err != nil {
		return http.StatusInternalServerError
	}
	return HTTPStatusOf(code)
}

// HTTPStatusOf returns the HTTP status for a gRPC code, mapped as Envoy does. It is used for the health of endpoints,
// and for clients that do not use gRPC.
func HTTPStatusOf(code int) int {
	if code < 0 || code >= len(grpcStatuses) {
		return http.StatusInternalServerError
	}
	return grpcStatuses[code]
}

// grpcStatuses are the HTTP statuses for the gRPC codes, from 0 on.
var grpcStatuses = [...]int{200, 499, 500, 400, 504, 404, 409, 403, 429, 400, 409, 400, 501, 500, 503, 500, 401}

// reportCall reports the outcome of a call of the gateway itself to its endpoint. header and trailer are those of the
// response.
func reportCall(ep *upstream.Endpoint, status int, header, trailer *message.Fields) {
	for _, f := range [...]*message.Fields{header, trailer} {
		if f == nil || status != http.StatusOK {
			continue
		}
		if value, ok := f.Get("grpc-status"); ok {
			status = grpcHTTPStatus(value)
		}
	}
	ep.Responded(status)
}

// The values of Watch.movable.
const (
	notMovable uint32 = iota
	isMovable
	isLost
)

// beginTry is like begin, for an attempt whose request was sent. movable means that the request may be sent to another
// endpoint.
func (w *Watch) beginTry(a *attempt, movable bool) {
	if movable {
		w.movable.Store(isMovable)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.tried = a.engine.Now()
	w.beginLocked(a)
}

// endTry must be called after the wait for the response of an attempt; from then on it is not sent to another endpoint.
// lost reports whether the wait was interrupted because the endpoint does not acknowledge the request.
func (w *Watch) endTry() (lost bool) {
	return w.movable.Load() != notMovable && w.movable.Swap(notMovable) == isLost
}

// suspect reports whether the endpoint does not acknowledge what it was sent; then new requests avoid the endpoint.
// Waiting for a response is not enough: a request is acknowledged as soon as it has arrived.
func (a *attempt) suspect() bool {
	var ep *upstream.Endpoint
	lost := false
	switch t := a.transport.(type) {
	case *http1Transport:
		if t.u != nil {
			ep = t.u.Endpoint()
			lost = ep.HasAlternative() && t.u.Lost()
		}
	case *http2Transport:
		if t.place != nil {
			ep = t.place.Endpoint()
			lost = ep.HasAlternative() && t.place.Lost()
		}
	}
	if lost {
		ep.Suspect()
	}
	return lost
}

// While an attempt waits for its response, the sweeper checks for a while whether the endpoint acknowledges it: a
// network that drops packets is detected after 0.6 s, or after two retransmissions if round trips take longer than 100
// ms. So long polls cost only a few system calls each, once.
const (
	lookAfter = 500 * time.Millisecond
	lookUntil = 2 * time.Second
)

// Look is called by the sweeper while the exchange has been waiting for a backend since then; since and now are times
// of the coarse clock. If the endpoint does not acknowledge what it was sent, new requests avoid it, and this request
// moves to another one if it may be sent again.
func (w *Watch) Look(since, now int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if now < w.tried+lookAfter.Milliseconds() || now >= w.tried+lookUntil.Milliseconds() {
		return
	}
	if a, ok := w.waiter.(*attempt); ok && w.since.Load() == since {
		if a.suspect() && w.movable.CompareAndSwap(isMovable, isLost) {
			a.interrupt()
		}
	}
}
