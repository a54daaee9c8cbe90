package rule

import (
	"google.golang.org/protobuf/proto"
	"k8s.io/utils/ptr"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/translate/condition"
)

// requestMirror omits a mirror whose reference does not resolve, as the specification requires, and reports the reference.
func requestMirror(s *scope, f *gwv1.HTTPRouteFilter, field string) (proto.Message, *condition.Problem) {
	spec := f.RequestMirror
	if spec == nil {
		return nil, missing(field, "requestMirror")
	}
	field += ".requestMirror"
	unsupported := func(at, remedy, format string, args ...any) (proto.Message, *condition.Problem) {
		return nil, condition.NewProblem(gwv1.RouteReasonUnsupportedValue, field+at, remedy, format, args...)
	}
	out := &config.RequestMirror{Numerator: 100, Denominator: 100}
	switch {
	case spec.Percent != nil && spec.Fraction != nil:
		return unsupported(".fraction", "remove one of both", "percent and fraction cannot be used together")
	case spec.Percent != nil:
		if *spec.Percent < 0 || *spec.Percent > 100 {
			return unsupported(".percent", "use 0 to 100", "%d is not a percentage", *spec.Percent)
		}
		out.Numerator = uint32(*spec.Percent)
	case spec.Fraction != nil:
		numerator, denominator := spec.Fraction.Numerator, ptr.Deref(spec.Fraction.Denominator, 100)
		if denominator < 1 || numerator < 0 || numerator > denominator {
			return unsupported(".fraction", "use a fraction from 0 to 1", "%d/%d is not a share", numerator, denominator)
		}
		out.Numerator, out.Denominator = uint32(numerator), uint32(denominator)
	}
	key, resolved := s.backend(spec.BackendRef, field+".backendRef")
	if !resolved {
		return nil, nil
	}
	out.Backend = key
	return out, nil
}
