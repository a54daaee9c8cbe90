package exchange

import (
	"github.com/moongate-dev/moongate/internal/proxy/http2"
	"github.com/moongate-dev/moongate/internal/proxy/message"
)

// errSuspend means that a response has brought nothing for a long time.
var errSuspend = http2.ErrSuspend

// suspend leaves the rest of a response that is being relayed to Resume. It releases the memory of the heads of request
// and response, of which only the recorded values are still needed: the wait may last for hours.
func (x *Exchange) suspend(a *attempt) {
	x.suspended = true
	if x.Method != nil { // otherwise it was suspended before
		x.keepRecorded()
		x.Request.Request, x.Target = message.Request{}, nil
	}
	x.resp.Header = message.Fields{}
	a.http2.out = http2.ClientRequest{}
}

// Await arranges that wake is called once when a suspended exchange is to be resumed, or returns false if it can be
// resumed at once. See http2.ClientStream.Notify and tunnel.Tunnel.Await.
func (x *Exchange) Await(wake func()) bool {
	if x.joined != nil {
		return x.joined.tunnel.Await(wake)
	}
	return x.attempt.http2.stream.Notify(wake)
}

// Resume continues a suspended exchange, on any goroutine. It returns the outcome of Run or Join.
func (x *Exchange) Resume() Outcome {
	x.suspended = false
	if x.joined != nil && x.joined.path != nil {
		return x.endJoin(x.resumeJoin())
	}
	return x.end(x.resumeForward())
}

// resumeForward is the rest of forward.
func (x *Exchange) resumeForward() (read bool) {
	if read = x.resumeTry(&x.attempt); !x.suspended {
		x.endEndpoint()
	}
	return read
}

// resumeTry is the rest of try.
func (x *Exchange) resumeTry(a *attempt) (read bool) {
	defer x.endTry(a)
	if x.joined != nil {
		x.pumpUpgraded(a)
		return true
	}
	return x.relayed(a, x.relayRest(a, false, nil))
}
