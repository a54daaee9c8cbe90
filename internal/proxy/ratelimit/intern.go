package ratelimit

import "github.com/moongate-dev/moongate/internal/config"

// compiledConditions are the conditions of all limits that ask for the same, whatever their routes: a policy may be in force for thousands of these.
type compiledConditions struct {
	conditions
	err error
}

// compile returns the conditions of a limit, compiled once for all that have the same. release is never nil, also with an error.
func (s *Store) compile(c *config.RateLimit) (_ *conditions, release func(), err error) {
	compiled, release := s.conditions.Take(string(appendConditions(nil, c)), func() *compiledConditions {
		compiled, err := compileConditions(c)
		return &compiledConditions{compiled, err}
	})
	return &compiled.conditions, release, compiled.err
}
