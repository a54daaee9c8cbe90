package translate_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/moongate-dev/moongate/internal/config"
)

// TestPrecedenceByText: among objects of one age the first by the text "{namespace}/{name}" takes precedence, as in the proxy: team-a/db, not team/db.
func TestPrecedenceByText(t *testing.T) {
	all := gwv1.NamespacesFromAll
	gateway := func(namespace, name string, protocol gwv1.ProtocolType) *gwv1.Gateway {
		gw := &gwv1.Gateway{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
		gw.Spec.GatewayClassName = "moongate"
		gw.Spec.AllowedListeners = &gwv1.AllowedListeners{Namespaces: &gwv1.ListenerNamespaces{From: &all}}
		gw.Spec.Listeners = []gwv1.Listener{{Name: "own", Port: 9000, Protocol: protocol, AllowedRoutes: &gwv1.AllowedRoutes{Namespaces: &gwv1.RouteNamespaces{From: &all}}}}
		return gw
	}
	for _, test := range []struct {
		name string
		add  func(w *world, namespace string)
		kind config.Kind
	}{
		{"Gateways on one port", func(w *world, namespace string) { w.Upsert(gateway(namespace, "db", gwv1.HTTPProtocolType)) }, config.KindListener},
		{"ListenerSets of one Gateway", func(w *world, namespace string) {
			w.Upsert(gateway("default", "gw", gwv1.HTTPProtocolType))
			set := &gwv1.ListenerSet{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "db"}}
			set.Spec.ParentRef = gwv1.ParentGatewayReference{Name: "gw", Namespace: new(gwv1.Namespace("default"))}
			set.Spec.Listeners = []gwv1.ListenerEntry{{Name: "l", Port: 9001, Protocol: gwv1.HTTPProtocolType}}
			w.Upsert(set)
		}, config.KindListener},
		{"TCPRoutes of one listener", func(w *world, namespace string) {
			w.Upsert(gateway("default", "gw", gwv1.TCPProtocolType))
			r := &gwv1.TCPRoute{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "db"}}
			r.Spec.ParentRefs = []gwv1.ParentReference{{Name: "gw", Namespace: new(gwv1.Namespace("default"))}}
			r.Spec.Rules = []gwv1.TCPRouteRule{{BackendRefs: []gwv1.BackendRef{{BackendObjectReference: gwv1.BackendObjectReference{Name: "db", Port: new(gwv1.PortNumber(80))}}}}}
			w.Upsert(r)
		}, config.KindL4Route},
	} {
		w := newWorld()
		w.Upsert(ownClass("moongate"))
		for _, namespace := range []string{"team", "team-a"} {
			test.add(w, namespace)
		}
		w.commit(t)
		var served []string
		for id := range w.config {
			if id.Kind == test.kind && strings.Contains(id.Key, "db") {
				served = append(served, id.Key)
			}
		}
		if len(served) != 1 || !strings.Contains(served[0], "team-a/db") {
			t.Errorf("%s: served are %q, want that of team-a", test.name, served)
		}
	}
}

// TestDefaultGatewaysByText: of more default Gateways than are looked at those go first that precede by the text "{namespace}/{name}".
func TestDefaultGatewaysByText(t *testing.T) {
	w := newWorld()
	w.Upsert(ownClass("moongate"))
	add := func(namespace, name string, port int) {
		gw := &gwv1.Gateway{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
		gw.Spec = gwv1.GatewaySpec{GatewayClassName: "moongate", DefaultScope: gwv1.GatewayDefaultScopeAll,
			Listeners: []gwv1.Listener{{Name: "http", Port: gwv1.PortNumber(port), Protocol: gwv1.HTTPProtocolType}}}
		w.Upsert(gw)
	}
	for i := range 64 {
		add("team", fmt.Sprintf("gw-%02d", i), 1000+i)
	}
	add("team-a", "gw", 2000)
	r := &gwv1.HTTPRoute{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "r"}}
	r.Spec = gwv1.HTTPRouteSpec{CommonRouteSpec: gwv1.CommonRouteSpec{UseDefaultGateways: gwv1.GatewayDefaultScopeAll}, Rules: []gwv1.HTTPRouteRule{{}}}
	w.Upsert(r)
	w.commit(t)
	attachments := w.config[config.ID{Kind: config.KindRoute, Key: "HTTPRoute/team-a/r"}].GetRoute().GetAttachments()
	if !slices.ContainsFunc(attachments, func(a *config.Attachment) bool { return a.Listener == "team-a/gw/http" }) {
		t.Errorf("attached to %v, want Gateway team-a/gw", attachments)
	}
}
