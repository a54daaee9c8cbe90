package migrate

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	kjson "sigs.k8s.io/json"

	egv1 "github.com/moongate-dev/moongate/api/envoygateway/v1alpha1"
	"github.com/moongate-dev/moongate/internal/source/manifest"
)

// foreignPolicy is a policy of Envoy Gateway: a ClientTrafficPolicy or SecurityPolicy, whose fields are only reported, or a
// BackendTrafficPolicy, which Moongate supports.
type foreignPolicy struct {
	kind, object string
	at           manifest.Position
	text         []byte // of the file
	offset       int
	spec         *yaml.Node
}

// carriedOut is the kind that Moongate itself reads.
const carriedOut = "BackendTrafficPolicy"

func newForeignPolicy(kind string, position manifest.Position, content []byte, offset int, n *yaml.Node) foreignPolicy {
	namespace, name := "default", ""
	if v := at(at(n, "metadata"), "namespace"); v != nil {
		namespace = v.Value
	}
	if v := at(at(n, "metadata"), "name"); v != nil {
		name = v.Value
	}
	return foreignPolicy{kind: kind, object: kind + " " + namespace + "/" + name, at: position, text: content, offset: offset, spec: at(n, "spec")}
}

// mapping is what a field corresponds to; the longest match is used.
type mapping struct {
	field           string
	outcome         Outcome
	message, remedy string
}

// foreignMappings are the fields by kind, from the API of Envoy Gateway v1.6.
var foreignMappings = map[string][]mapping{
	"ClientTrafficPolicy": {
		{"targetRef", NotTranslated, "GatewayParameters are attached by the Gateway", "refer to them in infrastructure.parametersRef of the Gateway"},
		{"targetSelectors", NotTranslated, "GatewayParameters are attached by the Gateway", "refer to them in infrastructure.parametersRef of each Gateway"},
		{"clientIPDetection.xForwardedFor.trustedCIDRs", NotTranslated, "maps to trustedProxies of GatewayParameters", "write the ranges there"},
		{"clientIPDetection.xForwardedFor.numTrustedHops", NotTranslated, "proxies are trusted by address, not by number", "name their ranges in trustedProxies of GatewayParameters"},
		{"clientIPDetection.customHeader", NotTranslated, "the address is taken from X-Forwarded-For or the PROXY protocol only", "have the proxy send one of these"},
		{"enableProxyProtocol", NotTranslated, "maps to ports[].proxyProtocol of GatewayParameters", "set it for the port, and trustedProxies"},
		{"proxyProtocol", NotTranslated, "maps to ports[].proxyProtocol of GatewayParameters", "set it for the port, and trustedProxies; a header is then required"},
		{"timeout.http.requestReceivedTimeout", NotTranslated, "maps to ports[].requestHeadTimeout and requestBodyIdleTimeout of GatewayParameters, which bound head and pauses", "set them"},
		{"timeout.http.idleTimeout", NotTranslated, "maps to ports[].idleTimeout of GatewayParameters", "set it"},
		{"timeout.http.streamIdleTimeout", NotTranslated, "maps to timeout.http.streamIdleTimeout of a BackendTrafficPolicy for the Gateway", "set it there"},
		{"connection.connectionLimit.value", NotTranslated, "maps to ports[].maxConnections of GatewayParameters", "set it"},
		{"connection.bufferLimit", NotTranslated, "bodies are streamed, and buffers are Moongate's own", ""},
		{"headers.earlyRequestHeaders", NotTranslated, "maps to an HTTPFilter in filters.requests of the listener", "write one (docs/tasks/http-filter.md)"},
		{"headers.lateResponseHeaders", NotTranslated, "maps to responseHeaders of an HTTPFilter in filters.requests of the listener", "write one (docs/tasks/http-filter.md)"},
		{"headers.requestID", NotTranslated, "Generate is the default, and PreserveOrGenerate maps to requestIDs: preserve of GatewayParameters; other values have no counterpart", "set it where the ids of clients must be kept (docs/tasks/headers.md)"},
		{"headers", NotTranslated, "header fields are handled as docs/defaults.md says", "compare"},
		{"http1", NotTranslated, "HTTP/1.1 is handled as docs/defaults.md says", "compare"},
		{"http2", NotTranslated, "limits of HTTP/2 are Moongate's own, as docs/defaults.md says", "compare"},
		{"http3", NotTranslated, "HTTP/3 is not spoken", "nothing: clients use HTTP/2"},
		{"tcpKeepalive", NotTranslated, "idle connections are closed by ports[].idleTimeout of GatewayParameters", "set it"},
		{"healthCheck", NotTranslated, "the proxy's health is asked for at its admin address", "use /readyz there"},
		{"path", NotTranslated, "paths are brought to the normal form that docs/defaults.md describes", "compare"},
		{"tls.clientValidation", NotTranslated, "maps to tls.frontend of the Gateway", "see docs/tasks/client-certificates.md"},
		{"tls.maxVersion", NotTranslated, "TLS 1.3 is always spoken where the client can", "nothing, unless clients must be kept from it"},
		{"tls.ecdhCurves", NotTranslated, "key exchanges are Moongate's own, as docs/defaults.md says", "compare"},
		{"tls.signatureAlgorithms", NotTranslated, "signatures are Moongate's own, as docs/defaults.md says", "compare"},
		{"tls.session", NotTranslated, "sessions are resumed by tickets, as docs/defaults.md says", "compare"},
		{"timeout.tcp", NotTranslated, "a connection of a TCPRoute on which nothing passes ends after an hour", "nothing, unless clients depend on another time"},
		{"connection", NotTranslated, "other limits on connections are Moongate's own, as docs/defaults.md says", "compare"},
		{"tls.minVersion", NotTranslated, "maps to moongate.dev/tls-min-version in tls.options of the listener", "set it"},
		{"tls.ciphers", NotTranslated, "maps to moongate.dev/tls-cipher-suites in tls.options of the listener", "set it"},
		{"tls.alpnProtocols", NotTranslated, "maps to moongate.dev/alpn in tls.options of the listener", "set it"},
	},
	carriedOut: {
		{"targetRef", Translated, "is carried out; what it names must be there for Moongate, too", ""},
		{"targetSelectors", Translated, "is carried out; what it selects must be there for Moongate, too", ""},
		{"loadBalancer.dynamicModule", NotTranslated, "is not carried out, and the policy is not accepted with it", "remove it"},
		{"connection.preconnect.predictivePercent", NotTranslated, "is not carried out, and the policy is not accepted with it", "remove it"},
		{"http2.onInvalidMessage", NotTranslated, "is not carried out, and the policy is not accepted with it", "remove it"},
	},
	"SecurityPolicy": {
		{"targetRef", NotTranslated, "filters stand in the rules of routes, or in filters.requests of a listener", "add them there"},
		{"targetSelectors", NotTranslated, "filters stand in the rules of routes, or in filters.requests of a listener", "add them there"},
		{"cors", NotTranslated, "maps to a CORS filter of the same fields in rules of HTTPRoutes", "see docs/tasks/cors.md"},
		{"extAuth.http", NotTranslated, "maps to an ExternalAuth filter with protocol HTTP; headersToBackend are allowedResponseHeaders, headersToExtAuth are allowedHeaders, path is http.path", "see docs/tasks/external-auth.md"},
		{"extAuth.grpc", NotTranslated, "maps to an ExternalAuth filter with protocol GRPC", "see docs/tasks/external-auth.md"},
		{"extAuth.failOpen", NotTranslated, "a server that does not answer lets nothing pass", "nothing, if that is acceptable"},
		{"authorization", NotTranslated, "rules by address map to a local rate limit of 0 requests with sourceCIDR in a BackendTrafficPolicy; those by claims have no counterpart", "let the authorization server decide the others"},
		{"jwt", NotTranslated, "has no counterpart", "let an authorization server behind an ExternalAuth filter check tokens"},
		{"oidc", NotTranslated, "has no counterpart", "let an authorization server such as oauth2-proxy do it, behind an ExternalAuth filter"},
		{"basicAuth", NotTranslated, "has no counterpart", "let an authorization server behind an ExternalAuth filter check passwords"},
		{"apiKeyAuth", NotTranslated, "has no counterpart", "let an authorization server behind an ExternalAuth filter check keys"},
	},
}

// maxUnread is the maximum number of unknown fields that the decoder names.
const maxUnread = 100

// unread returns the paths of fields, without spec, that Moongate's type of the policy does not have; more reports that there may be
// others.
func (p foreignPolicy) unread() (paths []string, more bool, err error) {
	if p.kind != carriedOut || p.spec == nil {
		return nil, false, nil
	}
	var v any
	if err := p.spec.Decode(&v); err != nil {
		return nil, false, err
	}
	text, err := json.Marshal(v)
	if err != nil {
		return nil, false, err
	}
	type plain egv1.BackendTrafficPolicySpec // without its own UnmarshalJSON, which records unknown fields
	unknown, err := kjson.UnmarshalStrict(text, new(plain), kjson.DisallowUnknownFields)
	for _, u := range unknown {
		if e := kjson.FieldError(nil); errors.As(u, &e) {
			paths = append(paths, e.FieldPath())
		}
	}
	return paths, len(unknown) >= maxUnread, err
}

// describe returns an entry for each field that the policy sets.
func (p foreignPolicy) describe() (out Report) {
	unread, more, err := p.unread()
	if err != nil {
		out = append(out, Entry{Position: p.at, Object: p.object, Field: "spec", Outcome: NotTranslated, Message: "cannot be read: " + strings.TrimPrefix(err.Error(), "json: "), Remedy: "run moongate check, which names field and remedy"})
	}
	if more {
		out = append(out, Entry{Position: p.at, Object: p.object, Field: "spec", Outcome: NotTranslated, Message: itoa(maxUnread) + " fields are not known, and others may not be", Remedy: "correct or remove those, and migrate again"})
	}
	for _, path := range unread {
		e := Entry{Position: p.at, Object: p.object, Field: "spec." + path, Outcome: NotTranslated, Message: "is not known, and the policy is not accepted with it", Remedy: "correct its name, or remove it"}
		if p.at.Line > 0 {
			e.Line = manifest.Locate(p.text, p.at.Line, e.Field)
		}
		out = append(out, e)
	}
	var walk func(path string, n *yaml.Node)
	walk = func(path string, n *yaml.Node) {
		for i := 0; n != nil && n.Kind == yaml.MappingNode && i+1 < len(n.Content); i += 2 {
			field := strings.TrimPrefix(path+"."+n.Content[i].Value, ".")
			if slices.Contains(unread, field) {
				continue
			}
			var found *mapping
			deeper := false
			for k, m := range foreignMappings[p.kind] {
				switch {
				case m.field == field || m.field+"s" == field || strings.HasPrefix(field, m.field+"."):
					if found == nil || len(m.field) > len(found.field) {
						found = &foreignMappings[p.kind][k]
					}
				case strings.HasPrefix(m.field, field+"."):
					deeper = true
				}
			}
			if deeper && n.Content[i+1].Kind == yaml.MappingNode {
				walk(field, n.Content[i+1])
				continue
			}
			e := Entry{Position: manifest.Position{File: p.at.File, Line: p.offset + n.Content[i].Line}, Object: p.object, Field: "spec." + field, Outcome: NotTranslated,
				Message: "has no counterpart that is known", Remedy: "see docs/README.md for what can be set"}
			if p.at.Line == 0 {
				e.Line = 0
			}
			switch {
			case found != nil:
				e.Outcome, e.Message, e.Remedy = found.outcome, found.message, found.remedy
			case p.kind == carriedOut && err == nil:
				e.Outcome, e.Message, e.Remedy = Translated, "is carried out as it is: apply the policy unchanged", "run moongate check, which says whether its values are accepted"
				if more {
					e.Outcome, e.Message, e.Remedy = NotTranslated, "whether it is carried out is not known, since so many other fields are not", "correct or remove those first"
				}
				if strings.HasPrefix(field, "rateLimit") && hasField(n.Content[i+1], "fromMetadata", "metadata") {
					e.Outcome, e.Message, e.Remedy = NotTranslated, "what depends on metadata is not carried out, and the policy is not accepted with it", "remove fromMetadata and metadata"
				}
			}
			out = append(out, e)
		}
	}
	walk("", p.spec)
	return out
}

// hasField reports whether a tree has a field with one of the names.
func hasField(n *yaml.Node, fields ...string) bool {
	for i, c := range n.Content {
		if n.Kind == yaml.MappingNode && i%2 == 0 && slices.Contains(fields, c.Value) || hasField(c, fields...) {
			return true
		}
	}
	return false
}
