package rule

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/moongate-dev/moongate/internal/cginame"
	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/translate/condition"
)

// ReadExternalAuth compiles a filter of type ExternalAuth in a field; resolve returns its authorization server.
func ReadExternalAuth(spec *gwv1.HTTPExternalAuthFilter, field string, resolve Resolve) (x Extension) {
	if spec == nil {
		x.Invalid = missing(field, "externalAuth")
		return x
	}
	field += ".externalAuth"
	out := &config.ExternalAuth{}
	if x.Invalid = authProtocol(out, spec, &x.Notes, field); x.Invalid != nil {
		return x
	}
	if body := spec.ForwardBody; body != nil {
		if body.MaxSize < 0 {
			x.Invalid = condition.NewProblem(gwv1.RouteReasonUnsupportedValue, field+".forwardBody.maxSize", "use a number of bytes, or remove forwardBody", "%d is not a size", body.MaxSize)
			return x
		}
		out.MaxBodyBytes = int64(body.MaxSize)
	}
	server, missing := resolve(spec.BackendRef, out.Grpc, field+".backendRef")
	if x.Missing = missing; missing != nil {
		return x
	}
	if out.Backend = server.Key; out.Grpc {
		out.Authority = server.Authority
	}
	x.Filters = append(x.Filters, packed(out))
	return x
}

// authProtocol sets the protocol of the authorization server and its settings.
func authProtocol(out *config.ExternalAuth, spec *gwv1.HTTPExternalAuthFilter, notes *[]*condition.Problem, field string) (p *condition.Problem) {
	unsupported := func(at, remedy, format string, args ...any) *condition.Problem {
		return condition.NewProblem(gwv1.RouteReasonUnsupportedValue, field+at, remedy, format, args...)
	}
	switch spec.ExternalAuthProtocol {
	case gwv1.HTTPRouteExternalAuthGRPCProtocol:
		if spec.HTTPAuthConfig != nil {
			return unsupported(".http", "remove it, or use protocol HTTP", "it is for protocol HTTP, and protocol is GRPC")
		}
		out.Grpc = true
		if c := spec.GRPCAuthConfig; c != nil {
			out.RequestHeaders, p = authHeaders(c.AllowedRequestHeaders, field+".grpc.allowedHeaders", nil, notes)
		}
		return p
	case gwv1.HTTPRouteExternalAuthHTTPProtocol:
		if spec.GRPCAuthConfig != nil {
			return unsupported(".grpc", "remove it, or use protocol GRPC", "it is for protocol GRPC, and protocol is HTTP")
		}
		c := spec.HTTPAuthConfig
		if c == nil {
			return nil
		}
		if out.Path, p = authPath(c.Path, field+".http.path"); p != nil {
			return p
		}
		if out.RequestHeaders, p = authHeaders(c.AllowedRequestHeaders, field+".http.allowedHeaders", neverSent, notes); p != nil {
			return p
		}
		out.ResponseHeaders, p = authHeaders(c.AllowedResponseHeaders, field+".http.allowedResponseHeaders", neverTaken, notes)
		if p == nil && len(c.AllowedResponseHeaders) > 0 && len(out.ResponseHeaders) == 0 {
			p = unsupported(".http.allowedResponseHeaders", "name other fields, or remove it for all", "none of the fields can be taken over")
		}
		return p
	}
	return unsupported(".protocol", "use HTTP or GRPC", "%q is not known", spec.ExternalAuthProtocol)
}

// neverSent are request fields that concern only the connection, neverTaken the fields of responses that are not copied to requests;
// Host is not a field in either.
var (
	neverSent  = slices.DeleteFunc(slices.Clone(reserved), func(n string) bool { return n == "cdn-loop" })
	neverTaken = append([]string{"host", "authority"}, reserved...)
)

// pseudoHeaders are the names of the parts of the target in requests to a gRPC server.
var pseudoHeaders = []string{":authority", ":method", ":path", ":scheme"}

// authHeaders returns names of header fields in lower case, without duplicates, and notes those that are ignored.
func authHeaders(names []string, field string, ignored []string, notes *[]*condition.Problem) (out []string, p *condition.Problem) {
	seen := map[string]bool{}
	for _, n := range ignored {
		seen[n] = true
	}
	for i, n := range names {
		at, name := fmt.Sprintf("%s[%d]", field, i), strings.ToLower(n)
		if pseudo := strings.TrimPrefix(name, ":"); !config.IsToken(pseudo) || pseudo != name && !slices.Contains(pseudoHeaders, name) {
			return nil, condition.NewProblem(gwv1.RouteReasonUnsupportedValue, at, "correct it", "%q is not the name of a header field", n)
		}
		switch {
		case slices.Contains(ignored, cginame.Of(name)):
			*notes = append(*notes, condition.NewProblem("", at, "remove the entry", "it is ignored: %s belongs to the connection, not to the message", n))
		case !seen[name]:
			seen[name] = true
			out = append(out, name)
		}
	}
	return out, nil
}

// authPathFormat is the format of the CRD.
var authPathFormat = regexp.MustCompile("^(?:[-A-Za-z0-9/._~!$&'()*+,;=:@]|[%][0-9a-fA-F]{2})+$")

// authPath returns the prefix of paths: it begins with a slash, and does not end with one. Segments such as .. are rejected, also if
// they are encoded.
func authPath(path, field string) (string, *condition.Problem) {
	if path == "" {
		return "", nil
	}
	if !authPathFormat.MatchString(path) || len(path) > 1024 {
		return "", condition.NewProblem(gwv1.RouteReasonUnsupportedValue, field, "write it as in a URL, such as /auth", "%q is not a path", path)
	}
	for segment := range strings.SplitSeq(path, "/") {
		dots := strings.ReplaceAll(strings.ToLower(segment), "%2e", ".")
		if dots == "." || dots == ".." || strings.Contains(strings.ToLower(segment), "%2f") || strings.Contains(strings.ToLower(segment), "%00") {
			return "", condition.NewProblem(gwv1.RouteReasonUnsupportedValue, field, "write it without that", "%q has the segment %q", path, segment)
		}
	}
	path = "/" + strings.Trim(path, "/")
	if strings.Contains(path, "//") {
		return "", condition.NewProblem(gwv1.RouteReasonUnsupportedValue, field, "write one slash", "%q has two slashes in a row", path)
	}
	if path == "/" {
		return "", nil
	}
	return path, nil
}
