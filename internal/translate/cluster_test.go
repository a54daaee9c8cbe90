package translate_test

import (
	"reflect"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/moongate-dev/moongate/api/v1alpha1"
	"github.com/moongate-dev/moongate/internal/kind"
	"github.com/moongate-dev/moongate/internal/translate"
)

// clusterWorld is a served Gateway with one HTTPS listener for each Secret, of namespace
// default unless it is "other".
func clusterWorld(t *testing.T, secrets ...string) *world {
	t.Helper()
	w := newWorldWith(clusterOptions)
	w.Upsert(ownClass("moongate"))
	w.Upsert(secretGateway(secrets...))
	w.SetInfrastructure("default", "gw", reachedAt("10.97.0.5"))
	w.commit(t)
	return w
}

func ownClass(name string) *gwv1.GatewayClass {
	gc := &gwv1.GatewayClass{Spec: gwv1.GatewayClassSpec{ControllerName: controllerName}}
	gc.Name = name
	return gc
}

func secretGateway(secrets ...string) *gwv1.Gateway {
	gw := crowdGateway(1)
	for i, s := range secrets {
		ref := gwv1.SecretObjectReference{Name: gwv1.ObjectName(s)}
		if s == "other" {
			namespace := gwv1.Namespace("elsewhere")
			ref.Namespace = &namespace
		}
		gw.Spec.Listeners = append(gw.Spec.Listeners, gwv1.Listener{Name: gwv1.SectionName("https-" + string(rune('a'+i))), Port: int32(8443 + i),
			Protocol: gwv1.HTTPSProtocolType, TLS: &gwv1.ListenerTLSConfig{CertificateRefs: []gwv1.SecretObjectReference{ref}}})
	}
	return gw
}

func reachedAt(addresses ...string) *translate.Infrastructure {
	i := &translate.Infrastructure{Ready: true}
	for _, a := range addresses {
		i.Addresses = append(i.Addresses, gwv1.GatewayStatusAddress{Value: a})
	}
	return i
}

func secretRequest(namespace, name string, needed bool) translate.SecretRequest {
	return translate.SecretRequest{Object: kind.ObjectKey{Kind: "Secret", Namespace: namespace, Name: name}, Needed: needed}
}

// TestSecretRequests follows the Secrets of a Gateway whose listeners come and go.
func TestSecretRequests(t *testing.T) {
	w := newWorldWith(clusterOptions)
	w.Upsert(ownClass("moongate"))
	grant := &gwv1.ReferenceGrant{Spec: gwv1.ReferenceGrantSpec{
		From: []gwv1.ReferenceGrantFrom{{Group: gwv1.GroupName, Kind: "Gateway", Namespace: "default"}},
		To:   []gwv1.ReferenceGrantTo{{Kind: "Secret"}}}}
	grant.Namespace, grant.Name = "elsewhere", "grant"
	secret := &corev1.Secret{Type: corev1.SecretTypeTLS}
	secret.Namespace, secret.Name = "default", "one"
	for _, c := range []struct {
		what string
		do   func()
		want []translate.SecretRequest
	}{
		{"a Gateway without certificates", func() { w.Upsert(secretGateway()) }, nil},
		{"two listeners of one Secret, and one that no grant permits", func() { w.Upsert(secretGateway("one", "one", "other")) },
			[]translate.SecretRequest{secretRequest("default", "one", true)}},
		{"the Secret itself", func() { w.Upsert(secret) }, nil},
		{"the grant", func() { w.Upsert(grant) }, []translate.SecretRequest{secretRequest("elsewhere", "other", true)}},
		{"one of the two listeners is gone", func() { w.Upsert(secretGateway("one", "other")) }, nil},
		{"so is the other one, a third came", func() { w.Upsert(secretGateway("two", "other")) },
			[]translate.SecretRequest{secretRequest("default", "one", false), secretRequest("default", "two", true)}},
		{"the grant is gone", func() { w.Delete(translate.KindReferenceGrant, "elsewhere", "grant") },
			[]translate.SecretRequest{secretRequest("elsewhere", "other", false)}},
		{"the class is foreign", func() {
			gc := ownClass("moongate")
			gc.Spec.ControllerName = "example.com/controller"
			w.Upsert(gc)
		}, []translate.SecretRequest{secretRequest("default", "two", false)}},
	} {
		c.do()
		if r := w.commit(t); !reflect.DeepEqual(r.SecretRequests, c.want) {
			t.Errorf("%s: requests %v, want %v", c.what, r.SecretRequests, c.want)
		}
	}
}

// TestGatewayEnds is about every way in which a Gateway stops to be ours.
func TestGatewayEnds(t *testing.T) {
	for what, end := range map[string]func(w *world){
		"deleted":         func(w *world) { w.Delete(translate.KindGateway, "default", "gw") },
		"class deleted":   func(w *world) { w.Delete(translate.KindGatewayClass, "", "moongate") },
		"class is other":  func(w *world) { gw := secretGateway(); gw.Spec.GatewayClassName = "other"; w.Upsert(gw) },
		"class elsewhere": func(w *world) { gc := ownClass("moongate"); gc.Spec.ControllerName = "example.com/x"; w.Upsert(gc) },
	} {
		w := clusterWorld(t, "one")
		if len(w.specs) != 1 || len(w.needed) != 1 || len(w.config) != 3 {
			t.Fatalf("before: specs %v, requests %v, config %v", w.specs, w.needed, w.config)
		}
		end(w)
		r := w.commit(t)
		if len(r.ProxySpecs) != 1 || r.ProxySpecs[0] != (translate.ProxySpecChange{Namespace: "default", Name: "gw"}) {
			t.Errorf("%s: specs %v, want the end of one", what, r.ProxySpecs)
		}
		if len(w.needed) != 0 || len(w.config) != 0 {
			t.Errorf("%s: requests %v and config %v are left", what, w.needed, w.config)
		}
		told := false
		for _, s := range r.Statuses {
			told = told || s.Object.Kind == "Gateway" && s.Status == nil
		}
		if !told {
			t.Errorf("%s: the status is not withdrawn: %v", what, r.Statuses)
		}
	}
}

// TestDeletionHolds checks that what runs for a Gateway is let alone while the Gateway waits for its
// dependents to be deleted: made again each time, they would never be gone.
func TestDeletionHolds(t *testing.T) {
	w := clusterWorld(t, "one")
	gw := secretGateway("one")
	gw.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
	w.Upsert(gw)
	r := w.commit(t)
	if len(r.ProxySpecs) != 1 || r.ProxySpecs[0].Spec == nil || !r.ProxySpecs[0].Spec.Paused || len(r.ProxySpecs[0].Spec.Ports) == 0 {
		t.Errorf("specs %v, want a paused one", r.ProxySpecs)
	}
	if !r.Config.Empty() {
		t.Errorf("the deletion alone changed config: %v", r.Config)
	}
}

// TestInfrastructureChangesNoConfig checks that what the proxies are given does not depend on
// whether they run, and that an address more wakes no listener.
func TestInfrastructureChangesNoConfig(t *testing.T) {
	w := clusterWorld(t)
	for _, c := range []struct {
		what       string
		i          *translate.Infrastructure
		programmed string
		runs       map[string]int
	}{
		{"an address more", reachedAt("10.97.0.5", "10.97.0.6"), "Programmed", map[string]int{"Gateway status": 1, "Gateway's outcome": 1, "reachable Gateway": 1, "addresses of Gateway": 1}},
		{"not ready", &translate.Infrastructure{Addresses: reachedAt("10.97.0.5").Addresses}, "Pending",
			map[string]int{"Gateway status": 1, "Gateway's outcome": 1, "reachable Gateway": 1, "addresses of Gateway": 1, "listener state": 2, "listener config": 2}},
		{"nothing runs", nil, "Pending", map[string]int{"Gateway status": 1, "Gateway's outcome": 1}},
		{"ready again", reachedAt("10.97.0.5"), "Programmed",
			map[string]int{"Gateway status": 1, "Gateway's outcome": 1, "reachable Gateway": 1, "addresses of Gateway": 1, "listener state": 2, "listener config": 2}},
	} {
		w.SetInfrastructure("default", "gw", c.i)
		r := w.commit(t)
		if !r.Config.Empty() || len(r.ProxySpecs) != 0 || len(r.SecretRequests) != 0 {
			t.Errorf("%s: config %v, specs %v, requests %v", c.what, r.Config, r.ProxySpecs, r.SecretRequests)
		}
		if got := gatewayCondition(t, w, "Programmed"); got.Reason != c.programmed {
			t.Errorf("%s: %v, want %s", c.what, got, c.programmed)
		}
		if !reflect.DeepEqual(r.Stats.RunsByName, c.runs) {
			t.Errorf("%s: ran %v, want %v", c.what, r.Stats.RunsByName, c.runs)
		}
	}
}

func gatewayCondition(t *testing.T, w *world, conditionType string) metav1.Condition {
	t.Helper()
	s := w.statuses[kind.ObjectKey{Group: gwv1.GroupName, Kind: "Gateway", Namespace: "default", Name: "gw"}]
	for _, c := range s.Status.(*gwv1.GatewayStatus).Conditions {
		if c.Type == conditionType {
			return c
		}
	}
	t.Fatalf("no condition %s in %v", conditionType, s)
	return metav1.Condition{}
}

// TestInfrastructureIsKept checks that the caller may go on with what it has given.
func TestInfrastructureIsKept(t *testing.T) {
	w := newWorldWith(clusterOptions)
	w.Upsert(ownClass("moongate"))
	w.Upsert(secretGateway())
	i := reachedAt("10.97.0.5")
	w.SetInfrastructure("default", "gw", i)
	i.Addresses[0].Value = "192.0.2.1"
	w.commit(t)
	s := w.statuses[kind.ObjectKey{Group: gwv1.GroupName, Kind: "Gateway", Namespace: "default", Name: "gw"}]
	if got := s.Status.(*gwv1.GatewayStatus).Addresses; len(got) != 1 || got[0].Value != "10.97.0.5" {
		t.Errorf("addresses %v", got)
	}
}

// TestBadParametersHold checks that an edit of parameters which cannot be used changes
// nothing for clients, and that correcting it leaves no trace.
func TestBadParametersHold(t *testing.T) {
	replicas, image := int32(3), "example.com/proxy"
	p := &v1alpha1.GatewayParameters{Spec: v1alpha1.GatewayParametersSpec{Replicas: &replicas}}
	p.Namespace, p.Name = "default", "p"
	ref := gwv1.LocalParametersReference{Group: v1alpha1.GroupName, Kind: "GatewayParameters", Name: "p"}
	namespace := gwv1.Namespace("default")
	for _, of := range []string{"Gateway", "GatewayClass"} {
		w := newWorldWith(clusterOptions)
		gc, gw := ownClass("moongate"), secretGateway()
		if of == "Gateway" {
			gw.Spec.Infrastructure = &gwv1.GatewayInfrastructure{ParametersRef: &ref}
		} else {
			gc.Spec.ParametersRef = &gwv1.ParametersReference{Group: ref.Group, Kind: ref.Kind, Name: ref.Name, Namespace: &namespace}
		}
		for _, o := range []metav1.Object{gc, gw, p, crowdRoute(1, "/"), crowdService(1), crowdSlice(1, "10.0.0.1")} {
			w.Upsert(o)
		}
		w.SetInfrastructure("default", "gw", reachedAt("10.97.0.5"))
		w.commit(t)
		before, spec := w.print(t), *w.specs["default/gw"]
		if spec.Paused || *spec.Parameters.Replicas != 3 {
			t.Fatalf("%s: spec %+v", of, spec)
		}
		negative := int32(-1)
		invalid := p.DeepCopy()
		invalid.Spec.Replicas = &negative
		classOnly := p.DeepCopy()
		classOnly.Spec.ClassOnly = &v1alpha1.ClassOnly{Image: image}
		for what, spoil := range map[string]func(){
			"invalid":   func() { w.Upsert(invalid) },
			"deleted":   func() { w.Delete(translate.KindGatewayParameters, "default", "p") },
			"classOnly": func() { w.Upsert(classOnly) },
		} {
			if of == "GatewayClass" && what == "classOnly" {
				continue // as it may
			}
			spoil()
			r := w.commit(t)
			if !r.Config.Empty() {
				t.Errorf("%s, %s: config %v", of, what, r.Config)
			}
			held := w.specs["default/gw"]
			if !held.Paused || !reflect.DeepEqual(held.Ports, spec.Ports) || held.Parameters.ClassOnly != nil {
				t.Errorf("%s, %s: spec %+v", of, what, held)
			}
			if c := gatewayCondition(t, w, "Accepted"); c.Status == metav1.ConditionTrue {
				t.Errorf("%s, %s: %v", of, what, c)
			}
			w.Upsert(p)
			w.commit(t)
			if got := w.print(t); got != before {
				t.Errorf("%s, %s: corrected, something is left:\n%s", of, what, firstDifference(before, got))
			}
		}
	}
}

// TestInstalledWakesFew checks that a new bundle is judged without looking at listeners again.
func TestInstalledWakesFew(t *testing.T) {
	w := clusterWorld(t)
	kinds := []translate.Kind{translate.KindGateway, translate.KindGatewayClass, translate.KindHTTPRoute, translate.KindReferenceGrant}
	crds := []translate.InstalledCRD{{Name: "gateways.gateway.networking.k8s.io", BundleVersion: "v1.7.0", Channel: "standard"}}
	w.SetInstalled(translate.Installed{CRDs: crds, Kinds: kinds})
	w.commit(t)
	crds[0].BundleVersion = "v1.9.0"
	w.SetInstalled(translate.Installed{CRDs: crds, Kinds: kinds})
	r := w.commit(t)
	if want := map[string]int{"installed kinds": 1, "unread namespaces": 1, "unread kinds": 1, "GatewayClass status": 1}; !reflect.DeepEqual(r.Stats.RunsByName, want) {
		t.Errorf("ran %v, want %v", r.Stats.RunsByName, want)
	}
	if len(r.Statuses) != 1 || r.Statuses[0].Status.(*gwv1.GatewayClassStatus).Conditions[1].Status != metav1.ConditionFalse {
		t.Errorf("statuses %v", r.Statuses)
	}
	w.SetInstalled(translate.Installed{CRDs: crds, Kinds: kinds[:2]})
	if r := w.commit(t); r.Stats.RunsByName["listener"] != 1 || len(r.Statuses) != 2 {
		t.Errorf("without routes: ran %v, statuses %v", r.Stats.RunsByName, r.Statuses)
	}
}

// TestPlansAreForClusters checks that nothing is provisioned for a process of its own.
func TestPlansAreForClusters(t *testing.T) {
	w := newWorld()
	w.Upsert(ownClass("moongate"))
	w.Upsert(secretGateway())
	if r := w.commit(t); len(r.ProxySpecs) != 0 {
		t.Errorf("specs %v", r.ProxySpecs)
	}
}

// TestUnreadKinds checks that a class says which kinds cannot be read, and is accepted all the same.
func TestUnreadKinds(t *testing.T) {
	w := clusterWorld(t)
	accepted := func() metav1.Condition {
		s := w.statuses[kind.ObjectKey{Group: gwv1.GroupName, Kind: "GatewayClass", Name: "moongate"}]
		return s.Status.(*gwv1.GatewayClassStatus).Conditions[0]
	}
	crds := []translate.InstalledCRD{{Name: "gateways.gateway.networking.k8s.io", BundleVersion: "v1.7.0", Channel: "standard"}}
	w.SetInstalled(translate.Installed{CRDs: crds, Unread: []translate.UnreadKind{{Kind: "ListenerSet", Remedy: "allow it"}}})
	w.commit(t)
	want := "ListenerSet objects cannot be read, and are served without or as they were last: allow it"
	if c := accepted(); c.Type != "Accepted" || c.Status != metav1.ConditionTrue || c.Message != want {
		t.Errorf("condition %+v", c)
	}
	w.SetInstalled(translate.Installed{CRDs: crds})
	w.commit(t)
	if c := accepted(); c.Status != metav1.ConditionTrue || c.Message != "" {
		t.Errorf("afterwards: condition %+v", c)
	}
}

// TestParametersOfOthers checks that only GatewayParameters that our classes or Gateways use have a status of ours.
func TestParametersOfOthers(t *testing.T) {
	w := newWorldWith(clusterOptions)
	p := &v1alpha1.GatewayParameters{}
	p.Namespace, p.Name = "default", "p"
	namespace := gwv1.Namespace("default")
	class := func(controller string, refers bool) *gwv1.GatewayClass {
		gc := ownClass("moongate")
		gc.Spec.ControllerName = gwv1.GatewayController(controller)
		if refers {
			gc.Spec.ParametersRef = &gwv1.ParametersReference{Group: v1alpha1.GroupName, Kind: "GatewayParameters", Name: "p", Namespace: &namespace}
		}
		return gc
	}
	gateway := func(refers bool) *gwv1.Gateway {
		gw := secretGateway()
		if refers {
			gw.Spec.Infrastructure = &gwv1.GatewayInfrastructure{ParametersRef: &gwv1.LocalParametersReference{Group: v1alpha1.GroupName, Kind: "GatewayParameters", Name: "p"}}
		}
		return gw
	}
	for _, c := range []struct {
		what    string
		objects []metav1.Object
		told    bool
	}{
		{"of nobody", []metav1.Object{p, class(controllerName, false), gateway(false)}, false},
		{"of a class of another installation", []metav1.Object{class("example.org/other", true), gateway(true)}, false},
		{"of our class", []metav1.Object{class(controllerName, true), gateway(false)}, true},
		{"of our class no more", []metav1.Object{class(controllerName, false)}, false},
		{"of our Gateway", []metav1.Object{gateway(true)}, true},
		{"of a Gateway of another installation", []metav1.Object{class("example.org/other", false)}, false},
	} {
		for _, o := range c.objects {
			w.Upsert(o)
		}
		w.commit(t)
		if _, told := w.statuses[kind.ObjectKey{Group: v1alpha1.GroupName, Kind: "GatewayParameters", Namespace: "default", Name: "p"}]; told != c.told {
			t.Errorf("%s: there is a status: %v", c.what, told)
		}
	}
}
