package translate_test

import (
	"reflect"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"
	apisx "sigs.k8s.io/gateway-api/apisx/v1alpha1"

	gwx "github.com/moongate-dev/moongate/api/gatewayx/v1alpha1"
	"github.com/moongate-dev/moongate/internal/translate"
)

// TestEndpointSelectors: in a cluster it is told what pods XBackends select: all in namespaces with a route that a managed Gateway lets in, so that their endpoints are
// known before somebody names them, and none in others, which may be another implementation's.
func TestEndpointSelectors(t *testing.T) {
	w := newWorldWith(clusterOptions)
	w.Upsert(ownClass("moongate"))
	w.Upsert(crowdGateway(1))
	x := &apisx.XBackend{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "x", UID: "one"}}
	x.Spec = apisx.BackendSpec{Type: apisx.BackendTypeEndpointSelector, Port: apisx.BackendPort{Number: 8080},
		EndpointSelector: &apisx.EndpointSelectorBackend{LabelSelector: apisx.LabelSelector{MatchLabels: map[gwv1.LabelKey]gwv1.LabelValue{"app": "x"}}}}
	elsewhere := x.DeepCopy()
	elsewhere.Namespace = "elsewhere"
	ref := gwv1.BackendObjectReference{Group: new(gwv1.Group(gwx.GroupName)), Kind: new(gwv1.Kind("XBackend")), Name: "x"}
	route := func(namespace, gateway, n string) *gwv1.HTTPRoute {
		r := &gwv1.HTTPRoute{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: n}}
		r.Spec.ParentRefs = []gwv1.ParentReference{{Namespace: new(gwv1.Namespace("default")), Name: gwv1.ObjectName(gateway)}}
		r.Spec.Rules = []gwv1.HTTPRouteRule{{BackendRefs: []gwv1.HTTPBackendRef{{BackendRef: gwv1.BackendRef{BackendObjectReference: ref}}}}}
		return r
	}
	told := func(what string, want ...translate.SelectorChange) {
		t.Helper()
		if got := w.commit(t).Selectors; !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, want %+v", what, got, want)
		}
	}
	is := func(s *translate.EndpointSelector) translate.SelectorChange {
		return translate.SelectorChange{Namespace: "default", Name: "x", Selector: s}
	}
	edit := func(change func(*apisx.XBackend)) {
		x = x.DeepCopy()
		change(x)
		w.Upsert(x)
	}
	w.Upsert(x)
	w.Upsert(elsewhere)
	told("no route")
	w.Upsert(route("default", "others", "other"))
	told("a route of another implementation names it")
	w.Upsert(route("elsewhere", "gw", "refused"))
	told("the Gateway takes no routes of the namespace")
	plain := crowdRoute(1, "/")
	w.Upsert(plain)
	told("a route in the namespace", is(&translate.EndpointSelector{UID: "one", Port: 8080, Labels: map[string]string{"app": "x"}}))
	w.Upsert(route("default", "gw", "r"))
	told("a route names it")
	w.Delete(translate.KindHTTPRoute, "default", plain.Name)
	told("it alone is there")
	edit(func(x *apisx.XBackend) { x.Spec.Port.Number = 9090; x.Annotations = map[string]string{"a": "b"} })
	told("another port", is(&translate.EndpointSelector{UID: "one", Port: 9090, Labels: map[string]string{"app": "x"}}))
	edit(func(x *apisx.XBackend) { x.Status.Ancestors = []apisx.BackendAncestorStatus{{}} })
	told("its own status")
	edit(func(x *apisx.XBackend) { x.Spec.Protocol = new(apisx.BackendProtocol("SPDY")) })
	told("it cannot be carried out")
	edit(func(x *apisx.XBackend) {
		x.Spec = apisx.BackendSpec{Type: apisx.BackendTypeExternalHostname, Port: apisx.BackendPort{Number: 80}, ExternalHostname: &apisx.ExternalHostnameBackend{Hostname: "a.example.com"}}
	})
	told("it is a host", is(&translate.EndpointSelector{UID: "one", Port: 80}))
	w.Delete(translate.KindHTTPRoute, "default", "r")
	told("no route any more", is(nil))
}
