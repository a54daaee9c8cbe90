package kube

import (
	"strings"
	"testing"
	"time"

	"github.com/moongate-dev/moongate/internal/testkit"
)

// TestUnreadAny: all objects of a kind are known once it was listed everywhere and each one can be decoded, or if there can be none.
func TestUnreadAny(t *testing.T) {
	s := newAPIServer(t, true)
	s.define(kindNamed("Gateway"), "v1")
	put := func(namespace string, class any) {
		s.put(gatewayGroup+"/gateways", "Gateway", namespace, "gw", fields{"spec": fields{"gatewayClassName": class}})
	}
	put("blue", "moongate")
	s.put("namespaces", "Namespace", "", "blue", fields{})
	s.put("namespaces", "Namespace", "", "green", fields{})
	s.mu.Lock()
	s.forbidden = map[string]bool{}
	for _, k := range append([]*watchedKind{secretMetadata}, kinds...) {
		if k.Namespaced {
			s.forbidden["green/"+strings.TrimPrefix(k.Group+"/"+k.Resource, "/")] = true
		}
	}
	s.mu.Unlock()
	if source := unstarted(t, s); !source.UnreadAny(gatewayGroup, "Gateway") || !source.UnreadAny(gatewayGroup, "Nothing") {
		t.Error("known before anything is read")
	}
	c := follow(t, s.config(), func(source *Source) {
		source.namespaces, source.skip, source.grace = namespacesOf([]string{"blue", "green"}), 300*time.Millisecond, 0
	})
	c.next()
	unread := func(want bool) func() bool {
		return func() bool { return c.UnreadAny(gatewayGroup, "Gateway") == want }
	}
	if !unread(true)() || c.UnreadAny(gatewayGroup, "ListenerSet") {
		t.Errorf("a namespace may not be listed: unread is %v; of a kind without a CRD: %v", unread(true)(), c.UnreadAny(gatewayGroup, "ListenerSet"))
	}
	s.remove("namespaces", "", "green")
	testkit.Eventually(t, "there is no such namespace", unread(false))
	s.put("namespaces", "Namespace", "", "green", fields{})
	testkit.Eventually(t, "there is", unread(true))
	s.mu.Lock()
	s.forbidden = nil
	s.mu.Unlock()
	testkit.Eventually(t, "everything is listed", unread(false))
	put("blue", fields{"not": "a name"})
	testkit.Eventually(t, "the newest version of one cannot be decoded", unread(true))
	if n := c.Problems()["Gateway"]; n != 1 {
		t.Errorf("%d Gateways are counted that cannot be decoded, want 1", n)
	}
	put("blue", "moongate")
	testkit.Eventually(t, "it can be decoded", unread(false))
	if problems := c.Problems(); len(problems) != 0 {
		t.Errorf("problems after it can be decoded: %v", problems)
	}
	s.mu.Lock()
	s.unserve(kindNamed("Gateway"))
	s.mu.Unlock()
	c.lookAgain()
	testkit.Eventually(t, "the CRD is there, and the kind is not served", unread(true))
	s.remove(crdGroup+"/customresourcedefinitions", "", "gateways."+gatewayGroup)
	testkit.Eventually(t, "the CRD is gone", unread(false))
}
