package rule

import (
	"fmt"
	"strings"

	"google.golang.org/protobuf/proto"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/translate/condition"
)

func requestHeaderModifier(s *scope, f *gwv1.HTTPRouteFilter, field string) (proto.Message, *condition.Problem) {
	spec := f.RequestHeaderModifier
	if spec == nil {
		return nil, missing(field, "requestHeaderModifier")
	}
	if p := s.checkHeaderFilter(spec, field+".requestHeaderModifier"); p != nil {
		return nil, p
	}
	if p := s.checkHost(spec, field+".requestHeaderModifier"); p != nil {
		return nil, p
	}
	return &config.RequestHeaderModifier{Set: headerFields(spec.Set), Add: headerFields(spec.Add), Remove: spec.Remove}, nil
}

func isHost(field string) bool { return strings.EqualFold(field, "host") }

// checkHost checks entries for Host, which a request has exactly once: set replaces it; add would result in a second one, and remove
// in none, so both are ignored.
func (s *scope) checkHost(spec *gwv1.HTTPHeaderFilter, field string) *condition.Problem {
	for i, h := range spec.Set {
		if value := strings.Trim(h.Value, " \t"); isHost(string(h.Name)) && !authority(value) {
			return condition.NewProblem(gwv1.RouteReasonUnsupportedValue, fmt.Sprintf("%s.set[%d].value", field, i),
				"write a hostname with or without a port", "%q cannot be a Host", value)
		}
	}
	for i, h := range spec.Add {
		if isHost(string(h.Name)) {
			s.notes = append(s.notes, condition.NewProblem("", fmt.Sprintf("%s.add[%d].name", field, i), "use set",
				"it is ignored: a request has one Host only"))
		}
	}
	for i, n := range spec.Remove {
		if isHost(n) {
			s.notes = append(s.notes, condition.NewProblem("", fmt.Sprintf("%s.remove[%d]", field, i), "remove the entry", "it is ignored: a request without %s is not valid", n))
		}
	}
	return nil
}
