package exchange

import (
	"bytes"
	"net/http"
	"time"

	"github.com/moongate-dev/moongate/internal/observe"
	"github.com/moongate-dev/moongate/internal/proxy/http1"
	"github.com/moongate-dev/moongate/internal/proxy/message"
	"github.com/moongate-dev/moongate/internal/proxy/snapshot"
	"github.com/moongate-dev/moongate/internal/proxy/tunnel"
	"github.com/moongate-dev/moongate/internal/proxy/upstream"
)

// This file handles the method CONNECT (RFC 9110 section 9.3.6), for rules that accept it. The rule's backendRefs
// decide where the tunnel leads, not the request: its authority is matched like any Host.

var (
	rootPath = []byte("/")
	reasonOK = []byte("OK")
)

// takeConnect decides whether a CONNECT that the rule has matched can be served.
func (x *Exchange) takeConnect(r *snapshot.Rule) observe.Reason {
	connect := r.Connect()
	switch {
	case connect == snapshot.RefuseConnect || x.Client.Switcher == nil:
		return observe.ReasonNotImplemented
	case x.Streamed || len(x.Whole) > 0: // it could be a body or the beginning of the tunnel
		return observe.ReasonBadRequest
	}
	x.connects = connect
	x.Whole, x.Framing, x.Length, x.ExpectContinue = nil, http1.NoBody, -1, false
	return observe.ReasonOK
}

// leaves reports whether the backend is asked for the protocol that the request wants to switch to.
func (x *Exchange) leaves(backend *upstream.Backend) bool {
	if x.rule.RequestBuffer > 0 || x.Client.Switcher == nil {
		return false
	}
	get := string(x.Method) == http.MethodGet
	if u := x.rule.Upgrades; u != nil {
		return u.Allows(x.Upgrade) && (get || !message.EqualFoldBytes(x.Upgrade, websocket)) && !backend.OnlyHTTP2() // RFC 6455 section 4.1
	}
	return get && backend.Upgrades(x.Upgrade)
}

// setConnectTarget restores the form of a CONNECT that is forwarded, a host and a port, whatever filters have changed.
func (x *Exchange) setConnectTarget() {
	x.Path, x.Query, x.HasQuery = nil, nil, false
	if !hasPort(x.Host) {
		asked := x.rec.Host
		x.Host = append(bytes.Clone(x.Host), asked[bytes.LastIndexByte(asked, ':'):]...)
	}
}

// hasPort reports whether a host, which may be an IPv6 address in brackets, is followed by a port.
func hasPort(host []byte) bool {
	return bytes.LastIndexByte(host, ':') > bytes.LastIndexByte(host, ']')
}

// wantsTunnel reports whether the request is a CONNECT, extended or not, so that any 2xx means to its client that the
// tunnel is open (RFC 9110 section 9.3.6, RFC 8441 section 5).
func (x *Exchange) wantsTunnel() bool { return x.Extended || x.isConnect() }

// opensTunnel reports whether the response head is followed by a tunnel instead of HTTP.
func (x *Exchange) opensTunnel() bool {
	return x.resp.Status == http.StatusSwitchingProtocols || x.connects != snapshot.RefuseConnect && x.resp.Status < 300
}

// needsOwn reports whether the attempt needs a connection of its own: it does not use HTTP, or it needs HTTP/1.1 and
// the connections of the endpoint may use HTTP/2.
func (x *Exchange) needsOwn(ep *upstream.Endpoint) bool {
	return x.connects == snapshot.TerminateConnect || x.Upgrade != nil && ep.PrefersHTTP2()
}

// connectOwn makes a connection of its own for the attempt, and begins the request on it.
func (x *Exchange) connectOwn(ep *upstream.Endpoint, a *attempt) failure {
	w := x.beginWait()
	u, err := ep.ConnectOwn(w.ctx, a.deadline, x.connectsPatiently())
	w.end()
	if err != nil {
		return x.dialFailure(err)
	}
	if x.connects == snapshot.TerminateConnect {
		a.transport, a.headSent, a.reused = &rawTransport{a: a, u: u}, true, false
	} else {
		a.useHTTP1(u)
		a.http1.own = true
	}
	if x.open(a) != nil {
		a.end(false)
		return failure{kind: failedToConnect, reason: observe.ReasonConnectFailed}
	}
	return failure{}
}

// rawTransport is the transport of a CONNECT that ends at the gateway. The backend does not receive the request. The
// response is the gateway's: the CONNECT succeeds when the connection is made.
type rawTransport struct {
	a *attempt
	u *upstream.Conn
}

// open implements transport.
func (t *rawTransport) open(*Request, []byte, bool) error { return nil }

// write implements transport.
func (t *rawTransport) write([]byte, bool, *message.Fields) error { return nil }

// releaseBody implements transport.
func (t *rawTransport) releaseBody() bool { return true }

// readHead implements transport.
func (t *rawTransport) readHead(_ []byte, resp *message.Response) error {
	resp.Reset()
	resp.Status, resp.Reason = http.StatusOK, reasonOK
	t.a.framing, t.a.length = http1.NoBody, -1
	return nil
}

// readPart implements transport.
func (t *rawTransport) readPart(bool) (Part, error) { return Part{Last: true}, nil }

// atEnd implements transport.
func (t *rawTransport) atEnd() bool { return true }

// setDeadline implements transport.
func (t *rawTransport) setDeadline(d time.Time) { t.u.SetDeadline(d) } //nolint:errcheck // as in http1Transport.open

// interrupt implements transport.
func (t *rawTransport) interrupt() { t.u.SetDeadline(longAgo) } //nolint:errcheck // likewise

// abort implements transport.
func (t *rawTransport) abort() { t.u.Close() }

// end implements transport.
func (t *rawTransport) end(bool) { t.u.Close() }

// switched implements duplexer.
func (t *rawTransport) switched() []byte { return nil }

// duplex implements duplexer.
func (t *rawTransport) duplex() (tunnel.Duplex, func()) {
	t.setDeadline(time.Time{})
	return &connDuplex{Conn: t.u}, t.u.Reset
}
