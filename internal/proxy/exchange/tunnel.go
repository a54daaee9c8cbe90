package exchange

import (
	"bytes"
	"crypto/sha1"
	"encoding/base64"
	"net/http"
	"time"

	"github.com/moongate-dev/moongate/internal/accesslog"
	"github.com/moongate-dev/moongate/internal/observe"
	"github.com/moongate-dev/moongate/internal/proxy/http1"
	"github.com/moongate-dev/moongate/internal/proxy/message"
	"github.com/moongate-dev/moongate/internal/proxy/tunnel"
	"github.com/moongate-dev/moongate/internal/proxy/upstream"
)

var (
	// errSwitch means that a 101 was not requested, or names another protocol.
	errSwitch = &http1.Error{Status: 502, Reason: "upstream_malformed", Detail: "a switch of protocols that was not requested, or to another one"}
	// errNoSwitch means that the client would take a response for the switch of protocols.
	errNoSwitch = &http1.Error{Status: 502, Reason: "upstream_malformed", Detail: "success without the switch of protocols that was asked for"}
)

// duplexer is a transport whose connection can leave its protocol.
type duplexer interface {
	// switched returns the protocol named in a 101, or the protocols named in a 426.
	switched() []byte
	// duplex returns the connection as the end of a tunnel, and a function that resets it. What has arrived after the
	// 101 is read first. It must be called after the last use of the response.
	duplex() (end tunnel.Duplex, reset func())
}

// checkSwitch checks a 101, after which no HTTP follows. Without a valid Sec-WebSocket-Accept the client would refuse
// it (RFC 6455 section 4.1). An attacker who can make a backend answer 101 unintentionally would otherwise be able to
// bypass all routing.
func (x *Exchange) checkSwitch(a *attempt) error {
	t, ok := a.transport.(duplexer)
	if !ok || x.Upgrade == nil || !message.EqualFoldBytes(t.switched(), x.Upgrade) {
		return errSwitch
	}
	key, _ := x.Header.Get("sec-websocket-key")
	accept, _ := x.resp.Header.Get("sec-websocket-accept")
	if message.EqualFoldBytes(x.Upgrade, websocket) && !bytes.Equal(accept, acceptOf(key)) {
		return errSwitch
	}
	return nil
}

// checkFinal checks the status of a final response. For an extended CONNECT any 2xx means that the tunnel is open (RFC
// 8441 section 5), so a 2xx without a switch of protocols must not be relayed.
func (x *Exchange) checkFinal() error {
	if x.Extended && x.resp.Status < 300 {
		return errNoSwitch
	}
	return nil
}

var (
	websocket  = []byte("websocket")
	acceptName = []byte("Sec-WebSocket-Accept")
)

// acceptOf returns the value by which a server shows that it has understood a WebSocket handshake (RFC 6455 section
// 4.2.2).
func acceptOf(key []byte) []byte {
	sum := sha1.Sum(append(bytes.Clone(bytes.TrimSpace(key)), "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"...))
	return base64.StdEncoding.AppendEncode(nil, sum[:])
}

// tunnel relays the 101, or the success of a CONNECT, and then the bytes of both sides until they end. The timeouts of
// the rule apply to that response.
func (x *Exchange) tunnel(a *attempt) {
	if x.Extended {
		x.resp.Status = http.StatusOK
		x.resp.Header.Remove(acceptName) // it has no meaning here (RFC 8441 section 5)
	}
	if x.resp.Status != http.StatusSwitchingProtocols {
		x.addDate()
	}
	x.rec.Status = x.resp.Status
	x.noteResponseHeaders()
	err := x.Client.Switcher.Switch(&x.resp, x.Upgrade)
	x.resp.Header.Forget() // as in relay
	x.resp.Reason = nil
	x.Client.Watch.end()
	if err != nil {
		x.rec.Reason = x.writeFailed(err)
		a.end(false)
		return
	}
	x.deadline = time.Time{}
	x.Client.Limiter.WriteBy(x.deadline)
	x.detachRequest()
	x.joined = &joined{}
	x.newTunnel(a.transport.(duplexer).duplex())
	x.pumpUpgraded(a)
}

// pumpUpgraded runs the tunnel of a request until it ends or is suspended.
func (x *Exchange) pumpUpgraded(a *attempt) {
	if x.rec.Reason = x.pump(); !x.suspended {
		x.joined = nil
		a.end(false)
	}
}

// detachRequest releases the bytes of the request before its end. It copies those that are recorded.
func (x *Exchange) detachRequest() {
	x.keepRecorded()
	x.Request.Request.Reset()
	x.Request = Request{Request: x.Request.Request, Length: -1}
}

// keepRecorded copies the recorded bytes of the request, but no more than the access log shows, since they may be kept
// for hours.
func (x *Exchange) keepRecorded() {
	r := &x.rec
	for _, f := range [...]struct {
		value *[]byte
		limit int
	}{
		{&r.Method, accesslog.MaxMethod}, {&r.Host, accesslog.MaxHost}, {&r.Target, accesslog.MaxTarget},
		{&r.UserAgent, accesslog.MaxUserAgent}, {&r.RequestID, accesslog.MaxRequestID},
	} {
		v := *f.value
		*f.value = bytes.Clone(v[:min(len(v), f.limit+1)]) // one byte more than is shown, so that the log can show that it was cut
	}
	if x.rare != nil {
		x.rare.span.Detach()
		if x.rec.Headers != nil {
			x.rare.logged.compact()
		}
	}
}

// newTunnel creates the tunnel between the client and a backend. It is interrupted when the client leaves. reset resets
// the connection to the backend.
func (x *Exchange) newTunnel(backend tunnel.Duplex, reset func()) {
	t := &tunnel.Tunnel{
		Client: x.Client.Switcher.Duplex(), Backend: backend,
		Moved:    x.Client.Switcher.Moved,
		HangUps:  &x.Client.Engine.HangUps,
		Panicked: func(v any) { x.Client.Engine.Observer.Panicked("tunnel", v) },
		Suspends: true,
	}
	if x.limits() != nil {
		moved := t.Moved
		t.Moved = func(to tunnel.Side, writing bool) {
			moved(to, writing)
			x.movedNow()
		}
	}
	x.joined.tunnel, x.joined.reset = t, reset
	x.Client.Watch.begin(tunnelWaiter{t, x.joined.conn})
}

// tunnelWaiter is a tunnel that Watch can interrupt and suspend.
type tunnelWaiter struct {
	*tunnel.Tunnel
	conn *upstream.Conn // nil if the tunnel uses the connection of a request
}

func (w tunnelWaiter) interrupt() { w.Interrupt() }

// suspend is called when nothing has moved for a while.
func (w tunnelWaiter) suspend() {
	if w.conn != nil {
		w.conn.KeepAlive()
	}
	w.Suspend()
}

// pump runs the tunnel until both ends have ended it, and returns why, or until it is suspended.
func (x *Exchange) pump() observe.Reason {
	end := x.joined.tunnel.Run()
	if x.suspended = end.Suspended; x.suspended {
		return observe.ReasonOK
	}
	x.joined.ended = true
	gone := x.Client.Watch.end()
	x.rec.BytesReceived += end.ToBackend
	x.rec.BytesSent += end.ToClient
	if x.complete = end.Err == nil; x.complete {
		return observe.ReasonUpgraded
	}
	x.joined.reset()
	if gone {
		return observe.ReasonClientClosed
	}
	if reason, lapsed := x.lapsed(); lapsed && isTimeout(end.Err) {
		return reason
	}
	return reasonOf(end)
}

// reasonOf returns why a tunnel has ended. Its client was not found to have left.
func reasonOf(end tunnel.End) observe.Reason {
	switch {
	case end.Err == nil:
		return observe.ReasonUpgraded
	case isTimeout(end.Err):
		return observe.ReasonTunnelIdle
	case end.Failed == tunnel.Client:
		return observe.ReasonClientClosed
	case end.Failed == tunnel.Backend:
		return observe.ReasonUpstreamTruncated
	}
	return observe.ReasonInternal
}

// connDuplex is a connection to a backend as the end of a tunnel.
type connDuplex struct {
	*upstream.Conn
	early []byte // bytes already read, at most as many as a Buffer holds, see tunnel.Socket
}

// ReadInto implements tunnel.Duplex.
func (d *connDuplex) ReadInto(b tunnel.Buffer) (int, error) {
	if len(d.early) > 0 {
		n := copy(b.Take(), d.early)
		if d.early = d.early[n:]; len(d.early) == 0 {
			d.early = nil // release it, since a tunnel may last for days
		}
		return n, nil
	}
	return d.ReadIdle(b)
}

// Interrupt implements tunnel.Duplex.
func (d *connDuplex) Interrupt() { d.SetDeadline(longAgo) } //nolint:errcheck // as in open
