package config

import (
	"slices"
	"testing"
)

// TestID names a Resource of every kind, and fails for a kind that was added without a name.
func TestID(t *testing.T) {
	all := []*Resource{
		{Kind: &Resource_Certificate{&Certificate{Key: SecretKey("ns", "s")}}},
		{Kind: &Resource_Backend{&Backend{Key: ServiceBackendKey("ns", "b", 80)}}},
		{Kind: &Resource_Endpoints{&Endpoints{Key: ServiceBackendKey("ns", "b", 80)}}},
		{Kind: &Resource_Listener{&Listener{Key: ListenerKey("ns", "gw", "l")}}},
		{Kind: &Resource_Route{&Route{Key: RouteKey("HTTPRoute", "ns", "r")}}},
		{Kind: &Resource_TicketKeys{&TicketKeys{Key: GatewayKey("ns", "gw")}}},
		{Kind: &Resource_L4Route{&L4Route{Key: RouteKey("TCPRoute", "ns", "r")}}},
		{Kind: &Resource_Authorities{&Authorities{Key: AuthoritiesKey("")}}},
		{Kind: &Resource_RateLimitService{&RateLimitService{Key: GatewayKey("ns", "gw")}}},
	}
	want := []string{"Certificate Secret/ns/s", "Backend Service/ns/b/80", "Endpoints Service/ns/b/80", "Listener ns/gw/l", "Route HTTPRoute/ns/r", "TicketKeys ns/gw", "L4Route TCPRoute/ns/r",
		"Authorities sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855", "RateLimitService ns/gw"}
	for i, r := range all {
		if got := r.ID().String(); got != want[i] {
			t.Errorf("got %q, want %q", got, want[i])
		}
	}
	if kinds := (&Resource{}).ProtoReflect().Descriptor().Oneofs().ByName("kind").Fields().Len(); kinds != len(all) {
		t.Errorf("Resource has %d kinds, this test %d", kinds, len(all))
	}
	if got := Kind(200).String(); got != "Kind(200)" {
		t.Errorf("an unknown kind is %q", got)
	}
	for _, r := range all {
		routed := r.ProtoReflect().WhichOneof(r.ProtoReflect().Descriptor().Oneofs().ByName("kind")).Message().Fields().ByName("attachments") != nil
		if r.ID().Kind.IsRoute() != routed {
			t.Errorf("%v is a route: %v, want %v", r.ID(), r.ID().Kind.IsRoute(), routed)
		}
	}
	defer func() {
		if recover() == nil {
			t.Error("a Resource without a kind has an ID")
		}
	}()
	(&Resource{}).ID()
}

// TestOrder: what others refer to is applied before them.
func TestOrder(t *testing.T) {
	ids := []ID{{KindRoute, "a"}, {KindListener, "b"}, {KindListener, "a"}, {KindCertificate, "z"}, {KindBackend, "y"}}
	slices.SortFunc(ids, CompareID)
	if want := []ID{{KindCertificate, "z"}, {KindBackend, "y"}, {KindListener, "a"}, {KindListener, "b"}, {KindRoute, "a"}}; !slices.Equal(ids, want) {
		t.Errorf("got %v, want %v", ids, want)
	}
	if u := (Update{}); !u.Empty() {
		t.Error("an update without changes is not empty")
	}
	if u := (Update{Removals: ids}); u.Empty() {
		t.Error("an update with removals is empty")
	}
}

func TestSplitListenerKey(t *testing.T) {
	for key, want := range map[string]string{
		ListenerKey("ns", "gw", "http"):                        "ns/gw http",
		ListenerSetListenerKey("ns", "gw", "team/set", "http"): "ns/gw team/set/http",
		"odd": " odd",
	} {
		if gateway, listener := SplitListenerKey(key); gateway+" "+listener != want {
			t.Errorf("%s: got %q and %q", key, gateway, listener)
		}
	}
}

// TestSplitPolicy takes keys apart of objects that have the names of all words in them.
func TestSplitPolicy(t *testing.T) {
	words := []string{"a", "by", "http2", "passthrough", "udp", "service", "xbackend", "80"}
	for _, namespace := range words {
		for _, name := range words {
			for _, port := range []string{ServiceBackendKey(namespace, name, 80), XBackendKey(namespace, name, 80)} {
				for key, own := range map[string]string{port: port, OverHTTP2(port): port, PassedThrough(port): port, OfUDP(port): OfUDP(port)} {
					policy := namespace + "/" + name
					for _, policies := range []string{"", policy, policy + "+" + policy} {
						full := key
						if policies != "" {
							full = ByPolicy(key, policies)
						}
						if base, got := SplitPolicy(full); base != key || got != policies {
							t.Errorf("%s is taken for %s by %s", full, base, got)
						}
						if got := ServicePort(full); got != own {
							t.Errorf("%s is of %s, want %s", full, got, own)
						}
					}
				}
			}
		}
	}
	for _, key := range []string{"", "odd", "a/b/c"} {
		if base, policies := SplitPolicy(key); base != key || policies != "" || ServicePort(key) != key {
			t.Errorf("%q is taken for %q by %q, of %q", key, base, policies, ServicePort(key))
		}
	}
}

// TestUnread: what has nothing but a key stands for what a proxy has.
func TestUnread(t *testing.T) {
	for _, test := range []struct {
		of   *Resource
		want bool
	}{
		{&Resource{Kind: &Resource_Certificate{&Certificate{Key: "Secret/n/s"}}}, true},
		{&Resource{Kind: &Resource_Certificate{&Certificate{Key: "Secret/n/s", ChainPem: []byte("chain"), KeyPem: []byte("key")}}}, false},
		{&Resource{Kind: &Resource_RateLimitService{&RateLimitService{Key: "n/gw"}}}, true},
		{&Resource{Kind: &Resource_RateLimitService{&RateLimitService{Key: "n/gw", Address: "192.0.2.1:6379"}}}, false},
		{&Resource{Kind: &Resource_Listener{&Listener{Key: "n/gw/l"}}}, false},
		{&Resource{}, false},
	} {
		if got := test.of.Unread(); got != test.want {
			t.Errorf("%v: %v", test.of, got)
		}
	}
}

// TestOfListeners: routes and backends, which come and go all the time, do not change which listeners serve.
func TestOfListeners(t *testing.T) {
	upsert := func(r *Resource) *Update { return &Update{Upserts: []*Resource{r}} }
	for _, test := range []struct {
		of   *Update
		want bool
	}{
		{&Update{}, false},
		{upsert(&Resource{Kind: &Resource_Route{&Route{}}}), false},
		{upsert(&Resource{Kind: &Resource_Listener{&Listener{}}}), true},
		{upsert(&Resource{Kind: &Resource_Certificate{&Certificate{}}}), true},
		{&Update{Removals: []ID{{Kind: KindRoute}}}, false},
		{&Update{Removals: []ID{{Kind: KindRoute}, {Kind: KindListener}}}, true},
	} {
		if got := test.of.OfListeners(); got != test.want {
			t.Errorf("%v: %v", test.of, got)
		}
	}
}
