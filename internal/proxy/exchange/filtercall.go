package exchange

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"time"

	"github.com/moongate-dev/moongate/internal/proxy/filter"
	"github.com/moongate-dev/moongate/internal/proxy/http1"
	"github.com/moongate-dev/moongate/internal/proxy/http2"
	"github.com/moongate-dev/moongate/internal/proxy/message"
	"github.com/moongate-dev/moongate/internal/proxy/upstream"
)

// This file implements filter.Engine: calls that filters make, and access to the whole body of a request.

// Bounds of the calls of filters.
const (
	callTimeout     = 5 * time.Second // from the start of a call to the end of its response, over all attempts
	maxCallAttempts = 3
	maxCallContent  = 256 << 10 // bytes of a response's body
	// maxCallPasses is the largest number of Moongate proxies that a request may have passed, including this one, for
	// filters to make calls: a few Gateways in sequence may each call a server. If calls lead back to the gateway, each
	// pass at least doubles them.
	maxCallPasses = 3
)

var (
	errCallNoEndpoint = errors.New("the backend has no ready endpoint")
	errCallOverloaded = errors.New("a limit of the backend's circuit breaker is reached")
	errCallContent    = errors.New("the response's body is too long")
)

// Call implements filter.Engine. If no response has begun and there is time left, other endpoints are asked. A backend
// may be asked again even if it may have received the call, since the call changes nothing.
func (x *Exchange) Call(c *filter.Call) error {
	if message.Passes(&x.Header) > maxCallPasses {
		return filter.ErrLoop
	}
	deadline := time.Now().Add(callTimeout)
	if !x.deadline.IsZero() && x.deadline.Before(deadline) {
		deadline = x.deadline
	}
	if copied := int64(len(c.Body)); copied > uncounted { // in addition to the request's own body
		kept := &x.Client.Engine.keptBodies.bytes
		kept.Add(copied)
		defer kept.Add(-copied)
	}
	w := x.beginWait()
	defer w.endNotForBackend()
	return x.Client.Engine.carryOut(w.ctx, x.listener.Identity, &x.fx.Seed, deadline, c)
}

// Send makes a call without an exchange, for listeners with the identity.
func (e *Engine) Send(ctx context.Context, identity *upstream.Identity, c *filter.Call) error {
	seed := rand.Uint64()
	return e.carryOut(ctx, identity, &seed, time.Now().Add(callTimeout), c)
}

// carryOut makes the attempts of a call.
func (e *Engine) carryOut(ctx context.Context, identity *upstream.Identity, seed *uint64, deadline time.Time, c *filter.Call) error {
	backend := c.Backend.As(identity)
	if backend == nil {
		return errCallNoEndpoint
	}
	if !time.Now().Before(deadline) { // the client has used up the request's time, which is not the endpoint's fault
		return os.ErrDeadlineExceeded
	}
	var tried upstream.Tried
	for n := 1; ; n++ {
		var ep *upstream.Endpoint
		for ep == nil {
			resolving := backend.Resolving()
			if ep = backend.PickAs(identity, seed, &tried); ep == nil && (!resolving || !backend.AwaitHost(ctx, deadline)) {
				return errCallNoEndpoint
			}
		}
		answered, err := e.callAt(ctx, ep, deadline, c)
		if err == nil || answered || n == maxCallAttempts || ctx.Err() != nil || !time.Now().Before(deadline) {
			return err
		}
		tried.Add(ep)
	}
}

// callAt makes one attempt. answered means that a response has begun.
func (e *Engine) callAt(ctx context.Context, ep *upstream.Endpoint, deadline time.Time, c *filter.Call) (answered bool, err error) {
	admitted, ok := ep.Backend().Admit()
	if !ok {
		return false, errCallOverloaded
	}
	if admitted != nil {
		defer admitted.Done()
	}
	ep.Begin()
	defer ep.End()
	r := Request{Request: c.Request, Framing: http1.Length, Length: int64(len(c.Body)), TETrailers: c.Trailers}
	made, err := e.call(ctx, ep, upstream.For{HTTP2: c.Trailers || ep.PrefersHTTP2()}, deadline, &r, c.Body, true)
	if err != nil {
		return false, err
	}
	complete := false
	defer func() { made.end(complete) }() // also if it panics
	var head message.Response
	if err := made.readHead(r.Method, &head); err != nil {
		switch {
		case ctx.Err() != nil, http2.Unprocessed(err):
		case isTimeout(err):
			ep.Broken(upstream.FailureTimeout)
		default:
			ep.Broken(upstream.FailureReset)
		}
		return false, err
	}
	c.Status = head.Status
	c.Header.Reset()
	cloneFields(&c.Header, &head.Header)
	if err := made.readAll(c); err != nil {
		return true, err
	}
	reportCall(ep, c.Status, &c.Header, &c.Trailer)
	complete = true
	return true, nil
}

// readAll reads the body and trailer section of a response into c.
func (m *call) readAll(c *filter.Call) error {
	c.Content = c.Content[:0]
	c.Trailer.Reset()
	for wait := false; ; wait = true {
		p, err := m.attempt.transport.readPart(wait)
		if err != nil {
			return err
		}
		if len(c.Content)+len(p.Data()) > maxCallContent {
			return errCallContent
		}
		c.Content = append(c.Content, p.Data()...)
		if p.Last {
			if p.Trailer != nil {
				cloneFields(&c.Trailer, p.Trailer)
			}
			return nil
		}
	}
}

// ReadBody implements filter.Engine. Its limits are those of bufferRequest.
func (x *Exchange) ReadBody(limit int64) ([]byte, error) {
	limit = min(limit, x.Client.Engine.mostKept())
	if max(x.Length, int64(len(x.Whole))) > limit {
		return nil, filter.ErrBodyTooLarge
	}
	if !x.Streamed {
		return x.Whole, nil
	}
	switch _, err := x.fillBody(limit); err {
	case nil:
		return x.body.joined(), nil
	case ErrHeldBack:
		return nil, filter.ErrOverloaded
	case os.ErrInvalid:
		return nil, filter.ErrBodyTooLarge
	default:
		return nil, err
	}
}

// continueBody sends a 100 to a client that waits for it before it sends its body. The backend's own 100 would come too
// late.
func (x *Exchange) continueBody() {
	if !x.body.awaited() {
		return
	}
	x.resp.Reset()
	x.resp.Status, x.resp.Reason = 100, continueReason
	x.body.continued, x.ExpectContinue = true, false
	x.Client.Response.Interim(&x.resp) //nolint:errcheck // if the client has left, reading its body fails
}

var continueReason = []byte("Continue")

// BodyLength implements filter.Engine.
func (x *Exchange) BodyLength() int64 {
	if x.Streamed {
		return x.Length
	}
	return int64(len(x.Whole))
}

// ClientInfo implements filter.Engine.
func (x *Exchange) ClientInfo() filter.Client {
	return filter.Client{Address: x.rec.ClientAddr, Local: x.local().Addr(), ServerName: x.Client.ServerName, Protocol: x.Client.Protocol}
}
