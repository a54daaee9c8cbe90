package listener

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"
)

// TestOfSet: references of a ListenerSet are to its own namespace, and whether its listeners conflict is not judged.
func TestOfSet(t *testing.T) {
	secure := &gwv1.ListenerTLSConfig{CertificateRefs: []gwv1.SecretObjectReference{{Name: "cert"}}}
	set := &gwv1.ListenerSet{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "set"}, Spec: gwv1.ListenerSetSpec{Listeners: []gwv1.ListenerEntry{
		{Name: "https", Port: 443, Protocol: gwv1.HTTPSProtocolType, TLS: secure},
		{Name: "same", Port: 443, Protocol: gwv1.HTTPSProtocolType, TLS: secure},
	}}}
	list := OfSet(set, Options{Routes: func(gwv1.ProtocolType, bool) []gwv1.Kind { return []gwv1.Kind{"HTTPRoute"} }})
	if len(list) != 2 {
		t.Fatalf("got %+v", list)
	}
	for _, l := range list {
		if !l.Valid() || len(l.Certificates) != 1 || l.Certificates[0].Secret != (types.NamespacedName{Namespace: "team", Name: "cert"}) {
			t.Errorf("listener %s: %v, %v, certificates %v", l.Name, l.Invalid, l.Conflict, l.Certificates)
		}
	}
}

// TestPortsOfSetsAreBounded: listeners of ListenerSets add ports up to the bound, on which others still are.
func TestPortsOfSetsAreBounded(t *testing.T) {
	var ports Ports
	for i := range int32(MaxPorts - 2) {
		ports.Reserve(&Listener{Port: 1000 + i, Protocol: gwv1.HTTPProtocolType})
	}
	ports.Reserve(&Listener{Port: 1000, Protocol: gwv1.HTTPProtocolType, Hostname: "own.test"}) // which adds none
	add := func(port int32, hostname string) *Listener {
		l := &Listener{Field: "spec.listeners[0]", Port: port, Protocol: gwv1.HTTPProtocolType, Hostname: hostname}
		if reason := ports.ClaimOfSet(l); reason != "" {
			return l.Lost(reason)
		}
		return l
	}
	for _, l := range []*Listener{add(1, ""), add(2, ""), add(1000, "set.test"), add(2, "set.test")} {
		if !l.Valid() {
			t.Errorf("port %d, hostname %q: %v, %v", l.Port, l.Hostname, l.Invalid, l.Conflict)
		}
	}
	if l := add(3, ""); l.Invalid == nil || l.Invalid.Reason != "TooManyListeners" || l.Invalid.Field != "spec.listeners[0].port" || l.Conflict != nil {
		t.Errorf("one port more: %v, %v", l.Invalid, l.Conflict)
	}
	if l := add(2, "set.test"); l.Conflict == nil {
		t.Error("a hostname that is taken is had twice")
	}
	// The Gateway's own are not bounded here: the API server bounds them.
	ports.Reserve(&Listener{Port: 4, Protocol: gwv1.HTTPProtocolType})
	if l := add(4, "set.test"); !l.Valid() {
		t.Errorf("on a port of the Gateway's own: %v", l.Invalid)
	}
}

// TestAgeOfSet: the listeners of a ListenerSet are as young as the younger of both, so that none takes a port from what was there before.
func TestAgeOfSet(t *testing.T) {
	early, late := metav1.Unix(100, 0), metav1.Unix(200, 0)
	for _, c := range []struct{ set, gateway, want metav1.Time }{{early, late, late}, {late, early, late}, {metav1.Time{}, late, late}, {late, metav1.Time{}, late}} {
		set := &gwv1.ListenerSet{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: c.set}, Spec: gwv1.ListenerSetSpec{
			Listeners: []gwv1.ListenerEntry{{Name: "http", Port: 80, Protocol: gwv1.HTTPProtocolType}}}}
		var created int64
		if !c.gateway.IsZero() {
			created = c.gateway.UnixNano()
		}
		list := OfSet(set, Options{Created: created, Routes: func(gwv1.ProtocolType, bool) []gwv1.Kind { return []gwv1.Kind{"HTTPRoute"} }})
		if got := list[0].Created; got != c.want.UnixNano() {
			t.Errorf("a set of %v at a Gateway of %v counts as of %v", c.set, c.gateway, got)
		}
	}
}
