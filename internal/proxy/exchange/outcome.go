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

// What endpoints are told of requests, by which their health is judged (upstream.Endpoint.Responded, Broken).

// reportStatus follows the final head of a response. The status of a gRPC call may come at its end, see reportTrailer.
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

// reportTrailer follows the end of a response.
func (x *Exchange) reportTrailer(p *Part) {
	if !x.grpc || p.Trailer == nil || x.endpoint == nil {
		return
	}
	if value, ok := p.Trailer.Get("grpc-status"); ok {
		x.endpoint.Responded(grpcHTTPStatus(value))
		x.recordTrailer(value)
	}
}

// reportFailure follows an attempt without a response. That a connection which had idled turns out to be closed says nothing of the endpoint, nor does a
// client that has left, a connection that is closed while the client keeps the endpoint waiting for the rest of the body (starved), nor a timeout before the endpoint was sent all of the request (sent), for which it waits as it must.
func (x *Exchange) reportFailure(f failure, err error, sent, starved bool) {
	var toClient errClientWrite
	switch {
	case f.kind == failedByReset && starved:
	case f.kind == failedByReset, f.kind == failedByLoss:
		x.endpoint.Broken(upstream.FailureReset)
	case f.silent || errors.As(err, &toClient) || x.body.failed() != nil:
	case isMalformed(err):
		x.endpoint.Broken(upstream.FailureReset)
	case isTimeout(err) && sent && f.reason != observe.ReasonGRPCTimeout: // which is the client's
		x.endpoint.Broken(upstream.FailureTimeout)
	}
}

// reportTruncated follows a response that the backend has broken off behind its head. What its head has told counts already, but of a gRPC call, whose status
// was to come, nothing was told.
func (x *Exchange) reportTruncated() {
	if x.statusAwaited && x.endpoint != nil {
		x.endpoint.Broken(upstream.FailureReset)
	}
}

// grpcHTTPStatus is the HTTP status that stands for a grpc-status where endpoints are judged: as Envoy maps them.
func grpcHTTPStatus(value []byte) int {
	code, err := strconv.Atoi(string(bytes.TrimSpace(value)))
	if err != nil {
		return http.StatusInternalServerError
	}
	return HTTPStatusOf(code)
}

// HTTPStatusOf is the HTTP status that stands for a code of gRPC, as Envoy maps them: where endpoints are judged, and for clients that do not speak gRPC.
func HTTPStatusOf(code int) int {
	if code < 0 || code >= len(grpcStatuses) {
		return http.StatusInternalServerError
	}
	return grpcStatuses[code]
}

// grpcStatuses are the statuses for the codes of gRPC, from 0 on.
var grpcStatuses = [...]int{200, 499, 500, 400, 504, 404, 409, 403, 429, 400, 409, 400, 501, 500, 503, 500, 401}

// reportCall tells the endpoint of a call of the gateway's own what has come of it: header and trailer are those of a response.
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

// beginTry is begin for an attempt whose request was sent.
func (w *Watch) beginTry(a *attempt, movable bool) {
	if movable {
		w.movable.Store(isMovable)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.tried = a.engine.Now()
	w.beginLocked(a)
}

// settle follows the wait for a response of an attempt, which is not sent to another endpoint from now on. lost reports whether the wait was interrupted because the
// endpoint does not acknowledge the request.
func (w *Watch) settle() (lost bool) {
	return w.movable.Load() != notMovable && w.movable.Swap(notMovable) == isLost
}

// suspect reports whether the endpoint does not acknowledge what it was sent, and has it avoided then. The wait for a response alone says nothing: a request is acknowledged
// as soon as it has arrived.
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

// An attempt that waits for its response is looked at for a while, whether the endpoint acknowledges it: a network that drops what is sent shows after
// 0.6 s, or after two retransmissions where round trips take longer than 100 ms. So any number of long polls cost a few system calls each, once.
const (
	lookAfter = 500 * time.Millisecond
	lookUntil = 2 * time.Second
)

// Look is called by the sweeper while the exchange waits for a backend since then, by the coarse clock, which is at now. Where the endpoint does not acknowledge what it was sent it
// is avoided, and the request goes to another one if it may be sent again.
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
