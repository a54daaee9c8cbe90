package snapshot

import (
	"fmt"

	"github.com/moongate-dev/moongate/internal/config"
)

// L4Route is a compiled config.L4Route. It has one rule, of which connections only use the BackendRefs.
type L4Route struct {
	Config      *config.L4Route
	rule        *Rule
	passthrough *Rule // for connections whose TLS is passed through
}

// RuleFor returns the rule for connections of a mode.
func (r *L4Route) RuleFor(m Mode) *Rule {
	if m == TLSPassthrough {
		return r.passthrough
	}
	return r.rule
}

// L4Route compiles a layer-4 route. An error names the part of it that this data plane does not support.
func (p *Compiler) L4Route(c *config.L4Route) (*L4Route, error) {
	r := &L4Route{Config: c}
	for _, of := range []struct {
		rule **Rule
		refs []*config.BackendRef
	}{{&r.rule, c.BackendRefs}, {&r.passthrough, c.PassthroughBackendRefs}} {
		spec := &config.Rule{BackendRefs: of.refs}
		rule, err := p.rule(spec, c.Key)
		if err != nil {
			r.Release()
			return nil, fmt.Errorf("route %s: %w", c.Key, err)
		}
		rule.Namespace = c.Namespace
		rule.stats = p.ruleStats(&config.Route{Key: c.Key, Attachments: c.Attachments}, spec)
		*of.rule = rule
	}
	return r, nil
}

// Release releases the counters of the route.
func (r *L4Route) Release() {
	for _, rule := range []*Rule{r.rule, r.passthrough} {
		if rule == nil {
			continue
		}
		for _, s := range rule.stats {
			s.stats.Release()
		}
	}
}
