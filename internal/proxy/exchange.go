package proxy

import (
	"bytes"
	"math/rand/v2"
	"net"
	"time"

	"github.com/moongate-dev/moongate/internal/observe"
	"github.com/moongate-dev/moongate/internal/proxy/filter"
	"github.com/moongate-dev/moongate/internal/proxy/http1"
	"github.com/moongate-dev/moongate/internal/proxy/message"
	"github.com/moongate-dev/moongate/internal/proxy/upstream"
)

// exchange is one request and its response. It is reused for all requests of a
// connection, and for other connections after that; its memory grows to what they need and stays.
type exchange struct {
	c   *conn // whose it is at the moment
	rec observe.Record
	fx  filter.Exchange

	req      message.Request
	reqHead  http1.RequestHead
	resp     message.Response
	respHead http1.ResponseHead
	respBody http1.Body

	start    time.Time
	listener *listener
	rule     *rule
	// deadline is when timeouts.request runs out; zero is never.
	deadline time.Time
	// body is the request body where all of it came with the head. Else streamed is set and
	// in[r:w] of the connection begins with the first part of it.
	body     []byte
	streamed bool
	attempt  attempt // the present one

	up  []byte // what goes to the backend: the head, and the body if it is short
	out []byte // what goes to the client: the response head
	// buffers is parts for net.Buffers.WriteTo, which would allocate a local one.
	parts   [2][]byte
	buffers net.Buffers
	upload  upload
	// complete tells that the whole response was sent.
	complete bool
	// linger asks for the slow way to close, see conn.closeLingering.
	linger  bool
	mirrors []*mirrored
}

func newExchange() *exchange {
	x := &exchange{}
	x.fx.Seed = rand.Uint64()
	x.upload.x = x
	x.upload.done = make(chan struct{}, 1)
	return x
}

// begin notes when the first byte of a request came.
func (x *exchange) begin() { x.start = time.Now() }

// run carries out the request whose head of n bytes stands at in[r:], and tells
// whether the connection can take another one.
func (x *exchange) run(n int) (keep bool) {
	c := x.c
	if x.start.IsZero() { // the head came behind the request before
		x.begin()
	}
	x.reset()
	lineAt := c.r
	x.takeBody(n)
	x.note(c.in[lineAt : lineAt+n])
	more := x.reqHead.KeepAlive
	keep = x.handle()
	// The client may be sending its next request already.
	x.linger = x.complete && !keep && (more || x.streamed)
	x.upload.endMirrors(false) // of a body whose upload never began
	x.finish()
	x.start = time.Time{}
	c.served = true
	if keep && x.streamed {
		c.unread(x.upload.rest)
	}
	return keep
}

func (x *exchange) reset() {
	seed := x.fx.Seed
	x.fx.Reset()
	x.fx.Seed = seed
	x.rec = observe.Record{ClientAddr: x.c.peer, Protocol: "HTTP/1.1", Scheme: x.c.scheme(), Shard: uint32(x.c.peer.Port())}
	if x.reqHead.Minor == 0 {
		x.rec.Protocol = "HTTP/1.0"
	}
	x.listener, x.rule = nil, nil
	x.deadline = time.Time{}
	x.complete = false
	x.linger = false
}

// note keeps what only the access log shows, before filters change it.
func (x *exchange) note(head []byte) {
	x.rec.Method, x.rec.Host = x.req.Method, x.req.Host
	if !x.c.proxy.logging {
		return
	}
	x.rec.Target = targetOf(head)
	x.rec.UserAgent, _ = x.req.Header.Get("user-agent")
	x.rec.RequestID, _ = x.req.Header.Get("x-request-id")
}

// targetOf is the request target as received.
func targetOf(head []byte) []byte {
	head = bytes.TrimPrefix(head, []byte("\r\n"))
	_, rest, _ := bytes.Cut(head, []byte(" "))
	target, _, _ := bytes.Cut(rest, []byte(" "))
	return target
}

// isWhole tells whether all of the request whose head of n bytes stands at in[r:] is there.
func (x *exchange) isWhole(n int) bool {
	switch x.reqHead.Framing {
	case http1.NoBody:
		return true
	case http1.Length:
		return x.reqHead.ContentLength <= int64(x.c.w-x.c.r-n)
	}
	return false
}

// takeBody steps over the head and, where the whole body is there, over the body.
func (x *exchange) takeBody(head int) {
	c := x.c
	c.r += head
	x.body, x.streamed = nil, false
	switch x.reqHead.Framing {
	case http1.NoBody:
	case http1.Length:
		if n := x.reqHead.ContentLength; n <= int64(c.w-c.r) {
			x.body = c.in[c.r : c.r+int(n)]
			c.r += int(n)
			x.rec.BytesReceived = n
			return
		}
		x.streamed = true
	default:
		x.streamed = true
	}
}

// handle is the request's way from its head to its response.
func (x *exchange) handle() (keep bool) {
	if x.reqHead.Form == http1.Authority {
		x.reqHead.KeepAlive = false // what follows may be meant for the tunnel
		return x.fail(observe.ReasonNotImplemented)
	}
	if reason := x.findListener(); reason != observe.ReasonOK {
		return x.fail(reason)
	}
	x.setForwarded()
	m := x.listener.table.Lookup(&x.req)
	if m == nil {
		return x.fail(observe.ReasonRouteNotFound)
	}
	x.rule = m.Value
	if s := x.rule.statsFor(x.listener); s != nil {
		x.rec.Stats = s
	}
	if f := x.rule.failure; f != nil {
		return x.failWith(f.status, f.reason)
	}
	if x.rule.requestTimeout > 0 {
		x.deadline = x.start.Add(x.rule.requestTimeout)
	}
	x.fx.Request = &x.req
	x.fx.Scheme = x.c.scheme()
	x.fx.ListenerPort = uint16(x.listener.config.Port)
	if reply := x.rule.filters.runRequest(&x.fx); reply != nil {
		return x.answer(reply)
	}
	ref, reason := x.rule.choose(&x.fx.Seed)
	if reason != observe.ReasonOK {
		return x.fail(reason)
	}
	x.rec.Backend = ref + 1
	b := &x.rule.backends[ref]
	if b.failure != nil {
		return x.failWith(b.failure.status, b.failure.reason)
	}
	x.startMirrors(x.rule.filters.mirrors)
	if reply := b.filters.runRequest(&x.fx); reply != nil {
		return x.answer(reply)
	}
	x.startMirrors(b.filters.mirrors)
	return x.forward(b)
}

// findListener chooses the listener by Host; on TLS connections it must be the one that
// the server name chose (Gateway API, GatewayHTTPSListenerDetectMisdirectedRequests).
func (x *exchange) findListener() observe.Reason {
	c := x.c
	sc := c.proxy.snapshot.Load().socket(c.sock)
	if sc == nil || sc.https != c.https {
		x.rec.Stats = c.sock.stats.Unrouted()
		x.reqHead.KeepAlive = false // no listener uses the port any more, or this protocol on it
		return observe.ReasonRouteNotFound
	}
	l, ok := sc.listeners.Find(x.req.MatchHost)
	if c.https {
		shown, shownOK := sc.listeners.Find(c.serverName)
		if ok != shownOK || ok && l.config.Key != shown.config.Key {
			x.rec.Stats = c.sock.stats.Unrouted()
			return observe.ReasonMisdirected
		}
	}
	if !ok {
		x.rec.Stats = c.sock.stats.Unrouted()
		return observe.ReasonRouteNotFound
	}
	x.listener = l
	x.rec.Stats = l.stats.Unrouted()
	return observe.ReasonOK
}

// choose picks a backendRef by weight.
func (r *rule) choose(seed *uint64) (int, observe.Reason) {
	if r.weights == 0 {
		return 0, observe.ReasonNoBackend
	}
	if len(r.backends) == 1 {
		return 0, observe.ReasonOK
	}
	n := upstream.Random(seed) % r.weights
	for i := range r.backends {
		if n < r.backends[i].below {
			return i, observe.ReasonOK
		}
	}
	return 0, observe.ReasonInternal
}

func (f *filters) runRequest(fx *filter.Exchange) *filter.Reply {
	for _, run := range f.request {
		if reply := run(fx); reply != nil {
			return reply
		}
	}
	return nil
}

func (f *filters) runResponse(fx *filter.Exchange) {
	for _, run := range f.response {
		run(fx)
	}
}

// finish is the one place where a request ends.
func (x *exchange) finish() {
	x.rec.StartUnixNano = x.start.UnixNano()
	x.rec.DurationNano = int64(time.Since(x.start))
	if x.rec.Reason == observe.ReasonClientClosed && x.c.cutNow() {
		x.rec.Reason = observe.ReasonShuttingDown
	}
	x.c.proxy.observer.Finish(&x.rec)
}

func (c *conn) scheme() string {
	if c.https {
		return "https"
	}
	return "http"
}
