package exchange

import (
	"errors"
	"net/http"
	"os"
	"strconv"
	"time"

	"github.com/moongate-dev/moongate/internal/observe"
	"github.com/moongate-dev/moongate/internal/proxy/filter"
	"github.com/moongate-dev/moongate/internal/proxy/http1"
)

var (
	dateName        = []byte("Date")
	contentTypeName = []byte("Content-Type")
	overloadedName  = []byte("X-Envoy-Overloaded")
	trueValue       = []byte("true")
	textPlain       = []byte("text/plain; charset=utf-8")
)

func isTimeout(err error) bool { return errors.Is(err, os.ErrDeadlineExceeded) }

// fail answers with the status of the reason.
func (x *Exchange) fail(reason observe.Reason) (read bool) {
	return x.failWith(reason.Status(), reason)
}

// failWith answers with a short text that contains the reason word. The response filters of the rule apply to it as to
// responses of backends.
func (x *Exchange) failWith(status int, reason observe.Reason) (read bool) {
	if x.grpc && status != http.StatusMisdirectedRequest { // a 421 makes the client open a new connection, below gRPC
		return x.failGRPC(status, reason)
	}
	start := len(x.fx.Scratch)
	x.failureText(status, reason)
	x.fx.Scratch = append(x.fx.Scratch, '\n')
	body := x.fx.Made(start)
	x.resp.Reset()
	x.resp.Header.Add(contentTypeName, textPlain)
	x.addOverloaded(reason)
	x.resp.Status = status
	body = x.overrideLocal(reason, body)
	x.filterResponse()
	return x.reply(x.resp.Status, reason, body)
}

// addOverloaded marks the response to a request that did not pass a circuit breaker, as Envoy does.
func (x *Exchange) addOverloaded(reason observe.Reason) {
	if reason == observe.ReasonCircuitBreakerOpen {
		x.resp.Header.Add(overloadedName, trueValue)
	}
}

// failureText returns the text that clients receive for a failure.
func (x *Exchange) failureText(status int, reason observe.Reason) []byte {
	start := len(x.fx.Scratch)
	b := append(x.fx.Scratch, "moongate: "...)
	b = strconv.AppendInt(b, int64(status), 10)
	b = append(b, ' ')
	x.fx.Scratch = append(b, reason.String()...)
	return x.fx.Made(start)
}

// answer sends the reply of a filter instead of the backend's response.
func (x *Exchange) answer(r *filter.Reply) (read bool) {
	reason, ok := observe.ReasonByWord(r.Reason)
	if !ok {
		reason = observe.ReasonInternal
	}
	switch {
	case r.Status == 0:
		return x.filterFailed(reason)
	case x.grpc && reason == observe.ReasonAuthDenied:
		return x.failGRPC(r.Status, reason)
	}
	x.resp.Reset()
	for i := range r.Header.Len() {
		x.resp.Header.Append(*r.Header.At(i))
	}
	x.resp.Status = r.Status
	body := r.Body
	if reason != observe.ReasonPreflight { // a preflight concerns only browser and gateway
		body = x.overrideLocal(reason, body)
	}
	x.filterResponse()
	if reason == observe.ReasonAuthDenied && len(body) == 0 && string(x.Method) == "HEAD" {
		// Without Content-Length (RFC 9110 section 8.6): the authorization server was asked by HEAD too, so the length
		// of its response to GET is unknown.
		return x.replyFramed(x.resp.Status, reason, http1.NoBody, -1, nil)
	}
	return x.reply(x.resp.Status, reason, body)
}

// filterFailed answers a request that a filter could not process.
func (x *Exchange) filterFailed(reason observe.Reason) (read bool) {
	switch {
	case reason == observe.ReasonOverloaded: // the gateway has stopped the body, not the client
	case x.clientLeft(): // which may have made reading the body fail
		return false
	case x.body.failed() != nil:
		return x.bodyFailed()
	default:
		if why, expired := x.expired(); expired {
			reason = why
		}
	}
	return x.fail(reason)
}

// filterResponse runs the response filters on the head in x.resp: those of the backendRef, then those of the rule and
// of the listener, as far as these have been chosen.
//
//go:noinline
func (x *Exchange) filterResponse() {
	x.fx.Response = &x.resp
	if x.rule != nil && x.rule.RateLimits != nil {
		x.addRateLimitFields()
	}
	if x.ref != nil {
		x.ref.Filters.RunResponse(&x.fx)
	}
	if x.rule != nil {
		x.rule.Filters.RunResponse(&x.fx)
	}
	if x.listener != nil {
		x.listener.Filters.RunResponse(&x.fx)
	}
	if x.rare != nil {
		if t := x.rare.contentType; t != nil {
			x.resp.Header.Set(contentTypeName, t)
			x.resp.Header.Set(contentTypeOptionsName, noSniff)
			x.rare.contentType = nil
		}
		x.rare.span.Responds(&x.resp.Header)
	}
}

// With nosniff, browsers take the content type literally
// (https://fetch.spec.whatwg.org/#x-content-type-options-header).
var contentTypeOptionsName, noSniff = []byte("X-Content-Type-Options"), []byte("nosniff")

// reply sends a response of the gateway: the fields in x.resp, and the body unless the method is HEAD or the status has
// none. Otherwise a client would take the body for the next response.
func (x *Exchange) reply(status int, reason observe.Reason, body []byte) (read bool) {
	framing, length, body := x.framingOf(status, body)
	return x.replyFramed(status, reason, framing, length, body)
}

// framingOf returns how the body of a response of the gateway is framed, and the part of it that is sent.
func (x *Exchange) framingOf(status int, body []byte) (framing http1.Framing, length int64, sent []byte) {
	if x.rule != nil && !x.grpc && x.rule.Compression != nil {
		body = x.compressReply(status, body)
	}
	switch {
	case status == http.StatusNoContent, status == http.StatusNotModified: // without Content-Length (RFC 9110 section 8.6), since the length of what was not modified is unknown
		return http1.NoBody, -1, nil
	case status == http.StatusResetContent: // has no content either, which Content-Length: 0 shows (RFC 9110 section 15.3.6)
		body = nil
	}
	if string(x.Method) == "HEAD" {
		return http1.NoBody, int64(len(body)), nil
	}
	return http1.Length, int64(len(body)), body
}

// replyFramed is like reply, with the given framing.
func (x *Exchange) replyFramed(status int, reason observe.Reason, framing http1.Framing, length int64, body []byte) (read bool) {
	return x.send(status, reason, framing, length, body, x.body.unread())
}

// send is like replyFramed. unread is Head.Unread.
func (x *Exchange) send(status int, reason observe.Reason, framing http1.Framing, length int64, body []byte, unread bool) (read bool) {
	if status < 300 && x.wantsTunnel() { // there is no tunnel, so it must not be a 2xx
		if status = http.StatusBadGateway; framing == http1.NoBody {
			framing, length = http1.Length, 0
		}
	}
	x.rec.Status, x.rec.Reason = status, reason
	x.resp.Status = status
	start := len(x.fx.Scratch)
	x.fx.Scratch = append(x.fx.Scratch, http.StatusText(status)...)
	x.resp.Reason = x.fx.Made(start)
	x.addDate()
	x.rec.BytesSent = int64(len(body))
	head := Head{Response: &x.resp, Framing: framing, Length: length, Close: x.closes(), Unread: unread}
	if err := x.startResponse(head, Part{Buf: body, End: len(body), Last: true}); err != nil {
		x.rec.Reason = x.writeFailed(err)
		return false
	}
	x.complete = true
	return !head.Unread
}

// closes reports whether the client's connection should take no further requests.
func (x *Exchange) closes() bool { return x.closing || x.Client.Engine.Draining.Load() }

// writeFailed returns why the response could not be sent to the client.
func (x *Exchange) writeFailed(err error) observe.Reason {
	if !isTimeout(err) {
		return observe.ReasonClientClosed
	}
	if x.pastDeadline() {
		return x.deadlineReason
	}
	if l := x.limits(); l != nil && l.idle > 0 && l.left() <= 0 {
		return observe.ReasonStreamIdle
	}
	return observe.ReasonClientTimeout
}

// addDate adds Date to a response that lacks it (RFC 9110 section 6.6.1).
func (x *Exchange) addDate() {
	if _, ok := x.resp.Header.Get("date"); ok {
		return
	}
	start := len(x.fx.Scratch)
	x.fx.Scratch = time.UnixMilli(x.Client.Engine.Now()).UTC().AppendFormat(x.fx.Scratch, http.TimeFormat)
	x.resp.Header.Add(dateName, x.fx.Made(start))
}
