package rule

import (
	"fmt"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/moongate-dev/moongate/api/v1alpha1"
	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/translate/condition"
)

// HTTPFilters returns the HTTPFilter with a name in the namespace of the object that refers to it; nil if there is none.
type HTTPFilters func(name string) *v1alpha1.HTTPFilter

// The kind to which filters of type ExtensionRef may refer.
const httpFilterKind = "HTTPFilter"

// reasonFilterMissing is the reason of condition ResolvedRefs for a filter that does not exist. The specification defines none.
const reasonFilterMissing gwv1.RouteConditionReason = "InvalidFilterRef"

// Extension is the result of a filter of type ExtensionRef or ExternalAuth.
type Extension struct {
	Filters []*anypb.Any
	// Invalid is why it cannot be applied, Missing why the reference does not resolve. At most one of them is set.
	Invalid, Missing *condition.Problem
	// UnknownKind reports that it is Invalid because it refers to a kind that is not supported, so that the reference does not resolve either.
	UnknownKind bool
	Notes       []*condition.Problem // entries that are ignored
}

// ReadExtension finds and compiles the HTTPFilter to which a filter of type ExtensionRef in a field refers. forListener is set for a
// filter of a listener, which was selected by the request's Host.
func ReadExtension(ref *gwv1.LocalObjectReference, field string, find HTTPFilters, forListener bool) (x Extension) {
	if ref == nil {
		x.Invalid = missing(field, "extensionRef")
		return x
	}
	field += ".extensionRef"
	if string(ref.Group) != v1alpha1.GroupName || string(ref.Kind) != httpFilterKind {
		x.UnknownKind = true
		x.Invalid = condition.NewProblem(gwv1.RouteReasonUnsupportedValue, field+".kind", "refer to an HTTPFilter of group "+v1alpha1.GroupName+", or remove the filter",
			"%s of group %q is no filter that is supported", ref.Kind, ref.Group)
		return x
	}
	object := find(string(ref.Name))
	if object == nil {
		x.Missing = condition.NewProblem(reasonFilterMissing, field+".name", "create it or correct the name", "HTTPFilter %s does not exist in the namespace", ref.Name)
		return x
	}
	s := &scope{}
	var messages []proto.Message
	wrong := func(p *condition.Problem) bool {
		if p != nil {
			x.Invalid = condition.NewProblem(gwv1.RouteReasonUnsupportedValue, field+".name", p.Remedy, "HTTPFilter %s/%s: %s: %s", object.Namespace, object.Name, p.Field, p.What)
		}
		return p != nil
	}
	if h := object.Spec.RequestHeaders; h != nil {
		const at = "spec.requestHeaders"
		if wrong(s.checkHeaderFilter(h, at)) || wrong(s.checkHost(h, at)) || forListener && wrong(changesHost(h, at)) {
			return x
		}
		messages = append(messages, &config.RequestHeaderModifier{Set: headerFields(h.Set), Add: headerFields(h.Add), Remove: h.Remove})
	}
	if h := object.Spec.ResponseHeaders; h != nil {
		if wrong(s.checkHeaderFilter(h, "spec.responseHeaders")) {
			return x
		}
		messages = append(messages, &config.ResponseHeaderModifier{Set: headerFields(h.Set), Add: headerFields(h.Add), Remove: h.Remove})
	}
	for _, m := range messages {
		x.Filters = append(x.Filters, packed(m))
	}
	for _, n := range s.notes {
		x.Notes = append(x.Notes, condition.NewProblem("", field+".name", n.Remedy, "HTTPFilter %s/%s: %s: %s", object.Namespace, object.Name, n.Field, n.What))
	}
	return x
}

// changesHost returns why a listener's filter cannot set a request's Host, which has selected the listener (GEP-5224), or nil.
func changesHost(h *gwv1.HTTPHeaderFilter, field string) *condition.Problem {
	names := func(list []gwv1.HTTPHeader) (out []string) {
		for _, e := range list {
			out = append(out, string(e.Name))
		}
		return out
	}
	for _, list := range []struct {
		field string
		names []string
	}{{"set", names(h.Set)}, {"add", names(h.Add)}, {"remove", h.Remove}} {
		for i, n := range list.names {
			if isHost(n) {
				return condition.NewProblem("", fmt.Sprintf("%s.%s[%d]", field, list.field, i), "remove the entry, or use the filter in routes",
					"a filter of a listener must not change %s", n)
			}
		}
	}
	return nil
}

// extension compiles a filter of a rule or a backendRef. If its reference does not resolve, all its requests fail.
func (s *scope) extension(f *gwv1.HTTPRouteFilter, field string) (out []*anypb.Any, p *condition.Problem) {
	var x Extension
	if f.Type == gwv1.HTTPRouteFilterExternalAuth {
		x = ReadExternalAuth(f.ExternalAuth, field, s.resolve)
	} else {
		x = ReadExtension(f.ExtensionRef, field, s.spec.HTTPFilters, false)
	}
	switch {
	case x.Invalid != nil:
		return nil, x.Invalid
	case x.Missing != nil:
		s.unresolved, s.filterMissing = append(s.unresolved, x.Missing), true
		return nil, nil
	}
	s.notes = append(s.notes, x.Notes...)
	return x.Filters, nil
}
