package proxy

import (
	"fmt"
	"strconv"
	"time"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/observe"
	"github.com/moongate-dev/moongate/internal/proxy/filter"
	"github.com/moongate-dev/moongate/internal/proxy/filter/table"
	"github.com/moongate-dev/moongate/internal/proxy/match"
	"github.com/moongate-dev/moongate/internal/proxy/upstream"

	"google.golang.org/protobuf/types/known/anypb"
)

// rule is a compiled config.Rule, shared by all listeners its route is attached to.
type rule struct {
	failure        *failure
	filters        filters
	backends       []backendRef
	weights        uint64 // sum of the weights of backends
	requestTimeout time.Duration
	backendTimeout time.Duration
	stats          []ruleStats
}

// failure is an answer that the configuration prescribes.
type failure struct {
	status int
	reason observe.Reason
}

// filters are the functions of a list of filters, in its order.
type filters struct {
	request  []func(*filter.Exchange) *filter.Reply
	response []func(*filter.Exchange)
	mirrors  []*filter.Mirror
}

// backendRef is one share of a rule's traffic.
type backendRef struct {
	below   uint64 // a number under it, and not under that of the entry before, chooses this one
	backend *upstream.Backend
	failure *failure // set exactly where backend is nil
	filters filters
}

// ruleStats are the counters of a rule on one listener.
type ruleStats struct {
	listener string // config.Listener.key
	stats    *observe.RuleStats
}

// statsFor is the handle for a listener, nil where the rule is not counted.
func (r *rule) statsFor(l *listener) *observe.RuleStats {
	for i := range r.stats {
		if r.stats[i].listener == l.config.Key {
			return r.stats[i].stats
		}
	}
	return nil
}

// route is a compiled config.Route and what has to be released when it goes.
type route struct {
	config   *config.Route
	compiled *match.Route[*rule]
	rules    []*rule
}

func (r *route) release() {
	for _, rule := range r.rules {
		for _, s := range rule.stats {
			s.stats.Release()
		}
	}
}

// compileRoute makes a route ready to be looked up. listeners gives the listeners of its
// attachments, for the counters.
func (p *Proxy) compileRoute(c *config.Route) (*route, error) {
	r := &route{config: c}
	var firstErr error
	compiled, err := match.Compile(c, func(rc *config.Rule) *rule {
		ru, err := p.compileRule(rc)
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
		return nil, err
	}
	r.compiled = compiled
	for i, ru := range r.rules {
		ru.stats = p.ruleStats(c, c.Rules[i])
	}
	return r, nil
}

func (p *Proxy) compileRule(c *config.Rule) (*rule, error) {
	r := &rule{
		failure:        compileFailure(c.Failure),
		requestTimeout: time.Duration(c.RequestTimeoutNanos),
		backendTimeout: time.Duration(c.BackendRequestTimeoutNanos),
	}
	var err error
	if r.filters, err = p.compileFilters(c.Filters); err != nil {
		return r, err
	}
	for i, b := range c.BackendRefs {
		ref := backendRef{failure: compileFailure(b.Failure)}
		if ref.filters, err = p.compileFilters(b.Filters); err != nil {
			return r, fmt.Errorf("backendRefs[%d]: %w", i, err)
		}
		if ref.failure == nil {
			if ref.backend = p.upstreams.Get(b.Backend); ref.backend == nil {
				return r, fmt.Errorf("backendRefs[%d]: backend %q is not configured", i, b.Backend)
			}
		}
		r.weights += uint64(b.Weight)
		ref.below = r.weights
		r.backends = append(r.backends, ref)
	}
	return r, nil
}

func compileFailure(f *config.Failure) *failure {
	if f == nil {
		return nil
	}
	reason, ok := observe.ReasonByWord(f.Reason)
	if !ok {
		reason = observe.ReasonRuleInvalid
	}
	return &failure{status: int(f.Status), reason: reason}
}

func (p *Proxy) compileFilters(list []*anypb.Any) (filters, error) {
	var out filters
	env := filter.Env{Backend: p.upstreams.Get}
	for i, m := range list {
		f, err := table.Compile(m, env)
		if err != nil {
			return out, fmt.Errorf("filters[%d]: %w", i, err)
		}
		if f.Request != nil {
			out.request = append(out.request, f.Request)
		}
		if f.Response != nil {
			out.response = append(out.response, f.Response)
		}
		if f.Mirror != nil {
			out.mirrors = append(out.mirrors, f.Mirror)
		}
	}
	return out, nil
}

// ruleStats resolves the counters of a rule on each listener of its route.
func (p *Proxy) ruleStats(route *config.Route, c *config.Rule) []ruleStats {
	labels := observe.RuleLabels{Route: route.Key, Rule: c.Name}
	if labels.Rule == "" {
		labels.Rule = strconv.Itoa(int(c.Index))
	}
	for _, b := range c.BackendRefs {
		labels.Backends = append(labels.Backends, b.Backend)
	}
	var out []ruleStats
	for _, a := range route.Attachments {
		labels.Gateway, labels.Listener = splitListenerKey(a.Listener)
		out = append(out, ruleStats{a.Listener, p.metrics.Rule(labels)})
	}
	return out
}

// splitListenerKey undoes config.ListenerKey: "<namespace>/<gateway>" and the listener's name.
func splitListenerKey(key string) (gateway, name string) {
	for i := len(key) - 1; i >= 0; i-- {
		if key[i] == '/' {
			return key[:i], key[i+1:]
		}
	}
	return "", key
}
