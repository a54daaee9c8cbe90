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
	}
	want := []string{"Certificate Secret/ns/s", "Backend Service/ns/b/80", "Endpoints Service/ns/b/80", "Listener ns/gw/l", "Route HTTPRoute/ns/r", "TicketKeys ns/gw", "L4Route TCPRoute/ns/r",
		"Authorities sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"}
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
