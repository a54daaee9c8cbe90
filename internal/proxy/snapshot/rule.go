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

// Rule is a compiled config.Rule. It is shared by all listeners to which its route is attached.
type Rule struct {
	Namespace string   // of its route
	Failure   *Failure // the answer to every request; nil if the rule can be carried out
	Filters   *Filters // never nil
	Backends  []BackendRef
	// RequestTimeout and BackendTimeout are timeouts.request and timeouts.backendRequest; 0 means none.
	RequestTimeout, BackendTimeout time.Duration
	// PerTryTimeout ends an attempt whose response has not begun by then; 0 means never. It is 0 if the rule has a
	// timeouts.backendRequest, including 0s.
	PerTryTimeout time.Duration
	Retry         *Retry            // nil if the rule does not configure retries
	Sessions      *session.Settings // nil if the rule does not configure sessions and its backends do
	*Traffic                        // never nil

	weights uint64 // sum of the weights of Backends
	stats   []ruleStats
	release []func() // called by Route.Release: they release what the rule shares with the one that replaces it, see package refcount
}

// Traffic is what a policy configures for a rule, see config.RuleTraffic. Rules without a policy, as most of thousands may
// be, share one that is empty.
type Traffic struct {
	// StreamIdleTimeout is how long nothing may move between client and backend, and MaxStreamDuration how long request
	// and response may take, including tunnels; 0 means no limit.
	StreamIdleTimeout, MaxStreamDuration time.Duration
	// BufferLimit is how many bytes of a streamed request body are kept so that it can be sent again; 0 means the
	// default.
	BufferLimit int64
	// RequestBuffer is the largest size of request bodies, which are read completely before a backend is chosen. If it
	// is 0, they are passed on as they arrive.
	RequestBuffer int64
	// Fault is nil if no faults are injected.
	Fault *FaultInjection
	// Admission is nil if no request is rejected because earlier ones have failed.
	Admission *admission.Control
	// Bandwidth is nil if there is no bandwidth limit.
	Bandwidth *BandwidthLimit
	// ResponseOverrides is nil if no response is overridden.
	ResponseOverrides *ResponseOverrides
	// Compression is nil if responses are not compressed.
	Compression compression.Policy
	// RateLimits is nil if the rule has none.
	RateLimits *ratelimit.Rules
	// Tracing is nil if the listener's tracing settings apply.
	Tracing *tracing.Rule
	// Upgrades is nil if backends decide what requests may switch to, and CONNECT is refused.
	Upgrades *Upgrades
}

// Retry configures when and how many times a request is sent again.
type Retry struct {
	Attempts int // in addition to the first attempt
	// Statuses are the statuses of responses that ask for a retry, sorted.
	Statuses []uint16
	Backoff  time.Duration // the base interval; 0 means the default
	// Triggers are the failures that ask for a retry. If there are none, those of GEP-1731 apply and MaxBackoff is not
	// used.
	Triggers RetryTriggers
	// MaxBackoff is the longest wait; 0 means ten base intervals.
	MaxBackoff time.Duration
}

// Disabled reports whether the rule disables all retries, including those that a rule without retry settings makes.
func (r *Retry) Disabled() bool { return r != nil && r.Attempts == 0 }

// Failure is an answer that results from the configuration.
type Failure struct {
	Status int
	Reason observe.Reason
}

// What rules without filters and without a policy have.
var (
	noFilters Filters
	noTraffic Traffic
)

// Filters are the functions of a list of filters, in order.
type Filters struct {
	Request  []func(*filter.Exchange) *filter.Reply
	Response []func(*filter.Exchange)
	Mirrors  []*filter.Mirror
	// Preflights means that one of Request answers preflight requests.
	Preflights bool
	// Authorizes means that one of Request asks a server whether the request is allowed.
	Authorizes bool
}

// BackendRef is one of the backends of a rule, with its share of the requests.
type BackendRef struct {
	below   uint64 // a random number below it, and not below that of the previous entry, chooses this one
	Backend *upstream.Backend
	Failure *Failure // set if and only if Backend is nil
	Filters *Filters // never nil
}

// ruleStats are the counters of a rule on one listener.
type ruleStats struct {
	listener string // config.Listener.key
	stats    *observe.RuleStats
}

// StatsFor returns the counters for a listener, nil if the rule is not counted.
func (r *Rule) StatsFor(l *Listener) *observe.RuleStats {
	for i := range r.stats {
		if r.stats[i].listener == l.Config.Key {
			return r.stats[i].stats
		}
	}
	return nil
}

// Route is a compiled config.Route, with what must be released when it is removed.
type Route struct {
	Config   *config.Route
	Compiled *match.Route[*Rule]
	rules    []*Rule
}

// Release releases the counters of the route's rules, and whatever else they share with those of the route that
// replaces it.
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

// Compiler compiles routes.
type Compiler struct {
	// Backend returns the backend with a key, nil if it is not configured.
	Backend func(key string) *upstream.Backend
	Metrics *observe.Metrics
	// RateLimits holds the counters of rules' limits; nil if no rule has any.
	RateLimits *ratelimit.Store

	windows   refcount.Set[admission.Window]  // for admission control
	limiters  refcount.Set[bandwidth.Limiter] // for bandwidth limits
	overrides refcount.Set[compiledOverrides] // by their serialized configuration
}

// Route compiles a route. An error names the part of it that this data plane does not support.
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

// maxBufferLimit bounds what is kept of one request, whatever the controller configures.
const maxBufferLimit = 16 << 20

// LimitsStreams reports whether requests and responses may be ended because nothing moves, or because they take too
// long.
func (t *Traffic) LimitsStreams() bool { return t.StreamIdleTimeout > 0 || t.MaxStreamDuration > 0 }

// rule compiles a rule of the route with that key.
func (p *Compiler) rule(c *config.Rule, route string) (*Rule, error) {
	r := &Rule{
		Failure:        compileFailure(c.Failure),
		RequestTimeout: time.Duration(max(c.RequestTimeoutNanos, 0)),
		BackendTimeout: time.Duration(max(c.BackendRequestTimeoutNanos, 0)),
		Retry:          compileRetry(c.Retry),
		Traffic:        &noTraffic,
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
	if c.Traffic != nil {
		if err = p.traffic(r, c, route); err != nil {
			return r, err
		}
	}
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

// traffic compiles what a policy configures for a rule.
func (p *Compiler) traffic(r *Rule, c *config.Rule, route string) (err error) {
	t := c.Traffic
	r.Traffic = &Traffic{
		StreamIdleTimeout: time.Duration(t.StreamIdleTimeoutNanos),
		MaxStreamDuration: time.Duration(t.MaxStreamDurationNanos),
		BufferLimit:       min(int64(t.BufferLimitBytes), maxBufferLimit),
		RequestBuffer:     int64(t.RequestBufferBytes),
		Tracing:           tracing.NewRule(t.Tracing),
	}
	if r.Fault, err = compileFaultInjection(t.FaultInjection); err != nil {
		return err
	}
	if err = p.responseOverrides(r, t.ResponseOverrides); err != nil {
		return err
	}
	if r.Upgrades, err = compileUpgrades(t); err != nil {
		return err
	}
	if r.Compression, err = compileCompression(t.Compression); err != nil {
		return err
	}
	if t.RateLimits != nil {
		if r.RateLimits, err = r.share(p.RateLimits.Compile(t.RateLimits, config.WholeRouteKey(route))); err != nil {
			return err
		}
	}
	control, release, err := p.admission(route, t)
	if err != nil {
		return err
	}
	if r.Admission = control; release != nil {
		r.release = append(r.release, release)
	}
	limit, releases := p.bandwidth(route, c)
	r.Bandwidth, r.release = limit, append(r.release, releases...)
	return nil
}

// share records what is released when the rule is replaced.
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

// Listener compiles the filters and the failure of a listener. If it returns an error, the listener fails all requests.
func (p *Compiler) Listener(l *Listener, c *config.Listener) error {
	l.Failure = compileFailure(c.Failure)
	filters, err := p.filters(c.Filters)
	if err != nil {
		l.Failure = &Failure{Status: observe.ReasonListenerInvalid.Status(), Reason: observe.ReasonListenerInvalid}
		return fmt.Errorf("listener %s: %w", c.Key, err)
	}
	l.Filters = *filters
	return nil
}

func (p *Compiler) filters(list []*anypb.Any) (*Filters, error) {
	if len(list) == 0 {
		return &noFilters, nil
	}
	out := &Filters{}
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

// ruleStats returns the counters of a rule on each listener of its route.
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

// Choose chooses a backendRef by weight, with the exchange's random numbers.
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

// Chooses reports whether Choose may choose the backend.
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

// Counterpart returns the Counterpart of e in a backend that Choose may choose, nil if there is none.
func (r *Rule) Counterpart(e *upstream.Endpoint) *upstream.Endpoint {
	var below uint64
	for i := range r.Backends {
		ref := &r.Backends[i]
		if ref.Backend != nil && ref.below > below {
			if same := ref.Backend.Counterpart(e); same != nil {
				return same
			}
		}
		below = ref.below
	}
	return nil
}

// ChooseForPreflight chooses by weight among the backendRefs whose filters answer preflight requests. It returns false
// if there is none.
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

// RunRequest runs the request filters. A Reply ends the request.
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
