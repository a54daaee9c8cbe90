package rule

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/translate/condition"
)

// matches compiles the matches of a rule of one kind of route; without any, it adds one that matches all requests of the kind. It returns the
// first problem. If the rule has filters it compiles the others nevertheless: their requests must fail, and not match another rule, which may
// not require authorization.
func matches[M any](s *scope, specs []M, compile func(spec *M, field string) (*config.Match, *condition.Problem)) *condition.Problem {
	if len(specs) == 0 {
		specs = make([]M, 1)
	}
	var first *condition.Problem
	for i := range specs {
		m, p := compile(&specs[i], fmt.Sprintf(".matches[%d]", i))
		if p == nil {
			s.rule.Matches = append(s.rule.Matches, m)
		}
		if first = cmp.Or(first, p, s.badExpression); first != nil && !s.spec.filtered() {
			return first
		}
	}
	return first
}

// repeats reports whether a match with the name exists already. The specification ignores the second match of a name, whatever it
// contains.
func repeats(list []*config.ValueMatch, name string) bool {
	return slices.ContainsFunc(list, func(known *config.ValueMatch) bool { return known.Name == name })
}

// appendFirst appends a match unless there is one with the same name.
func appendFirst(list []*config.ValueMatch, v *config.ValueMatch) []*config.ValueMatch {
	if repeats(list, v.Name) {
		return list
	}
	return append(list, v)
}

// appendHeaderMatch compiles a match of a header; field is its path.
func (s *scope) appendHeaderMatch(list []*config.ValueMatch, name, value, kind, field string) ([]*config.ValueMatch, *condition.Problem) {
	v := &config.ValueMatch{Name: strings.ToLower(name), Value: value}
	if repeats(list, v.Name) {
		return list, nil
	}
	switch {
	case config.RemovedBeforeMatching(v.Name):
		s.notes = append(s.notes, condition.NewProblem("", s.field+field+".name", "match another header",
			"it matches no request: %s belongs to the connection, not to the message, and is removed before requests are matched", name))
	case config.SetBeforeMatching(v.Name):
		s.notes = append(s.notes, condition.NewProblem("", s.field+field+".name", "match another header, unless what the gateway says is meant",
			"it is not matched against what clients send: the gateway sets or removes %s itself before requests are matched, unless it was told to trust the client", name))
	}
	return append(list, v), s.valueMatch(v, kind, field)
}

// valueMatch completes v; both kinds of value match have the same two types.
func (s *scope) valueMatch(v *config.ValueMatch, kind, field string) *condition.Problem {
	switch kind {
	case string(gwv1.HeaderMatchExact):
		return nil
	case string(gwv1.HeaderMatchRegularExpression):
		v.RegularExpression = true
		return s.expression(&v.Value, field+".value")
	}
	return s.unsupported(field+".type", "use Exact or RegularExpression", "%q is not known", kind)
}
