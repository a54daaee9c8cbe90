package rule

import (
	"google.golang.org/protobuf/proto"
	"k8s.io/utils/ptr"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/translate/condition"
)

func urlRewrite(s *scope, f *gwv1.HTTPRouteFilter, field string) (proto.Message, *condition.Problem) {
	spec := f.URLRewrite
	if spec == nil {
		return nil, missing(field, "urlRewrite")
	}
	out := &config.UrlRewrite{Hostname: string(ptr.Deref(spec.Hostname, ""))}
	if out.Hostname != "" && !preciseHostname(out.Hostname) {
		return nil, condition.NewProblem(gwv1.RouteReasonUnsupportedValue, field+".urlRewrite.hostname",
			"write a DNS name or an IPv4 address in lower case", "%q is not a hostname", out.Hostname)
	}
	path, p := s.pathModifier(spec.Path, field+".urlRewrite.path")
	out.Path = path
	return out, p
}
