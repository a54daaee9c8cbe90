package exchange

import (
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/moongate-dev/moongate/internal/observe"
	"github.com/moongate-dev/moongate/internal/proxy/admission"
	"github.com/moongate-dev/moongate/internal/proxy/filter"
	"github.com/moongate-dev/moongate/internal/proxy/http1"
	"github.com/moongate-dev/moongate/internal/proxy/message"
	"github.com/moongate-dev/moongate/internal/proxy/ratelimit"
	"github.com/moongate-dev/moongate/internal/proxy/snapshot"
	"github.com/moongate-dev/moongate/internal/proxy/tracing"
	"github.com/moongate-dev/moongate/internal/proxy/upstream"
)

// Exchange is one request and its response. It is reused for all requests of a
// connection, and for other connections after that; its memory grows to what they need and stays.
// The client's side fills in the request before Run.
type Exchange struct {
	Request
	Client *Client // whose it is at the moment

	rec observe.Record
	fx  filter.Exchange

	resp message.Response

	start    time.Time
	listener *snapshot.Listener
	rule     *snapshot.Rule
	ref      *snapshot.BackendRef // of rule, once it is chosen
	backend  *upstream.Backend    // that of ref as the listener's Gateway reaches it
	// deadline is when timeouts.request runs out, or what a gRPC call gives itself; zero is never. deadlineReason says which.
	deadline time.Time
	// callTime is how long after start the time is over that a gRPC call gives itself, to the letter; zero is never.
	callTime time.Duration
	attempt  attempt            // the present one
	endpoint *upstream.Endpoint // of the present attempt, which it counts; nil without one
	retry    retryState
	// tryAt is how long after start the present attempt's request was begun; set where that is recorded only.
	tryAt time.Duration

	body   requestBody
	seldom *seldom // nil as long as no request needed it

	requestID      [requestIDSize]byte // the one that we made, if we did
	deadlineReason observe.Reason
	ending         observe.Reason // of a response that is relayed to its end
	// closing tells that the client's connection should take no further requests.
	closing bool
	// complete tells that the whole response was sent.
	complete bool
	// grpc tells that the client understands gRPC's answers.
	grpc bool
	// statusAwaited tells that the head of the response has no status of a gRPC call, by which endpoints are judged.
	statusAwaited bool
	// unasked tells that the client wanted another protocol, which its backend was not asked for.
	unasked bool
	// connects is what becomes of the request where its method is CONNECT and its rule takes that, else RefuseConnect.
	connects snapshot.Connect
	// suspended tells that Run or Join has returned before the end.
	suspended bool
	joined    *joined // nil but in Join, and where the request has left its protocol
}

// seldom is what most exchanges do without.
type seldom struct {
	copies []*mirrored // of the present request, that its body is copied to as it comes
	span   tracing.Span
	// session is that of a request that has one. Without settings it is none.
	session clientSession
	// admitted counts the present attempt, and retry the last one that the rule's retry has allowed; nil where nothing does.
	admitted, retry *upstream.Breaker
	limited         ratelimit.Decision // set anew where the rule of the present request has rate limits
	limits          *streamLimits      // nil: the rule of the present request has none
	// admission is where the present request is recorded when it is known what becomes of it; nil where it is not, or was.
	admission *admission.Control
	// sent is that a backend was sent all of the present request, or that nothing but the backend has kept it from that; meaningful with admission only.
	sent   bool
	pacing *pacing    // nil before a request whose rule limits bandwidth
	target sentTarget // set anew where ResponseOverrides.Target is set
	// contentType is what filters of the response must not change, since values of the request were escaped for it; nil for none.
	contentType []byte
	// compressing is nil before a request whose rule has responses compressed, and for the present one set where its rule has.
	compressing *compressing
	// balancing is nil before a request to a backend whose load balancer wants to know something of it.
	balancing *balancing
	// logged is nil where the access log shows no headers.
	logged *loggedHeaders
}

// mayNeed makes seldom where it is not there yet.
func (x *Exchange) mayNeed() *seldom {
	if x.seldom == nil {
		x.seldom = &seldom{}
	}
	return x.seldom
}

// Request is a request as the client's side hands it over. All of it is set anew for each
// request; its bytes are valid until Run returns, or Client.Switcher gives a Duplex.
type Request struct {
	message.Request
	// Target is the request target as received; wanted where Engine.Logging is set only.
	Target []byte
	// Length is that of the body, -1 where it is unknown.
	Length int64
	// Whole is the body where all of it came with the head. Else Streamed is set, and
	// Client.Body has it.
	Whole    []byte
	Streamed bool
	// Framing is how the backend is told the length of the body: NoBody, Length or Chunked.
	Framing http1.Framing
	// ExpectContinue: the client waits for 100 before it sends the body.
	ExpectContinue bool
	TETrailers     bool // TE: trailers
	// Extended: the client has sent an extended CONNECT (RFC 8441), for which this request stands. It is nothing without Upgrade, and the
	// response that it waits for is 200, not 101.
	Extended bool
	// Upgrade is the protocol that the client wants to switch to, nil where it wants none, or where that is not to be asked of the backend. The request has
	// no body then.
	Upgrade []byte
}

// Outcome is what an exchange leaves behind.
type Outcome struct {
	// Complete: the whole response was sent. Else the client must be shown that it is not.
	Complete bool
	// Read: the whole request was read.
	Read bool
	// Suspended: the exchange has not ended, and waits for its backend without a goroutine. The above is not known yet. What follows is
	// Await, and then Resume.
	Suspended bool
}

// New makes an Exchange.
func New() *Exchange {
	x := &Exchange{}
	x.fx.Seed = rand.Uint64()
	x.body.x = x
	x.fx.Engine = x
	x.body.cond.L = &x.body.mu
	return x
}

// Begin notes that the first byte of a request came.
func (x *Exchange) Begin() { x.start = time.Now() }

// Run carries out the request.
func (x *Exchange) Run() Outcome {
	if x.start.IsZero() { // the head came behind the request before
		x.Begin()
	}
	x.reset()
	x.grpc = x.isGRPC()
	x.note()
	return x.end(x.handle())
}

// end follows handle, unless the exchange is suspended.
func (x *Exchange) end(read bool) Outcome {
	if x.suspended {
		return Outcome{Suspended: true}
	}
	x.endMirrors(false) // of a body that no attempt was made with
	if x.Streamed {     // a filter may have read it, and answered
		x.rec.BytesReceived = max(x.rec.BytesReceived, x.body.end)
	}
	x.body.release()
	if x.body.inMemory {
		x.Streamed = false // as the client's side has it
	}
	x.endRetry()
	x.endLimits()
	x.endPacing()
	x.endAdmission()
	x.finish()
	return Outcome{Complete: x.complete, Read: read}
}

// Refuse ends a request whose head is no head: it answers with the status, or with nothing where
// that is 0, and tells whether the answer was sent. The connection is to be closed.
func (x *Exchange) Refuse(status int, reason observe.Reason) (complete bool) {
	if x.start.IsZero() {
		x.Begin()
	}
	x.Request.Request.Reset()
	x.Request = Request{Request: x.Request.Request, Length: -1}
	x.reset()
	x.closing = true // what follows is not understood
	x.rec.Stats = x.Client.Socket.Stats.Unrouted()
	if status != 0 {
		x.failWith(status, reason)
	} else {
		x.rec.Reason = reason
	}
	x.body.release()
	x.finish()
	return x.complete
}

func (x *Exchange) reset() {
	seed := x.fx.Seed
	x.fx.Reset()
	x.fx.Seed = seed
	c := x.Client
	x.rec = observe.Record{} // a literal with values would be made elsewhere and copied
	x.rec.ClientAddr, x.rec.Protocol, x.rec.Scheme, x.rec.Shard = c.Peer, c.Protocol, c.Mode.Scheme(), uint32(c.Peer.Port())
	x.listener, x.rule, x.ref, x.backend = nil, nil, nil, nil
	x.deadline, x.callTime = time.Time{}, 0
	x.closing, x.complete, x.unasked, x.grpc, x.suspended = false, false, false, false, false
	x.connects = snapshot.RefuseConnect
	x.body.bodyState = bodyState{whole: x.body.whole}
	c.Watch.start()
}

// note keeps what only the access log shows, before filters change it.
func (x *Exchange) note() {
	x.rec.BytesReceived = int64(len(x.Whole))
	x.rec.Method, x.rec.Host = x.Method, x.Host
	if !x.Client.Engine.Logging {
		return
	}
	x.rec.Target = x.Target
	x.rec.UserAgent, _ = x.Header.Get("user-agent")
	if e := x.Client.Engine; len(e.LoggedRequest)+len(e.LoggedResponse) > 0 {
		x.noteRequestHeaders()
	}
}

// handle is the request's way from its head to its response. It tells whether the request was
// read to its end.
func (x *Exchange) handle() (read bool) {
	connect := string(x.Method) == http.MethodConnect
	if connect {
		x.Path = rootPath // for matches and filters; it has none
	}
	if reason := x.findListener(); reason != observe.ReasonOK {
		return x.fail(reason)
	}
	if x.Client.Engine.Refuses() {
		return x.fail(observe.ReasonOverloaded)
	}
	x.setForwarded()
	if x.exceedsBody(x.Length) {
		return x.fail(observe.ReasonBodyTooLarge)
	}
	x.setRequestID()
	if !x.countPass() {
		return x.fail(observe.ReasonLoopDetected)
	}
	if x.listener.Tracer != nil {
		x.beginSpan()
	}
	x.fx.Request = &x.Request.Request
	x.fx.Scheme = x.Client.Mode.Scheme()
	x.fx.ListenerPort = uint16(x.listener.Config.Port)
	if f := x.listener.Failure; f != nil {
		return x.failWith(f.Status, f.Reason)
	}
	if answered, read := x.checkMaxForwards(); answered {
		return read
	}
	if reply := x.listener.Filters.RunRequest(&x.fx); reply != nil {
		return x.answer(reply)
	}
	m, err := x.listener.Table.Lookup(&x.Request.Request)
	if err != nil {
		return x.fail(observe.ReasonMatchLimit)
	}
	if m == nil {
		return x.fail(observe.ReasonRouteNotFound)
	}
	if connect && m.Value.Failure == nil {
		if reason := x.takeConnect(m.Value); reason != observe.ReasonOK {
			return x.fail(reason)
		}
	}
	x.rule = m.Value
	if x.rule.RateLimits != nil {
		x.mayNeed().limited = ratelimit.Decision{}
	}
	if x.rule.Tracing != nil && x.listener.Tracer != nil {
		x.seldom.span.Match(x.rule.Tracing, &x.Request.Request, &x.fx.Seed)
	}
	if x.rule.Compression != nil {
		x.negotiate()
	}
	if x.seldom != nil && m.Match.GetPath() != nil {
		x.seldom.span.Matched(m.Match.Path.Value)
	}
	if s := x.rule.StatsFor(x.listener); s != nil {
		x.rec.Stats = s
	}
	if o := x.rule.ResponseOverrides; o != nil && o.Target {
		x.keepTarget()
	}
	if f := x.rule.Failure; f != nil {
		return x.failWith(f.Status, f.Reason)
	}
	if x.rule.RequestTimeout > 0 {
		x.deadline, x.deadlineReason = x.start.Add(x.rule.RequestTimeout), observe.ReasonRequestTimeout
	}
	if x.rule.LimitsStreams() {
		x.limitStream()
	}
	if x.grpc {
		x.limitByGRPC()
	}
	if f := x.rule.Fault; f != nil {
		if answered, read := x.injectFault(f); answered {
			return read
		}
	}
	path, query := x.Path, x.Query
	if reply := x.rule.Filters.RunRequest(&x.fx); reply != nil {
		return x.answer(reply)
	}
	if m.Match.Preflight {
		return x.answerPreflight()
	}
	if x.rule.RateLimits != nil {
		switch reason := x.checkRateLimits(path, query); reason {
		case observe.ReasonOK:
		case observe.ReasonClientClosed:
			x.rec.Reason = reason
			return false
		default:
			return x.fail(reason)
		}
	}
	if c := x.rule.Admission; c != nil && !x.admitted(c) {
		return x.fail(observe.ReasonAdmissionRejected)
	}
	ref, reason := x.rule.Choose(&x.fx.Seed)
	if reason != observe.ReasonOK {
		return x.fail(reason)
	}
	x.rec.Backend = int32(ref + 1)
	b := &x.rule.Backends[ref]
	x.ref = b
	if b.Failure != nil {
		return x.failWith(b.Failure.Status, b.Failure.Reason)
	}
	copied := &x.Request.Request // by the rule's mirrors, as the rule's filters have left it
	if mirrors := x.rule.Filters.Mirrors; len(mirrors) > 0 && b.Filters.Authorizes {
		head := cloneHead(copied) // they wait for leave
		copied = &head
	} else {
		x.startMirrors(mirrors, copied)
	}
	if reply := b.Filters.RunRequest(&x.fx); reply != nil {
		return x.answer(reply)
	}
	if b.Filters.Authorizes {
		x.startMirrors(x.rule.Filters.Mirrors, copied)
	}
	x.startMirrors(b.Filters.Mirrors, &x.Request.Request)
	return x.forward(b)
}

// answerPreflight has a CORS filter of a backendRef answer a preflight request that the rule has matched only because of such filters. No backend
// sees it, nor a mirror, whatever the rule's other filters have made of it.
func (x *Exchange) answerPreflight() (read bool) {
	if ref, ok := x.rule.ChooseForPreflight(&x.fx.Seed); ok {
		x.rec.Backend = int32(ref + 1)
		x.ref = &x.rule.Backends[ref]
		if reply := x.ref.Filters.RunRequest(&x.fx); reply != nil {
			return x.answer(reply)
		}
	}
	return x.fail(observe.ReasonPreflightRefused)
}

// findListener chooses the listener by Host; on TLS connections it must be the one that
// the server name chose (Gateway API, GatewayHTTPSListenerDetectMisdirectedRequests). A Host that no listener has is not misdirected: there is no connection on which
// it would be answered.
func (x *Exchange) findListener() observe.Reason {
	c := x.Client
	p := c.Engine.Snapshot.Load().Port(c.Socket)
	if p == nil || !p.Mode.Shares(c.Mode) {
		x.rec.Stats = c.Socket.Stats.Unrouted()
		x.closing = true // no listener uses the port any more, or this protocol on it
		return observe.ReasonRouteNotFound
	}
	l, ok := p.Listeners.Find(x.MatchHost)
	if ok && c.Mode.TLS() {
		if shown, found := p.Listeners.Find(c.ServerName); !found || l.Config.Key != shown.Config.Key {
			x.rec.Stats = c.Socket.Stats.Unrouted()
			return observe.ReasonMisdirected
		}
	}
	if !ok {
		x.rec.Stats = c.Socket.Stats.Unrouted()
		return observe.ReasonRouteNotFound
	}
	if l.Mode != c.Mode { // another one than when the connection began
		x.rec.Stats = c.Socket.Stats.Unrouted()
		x.closing = true
		return observe.ReasonMisdirected
	}
	x.listener = l
	x.rec.Stats = l.Stats.Unrouted()
	if !c.TLSPeer.Satisfies(l.Clients) {
		x.closing = true // another connection may do
		return observe.ReasonMisdirected
	}
	return observe.ReasonOK
}

// finish is the one place where a request ends.
func (x *Exchange) finish() {
	x.rec.StartUnixNano = x.start.UnixNano()
	x.rec.DurationNano = int64(time.Since(x.start))
	if x.rec.Reason == observe.ReasonClientClosed {
		if reason, cut := x.Client.Watch.WasCut(); cut {
			x.rec.Reason = reason
		}
	}
	if x.rule != nil && x.rule.RateLimits != nil {
		x.seldom.limited.Charge()
	}
	if x.seldom != nil {
		x.rec.Span = x.seldom.span.ID()
		x.seldom.span.End(&x.rec)
	}
	x.Client.Engine.Observer.Finish(&x.rec)
	x.start = time.Time{}
}

// beginSpan decides whether the request is traced.
func (x *Exchange) beginSpan() {
	span := &x.mayNeed().span
	span.Begin(x.listener.Tracer, &x.Request.Request, &x.fx.Seed, x.start, uint16(x.listener.Config.Port))
	if x.listener.Tracer != nil { // the rule may have it recorded, behind the listener's filters
		x.rec.UserAgent, _ = x.Header.Get("user-agent")
	}
}
