package exchange

import (
	"errors"
	"io"

	"github.com/moongate-dev/moongate/internal/proxy/http1"
	"github.com/moongate-dev/moongate/internal/proxy/splice"
	"github.com/moongate-dev/moongate/internal/proxy/upstream"
)

// Splicer moves a part of the response body to the client without a copy. Errors are as those
// of Response.
type Splicer interface {
	// Splice sends all that the pipe holds.
	Splice(*splice.Pipe) error
}

// spliceable tells whether the rest of the response body, of left bytes, can go from socket to
// socket: where nobody needs to see it, and it is long enough.
func (x *Exchange) spliceable(a *attempt, left int64) bool {
	return left >= splice.Worth && x.respHead.Framing == http1.Length && x.Client.Splicer != nil && a.u.Splices()
}

// beginSplice is a pipe with what has come already of a body that is to be spliced, or nil.
func (x *Exchange) beginSplice(a *attempt) *splice.Pipe {
	left := x.respBody.Remaining()
	if !x.spliceable(a, left) {
		return nil
	}
	p := splice.Take()
	if p != nil {
		x.respBody.Skip(int64(a.u.SpliceMore(p, left)))
	}
	return p
}

// splice relays the rest of the body by way of the pipe, unless started is an error, and gives the pipe back. Where it
// cannot, it ends early and without an error.
func (x *Exchange) splice(a *attempt, p *splice.Pipe, started error) error {
	defer splice.Give(p)
	if started != nil {
		return started
	}
	a.Give() // what it held is sent
	since := &x.Client.Watch.since
	for p.Held() > 0 || !x.respBody.Done() {
		if p.Held() == 0 {
			since.Store(x.Client.Engine.Now())
			n, err := a.u.Splice(p, x.respBody.Remaining())
			since.Store(0)
			switch {
			case err == upstream.ErrNoSplice:
				return nil
			case errors.Is(err, io.EOF):
				return x.respBody.EOF()
			case err != nil:
				return err
			}
			x.respBody.Skip(int64(n))
		}
		x.rec.BytesSent += int64(p.Held())
		if err := x.Client.Splicer.Splice(p); err != nil {
			return errClientWrite{err}
		}
	}
	return nil
}
