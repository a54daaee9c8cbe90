package explain

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/types/known/anypb"

	"github.com/moongate-dev/moongate/internal/config"
)

// TestArrive: what the gateway does with each head counts for the rules, too.
func TestArrive(t *testing.T) {
	const listener = "n/gw/all"
	plain := &config.Listener{Key: listener, Gateway: "n/gw", Name: "all", Port: 80, Protocol: config.Protocol_PROTOCOL_HTTP, MaxRequestBodyBytes: 1000}
	trusting := &config.Listener{Key: "n/gw/trusting", Gateway: "n/gw", Name: "trusting", Port: 81, Protocol: config.Protocol_PROTOCOL_HTTP, TrustedProxies: []string{"10.0.0.0/8"}}
	auth := packed(t, &config.ExternalAuth{Backend: "Service/n/empty/80"})
	asked := packed(t, &config.ExternalAuth{Backend: "Service/n/one/80"})
	rewrite := packed(t, &config.UrlRewrite{Hostname: "inner.test"})
	filtered := func(filters ...*anypb.Any) *config.BackendRef {
		return &config.BackendRef{Backend: "Service/n/one/80", Weight: 1, Filters: filters}
	}
	cors := packed(t, &config.CORS{AllowOrigins: []string{"*"}, AllowMethods: []string{"*"}})
	rules := []*config.Rule{
		{Matches: prefix("/answered"), BackendRefs: []*config.BackendRef{filtered(cors)}},
		{Matches: prefix("/proto", &config.ValueMatch{Name: "x-forwarded-proto", Value: "http"}), BackendRefs: []*config.BackendRef{ref("one", 1)}},
		{Matches: prefix("/tls", &config.ValueMatch{Name: "x-forwarded-proto", Value: "https"}), BackendRefs: []*config.BackendRef{ref("one", 1)}},
		{Matches: prefix("/id", &config.ValueMatch{Name: "x-request-id", Value: "mine"}), BackendRefs: []*config.BackendRef{ref("one", 1)}},
		{Matches: prefix("/any"), BackendRefs: []*config.BackendRef{ref("one", 1)}},
		{Matches: prefix("/unasked"), BackendRefs: []*config.BackendRef{filtered(auth)}},
		{Matches: prefix("/asked"), BackendRefs: []*config.BackendRef{filtered(asked)}},
		{Matches: prefix("/rewritten"), BackendRefs: []*config.BackendRef{filtered(rewrite)}},
		{Matches: prefix("/buffered"), BackendRefs: []*config.BackendRef{ref("one", 1)}, Traffic: &config.RuleTraffic{RequestBufferBytes: 1000}},
	}
	for i, r := range rules {
		r.Index = uint32(i)
	}
	route := &config.Route{Key: "HTTPRoute/n/r", Namespace: "n", Name: "r", Rules: rules, Attachments: []*config.Attachment{
		{Listener: listener, Hostnames: []*config.Hostname{{}}}, {Listener: "n/gw/trusting", Hostnames: []*config.Hostname{{}}}}}
	w := World{Resources: append([]*config.Resource{
		{Kind: &config.Resource_Listener{Listener: plain}}, {Kind: &config.Resource_Listener{Listener: trusting}}, {Kind: &config.Resource_Route{Route: route}}},
		append(backend("one", "10.0.0.1"), backend("empty")...)...), Place: func(kind, namespace, name string) string { return "" }}
	passes := slices.Repeat([]string{"CDN-Loop: moongate"}, 10)
	for _, test := range []struct {
		what, url string
		headers   []string
		reason    string
		says      string
	}{
		{"the scheme is known", "http://a.test/proto", nil, "ok", ""},
		{"it is not believed", "http://a.test/tls", []string{"X-Forwarded-Proto: https"}, "route_not_found", "note       X-Forwarded-Proto: dropped"},
		{"nor by another spelling", "http://a.test/any", []string{"X_Forwarded_Proto: https", "X-Real-IP: 192.0.2.1"}, "ok", "note       X_Forwarded_Proto, X-Real-IP: dropped"},
		{"nor with other bytes", "http://a.test/any", []string{"X.Forwarded.Proto: https", "X~Real~IP: 192.0.2.1"}, "ok", "note       X.Forwarded.Proto, X~Real~IP: dropped"},
		{"a proxy is believed", "http://a.test:81/tls", []string{"X-Forwarded-Proto: https"}, "ok", "X-Forwarded-Proto: https\nnote       X-Forwarded-Proto: used only if one of the trustedProxies"},
		{"but not by another spelling", "http://a.test:81/tls", []string{"X_Forwarded_Proto: https"}, "route_not_found", "note       X_Forwarded_Proto: dropped, because proxies write"},
		{"the way is one line", "http://a.test:81/any", []string{"X-Forwarded-For: 192.0.2.1", "X-Forwarded-For: 10.0.0.1"}, "ok", "X-Forwarded-For: 192.0.2.1, 10.0.0.1, (the client's address)"},
		{"an id is replaced", "http://a.test/id", []string{"X-Request-Id: mine"}, "route_not_found", "note       X-Request-Id: replaced, unless the Gateway's parameters"},
		{"as much as the listener takes", "http://a.test/any", []string{"Content-Length: 1000"}, "ok", ""},
		{"more than that", "http://a.test/any", []string{"Content-Length: 1001"}, "body_too_large", "the listener takes 1000 bytes"},
		{"it has passed often", "http://a.test/any", passes[1:], "ok", ""},
		{"it goes round", "http://a.test/any", passes, "loop_detected", ""},
		{"what is added is not listed", "http://a.test/any", []string{"X-Own: 1"}, "ok", "with Host a.test\n           X-Own: 1\nbackend"},
		{"a backendRef asks nobody", "http://a.test/unasked", nil, "auth_failed", "answered 503 auth_failed"},
		{"a backendRef asks", "http://a.test/asked", nil, "ok", "if the authorization server lets the request pass"},
		{"a backendRef rewrites", "http://a.test/rewritten", nil, "ok", "forwards   GET /rewritten with Host inner.test"},
		{"the body is read whole", "http://a.test/buffered", []string{"Connection: Upgrade", "Upgrade: websocket"}, "ok", "is not asked to switch to websocket (upgrade_ignored): requestBuffer"},
	} {
		e := explained(t, w, "GET", test.url, test.headers...)
		var text strings.Builder
		if err := e.Print(&text); err != nil {
			t.Fatal(err)
		}
		if e.Answer.Reason != test.reason || !strings.Contains(text.String(), test.says) {
			t.Errorf("%s: %s, want %s and %q\n%s", test.what, e.Answer.Reason, test.reason, test.says, &text)
		}
	}
	preflight := explained(t, w, "OPTIONS", "http://a.test/answered", "Origin: http://b.test", "Access-Control-Request-Method: GET")
	if preflight.Answer.Reason != "preflight" || preflight.Forwarded != nil || len(preflight.Filters) != 1 {
		t.Errorf("a backendRef answers: %+v", preflight)
	}
	if text := fmt.Sprint(explained(t, w, "GET", "http://a.test/any").Forwarded.Headers); text != "[]" {
		t.Errorf("fields of no client: %s", text)
	}
}
