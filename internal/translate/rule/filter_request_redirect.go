package rule

import (
	"slices"

	"google.golang.org/protobuf/proto"
	"k8s.io/utils/ptr"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/translate/condition"
)

var redirectCodes = []int{301, 302, 303, 307, 308}

func requestRedirect(s *scope, f *gwv1.HTTPRouteFilter, field string) (proto.Message, *condition.Problem) {
	spec := f.RequestRedirect
	if spec == nil {
		return nil, missing(field, "requestRedirect")
	}
	if s.inBackend {
		return nil, condition.NewProblem(gwv1.RouteReasonUnsupportedValue, field+".type", "move the filter to the rule",
			"a redirect cannot be the filter of a backendRef: no backend is asked")
	}
	out, p := s.redirect(spec, field+".requestRedirect")
	return out, p
}

// redirect compiles the redirect.
func (s *scope) redirect(spec *gwv1.HTTPRequestRedirectFilter, field string) (*config.RequestRedirect, *condition.Problem) {
	unsupported := func(at, remedy, format string, args ...any) (*config.RequestRedirect, *condition.Problem) {
		return nil, condition.NewProblem(gwv1.RouteReasonUnsupportedValue, field+at, remedy, format, args...)
	}
	out := &config.RequestRedirect{
		Scheme: ptr.Deref(spec.Scheme, ""), Hostname: string(ptr.Deref(spec.Hostname, "")),
		Port: uint32(ptr.Deref(spec.Port, 0)), StatusCode: uint32(ptr.Deref(spec.StatusCode, 302)),
	}
	switch {
	case !slices.Contains([]string{"", "http", "https"}, out.Scheme):
		return unsupported(".scheme", "use http or https", "%q is not known", out.Scheme)
	case !slices.Contains(redirectCodes, int(out.StatusCode)):
		return unsupported(".statusCode", "use 301, 302, 303, 307 or 308", "%d is not a redirect", out.StatusCode)
	case out.Port > 65535:
		return unsupported(".port", "use a port from 1 to 65535", "%d is not a port", *spec.Port)
	case out.Hostname != "" && !preciseHostname(out.Hostname):
		return unsupported(".hostname", "write a DNS name or an IPv4 address in lower case", "%q is not a hostname", out.Hostname)
	}
	path, p := s.pathModifier(spec.Path, field+".path")
	out.Path = path
	return out, p
}
