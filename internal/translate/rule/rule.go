// Package rule compiles a rule of a route: its matches, filters, timeouts and backendRefs. It is separate from translate because it
// is a pure function that depends neither on other objects nor on the listeners that accept the route; references are resolved by
// the caller. A rule of any kind of route is first converted to one form, Spec, each kind by its own file; each filter has its own
// file too.
//
// It must never import translate, nor anything that translate must not.
package rule

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"k8s.io/utils/ptr"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/translate/condition"
)

// Values of config.Failure.reason, as in the access log.
const (
	reasonNoBackend      = "no_backend"
	reasonBackendInvalid = "backend_invalid"
	reasonRuleInvalid    = "rule_invalid"
)

func (s *scope) failure(reason string) *config.Failure {
	return &config.Failure{Status: cmp.Or(s.spec.FailureStatus, 500), Reason: reason}
}

// Backend is the backend that a reference resolves to.
type Backend struct {
	Key string // config.Backend.key
	// Authority is the :authority of gRPC requests that the gateway itself sends to it (RFC 9113 section 8.3.1).
	Authority string
}

// Resolve returns the backend to which a reference leads. http2 is set if it must be reached over HTTP/2, whatever the kind of
// route.
type Resolve func(ref gwv1.BackendObjectReference, http2 bool, field string) (b Backend, p *condition.Problem)

// Spec is a rule of a route of any kind. Common fields have the types of HTTPRoute.
type Spec struct {
	Route              string // the route, in text
	Name               *gwv1.SectionName
	Filters            []gwv1.HTTPRouteFilter
	BackendRefs        []gwv1.HTTPBackendRef
	Timeouts           *gwv1.HTTPRouteTimeouts
	Retry              *gwv1.HTTPRouteRetry
	SessionPersistence *gwv1.SessionPersistence
	// HTTPFilters returns the objects to which filters of type ExtensionRef refer.
	HTTPFilters HTTPFilters
	// FailureStatus is the status for requests without a valid backend; 0 means 500.
	FailureStatus uint32

	// matches compiles the matches into scope.rule.
	matches func(*scope) *condition.Problem
}

// Refs returns all references to backends, including those of filters.
func (s *Spec) Refs() (refs []gwv1.BackendObjectReference) {
	filters := s.Filters
	for _, b := range s.BackendRefs {
		refs = append(refs, b.BackendObjectReference)
		filters = append(filters[:len(filters):len(filters)], b.Filters...)
	}
	for _, f := range filters {
		if f.RequestMirror != nil {
			refs = append(refs, f.RequestMirror.BackendRef)
		}
		if f.ExternalAuth != nil {
			refs = append(refs, f.ExternalAuth.BackendRef)
		}
	}
	return refs
}

// Result is a compiled rule.
type Result struct {
	// Rule is nil if the rule is dropped. With a Problem it holds the matches and a Failure: requests must fail because no filter may be
	// skipped. Matches whose regular expressions cannot be used are wider than the rule's then.
	Rule *config.Rule
	// Problem is why the rule cannot be applied.
	Problem *condition.Problem
	// Unresolved are the problems of references that do not resolve. They fail only their share of requests.
	Unresolved []*condition.Problem
	// Notes report values that are ignored.
	Notes []*condition.Problem
	// Expressions summarizes the regular expressions of Rule.
	Expressions Expressions
	// Used is what counts towards MaxRouteSize, even if Rule is nil.
	Used int
	// Filtered is set if the rule has filters, even if they do not resolve: its requests must not match other rules instead.
	Filtered bool
}

// Refuse makes the rule fail all its requests, because of p.
func (r *Result) Refuse(p *condition.Problem) {
	r.Problem, r.Notes = p, nil
	if r.Rule != nil && r.Filtered {
		r.Rule = failing(r.Rule)
	} else {
		r.Rule, r.Expressions = nil, Expressions{}
	}
}

// Compile compiles spec, which is spec.rules[index] of its route; the rules before it have used used of MaxRouteSize.
func Compile(spec *Spec, index, used int, resolve Resolve) Result {
	s := &scope{
		field: fmt.Sprintf("spec.rules[%d]", index), spec: spec, resolve: resolve, used: used,
		rule: &config.Rule{Index: uint32(index), Name: string(ptr.Deref(spec.Name, ""))},
	}
	r, p := s.compile()
	if p != nil {
		s.notes = nil // nothing of the rule is used
		s.unresolved = nil
		s.resolveAll() // compile has stopped at p
	}
	if r == nil {
		s.expressions = Expressions{}
	}
	return Result{r, p, s.unresolved, s.notes, s.expressions, max(s.expressions.Size, s.parsed), spec.filtered()}
}

// scope is the state of compiling one rule.
type scope struct {
	field      string // spec.rules[i]
	spec       *Spec
	resolve    Resolve
	rule       *config.Rule
	unresolved []*condition.Problem
	notes      []*condition.Problem
	used       int // of MaxRouteSize, by other rules
	// expressions are those that were accepted; parsed is the cost of parsing all.
	expressions Expressions
	parsed      int
	// badExpression is the problem of the first regular expression that was replaced by a wider one, see expression.
	badExpression *condition.Problem
	// inBackend is true while filters of a backendRef are compiled.
	inBackend bool
	weight    int32 // of that backendRef
	// filterMissing is set if the reference of a filter did not resolve: requests that would have passed the filter must fail.
	filterMissing bool
}

func (s *scope) unsupported(field, remedy, format string, args ...any) *condition.Problem {
	return condition.NewProblem(gwv1.RouteReasonUnsupportedValue, s.field+field, remedy, format, args...)
}

func (s *scope) compile() (*config.Rule, *condition.Problem) {
	if p := s.spec.matches(s); p != nil {
		if s.spec.filtered() && len(s.rule.Matches) > 0 {
			return failing(s.rule), p
		}
		return nil, p
	}
	filters, p := s.filters(s.spec.Filters, s.field+".filters")
	if p != nil {
		return failing(s.rule), p
	}
	s.rule.Filters = filters
	missing := s.filterMissing
	if p := s.backends(); p != nil {
		return failing(s.rule), p
	}
	if missing {
		s.rule.Failure = s.failure(reasonRuleInvalid)
	}
	if p := cmp.Or(s.sessionPersistence(), s.timeouts(), s.retry()); p != nil {
		// A rule with filters is not just dropped: its requests would match other rules, which may not require authorization.
		if s.spec.filtered() {
			return failing(s.rule), p
		}
		return nil, p
	}
	return s.rule, nil
}

// filtered reports whether the rule or any of its backendRefs has filters.
func (s *Spec) filtered() bool {
	return len(s.Filters) > 0 || slices.ContainsFunc(s.BackendRefs, func(b gwv1.HTTPBackendRef) bool { return len(b.Filters) > 0 })
}

// failing returns a rule with the matches of r and nothing else.
func failing(r *config.Rule) *config.Rule {
	return &config.Rule{Index: r.Index, Name: r.Name, Matches: r.Matches, Failure: &config.Failure{Status: 500, Reason: reasonRuleInvalid}}
}

// durationFormat is defined in GEP-2257.
var durationFormat = regexp.MustCompile(`^([0-9]{1,5}(h|m|s|ms)){1,4}$`)

func (s *scope) duration(d *gwv1.Duration, field string) (int64, *condition.Problem) {
	if d == nil {
		return 0, nil
	}
	parsed, err := time.ParseDuration(string(*d))
	if err != nil || !durationFormat.MatchString(string(*d)) {
		return 0, s.unsupported(field, "write a duration such as 10s or 1m30s", "%q is not a duration", *d)
	}
	return int64(parsed), nil
}

// timeout reads one of the rule's timeouts: it returns config.NoTimeout for 0s, and 0 if the field is absent.
func (s *scope) timeout(d *gwv1.Duration, field string) (int64, *condition.Problem) {
	n, p := s.duration(d, field)
	if d != nil && n == 0 && p == nil {
		n = config.NoTimeout
	}
	return n, p
}

func (s *scope) timeouts() (p *condition.Problem) {
	if s.spec.Timeouts == nil {
		return nil
	}
	request, p := s.timeout(s.spec.Timeouts.Request, ".timeouts.request")
	if p != nil {
		return p
	}
	backend, p := s.timeout(s.spec.Timeouts.BackendRequest, ".timeouts.backendRequest")
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

// backends compiles the backendRefs. The problem is that of a backendRef's filters; a reference that does not resolve fails only its
// own share of the requests.
func (s *scope) backends() *condition.Problem {
	redirects := s.has(gwv1.HTTPRouteFilterRequestRedirect)
	if redirects && len(s.spec.BackendRefs) > 0 {
		return s.unsupported(".backendRefs", "remove backendRefs or the filter", "a rule with a RequestRedirect filter must not have backendRefs")
	}
	total := int64(0)
	for i := range s.spec.BackendRefs {
		spec, field := &s.spec.BackendRefs[i], fmt.Sprintf(".backendRefs[%d]", i)
		weight := ptr.Deref(spec.Weight, 1)
		if weight < 0 || weight > 1_000_000 {
			return s.unsupported(field+".weight", "use a weight from 0 to 1000000", "%d is not a weight", weight)
		}
		total += int64(weight)
		ref := &config.BackendRef{Weight: uint32(weight)}
		if key, resolved := s.backend(spec.BackendObjectReference, s.field+field); resolved {
			ref.Backend = key
		} else {
			ref.Failure = s.failure(reasonBackendInvalid)
		}
		s.inBackend, s.weight, s.filterMissing = true, weight, false
		filters, p := s.filters(spec.Filters, s.field+field+".filters")
		s.inBackend = false
		if p != nil {
			return p
		}
		ref.Filters = filters
		if s.filterMissing {
			ref.Backend, ref.Failure = "", s.failure(reasonRuleInvalid)
		}
		s.rule.BackendRefs = append(s.rule.BackendRefs, ref)
	}
	// Preflight requests need no backend. All others have none after the filters have allowed them, and fail too.
	if total == 0 && !redirects && !s.has(gwv1.HTTPRouteFilterCORS) {
		s.rule.Failure = s.failure(reasonNoBackend)
	}
	return nil
}

// resolveAll records all references of a rule that cannot be applied, for condition ResolvedRefs.
func (s *scope) resolveAll() {
	s.resolveFilters(s.spec.Filters, s.field+".filters")
	for i := range s.spec.BackendRefs {
		spec, field := &s.spec.BackendRefs[i], fmt.Sprintf("%s.backendRefs[%d]", s.field, i)
		s.backend(spec.BackendObjectReference, field)
		s.resolveFilters(spec.Filters, field+".filters")
	}
}

// has reports whether the rule itself has a filter of the type.
func (s *scope) has(t gwv1.HTTPRouteFilterType) bool {
	return slices.ContainsFunc(s.spec.Filters, func(f gwv1.HTTPRouteFilter) bool { return f.Type == t })
}

// backend resolves a reference, or records why it does not resolve.
func (s *scope) backend(ref gwv1.BackendObjectReference, field string) (key string, resolved bool) {
	b, p := s.resolve(ref, false, field)
	if p != nil {
		s.unresolved = append(s.unresolved, p)
	}
	return b.Key, p == nil
}

// Backends returns the keys of all backends to which a compiled rule refers.
func Backends(r *config.Rule) []string {
	keys := FilterBackends(r.Filters)
	for _, ref := range r.BackendRefs {
		if ref.Backend != "" {
			keys = append(keys, ref.Backend)
		}
		keys = append(keys, FilterBackends(ref.Filters)...)
	}
	return keys
}

// packed wraps a filter's message; equal messages result in equal bytes.
func packed(m proto.Message) *anypb.Any {
	a := &anypb.Any{}
	if err := anypb.MarshalFrom(a, m, proto.MarshalOptions{Deterministic: true}); err != nil {
		panic(err) // only with a string that is not UTF-8, which a manifest cannot contain
	}
	return a
}
