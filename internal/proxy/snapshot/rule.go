package snapshot

import (
	"fmt"
	"strconv"
	"time"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/observe"
	"github.com/moongate-dev/moongate/internal/proxy/admission"
	"github.com/moongate-dev/moongate/internal/proxy/bandwidth"
	"github.com/moongate-dev/moongate/internal/proxy/compression"
	"github.com/moongate-dev/moongate/internal/proxy/filter"
	"github.com/moongate-dev/moongate/internal/proxy/filter/table"
	"github.com/moongate-dev/moongate/internal/proxy/match"
	"github.com/moongate-dev/moongate/internal/proxy/ratelimit"
	"github.com/moongate-dev/moongate/internal/proxy/refcount"
	"github.com/moongate-dev/moongate/internal/proxy/session"
	"github.com/moongate-dev/moongate/internal/proxy/tracing"
	"github.com/moongate-dev/moongate/internal/proxy/upstream"

	"google.golang.org/protobuf/types/known/anypb"
)

// Rule is a compiled config.Rule, shared by all listeners its route is attached to.
type Rule struct {
	Namespace string   // of its route
	Failure   *Failure // what every request is answered with; nil where the rule can be carried out
	Filters   Filters
	Backends  []BackendRef
	// RequestTimeout and BackendTimeout are timeouts.request and timeouts.backendRequest; 0 is none.
	RequestTimeout, BackendTimeout time.Duration
	// PerTryTimeout ends an attempt whose response has not begun by then; 0 is never. It is 0 where the rule has a timeouts.backendRequest, 0s too.
	PerTryTimeout time.Duration
	// StreamIdleTimeout is for how long nothing may move between client and backend, MaxStreamDuration how long request and response may take, tunnels included; 0 is no limit.
	StreamIdleTimeout, MaxStreamDuration time.Duration
	// BufferLimit is how many bytes of a streamed request body are kept so that it can be sent again; 0 is the default.
	BufferLimit int64
	// RequestBuffer has bodies of requests read whole before a backend is chosen, up to so many bytes; 0: they are passed on as they come.
	RequestBuffer int64
	Retry         *Retry            // nil where the rule says nothing of retries
	Sessions      *session.Settings // nil where the rule says nothing of sessions, and its backends do
	// Fault is nil where no request is delayed or aborted on purpose.
	Fault *FaultInjection
	// Admission is nil where no request is rejected for those before it that have failed.
	Admission *admission.Control
	// Bandwidth is nil where bodies pass as fast as they can.
	Bandwidth *BandwidthLimit
	// ResponseOverrides is nil where all responses are sent as they are.
	ResponseOverrides *ResponseOverrides
	// Compression is nil where responses are passed on as they are.
	Compression compression.Policy
	// RateLimits is nil where the rule has none.
	RateLimits *ratelimit.Rules
	// Tracing is nil where the rule's requests are traced as the listener says.
	Tracing *tracing.Rule
	// Upgrades is nil where backends say what requests may switch to, and CONNECT is refused.
	Upgrades *Upgrades

	weights uint64 // sum of the weights of Backends
	stats   []ruleStats
	release []func() // run by Route.Release: they release what the rule shares with the one that replaces it, see package refcount
}

// Retry says when a request is sent again, and how often at most.
type Retry struct {
	Attempts int // beyond the first
	// Statuses are those of responses that ask for it, sorted.
	Statuses []uint16
	Backoff  time.Duration // the base interval; 0 is the default
	// Triggers are the failures that ask for it; none are those of GEP-1731, and what follows is not used then.
	Triggers RetryTriggers
	// MaxBackoff is the most that is waited for; 0 is ten base intervals.
	MaxBackoff time.Duration
}

// Disabled reports whether the rule says that nothing is retried, also what a rule without retry does on its own.
func (r *Retry) Disabled() bool { return r != nil && r.Attempts == 0 }

// Failure is an answer that the configuration prescribes.
type Failure struct {
	Status int
	Reason observe.Reason
}

// Filters are the functions of a list of filters, in its order.
type Filters struct {
	Request  []func(*filter.Exchange) *filter.Reply
	Response []func(*filter.Exchange)
	Mirrors  []*filter.Mirror
	// Preflights reports whether one of Request answers preflight requests.
	Preflights bool
	// Authorizes reports whether one of Request asks a server whether the request may go on.
	Authorizes bool
}

// BackendRef is one share of a rule's traffic.
type BackendRef struct {
	below   uint64 // a number under it, and not under that of the entry before, chooses this one
	Backend *upstream.Backend
	Failure *Failure // set exactly where Backend is nil
	Filters Filters
}

// ruleStats are the counters of a rule on one listener.
type ruleStats struct {
	listener string // config.Listener.key
	stats    *observe.RuleStats
}

// StatsFor is the handle for a listener, nil where the rule is not counted.
func (r *Rule) StatsFor(l *Listener) *observe.RuleStats {
	for i := range r.stats {
		if r.stats[i].listener == l.Config.Key {
			return r.stats[i].stats
		}
	}
	return nil
}

// Route is a compiled config.Route and what has to be released when it goes.
type Route struct {
	Config   *config.Route
	Compiled *match.Route[*Rule]
	rules    []*Rule
}

// Release releases the counters of the route's rules, and whatever else they share with those of the route that replaces it.
func (r *Route) Release() {
	for _, rule := range r.rules {
		for _, s := range rule.stats {
			s.stats.Release()
		}
		for _, release := range rule.release {
			release()
		}
	}
}

// Compiler makes routes ready to be looked up.
type Compiler struct {
	// Backend finds a backend by its key, nil where it is not configured.
	Backend func(key string) *upstream.Backend
	Metrics *observe.Metrics
	// RateLimits has what limits of rules count; nil where no rule has any.
	RateLimits *ratelimit.Store

	windows   refcount.Set[admission.Window]  // of admission control
	limiters  refcount.Set[bandwidth.Limiter] // of bandwidth
	overrides refcount.Set[compiledOverrides] // by what they ask for
}

// Route compiles a route. An error says which part of it this data plane cannot carry out.
func (p *Compiler) Route(c *config.Route) (*Route, error) {
	r := &Route{Config: c}
	var firstErr error
	compiled, err := match.Compile(c, func(rc *config.Rule) *Rule {
		ru, err := p.rule(rc, c.Key)
		if err != nil && firstErr == nil {
			firstErr = fmt.Errorf("route %s: rules[%d]: %w", c.Key, rc.Index, err)
		}
		r.rules = append(r.rules, ru)
		return ru
	})
	if err == nil {
		err = firstErr
	}
	if err != nil {
		r.Release()
		return nil, err
	}
	r.Compiled = compiled
	for i, ru := range r.rules {
		ru.Namespace = c.Namespace
		ru.stats = p.ruleStats(c, c.Rules[i])
		ru.Bandwidth.enforce()
	}
	return r, nil
}

// maxBufferLimit bounds what is kept of one request, whatever the controller says.
const maxBufferLimit = 16 << 20

// LimitsStreams reports whether requests and responses may be ended for what moves of them, or how long they take.
func (r *Rule) LimitsStreams() bool { return r.StreamIdleTimeout > 0 || r.MaxStreamDuration > 0 }

// rule compiles a rule of a route with that key.
func (p *Compiler) rule(c *config.Rule, route string) (*Rule, error) {
	r := &Rule{
		Failure:        compileFailure(c.Failure),
		RequestTimeout: time.Duration(max(c.RequestTimeoutNanos, 0)),
		BackendTimeout: time.Duration(max(c.BackendRequestTimeoutNanos, 0)),
		Retry:          compileRetry(c.Retry),

		StreamIdleTimeout: time.Duration(c.GetTraffic().GetStreamIdleTimeoutNanos()),
		MaxStreamDuration: time.Duration(c.GetTraffic().GetMaxStreamDurationNanos()),
		BufferLimit:       min(int64(c.GetTraffic().GetBufferLimitBytes()), maxBufferLimit),
		RequestBuffer:     int64(c.GetTraffic().GetRequestBufferBytes()),
	}
	if c.BackendRequestTimeoutNanos == 0 {
		r.PerTryTimeout = time.Duration(c.GetRetry().GetPerTryTimeoutNanos())
	}
	var err error
	if r.Sessions, err = session.Compile(c.SessionPersistence); err != nil {
		return r, err
	}
	if r.Filters, err = p.filters(c.Filters); err != nil {
		return r, err
	}
	if r.Fault, err = compileFaultInjection(c.GetTraffic().GetFaultInjection()); err != nil {
		return r, err
	}
	if err = p.responseOverrides(r, c.GetTraffic().GetResponseOverrides()); err != nil {
		return r, err
	}
	r.Tracing = tracing.NewRule(c.GetTraffic().GetTracing())
	if r.Upgrades, err = compileUpgrades(c.GetTraffic()); err != nil {
		return r, err
	}
	if r.Compression, err = compileCompression(c.GetTraffic().GetCompression()); err != nil {
		return r, err
	}
	if limits := c.GetTraffic().GetRateLimits(); limits != nil {
		if r.RateLimits, err = r.share(p.RateLimits.Compile(limits, config.WholeRouteKey(route))); err != nil {
			return r, err
		}
	}
	control, release, err := p.admission(route, c.Traffic)
	if err != nil {
		return r, err
	}
	if r.Admission = control; release != nil {
		r.release = append(r.release, release)
	}
	limit, releases := p.bandwidth(route, c)
	r.Bandwidth, r.release = limit, append(r.release, releases...)
	for i, b := range c.BackendRefs {
		ref := BackendRef{Failure: compileFailure(b.Failure)}
		if ref.Filters, err = p.filters(b.Filters); err != nil {
			return r, fmt.Errorf("backendRefs[%d]: %w", i, err)
		}
		if ref.Failure == nil {
			if ref.Backend = p.Backend(b.Backend); ref.Backend == nil {
				return r, fmt.Errorf("backendRefs[%d]: backend %q is not configured", i, b.Backend)
			}
		}
		r.weights += uint64(b.Weight)
		ref.below = r.weights
		r.Backends = append(r.Backends, ref)
	}
	return r, nil
}

// share has the rule release what is shared with the one that replaces it.
func (r *Rule) share(limits *ratelimit.Rules, release func(), err error) (*ratelimit.Rules, error) {
	r.release = append(r.release, release)
	return limits, err
}

func compileFailure(f *config.Failure) *Failure {
	if f == nil {
		return nil
	}
	reason, ok := observe.ReasonByWord(f.Reason)
	if !ok {
		reason = observe.ReasonRuleInvalid
	}
	return &Failure{Status: int(f.Status), Reason: reason}
}

// Listener compiles what a listener has of rules: its filters and its failure. With an error it fails all requests.
func (p *Compiler) Listener(l *Listener, c *config.Listener) error {
	l.Failure = compileFailure(c.Failure)
	filters, err := p.filters(c.Filters)
	if err != nil {
		l.Failure = &Failure{Status: observe.ReasonListenerInvalid.Status(), Reason: observe.ReasonListenerInvalid}
		return fmt.Errorf("listener %s: %w", c.Key, err)
	}
	l.Filters = filters
	return nil
}

func (p *Compiler) filters(list []*anypb.Any) (Filters, error) {
	var out Filters
	env := filter.Env{Backend: p.Backend}
	for i, m := range list {
		f, err := table.Compile(m, env)
		if err != nil {
			return out, fmt.Errorf("filters[%d]: %w", i, err)
		}
		if f.Request != nil {
			out.Request = append(out.Request, f.Request)
		}
		if f.Response != nil {
			out.Response = append(out.Response, f.Response)
		}
		out.Preflights = out.Preflights || f.Preflights
		out.Authorizes = out.Authorizes || f.Authorizes != nil
		if f.Mirror != nil {
			out.Mirrors = append(out.Mirrors, f.Mirror)
		}
	}
	return out, nil
}

// ruleStats resolves the counters of a rule on each listener of its route.
func (p *Compiler) ruleStats(route *config.Route, c *config.Rule) []ruleStats {
	labels := observe.RuleLabels{Route: config.WholeRouteKey(route.Key), Rule: c.Name, StatName: c.GetTraffic().GetRouteStatName()}
	if labels.Rule == "" {
		labels.Rule = strconv.Itoa(int(c.Index))
	}
	for _, b := range c.BackendRefs {
		labels.Backends = append(labels.Backends, b.Backend)
	}
	var out []ruleStats
	for _, a := range route.Attachments {
		labels.Gateway, labels.Listener = config.SplitListenerKey(a.Listener)
		out = append(out, ruleStats{a.Listener, p.Metrics.Rule(labels)})
	}
	return out
}

// Choose picks a backendRef by weight, with the exchange's random numbers.
func (r *Rule) Choose(seed *uint64) (int, observe.Reason) {
	if r.weights == 0 {
		return 0, observe.ReasonNoBackend
	}
	if len(r.Backends) == 1 {
		return 0, observe.ReasonOK
	}
	n := upstream.Random(seed) % r.weights
	for i := range r.Backends {
		if n < r.Backends[i].below {
			return i, observe.ReasonOK
		}
	}
	return 0, observe.ReasonInternal
}

// Chooses reports whether Choose may pick the backend.
func (r *Rule) Chooses(b *upstream.Backend) bool {
	var below uint64
	for i := range r.Backends {
		ref := &r.Backends[i]
		if ref.Backend == b && ref.below > below {
			return true
		}
		below = ref.below
	}
	return false
}

// ChooseForPreflight picks by weight among the backendRefs whose filters answer preflight requests; false is that there is none.
func (r *Rule) ChooseForPreflight(seed *uint64) (ref int, ok bool) {
	var sum, below uint64
	for i := range r.Backends {
		b := &r.Backends[i]
		weight := b.below - below
		if below = b.below; weight == 0 || !b.Filters.Preflights {
			continue
		}
		if sum += weight; upstream.Random(seed)%sum < weight {
			ref, ok = i, true
		}
	}
	return ref, ok
}

// RunRequest runs the request filters; a Reply ends the request.
func (f *Filters) RunRequest(fx *filter.Exchange) *filter.Reply {
	for _, run := range f.Request {
		if reply := run(fx); reply != nil {
			return reply
		}
	}
	return nil
}

// RunResponse runs the response filters.
func (f *Filters) RunResponse(fx *filter.Exchange) {
	for _, run := range f.Response {
		run(fx)
	}
}
