package exchange

import (
	"context"
	"time"

	"github.com/moongate-dev/moongate/internal/proxy/message"
	"github.com/moongate-dev/moongate/internal/proxy/upstream"
)

// call is a request of the gateway itself to a backend, over the connections and transports that clients' requests use.
// It belongs to one goroutine.
type call struct {
	attempt attempt
	// stop makes the end of the context no longer interrupt the transport, and waits if it is just doing so.
	stop func()
}

// call connects to the endpoint and begins the request, as transport.open does. It fails at the deadline and when ctx
// ends; so do the methods of the call. The caller must have called Begin on the endpoint. from is the client that the
// connection is for.
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

// connected finds an idle connection or a place on a shared one, or makes a connection.
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
		case resp.Status == 101: // the request did not ask for it
			return errInterim
		}
	}
	return errInterim
}

// discard reads the body to its end, so that the connection can be reused.
func (c *call) discard() error {
	p, err := c.attempt.transport.readPart(false)
	for err == nil && !p.Last {
		p, err = c.attempt.transport.readPart(true)
	}
	return err
}

// end ends the call. complete means that request and response were transferred completely. A second end does nothing.
func (c *call) end(complete bool) {
	if c.attempt.transport == nil {
		return
	}
	c.stop()
	c.attempt.end(complete)
	c.attempt.Give()
}
