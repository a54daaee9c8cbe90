package translate

import (
	"fmt"
	"regexp"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/incremental"
)

// Words of config.Failure.reason, as the access log shows them.
const (
	reasonNoBackend      = "no_backend"
	reasonBackendInvalid = "backend_invalid"
	reasonRuleInvalid    = "rule_invalid"
)

func failure(reason string) *config.Failure { return &config.Failure{Status: 500, Reason: reason} }

// ruleScope is the compilation of one rule.
type ruleScope struct {
	t     *Translator
	v     *incremental.View
	route name
	field string // spec.rules[i]
	spec  *gwv1.HTTPRouteRule
	rule  *config.Rule
	into  *compiled
	// inBackend is true while filters of a backendRef are compiled.
	inBackend bool
}

func (s *ruleScope) unsupported(field, remedy, format string, args ...any) *problem {
	return newProblem(gwv1.RouteReasonUnsupportedValue, s.field+field, remedy, format, args...)
}

// compile returns the rule, and why it cannot be carried out. Both are returned
// where requests that match must fail because a filter must not be skipped.
func (s *ruleScope) compile() (*config.Rule, *problem) {
	if p := s.matches(); p != nil {
		return nil, p
	}
	if p := s.unsupportedFields(); p != nil {
		return nil, p
	}
	if p := s.timeouts(); p != nil {
		return nil, p
	}
	filters, p := s.filters(s.spec.Filters, s.field+".filters")
	if p == nil {
		s.rule.Filters = filters
		p = s.backends()
	}
	if p != nil {
		s.rule.Filters, s.rule.BackendRefs, s.rule.Failure = nil, nil, failure(reasonRuleInvalid)
		return s.rule, p
	}
	return s.rule, nil
}

func (s *ruleScope) unsupportedFields() *problem {
	switch {
	case s.spec.Retry != nil:
		return s.unsupported(".retry", "remove retry", "retries are not supported yet")
	//lint:ignore SA1019 routes still have the deprecated field, and it must not be passed over
	case s.spec.SessionPersistence != nil:
		return s.unsupported(".sessionPersistence", "remove sessionPersistence", "session persistence is not supported yet")
	}
	return nil
}

// durationFormat is GEP-2257's.
var durationFormat = regexp.MustCompile(`^([0-9]{1,5}(h|m|s|ms)){1,4}$`)

func (s *ruleScope) duration(d *gwv1.Duration, field string) (int64, *problem) {
	if d == nil {
		return 0, nil
	}
	parsed, err := time.ParseDuration(string(*d))
	if err != nil || !durationFormat.MatchString(string(*d)) {
		return 0, s.unsupported(field, "write a duration such as 10s or 1m30s", "%q is not a duration", *d)
	}
	return int64(parsed), nil
}

func (s *ruleScope) timeouts() (p *problem) {
	if s.spec.Timeouts == nil {
		return nil
	}
	request, p := s.duration(s.spec.Timeouts.Request, ".timeouts.request")
	if p != nil {
		return p
	}
	backend, p := s.duration(s.spec.Timeouts.BackendRequest, ".timeouts.backendRequest")
	if p != nil {
		return p
	}
	if request > 0 && backend > request {
		return s.unsupported(".timeouts.backendRequest", "make it at most timeouts.request",
			"%s is longer than timeouts.request %s", *s.spec.Timeouts.BackendRequest, *s.spec.Timeouts.Request)
	}
	s.rule.RequestTimeoutNanos, s.rule.BackendRequestTimeoutNanos = request, backend
	return nil
}

// backends compiles the backendRefs. The problem is one of a backendRef's filters;
// a reference that does not resolve fails only its own share of the requests.
func (s *ruleScope) backends() *problem {
	redirects := s.redirects()
	if redirects && len(s.spec.BackendRefs) > 0 {
		return s.unsupported(".backendRefs", "remove backendRefs or the filter", "a rule with a RequestRedirect filter must not have backendRefs")
	}
	total := int64(0)
	for i := range s.spec.BackendRefs {
		spec, field := &s.spec.BackendRefs[i], fmt.Sprintf(".backendRefs[%d]", i)
		weight := value(spec.Weight, 1)
		if weight < 0 || weight > 1_000_000 {
			return s.unsupported(field+".weight", "use a weight from 0 to 1000000", "%d is not a weight", weight)
		}
		total += int64(weight)
		ref := &config.BackendRef{Weight: uint32(weight)}
		if key, p := s.backend(spec.BackendObjectReference, s.field+field); p != nil {
			s.into.Unresolved = append(s.into.Unresolved, p)
			ref.Failure = failure(reasonBackendInvalid)
		} else {
			ref.Backend = key.String()
		}
		s.inBackend = true
		filters, p := s.filters(spec.Filters, s.field+field+".filters")
		s.inBackend = false
		if p != nil {
			return p
		}
		ref.Filters = filters
		s.rule.BackendRefs = append(s.rule.BackendRefs, ref)
	}
	if total == 0 && !redirects {
		s.rule.Failure = failure(reasonNoBackend)
	}
	return nil
}

func (s *ruleScope) redirects() bool {
	for _, f := range s.spec.Filters {
		if f.Type == gwv1.HTTPRouteFilterRequestRedirect {
			return true
		}
	}
	return false
}

// backend resolves a reference and remembers the Service.
func (s *ruleScope) backend(ref gwv1.BackendObjectReference, field string) (backendKey, *problem) {
	from := referrer{gwv1.GroupName, string(KindHTTPRoute), s.route}
	key, permitted, p := s.t.resolveBackend(s.v, from, ref, field)
	if permitted {
		s.into.Services = append(s.into.Services, key.Service)
	}
	return key, p
}

// packed wraps a filter's message; equal messages give equal bytes.
func packed(m proto.Message) *anypb.Any {
	a := &anypb.Any{}
	if err := anypb.MarshalFrom(a, m, proto.MarshalOptions{Deterministic: true}); err != nil {
		panic(err) // only a string that is not UTF-8, which no manifest can hold
	}
	return a
}
