package gateway

import (
	"reflect"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/moongate-dev/moongate/internal/translate/condition"
)

func TestNew(t *testing.T) {
	created := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	gw := &gwv1.Gateway{ObjectMeta: metav1.ObjectMeta{UID: "uid", CreationTimestamp: metav1.NewTime(created), Generation: 7}}
	for _, name := range []gwv1.SectionName{"b", "a", "b"} {
		gw.Spec.Listeners = append(gw.Spec.Listeners, gwv1.Listener{Name: name})
	}
	g := New(gw, false)
	if g.UID != "uid" || g.Created != created.UnixNano() || g.Generation != 7 {
		t.Errorf("%q of %d, generation %d", g.UID, g.Created, g.Generation)
	}
	if want := []string{"b", "a"}; !reflect.DeepEqual(g.Listeners, want) {
		t.Errorf("listeners %q, want %q: each once, in the order of the spec", g.Listeners, want)
	}
	if g.Refused != nil || len(g.Notes) != 0 || !g.Default {
		t.Errorf("%+v", g)
	}
	if g := New(&gwv1.Gateway{}, false); g.Generation != 1 || g.Created != 0 {
		t.Errorf("without metadata: generation %d, created %d", g.Generation, g.Created)
	}
}

func TestAddresses(t *testing.T) {
	ip, hostname := gwv1.IPAddressType, gwv1.HostnameAddressType
	for name, c := range map[string]struct {
		addresses   []gwv1.GatewaySpecAddress
		binds       []string
		entries     []string // field, value, routability
		byDefault   bool
		unaddressed bool
		inCluster   bool
		refused     string
	}{
		"none":           {byDefault: true},
		"without a type": {addresses: []gwv1.GatewaySpecAddress{{Value: "192.0.2.1"}}, binds: []string{"192.0.2.1"}, entries: []string{"spec.addresses[0] 192.0.2.1 "}},
		"one way to write an IPv6 address": {
			addresses: []gwv1.GatewaySpecAddress{{Type: &ip, Value: "2001:DB8:0::1"}, {Type: &ip, Value: "2001:db8::1"}},
			binds:     []string{"2001:db8::1"}, entries: []string{"spec.addresses[0] 2001:db8::1 "},
		},
		"without a value": {
			addresses: []gwv1.GatewaySpecAddress{{Type: &ip}}, entries: []string{"spec.addresses[0]  "}, byDefault: true,
		},
		"one with a value, one without": {
			addresses: []gwv1.GatewaySpecAddress{{Type: &ip, Value: "192.0.2.1"}, {Type: &ip}},
			binds:     []string{"192.0.2.1"}, entries: []string{"spec.addresses[0] 192.0.2.1 ", "spec.addresses[1]  "},
		},
		"another type": {
			addresses: []gwv1.GatewaySpecAddress{{Type: &hostname, Value: "gw.example"}},
			refused:   "spec.addresses[0].type: addresses of type Hostname are not supported; use type IPAddress",
		},
		"no address": {
			addresses: []gwv1.GatewaySpecAddress{{Value: "192.0.2.1"}, {Value: "192.0.2.256"}},
			binds:     []string{"192.0.2.1"}, entries: []string{"spec.addresses[0] 192.0.2.1 "},
			refused: `spec.addresses[1].value: "192.0.2.256" is not an IP address; write an IPv4 or IPv6 address`,
		},
		"of a Service, outside of a cluster": {
			addresses:   []gwv1.GatewaySpecAddress{{Value: "192.0.2.1", Routability: gwv1.GatewayAddressRoutabilityCluster}},
			entries:     []string{"spec.addresses[0] 192.0.2.1 Cluster routability Cluster is the address of a Service, which only a Gateway in Kubernetes has; remove routability"},
			unaddressed: true,
		},
		"of a Service": {
			addresses: []gwv1.GatewaySpecAddress{{Value: "10.96.0.9", Routability: gwv1.GatewayAddressRoutabilityCluster}}, inCluster: true,
			binds: []string{"10.96.0.9"}, entries: []string{"spec.addresses[0] 10.96.0.9 Cluster"},
		},
		"of an unknown routability beside none": {
			addresses: []gwv1.GatewaySpecAddress{{Routability: "example.com/Wan"}, {}}, inCluster: true, byDefault: true,
			entries: []string{`spec.addresses[0]  example.com/Wan routability "example.com/Wan" is not supported; use Cluster or remove routability`, "spec.addresses[1]  "},
		},
		"of another reserved routability": {
			addresses: []gwv1.GatewaySpecAddress{{Routability: "testing.x-k8s.io/other"}}, unaddressed: true,
			entries: []string{`spec.addresses[0]  testing.x-k8s.io/other routability "testing.x-k8s.io/other" is not supported; remove routability`},
		},
		"of the sentinel": {
			addresses: []gwv1.GatewaySpecAddress{{Routability: RoutabilitySentinel}}, entries: []string{"spec.addresses[0]  testing.x-k8s.io/sentinel"}, byDefault: true,
		},
		"the first problem is told": {
			addresses: []gwv1.GatewaySpecAddress{{Value: "x"}, {Type: &hostname, Value: "y"}},
			refused:   `spec.addresses[0].value: "x" is not an IP address; write an IPv4 or IPv6 address`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			gw := &gwv1.Gateway{}
			gw.Spec.Addresses = c.addresses
			g := New(gw, c.inCluster)
			var entries []string
			for _, a := range g.Addresses {
				entry := a.Field + " " + a.Value + " " + string(a.Routability)
				if a.Unsatisfiable != "" {
					entry += " " + a.Unsatisfiable
				}
				entries = append(entries, entry)
			}
			if !reflect.DeepEqual(g.Binds, c.binds) || !reflect.DeepEqual(entries, c.entries) || g.Default != c.byDefault || g.Unaddressed() != c.unaddressed {
				t.Errorf("binds %q, entries %q, default %v, unaddressed %v", g.Binds, entries, g.Default, g.Unaddressed())
			}
			refused := ""
			if g.Refused != nil {
				refused = g.Refused.String()
			}
			if refused != c.refused {
				t.Errorf("refused: %q\nwant     %q", refused, c.refused)
			}
		})
	}
}

// TestDefaultScope checks that None is no scope.
func TestDefaultScope(t *testing.T) {
	for scope, want := range map[gwv1.GatewayDefaultScope]gwv1.GatewayDefaultScope{
		"": "", gwv1.GatewayDefaultScopeNone: "", gwv1.GatewayDefaultScopeAll: gwv1.GatewayDefaultScopeAll,
	} {
		if g := New(&gwv1.Gateway{Spec: gwv1.GatewaySpec{DefaultScope: scope}}, false); g.DefaultScope != want || len(g.Notes) != 0 || g.Refused != nil {
			t.Errorf("%q: scope %q, notes %q, refused %v", scope, g.DefaultScope, g.Notes, g.Refused)
		}
	}
}

// TestInsecureFrontend checks that the Gateway says in which fields it has clients served without a valid certificate, and nothing where it has not.
func TestInsecureFrontend(t *testing.T) {
	gw := &gwv1.Gateway{}
	validation := &gwv1.FrontendTLSValidation{Mode: gwv1.AllowValidOnly}
	gw.Spec.TLS = &gwv1.GatewayTLSConfig{Frontend: &gwv1.FrontendTLSConfig{PerPort: []gwv1.TLSPortConfig{{Port: 443, TLS: gwv1.TLSConfig{Validation: validation}}}}}
	if got := New(gw, false).Conditions(&Summary{}, nil, ""); len(got) != 3 {
		t.Errorf("%d conditions with %s", len(got), validation.Mode)
	}
	validation.Mode = gwv1.AllowInsecureFallback
	got := New(gw, false).Conditions(&Summary{}, nil, "")
	want := "spec.tls.frontend.perPort[0].tls.validation.mode: clients may be served without a valid certificate; use AllowValidOnly"
	if c := got[len(got)-1]; c.Type != "InsecureFrontendValidationMode" || c.Reason != "ConfigurationChanged" || c.Status != "True" || c.Message != want {
		t.Errorf("%+v", c)
	}
}

// TestConditions checks what the states of listeners, references and addresses make of the Gateway.
func TestConditions(t *testing.T) {
	problem := func(reason string) *condition.Problem {
		return condition.NewProblem(reason, "spec.field", "do that", "it is wrong")
	}
	type listener struct{ accepted, resolved, programmed bool }
	good := listener{true, true, true}
	for name, c := range map[string]struct {
		gateway    Gateway
		listeners  []listener
		reference  *condition.Problem
		unreached  *condition.Problem
		lagging    string
		accepted   string // status and reason
		programmed string
		resolved   string
	}{
		"all is well": {
			listeners: []listener{good},
			accepted:  "True Accepted", programmed: "True Programmed", resolved: "True ResolvedRefs",
		},
		"one listener is invalid": {
			listeners: []listener{good, {false, true, false}},
			accepted:  "True ListenersNotValid", programmed: "True Programmed", resolved: "True ResolvedRefs",
		},
		"all listeners are invalid": {
			listeners: []listener{{false, true, false}},
			accepted:  "False ListenersNotValid", programmed: "False Invalid", resolved: "True ResolvedRefs",
		},
		"no listener": {
			accepted: "False ListenersNotValid", programmed: "False Invalid", resolved: "True ResolvedRefs",
		},
		"a listener's reference does not resolve": {
			listeners: []listener{good, {true, false, false}},
			accepted:  "True Accepted", programmed: "True Programmed", resolved: "False ListenersNotResolved",
		},
		"no listener can be served": {
			listeners: []listener{{true, false, false}},
			accepted:  "True Accepted", programmed: "False Invalid", resolved: "False ListenersNotResolved",
		},
		"the Gateway's own reference does not resolve": {
			reference: problem("InvalidClientCertificateRef"), listeners: []listener{{true, false, false}},
			accepted: "True Accepted", programmed: "False Invalid", resolved: "False InvalidClientCertificateRef",
		},
		"refused": {
			gateway: Gateway{Refused: problem("UnsupportedAddress")}, listeners: []listener{good},
			accepted: "False UnsupportedAddress", programmed: "False Invalid", resolved: "True ResolvedRefs",
		},
		"its class is not accepted": {
			gateway: Gateway{Pending: problem("Pending"), Refused: problem("UnsupportedAddress")}, listeners: []listener{good},
			accepted: "Unknown Pending", programmed: "False Pending", resolved: "True ResolvedRefs",
		},
		"clients cannot reach it": {
			listeners: []listener{good}, unreached: problem("AddressNotAssigned"),
			accepted: "True Accepted", programmed: "False AddressNotAssigned", resolved: "True ResolvedRefs",
		},
		"a proxy is late": {
			listeners: []listener{good}, lagging: "proxy a has not answered",
			accepted: "True Accepted", programmed: "True Programmed", resolved: "True ResolvedRefs",
		},
	} {
		t.Run(name, func(t *testing.T) {
			var sum Summary
			for i, l := range c.listeners {
				sum.Add(string(rune('a'+i)), l.accepted, l.resolved, l.programmed)
			}
			sum.Unresolved(c.reference)
			got := c.gateway.Conditions(&sum, c.unreached, c.lagging)
			for i, want := range []struct{ name, state string }{{"Accepted", c.accepted}, {"Programmed", c.programmed}, {"ResolvedRefs", c.resolved}} {
				if got[i].Type != want.name || string(got[i].Status)+" "+got[i].Reason != want.state {
					t.Errorf("%s %s %s, want %s %s", got[i].Type, got[i].Status, got[i].Reason, want.name, want.state)
				}
			}
			if c.lagging != "" && got[1].Message != c.lagging {
				t.Errorf("Programmed says %q, want %q", got[1].Message, c.lagging)
			}
		})
	}
}

// TestInvalidListenersAreNamed checks that who reads the condition learns which listeners to look at.
func TestInvalidListenersAreNamed(t *testing.T) {
	var sum Summary
	sum.Add("good", true, true, true)
	sum.Add("bad", false, true, false)
	g := Gateway{Notes: []string{"a note"}}
	want := `a note. spec.listeners: not valid: "bad"; accepted: "good"; see status.listeners`
	if got := g.Conditions(&sum, nil, "")[0].Message; got != want {
		t.Errorf("%q\nwant %q", got, want)
	}
}
