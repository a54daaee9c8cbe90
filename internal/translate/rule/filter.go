package rule

import (
	"fmt"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/translate/condition"
)

// filterFunc compiles one filter of the rule in scope. If it returns neither a message nor a problem, the filter is omitted, as the
// filter's specification may allow.
type filterFunc func(s *scope, f *gwv1.HTTPRouteFilter, field string) (proto.Message, *condition.Problem)

// filterFuncs is the table of filters; a type that is not in it is not supported.
var filterFuncs = map[gwv1.HTTPRouteFilterType]filterFunc{
	gwv1.HTTPRouteFilterCORS:                   cors,
	gwv1.HTTPRouteFilterRequestHeaderModifier:  requestHeaderModifier,
	gwv1.HTTPRouteFilterResponseHeaderModifier: responseHeaderModifier,
	gwv1.HTTPRouteFilterRequestRedirect:        requestRedirect,
	gwv1.HTTPRouteFilterURLRewrite:             urlRewrite,
	gwv1.HTTPRouteFilterRequestMirror:          requestMirror,
}

// filters compiles a list in order. The first problem makes the rule invalid, because no filter may be skipped; for the same reason
// filterMissing is set if the reference of a filter does not resolve.
func (s *scope) filters(list []gwv1.HTTPRouteFilter, field string) ([]*anypb.Any, *condition.Problem) {
	if p := incompatible(list, field); p != nil {
		return nil, p
	}
	var out []*anypb.Any
	for i := range list {
		f, at := &list[i], fmt.Sprintf("%s[%d]", field, i)
		if f.Type == gwv1.HTTPRouteFilterExtensionRef || f.Type == gwv1.HTTPRouteFilterExternalAuth {
			filters, p := s.extension(f, at)
			if p != nil {
				return nil, p
			}
			out = append(out, filters...)
			continue
		}
		compile, known := filterFuncs[f.Type]
		if !known {
			return nil, condition.NewProblem(gwv1.RouteReasonUnsupportedValue, at+".type", "remove the filter",
				"filters of type %s are not supported yet", f.Type)
		}
		message, p := compile(s, f, at)
		if p != nil {
			return nil, p
		}
		if message != nil {
			out = append(out, packed(message))
		}
	}
	return out, nil
}

// resolveFilters records the references of filters that are not compiled.
func (s *scope) resolveFilters(list []gwv1.HTTPRouteFilter, field string) {
	for i := range list {
		f, at := &list[i], fmt.Sprintf("%s[%d]", field, i)
		var x Extension
		switch {
		case f.Type == gwv1.HTTPRouteFilterRequestMirror && f.RequestMirror != nil:
			s.backend(f.RequestMirror.BackendRef, at+".requestMirror.backendRef")
		case f.Type == gwv1.HTTPRouteFilterExternalAuth && f.ExternalAuth != nil:
			grpc := f.ExternalAuth.ExternalAuthProtocol == gwv1.HTTPRouteExternalAuthGRPCProtocol
			_, x.Missing = s.resolve(f.ExternalAuth.BackendRef, grpc, at+".externalAuth.backendRef")
		case f.Type == gwv1.HTTPRouteFilterExtensionRef && f.ExtensionRef != nil:
			if x = ReadExtension(f.ExtensionRef, at, s.spec.HTTPFilters, false); x.UnknownKind {
				x.Missing = condition.NewProblem(gwv1.RouteReasonInvalidKind, x.Invalid.Field, x.Invalid.Remedy, "%s", x.Invalid.What)
			}
		}
		if x.Missing != nil {
			s.unresolved = append(s.unresolved, x.Missing)
		}
	}
}

// incompatible returns the problem of filters that exclude each other, or nil.
func incompatible(list []gwv1.HTTPRouteFilter, field string) *condition.Problem {
	seen := map[gwv1.HTTPRouteFilterType]bool{}
	for i, f := range list {
		at := fmt.Sprintf("%s[%d].type", field, i)
		if seen[f.Type] && f.Type != gwv1.HTTPRouteFilterRequestMirror && f.Type != gwv1.HTTPRouteFilterExtensionRef {
			return condition.NewProblem(gwv1.RouteReasonIncompatibleFilters, at, "merge both into one", "there are two filters of type %s", f.Type)
		}
		seen[f.Type] = true
		if seen[gwv1.HTTPRouteFilterRequestRedirect] && seen[gwv1.HTTPRouteFilterURLRewrite] {
			return condition.NewProblem(gwv1.RouteReasonIncompatibleFilters, at, "remove one of both",
				"RequestRedirect and URLRewrite cannot be used together")
		}
	}
	return nil
}

// missing returns the problem of a filter without the field that its type requires.
func missing(field, wanted string) *condition.Problem {
	return condition.NewProblem(gwv1.RouteReasonUnsupportedValue, field+"."+wanted, "add it", "the filter's type needs it")
}

// FilterBackends returns the keys of the backends to which filters themselves refer.
func FilterBackends(filters []*anypb.Any) (keys []string) {
	for _, f := range filters {
		var mirror config.RequestMirror
		var auth config.ExternalAuth
		switch {
		case f.MessageIs(&mirror) && f.UnmarshalTo(&mirror) == nil:
			keys = append(keys, mirror.Backend)
		case f.MessageIs(&auth) && f.UnmarshalTo(&auth) == nil:
			keys = append(keys, auth.Backend)
		}
	}
	return keys
}
