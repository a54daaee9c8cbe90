package exchange

import (
	"bytes"
	"net/http"
	"strconv"
	"time"

	"github.com/moongate-dev/moongate/internal/observe"
	"github.com/moongate-dev/moongate/internal/proxy/admission"
	"github.com/moongate-dev/moongate/internal/proxy/upstream"
)

// clockBegan is the origin of the times that admission control uses.
var clockBegan = time.Now()

// passesAdmission reports whether the request may go on, given the outcomes of earlier requests. Its own outcome is recorded
// once, by one of the functions below.
func (x *Exchange) passesAdmission(c *admission.Control) bool {
	if !c.Admits(time.Since(clockBegan), upstream.Random(&x.fx.Seed)) {
		return false
	}
	s := x.ensureRare()
	s.admission, s.sent = c, false
	return true
}

// noteSent records whether the backend of an attempt was sent all of the request, or could have been.
func (x *Exchange) noteSent(sent bool) {
	if sent && x.rare != nil {
		x.rare.sent = true
	}
}

// takeAdmission returns where the request is to be recorded; nil if it is not to be, or already was.
func (x *Exchange) takeAdmission() (c *admission.Control) {
	if x.rare != nil {
		c, x.rare.admission = x.rare.admission, nil
	}
	return c
}

// recordHead records the response by the head in x.resp. The status of a gRPC call may follow after the body, see
// recordTrailer.
//
//go:noinline
func (x *Exchange) recordHead() {
	if x.rare == nil || x.rare.admission == nil {
		return
	}
	if x.grpc && x.resp.Status == http.StatusOK {
		if value, ok := x.resp.Header.Get("grpc-status"); ok {
			x.recordTrailer(value)
		}
		return
	}
	x.takeAdmission().RecordHTTP(time.Since(clockBegan), x.resp.Status)
}

// recordTrailer records the grpc-status of a call.
func (x *Exchange) recordTrailer(value []byte) {
	c := x.takeAdmission()
	if c == nil {
		return
	}
	code, err := strconv.Atoi(string(bytes.TrimSpace(value)))
	if err != nil {
		code = -1
	}
	c.RecordGRPC(time.Since(clockBegan), code)
}

// endAdmission records a request without a response from a backend, or a gRPC call without a status, unless the backend
// cannot have caused that.
func (x *Exchange) endAdmission() {
	c := x.takeAdmission()
	switch {
	case c == nil, !x.failedByBackend():
	case x.grpc:
		c.RecordGRPC(time.Since(clockBegan), -1)
	default:
		c.RecordHTTP(time.Since(clockBegan), x.rec.Status)
	}
}

// failedByBackend reports whether the backend may have caused the failure of a request that has ended. Failures that a
// client can cause do not count, because they would make the gateway reject other clients' requests.
func (x *Exchange) failedByBackend() bool {
	attempts := x.rec.Attempts
	switch x.rec.Reason {
	case observe.ReasonShuttingDown, observe.ReasonGRPCTimeout, observe.ReasonStreamIdle, observe.ReasonStreamDurationExceeded:
		return false
	case observe.ReasonRequestTimeout, observe.ReasonBackendTimeout, observe.ReasonUpstreamReset:
		return attempts > 0 && x.rare.sent
	case observe.ReasonCircuitBreakerOpen:
		attempts-- // the last attempt was not made
	}
	return attempts > 0 && x.rec.Reason.Source() != observe.SourceClient
}
