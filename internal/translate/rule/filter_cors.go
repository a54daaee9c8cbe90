package rule

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"

	"google.golang.org/protobuf/proto"
	"k8s.io/utils/ptr"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/translate/condition"
)

const defaultMaxAge = 5

// corsOrigin matches what the CRD's schema allows; the port is in the last group.
var corsOrigin = regexp.MustCompile(`^https?://(?:\*|(?:\*\.)?(?:[-a-zA-Z0-9]+\.)*[-a-zA-Z0-9]+)(?::([0-9]{1,5}))?$`)

func cors(s *scope, f *gwv1.HTTPRouteFilter, field string) (proto.Message, *condition.Problem) {
	spec := f.CORS
	if spec == nil {
		return nil, missing(field, "cors")
	}
	field += ".cors"
	out := &config.CORS{AllowCredentials: ptr.Deref(spec.AllowCredentials, false), MaxAgeSeconds: uint32(max(spec.MaxAge, 0))}
	for i, o := range spec.AllowOrigins {
		if p := checkOrigin(string(o), len(spec.AllowOrigins), fmt.Sprintf("%s.allowOrigins[%d]", field, i)); p != nil {
			return nil, p
		}
		out.AllowOrigins = append(out.AllowOrigins, string(o))
	}
	for i, m := range spec.AllowMethods {
		at := fmt.Sprintf("%s.allowMethods[%d]", field, i)
		if m != "*" && !slices.Contains(methods, gwv1.HTTPMethod(m)) {
			return nil, condition.NewProblem(gwv1.RouteReasonUnsupportedValue, at, fmt.Sprintf("use * or some of %v", methods), "%q is not known", m)
		}
		if m == "*" && len(spec.AllowMethods) > 1 {
			return nil, notAlone(at)
		}
		out.AllowMethods = append(out.AllowMethods, string(m))
	}
	for _, list := range []struct {
		field string
		names []gwv1.HTTPHeaderName
		alone bool // "*" stands for itself
		out   *[]string
	}{{"allowHeaders", spec.AllowHeaders, true, &out.AllowHeaders}, {"exposeHeaders", spec.ExposeHeaders, false, &out.ExposeHeaders}} {
		for i, n := range list.names {
			at := fmt.Sprintf("%s.%s[%d]", field, list.field, i)
			if !config.IsToken(string(n)) {
				return nil, condition.NewProblem(gwv1.RouteReasonUnsupportedValue, at, "correct it", "%q is not the name of a header field", n)
			}
			if n == "*" && list.alone && len(list.names) > 1 {
				return nil, notAlone(at)
			}
			*list.out = append(*list.out, string(n))
		}
	}
	switch {
	case spec.MaxAge < 0:
		return nil, condition.NewProblem(gwv1.RouteReasonUnsupportedValue, field+".maxAge", "use 1 or more", "%d is not a number of seconds", spec.MaxAge)
	case spec.MaxAge == 0:
		out.MaxAgeSeconds = defaultMaxAge
	}
	if s.inBackend && s.weight == 0 {
		return out, nil // a backendRef with weight 0 gets no requests, so it answers none
	}
	return out, s.matchPreflights()
}

func checkOrigin(origin string, of int, field string) *condition.Problem {
	if origin == "*" {
		if of > 1 {
			return notAlone(field)
		}
		return nil
	}
	found := corsOrigin.FindStringSubmatch(origin)
	if found == nil {
		return condition.NewProblem(gwv1.RouteReasonUnsupportedValue, field, "write it as https://www.example.com, https://*.example.com or *",
			"%q is not an origin", origin)
	}
	if port := found[1]; port != "" {
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
			return condition.NewProblem(gwv1.RouteReasonUnsupportedValue, field, "use a port from 1 to 65535", "%s is not a port", port)
		}
	}
	return nil
}

func notAlone(field string) *condition.Problem {
	return condition.NewProblem(gwv1.RouteReasonUnsupportedValue, field, "remove it, or the others", "* cannot be used together with others")
}

// The fields of a preflight request (Fetch, section "CORS-preflight request").
const (
	originField        = "origin"
	requestMethodField = "access-control-request-method"
)

// matchPreflights adds to each match with a method a match for the preflight requests of that method: they have the method OPTIONS,
// so otherwise a rule with CORS would never match them. All other conditions are kept, so that requests of other rules are not
// answered, and only these count for precedence: an explicit match on OPTIONS must not lose its requests to an added one.
func (s *scope) matchPreflights() *condition.Problem {
	for i, m := range s.rule.Matches {
		if m.Method == "" || m.Method == string(gwv1.HTTPMethodOptions) {
			continue
		}
		preflight := &config.Match{Path: m.Path, Method: string(gwv1.HTTPMethodOptions), Headers: slices.Clone(m.Headers), QueryParams: m.QueryParams}
		preflight.Headers = appendFirst(preflight.Headers, &config.ValueMatch{Name: originField, Value: ".+", RegularExpression: true})
		preflight.Headers = appendFirst(preflight.Headers, &config.ValueMatch{Name: requestMethodField, Value: m.Method})
		known := func(m *config.Match) bool { return proto.Equal(m, preflight) }
		if slices.ContainsFunc(s.rule.Matches, known) {
			continue // the rule already matches it
		}
		added := preflight.Headers[len(m.Headers):]
		if preflight.Preflight, preflight.AddedHeaders = true, uint32(len(added)); slices.ContainsFunc(s.rule.Matches, known) {
			continue // added by the CORS filter of a backendRef
		}
		if len(added) > 0 && added[0].RegularExpression {
			if p := s.check(".+", fmt.Sprintf(".matches[%d].method", i)); p != nil {
				return p
			}
		}
		s.rule.Matches = append(s.rule.Matches, preflight)
	}
	return nil
}
