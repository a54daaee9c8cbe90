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

// clockBegan is when the clock began that windows of admission control have.
var clockBegan = time.Now()

// admitted reports whether the request may go on, by what became of those before it. What becomes of it itself is recorded once, by one of the functions below.
func (x *Exchange) admitted(c *admission.Control) bool {
	if !c.Admits(time.Since(clockBegan), upstream.Random(&x.fx.Seed)) {
		return false
	}
	s := x.mayNeed()
	s.admission, s.sent = c, false
	return true
}

// noteSent follows an attempt: sent is that its backend was sent all of the request, or could have been.
func (x *Exchange) noteSent(sent bool) {
	if sent && x.seldom != nil {
		x.seldom.sent = true
	}
}

// takeAdmission returns where the request is to be recorded, nil where it was or is not to be.
func (x *Exchange) takeAdmission() (c *admission.Control) {
	if x.seldom != nil {
		c, x.seldom.admission = x.seldom.admission, nil
	}
	return c
}

// recordHead follows the head of the response in x.resp. The status of a gRPC call may come behind its body, see recordTrailer.
func (x *Exchange) recordHead() {
	if x.seldom == nil || x.seldom.admission == nil {
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

// recordTrailer is for the grpc-status of a call.
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

// endAdmission records a request that had no response of a backend, or a call of gRPC without a status, unless that says nothing of the backend.
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

// failedByBackend reports whether it may be the backend by which a request has failed that has ended. What its client can bring about is not: else it would turn away the
// requests of others.
func (x *Exchange) failedByBackend() bool {
	attempts := x.rec.Attempts
	switch x.rec.Reason {
	case observe.ReasonShuttingDown, observe.ReasonGRPCTimeout, observe.ReasonStreamIdle, observe.ReasonStreamDurationExceeded:
		return false
	case observe.ReasonRequestTimeout, observe.ReasonBackendTimeout, observe.ReasonUpstreamReset:
		return attempts > 0 && x.seldom.sent
	case observe.ReasonCircuitBreakerOpen:
		attempts-- // the last one was not made
	}
	return attempts > 0 && x.rec.Reason.Source() != observe.SourceClient
}
