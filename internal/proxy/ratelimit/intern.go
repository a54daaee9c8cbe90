package ratelimit

import (
	"google.golang.org/protobuf/proto"

	"github.com/moongate-dev/moongate/internal/config"
)

// compiledConditions are the conditions of all limits that ask for the same, whatever their routes: a policy may be in force for thousands of these.
type compiledConditions struct {
	conditions
	err error
}

// compile returns the conditions of a limit, compiled once for all that have the same. release is never nil, also with an error.
func (s *Store) compile(c *config.RateLimit) (_ *conditions, release func(), err error) {
	key, err := proto.MarshalOptions{Deterministic: true}.Marshal(&config.RateLimit{HeaderFields: c.HeaderFields, Methods: c.Methods, Paths: c.Paths, Sources: c.Sources, QueryParams: c.QueryParams})
	if err != nil {
		return nil, func() {}, err
	}
	compiled, release := s.conditions.Take(string(key), func() *compiledConditions {
		compiled, err := compileConditions(c)
		return &compiledConditions{compiled, err}
	})
	return &compiled.conditions, release, compiled.err
}
