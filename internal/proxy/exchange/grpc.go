package exchange

import (
	"bytes"
	"math"
	"net/http"
	"strconv"
	"time"

	"github.com/moongate-dev/moongate/internal/observe"
	"github.com/moongate-dev/moongate/internal/proxy/http1"
	"github.com/moongate-dev/moongate/internal/proxy/http2"
)

var (
	grpcType        = []byte("application/grpc")
	grpcStatusName  = []byte("Grpc-Status")
	grpcMessageName = []byte("Grpc-Message")
)

// Status codes of gRPC (grpc/grpc, doc/statuscodes.md).
const (
	grpcUnknown          = 2
	grpcDeadlineExceeded = 4
	grpcPermissionDenied = 7
	grpcUnimplemented    = 12
	grpcInternal         = 13
	grpcUnavailable      = 14
	grpcUnauthenticated  = 16
)

// isGRPC reports whether the request is a gRPC call: it uses HTTP/2, has TE: trailers and a gRPC content type
// (grpc/grpc, doc/PROTOCOL-HTTP2.md). For most other requests this is decided without reading their fields.
func (x *Exchange) isGRPC() bool {
	if !x.TETrailers || x.Client.Protocol != "HTTP/2.0" || string(x.Method) != "POST" {
		return false
	}
	value, _ := x.Header.Get("content-type")
	rest, ok := bytes.CutPrefix(value, grpcType)
	return ok && (len(rest) == 0 || rest[0] == '+' || rest[0] == ';')
}

// minGRPCTimeout is the least time that a gRPC call gets. Clients usually reset a call before that. Others could begin
// and abort requests to backends as fast as they can write, without the resets that are counted against a client.
const minGRPCTimeout = time.Second

// limitByGRPC ends the exchange when the client's grpc-timeout has expired, but not before minGRPCTimeout.
func (x *Exchange) limitByGRPC() {
	value, ok := x.Header.Get("grpc-timeout")
	if !ok {
		return
	}
	d, ok := parseGRPCTimeout(value)
	if !ok {
		return // left to the backend
	}
	x.callTime = max(d, 1)
	if at := x.start.Add(max(d, minGRPCTimeout)); x.deadline.IsZero() || at.Before(x.deadline) {
		x.deadline, x.deadlineReason = at, observe.ReasonGRPCTimeout
	}
}

// callIsOver reports whether a response is incomplete because the backend has ended a gRPC call whose time is over. The
// backend's clock started after the gateway's, and the client's before it, but the client may be the last to notice.
func (x *Exchange) callIsOver(err error) bool {
	return x.grpc && http2.Canceled(err) && x.callTime > 0 && time.Since(x.start) >= x.callTime
}

// OutOfTime reports whether the request has ended as a gRPC call that exceeded its own timeout before its response was
// complete.
func (x *Exchange) OutOfTime() bool { return !x.complete && x.rec.Reason == observe.ReasonGRPCTimeout }

// parseGRPCTimeout parses a value of grpc-timeout: one to eight digits and a unit. ok is false if it is malformed, or
// too long to matter.
func parseGRPCTimeout(value []byte) (d time.Duration, ok bool) {
	last := len(value) - 1
	if last < 1 || last > 8 {
		return 0, false
	}
	n := time.Duration(0)
	for _, c := range value[:last] {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = n*10 + time.Duration(c-'0')
	}
	unit := time.Duration(0)
	switch value[last] {
	case 'H':
		unit = time.Hour
	case 'M':
		unit = time.Minute
	case 'S':
		unit = time.Second
	case 'm':
		unit = time.Millisecond
	case 'u':
		unit = time.Microsecond
	case 'n':
		unit = time.Nanosecond
	default:
		return 0, false
	}
	if n > math.MaxInt64/unit {
		return 0, false
	}
	return n * unit, true
}

// failGRPC is like failWith, for a gRPC call, whose client reads the outcome from gRPC fields. The response has no
// body, like that of a backend that fails a call at once (Trailers-Only).
func (x *Exchange) failGRPC(status int, reason observe.Reason) (read bool) {
	return x.failGRPCWith(grpcCode(status, reason), status, reason)
}

// failGRPCWith is like failGRPC, with a given grpc-status.
func (x *Exchange) failGRPCWith(code, status int, reason observe.Reason) (read bool) {
	start := len(x.fx.Scratch)
	x.fx.Scratch = strconv.AppendInt(x.fx.Scratch, int64(code), 10)
	codeText := x.fx.Made(start)
	message := x.failureText(status, reason)
	x.resp.Reset()
	x.resp.Header.Add(contentTypeName, grpcType)
	x.resp.Header.Add(grpcStatusName, codeText)
	x.resp.Header.Add(grpcMessageName, message)
	x.addOverloaded(reason)
	x.resp.Status = http.StatusOK
	x.filterResponse()
	return x.replyFramed(http.StatusOK, reason, http1.NoBody, -1, nil)
}

// grpcCode returns the code to which gRPC clients map an HTTP status (grpc/grpc, doc/http-grpc-status-mapping.md),
// except that timeouts become DEADLINE_EXCEEDED: clients may resend a call that is UNAVAILABLE, and one that timed out
// may have been carried out.
func grpcCode(status int, reason observe.Reason) int {
	switch reason {
	case observe.ReasonGRPCTimeout, observe.ReasonRequestTimeout, observe.ReasonBackendTimeout, observe.ReasonStreamIdle, observe.ReasonStreamDurationExceeded:
		return grpcDeadlineExceeded
	}
	switch status {
	case http.StatusBadRequest:
		return grpcInternal
	case http.StatusUnauthorized:
		return grpcUnauthenticated
	case http.StatusForbidden:
		return grpcPermissionDenied
	case http.StatusNotFound:
		return grpcUnimplemented
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return grpcUnavailable
	}
	return grpcUnknown
}
