package snapshot

import (
	"fmt"

	"github.com/moongate-dev/moongate/internal/config"
)

// L4Route is a compiled config.L4Route. It has one rule, whose BackendRefs are all that connections need of it.
type L4Route struct {
	Config *config.L4Route
	Rule   *Rule
}

// L4Route compiles a layer-4 route. An error says which part of it this data plane cannot carry out.
func (p *Compiler) L4Route(c *config.L4Route) (*L4Route, error) {
	spec := &config.Rule{BackendRefs: c.BackendRefs}
	rule, err := p.rule(spec)
	if err != nil {
		return nil, fmt.Errorf("route %s: %w", c.Key, err)
	}
	rule.Namespace = c.Namespace
	rule.stats = p.ruleStats(&config.Route{Key: c.Key, Attachments: c.Attachments}, spec)
	return &L4Route{Config: c, Rule: rule}, nil
}

// Release gives the counters of the route back.
func (r *L4Route) Release() {
	for _, s := range r.Rule.stats {
		s.stats.Release()
	}
}
