package backendtraffic

import (
	"fmt"
	"regexp"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	eg "github.com/moongate-dev/moongate/api/envoygateway/v1alpha1"
	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/kind"
	"github.com/moongate-dev/moongate/internal/translate/condition"
	"github.com/moongate-dev/moongate/internal/translate/rule"
)

const (
	// mostStatus is the highest status code that a match may name: users write ranges that end at 599 or 600.
	mostStatus = 999

	leastResponseStatus, mostResponseStatus = 200, 599

	// Overrides are part of every rule of the policy's routes, and a proxy evaluates them for each response.
	maxOverrides       = 32
	maxStatusCodes     = 50 // that of the CRD
	maxResponseHeaders = 16 // that of the CRD
	maxBodiesBytes     = 32 << 10
)

var responseSources = map[string]config.ResponseSource{
	"All": config.ResponseSource_RESPONSE_SOURCE_ALL, "Local": config.ResponseSource_RESPONSE_SOURCE_LOCAL, "Backend": config.ResponseSource_RESPONSE_SOURCE_BACKEND,
}

var stringMatchTypes = map[string]config.StringMatchType{
	"Exact": config.StringMatchType_STRING_MATCH_TYPE_EXACT, "Prefix": config.StringMatchType_STRING_MATCH_TYPE_PREFIX, "Suffix": config.StringMatchType_STRING_MATCH_TYPE_SUFFIX,
	"RegularExpression": config.StringMatchType_STRING_MATCH_TYPE_REGULAR_EXPRESSION,
}

// responseOverrides reads the list. configMap returns the ConfigMaps that it refers to, nil if one does not exist.
func (r *reader) responseOverrides(list []eg.ResponseOverride, configMap func(name string) *corev1.ConfigMap) (out []*config.ResponseOverride) {
	if len(list) > maxOverrides {
		r.invalid("responseOverride", fmt.Sprintf("leave at most %d", maxOverrides), "it has %d entries", len(list))
		return nil
	}
	bodies := 0
	for i := range list {
		out = append(out, r.responseOverride(&list[i], fmt.Sprintf("responseOverride[%d]", i), configMap))
		bodies += len(out[i].GetBody())
	}
	if bodies > maxBodiesBytes {
		r.invalid("responseOverride", fmt.Sprintf("shorten them to %d bytes in all", maxBodiesBytes), "its bodies have %d bytes together", bodies)
	}
	return out
}

func (r *reader) responseOverride(o *eg.ResponseOverride, at string, configMap func(string) *corev1.ConfigMap) *config.ResponseOverride {
	out := &config.ResponseOverride{}
	if len(o.Match.StatusCodes) == 0 && len(o.Match.ResponseHeaders) == 0 {
		r.invalid(at+".match", "set statusCodes or responseHeaders", "it has neither")
	}
	for _, part := range []struct {
		field  string
		n, max int
	}{{"statusCodes", len(o.Match.StatusCodes), maxStatusCodes}, {"responseHeaders", len(o.Match.ResponseHeaders), maxResponseHeaders}} {
		if part.n > part.max {
			r.invalid(at+".match."+part.field, fmt.Sprintf("leave at most %d", part.max), "it has %d entries", part.n)
			return out
		}
	}
	for i := range o.Match.StatusCodes {
		out.Statuses = append(out.Statuses, r.statusMatch(&o.Match.StatusCodes[i], fmt.Sprintf("%s.match.statusCodes[%d]", at, i)))
	}
	for i := range o.Match.ResponseHeaders {
		out.HeaderFields = append(out.HeaderFields, r.responseHeader(&o.Match.ResponseHeaders[i], fmt.Sprintf("%s.match.responseHeaders[%d]", at, i)))
	}
	source, known := responseSources[ptr.Deref(o.Source, "All")]
	if out.Source = source; !known {
		r.invalid(at+".source", "use All, Local or Backend", "%q is not known", *o.Source)
	}
	switch {
	case (o.Response == nil) == (o.Redirect == nil):
		r.invalid(at, "set response or redirect", "it must have exactly one of both")
	case o.Redirect != nil:
		out.Redirect = r.customRedirect(o.Redirect, at+".redirect")
	default:
		r.customResponse(out, o.Response, at+".response", configMap)
	}
	return out
}

func (r *reader) statusMatch(m *eg.StatusCodeMatch, at string) *config.StatusRange {
	status := func(n int, field string) uint32 {
		if n < 100 || n > mostStatus {
			r.invalid(field, "use a status such as 503", "%d is not a status", n)
			return 0
		}
		return uint32(n)
	}
	switch t := ptr.Deref(m.Type, "Value"); {
	case t == "Value" && m.Value == nil:
		r.invalid(at+".value", "set it, for example to 503", "it is missing")
	case t == "Value":
		n := status(*m.Value, at+".value")
		return &config.StatusRange{First: n, Last: n}
	case t == "Range" && m.Range == nil:
		r.invalid(at+".range", "set it, for example to {start: 500, end: 599}", "it is missing")
	case t == "Range":
		out := &config.StatusRange{First: status(m.Range.Start, at+".range.start"), Last: status(m.Range.End, at+".range.end")}
		if out.Last <= out.First {
			r.invalid(at+".range.end", "make it greater than start", "%d is not", m.Range.End)
		}
		return out
	default:
		r.invalid(at+".type", "use Value or Range", "%q is not known", t)
	}
	return &config.StatusRange{}
}

func (r *reader) responseHeader(m *eg.ResponseHeaderMatch, at string) *config.ResponseFieldMatch {
	out := &config.ResponseFieldMatch{Name: strings.ToLower(string(m.Name)), Value: m.Value.Value}
	if !config.IsToken(out.Name) {
		r.invalid(at+".name", "correct it", "%q is not the name of a header field", m.Name)
	}
	t, known := stringMatchTypes[ptr.Deref(m.Value.Type, "Exact")]
	if out.Type = t; !known {
		r.invalid(at+".value.type", "use Exact, Prefix, Suffix or RegularExpression", "%q is not known", *m.Value.Type)
	}
	if out.Value == "" {
		r.invalid(at+".value.value", "set it", "it is missing")
	}
	if t == config.StringMatchType_STRING_MATCH_TYPE_REGULAR_EXPRESSION {
		out.Value = r.expression(out.Value, at+".value.value")
	}
	return out
}

func (r *reader) customRedirect(spec *eg.CustomRedirect, at string) *config.RequestRedirect {
	if spec.Scheme == nil && spec.Hostname == nil && spec.Path == nil && spec.Port == nil {
		r.invalid(at, "set scheme, hostname, path or port", "it leads where the request came, so that clients would come back without end")
	}
	if p := spec.Path; p != nil && p.Type != gwv1.FullPathHTTPPathModifier {
		r.invalid(at+".path.type", "use ReplaceFullPath", "%q is not supported", p.Type)
	}
	if n := ptr.Deref(spec.StatusCode, 302); n != 301 && n != 302 {
		r.invalid(at+".statusCode", "use 301 or 302", "%d is not supported", n)
	}
	if r.problem != nil {
		return nil
	}
	out, p := rule.Redirect(&gwv1.HTTPRequestRedirectFilter{Scheme: spec.Scheme, Hostname: spec.Hostname, Path: spec.Path, Port: spec.Port, StatusCode: spec.StatusCode}, at)
	r.adopt(p)
	return out
}

// adopt records a problem whose field is relative to the spec.
func (r *reader) adopt(p *condition.Problem) {
	if p != nil {
		r.invalid(p.Field, p.Remedy, "%s", p.What)
	}
}

// contentType matches valid values of Content-Type, which is sent unchanged.
var contentType = regexp.MustCompile(`^[!-~][ -~]*$`)

func (r *reader) customResponse(out *config.ResponseOverride, spec *eg.CustomResponse, at string, configMap func(string) *corev1.ConfigMap) {
	if n := spec.StatusCode; n != nil {
		if out.StatusCode = uint32(*n); *n < leastResponseStatus || *n > mostResponseStatus {
			r.invalid(at+".statusCode", "use a status from 200 to 599", "%d is not in that range", *n)
		}
	}
	if t := spec.ContentType; t != nil {
		if out.ContentType = *t; !contentType.MatchString(*t) {
			r.invalid(at+".contentType", "write a media type such as text/html; charset=utf-8", "%q cannot be sent", *t)
		}
	}
	if spec.Header != nil {
		if len(spec.Header.Remove) > 0 {
			r.invalid(at+".header.remove", "remove it", "it is not supported")
		}
		header, notes, p := rule.ResponseHeader(spec.Header, at+".header")
		out.Header = header
		r.adopt(p)
		for _, n := range notes {
			r.note(n.Field, "%s", n.What)
		}
	}
	if spec.Body != nil {
		out.Body = r.responseBody(spec.Body, out.BodyEscape(), at+".body", configMap)
		if n := ptr.Deref(spec.StatusCode, 0); n == 204 || n == 205 || n == 304 {
			r.invalid(at+".body", "remove it, or use another statusCode", "responses with status %d have no body", n)
		}
	}
}

func (r *reader) responseBody(b *eg.CustomResponseBody, escape config.BodyEscape, at string, configMap func(string) *corev1.ConfigMap) *string {
	text, field := "", at+".inline"
	switch t := ptr.Deref(b.Type, "Inline"); t {
	case "Inline":
		if b.Inline == nil {
			r.invalid(field, "set it", "it is missing")
			return nil
		}
		text = *b.Inline
		if len(text) > kind.MaxResponseBodyBytes {
			r.invalid(field, fmt.Sprintf("shorten it to %d bytes", kind.MaxResponseBodyBytes), "it has %d bytes", len(text))
		}
	case "ValueRef":
		field = at + ".valueRef"
		switch ref := b.ValueRef; {
		case ref == nil:
			r.invalid(field, "name a ConfigMap", "it is missing")
			return nil
		case ref.Group != "" || ref.Kind != "ConfigMap":
			r.invalid(field+".kind", "refer to a ConfigMap", "a %s cannot hold the body", ref.Kind)
			return nil
		default:
			cm := configMap(string(ref.Name))
			if cm == nil {
				r.invalid(field+".name", "create it or correct the name", "ConfigMap %s does not exist", ref.Name)
				return nil
			}
			key, in, size := kind.ResponseBody(cm)
			switch text = in; {
			case key == "":
				r.invalid(field+".name", "add "+kind.ResponseBodyKey, "ConfigMap %s has no data", ref.Name)
			case size > kind.MaxResponseBodyBytes:
				r.invalid(field+".name", fmt.Sprintf("shorten it to %d bytes", kind.MaxResponseBodyBytes), "%s of ConfigMap %s has %d bytes", key, ref.Name, size)
			}
		}
	default:
		r.invalid(at+".type", "use Inline or ValueRef", "%q is not known", t)
	}
	if len(text) > kind.MaxResponseBodyBytes {
		return nil
	}
	parts, err := config.ParseBody(text)
	if err != nil {
		r.invalid(field, "use "+config.BodyOperators+", and %% for a percent sign that begins none", "operator %v", err)
	}
	if what, remedy := checkPlaces(parts, escape); what != "" {
		r.invalid(field, remedy, "%s", what)
	}
	return &text
}
