package exchange

import (
	"time"

	"github.com/moongate-dev/moongate/internal/proxy/buffer"
	"github.com/moongate-dev/moongate/internal/proxy/http1"
	"github.com/moongate-dev/moongate/internal/proxy/message"
	"github.com/moongate-dev/moongate/internal/proxy/upstream"
)

// A transport carries the request of one attempt to an endpoint and the response back: http1Transport on a connection of its own,
// http2Transport by a stream on a connection that is shared, and rawTransport that of a CONNECT of which the endpoint hears nothing. What is done with requests and responses knows no other difference
// between them. The three parts may be used at the same time, each by one goroutine.
type transport interface {
	requestWriter
	responseReader
	control
}

type requestWriter interface {
	// open begins the request with first of its body, which with last is all of it. http2Transport sends that at once, and its error is
	// that the connection takes no request; http1Transport sends the head with the first write, or with the first readHead. Until
	// releaseBody reports true, or a write returns, first stays where it is. It is empty where neither last nor attempt.headSent is set, and
	// a body that it is all of has a length.
	open(r *Request, first []byte, last bool) error
	// write sends more of the body, which may be nothing, and with last its end and the trailer fields; nil is none. It returns when data is
	// not used any more, and neither is what open was given.
	write(data []byte, last bool, trailer *message.Fields) error
	// releaseBody reports whether a body that was given to open as a whole is not used any more.
	releaseBody() bool
}

type responseReader interface {
	// readHead waits for a response head, interim or final, and fills in resp, which is valid until the next one is read. With the
	// final one attempt.framing and attempt.length are set.
	readHead(method []byte, resp *message.Response) error
	// readPart returns what has come of the body together with the final head, maybe nothing; with wait it waits for the next part. The part is
	// valid until the next call. errSuspend is that it has waited for long: the wait may be ended and begun again.
	readPart(wait bool) (Part, error)
	// atEnd reports, without waiting, whether all of a response has come whose final head was read and nothing more. It is not read any more.
	atEnd() bool
}

// control may be used by any goroutine, but for end.
type control interface {
	// setDeadline makes calls fail with os.ErrDeadlineExceeded from then on, those under way too, and undoes interrupt; zero is never.
	setDeadline(time.Time)
	// interrupt makes calls fail with os.ErrDeadlineExceeded, those under way and later ones.
	interrupt()
	// abort makes calls fail, those under way and later ones, and tells the endpoint that the request is given up.
	abort()
	// end gives the connection back, or what the transport has of it. complete reports that request and response were transferred
	// completely; else it is not used again. No other call may be under way, or come later.
	end(complete bool)
}

// attempt is one try at one endpoint.
type attempt struct {
	engine *Engine
	watch  *Watch // whose client waits; nil where none does

	transport transport       // http1 or http2; nil while there is no connection
	http1     *http1Transport // nil before the first attempt that needs it
	http2     http2Transport

	attemptState
}

// attemptState is new for each attempt.
type attemptState struct {
	deadline time.Time      // the earlier of timeouts.request and timeouts.backendRequest, or the timeout of a try; zero is never
	buf      *buffer.Buffer // nil while nothing has come
	// headSent reports whether open has sent the head; else the first write or readHead does.
	headSent bool
	// whole reports whether open was given all of the body, and unsent whether the transport may still point there.
	whole, unsent bool
	// uploads reports whether the timeout of a try begins when the request body was sent.
	uploads bool
	// fresh reports whether a new connection was asked for.
	fresh bool
	// received reports whether the backend has sent anything at all.
	received bool
	// reused reports whether the connection served a request before, so that it may turn
	// out closed by the peer without anything being wrong.
	reused bool

	framing http1.Framing // of the response body, as in Head
	length  int64         // likewise
}

// useHTTP1 makes u the connection of the attempt.
func (a *attempt) useHTTP1(u *upstream.Conn) {
	if a.http1 == nil {
		a.http1 = &http1Transport{}
	}
	a.http1.a, a.http1.u, a.http1.own = a, u, false
	a.transport, a.headSent, a.reused = a.http1, false, u.Reused
}

// useHTTP2 makes a place on a shared connection that of the attempt.
func (a *attempt) useHTTP2(place *upstream.Shared) {
	a.http2.a, a.http2.place, a.http2.stream = a, place, nil
	a.transport, a.headSent, a.reused = &a.http2, true, place.Used()
}

// end ends the transport, if there is one.
func (a *attempt) end(complete bool) {
	if t := a.transport; t != nil {
		a.transport = nil // what it has may be another's from now on
		t.end(complete)
	}
}

// interrupt makes waits for the backend end as by a deadline.
func (a *attempt) interrupt() { a.transport.interrupt() }

// abort makes reads and writes that are under way fail.
func (a *attempt) abort() {
	if a.transport != nil {
		a.transport.abort()
	}
}

// waits shows the sweeper that the backend is waited for, until waited is called.
func (a *attempt) waits() {
	if a.watch != nil {
		a.watch.waits(a.engine.Now())
	}
}

func (a *attempt) waited() {
	if a.watch != nil {
		a.watch.waited()
	}
}

// Take is where to read what the backend sends, see upstream.Buffer.
func (a *attempt) Take() []byte {
	if a.buf == nil {
		a.buf = buffer.TakeWithin(&a.engine.Budget)
	}
	return a.buf.Bytes()[buffer.Headroom:a.buf.End()]
}

// Give gives the buffer back, if there is one; nothing may point into it.
func (a *attempt) Give() {
	if a.buf != nil {
		buffer.Give(a.buf)
		a.buf = nil
	}
}
