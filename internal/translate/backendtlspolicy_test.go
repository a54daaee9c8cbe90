package translate_test

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/kind"
	"github.com/moongate-dev/moongate/internal/translate"
)

// tlsPolicies has some routes, of which one leads to a Service with a policy and a ConfigMap.
func tlsPolicies(t *testing.T) (w *world, configMap func(file string) *corev1.ConfigMap) {
	t.Helper()
	w = newWorld()
	gc := &gwv1.GatewayClass{ObjectMeta: metav1.ObjectMeta{Name: "moongate"}, Spec: gwv1.GatewayClassSpec{ControllerName: controllerName}}
	w.Upsert(gc)
	w.Upsert(crowdGateway(1))
	for i := range 50 {
		w.Upsert(crowdRoute(i, "/"))
		w.Upsert(crowdService(i))
		w.Upsert(crowdSlice(i, "10.0.0.1"))
	}
	configMap = func(file string) *corev1.ConfigMap {
		text, err := os.ReadFile("testdata/pem/" + file)
		if err != nil {
			t.Fatal(err)
		}
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "ca"}, Data: map[string]string{"ca.crt": string(text)}}
	}
	p := &gwv1.BackendTLSPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "policy"}}
	p.Spec.TargetRefs = []gwv1.LocalPolicyTargetReferenceWithSectionName{{LocalPolicyTargetReference: gwv1.LocalPolicyTargetReference{Kind: "Service", Name: "s7"}}}
	p.Spec.Validation = gwv1.BackendTLSPolicyValidation{Hostname: "web.example.com", CACertificateRefs: []gwv1.LocalObjectReference{{Kind: "ConfigMap", Name: "ca"}}}
	w.Upsert(p)
	w.Upsert(configMap("example.crt"))
	w.commit(t)
	return w, configMap
}

// TestAuthoritiesChangeTheBackendAlone: new authorities are an update of one Backend, and no route is looked at, as long as there are any.
func TestAuthoritiesChangeTheBackendAlone(t *testing.T) {
	w, configMap := tlsPolicies(t)
	key := config.ID{Kind: config.KindBackend, Key: "Service/default/s7/80"}
	before := w.config[key].GetBackend().GetTls()
	if before.GetServerName() != "web.example.com" || len(before.GetCaPem()) == 0 {
		t.Fatalf("before: %v", w.config[key])
	}
	w.Upsert(configMap("other.crt"))
	r := w.commit(t)
	if want := map[string]int{"authorities": 1, "BackendTLSPolicy": 1, "refused BackendTLSPolicy": 1, "backend": 1, "BackendTLSPolicy status": 1, "endpoints": 1}; !maps.Equal(r.Stats.RunsByName, want) {
		t.Errorf("ran %v, want %v", r.Stats.RunsByName, want)
	}
	if len(r.Config.Upserts) != 1 || r.Config.Upserts[0].ID() != key || len(r.Statuses) != 0 {
		t.Errorf("changed %v, statuses %v", r.Config.Upserts, r.Statuses)
	}

	// ConfigMaps that no policy refers to are not parsed.
	other := configMap("example.crt")
	other.Name = "other"
	w.Upsert(other)
	if r = w.commit(t); r.Stats.Runs != 1 || !r.Config.Empty() {
		t.Errorf("another ConfigMap: ran %v", r.Stats.RunsByName)
	}

	w.Delete(translate.Kind(kind.ConfigMap.Name), "default", "ca")
	r = w.commit(t)
	if !slices.Contains(r.Config.Removals, key) || r.Stats.RunsByName["route"] != 1 {
		t.Errorf("without the ConfigMap: removed %v, ran %v", r.Config.Removals, r.Stats.RunsByName)
	}
}

// TestSixteenAncestors: of more Gateways the oldest 16 are named, and a new one changes nothing.
func TestSixteenAncestors(t *testing.T) {
	w, _ := tlsPolicies(t)
	named := func() (all []string) {
		s := w.statuses[kind.ObjectKey{Group: gwv1.GroupName, Kind: "BackendTLSPolicy", Namespace: "default", Name: "policy"}]
		for _, a := range s.Status.(*gwv1.PolicyStatus).Ancestors {
			all = append(all, string(a.AncestorRef.Name))
		}
		return all
	}
	r := &gwv1.HTTPRoute{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "many"}}
	port := gwv1.PortNumber(80)
	backend := gwv1.HTTPBackendRef{BackendRef: gwv1.BackendRef{BackendObjectReference: gwv1.BackendObjectReference{Name: "s7", Port: &port}}}
	r.Spec.Rules = []gwv1.HTTPRouteRule{{BackendRefs: []gwv1.HTTPBackendRef{backend}}}
	add := func(name string, year int) {
		gw := &gwv1.Gateway{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
		gw.CreationTimestamp = metav1.Date(year, 1, 1, 0, 0, 0, 0, time.UTC)
		gw.Spec.GatewayClassName = "moongate"
		gw.Spec.Listeners = []gwv1.Listener{{Name: "http", Port: gwv1.PortNumber(1000 + year), Protocol: gwv1.HTTPProtocolType}}
		w.Upsert(gw)
		r = r.DeepCopy()
		r.Spec.ParentRefs = append(r.Spec.ParentRefs, gwv1.ParentReference{Name: gwv1.ObjectName(name)})
		w.Upsert(r)
		w.commit(t)
	}
	for i := range 15 {
		add(fmt.Sprintf("z-%02d", i), 2000+i)
	}
	full := named()
	if len(full) != 16 {
		t.Fatalf("named %v", full)
	}
	add("a-young", 2025)
	if got := named(); !slices.Equal(got, full) {
		t.Errorf("after a young one: %v, want %v", got, full)
	}
	add("b-old", 1990)
	if got := named(); len(got) != 16 || !slices.Contains(got, "b-old") {
		t.Errorf("after an old one: %v", got)
	}
}

// TestRouteBesideManyToOneService: a route to a Service with a policy is one among thousands of which the policy's status reads none.
func TestRouteBesideManyToOneService(t *testing.T) {
	w, _ := tlsPolicies(t)
	to := func(i int, path string) *gwv1.HTTPRoute {
		r := crowdRoute(i, path)
		r.Spec.Rules[0].BackendRefs[0].Name = "s7"
		return r
	}
	for i := range 2000 {
		w.Upsert(to(i, "/"))
	}
	w.commit(t)
	for what, do := range map[string]func(){
		"a new route":          func() { w.Upsert(to(2000, "/")) },
		"a route that differs": func() { w.Upsert(to(7, "/new")) },
		"a route that goes":    func() { w.Delete(translate.KindHTTPRoute, "default", "r8") },
	} {
		do()
		if r := w.commit(t); r.Stats.RunsByName["BackendTLSPolicy status"] != 0 || r.Stats.Reads > 50 {
			t.Errorf("%s: ran %v, read %v", what, r.Stats.RunsByName, r.Stats.ReadsByName)
		}
	}
	r := w.Commit()
	w.Delete(translate.KindGateway, "default", "gw")
	if r = w.commit(t); r.Stats.RunsByName["BackendTLSPolicy status"] != 1 || len(w.statuses) != 1 {
		t.Errorf("without the Gateway: ran %v, statuses %v", r.Stats.RunsByName, w.statuses)
	}
}
