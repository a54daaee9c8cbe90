package translate

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/moongate-dev/moongate/internal/kind"
)

// acceptedOf is the condition Accepted of an object among the changes, by its name.
func acceptedOf(t *testing.T, changes []StatusChange, objectName string) *metav1.Condition {
	t.Helper()
	for _, c := range changes {
		if c.Object.Name != objectName {
			continue
		}
		var list []metav1.Condition
		switch s := c.Status.(type) {
		case *gwv1.GatewayStatus:
			list = s.Conditions
		case *gwv1.RouteStatus:
			if len(s.Parents) == 1 {
				list = s.Parents[0].Conditions
			}
		}
		for i := range list {
			if list[i].Type == "Accepted" {
				return &list[i]
			}
		}
	}
	return nil
}

// TestPanicInTheFirstCommit has translation panic before anything was made of a Gateway, on its own behalf or its class's: it has no
// spec, and that does not mean that it is not ours.
func TestPanicInTheFirstCommit(t *testing.T) {
	for _, bad := range []string{"gw", "moongate"} {
		tr := New(Options{ControllerName: "moongate.dev/gateway-controller", Cluster: true, Panicked: func(string, string, any) {}})
		tr.options.defect = func(n name) {
			if n.Name == bad {
				panic("a defect")
			}
		}
		class := &gwv1.GatewayClass{ObjectMeta: metav1.ObjectMeta{Name: "moongate"}, Spec: gwv1.GatewayClassSpec{ControllerName: "moongate.dev/gateway-controller"}}
		key := func(n string) kind.ObjectKey {
			return kind.ObjectKey{Group: gwv1.GroupName, Kind: string(KindGateway), Namespace: "default", Name: n}
		}
		tr.Upsert(class)
		for n, className := range map[string]string{"gw": "moongate", "foreign": "foreign"} {
			tr.Upsert(&gwv1.Gateway{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: n}, Spec: gwv1.GatewaySpec{GatewayClassName: gwv1.ObjectName(className)}})
		}
		if r := tr.Commit(); len(r.ProxySpecs) != 0 {
			t.Errorf("%s: specs %v", bad, r.ProxySpecs)
		}
		for n, want := range map[string]bool{"gw": true, "foreign": false, "absent": false} {
			if got := tr.Failing(key(n)); got != want {
				t.Errorf("%s panics: Gateway %s is failing: %v", bad, n, got)
			}
		}
		if got := tr.FailingOf("moongate"); got != (bad == "gw") || tr.FailingOf("foreign") {
			t.Errorf("%s panics: a Gateway of the class is failing: %v", bad, got)
		}
		bad = ""
		tr.Upsert(&gwv1.Gateway{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "gw", Generation: 2}, Spec: gwv1.GatewaySpec{GatewayClassName: "moongate"}})
		class = class.DeepCopy()
		class.Generation = 2
		tr.Upsert(class)
		if r := tr.Commit(); len(r.ProxySpecs) != 1 || tr.Failing(key("gw")) {
			t.Errorf("corrected: specs %v, failing %v", r.ProxySpecs, tr.Failing(key("gw")))
		}
	}
}

// TestPanic has translation panic on behalf of a route and of a Gateway, new and edited: what was made of it stays, its status says
// so, others are served, and the next edit recovers it.
func TestPanic(t *testing.T) {
	var said []string
	bad := map[string]bool{}
	tr := New(Options{ControllerName: "moongate.dev/gateway-controller", DefaultAddresses: []string{"192.0.2.1"},
		Panicked: func(function, key string, v any) { said = append(said, function+" "+key) }})
	tr.options.defect = func(n name) {
		if bad[n.Name] {
			panic("a defect")
		}
	}
	class := &gwv1.GatewayClass{ObjectMeta: metav1.ObjectMeta{Name: "moongate"}, Spec: gwv1.GatewayClassSpec{ControllerName: "moongate.dev/gateway-controller"}}
	gateway := func(name string, generation int64, port int32) *gwv1.Gateway {
		return &gwv1.Gateway{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Generation: generation},
			Spec: gwv1.GatewaySpec{GatewayClassName: "moongate", Listeners: []gwv1.Listener{{Name: "http", Port: gwv1.PortNumber(port), Protocol: gwv1.HTTPProtocolType}}}}
	}
	route := func(name string, generation int64, hostname string) *gwv1.HTTPRoute {
		r := &gwv1.HTTPRoute{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Generation: generation}}
		r.Spec.ParentRefs = []gwv1.ParentReference{{Name: "gw"}}
		r.Spec.Hostnames = []gwv1.Hostname{gwv1.Hostname(hostname)}
		code := 302
		r.Spec.Rules = []gwv1.HTTPRouteRule{{Filters: []gwv1.HTTPRouteFilter{{Type: gwv1.HTTPRouteFilterRequestRedirect, RequestRedirect: &gwv1.HTTPRequestRedirectFilter{StatusCode: &code}}}}}
		return r
	}
	expect := func(r Result, objectName string, status metav1.ConditionStatus, reason string) {
		t.Helper()
		c := acceptedOf(t, r.Statuses, objectName)
		if c == nil || c.Status != status || c.Reason != reason {
			t.Errorf("%s: %+v, want %s %s", objectName, c, status, reason)
		}
	}

	tr.Upsert(class)
	tr.Upsert(gateway("gw", 1, 80))
	tr.Upsert(route("good", 1, "good.test"))
	tr.Upsert(route("edited", 1, "edited.test"))
	tr.Upsert(route("fresh", 1, "fresh.test"))
	bad["fresh"] = true
	r := tr.Commit()
	expect(r, "fresh", metav1.ConditionFalse, ReasonInternalError)
	expect(r, "good", metav1.ConditionTrue, "Accepted")
	expect(r, "edited", metav1.ConditionTrue, "Accepted")
	if len(said) != 1 || said[0] != "route HTTPRoute default/fresh" {
		t.Errorf("told of %v", said)
	}
	if _, served := tr.routes.configs.Get(routePart{Route: kindName{KindHTTPRoute, name{"default", "fresh"}}}); served {
		t.Error("a route is served of which nothing was understood")
	}

	bad["edited"], bad["gw"] = true, true
	tr.Upsert(route("edited", 2, "edited.test"))
	tr.Upsert(route("good", 2, "better.test"))
	tr.Upsert(gateway("gw", 2, 81))
	r = tr.Commit()
	expect(r, "edited", metav1.ConditionTrue, ReasonInternalError)
	expect(r, "gw", metav1.ConditionTrue, ReasonInternalError)
	expect(r, "good", metav1.ConditionTrue, "Accepted")
	if c := acceptedOf(t, r.Statuses, "edited"); c == nil || !strings.Contains(c.Message, "stays in force") {
		t.Errorf("%+v", c)
	}
	if _, served := tr.routes.configs.Get(routePart{Route: kindName{KindHTTPRoute, name{"default", "edited"}}}); !served {
		t.Error("the route is not served any more")
	}
	for _, id := range r.Config.Removals {
		t.Errorf("%v is removed", id)
	}
	all := Result{Statuses: tr.Statuses()}
	expect(all, "fresh", metav1.ConditionFalse, ReasonInternalError)
	expect(all, "edited", metav1.ConditionTrue, ReasonInternalError)
	expect(all, "good", metav1.ConditionTrue, "Accepted")
	if again := tr.Commit(); len(again.Statuses) != 0 || !again.Config.Empty() {
		t.Errorf("without a change: %v", again.Statuses)
	}

	clear(bad)
	tr.Upsert(route("edited", 3, "edited.test"))
	tr.Upsert(route("fresh", 3, "fresh.test"))
	tr.Upsert(gateway("gw", 3, 81))
	r = tr.Commit()
	for _, n := range []string{"edited", "fresh", "gw"} {
		expect(r, n, metav1.ConditionTrue, "Accepted")
	}
	if _, served := tr.routes.configs.Get(routePart{Route: kindName{KindHTTPRoute, name{"default", "fresh"}}}); !served {
		t.Error("the route is not served")
	}

	bad["fresh"] = true
	tr.Upsert(route("fresh", 4, "fresher.test"))
	tr.Commit()
	tr.Delete(KindHTTPRoute, "default", "fresh")
	r = tr.Commit()
	if _, served := tr.routes.configs.Get(routePart{Route: kindName{KindHTTPRoute, name{"default", "fresh"}}}); served || len(tr.failed) != 0 {
		t.Errorf("the route that is gone is served: %v; failing: %v", served, tr.failed)
	}
}
