package exchange

import (
	"time"

	"github.com/moongate-dev/moongate/internal/observe"
	"github.com/moongate-dev/moongate/internal/proxy/message"
	"github.com/moongate-dev/moongate/internal/proxy/session"
	"github.com/moongate-dev/moongate/internal/proxy/snapshot"
	"github.com/moongate-dev/moongate/internal/proxy/upstream"
)

// clientSession is the persistent session of an exchange's client (GEP-1619).
type clientSession struct {
	settings *session.Settings // nil if the current request has none
	keys     *session.Keys
	token    session.Token
	// with is the endpoint that the token names for the current backend; valid if known is true.
	with  uint64
	known bool
	// left means that that endpoint is missing or takes no connection, so that the session continues with another one.
	left bool
}

// beginSession reads which endpoint the request's session is with, if the backend has session persistence. The backend
// must have been chosen.
//
//go:noinline
func (x *Exchange) beginSession(b *snapshot.BackendRef) {
	settings := x.rule.Sessions
	if settings == nil {
		settings = b.Backend.Sessions()
	}
	if settings == nil || x.listener.Sessions == nil {
		if x.rare != nil {
			x.rare.session.settings = nil
		}
		return
	}
	s := &x.ensureRare().session
	s.settings, s.keys, s.left = settings, x.listener.Sessions, false
	settings.Read(s.keys, &x.Header, &s.token)
	s.with, s.known = s.token.Endpoint(settings, b.Backend.SessionID(), time.Now())
}

// session returns the session of the current request, nil if it has none.
func (x *Exchange) session() *clientSession {
	if x.rare == nil || x.rare.session.settings == nil {
		return nil
	}
	return &x.rare.session
}

// inSession reports whether the current attempt is at the endpoint of a session, which no other endpoint knows.
func (x *Exchange) inSession() bool {
	s := x.session()
	return s != nil && s.known && !s.left
}

// pick chooses the endpoint of an attempt. It is the endpoint of the session as long as that takes connections, however
// earlier attempts have ended, since the others do not know the session.
//
//go:noinline
func (x *Exchange) pick(backend *upstream.Backend) *upstream.Endpoint {
	if s := x.session(); s != nil && s.known && !s.left {
		for {
			resolving := backend.Resolving()
			if ep := backend.SessionEndpointAs(x.listener.Identity, s.with); ep != nil {
				return ep
			}
			if !resolving || !x.awaitHost(backend) {
				break
			}
		}
		s.left = true
	}
	var info *upstream.PickInfo
	if b := x.balancing(); b != nil {
		info = &b.info
	}
	for {
		resolving := backend.Resolving() // before PickForAs, since the answer may arrive during it
		ep := backend.PickForAs(x.listener.Identity, &x.fx.Seed, &x.retry.tried, info)
		if ep != nil || !resolving || !x.awaitHost(backend) {
			return ep
		}
	}
}

// awaitHost waits for the first DNS answer about the backend's host, which was missing when no endpoint was found,
// until the client leaves or x.deadline passes. It reports whether there may be endpoints now.
func (x *Exchange) awaitHost(backend *upstream.Backend) bool {
	w := x.beginWait()
	defer w.end()
	return backend.AwaitHost(w.ctx, x.deadline)
}

// unpicked returns the failure for an attempt for which there is no endpoint, or none in time. f is the failure of the
// previous attempt.
func (x *Exchange) unpicked(f failure) failure {
	if x.Client.Watch.goneNow() {
		return failure{kind: failedFinally, reason: observe.ReasonClientClosed, silent: true}
	}
	if reason, expired := x.expired(); expired {
		return failure{kind: failedFinally, reason: reason}
	}
	return f
}

// leaveSession ends the session with its endpoint if an attempt could not connect to it. If the endpoint was removed
// from the configuration, another one with the session's ID may have replaced it.
func (x *Exchange) leaveSession(f failure) {
	if s := x.session(); s != nil && f.kind == failedToConnect {
		s.left = true
	}
}

// keepSession adds the session token to the head of a backend's response, if the client needs one.
//
//go:noinline
func (x *Exchange) keepSession() {
	s := x.session()
	if s == nil {
		return
	}
	now := time.Now()
	switch {
	case !s.known:
		x.rec.Session = observe.SessionNew
	case s.with != x.endpoint.SessionID():
		x.rec.Session = observe.SessionMoved
	default:
		x.rec.Session = observe.SessionKept
	}
	if s.token.Keep(s.settings, x.backend.SessionID(), x.endpoint.SessionID(), now) || s.settings.Header() {
		var written bool
		if x.fx.Scratch, written = s.settings.Write(s.keys, &x.resp.Header, &s.token, x.fx.Scratch, x.secure(), now); !written && x.rec.Session != observe.SessionKept {
			x.rec.Session = observe.SessionNone // no session has begun
		}
	}
}

// endSession records the outcome of the session at the end of a response. If the backend has broken off the response,
// it is unknown, since the client may repeat the whole request.
func (x *Exchange) endSession(complete bool) {
	switch {
	case x.rec.Session == observe.SessionNone:
	case !complete && x.rec.Reason.Source() == observe.SourceUpstream:
		x.rec.Session = observe.SessionNone
	default:
		x.backend.CountSession(x.rec.Session)
	}
}

// secure reports whether the client used TLS, to the gateway or to a trusted proxy in front of it.
func (x *Exchange) secure() bool {
	proto, _ := x.Header.Get("x-forwarded-proto")
	return x.Client.Mode.TLS() || message.EqualFoldBytes(proto, schemeHTTPS)
}
