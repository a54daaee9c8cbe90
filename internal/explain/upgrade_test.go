package explain

import (
	"slices"
	"strings"
	"testing"

	"github.com/moongate-dev/moongate/internal/config"
)

// TestExplainUpgrades: what a rule lists decides what its backends are asked for, and whether it takes CONNECT.
func TestExplainUpgrades(t *testing.T) {
	listing := func(list ...*config.Upgrade) *config.RuleTraffic {
		return &config.RuleTraffic{Policy: "BackendTrafficPolicy n/p", UpgradesSet: true, Upgrades: list}
	}
	connect := func(host string, terminate bool) *config.Resource {
		r := route(host, []string{"all"}, &config.Rule{Matches: prefix(""), BackendRefs: []*config.BackendRef{ref("one", 1)}, Traffic: listing(&config.Upgrade{Type: "CONNECT", Terminate: terminate})})
		r.GetRoute().Attachments[0].Hostnames = []*config.Hostname{{Effective: host, Original: host}}
		return r
	}
	resources := slices.Concat([]*config.Resource{listener("all", "", 80), connect("here.test", true), connect("there.test", false),
		route("r", []string{"all"},
			&config.Rule{Matches: prefix("/spdy"), BackendRefs: []*config.BackendRef{ref("chat", 1)}, Traffic: listing(&config.Upgrade{Type: "spdy/3.1"})},
			&config.Rule{Matches: prefix("/both"), BackendRefs: []*config.BackendRef{ref("one", 1)}, Traffic: listing(&config.Upgrade{Type: "spdy/3.1"}, &config.Upgrade{Type: "websocket"})},
			&config.Rule{Matches: prefix("/h2c"), BackendRefs: []*config.BackendRef{ref("h2c", 1)}, Traffic: listing(&config.Upgrade{Type: "websocket"})},
			&config.Rule{Matches: prefix("/"), BackendRefs: []*config.BackendRef{ref("one", 1)}},
		)}, backend("one", "10.0.0.1"), backend("chat", "10.0.0.3"), backend("h2c", "10.0.0.4"))
	for _, r := range resources {
		switch b := r.GetBackend(); b.GetName() {
		case "chat":
			b.Protocol, _ = config.BackendProtocolOf("kubernetes.io/ws")
		case "h2c":
			b.Protocol, _ = config.BackendProtocolOf("kubernetes.io/h2c")
		}
	}
	w := World{Resources: resources, ControllerName: "example.com/c", Place: func(kind, namespace, name string) string { return "" }}
	to := func(protocol string) []string { return []string{"Connection: Upgrade", "Upgrade: " + protocol} }
	for _, test := range []struct {
		what, method, url string
		headers           []string
		status            int
		says              string
		not               string
	}{
		{"not in the list", "GET", "http://a.test/spdy", to("websocket"), 0, "is not asked to switch to websocket (upgrade_ignored): httpUpgrade of BackendTrafficPolicy n/p does not name it", ""},
		{"in the list", "POST", "http://a.test/spdy", to("SPDY/3.1"), 0, "is asked to switch to SPDY/3.1", ""},
		{"with a body", "POST", "http://a.test/spdy", append(to("SPDY/3.1"), "Content-Length: 4"), 0, "requests may switch to spdy/3.1 and to nothing else", "to switch to SPDY"},
		{"a WebSocket by POST", "POST", "http://a.test/both", to("websocket"), 0, "is not asked to switch to websocket (upgrade_ignored): a WebSocket begins with GET", ""},
		{"a WebSocket of any backend", "GET", "http://a.test/both", to("websocket"), 0, "is asked to switch to websocket", ""},
		{"a backend in HTTP/2", "GET", "http://a.test/h2c", to("websocket"), 0, "is not asked to switch to websocket (upgrade_ignored): it is reached by HTTP/2 only", ""},
		{"CONNECT that ends here", "CONNECT", "http://here.test", nil, 0, "receives the bytes that follow the request, but not the request itself", "forwards"},
		{"CONNECT that is forwarded", "CONNECT", "http://there.test", nil, 0, "forwards   CONNECT there.test:80 with Host there.test:80", ""},
		{"CONNECT that is refused", "CONNECT", "http://a.test:80", nil, 501, "a rule takes CONNECT where httpUpgrade of its BackendTrafficPolicy has that type", "forwards"},
	} {
		t.Run(test.what, func(t *testing.T) {
			e := explained(t, w, test.method, test.url, test.headers...)
			var b strings.Builder
			if err := e.Print(&b); err != nil {
				t.Fatal(err)
			}
			if out := b.String(); e.Answer.Status != test.status || !strings.Contains(out, test.says) || test.not != "" && strings.Contains(out, test.not) {
				t.Errorf("status %d\n%s", e.Answer.Status, out)
			}
		})
	}
}
