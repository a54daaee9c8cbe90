package rule

import (
	"google.golang.org/protobuf/proto"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/translate/condition"
)

func responseHeaderModifier(s *scope, f *gwv1.HTTPRouteFilter, field string) (proto.Message, *condition.Problem) {
	spec := f.ResponseHeaderModifier
	if spec == nil {
		return nil, missing(field, "responseHeaderModifier")
	}
	if p := s.checkHeaderFilter(spec, field+".responseHeaderModifier"); p != nil {
		return nil, p
	}
	return &config.ResponseHeaderModifier{Set: headerFields(spec.Set), Add: headerFields(spec.Add), Remove: spec.Remove}, nil
}
