package e2e

import (
	"math/rand/v2"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	"google.golang.org/protobuf/types/known/anypb"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/proxy/filter"
	"github.com/moongate-dev/moongate/internal/proxy/filter/table"
	"github.com/moongate-dev/moongate/internal/proxy/match"
	"github.com/moongate-dev/moongate/internal/proxy/upstream"
	"github.com/moongate-dev/moongate/internal/translate"
)

// TestWhatIsTranslatedCompiles: a route that translation lets through, the data plane
// can carry out, whatever stands in its fields.
func TestWhatIsTranslatedCompiles(t *testing.T) {
	t.Parallel()
	filters, matches := 0, 0
	for seed := range uint64(3000) {
		f, m := compiles(t, seed, "")
		filters, matches = filters+f, matches+m
	}
	// Else translation refused nearly everything, and nothing was tested.
	if filters < 200 || matches < 1600 {
		t.Errorf("only %d filters and %d matches were compiled", filters, matches)
	}
}

func FuzzWhatIsTranslatedCompiles(f *testing.F) {
	for seed, text := range hostile {
		f.Add(uint64(seed), text)
	}
	f.Fuzz(func(t *testing.T, seed uint64, text string) { compiles(t, seed, strings.ToValidUTF8(text, "?")) })
}

// compiles translates a route made from seed and text, and compiles what comes out.
func compiles(t *testing.T, seed uint64, text string) (filters, matches int) {
	t.Helper()
	g := &routeMaker{rand.New(rand.NewPCG(seed, 0)), text}
	route := g.route()
	tr := translate.New(translate.Options{ControllerName: "example.com/test", DefaultAddresses: []string{"192.0.2.1"}})
	tr.Upsert(&gwv1.GatewayClass{ObjectMeta: metav1.ObjectMeta{Name: "c"}, Spec: gwv1.GatewayClassSpec{ControllerName: "example.com/test"}})
	tr.Upsert(&gwv1.Gateway{ObjectMeta: metav1.ObjectMeta{Name: "gw", Namespace: "default"}, Spec: gwv1.GatewaySpec{
		GatewayClassName: "c", Listeners: []gwv1.Listener{{Name: "http", Port: 80, Protocol: gwv1.HTTPProtocolType}}}})
	tr.Upsert(&corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default"}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}}})
	tr.Upsert(route)
	upserts := tr.Commit().Config.Upserts
	backends := upstream.NewSet(upstream.Options{})
	defer backends.Close()
	if err := backends.Apply(upserts, nil); err != nil {
		t.Fatalf("seed %d: backends: %v", seed, err)
	}
	env := filter.Env{Backend: backends.Get}
	for _, u := range upserts {
		r := u.GetRoute()
		if r == nil {
			continue
		}
		compiled, err := match.Compile(r, func(rule *config.Rule) struct{} {
			matches += len(rule.Matches)
			for _, list := range filterLists(rule) {
				for _, f := range list {
					filters++
					if _, err := table.Compile(f, env); err != nil {
						t.Errorf("seed %d: rule %d: %v\n%+v", seed, rule.Index, err, f)
					}
				}
			}
			return struct{}{}
		})
		if err != nil {
			t.Errorf("seed %d: %v", seed, err)
			continue
		}
		edit := (*match.Table[struct{}])(nil).Edit()
		for _, a := range r.Attachments {
			edit.Add(compiled, a.Hostnames)
		}
	}
	return filters, matches
}

func filterLists(rule *config.Rule) [][]*anypb.Any {
	lists := [][]*anypb.Any{rule.Filters}
	for _, b := range rule.BackendRefs {
		lists = append(lists, b.Filters)
	}
	return lists
}

// hostile are values that some field must not have.
var hostile = []string{
	"", "a", "/", "/a", "/a/", "//", "a..b", "..", ".", "a.example", "A.example", "*.example", "*", "a:80", "[::1]", "[::1]:8", "[::1", "::1", "a:0",
	"a:99999", "a b", "a\r\nb: c", "\x00", "/%00", "/a%00b", "/%2e%2e/", "/%zz", "/%", "/a?b", "/a#b", "/é", "é", "a\tb", "\x7f", "user@host",
	"[a-z]+", "(", "a)|(b", "(?i)a", "a{1001}", "(a{500}){500}", `\A\z`, `(?P<n>x)`, strings.Repeat("(", 999) + strings.Repeat(")", 999),
	strings.Repeat("(", 1000) + strings.Repeat(")", 1000), "Transfer-Encoding", "Content-Length", "Host", "host", "Connection", "X-A", "x_a", "X A", ":path",
	strings.Repeat("a", 254), strings.Repeat("a.", 200) + "b", "http", "https", "ftp", "GET", "PURGE", "10s", "-1s", "1e9h", "99999h99999h",
}

// routeMaker makes HTTPRoutes of good and hostile values.
type routeMaker struct {
	*rand.Rand
	text string
}

func (g *routeMaker) word(good ...string) string {
	switch {
	case g.IntN(3) > 0 && len(good) > 0:
		return good[g.IntN(len(good))]
	case g.text != "" && g.IntN(2) == 0:
		return g.text
	}
	return hostile[g.IntN(len(hostile))]
}

// maybe is nil once in n times.
func maybe[T any](g *routeMaker, n int, make func() T) *T {
	if g.IntN(n) == 0 {
		return nil
	}
	v := make()
	return &v
}

func several[T any](g *routeMaker, most int, make func() T) (out []T) {
	for range g.IntN(most + 1) {
		out = append(out, make())
	}
	return out
}

func (g *routeMaker) route() *gwv1.HTTPRoute {
	return &gwv1.HTTPRoute{ObjectMeta: metav1.ObjectMeta{Name: "r", Namespace: "default"}, Spec: gwv1.HTTPRouteSpec{
		CommonRouteSpec: gwv1.CommonRouteSpec{ParentRefs: []gwv1.ParentReference{{Name: "gw"}}},
		Hostnames:       several(g, 2, func() gwv1.Hostname { return gwv1.Hostname(g.word("a.example", "*.example")) }),
		Rules:           several(g, 3, g.rule),
	}}
}

func (g *routeMaker) rule() gwv1.HTTPRouteRule {
	return gwv1.HTTPRouteRule{
		Matches: several(g, 2, g.match),
		Filters: several(g, 2, g.filter),
		BackendRefs: several(g, 2, func() gwv1.HTTPBackendRef {
			return gwv1.HTTPBackendRef{
				BackendRef: gwv1.BackendRef{BackendObjectReference: g.ref(), Weight: maybe(g, 2, func() int32 { return g.Int32N(5) - 1 })},
				Filters:    several(g, 1, g.filter),
			}
		}),
		Timeouts: maybe(g, 4, func() gwv1.HTTPRouteTimeouts {
			return gwv1.HTTPRouteTimeouts{Request: maybe(g, 2, func() gwv1.Duration { return gwv1.Duration(g.word("10s", "0s")) })}
		}),
	}
}

func (g *routeMaker) ref() gwv1.BackendObjectReference {
	port := gwv1.PortNumber(80 + g.IntN(2))
	return gwv1.BackendObjectReference{Name: gwv1.ObjectName(g.word("web")), Port: &port}
}

func (g *routeMaker) match() gwv1.HTTPRouteMatch {
	return gwv1.HTTPRouteMatch{
		Path: maybe(g, 3, func() gwv1.HTTPPathMatch {
			return gwv1.HTTPPathMatch{
				Type: maybe(g, 3, func() gwv1.PathMatchType {
					return gwv1.PathMatchType(g.word("Exact", "PathPrefix", "RegularExpression"))
				}),
				Value: maybe(g, 5, func() string { return g.word("/", "/a", "/a/b/") }),
			}
		}),
		Headers: several(g, 2, func() gwv1.HTTPHeaderMatch {
			return gwv1.HTTPHeaderMatch{
				Type: maybe(g, 2, func() gwv1.HeaderMatchType { return gwv1.HeaderMatchType(g.word("Exact", "RegularExpression")) }),
				Name: gwv1.HTTPHeaderName(g.word("X-A")), Value: g.word("a"),
			}
		}),
		QueryParams: several(g, 2, func() gwv1.HTTPQueryParamMatch {
			return gwv1.HTTPQueryParamMatch{
				Type: maybe(g, 2, func() gwv1.QueryParamMatchType { return gwv1.QueryParamMatchType(g.word("Exact", "RegularExpression")) }),
				Name: gwv1.HTTPHeaderName(g.word("q")), Value: g.word("a"),
			}
		}),
		Method: maybe(g, 2, func() gwv1.HTTPMethod { return gwv1.HTTPMethod(g.word("GET", "POST")) }),
	}
}

func (g *routeMaker) filter() gwv1.HTTPRouteFilter {
	types := []gwv1.HTTPRouteFilterType{gwv1.HTTPRouteFilterRequestHeaderModifier, gwv1.HTTPRouteFilterResponseHeaderModifier,
		gwv1.HTTPRouteFilterRequestRedirect, gwv1.HTTPRouteFilterURLRewrite, gwv1.HTTPRouteFilterRequestMirror, gwv1.HTTPRouteFilterExternalAuth}
	f := gwv1.HTTPRouteFilter{Type: types[g.IntN(len(types))]}
	switch f.Type {
	case gwv1.HTTPRouteFilterRequestHeaderModifier:
		f.RequestHeaderModifier = maybe(g, 9, g.headers)
	case gwv1.HTTPRouteFilterResponseHeaderModifier:
		f.ResponseHeaderModifier = maybe(g, 9, g.headers)
	case gwv1.HTTPRouteFilterRequestRedirect:
		f.RequestRedirect = maybe(g, 9, g.redirect)
	case gwv1.HTTPRouteFilterURLRewrite:
		f.URLRewrite = maybe(g, 9, func() gwv1.HTTPURLRewriteFilter {
			return gwv1.HTTPURLRewriteFilter{Hostname: maybe(g, 2, g.hostname), Path: maybe(g, 3, g.path)}
		})
	case gwv1.HTTPRouteFilterRequestMirror:
		f.RequestMirror = maybe(g, 9, g.mirror)
	case gwv1.HTTPRouteFilterExternalAuth:
		f.ExternalAuth = maybe(g, 9, g.externalAuth)
	}
	return f
}

func (g *routeMaker) headers() gwv1.HTTPHeaderFilter {
	field := func() gwv1.HTTPHeader {
		return gwv1.HTTPHeader{Name: gwv1.HTTPHeaderName(g.word("X-A", "Host")), Value: g.word("a", "a.example:80")}
	}
	return gwv1.HTTPHeaderFilter{Set: several(g, 2, field), Add: several(g, 2, field), Remove: several(g, 1, func() string { return g.word("X-B") })}
}

func (g *routeMaker) redirect() gwv1.HTTPRequestRedirectFilter {
	return gwv1.HTTPRequestRedirectFilter{
		Scheme: maybe(g, 2, func() string { return g.word("http", "https") }), Hostname: maybe(g, 2, g.hostname), Path: maybe(g, 2, g.path),
		Port:       maybe(g, 2, func() gwv1.PortNumber { return gwv1.PortNumber(g.Int32N(70000) - 100) }),
		StatusCode: maybe(g, 2, func() int { return 300 + g.IntN(10) }),
	}
}

func (g *routeMaker) mirror() gwv1.HTTPRequestMirrorFilter {
	return gwv1.HTTPRequestMirrorFilter{
		BackendRef: g.ref(),
		Percent:    maybe(g, 2, func() int32 { return g.Int32N(110) - 5 }),
		Fraction: maybe(g, 2, func() gwv1.Fraction {
			return gwv1.Fraction{Numerator: g.Int32N(5) - 1, Denominator: maybe(g, 2, func() int32 { return g.Int32N(5) - 1 })}
		}),
	}
}

func (g *routeMaker) externalAuth() gwv1.HTTPExternalAuthFilter {
	header := func() string { return g.word("X-A", "Host", "Content-Length", ":path", ":a", "a b") }
	return gwv1.HTTPExternalAuthFilter{
		ExternalAuthProtocol: gwv1.HTTPRouteExternalAuthProtocol(g.word("HTTP", "GRPC")), BackendRef: g.ref(),
		GRPCAuthConfig: maybe(g, 3, func() gwv1.GRPCAuthConfig { return gwv1.GRPCAuthConfig{AllowedRequestHeaders: several(g, 2, header)} }),
		HTTPAuthConfig: maybe(g, 3, func() gwv1.HTTPAuthConfig {
			return gwv1.HTTPAuthConfig{Path: g.word("", "/", "a/", "/a//b", "/../a", "/%2e"), AllowedRequestHeaders: several(g, 2, header), AllowedResponseHeaders: several(g, 2, header)}
		}),
		ForwardBody: maybe(g, 3, func() gwv1.ForwardBodyConfig { return gwv1.ForwardBodyConfig{MaxSize: g.Int32N(10) - 2} }),
	}
}

func (g *routeMaker) hostname() gwv1.PreciseHostname {
	return gwv1.PreciseHostname(g.word("a.example"))
}

func (g *routeMaker) path() gwv1.HTTPPathModifier {
	return gwv1.HTTPPathModifier{
		Type:               gwv1.HTTPPathModifierType(g.word("ReplaceFullPath", "ReplacePrefixMatch")),
		ReplaceFullPath:    maybe(g, 5, func() string { return g.word("/x", "/x/y") }),
		ReplacePrefixMatch: maybe(g, 5, func() string { return g.word("/x", "/x/y/") }),
	}
}
