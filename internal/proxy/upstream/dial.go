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

// Reason is the stable word for why there is no connection.
type Reason string

// The reasons of a DialError.
const (
	ReasonRefused     Reason = "connect_refused"
	ReasonTimeout     Reason = "connect_timeout"     // the connect timeout passed
	ReasonSlow        Reason = "connect_slow"        // it took longer than connects to the backend usually do, and there is an endpoint that is not suspect
	ReasonUnreachable Reason = "connect_unreachable" // no route to the host or its network
	ReasonFailed      Reason = "connect_failed"      // any other error of the network or the peer
	ReasonGone        Reason = "endpoint_gone"       // the endpoint was removed from the configuration before it answered
	ReasonResources   Reason = "connect_resources"   // the gateway ran out of file descriptors or local ports
	ReasonTLS         Reason = "tls_failed"          // the TLS handshake failed, or no common protocol was negotiated
	ReasonOverloaded  Reason = "overloaded"          // too many requests wait for a connection to the endpoint
	ReasonBreaker     Reason = "circuit_breaker"     // a limit of the backend's circuit breaker is reached
	ReasonDeadline    Reason = "deadline"            // the caller's deadline passed
	ReasonCanceled    Reason = "canceled"            // the caller's context ended
	ReasonClosed      Reason = "closed"              // the Set is closed
)

// DialError is the error of a dial. Nothing of the request was sent.
type DialError struct {
	Endpoint  netip.AddrPort
	Reason    Reason
	Retryable bool // another try may succeed, preferably at another endpoint
	Err       error
}

func (e *DialError) Error() string {
	return fmt.Sprintf("upstream: connect to %s: %s: %v", e.Endpoint, e.Reason, e.Err)
}

func (e *DialError) Unwrap() error { return e.Err }

// keepAlive detects within 90 s that the peer of a silent connection in use (for example an upgraded one) is gone.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: 30 * time.Second, Interval: 10 * time.Second, Count: 6}

// errUnknown means that an endpoint is known, but not its protocol and TLS settings.
var errUnknown = errors.New("there is no Backend for the endpoint, or none that can be used")

var errNotHTTP2 = errors.New("the endpoint does not choose HTTP/2 by ALPN")

// Dial makes a new connection, whatever the limits of the Breaker, with TLS if the backend requires it. It ends by the
// connect timeout, by deadline (the zero time means none), or when ctx ends. The error is a *DialError.
func (e *Endpoint) Dial(ctx context.Context, deadline time.Time) (*Conn, error) {
	e.reserveAnyway()
	return e.dialBy(ctx, e.connectLimit(deadline), forRequest, nil)
}

// dialLimit is when making a connection is given up, and the reason of the error then.
type dialLimit struct {
	at     time.Time
	reason Reason
	// spent means that some of the time was used by another request's connect, which succeeded. If the rest is too
	// short, that is not the endpoint's fault.
	spent bool
	// patient means that the connect is not given up early for another endpoint, see ConnectPatiently.
	patient bool
	// slow is notified if a patient connect takes long; may be nil.
	slow *slowDial
	// spare means that no request needs the connection, so that its failure does not affect requests.
	spare bool
	// noWait means that the connect fails if a limit of the Breaker is reached.
	noWait bool
}

// connectLimit returns the limit of a connect that begins now: the earlier of the connect timeout and deadline (the
// zero time means none).
func (e *Endpoint) connectLimit(deadline time.Time) dialLimit {
	at := time.Now().Add(e.connectTimeout())
	if deadline.IsZero() || at.Before(deadline) {
		return dialLimit{at: at, reason: ReasonTimeout}
	}
	return dialLimit{at: deadline, reason: ReasonDeadline}
}

// queued returns the limit for a request that waits for its turn, or has waited: if it passes, the other requests are
// the cause, not the endpoint.
func (l dialLimit) queued() dialLimit {
	if l.reason == ReasonTimeout {
		l.reason = ReasonOverloaded
	}
	return l
}

// passed returns the error for a limit that has passed.
func (e *Endpoint) passed(limit dialLimit) *DialError {
	switch limit.reason {
	case ReasonDeadline:
		return e.dialError(ReasonDeadline, false, os.ErrDeadlineExceeded)
	case ReasonOverloaded:
		return e.tooManyWaiting()
	}
	return e.dialError(ReasonTimeout, true, os.ErrDeadlineExceeded)
}

// dialBy is Dial for a purpose, of a connection that was reserved. If connected is not nil, it is called before the TLS
// handshake.
func (e *Endpoint) dialBy(ctx context.Context, limit dialLimit, p purpose, connected func(*net.TCPConn)) (_ *Conn, err error) {
	s, made := e.backend.set, false
	if !e.acquireSocket(!limit.spare) {
		e.release()
		if !limit.spare {
			e.backend.totals().refused.Add(1)
		}
		return nil, e.dialError(ReasonOverloaded, false, errDescriptors)
	}
	defer func() {
		if !made {
			e.releaseSocket()
			e.release()
		}
	}()
	if s.open.shut() {
		return nil, e.dialError(ReasonClosed, false, net.ErrClosed)
	}
	transport := e.transport
	if transport.unknown {
		return nil, e.dialError(ReasonFailed, false, errUnknown)
	}
	life := e.use().life
	if life.Err() != nil { // the endpoint would be dialled with outdated settings
		return nil, e.dialError(ReasonGone, true, life.Err())
	}
	dialer := net.Dialer{Deadline: limit.at}
	alive := false
	if dialer.KeepAliveConfig, alive = e.keepaliveFor(p); !alive {
		dialer.KeepAlive = -1
	}
	// Nothing answers at the address of a pod that is gone, not even with a refusal.
	living, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(life, cancel)()
	// Not DialTCP, which binds to a port first: then all endpoints together would have only as many ports as one
	// endpoint has otherwise.
	start := time.Now()
	dialled, err := e.dialTCP(living, &dialer, limit)
	if IsExhausted(err) && !limit.spare && s.EvictIdle() {
		dialled, err = e.dialTCP(living, &dialer, limit)
	}
	if err != nil {
		if limit.reason == ReasonDeadline && isTimedOut(err) && ctx.Err() == nil && life.Err() == nil {
			e.unanswered(time.Since(start))
		}
		return nil, e.failed(ctx, limit, ReasonFailed, err)
	}
	socket := dialled.(*net.TCPConn)
	if connected != nil {
		connected(socket)
	}
	e.settings().prepare(socket)
	if header := e.header(); header != nil {
		if err := sendNow(socket, header, limit.at); err != nil {
			socket.Close()
			return nil, e.failed(ctx, limit, ReasonFailed, err)
		}
	}
	c := &Conn{Conn: socket, endpoint: e, plain: s.options.PlainIO, made: time.Now()}
	c.keptAlive.Store(alive)
	c.probe.init(socket, c.plain)
	if settings := transport.settings(p); settings != nil {
		if err = c.handshake(living, socket, settings, limit.at); err == nil {
			err = transport.refuses(c, p)
		}
		if err != nil {
			socket.Close()
			return nil, e.failed(ctx, limit, ReasonTLS, err)
		}
	}
	e.whole().reached()
	e.whole().use().dialled.Add(1)
	e.backend.totals().dialled.Add(1)
	made = true
	e.made()
	if !s.open.add(c) {
		c.Close()
		return nil, e.dialError(ReasonClosed, false, net.ErrClosed)
	}
	return c, nil
}

// sendNow sends a few bytes on a new connection, whose buffer has room for them.
func sendNow(socket *net.TCPConn, b []byte, by time.Time) error {
	if err := socket.SetWriteDeadline(by); err != nil {
		return err
	}
	if _, err := socket.Write(b); err != nil {
		return err
	}
	return socket.SetWriteDeadline(time.Time{})
}

func (e *Endpoint) dialError(reason Reason, retryable bool, err error) *DialError {
	return &DialError{Endpoint: e.address, Reason: reason, Retryable: retryable, Err: err}
}

// failed returns why the dial failed and, if the endpoint is to blame, makes requests avoid it for a moment. reason is
// used if the error does not show a more specific one.
func (e *Endpoint) failed(ctx context.Context, limit dialLimit, reason Reason, err error) *DialError {
	var netErr net.Error
	switch {
	case ctx.Err() != nil:
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			return e.dialError(ReasonDeadline, false, err)
		}
		return e.dialError(ReasonCanceled, false, err)
	case e.Gone():
		return e.dialError(ReasonGone, true, err)
	case errors.Is(err, syscall.EMFILE), errors.Is(err, syscall.ENFILE), errors.Is(err, syscall.ENOBUFS),
		errors.Is(err, syscall.EADDRNOTAVAIL):
		return e.dialError(ReasonResources, false, err)
	case errors.Is(err, errSlow):
		reason = ReasonSlow
	case errors.Is(err, syscall.ECONNREFUSED):
		reason = ReasonRefused
	case errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH):
		reason = ReasonUnreachable
	case errors.Is(err, os.ErrDeadlineExceeded), errors.As(err, &netErr) && netErr.Timeout():
		if limit.reason != ReasonTimeout || limit.spent {
			return e.passed(limit)
		}
		reason = ReasonTimeout
	}
	if reason == ReasonTLS && !e.whole().avoided() {
		e.backend.set.options.Logger.Warn("TLS to endpoint failed", "backend", e.backend.key, "endpoint", e.String(), "error", err)
	}
	whole := e.whole()
	if reason == ReasonTimeout && limit.slow != nil && limit.slow.wasNotified() { // it was already counted
		whole.suspectFor(avoidFor)
		return e.dialError(reason, true, err)
	}
	whole.use().failures.Add(1)
	e.backend.totals().failures.Add(1)
	if limit.spare {
		return e.dialError(reason, true, err)
	}
	if reason == ReasonSlow {
		whole.mistrust()
	} else {
		whole.suspectFor(avoidFor)
	}
	whole.connectFailed(reason == ReasonTimeout || reason == ReasonSlow)
	return e.dialError(reason, true, err)
}
