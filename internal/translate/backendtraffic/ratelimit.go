package backendtraffic

import (
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"
	"k8s.io/utils/ptr"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	eg "github.com/moongate-dev/moongate/api/envoygateway/v1alpha1"
	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/translate/condition"
	"github.com/moongate-dev/moongate/internal/translate/rule"
)

// units are the units of limits in seconds. A month has 30 days, and a year 365.
var units = map[string]uint32{"Second": 1, "Minute": 60, "Hour": 3600, "Day": 24 * 3600, "Week": 7 * 24 * 3600, "Month": 30 * 24 * 3600, "Year": 365 * 24 * 3600}

const (
	// maxConditions limits the conditions of all limits of a policy, which are evaluated for each request.
	maxConditions = 1000
	// longest is the period, in seconds, above which a limit that counts values separately counts towards LongDistinct.
	longest = 3600
)

// rateLimit reads limits. owner is the policy that contains them; if two policies are merged, the one whose limits are in force.
func (r *reader) rateLimit(spec *eg.RateLimit, owner string) *config.RateLimits {
	if spec == nil {
		return nil
	}
	switch only := ptr.Deref(spec.Type, ""); {
	case only != "" && only != "Local" && only != "Global":
		r.invalid("rateLimit.type", "use Local or Global, or remove it", "%q is not known", only)
	case only == "Local" && spec.Global != nil:
		r.unselected("rateLimit.global", only)
	case only == "Global" && spec.Local != nil:
		r.unselected("rateLimit.local", only)
	}
	spec = selected(spec)
	out := &config.RateLimits{}
	if spec.Local != nil {
		out.Local = r.localLimits(spec.Local.Rules, owner)
	}
	if spec.Global != nil {
		for i := range spec.Global.Rules {
			if r.problem != nil {
				return nil
			}
			out.Global = append(out.Global, r.limitRule(&spec.Global.Rules[i], fmt.Sprintf("rateLimit.global.rules[%d]", i), owner, i))
		}
		if r.problem == nil {
			r.problem = CheckGlobalLimits(out.Global)
		}
	}
	if proto.Equal(out, &config.RateLimits{}) {
		return nil
	}
	return out
}

func (r *reader) unselected(field, by string) {
	r.out.Notes = append(r.out.Notes, condition.NewProblem("", "spec."+field, "remove type to have both", "it is not in force, because spec.rateLimit.type is %s", by))
}

// selected returns the rate limits that are in force: the deprecated type selects one of the two blocks. The result has no type.
func selected(l *eg.RateLimit) *eg.RateLimit {
	if l == nil || l.Type == nil {
		return l
	}
	out := &eg.RateLimit{Global: l.Global, Local: l.Local}
	switch *l.Type {
	case "Local":
		out.Global = nil
	case "Global":
		out.Local = nil
	}
	return out
}

// HasLocalLimits reports whether settings have local rate limits in force.
func HasLocalLimits(s *eg.Settings) bool {
	l := selected(s.RateLimit)
	return l != nil && l.Local != nil && len(l.Local.Rules) > 0
}

// CheckGlobalLimits returns the problem of global limits that are in force together, such as those of two merged policies, or nil.
func CheckGlobalLimits(limits []*config.RateLimit) *condition.Problem {
	met := meet(limits)
	if met <= config.MaxGlobalRateLimitsMet {
		return nil
	}
	return condition.NewProblem(gwv1.PolicyReasonInvalid, "spec.rateLimit.global.rules",
		"use fewer rules, or have them exclude each other by Exact values of the same header, query parameter or path, by methods, or by ranges of addresses that do not overlap",
		"one request may meet %d of them, and at most %d is supported", met, config.MaxGlobalRateLimitsMet)
}

// meet returns the maximum number of limits that one request can match. Limits that require different values of the same thing
// exclude each other, if headers and query parameters occur once; the proxy refuses a request that repeats them and so matches more.
func meet(limits []*config.RateLimit) int {
	exact := map[string]map[string]int{} // by the thing that has the value, limits by value
	var sources []netip.Prefix           // one of each limit with sources
	for _, l := range limits {
		values := map[string]string{}
		for _, v := range l.HeaderFields {
			if v.Type == config.RateLimitMatch_RATE_LIMIT_MATCH_EXACT && !v.Invert {
				values["header "+v.Name] = v.Value
			}
		}
		for _, v := range l.QueryParams {
			if v.Type == config.RateLimitMatch_RATE_LIMIT_MATCH_EXACT && !v.Invert {
				values["query "+v.Name] = v.Value
			}
		}
		for _, p := range l.Paths {
			if v, is := p.Path.(*config.RateLimitPath_Exact); is && !p.Invert {
				values["path"] = v.Exact
			}
		}
		for _, m := range l.Methods {
			if len(m.AnyOf) == 1 && !m.AnyOf[0].Invert {
				values["method"] = m.AnyOf[0].Value
			}
		}
		for what, value := range values {
			if exact[what] == nil {
				exact[what] = map[string]int{}
			}
			exact[what][value]++
		}
		for _, s := range l.Sources {
			if p, err := netip.ParsePrefix(s.Cidr); err == nil && !s.Invert {
				sources = append(sources, config.UnmapPrefix(p))
				break
			}
		}
	}
	most := len(limits)
	for _, values := range exact {
		with, together := 0, 0
		for _, n := range values {
			with, together = with+n, max(together, n)
		}
		most = min(most, len(limits)-with+together)
	}
	nested := 0
	for _, inner := range sources {
		n := 0
		for _, outer := range sources {
			if outer.Bits() <= inner.Bits() && outer.Contains(inner.Addr()) {
				n++
			}
		}
		nested = max(nested, n)
	}
	return min(most, len(limits)-len(sources)+nested)
}

// longDistinct counts the global limits that count values separately for longer than an hour: those that are counted for each route,
// and those that are shared.
func longDistinct(limits []*config.RateLimit) (ofRoutes, shared int) {
	distinct := func(v *config.RateLimitValue) bool {
		return v.Type == config.RateLimitMatch_RATE_LIMIT_MATCH_DISTINCT
	}
	for _, l := range limits {
		switch {
		case l.PeriodSeconds <= longest:
		case !slices.ContainsFunc(l.HeaderFields, distinct) && !slices.ContainsFunc(l.QueryParams, distinct) &&
			!slices.ContainsFunc(l.Sources, func(s *config.RateLimitSource) bool { return s.Distinct }):
		case l.Shared:
			shared++
		default:
			ofRoutes++
		}
	}
	return ofRoutes, shared
}

func (r *reader) localLimits(rules []eg.RateLimitRule, owner string) (out []*config.RateLimit) {
	fallback := -1 // the limit without conditions
	for i := range rules {
		if r.problem != nil {
			return nil
		}
		const field = "rateLimit.local.rules"
		at := fmt.Sprintf("%s[%d]", field, i)
		l := r.limitRule(&rules[i], at, owner, i)
		if l.ResponseCost != 0 || rules[i].Cost != nil && rules[i].Cost.Response != nil {
			r.invalid(at+".cost.response", "remove it, or use rateLimit.global", "it is for global limits")
		}
		if len(rules[i].ClientSelectors) == 0 {
			if fallback >= 0 {
				r.invalid(at+".clientSelectors", "add clientSelectors, or remove one of both rules", "it has none, as rule %d, and there may be one such rule", fallback)
			}
			fallback = i
		}
		out = append(out, l)
	}
	if fallback < 0 {
		return out
	}
	for i, l := range out {
		if period := out[fallback].PeriodSeconds; period > 0 && l.PeriodSeconds%period != 0 {
			r.invalid(fmt.Sprintf("rateLimit.local.rules[%d].limit.unit", i), "use that unit, or a longer one", "%s is not a multiple of %s, the unit of the rule without clientSelectors",
				rules[i].Limit.Unit, rules[fallback].Limit.Unit)
		}
	}
	return out
}

// limitRule reads one limit.
func (r *reader) limitRule(spec *eg.RateLimitRule, at, owner string, index int) *config.RateLimit {
	out := &config.RateLimit{
		Name:    config.RateLimitName(owner, index),
		Shared:  ptr.Deref(spec.Shared, false),
		Shadow:  ptr.Deref(spec.ShadowMode, false),
		Headers: true, // the default of a ClientTrafficPolicy, which Envoy Gateway would use
	}
	if spec.XRateLimitHeaders != nil {
		out.Headers = *spec.XRateLimitHeaders != "Off"
	}
	if n := r.count(&spec.Limit.Requests, at+".limit.requests"); n != nil {
		out.Requests = *n
	}
	seconds, known := units[spec.Limit.Unit]
	if !known {
		r.invalid(at+".limit.unit", "use Second, Minute, Hour, Day, Week, Month or Year", "%q is not known", spec.Limit.Unit)
	}
	out.PeriodSeconds = seconds
	if spec.Limit.FromMetadata != nil {
		r.invalid(at+".limit.fromMetadata", "remove it", "it is not supported: there is no dynamic metadata")
	}
	out.RequestCost = 1
	if c := spec.Cost; c != nil {
		out.RequestCost = r.cost(c.Request, 1, at+".cost.request")
		out.ResponseCost = r.cost(c.Response, 0, at+".cost.response")
	}
	if out.RequestCost > out.Requests && out.Requests > 0 {
		r.note(at+".cost.request", "no request passes: it costs %d, which is more than the limit of %d", out.RequestCost, out.Requests)
	}
	for i := range spec.ClientSelectors {
		if r.problem != nil {
			return out
		}
		r.selector(out, &spec.ClientSelectors[i], fmt.Sprintf("%s.clientSelectors[%d]", at, i))
	}
	return out
}

func (r *reader) cost(c *eg.RateLimitCostSpecifier, absent uint32, field string) uint32 {
	switch {
	case c == nil:
		return absent
	case c.From == "Metadata" || c.Metadata != nil:
		r.invalid(field, "use from: Number", "metadata is not supported: there is no dynamic metadata")
	case c.Number == nil:
		r.invalid(field+".number", "write a number from 0 to 4294967295", "it is missing")
	case *c.Number < 0 || *c.Number > math.MaxUint32:
		r.invalid(field+".number", "use a number from 0 to 4294967295", "%d is not a number that can be used", *c.Number)
	default:
		return uint32(*c.Number)
	}
	return absent
}

// selector adds the conditions of a selector; all must hold.
func (r *reader) selector(out *config.RateLimit, s *eg.RateLimitSelectCondition, at string) {
	r.conditions += len(s.Headers) + len(s.Methods) + len(s.QueryParams)
	if s.Path != nil {
		r.conditions++
	}
	if s.SourceCIDR != nil {
		r.conditions++
	}
	if r.conditions > maxConditions {
		r.invalid(at, "use fewer, or have the rules in policies for different routes", "with those of the rules before it the policy has more than %d conditions", maxConditions)
		return
	}
	for i, h := range s.Headers {
		field := fmt.Sprintf("%s.headers[%d]", at, i)
		name := strings.ToLower(h.Name)
		if name != ":authority" && !config.IsToken(name) {
			r.invalid(field+".name", "name a header field, or :authority; there are path and methods beside headers", "%q is not the name of a header field", h.Name)
		}
		out.HeaderFields = append(out.HeaderFields, r.limitValue(h.Type, name, h.Value, h.Invert, field))
	}
	if len(s.Methods) > 0 {
		any := &config.RateLimitMethods{}
		for _, m := range s.Methods {
			any.AnyOf = append(any.AnyOf, &config.RateLimitMethod{Value: m.Value, Invert: ptr.Deref(m.Invert, false)})
		}
		out.Methods = append(out.Methods, any)
	}
	if s.Path != nil {
		out.Paths = append(out.Paths, r.limitPath(s.Path, at+".path"))
	}
	if s.SourceCIDR != nil {
		out.Sources = append(out.Sources, r.limitSource(s.SourceCIDR, at+".sourceCIDR"))
	}
	for i, q := range s.QueryParams {
		out.QueryParams = append(out.QueryParams, r.limitValue(q.Type, q.Name, q.Value, q.Invert, fmt.Sprintf("%s.queryParams[%d]", at, i)))
	}
}

func (r *reader) limitValue(typ *string, name string, v *string, invert *bool, field string) *config.RateLimitValue {
	out := &config.RateLimitValue{Name: name, Value: ptr.Deref(v, ""), Invert: ptr.Deref(invert, false)}
	switch t := ptr.Deref(typ, "Exact"); t {
	case "Exact", "RegularExpression":
		if v == nil {
			r.invalid(field+".value", "set it", "it is missing")
		}
		if t == "RegularExpression" {
			out.Type = config.RateLimitMatch_RATE_LIMIT_MATCH_REGULAR_EXPRESSION
			out.Value = r.expression(out.Value, field+".value")
		}
	case "Distinct":
		out.Type = config.RateLimitMatch_RATE_LIMIT_MATCH_DISTINCT
		if v != nil {
			r.invalid(field+".value", "remove it, or use Exact", "with type Distinct each value has a limit of its own")
		}
		if out.Invert {
			r.invalid(field+".invert", "remove it, or use Exact", "with type Distinct each value has a limit of its own")
		}
	default:
		r.invalid(field+".type", "use Exact, RegularExpression or Distinct", "%q is not known", t)
	}
	return out
}

func (r *reader) limitPath(p *eg.PathMatch, field string) *config.RateLimitPath {
	out := &config.RateLimitPath{Invert: ptr.Deref(p.Invert, false)}
	v := p.Value
	switch t := ptr.Deref(p.Type, "PathPrefix"); t {
	case "Exact", "PathPrefix":
		if v == "" && t == "PathPrefix" {
			v = "/"
		}
		if !strings.HasPrefix(v, "/") {
			r.invalid(field+".value", "begin it with /", "%q is not a path", v)
		}
		if out.Path = (&config.RateLimitPath_Prefix{Prefix: v}); t == "Exact" {
			out.Path = &config.RateLimitPath_Exact{Exact: v}
		}
	case "RegularExpression":
		out.Path = &config.RateLimitPath_RegularExpression{RegularExpression: r.expression(v, field+".value")}
	default:
		r.invalid(field+".type", "use Exact, PathPrefix or RegularExpression", "%q is not known", t)
	}
	return out
}

func (r *reader) limitSource(s *eg.SourceMatch, field string) *config.RateLimitSource {
	out := &config.RateLimitSource{Invert: ptr.Deref(s.Invert, false)}
	p, err := netip.ParsePrefix(s.Value)
	if err != nil {
		r.invalid(field+".value", "write addresses such as 192.0.2.0/24 or 2001:db8::/32, or of a single one 192.0.2.1/32", "%q is not a range of addresses", s.Value)
		return out
	}
	out.Cidr = p.Masked().String()
	switch t := ptr.Deref(s.Type, "Exact"); t {
	case "Exact":
	case "Distinct":
		if out.Distinct = true; out.Invert {
			r.invalid(field+".invert", "remove it, or use Exact", "with type Distinct each address has a limit of its own")
		}
	default:
		r.invalid(field+".type", "use Exact or Distinct", "%q is not known", t)
	}
	return out
}

// expression checks a regular expression, unless there is a problem already, because parsing may be slow. It returns what the data
// plane can combine.
func (r *reader) expression(pattern, field string) string {
	if r.problem != nil {
		return pattern
	}
	size, what, remedy := rule.CheckExpression(pattern, rule.MaxRouteSize-r.expressions)
	if what != "" {
		r.invalid(field, remedy, "%s", what)
	}
	r.expressions += size
	return rule.CloseQuotation(pattern)
}
