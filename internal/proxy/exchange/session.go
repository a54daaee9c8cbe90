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
	settings *session.Settings // nil: the present request has none
	keys     *session.Keys
	token    session.Token
	// with is the endpoint that the token names of the backend at hand, where known is true.
	with  uint64
	known bool
	// left tells that that endpoint is not there, or takes no connection: the session goes on with another one.
	left bool
}

// beginSession reads which endpoint the request's session is with, if sessions with the backend persist. The backend is chosen already.
func (x *Exchange) beginSession(b *snapshot.BackendRef) {
	settings := x.rule.Sessions
	if settings == nil {
		settings = b.Backend.Sessions()
	}
	if settings == nil || x.listener.Sessions == nil {
		if x.seldom != nil {
			x.seldom.session.settings = nil
		}
		return
	}
	s := &x.mayNeed().session
	s.settings, s.keys, s.left = settings, x.listener.Sessions, false
	settings.Read(s.keys, &x.Header, &s.token)
	s.with, s.known = s.token.Endpoint(settings, b.Backend.SessionID(), time.Now())
}

// session returns the session of the present request, nil where it has none.
func (x *Exchange) session() *clientSession {
	if x.seldom == nil || x.seldom.session.settings == nil {
		return nil
	}
	return &x.seldom.session
}

// inSession reports whether the present attempt is at the endpoint of a session, which no other one knows.
func (x *Exchange) inSession() bool {
	s := x.session()
	return s != nil && s.known && !s.left
}

// pick chooses the endpoint of an attempt: that of the session as long as it takes connections, however the attempts before have ended, since another one knows nothing of
// the session.
func (x *Exchange) pick(backend *upstream.Backend) *upstream.Endpoint {
	if s := x.session(); s != nil && s.known && !s.left {
		if ep := backend.SessionEndpointAs(x.listener.Identity, s.with); ep != nil {
			return ep
		}
		s.left = true
	}
	return backend.PickAs(x.listener.Identity, &x.fx.Seed, &x.retry.tried)
}

// leaveSession follows an attempt that has failed.
func (x *Exchange) leaveSession(f failure) {
	if s := x.session(); s != nil && (f.kind == failedToConnect || f.kind == failedGone) {
		s.left = true
	}
}

// keepSession puts the client's token into the head of a backend's response, as far as the client needs one.
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
	x.backend.CountSession(x.rec.Session)
	if s.token.Keep(s.settings, x.backend.SessionID(), x.endpoint.SessionID(), now) || s.settings.Header() {
		x.fx.Scratch = s.settings.Write(s.keys, &x.resp.Header, &s.token, x.fx.Scratch, x.secure(), now)
	}
}

// secure reports whether the client has come by TLS, to us or to a proxy before us that is trusted.
func (x *Exchange) secure() bool {
	proto, _ := x.Header.Get("x-forwarded-proto")
	return x.Client.Mode.TLS() || message.EqualFoldBytes(proto, schemeHTTPS)
}
