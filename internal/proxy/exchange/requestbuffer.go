package exchange

import (
	"os"
	"time"

	"github.com/moongate-dev/moongate/internal/observe"
	"github.com/moongate-dev/moongate/internal/proxy/http1"
)

// bufferRequest reads all of a request's body, up to limit bytes, before a backend is chosen. ok is false if the
// request has ended instead; read is the result of handle then. The memory counts towards Engine.MaxKept, and if it is
// scarce the request ends.
func (x *Exchange) bufferRequest(limit int64) (ok, read bool) {
	limit = min(limit, x.Client.Engine.mostKept())
	switch {
	case max(x.Length, int64(len(x.Whole))) > limit:
		return false, x.fail(observe.ReasonBodyTooLarge)
	case !x.Streamed:
		return true, false
	}
	gone, err := x.fillBody(limit)
	switch {
	case gone:
		x.rec.Reason = observe.ReasonClientClosed
		return false, false
	case err == nil:
		x.frameByLength()
		return true, false
	case err == ErrHeldBack:
		return false, x.fail(observe.ReasonOverloaded)
	case x.body.failed() != nil:
		return false, x.bodyFailed()
	}
	return false, x.fail(observe.ReasonBodyTooLarge)
}

// fillBody reads all of a streamed body, up to limit bytes. gone means that the client has left; the error is that of
// requestBody.fill.
func (x *Exchange) fillBody(limit int64) (gone bool, err error) {
	x.continueBody()
	w := x.Client.Watch
	w.begin(interrupterFunc(x.Client.Body.Stop))
	stopAt := x.stopBodyAtDeadline()
	err = x.body.fill(limit)
	stopAt()
	return w.end(), err
}

// stopBodyAtDeadline stops the client's body at the deadline, unless the returned function is called before.
func (x *Exchange) stopBodyAtDeadline() (end func()) {
	if x.deadline.IsZero() {
		return func() {}
	}
	stopped := make(chan struct{})
	t := time.AfterFunc(time.Until(x.deadline), func() {
		x.Client.Body.Stop()
		close(stopped)
	})
	return func() {
		if !t.Stop() {
			<-stopped
		}
	}
}

// fill waits for all of a streamed body before any attempt is made. It returns b.err, ErrHeldBack if memory is scarce,
// or os.ErrInvalid if the body is longer than limit.
func (b *requestBody) fill(limit int64) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.filling = true
	defer func() { b.filling = false }()
	for e := b.x.Client.Engine; !b.complete && b.err == nil && b.end <= limit; {
		if e.Overloaded.Load() || b.kept != nil && e.keptScarce() {
			return ErrHeldBack
		}
		b.read(true)
	}
	switch {
	case b.heldBack && !b.complete:
		return ErrHeldBack
	case b.err != nil:
		return b.err
	case b.end > limit:
		return os.ErrInvalid
	}
	return nil
}

// frameByLength sends the length of a body that is now known to the backend, unless trailer fields follow the body.
func (x *Exchange) frameByLength() {
	if t := x.Client.Body.Trailer(); x.Framing == http1.Chunked && (t == nil || t.Len() == 0) {
		x.Framing, x.Length = http1.Length, x.body.end
	}
}
