package upstream

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"syscall"
	"time"
)

// Reason says in one stable word why there is no connection.
type Reason string

// The reasons of a DialError.
const (
	ReasonRefused     Reason = "connect_refused"
	ReasonTimeout     Reason = "connect_timeout"     // the connect timeout passed
	ReasonUnreachable Reason = "connect_unreachable" // no way to the host or its network
	ReasonFailed      Reason = "connect_failed"      // anything else on the way or at the peer
	ReasonGone        Reason = "endpoint_gone"       // the endpoint left the configuration before it answered
	ReasonResources   Reason = "connect_resources"   // we ran out of descriptors or local ports
	ReasonDeadline    Reason = "deadline"            // the caller's deadline passed
	ReasonCanceled    Reason = "canceled"            // the caller's context ended
	ReasonClosed      Reason = "closed"              // the Set is closed
)

// DialError is what Dial returns. Nothing of the request was sent.
type DialError struct {
	Endpoint  netip.AddrPort
	Reason    Reason
	Retryable bool // another try, best at another endpoint, may succeed
	Err       error
}

func (e *DialError) Error() string {
	return fmt.Sprintf("upstream: connect to %s: %s: %v", e.Endpoint, e.Reason, e.Err)
}

func (e *DialError) Unwrap() error { return e.Err }

// keepAlive finds within 90 s that the peer of a silent connection in use (an
// upgraded one, say) is gone.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: 30 * time.Second, Interval: 10 * time.Second, Count: 6}

// Dial makes a new connection, within the connect timeout and by deadline (zero:
// none), or until ctx ends. Make a context only when Idle has nothing: it is the
// way to give up when the client vanishes. The error is a *DialError.
func (e *Endpoint) Dial(ctx context.Context, deadline time.Time) (*Conn, error) {
	s := e.backend.set
	if s.open.shut() {
		return nil, e.dialError(ReasonClosed, false, net.ErrClosed)
	}
	limit := time.Now().Add(s.options.ConnectTimeout)
	ours := deadline.IsZero() || limit.Before(deadline)
	if !ours {
		limit = deadline
	}
	dialer := net.Dialer{Deadline: limit, KeepAliveConfig: keepAlive}
	// Nobody answers any more at the address of a pod that is gone: not even a refusal comes.
	living, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(e.life, cancel)()
	socket, err := dialer.DialTCP(living, "tcp", netip.AddrPort{}, e.address)
	if err != nil {
		return nil, e.failed(ctx, ours, err)
	}
	e.avoidUntil.Store(0)
	e.dialled.Add(1)
	e.backend.dialled.Add(1)
	c := &Conn{Conn: socket, endpoint: e, plain: s.options.PlainIO}
	c.probe.init(socket, c.plain)
	e.open.Add(1)
	e.backend.open.Add(1)
	if !s.open.add(c) {
		c.Close()
		return nil, e.dialError(ReasonClosed, false, net.ErrClosed)
	}
	return c, nil
}

func (e *Endpoint) dialError(reason Reason, retryable bool, err error) *DialError {
	return &DialError{Endpoint: e.address, Reason: reason, Retryable: retryable, Err: err}
}

// failed says why the dial failed and, where the endpoint is to blame, has it
// passed over for a moment. ours: the connect timeout was the limit, not the caller's deadline.
func (e *Endpoint) failed(ctx context.Context, ours bool, err error) *DialError {
	var netErr net.Error
	reason := ReasonFailed
	switch {
	case ctx.Err() != nil:
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			return e.dialError(ReasonDeadline, false, err)
		}
		return e.dialError(ReasonCanceled, false, err)
	case e.life.Err() != nil:
		return e.dialError(ReasonGone, true, err)
	case errors.Is(err, syscall.EMFILE), errors.Is(err, syscall.ENFILE), errors.Is(err, syscall.ENOBUFS),
		errors.Is(err, syscall.EADDRNOTAVAIL):
		return e.dialError(ReasonResources, false, err)
	case errors.Is(err, syscall.ECONNREFUSED):
		reason = ReasonRefused
	case errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH):
		reason = ReasonUnreachable
	case errors.Is(err, os.ErrDeadlineExceeded), errors.As(err, &netErr) && netErr.Timeout():
		if !ours {
			return e.dialError(ReasonDeadline, false, err)
		}
		reason = ReasonTimeout
	}
	e.avoidUntil.Store(time.Now().Add(avoidFor).UnixNano())
	e.failures.Add(1)
	e.backend.failures.Add(1)
	return e.dialError(reason, true, err)
}
