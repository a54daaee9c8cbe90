package exchange

import (
	"context"
	"time"

	"github.com/moongate-dev/moongate/internal/proxy/message"
	"github.com/moongate-dev/moongate/internal/proxy/upstream"
)

// call is a request of the gateway's own to a backend, by the connections and transports that requests of clients use. It is
// used by one goroutine.
type call struct {
	attempt attempt
	// stop keeps the end of the context from interrupting the transport any more, and waits where it is doing that.
	stop func()
}

// call connects to the endpoint and begins the request, as transport.open does. It fails by the deadline, and when ctx ends, and so does
// what follows. The endpoint must have been begun by the caller; from is whom
// the connection is for.
func (e *Engine) call(ctx context.Context, ep *upstream.Endpoint, from upstream.For, deadline time.Time, r *Request, body []byte, last bool) (*call, error) {
	if ep.DiffersByClient() {
		ep = ep.At(from)
	}
	u, place, err := connected(ctx, ep, deadline)
	if err != nil {
		return nil, err
	}
	c := &call{}
	a := &c.attempt
	a.engine, a.deadline = e, deadline
	if u != nil {
		a.useHTTP1(u)
	} else {
		a.useHTTP2(place)
	}
	if err := a.transport.open(r, body, last); err != nil {
		a.end(false)
		return nil, err
	}
	interrupted := make(chan struct{})
	unregister := context.AfterFunc(ctx, func() {
		a.interrupt()
		close(interrupted)
	})
	c.stop = func() {
		if !unregister() {
			<-interrupted
		}
	}
	return c, nil
}

// connected finds an idle connection or a place on a shared one, or makes one.
func connected(ctx context.Context, ep *upstream.Endpoint, deadline time.Time) (*upstream.Conn, *upstream.Shared, error) {
	for u := ep.Idle(); u != nil; u = ep.Idle() {
		if u.Alive() {
			return u, nil, nil
		}
		u.Close()
	}
	if place := ep.Place(); place != nil {
		return nil, place, nil
	}
	return ep.Connect(ctx, deadline, true)
}

// write sends more of the body, as transport.write does.
func (c *call) write(data []byte, last bool, trailer *message.Fields) error {
	return c.attempt.transport.write(data, last, trailer)
}

// readHead waits for the final response head, which is valid until end.
func (c *call) readHead(method []byte, resp *message.Response) error {
	for range maxInterim + 1 {
		switch err := c.attempt.transport.readHead(method, resp); {
		case err != nil:
			return err
		case resp.Status >= 200:
			return nil
		case resp.Status == 101: // nobody asked for it
			return errInterim
		}
	}
	return errInterim
}

// discard reads the body to its end, so that the connection can be used again.
func (c *call) discard() error {
	p, err := c.attempt.transport.readPart(false)
	for err == nil && !p.Last {
		p, err = c.attempt.transport.readPart(true)
	}
	return err
}

// end ends the call; complete reports that request and response were transferred completely. A second end does nothing.
func (c *call) end(complete bool) {
	if c.attempt.transport == nil {
		return
	}
	c.stop()
	c.attempt.end(complete)
	c.attempt.Give()
}
