package cli

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/moongate-dev/moongate/internal/admin"
	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/deliver"
	"github.com/moongate-dev/moongate/internal/reconcile"
	"github.com/moongate-dev/moongate/internal/testkit"
)

func listenerResource(gateway, name string, port uint32, certificates ...string) *config.Resource {
	return &config.Resource{Kind: &config.Resource_Listener{Listener: &config.Listener{Key: gateway + "/" + name, Gateway: gateway, Name: name, Port: port,
		Protocol: config.Protocol_PROTOCOL_HTTP, Certificates: certificates}}}
}

// TestCertificatesOf: of a certificate names and dates are shown, and nothing of its key.
func TestCertificatesOf(t *testing.T) {
	chain, _ := testkit.Certificate{Hosts: []string{"b.example.com", "192.0.2.1"}}.PEM(t)
	certificate := func(key string, chain []byte) *config.Resource {
		return &config.Resource{Kind: &config.Resource_Certificate{Certificate: &config.Certificate{Key: key, ChainPem: chain, KeyPem: []byte("the secret key")}}}
	}
	list := certificatesOf([]*config.Resource{certificate("Secret/n/good", chain), certificate("Secret/n/bad", []byte("nonsense")), certificate("Secret/n/good", chain),
		listenerResource("n/gw", "b", 2, "Secret/n/good"), listenerResource("n/gw", "a", 1, "Secret/n/good", "Secret/n/bad")})
	if len(list) != 2 || list[0].Name != "Secret n/bad" || list[0].Problem == "" || list[1].Name != "Secret n/good" || list[1].Problem != "" {
		t.Fatalf("%+v", list)
	}
	if good := list[1]; !slices.Equal(good.Names, []string{"b.example.com", "192.0.2.1"}) || !good.NotAfter.After(time.Now()) || !slices.Equal(good.Listeners, []string{"n/gw/a", "n/gw/b"}) {
		t.Errorf("%+v", good)
	}
	if text, err := json.Marshal(list); err != nil || strings.Contains(string(text), "secret key") || strings.Contains(string(text), "PRIVATE") {
		t.Errorf("%v %s", err, text)
	}
}

func TestOverridesOf(t *testing.T) {
	rule := func(policy string, hidden ...*config.HiddenPolicy) *config.Rule {
		return &config.Rule{Traffic: &config.RuleTraffic{Policy: policy, Hidden: hidden}}
	}
	got := overridesOf([]*config.Resource{
		{Kind: &config.Resource_Route{Route: &config.Route{Rules: []*config.Rule{{}, rule("BackendTrafficPolicy n/one", &config.HiddenPolicy{Policy: "n/all", Fields: []string{"spec.retry"}}),
			rule("BackendTrafficPolicy n/one, merged with n/gateway", &config.HiddenPolicy{Policy: "n/all", Fields: []string{"spec.compression", "spec.retry"}}, &config.HiddenPolicy{Policy: "n/above"})}}}},
		{Kind: &config.Resource_L4Route{L4Route: &config.L4Route{Traffic: &config.RuleTraffic{Policy: "BackendTrafficPolicy n/two", Hidden: []*config.HiddenPolicy{{Policy: "n/all", Fields: []string{"spec.tcpKeepalive"}}}}}}},
		listenerResource("n/gw", "a", 1),
	})
	want := map[string][]admin.Override{
		"BackendTrafficPolicy n/one": {{Policy: "BackendTrafficPolicy n/above", Rules: 1}, {Policy: "BackendTrafficPolicy n/all", Fields: []string{"spec.compression", "spec.retry"}, Rules: 2}},
		"BackendTrafficPolicy n/two": {{Policy: "BackendTrafficPolicy n/all", Fields: []string{"spec.tcpKeepalive"}, Rules: 1}},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
}

func TestBackendsOf(t *testing.T) {
	b := &config.Resource{Kind: &config.Resource_Backend{Backend: &config.Backend{Key: "Service/n/app/80"}}}
	got := backendsOf([]*config.Resource{b, {Kind: &config.Resource_Backend{Backend: &config.Backend{Key: "Service/n/alone/80"}}}, b,
		{Kind: &config.Resource_Endpoints{Endpoints: &config.Endpoints{Key: "Service/n/app/80", Endpoints: []*config.Endpoint{{Address: "192.0.2.1", Port: 8080}, {Address: "2001:db8::1", Port: 8080, Terminating: true, Zone: "z"}}}}}})
	want := []admin.Backend{{Name: "Service/n/alone/80", Endpoints: []admin.Endpoint{}}, {Name: "Service/n/app/80", Endpoints: []admin.Endpoint{
		{Address: "192.0.2.1:8080", Health: admin.HealthElsewhere}, {Address: "[2001:db8::1]:8080", Health: admin.HealthElsewhere, Terminating: true, Zone: "z"}}}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// TestExplainOfController: each Gateway has proxies of its own, so that a request is explained by what one of them serves.
func TestExplainOfController(t *testing.T) {
	resources := map[string][]*config.Resource{"n/one": {listenerResource("n/one", "http", 80)}, "n/two": {listenerResource("n/two", "http", 80)},
		"n/gatewayclass:c": {listenerResource("n/one", "merged", 80), listenerResource("n/four", "other", 81)}}
	gateways := func(names ...string) (all []deliver.RemoteGateway) {
		for _, name := range names {
			all = append(all, deliver.RemoteGateway{Gateway: name, Resources: len(resources[name])})
		}
		return all
	}
	for _, c := range []struct {
		gateways []deliver.RemoteGateway
		gateway  string
		url      string
		listener string
		err      string
	}{
		{nil, "", "http://a.test/", "", "ask the leader"}, // it stands by
		{gateways("n/empty"), "", "http://a.test/", "", "no Gateway has a configuration yet"},
		{gateways("n/one", "n/empty"), "", "http://a.test/", "n/one/http", ""},
		{gateways("n/one", "n/two"), "", "http://a.test/", "", "as n/one"},
		{gateways("n/one", "n/two"), "n/two", "http://a.test/", "n/two/http", ""},
		{gateways("n/one", "n/two"), "n/three", "http://a.test/", "", `no Gateway "n/three"`},
		{append(gateways("n/one"), deliver.RemoteGateway{Gateway: "n/gatewayclass:c", Resources: 2, Merged: []string{"n/four", "n/one"}}), "n/one", "http://a.test/", "n/one/merged", ""},
		{gateways("n/one"), "", "ftp://a.test/", "", "ftp://a.test/"},
		{gateways("n/one"), "", "tcp://a.test:81", "nothing listens on port 81", ""},
	} {
		answer, err := explainFor(reconcile.Status{Leading: c.gateways != nil, Gateways: c.gateways}, func(gateway string) []*config.Resource { return resources[gateway] }, func() []any { return nil }, controllerName, admin.Question{URL: c.url, Gateway: c.gateway})
		switch {
		case err != nil && (c.err == "" || !strings.Contains(err.Error(), c.err)), err == nil && c.err != "":
			t.Errorf("%s of %q: error %v, want %q", c.url, c.gateway, err, c.err)
		case err == nil && !strings.Contains(answer.Text, c.listener):
			t.Errorf("%s of %q: %q is not in\n%s", c.url, c.gateway, c.listener, answer.Text)
		}
	}
}

func TestProxiesOf(t *testing.T) {
	state := func(p deliver.RemoteProxy) string {
		return proxiesOf([]deliver.RemoteGateway{{Gateway: "n/gw", Generation: 7, Proxies: []deliver.RemoteProxy{p}}})["n/gw"][0].State
	}
	good := deliver.RemoteProxy{Pod: "p", Ready: true, Connected: true, Acked: 7}
	for want, change := range map[string]func(*deliver.RemoteProxy){
		"current": func(*deliver.RemoteProxy) {}, "not connected": func(p *deliver.RemoteProxy) { p.Connected = false }, "not ready": func(p *deliver.RemoteProxy) { p.Ready = false },
		"a change is on its way": func(p *deliver.RemoteProxy) { p.Acked = 6 }, "has not acknowledged the configuration in time": func(p *deliver.RemoteProxy) { p.Overdue = true },
		"refused the configuration: why": func(p *deliver.RemoteProxy) { p.Error = "why" }, "cannot serve 1 listeners": func(p *deliver.RemoteProxy) { p.Listeners = map[string]string{"a": "b"} },
		"Redis is away":                func(p *deliver.RemoteProxy) { p.Unavailable = "Redis is away" },
		"cannot carry out 1 resources": func(p *deliver.RemoteProxy) { p.Rejected = map[string]string{"a": "b"} },
	} {
		p := good
		change(&p)
		if got := state(p); got != want {
			t.Errorf("%+v is %q, want %q", p, got, want)
		}
	}
	all := proxiesOf([]deliver.RemoteGateway{{Gateway: "infra/gatewayclass:c", Merged: []string{"n/a", "n/b"}, Proxies: []deliver.RemoteProxy{good}}, {Gateway: "n/b"}})
	if len(all["n/a"]) != 1 || len(all["n/b"]) != 1 {
		t.Errorf("merged Gateways have proxies %v", all)
	}
	if alone, is := proxiesOf([]deliver.RemoteGateway{{Gateway: "n/alone"}})["n/alone"]; !is || len(alone) > 0 {
		t.Errorf("a Gateway without proxies has %v, %v", alone, is)
	}
}
