package controller

import (
	"reflect"
	"testing"

	"github.com/moongate-dev/moongate/internal/deliver/auth"
	"github.com/moongate-dev/moongate/internal/kind"
	"github.com/moongate-dev/moongate/internal/provision"
	"github.com/moongate-dev/moongate/internal/source/kube"
)

const gatewayAPI = "gateway.networking.k8s.io"

func id(group, of, name string) kind.ObjectKey {
	return kind.ObjectKey{Group: group, Kind: of, Namespace: "n", Name: name}
}

// TestInventory checks that objects are known from their first change to their deletion, and that only those are swept whose status says
// what became of them at a parent: others must never be cleaned of what is not ours.
func TestInventory(t *testing.T) {
	in := newInventory()
	gateway, route, policy, parameters := id(gatewayAPI, "Gateway", "g"), id(gatewayAPI, "HTTPRoute", "r"),
		id(gatewayAPI, "BackendTLSPolicy", "p"), id("moongate.dev", "GatewayParameters", "x")
	set := id(gatewayAPI, "ListenerSet", "s")
	in.change(&kube.Change{Observed: []kind.ObjectKey{gateway, route, policy, parameters, set},
		Installed: &kube.Installed{Kinds: []kube.Served{{Group: gatewayAPI, Kind: "HTTPRoute", Version: "v1beta1"}}}})
	if got, want := in.all(), []kind.ObjectKey{policy, gateway, parameters, route, set}; !reflect.DeepEqual(got, want) {
		t.Errorf("all: %v, want %v", got, want)
	}
	if got, want := in.children(), []kind.ObjectKey{policy, route, set}; !reflect.DeepEqual(got, want) {
		t.Errorf("children: %v, want %v", got, want)
	}
	if v := in.version(gatewayAPI, "HTTPRoute"); v != "v1beta1" {
		t.Errorf("version %q", v)
	}

	in.change(&kube.Change{Deletes: []kind.ObjectKey{route}, Installed: &kube.Installed{}})
	if got, want := in.children(), []kind.ObjectKey{policy, set}; !reflect.DeepEqual(got, want) || in.len() != 4 {
		t.Errorf("after the deletion: children %v, want %v; %d objects", got, want, in.len())
	}
	if v := in.version(gatewayAPI, "HTTPRoute"); v != "" {
		t.Errorf("version %q of a kind that is gone", v)
	}
}

// TestTokenAudience checks that what proxies show is what they are asked for; who makes their pods and
// who verifies their tokens do not know each other.
func TestTokenAudience(t *testing.T) {
	if provision.TokenAudience != auth.Audience {
		t.Errorf("pods have tokens for %q, the controller takes those for %q", provision.TokenAudience, auth.Audience)
	}
}
