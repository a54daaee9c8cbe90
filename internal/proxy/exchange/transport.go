package exchange

import (
	"time"

	"github.com/moongate-dev/moongate/internal/proxy/buffer"
	"github.com/moongate-dev/moongate/internal/proxy/http1"
	"github.com/moongate-dev/moongate/internal/proxy/message"
	"github.com/moongate-dev/moongate/internal/proxy/upstream"
)

// A transport carries the request of one attempt to an endpoint and the response back. http1Transport uses a connection
// of its own, http2Transport a stream on a shared connection, and rawTransport is for a CONNECT that the endpoint does
// not receive. The rest of the package does not distinguish them otherwise. The three parts may be used at the same
// time, each by one goroutine.
type transport interface {
	requestWriter
	responseReader
	control
}

type requestWriter interface {
	// open begins the request. first is the beginning of its body, or with last all of it. http2Transport sends it at
	// once, and fails if the connection takes no request. http1Transport sends the head with the first write or the
	// first readHead. first must stay valid until releaseBody returns true or a write returns. It is empty unless last
	// or attempt.headSent is set; if it is the whole body, the body has a length.
	open(r *Request, first []byte, last bool) error
	// write sends more of the body, which may be nothing, and with last the end of the body and the trailer fields;
	// trailer may be nil. When it returns, neither data nor the bytes passed to open are used any more.
	write(data []byte, last bool, trailer *message.Fields) error
	// releaseBody reports whether a whole body passed to open is not used any more.
	releaseBody() bool
}

type responseReader interface {
	// readHead waits for a response head, interim or final, and fills in resp, which is valid until the next head is
	// read. A final one also sets attempt.framing and attempt.length.
	readHead(method []byte, resp *message.Response) error
	// readPart returns the part of the body that has arrived, perhaps nothing; with wait it waits for the next part.
	// The part is valid until the next call. errSuspend means that it has waited for a long time: the wait may be ended
	// and begun again.
	readPart(wait bool) (Part, error)
	// atEnd reports, without waiting, whether all of a response has arrived of which only the final head was read. The
	// response must not be read afterwards.
	atEnd() bool
}

// control may be used by any goroutine, except for end.
type control interface {
	// setDeadline makes current and later calls fail with os.ErrDeadlineExceeded from then on, and undoes interrupt.
	// The zero time means never.
	setDeadline(time.Time)
	// interrupt makes current and later calls fail with os.ErrDeadlineExceeded.
	interrupt()
	// abort makes current and later calls fail, and cancels the request at the endpoint.
	abort()
	// end returns the connection, or the transport's part of it. complete means that request and response were
	// transferred completely; otherwise it is not reused. No other call may be in progress or follow.
	end(complete bool)
}

// attempt is one try at one endpoint.
type attempt struct {
	engine *Engine
	watch  *Watch // of the waiting client; nil if there is none

	transport transport       // http1 or http2; nil while there is no connection
	http1     *http1Transport // nil before the first attempt that needs it
	http2     http2Transport

	attemptState
}

// attemptState is reset for each attempt.
type attemptState struct {
	deadline time.Time      // the earliest of timeouts.request and timeouts.backendRequest, or the timeout of a try; the zero time means never
	buf      *buffer.Buffer // nil while nothing has arrived
	// headSent means that open has sent the head; otherwise the first write or readHead does.
	headSent bool
	// whole means that open was given all of the body, and unsent that the transport may still use it.
	whole, unsent bool
	// uploads means that the timeout of a try begins when the request body was sent.
	uploads bool
	// fresh means that a new connection was requested.
	fresh bool
	// received means that the backend has sent something.
	received bool
	// reused means that the connection has served a request before, so that the peer may have closed it without an
	// error.
	reused bool

	framing http1.Framing // of the response body, see Head
	length  int64         // of the response body, see Head
}

// useHTTP1 makes u the connection of the attempt.
func (a *attempt) useHTTP1(u *upstream.Conn) {
	if a.http1 == nil {
		a.http1 = &http1Transport{}
	}
	a.http1.a, a.http1.u, a.http1.own = a, u, false
	a.transport, a.headSent, a.reused = a.http1, false, u.Reused
}

// useHTTP2 makes a place on a shared connection the attempt's transport.
func (a *attempt) useHTTP2(place *upstream.Shared) {
	a.http2.a, a.http2.place, a.http2.stream = a, place, nil
	a.transport, a.headSent, a.reused = &a.http2, true, place.Used()
}

// end ends the transport, if there is one.
func (a *attempt) end(complete bool) {
	if t := a.transport; t != nil {
		a.transport = nil // another attempt may use its resources from now on
		t.end(complete)
	}
}

// interrupt makes waits for the backend end as if a deadline had passed.
func (a *attempt) interrupt() { a.transport.interrupt() }

// abort makes current reads and writes fail.
func (a *attempt) abort() {
	if a.transport != nil {
		a.transport.abort()
	}
}

// waits shows the sweeper that the exchange waits for the backend, until waited is called.
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

// Take returns memory for what the backend sends, see upstream.Buffer.
func (a *attempt) Take() []byte {
	if a.buf == nil {
		a.buf = buffer.TakeWithin(&a.engine.Budget)
	}
	return a.buf.Bytes()[buffer.Headroom:a.buf.End()]
}

// Give releases the buffer, if there is one. Nothing may point into it.
func (a *attempt) Give() {
	if a.buf != nil {
		buffer.Give(a.buf)
		a.buf = nil
	}
}
