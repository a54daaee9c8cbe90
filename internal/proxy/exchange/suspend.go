package exchange

import (
	"github.com/moongate-dev/moongate/internal/proxy/http2"
	"github.com/moongate-dev/moongate/internal/proxy/message"
)

// errSuspend is that a response has brought nothing for long.
var errSuspend = http2.ErrSuspend

// suspend leaves the rest of a response that is being relayed to Resume. The heads of request and response, of which nothing is wanted any more but what
// is recorded, are given up with their memory: the wait may last for hours.
func (x *Exchange) suspend(a *attempt) {
	x.suspended = true
	if x.Method != nil { // else it was suspended before
		x.keepRecorded()
		x.Request.Request, x.Target = message.Request{}, nil
	}
	x.resp.Header = message.Fields{}
	a.http2.out = http2.ClientRequest{}
}

// Await has wake called, once, when a suspended exchange is to go on by Resume, or returns false where that is at once. It is as
// http2.ClientStream.Notify and tunnel.Tunnel.Await.
func (x *Exchange) Await(wake func()) bool {
	if x.joined != nil {
		return x.joined.tunnel.Await(wake)
	}
	return x.attempt.http2.stream.Notify(wake)
}

// Resume goes on with a suspended exchange, on any goroutine. Its outcome is that of Run.
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
