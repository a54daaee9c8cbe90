package translate_test

import (
	"fmt"
	"testing"

	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/moongate-dev/moongate/internal/kind"
	"github.com/moongate-dev/moongate/internal/translate"
)

// TestDefaultAddresses is about a Gateway without spec.addresses.
func TestDefaultAddresses(t *testing.T) {
	var many []string
	for i := range 20 {
		many = append(many, fmt.Sprintf("192.0.2.%d", i))
	}
	for _, c := range []struct {
		addresses  []string
		shown      int
		first      gwv1.AddressType
		programmed string
	}{
		{nil, 0, "", "AddressNotAssigned"},
		{[]string{"192.0.2.1", "2001:db8::1"}, 2, gwv1.IPAddressType, "Programmed"},
		{[]string{"gw.example.com"}, 1, gwv1.HostnameAddressType, "Programmed"},
		{many, 16, gwv1.IPAddressType, "Programmed"}, // the most that the API allows
	} {
		tr := translate.New(translate.Options{ControllerName: controllerName, DefaultAddresses: c.addresses})
		gc := &gwv1.GatewayClass{Spec: gwv1.GatewayClassSpec{ControllerName: controllerName}}
		gc.Name = "moongate"
		tr.Upsert(gc)
		tr.Upsert(crowdGateway(1))
		for _, s := range tr.Commit().Statuses {
			gw, is := s.Status.(*gwv1.GatewayStatus)
			if !is {
				continue
			}
			if len(gw.Addresses) != c.shown || c.shown > 0 && *gw.Addresses[0].Type != c.first || gw.Conditions[1].Reason != c.programmed {
				t.Errorf("%v: addresses %v, %v", c.addresses, gw.Addresses, gw.Conditions[1])
			}
		}
	}
}

// TestRelationEnds checks that a status is withdrawn once the object is not ours.
func TestRelationEnds(t *testing.T) {
	w := newWorld()
	gc := &gwv1.GatewayClass{Spec: gwv1.GatewayClassSpec{ControllerName: controllerName}}
	gc.Name = "moongate"
	w.Upsert(gc)
	w.Upsert(crowdGateway(1))
	w.Upsert(crowdRoute(1, "/"))
	w.commit(t)
	foreign := gc.DeepCopy()
	foreign.Spec.ControllerName = "example.com/controller"
	w.Upsert(foreign)
	r := w.commit(t)
	if len(r.Statuses) != 3 || len(w.config) != 0 {
		t.Fatalf("%d statuses, want 3; config %v", len(r.Statuses), w.config)
	}
	for _, s := range r.Statuses {
		if s.Status != nil || s.Generation != 0 {
			t.Errorf("%v: status %v, want none", s.Object, s.Status)
		}
	}
}

// TestReplaced: another object with the same name has its own status, even if it is the same.
func TestReplaced(t *testing.T) {
	w := newWorld()
	gc := &gwv1.GatewayClass{Spec: gwv1.GatewayClassSpec{ControllerName: controllerName}}
	gc.Name = "moongate"
	w.Upsert(gc)
	gw, route := crowdGateway(1), crowdRoute(1, "/")
	gw.UID, route.UID = "1", "2"
	w.Upsert(gw)
	w.Upsert(route)
	w.commit(t)
	other := route.DeepCopy()
	other.UID = "3"
	w.Delete(translate.KindHTTPRoute, route.Namespace, route.Name)
	w.Upsert(other)
	r := w.commit(t)
	if len(r.Statuses) != 1 || r.Statuses[0].Object != kind.KeyOf(route) || r.Statuses[0].UID != "3" || r.Statuses[0].Generation != 1 || r.Statuses[0].Status == nil {
		t.Errorf("a route was replaced: %+v", r.Statuses)
	}
	recreated := gw.DeepCopy()
	recreated.UID = "4"
	w.Upsert(recreated)
	r = w.commit(t)
	if len(r.Statuses) != 1 || r.Statuses[0].Object != kind.KeyOf(gw) || r.Statuses[0].UID != "4" {
		t.Errorf("a Gateway was replaced: %+v", r.Statuses)
	}
	edited := other.DeepCopy()
	edited.Labels = map[string]string{"a": "b"}
	w.Upsert(edited)
	if r := w.commit(t); len(r.Statuses) != 0 {
		t.Errorf("a label changed: %+v", r.Statuses)
	}
}

// TestFaultClears checks that a fact of run time can be taken back.
func TestFaultClears(t *testing.T) {
	w := newWorld()
	for _, i := range readGolden(t, "testdata/listeners/port-unavailable.yaml").inputs {
		w.upsert(i)
	}
	w.commit(t)
	before := w.print(t)
	w.setListenerFault("default/gw/http", nil)
	if r := w.commit(t); !r.Config.Empty() || len(r.Statuses) != 1 {
		t.Errorf("config %v, statuses %v; want a change of the Gateway's status only", r.Config, r.Statuses)
	}
	if w.print(t) == before {
		t.Error("nothing changed")
	}
}
