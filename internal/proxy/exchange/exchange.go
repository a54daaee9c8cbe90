package exchange

import (
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/moongate-dev/moongate/internal/observe"
	"github.com/moongate-dev/moongate/internal/proxy/admission"
	"github.com/moongate-dev/moongate/internal/proxy/filter"
	"github.com/moongate-dev/moongate/internal/proxy/http1"
	"github.com/moongate-dev/moongate/internal/proxy/match"
	"github.com/moongate-dev/moongate/internal/proxy/message"
	"github.com/moongate-dev/moongate/internal/proxy/ratelimit"
	"github.com/moongate-dev/moongate/internal/proxy/snapshot"
	"github.com/moongate-dev/moongate/internal/proxy/tracing"
	"github.com/moongate-dev/moongate/internal/proxy/upstream"
)

// Exchange is one request and its response. It is reused for all requests of a connection, and for other connections
// afterwards. Its memory grows to what they need and is kept. The client's side fills in the request before Run.
type Exchange struct {
	Request
	Client *Client // of the current request

	rec observe.Record
	fx  filter.Exchange

	resp message.Response

	start    time.Time
	listener *snapshot.Listener
	rule     *snapshot.Rule
	ref      *snapshot.BackendRef // of rule, once it is chosen
	backend  *upstream.Backend    // of ref, as the listener's Gateway connects to it
	// deadline is when timeouts.request or the timeout of a gRPC call expires; the zero time means never.
	// deadlineReason is the reason then.
	deadline time.Time
	// callTime is the timeout that a gRPC call sets, exactly as received, counted from start; 0 means none.
	callTime time.Duration
	attempt  attempt            // the current one
	endpoint *upstream.Endpoint // of the current attempt, which it counts; nil if there is none
	retry    retryState
	// tryAt is when the request of the current attempt was begun, counted from start; set only if it is logged.
	tryAt time.Duration

	body requestBody
	rare *rareState // nil until a request needs it

	requestID      [requestIDSize]byte // the id generated here, if any
	deadlineReason observe.Reason
	ending         observe.Reason // the reason of a response that is relayed to its end
	// closing means that the client's connection should take no further requests.
	closing bool
	// complete means that the whole response was sent.
	complete bool
	// grpc means that the request is a gRPC call, whose client understands gRPC responses.
	grpc bool
	// statusAwaited means that the response head lacks the status of a gRPC call, which the health of endpoints depends
	// on.
	statusAwaited bool
	// upgradeNotForwarded means that the client asked for another protocol but the backend was not asked for it.
	upgradeNotForwarded bool
	// connects is how a CONNECT is handled if its rule accepts it; RefuseConnect for all other requests.
	connects snapshot.Connect
	// suspended means that Run or Join has returned before the end.
	suspended bool
	joined    *joined // nil except in Join and after a request has changed its protocol
}

// rareState holds what most exchanges do not need.
type rareState struct {
	copies []*mirrored // copies of the current request that receive its body part by part
	span   tracing.Span
	// session is the persistent session of the current request. It has no settings if there is none.
	session clientSession
	// attemptBreaker counts the current attempt, and retryBreaker the last one that the rule's retry has allowed; nil if nothing is
	// counted.
	attemptBreaker, retryBreaker *upstream.Breaker
	limited                      ratelimit.Decision // valid if the rule of the current request has rate limits
	limits                       *streamLimits      // nil if the rule of the current request has none
	// admission is where the outcome of the current request is to be recorded; nil if nothing is to be recorded, or it
	// already was.
	admission *admission.Control
	// sent means that a backend was sent all of the current request, or that only the backend prevented it; used only
	// with admission
	sent   bool
	pacing *pacing    // nil before the first request whose rule limits bandwidth
	target sentTarget // valid if ResponseOverrides.Target is set
	// contentType is the content type that response filters must not change, because values of the request were escaped
	// for it; nil if there is none.
	contentType []byte
	// compressing is nil before the first request whose rule compresses responses. It is valid if the rule of the
	// current request does.
	compressing *compressing
	// balancing is nil before the first request to a backend whose load balancer uses properties of the request.
	balancing *balancing
	// logged is nil if the access log shows no headers.
	logged *loggedHeaders
}

// ensureRare returns rare, which it creates if necessary.
func (x *Exchange) ensureRare() *rareState {
	if x.rare == nil {
		x.rare = &rareState{}
	}
	return x.rare
}

// Request is a request as the client's side passes it. All of it is set again for each request. Its bytes are valid
// until Run returns or Client.Switcher returns a Duplex.
type Request struct {
	message.Request
	// Target is the request target as received. It is needed only if Engine.Logging is set.
	Target []byte
	// Length is the length of the body in bytes, -1 if unknown.
	Length int64
	// Whole is the body if all of it arrived with the head. Otherwise Streamed is set, and Client.Body reads the body.
	Whole    []byte
	Streamed bool
	// Framing is how the length of the body is sent to the backend: NoBody, Length or Chunked.
	Framing http1.Framing
	// ExpectContinue means that the client waits for a 100 before it sends the body.
	ExpectContinue bool
	TETrailers     bool // the request has TE: trailers
	// Extended means that the request stands for an extended CONNECT (RFC 8441). It is only valid with Upgrade. Its
	// client expects the status 200 instead of 101.
	Extended bool
	// Upgrade is the protocol that the client wants to switch to; nil if none, or if the backend is not to be asked for
	// it. The request has no body then.
	Upgrade []byte
}

// Outcome is the result of an exchange.
type Outcome struct {
	// Complete means that the whole response was sent. Otherwise the client must be able to see that it is not
	// complete.
	Complete bool
	// Read means that the whole request was read.
	Read bool
	// Suspended means that the exchange has not ended, but waits for its backend without a goroutine. The fields above
	// are not valid yet. Await and then Resume must be called.
	Suspended bool
}

// New creates an Exchange.
func New() *Exchange {
	x := &Exchange{}
	x.fx.Seed = rand.Uint64()
	x.body.x = x
	x.fx.Engine = x
	x.body.cond.L = &x.body.mu
	return x
}

// Begin records that the first byte of a request has arrived.
func (x *Exchange) Begin() { x.start = time.Now() }

// MayBeSilent reports whether the client may send nothing of its body for as long as it wants, even before it is
// answered: the request is a gRPC call that a backend can answer now. It is for the goroutine that calls Body.Next.
func (x *Exchange) MayBeSilent() bool { return x.grpc && !x.body.filling }

// Run carries out the request.
func (x *Exchange) Run() Outcome {
	if x.start.IsZero() { // the head arrived together with the previous request
		x.Begin()
	}
	x.reset()
	x.grpc = x.isGRPC()
	x.note()
	return x.end(x.handle())
}

// end completes the exchange after handle, unless it is suspended.
//
//go:noinline
func (x *Exchange) end(read bool) Outcome {
	if x.suspended {
		return Outcome{Suspended: true}
	}
	x.endMirrors(false) // of a body for which no attempt was made
	if x.Streamed {     // a filter may have read it and answered
		x.rec.BytesReceived = max(x.rec.BytesReceived, x.body.end)
	}
	x.body.release()
	if x.body.inMemory {
		x.Streamed = false // as the client's side had set it
	}
	x.endRetry()
	x.endLimits()
	x.endPacing()
	x.endAdmission()
	x.finish()
	return Outcome{Complete: x.complete, Read: read}
}

// Refuse ends a request whose head could not be parsed. It sends a response with the status, or none if status is 0,
// and reports whether the response was sent completely. The connection must be closed afterwards.
func (x *Exchange) Refuse(status int, reason observe.Reason) (complete bool) {
	if x.start.IsZero() {
		x.Begin()
	}
	x.Request.Request.Reset()
	x.Request = Request{Request: x.Request.Request, Length: -1}
	x.reset()
	x.closing = true // the following bytes cannot be parsed
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
	x.rec = observe.Record{} // a literal with values would be built elsewhere and copied
	x.rec.ClientAddr, x.rec.Protocol, x.rec.Scheme, x.rec.Shard = c.Peer, c.Protocol, c.Mode.Scheme(), uint32(c.Peer.Port())
	x.listener, x.rule, x.ref, x.backend = nil, nil, nil, nil
	x.deadline, x.callTime = time.Time{}, 0
	x.closing, x.complete, x.upgradeNotForwarded, x.grpc, x.suspended = false, false, false, false, false
	x.connects = snapshot.RefuseConnect
	x.body.bodyState = bodyState{whole: x.body.whole}
	c.Watch.start()
}

// note records what only the access log shows, before filters change it.
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

// handle takes the request from its head to its response. It reports whether the request was read completely.
//
// The phases follow each other in this order, and each may answer the request: the listener is found and its filters
// run, a rule is chosen, the rule's time limits, filters and limits apply, and a backend is chosen. Where the request is
// counted (x.rec.Stats) becomes more specific with each of them.
//
// The compiler may not inline the phases, nor other functions that have ended when a request waits or is sent
// (go:noinline): their variables would remain on the stack, which would then be too small for a new connection, and
// copied (TestStackOfRequest).
func (x *Exchange) handle() (read bool) {
	if answered, read := x.enterListener(); answered {
		return read
	}
	m, answered, read := x.chooseRule()
	if answered {
		return read
	}
	if answered, read := x.applyRule(m); answered {
		return read
	}
	b, answered, read := x.chooseBackend()
	if answered {
		return read
	}
	return x.forward(b)
}

// enterListener finds the listener, completes the head and runs the listener's filters.
//
//go:noinline
func (x *Exchange) enterListener() (answered, read bool) {
	if x.isConnect() {
		x.Path = rootPath // for matches and filters; a CONNECT has no path
	}
	if reason := x.findListener(); reason != observe.ReasonOK {
		return true, x.fail(reason)
	}
	if x.Client.Engine.Refuses() {
		return true, x.fail(observe.ReasonOverloaded)
	}
	x.setForwarded()
	if x.exceedsBody(x.Length) {
		return true, x.fail(observe.ReasonBodyTooLarge)
	}
	x.setRequestID()
	if !x.countPass() {
		return true, x.fail(observe.ReasonLoopDetected)
	}
	if x.listener.Tracer != nil {
		x.beginSpan()
	}
	x.fx.Request = &x.Request.Request
	x.fx.Scheme = x.Client.Mode.Scheme()
	x.fx.ListenerPort = uint16(x.listener.Config.Port)
	if f := x.listener.Failure; f != nil {
		return true, x.failWith(f.Status, f.Reason)
	}
	if answered, read := x.checkMaxForwards(); answered {
		return true, read
	}
	if reply := x.listener.Filters.RunRequest(&x.fx); reply != nil {
		return true, x.answer(reply)
	}
	return false, false
}

// chooseRule finds the rule and what it says about the record of the request.
//
//go:noinline
func (x *Exchange) chooseRule() (m *match.Rule[*snapshot.Rule], answered, read bool) {
	m, err := x.listener.Table.Lookup(&x.Request.Request)
	if err != nil {
		return nil, true, x.fail(observe.ReasonMatchLimit)
	}
	if m == nil {
		return nil, true, x.fail(observe.ReasonRouteNotFound)
	}
	if x.isConnect() && m.Value.Failure == nil {
		if reason := x.takeConnect(m.Value); reason != observe.ReasonOK {
			return nil, true, x.fail(reason)
		}
	}
	x.rule = m.Value
	if x.rule.RateLimits != nil {
		x.ensureRare().limited = ratelimit.Decision{}
	}
	if x.rule.Tracing != nil && x.listener.Tracer != nil {
		x.rare.span.Match(x.rule.Tracing, &x.Request.Request, &x.fx.Seed)
	}
	if x.rule.Compression != nil {
		x.negotiate()
	}
	if x.rare != nil && m.Match.GetPath() != nil {
		x.rare.span.Matched(m.Match.Path.Value)
	}
	if s := x.rule.StatsFor(x.listener); s != nil {
		x.rec.Stats = s
	}
	if o := x.rule.ResponseOverrides; o != nil && o.Target {
		x.keepTarget()
	}
	if f := x.rule.Failure; f != nil {
		return nil, true, x.failWith(f.Status, f.Reason)
	}
	return m, false, false
}

// applyRule begins the time limits of the rule, runs its filters, and checks its limits on requests.
//
//go:noinline
func (x *Exchange) applyRule(m *match.Rule[*snapshot.Rule]) (answered, read bool) {
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
			return true, read
		}
	}
	if x.clientLeft() { // otherwise servers that filters call, mirrors and backends would work for nobody
		return true, false
	}
	path, query := x.Path, x.Query
	if reply := x.rule.Filters.RunRequest(&x.fx); reply != nil {
		return true, x.answer(reply)
	}
	if m.Match.Preflight {
		return true, x.answerPreflight()
	}
	if x.rule.RateLimits != nil {
		switch reason := x.checkRateLimits(path, query); reason {
		case observe.ReasonOK:
		case observe.ReasonClientClosed:
			x.rec.Reason = reason
			return true, false
		default:
			return true, x.fail(reason)
		}
	}
	if c := x.rule.Admission; c != nil && !x.passesAdmission(c) {
		return true, x.fail(observe.ReasonAdmissionRejected)
	}
	return false, false
}

// chooseBackend chooses a backend, runs its filters, and begins the copies of the request.
//
//go:noinline
func (x *Exchange) chooseBackend() (b *snapshot.BackendRef, answered, read bool) {
	ref, reason := x.rule.Choose(&x.fx.Seed)
	if reason != observe.ReasonOK {
		return nil, true, x.fail(reason)
	}
	x.rec.Backend = int32(ref + 1)
	b = &x.rule.Backends[ref]
	x.ref = b
	if b.Failure != nil {
		return nil, true, x.failWith(b.Failure.Status, b.Failure.Reason)
	}
	if x.clientLeft() { // while a filter made a call
		return nil, true, false
	}
	copied := &x.Request.Request // copied by the rule's mirrors, after the rule's filters
	mirrors := x.rule.Filters.Mirrors
	wait := b.Filters.Authorizes || x.rule.RequestBuffer > 0 // until the request is authorized, and its body not too large
	switch {
	case !wait:
		x.startMirrors(mirrors, copied)
	case len(mirrors) > 0:
		head := cloneHead(copied)
		copied = &head
	}
	if reply := b.Filters.RunRequest(&x.fx); reply != nil {
		return nil, true, x.answer(reply)
	}
	if limit := x.rule.RequestBuffer; limit > 0 {
		if ok, read := x.bufferRequest(limit); !ok {
			return nil, true, read
		}
	}
	if wait {
		x.startMirrors(mirrors, copied)
	}
	x.startMirrors(b.Filters.Mirrors, &x.Request.Request)
	return b, false, false
}

func (x *Exchange) isConnect() bool { return string(x.Method) == http.MethodConnect }

// clientLeft reports whether the client is known to have left, and records that.
func (x *Exchange) clientLeft() bool {
	if !x.Client.Watch.goneNow() {
		return false
	}
	x.rec.Reason = observe.ReasonClientClosed
	return true
}

// answerPreflight lets the CORS filter of a backendRef answer a preflight request that the rule matched only because of
// such filters. Neither a backend nor a mirror receives the request, whatever the rule's other filters do.
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

// findListener chooses the listener by Host. On a TLS connection it must be the listener that the server name chose
// (Gateway API, GatewayHTTPSListenerDetectMisdirectedRequests). A Host without a listener does not count as
// misdirected, since no other connection would serve it.
func (x *Exchange) findListener() observe.Reason {
	c := x.Client
	p := c.Engine.Snapshot.Load().PortOf(c.Socket, x.local)
	if p == nil || !p.Mode.Shares(c.Mode) {
		x.rec.Stats = c.Socket.Stats.Unrouted()
		x.closing = true // no listener uses the port, or this protocol on it, any more
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
	if l.Mode != c.Mode { // not the mode with which the connection began
		x.rec.Stats = c.Socket.Stats.Unrouted()
		x.closing = true
		return observe.ReasonMisdirected
	}
	x.listener = l
	x.rec.Stats = l.Stats.Unrouted()
	if !c.TLSPeer.Satisfies(l.Clients) {
		x.closing = true // another connection may satisfy them
		return observe.ReasonMisdirected
	}
	return observe.ReasonOK
}

// finish is the only place where a request ends. It logs and counts the request.
func (x *Exchange) finish() {
	x.rec.StartUnixNano = x.start.UnixNano()
	x.rec.DurationNano = int64(time.Since(x.start))
	if x.rec.Reason == observe.ReasonClientClosed {
		if reason, cut := x.Client.Watch.WasCut(); cut {
			x.rec.Reason = reason
		}
	}
	if x.rule != nil && x.rule.RateLimits != nil {
		x.rare.limited.Charge()
	}
	if x.rare != nil {
		x.rec.Span = x.rare.span.ID()
		x.rare.span.End(&x.rec)
	}
	x.Client.Engine.Observer.Finish(&x.rec)
	x.start, x.grpc = time.Time{}, false
}

// beginSpan decides whether the request is traced. The listener must have a tracer.
func (x *Exchange) beginSpan() {
	span := &x.ensureRare().span
	span.Begin(x.listener.Tracer, &x.Request.Request, &x.fx.Seed, x.start, uint16(x.listener.Config.Port))
	// The rule may enable recording later, after the listener's filters.
	x.rec.UserAgent, _ = x.Header.Get("user-agent")
}
