package exchange

import (
	"errors"
	"net/http"
	"time"

	"github.com/moongate-dev/moongate/internal/observe"
	"github.com/moongate-dev/moongate/internal/proxy/http1"
	"github.com/moongate-dev/moongate/internal/proxy/http2"
)

// errClientWrite wraps an error of the client that occurred while its backend was being read.
type errClientWrite struct{ error }

var errInterim = &http1.Error{Status: 502, Reason: "upstream_malformed", Detail: "interim responses without end, or a switch of protocols that was not requested"}

// readHead reads up to the final response head and relays interim responses.
func (x *Exchange) readHead(a *attempt) error {
	for interim := 0; ; interim++ {
		switch err := a.transport.readHead(x.Method, &x.resp); {
		case err != nil:
			return err
		case x.resp.Status >= 200:
			return x.checkFinal()
		case x.resp.Status == http.StatusSwitchingProtocols:
			return x.checkSwitch(a)
		case interim == maxInterim:
			return errInterim
		}
		if err := x.relayInterim(); err != nil {
			return err
		}
	}
}

// relayInterim relays a 1xx response.
func (x *Exchange) relayInterim() error {
	if x.resp.Status == 100 {
		x.body.continued = true
	} else {
		x.retry.interim = true
	}
	if err := x.Client.Response.Interim(&x.resp); err != nil {
		return errClientWrite{err}
	}
	return nil
}

// relay sends the final response to the client: the head in x.resp and the body. complete reports whether the response
// was received from the backend and sent to the client completely.
func (x *Exchange) relay(a *attempt) (complete bool) {
	x.rec.Status, x.rec.Reason = x.resp.Status, observe.ReasonOK
	if x.upgradeNotForwarded {
		x.rec.Reason = observe.ReasonUpgradeIgnored
	}
	x.addDate()
	head := Head{Response: &x.resp, Framing: a.framing, Length: a.length, Close: x.closes(), Unread: x.body.neverComes()}
	if t, ok := a.transport.(duplexer); ok && x.resp.Status == http.StatusUpgradeRequired {
		head.Upgrade = t.switched()
	}
	part, err := a.transport.readPart(false)
	if err != nil {
		x.brokeOff(err)
		return false
	}
	if part.Trailer != nil {
		x.takeLoadReport(part.Trailer)
	}
	if x.rule != nil && x.rule.Compression != nil {
		if c := x.beginCompression(&head, &part); c != nil {
			if part.Last {
				x.reportTrailer(&part)
			}
			return x.relayRest(a, part.Last, c.start(part))
		}
	}
	x.limitWrite()
	paced := x.responseLimiter() != nil && len(part.Data()) > 0
	if paced { // the head does not wait for the limiter of the body
		err = x.sent(Part{}, x.startResponse(head, Part{}))
	} else {
		err = x.sent(part, x.startResponse(head, part))
	}
	if !part.Last {
		x.resp.Header.Forget() // otherwise it would keep a buffer alive that is given back for the wait
		x.resp.Reason = nil
	}
	if part.Last {
		x.reportTrailer(&part)
	}
	if paced && err == nil {
		err = x.sendPart(a, part)
	}
	return x.relayRest(a, part.Last, err)
}

// relayRest sends the rest of the response, unless last or err is set. It returns early if the exchange is suspended.
//
//go:noinline
func (x *Exchange) relayRest(a *attempt, last bool, err error) (complete bool) {
	part := Part{Last: last}
	for err == nil && !part.Last {
		if a.unsent {
			x.body.markFinal(a)
		}
		if part, err = a.transport.readPart(true); err == nil && (part.Last || len(part.Data()) > 0) {
			x.movedNow()
			x.limitWrite()
			if part.Last {
				x.reportTrailer(&part)
			}
			if part.Trailer != nil {
				x.takeLoadReport(part.Trailer)
			}
			if c := x.compressing(); c != nil {
				err = c.pass(part)
			} else {
				err = x.sendPart(a, part)
			}
		}
	}
	switch {
	case err == errSuspend:
		x.restCompression()
		x.suspend(a)
		return false
	case err != nil:
		x.relayFailed(err)
		return false
	}
	return true
}

// sent counts the bytes of a part of the body, and marks err as the client's.
func (x *Exchange) sent(p Part, err error) error {
	x.rec.BytesSent += int64(len(p.Data()))
	if err != nil {
		return errClientWrite{err}
	}
	return nil
}

// brokeOff answers a request whose response has broken off after its head, but before any of it was sent to the client.
func (x *Exchange) brokeOff(err error) {
	x.rec.OverriddenStatus = 0
	if !x.deadline.IsZero() || x.limits() != nil {
		x.Client.Limiter.WriteBy(time.Time{}) // as in endTry
	}
	switch {
	case x.Client.Watch.goneNow():
		x.rec.Status, x.rec.Reason = 0, observe.ReasonClientClosed
	case isMalformed(err):
		x.reportTruncated()
		x.fail(observe.ReasonUpstreamMalformed)
	case isTimeout(err):
		x.fail(x.timeoutReason())
	case x.callIsOver(err):
		x.fail(observe.ReasonGRPCTimeout)
	default:
		x.reportTruncated()
		x.noteSent(true) // the backend had begun to answer
		x.fail(observe.ReasonUpstreamReset)
	}
}

// relayFailed sets the reason why a response broke off. The client's side must make that visible to the client.
func (x *Exchange) relayFailed(err error) {
	var toClient errClientWrite
	switch {
	case errors.As(err, &toClient):
		x.rec.Reason = x.writeFailed(toClient.error)
	case err == errScarce:
		x.rec.Reason = observe.ReasonOverloaded
	case x.Client.Watch.goneNow():
		_, x.rec.Reason = x.bodyFault()
	case isTimeout(err):
		x.rec.Reason = x.timeoutReason()
	case x.callIsOver(err):
		x.rec.Reason = observe.ReasonGRPCTimeout
	default:
		x.rec.Reason = observe.ReasonUpstreamTruncated
		x.reportTruncated()
	}
}

// isMalformed reports whether what a backend has sent was not a valid response.
func isMalformed(err error) bool {
	var malformed *http1.Error
	return errors.As(err, &malformed) || http2.Malformed(err)
}
