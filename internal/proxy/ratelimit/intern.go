package ratelimit

import "github.com/moongate-dev/moongate/internal/config"

// compiledConditions are the conditions of all limits with the same ones, whatever their routes: a policy may apply to
// thousands of routes.
type compiledConditions struct {
	conditions
	err error
}

// compile returns the conditions of a limit, compiled once for all limits with the same ones. release is never nil,
// even with an error.
func (s *Store) compile(c *config.RateLimit) (_ *conditions, release func(), err error) {
	compiled, release := s.conditions.Take(string(appendConditions(nil, c)), func() *compiledConditions {
		compiled, err := compileConditions(c)
		return &compiledConditions{compiled, err}
	})
	return &compiled.conditions, release, compiled.err
}
