package provision

import (
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/moongate-dev/moongate/api/v1alpha1"
	"github.com/moongate-dev/moongate/internal/testkit"
	"github.com/moongate-dev/moongate/internal/testkit/apiserver"
	"github.com/moongate-dev/moongate/internal/translate"
)

var fourObjects = []string{"apply configmaps/shop/web-moongate", "apply deployments/shop/web-moongate", "apply serviceaccounts/shop/web-moongate", "apply services/shop/web-moongate"}

func sorted(list []string) []string { return slices.Sorted(slices.Values(list)) }

// TestWritesOnlyWhatDiffers counts the writes: none for a spec that is carried out, also
// by another replica, and one for one thing that changes.
func TestWritesOnlyWhatDiffers(t *testing.T) {
	s := newServer(t)
	r := startReplica(t, s)
	steps := []struct {
		what string
		do   func()
		want []string
	}{
		{"a new Gateway", func() {}, fourObjects},
		{"nothing", func() {}, nil},
		{"another replica", func() { r = startReplica(t, s) }, nil},
		{"another authority", func() { r.mu.Lock(); r.ca = "another"; r.mu.Unlock() }, []string{"apply configmaps/shop/web-moongate"}},
	}
	for _, step := range steps {
		step.do()
		if err := r.settle(t, s, specOf(web, nil)); err != nil {
			t.Fatal(step.what, err)
		}
		if got := sorted(s.written()); !slices.Equal(got, step.want) {
			t.Errorf("%s: %q was written, want %q", step.what, got, step.want)
		}
	}
	ports := specOf(web, func(p *translate.ProxySpec) { p.Ports = append(p.Ports, translate.ProxyPort{Port: 443}) })
	if err := r.settle(t, s, ports); err != nil {
		t.Fatal(err)
	}
	if got := s.written(); !slices.Equal(got, []string{"apply services/shop/web-moongate"}) {
		t.Errorf("for a listener more %q was written", got)
	}
}

// TestDrift lets somebody else change what is ours.
func TestDrift(t *testing.T) {
	const service = "services/shop/web-moongate"
	for what, edit := range map[string]func(tree){
		"a field":         func(o tree) { o["spec"].(tree)["type"] = "ClusterIP" },
		"what selects it": func(o tree) { delete(o["metadata"].(tree)["labels"].(tree), labelManagedBy) },
		"the hash":        func(o tree) { o["metadata"].(tree)["annotations"].(tree)[annotationApplied] = "x" },
		"it is removed":   nil,
	} {
		t.Run(what, func(t *testing.T) {
			s := newServer(t)
			r := startReplica(t, s)
			if err := r.settle(t, s, specOf(web, nil)); err != nil {
				t.Fatal(err)
			}
			before := s.at(service, "spec")
			s.written()
			s.set(service, edit)
			if err := r.once(t, s, web); err != nil {
				t.Fatal(err)
			}
			if got := s.written(); !slices.Equal(got, []string{"apply " + service}) {
				t.Errorf("%q was written", got)
			}
			if after := s.at(service, "spec"); !reflect.DeepEqual(before, after) {
				t.Errorf("the Service is %v, was %v", after, before)
			}
			s.set(service, func(o tree) { o["metadata"].(tree)["labels"].(tree)["theirs"] = "x" })
			if err := r.once(t, s, web); err != nil {
				t.Fatal(err)
			}
			if got := s.written(); len(got) != 0 {
				t.Errorf("a label of somebody else's: %q was written", got)
			}
		})
	}
}

// TestNoFight has an admission webhook that always wins, and somebody who always changes
// a field back: neither is answered with a write for each of theirs.
func TestNoFight(t *testing.T) {
	const deployment = "deployments/shop/web-moongate"
	s := newServer(t)
	s.mutate = func(object string, o tree, _ map[string]tree) {
		if object == deployment {
			o["spec"].(tree)["revisionHistoryLimit"] = 7.0
		}
	}
	r := startReplica(t, s)
	for range 3 {
		if err := r.settle(t, s, specOf(web, nil)); err != nil {
			t.Fatal(err)
		}
	}
	if got := sorted(s.written()); !slices.Equal(got, fourObjects) {
		t.Errorf("with a webhook %q was written", got)
	}
	for range 3 {
		s.set("services/shop/web-moongate", func(o tree) { o["spec"].(tree)["type"] = "NodePort" })
		r.caughtUp(t, s)
		if _, err := r.reconcile(t.Context(), web); err != nil {
			t.Fatal(err)
		}
	}
	again, err := r.reconcile(t.Context(), web)
	if got := s.written(); len(got) != 1 || err != nil || again <= 0 {
		t.Errorf("in a fight %q was written at once, error %v, next look after %s", got, err, again)
	}
	h := history{}
	now := time.Unix(1e9, 0)
	for range 20 {
		if wait := h.wait(now); wait > 0 {
			now = now.Add(wait)
		}
	}
	if h.pause != longestPause {
		t.Errorf("a long fight ends in a pause of %s", h.pause)
	}
}

// TestForeignObjects finds the name taken, and the objects of another installation.
func TestForeignObjects(t *testing.T) {
	s := newServer(t)
	s.set("configmaps/shop/web-moongate", func(o tree) { o["data"] = tree{"mine": "yes"} })
	foreign := func(o tree) {
		o["metadata"].(tree)["labels"] = tree{labelManagedBy: managedBy, labelName: proxyName}
		o["metadata"].(tree)["annotations"] = tree{annotationGateway: "foreign", annotationController: "example.org/other"}
	}
	s.set("services/shop/foreign", foreign)
	r := startReplica(t, s)
	r.grace = 0
	if err := r.settle(t, s, specOf(web, nil)); err == nil {
		t.Error("a ConfigMap of somebody else was taken over without an error")
	}
	if _, err := r.reconcile(t.Context(), gatewayName{"shop", "foreign"}); err != nil {
		t.Error(err)
	}
	for _, write := range s.written() {
		if strings.Contains(write, "configmaps") || strings.Contains(write, "foreign") {
			t.Errorf("%s", write)
		}
	}
	const want = "ConfigMap shop/web-moongate exists and does not belong to this Gateway; rename the Gateway, or delete the ConfigMap"
	testkit.Eventually(t, "the Gateway waits for "+want, func() bool { return r.waiting("shop/web") == want })
	s.set("configmaps/shop/web-moongate", nil)
	if err := r.once(t, s, web); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, "the problem is gone", func() bool { return !strings.Contains(r.waiting("shop/web"), "ConfigMap") })
}

// TestSameName has two Gateways whose objects want one name.
func TestSameName(t *testing.T) {
	s := newServer(t)
	r := startReplica(t, s)
	first := specOf(gatewayName{"shop", "a-b"}, func(p *translate.ProxySpec) { p.Class = "c" })
	second := specOf(gatewayName{"shop", "a"}, func(p *translate.ProxySpec) { p.Class = "b-c" })
	if err := r.settle(t, s, first); err != nil {
		t.Fatal(err)
	}
	if err := r.settle(t, s, second); err == nil {
		t.Error("the second Gateway took the objects of the first")
	}
	uid := fmt.Sprint(s.at("serviceaccounts/shop/a-b-c", "metadata", "uid"))
	if name, ok := r.Gateway("shop", "a-b-c", uid); name != "a-b" || !ok {
		t.Errorf("the ServiceAccount is of %q, %v", name, ok)
	}
	if name, ok := r.Gateway("other", "a-b-c", uid); ok {
		t.Errorf("in another namespace it is of %q", name)
	}
	if name := s.at("deployments/shop/a-b-c", "metadata", "annotations", annotationGateway); name != "a-b" {
		t.Errorf("the Deployment is of %q", name)
	}
}

// TestRefused tells what the API server will not do, keeps what was said while it is away, and goes on with the rest.
func TestRefused(t *testing.T) {
	s := newServer(t)
	r := startReplica(t, s)
	refuse := apiserver.Failure(http.StatusForbidden, metav1.StatusReasonForbidden, "exceeded quota: services")
	s.mu.Lock()
	s.fail = func(verb, object string) *metav1.Status {
		if verb == "apply" && strings.HasPrefix(object, "services/") {
			return refuse
		}
		return nil
	}
	s.mu.Unlock()
	const want = "Service shop/web-moongate is forbidden: exceeded quota: services; look at quotas"
	says := func() bool { return strings.HasPrefix(r.waiting("shop/web"), want) }
	if err := r.settle(t, s, specOf(web, nil)); err == nil {
		t.Error("no error")
	}
	testkit.Eventually(t, want, says)
	if s.at("deployments/shop/web-moongate") == nil || len(s.names()) != 3 {
		t.Errorf("there are %q", s.names())
	}
	s.mu.Lock()
	refuse = apiserver.Failure(http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable, "away")
	s.mu.Unlock()
	if err := r.once(t, s, web); err == nil {
		t.Error("no error")
	}
	r.mu.Lock()
	reports := len(r.order)
	r.mu.Unlock()
	s.mu.Lock()
	s.fail = nil
	s.mu.Unlock()
	if err := r.once(t, s, web); err != nil {
		t.Error(err)
	}
	testkit.Eventually(t, "it says so no longer", func() bool { return !says() })
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.order) > reports+2 { // the Service's ports, and the end of the refusal
		t.Errorf("%d reports since the API server was away", len(r.order)-reports)
	}
	if p := r.problems; len(p) != 2 || !strings.HasPrefix(p[0], "shop/web: "+want) || p[1] != "shop/web: " { // and not that it was away
		t.Errorf("problems %q", p)
	}
}

// TestSameRefusalEachTime: where several objects cannot be removed the same one is spoken of at each try, else the status would change and an Event be written each time.
func TestSameRefusalEachTime(t *testing.T) {
	s := newServer(t)
	r := startReplica(t, s)
	scaled := specOf(web, func(p *translate.ProxySpec) {
		p.Parameters.Autoscaling = &v1alpha1.Autoscaling{MinReplicas: new(int32(2)), MaxReplicas: 3}
	})
	if err := r.settle(t, s, scaled); err != nil {
		t.Fatal(err)
	}
	s.mu.Lock()
	s.fail = func(verb, object string) *metav1.Status {
		if verb == "delete" {
			return apiserver.Failure(http.StatusForbidden, metav1.StatusReasonForbidden, "no role for "+object)
		}
		return nil
	}
	s.mu.Unlock()
	if err := r.settle(t, s, specOf(web, nil)); err == nil || !strings.Contains(err.Error(), "poddisruptionbudgets") || !strings.Contains(err.Error(), "horizontalpodautoscalers") {
		t.Fatalf("want two refusals, got %v", err)
	}
	for range 20 {
		_ = r.once(t, s, web)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if p := r.problems; len(p) != 1 {
		t.Errorf("problems %q", p)
	}
}

// TestNodePortHeld says which Service of the namespace has the node port that the API server refuses, or that one of another namespace has it.
func TestNodePortHeld(t *testing.T) {
	s := newServer(t)
	r := startReplica(t, s)
	refused := apiserver.Failure(http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, "spec.ports[0].nodePort: Invalid value: 30080: provided port is already allocated")
	s.mu.Lock()
	s.fail = func(verb, object string) *metav1.Status {
		if verb == "apply" && object == "services/shop/second-moongate" {
			return refused
		}
		return nil
	}
	s.mu.Unlock()
	fixed := func(p *translate.ProxySpec) {
		p.Parameters.Service = &v1alpha1.Service{NodePorts: []v1alpha1.NodePort{{Port: 80, NodePort: 30080}}}
	}
	if err := r.settle(t, s, specOf(web, fixed)); err != nil {
		t.Fatal(err)
	}
	second := specOf(gatewayName{"shop", "second"}, fixed)
	says := func(want string) {
		t.Helper()
		testkit.Eventually(t, want, func() bool { // who has ports is looked up now and then
			if err := r.settle(t, s, second); err == nil {
				t.Error("no error")
			}
			return r.waiting("shop/second") == want
		})
	}
	says("node port 30080 for port 80 of Service shop/second-moongate is taken by Service shop/web-moongate of Gateway shop/web; " +
		"a node port serves one Gateway, also of those of a class: give this one GatewayParameters of its own with other service.nodePorts")
	if got := s.at("services/shop/web-moongate", "spec", "ports").([]any)[0].(tree)["nodePort"]; got != 30080.0 {
		t.Errorf("the first Gateway has node port %v", got)
	}
	r.Update([]translate.ProxySpecChange{{Namespace: "shop", Name: "web"}})
	s.set("services/shop/web-moongate", nil)
	s.set("services/elsewhere/dns", func(o tree) { o["spec"] = tree{"ports": []any{tree{"port": 53.0, "nodePort": 30080.0}}} })
	says("node port 30080 for port 80 of Service shop/second-moongate is taken by a Service of another namespace; " +
		"set another one in service.nodePorts")
	s.set("services/elsewhere/dns", nil)
	says("Service shop/second-moongate is refused: " + refused.Message + "; correct the Gateway or its GatewayParameters, or delete the Service if it must be created again")
	s.mu.Lock()
	s.fail = nil
	s.mu.Unlock()
	if err := r.settle(t, s, second); err != nil {
		t.Error(err)
	}
}

// TestPrune removes what a spec no longer has, and nothing else.
func TestPrune(t *testing.T) {
	s := newServer(t)
	r := startReplica(t, s)
	three := int32(3)
	rich := specOf(web, func(p *translate.ProxySpec) {
		p.Addresses = addressesOf("10.0.0.1", "10.0.0.2")
		p.Parameters.Autoscaling = &v1alpha1.Autoscaling{MaxReplicas: three}
	})
	if err := r.settle(t, s, rich); err != nil {
		t.Fatal(err)
	}
	if got := len(s.written()); got != 7 {
		t.Fatalf("%d objects, want 7: %q", got, s.names())
	}
	plain := specOf(web, func(p *translate.ProxySpec) { p.Addresses = addressesOf("10.0.0.2") })
	if err := r.settle(t, s, plain); err != nil {
		t.Fatal(err)
	}
	want := []string{
		"apply deployments/shop/web-moongate", "apply services/shop/web-moongate-2", "delete horizontalpodautoscalers/shop/web-moongate",
		"delete poddisruptionbudgets/shop/web-moongate", "delete services/shop/web-moongate",
	}
	if got := sorted(s.written()); !slices.Equal(got, want) {
		t.Errorf("%q was written, want %q", got, want)
	}
	// Without ports there is no Service to make, but the address stays.
	if err := r.settle(t, s, specOf(web, func(p *translate.ProxySpec) { p.Ports = nil })); err != nil {
		t.Fatal(err)
	}
	if got := s.written(); len(got) != 0 || s.at("services/shop/web-moongate-2") == nil {
		t.Errorf("without ports %q was written", got)
	}
}

// TestCopiesStay has a user copy what runs for a Gateway with all of its metadata, but under another name or in another namespace: neither a change of the
// Gateway nor its end removes the copies.
func TestCopiesStay(t *testing.T) {
	s := newServer(t)
	r := startReplica(t, s)
	r.grace = 0
	if err := r.settle(t, s, specOf(web, nil)); err != nil {
		t.Fatal(err)
	}
	var copies []string
	for _, original := range s.names() {
		for copy, keepsOwner := range map[string]bool{strings.Replace(original, "web-moongate", "foreign", 1): true, strings.Replace(original, "/shop/", "/staging/", 1): false} {
			o := s.Get(refOf(original))
			s.set(copy, func(into tree) {
				from, meta := o["metadata"].(tree), into["metadata"].(tree)
				for _, field := range []string{"labels", "annotations"} {
					meta[field] = from[field]
				}
				if keepsOwner {
					meta["ownerReferences"] = from["ownerReferences"]
				}
				into["spec"] = o["spec"]
			})
			copies = append(copies, copy)
		}
	}
	// The name of a further Service, which is not the controller's without an owner.
	const further = "services/shop/web-moongate-2"
	copies = append(copies, further)
	slices.Sort(copies)
	from := s.at("services/shop/web-moongate", "metadata").(tree)
	s.set(further, func(into tree) {
		meta := into["metadata"].(tree)
		meta["labels"], meta["annotations"] = from["labels"], from["annotations"]
	})
	s.written()
	for _, g := range []gatewayName{web, {"staging", "web"}} {
		if err := r.once(t, s, g); err != nil {
			t.Fatal(err)
		}
	}
	if got := s.written(); len(got) != 0 {
		t.Errorf("beside copies %q was written", got)
	}
	r.ends(web)
	if err := r.once(t, s, web); err != nil {
		t.Fatal(err)
	}
	if got := s.names(); !slices.Equal(got, copies) {
		t.Errorf("after the end of the Gateway there are %q, want %q", got, copies)
	}
}

// has reports whether there is an object.
func (s *server) has(object string) bool { return s.Get(refOf(object)) != nil }

// availableOf sets the status of a Deployment with so many proxies that are available.
func (s *server) availableOf(deployment string, n int) {
	s.set("deployments/"+deployment, func(o tree) {
		o["status"] = tree{"replicas": float64(n), "readyReplicas": float64(n), "availableReplicas": float64(n)}
	})
}

// TestClassChange keeps what runs, and its address, until as much is in its place.
func TestClassChange(t *testing.T) {
	s := newServer(t)
	r := startReplica(t, s)
	spec := func(class string) translate.ProxySpecChange {
		return specOf(web, func(p *translate.ProxySpec) { p.Class, p.Parameters.Replicas = class, pointer[int32](2) })
	}
	other := spec("other")
	if err := r.settle(t, s, spec("moongate")); err != nil {
		t.Fatal(err)
	}
	s.availableOf("shop/web-moongate", 2)
	if err := r.settle(t, s, other); err != nil {
		t.Fatal(err)
	}
	r.caughtUp(t, s)
	uid := func(account string) string {
		return fmt.Sprint(s.at("serviceaccounts/shop/"+account, "metadata", "uid"))
	}
	former := uid("web-moongate")
	for _, account := range []string{"web-moongate", "web-other"} {
		if name, ok := r.Gateway("shop", account, uid(account)); name != "web" || !ok {
			t.Errorf("while the class changes, proxies of ServiceAccount %s are of %q, %v", account, name, ok)
		}
	}
	const waiting = "Deployment shop/web-moongate serves until all proxies of Deployment web-other are ready and the Services of its class have addresses; if this stays, look at its pods and events"
	for _, step := range []struct {
		what      string
		available int // of the other class
		address   string
		grace     time.Duration
		limit     time.Duration
		stays     bool
	}{
		{"none is ready", 0, "", 0, 0, true},
		{"none is ready, but there is an address", 0, "10.0.0.2", 0, 0, true},
		{"one is ready", 1, "10.0.0.2", 0, 0, true},
		{"all are ready, without an address", 2, "", 0, time.Hour, true},
		{"all are ready, and clients do not know the address yet", 2, "10.0.0.2", time.Hour, time.Hour, true},
		{"the address has gone", 2, "", 0, time.Hour, true},
		{"one is no longer ready", 1, "10.0.0.2", 0, 0, true},
		{"all are ready", 2, "10.0.0.2", 0, time.Hour, false},
	} {
		r.grace, r.mergeTimeout = step.grace, step.limit
		s.availableOf("shop/web-other", step.available)
		s.set("services/shop/web-other", func(o tree) {
			delete(o, "status")
			if step.address != "" {
				o["status"] = tree{"loadBalancer": tree{"ingress": []any{tree{"ip": step.address}}}}
			}
		})
		r.caughtUp(t, s)
		again, err := r.reconcile(t.Context(), web)
		if err != nil {
			t.Fatal(err)
		}
		left := slices.DeleteFunc(s.names(), func(name string) bool { return strings.HasSuffix(name, "/web-other") })
		if step.stays && (len(left) != 5 || again != awaitedPoll) || !step.stays && len(left) != 0 {
			t.Errorf("%s: there are %q of the former class, and the next look is after %s", step.what, left, again)
		}
		testkit.Eventually(t, step.what+": it is said", func() bool {
			i := r.last("shop/web").infrastructure
			return i != nil && (i.Lagging == waiting) == step.stays
		})
	}
	r.caughtUp(t, s)
	if name, ok := r.Gateway("shop", "web-moongate", former); ok {
		t.Errorf("afterwards proxies of the former class are of %q", name)
	}
}

// TestClassChangeIsBounded has no load balancer assign an address: what served goes after a while nevertheless. Where nothing of the former class serves, nothing waits
// for more than one proxy of the other.
func TestClassChangeIsBounded(t *testing.T) {
	for name, c := range map[string]struct {
		former, other int
		stays         bool
	}{
		"all are ready": {2, 2, false}, "not all are ready": {2, 1, true}, "none is ready": {2, 0, true},
		"one is ready, and none was": {0, 1, false}, "none is ready, and none was": {0, 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			s := newServer(t)
			r := startReplica(t, s)
			r.mergeTimeout = 0
			two := func(class string) translate.ProxySpecChange {
				return specOf(web, func(p *translate.ProxySpec) { p.Class, p.Parameters.Replicas = class, pointer[int32](2) })
			}
			if err := r.settle(t, s, two("moongate")); err != nil {
				t.Fatal(err)
			}
			s.availableOf("shop/web-moongate", c.former)
			if err := r.settle(t, s, two("other")); err != nil {
				t.Fatal(err)
			}
			s.availableOf("shop/web-other", c.other)
			for range 2 {
				if err := r.once(t, s, web); err != nil {
					t.Fatal(err)
				}
			}
			if got := s.has("services/shop/web-moongate"); got != c.stays {
				t.Errorf("the former Service is there: %v", got)
			}
		})
	}
}

// TestClassChangesTwice has proxies of two former classes, of which those of one serve: all of them go once the third has taken their place.
func TestClassChangesTwice(t *testing.T) {
	for name, ready := range map[string][2]int{"the first serves": {1, 0}, "the second serves": {0, 1}, "both serve": {1, 1}} {
		t.Run(name, func(t *testing.T) {
			s := newServer(t)
			r := startReplica(t, s)
			r.grace, r.settleTime = time.Second/10, time.Second/10
			for i, class := range []string{"moongate", "other", "third"} {
				if err := r.settle(t, s, specOf(web, func(p *translate.ProxySpec) {
					p.Class, p.Parameters.Service = class, &v1alpha1.Service{Type: corev1.ServiceTypeClusterIP}
				})); err != nil {
					t.Fatal(err)
				}
				if i < 2 {
					s.availableOf("shop/web-"+class, 1) // so that the next one waits for it
				}
			}
			for i, class := range []string{"moongate", "other"} {
				s.availableOf("shop/web-"+class, ready[i])
			}
			s.availableOf("shop/web-third", 1)
			testkit.Eventually(t, "only the third is left", func() bool {
				if err := r.once(t, s, web); err != nil {
					t.Fatal(err)
				}
				return len(s.names()) == len(fourObjects)
			})
		})
	}
}

// TestClassChangeMovesAddresses asks for the same address under both classes. What has it keeps it until the proxies of the other class are ready, and is not waited for any longer than clients need.
func TestClassChangeMovesAddresses(t *testing.T) {
	const former, other = "services/shop/web-moongate", "services/shop/web-other"
	for _, kind := range []corev1.ServiceType{corev1.ServiceTypeLoadBalancer, corev1.ServiceTypeClusterIP} {
		t.Run(string(kind), func(t *testing.T) {
			s := newServer(t)
			r := startReplica(t, s)
			r.grace = 0
			spec := func(class string) translate.ProxySpecChange {
				return specOf(web, func(p *translate.ProxySpec) {
					p.Class, p.Addresses, p.Parameters.Service = class, addressesOf("10.0.0.1"), &v1alpha1.Service{Type: kind}
				})
			}
			if err := r.settle(t, s, spec("moongate")); err != nil {
				t.Fatal(err)
			}
			s.availableOf("shop/web-moongate", 1)
			s.set(former, func(o tree) {
				if kind == corev1.ServiceTypeLoadBalancer {
					o["status"] = tree{"loadBalancer": tree{"ingress": []any{tree{"ip": "10.0.0.1"}}}}
				} else {
					o["spec"].(tree)["clusterIPs"] = []any{"10.0.0.1"}
				}
			})
			s.mu.Lock()
			s.fail = func(verb, object string) *metav1.Status {
				if verb == "apply" && object == other && kind == corev1.ServiceTypeClusterIP && s.has(former) {
					return apiserver.Failure(http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, "provided IP is already allocated")
				}
				return nil
			}
			s.mu.Unlock()
			if err := r.settle(t, s, spec("other")); err != nil {
				t.Fatal(err)
			}
			if s.has(other) != (kind == corev1.ServiceTypeLoadBalancer) || !s.has(former) {
				t.Fatalf("there are %q", s.names())
			}
			s.availableOf("shop/web-other", 1)
			for range 2 {
				if err := r.once(t, s, web); err != nil {
					t.Fatal(err)
				}
			}
			if s.has(former) || !s.has(other) {
				t.Errorf("there are %q", s.names())
			}
		})
	}
}

// TestClassChangeAddressIsAwaited asks for another address with the other class: it is waited for, since the former Service does not have it.
func TestClassChangeAddressIsAwaited(t *testing.T) {
	const former, other = "services/shop/web-moongate", "services/shop/web-other"
	s := newServer(t)
	r := startReplica(t, s)
	r.grace = 0
	if err := r.settle(t, s, specOf(web, func(p *translate.ProxySpec) { p.Addresses = addressesOf("10.0.0.1") })); err != nil {
		t.Fatal(err)
	}
	s.availableOf("shop/web-moongate", 1)
	next := specOf(web, func(p *translate.ProxySpec) { p.Class, p.Addresses = "other", addressesOf("10.0.0.2") })
	if err := r.settle(t, s, next); err != nil {
		t.Fatal(err)
	}
	s.availableOf("shop/web-other", 1)
	for _, address := range []string{"", "10.0.0.3", "10.0.0.2"} { // that the load balancer assigns
		s.set(other, func(o tree) {
			o["status"] = tree{"loadBalancer": tree{"ingress": []any{tree{"ip": address}}}}
		})
		if err := r.once(t, s, web); err != nil {
			t.Fatal(err)
		}
		if there := s.has(former); there != (address != "10.0.0.2") {
			t.Errorf("with address %q the former Service is there: %v", address, there)
		}
	}
}

// TestClassChangeKeepsTheNumber: with autoscaling the proxies of the other class are as many as there were, from the beginning.
func TestClassChangeKeepsTheNumber(t *testing.T) {
	s := newServer(t)
	r := startReplica(t, s)
	scaled := func(class string) translate.ProxySpecChange {
		return specOf(web, func(p *translate.ProxySpec) {
			p.Class, p.Parameters.Autoscaling = class, &v1alpha1.Autoscaling{MaxReplicas: 9}
		})
	}
	if err := r.settle(t, s, scaled("moongate")); err != nil {
		t.Fatal(err)
	}
	s.availableOf("shop/web-moongate", 7)
	if err := r.settle(t, s, scaled("other")); err != nil {
		t.Fatal(err)
	}
	if got := s.at("deployments/shop/web-other", "spec", "replicas"); got != 7.0 {
		t.Errorf("the Deployment begins with %v proxies, want 7", got)
	}
	if !s.has("horizontalpodautoscalers/shop/web-moongate") || !s.has("poddisruptionbudgets/shop/web-moongate") {
		t.Errorf("the proxies that serve have lost their autoscaler or budget: %q", s.names())
	}
}

// TestClassChangeOnHosts has both classes use the network of two nodes, where two proxies have no room on one: one node after the other gets a proxy of the other class.
func TestClassChangeOnHosts(t *testing.T) {
	const former = "deployments/shop/web-moongate"
	s := newServer(t)
	r := startReplica(t, s)
	r.grace = 0
	spec := func(class string) translate.ProxySpecChange {
		return specOf(web, func(p *translate.ProxySpec) {
			p.Class, p.Parameters.Replicas, p.Parameters.ClassOnly = class, pointer[int32](2), &v1alpha1.ClassOnly{HostNetwork: true}
		})
	}
	if err := r.settle(t, s, spec("moongate")); err != nil {
		t.Fatal(err)
	}
	s.availableOf("shop/web-moongate", 2)
	s.podsOn(kindDeployment, true, "a", "b")
	if err := r.settle(t, s, spec("other")); err != nil {
		t.Fatal(err)
	}
	// proxies of the other class, ready or without room.
	others := func(ready ...bool) {
		for i, ready := range ready {
			s.set(fmt.Sprint("pods/shop/other-", i), func(o tree) {
				meta := o["metadata"].(tree)
				meta["labels"] = tree{labelManagedBy: managedBy, labelName: proxyName, gwv1.GatewayClassNameLabelKey: "other", "pod-template-hash": "x"}
				meta["annotations"] = tree{annotationGateway: "web", annotationController: settings.ControllerName}
				o["status"] = tree{"conditions": []any{tree{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}}}
				if ready {
					o["status"] = tree{"conditions": []any{tree{"type": "Ready", "status": "True"}}}
				}
			})
		}
	}
	step := func(what string, want any) {
		t.Helper()
		if err := r.once(t, s, web); err != nil {
			t.Fatal(err)
		}
		if got := s.at(former, "spec", "replicas"); got != want {
			t.Fatalf("%s: the Deployment of the former class has %v replicas, want %v", what, got, want)
		}
		if s.has("poddisruptionbudgets/shop/web-moongate") {
			t.Errorf("%s: what makes room has a budget", what)
		}
	}
	others(false, false)
	step("no node has room", 1.0)
	step("a proxy is ending", 1.0)
	s.availableOf("shop/web-moongate", 1)
	s.podsOn(kindDeployment, true, "a")
	s.set("pods/shop/other-0", func(o tree) { o["status"] = tree{"conditions": []any{tree{"type": "Ready", "status": "False"}}} })
	step("the other one is starting", 1.0)
	others(true, false)
	s.availableOf("shop/web-other", 1)
	step("it is ready", nil)
}

// TestWithoutPlan removes what is not a Gateway's of ours any more, after a grace, and
// never before the leader has its specs.
func TestWithoutPlan(t *testing.T) {
	s := newServer(t)
	r := startReplica(t, s)
	if err := r.settle(t, s, specOf(web, nil)); err != nil {
		t.Fatal(err)
	}
	s.written()

	r = startReplica(t, s) // a new leader
	r.grace = 0
	if again, err := r.reconcile(t.Context(), web); again != 0 || err != nil || len(s.written()) != 0 {
		t.Fatalf("without specs: %s, %v", again, err)
	}
	r.grace = time.Hour
	r.Update([]translate.ProxySpecChange{specOf(gatewayName{"shop", "another"}, nil)})
	again, err := r.reconcile(t.Context(), web)
	if again <= 0 || err != nil || len(s.written()) != 0 {
		t.Fatalf("within the grace: %s, %v", again, err)
	}
	r.Update([]translate.ProxySpecChange{specOf(web, func(p *translate.ProxySpec) { p.Paused, p.Ports, p.Labels = true, nil, map[string]string{"a": "b"} })})
	if again, err := r.reconcile(t.Context(), web); again != 0 || err != nil || len(s.written()) != 0 {
		t.Fatalf("a spec that is held: %s, %v", again, err)
	}
	r.grace = 0
	if err := r.settle(t, s, translate.ProxySpecChange{Namespace: web.namespace, Name: web.name}); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, "nothing is left, and nothing reported", func() bool { return len(s.names()) == 0 && r.last("shop/web").infrastructure == nil })
}

// TestNothingIsRemembered: nothing is remembered of a Gateway that ended while its objects were applied.
func TestNothingIsRemembered(t *testing.T) {
	s := newServer(t)
	r := startReplica(t, s)
	gone := translate.ProxySpecChange{Namespace: web.namespace, Name: web.name}
	s.mu.Lock()
	s.fail = func(_, object string) *metav1.Status {
		if object == "serviceaccounts/shop/web-moongate" {
			r.Update([]translate.ProxySpecChange{gone})
		}
		return nil
	}
	s.mu.Unlock()
	if err := r.settle(t, s, specOf(web, nil)); err != nil {
		t.Fatal(err)
	}
	s.mu.Lock()
	s.fail = nil
	s.mu.Unlock()
	r.grace = 0
	for range 2 { // the second one finds that everything was removed
		if err := r.once(t, s, web); err != nil {
			t.Fatal(err)
		}
	}
	r.Provisioner.mu.Lock()
	defer r.Provisioner.mu.Unlock()
	if len(s.names()) != 0 || r.gateways[web] != nil {
		t.Errorf("%v are left, and %+v", s.names(), r.gateways[web])
	}
}

// TestSpecComesBackDuringRemoval: what is not removed yet stays once the Gateway is managed again, above all its Service, whose address may not come back.
func TestSpecComesBackDuringRemoval(t *testing.T) {
	s := newServer(t)
	r := startReplica(t, s)
	if err := r.settle(t, s, specOf(web, nil)); err != nil {
		t.Fatal(err)
	}
	s.written()
	r.grace = 0
	s.mu.Lock()
	s.fail = func(verb, object string) *metav1.Status {
		if verb == "delete" && object == "deployments/shop/web-moongate" {
			r.Update([]translate.ProxySpecChange{specOf(web, nil)})
		}
		return nil
	}
	s.mu.Unlock()
	if err := r.settle(t, s, translate.ProxySpecChange{Namespace: web.namespace, Name: web.name}); err != nil {
		t.Fatal(err)
	}
	if got, want := s.written(), []string{"delete configmaps/shop/web-moongate", "delete deployments/shop/web-moongate"}; !slices.Equal(got, want) {
		t.Errorf("%q was written, want %q", got, want)
	}
	if err := r.once(t, s, web); err != nil {
		t.Fatal(err)
	}
	if got, want := sorted(s.written()), fourObjects[:2]; !slices.Equal(got, want) {
		t.Errorf("once it is managed again %q was written, want %q", got, want)
	}
}

// TestAddressComesBackDuringRemoval: of the Services of addresses that a Gateway asks for no more, those that are not removed yet stay once it asks for them again.
func TestAddressComesBackDuringRemoval(t *testing.T) {
	s := newServer(t)
	r := startReplica(t, s)
	all := specOf(web, func(p *translate.ProxySpec) {
		p.Addresses = addressesOf("10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4")
	})
	if err := r.settle(t, s, all); err != nil {
		t.Fatal(err)
	}
	s.written()
	s.mu.Lock()
	s.fail = func(verb, _ string) *metav1.Status {
		if verb == "delete" {
			r.Update([]translate.ProxySpecChange{specOf(web, func(p *translate.ProxySpec) { *p = *all.Spec })})
		}
		return nil
	}
	s.mu.Unlock()
	if err := r.settle(t, s, specOf(web, func(p *translate.ProxySpec) { p.Addresses = addressesOf("10.0.0.1") })); err != nil {
		t.Fatal(err)
	}
	removed := slices.DeleteFunc(s.written(), func(write string) bool { return !strings.HasPrefix(write, "delete ") })
	if len(removed) != 1 {
		t.Errorf("%q was written, want one removal", removed)
	}
}

// TestAutoscaling leaves the number of replicas to the autoscaler without changing it.
func TestAutoscaling(t *testing.T) {
	for name, parameters := range map[string]v1alpha1.GatewayParametersSpec{
		"its own autoscaler":    {Autoscaling: &v1alpha1.Autoscaling{MaxReplicas: 9}},
		"that of somebody else": {ExternalAutoscaler: true},
	} {
		t.Run(name, func(t *testing.T) { testAutoscaling(t, parameters) })
	}
}

func testAutoscaling(t *testing.T, parameters v1alpha1.GatewayParametersSpec) {
	const deployment = "deployments/shop/web-moongate"
	s := newServer(t)
	r := startReplica(t, s)
	three := int32(3)
	if err := r.settle(t, s, specOf(web, func(p *translate.ProxySpec) { p.Parameters.Replicas = &three })); err != nil {
		t.Fatal(err)
	}
	scaled := specOf(web, func(p *translate.ProxySpec) { p.Parameters = parameters })
	var seen []any
	s.mutate = func(object string, o tree, _ map[string]tree) {
		if object == deployment {
			seen = append(seen, o["spec"].(tree)["replicas"])
		}
	}
	if err := r.settle(t, s, scaled); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(seen, []any{3.0, 3.0}) {
		t.Errorf("replicas went through %v", seen)
	}
	s.set(deployment, func(o tree) { o["spec"].(tree)["replicas"] = 5 }) // the autoscaler
	s.written()
	if err := r.once(t, s, web); err != nil || len(s.written()) != 0 {
		t.Errorf("the autoscaler's number was changed: %v", err)
	}
}

// TestHalfway stops a leader after each of its writes. The next one finishes the work.
func TestHalfway(t *testing.T) {
	spec := specOf(web, func(p *translate.ProxySpec) { p.Parameters.Autoscaling = &v1alpha1.Autoscaling{MaxReplicas: 3} })
	var want []string
	for allowed := range 7 {
		s := newServer(t)
		left := allowed
		stopped := make(chan struct{}, 1)
		s.fail = func(verb, _ string) *metav1.Status {
			if verb != "apply" {
				return nil
			}
			if left--; left < 0 {
				select {
				case stopped <- struct{}{}:
				default:
				}
				return apiserver.Failure(http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable, "stopped")
			}
			return nil
		}
		first := startReplica(t, s)
		end := run(t, first.Run)
		first.Update([]translate.ProxySpecChange{spec})
		if allowed < 6 { // there are six objects
			<-stopped
		} else {
			testkit.Eventually(t, "everything is there", func() bool { return len(s.names()) == 6 })
		}
		end()
		s.mu.Lock()
		s.fail = nil
		s.mu.Unlock()
		second := startReplica(t, s)
		second.Update([]translate.ProxySpecChange{spec})
		run(t, second.Run)
		testkit.Eventually(t, "everything is there", func() bool { return len(s.names()) == 6 })
		var all []string
		for _, name := range s.names() {
			all = append(all, fmt.Sprint(name, s.at(name, "spec"), s.at(name, "metadata", "annotations")))
		}
		if want == nil {
			want = all
		}
		if !slices.Equal(all, want) {
			t.Errorf("after %d writes of a first leader:\n%v\nwant\n%v", allowed, all, want)
		}
	}
}

// TestReports follows a Gateway from its spec to its removal, with Run and all.
func TestReports(t *testing.T) {
	s := newServer(t)
	r := startReplica(t, s)
	run(t, r.Run)
	r.Update([]translate.ProxySpecChange{specOf(web, nil)})
	testkit.Eventually(t, "everything is there", func() bool { return len(s.names()) == len(fourObjects) })
	testkit.Eventually(t, "it waits for a proxy", func() bool { return strings.HasPrefix(r.waiting("shop/web"), "no proxy is ready yet") })
	labels := s.at("deployments/shop/web-moongate", "metadata", "labels")
	s.set("pods/shop/web-1", func(o tree) {
		meta := o["metadata"].(tree)
		meta["labels"] = labels
		meta["annotations"] = tree{annotationGateway: "web", annotationController: settings.ControllerName}
		o["status"] = tree{"conditions": []any{tree{"type": "Ready", "status": "True"}}}
	})
	testkit.Eventually(t, "it waits for an address", func() bool { return strings.HasPrefix(r.waiting("shop/web"), "no load balancer") })
	s.set("services/shop/web-moongate", func(o tree) { o["status"] = tree{"loadBalancer": tree{"ingress": []any{tree{"ip": "10.0.0.9"}}}} })
	testkit.Eventually(t, "it waits for nothing", func() bool { return r.waiting("shop/web") == "" })
	if got := r.last("shop/web"); !got.infrastructure.Ready || len(got.infrastructure.Addresses) != 1 || !slices.Equal(got.ready, []string{"web-1"}) {
		t.Errorf("reported %+v %q", got.infrastructure, got.ready)
	}
	count := func() int { r.mu.Lock(); defer r.mu.Unlock(); return len(r.order) }
	before := count()
	for i := range 5 { // nothing that is reported
		s.set("pods/shop/web-1", func(o tree) { o["status"].(tree)["message"] = fmt.Sprint(i) })
		r.caughtUp(t, s)
		testkit.Eventually(t, "it was looked at", func() bool { return r.Provisioner.reports.Len() == 0 })
	}
	s.set("services/shop/web-moongate", func(o tree) {
		o["spec"].(tree)["type"] = "NodePort"
		o["status"] = tree{"loadBalancer": tree{"ingress": []any{tree{"ip": "10.0.0.8"}}}}
	})
	testkit.Eventually(t, "it is changed back", func() bool { return s.at("services/shop/web-moongate", "spec", "type") == "LoadBalancer" })
	testkit.Eventually(t, "the other address", func() bool {
		i := r.last("shop/web").infrastructure
		return len(i.Addresses) == 1 && i.Addresses[0].Value == "10.0.0.8"
	})
	if n := count() - before; n > 2 { // the NodePort may have been seen
		t.Errorf("%d reports of one change", n)
	}
	// A replica that starts says the same at once, and nothing else before.
	other := startReplica(t, s)
	testkit.Eventually(t, "another replica reports", func() bool { return other.last("shop/web").infrastructure != nil })
	want := r.last("shop/web")
	unplanned := *want.infrastructure
	unplanned.Class = "" // which only a leader is told
	if want.infrastructure = &unplanned; !reflect.DeepEqual(other.last("shop/web"), want) || len(other.order) != 1 {
		t.Errorf("another replica reported %d times, last %+v", len(other.order), other.last("shop/web").infrastructure)
	}
	for _, name := range s.names() {
		s.set(name, nil) // as Kubernetes does when the Gateway is deleted
	}
	r.Update([]translate.ProxySpecChange{{Namespace: "shop", Name: "web"}})
	testkit.Eventually(t, "nothing runs", func() bool { return r.last("shop/web").infrastructure == nil })
}

// TestNamespaces runs Gateways of two namespaces, and asks nothing of the rest of the cluster.
func TestNamespaces(t *testing.T) {
	s := newServer(t)
	other := startReplica(t, s)
	if err := other.settle(t, s, specOf(gatewayName{"away", "web"}, nil)); err != nil {
		t.Fatal(err)
	}
	there := len(s.names())
	testkit.Eventually(t, "it watches all kinds, before which it lists", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return len(s.watched) == len(resources)
	})
	s.mu.Lock()
	s.listed = nil
	s.mu.Unlock()

	r := startReplica(t, s, "shop", "blog", "shop")
	run(t, r.Run)
	r.Update([]translate.ProxySpecChange{specOf(web, nil), specOf(gatewayName{"blog", "web"}, nil)})
	testkit.Eventually(t, "both run", func() bool { return len(s.names()) == there+2*len(fourObjects) })
	for _, name := range []string{"shop/web", "blog/web"} {
		testkit.Eventually(t, name+" waits for a proxy", func() bool { return strings.HasPrefix(r.waiting(name), "no proxy is ready yet") })
	}
	if r.last("away/web").infrastructure != nil {
		t.Error("what runs in another namespace was read")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	slices.Sort(s.listed)
	if got := slices.Compact(s.listed); !slices.Equal(got, []string{"blog", "shop"}) {
		t.Errorf("listed in %q", got)
	}
}

// TestUnreadIsKept keeps what runs for a Gateway that could not be read, however long that lasts, and removes it once the
// Gateway was read and is not ours.
func TestUnreadIsKept(t *testing.T) {
	s := newServer(t)
	r := startReplica(t, s)
	if err := r.settle(t, s, specOf(web, nil)); err != nil {
		t.Fatal(err)
	}
	s.written()

	r = startReplica(t, s) // a new leader, which cannot read the Gateway
	r.grace = 0
	unread := true
	r.o.Unread = func(namespace, name string) bool { return unread && namespace == "shop" && name == "web" }
	r.Update(nil)
	for range 2 {
		if again, err := r.reconcile(t.Context(), web); again <= 0 || err != nil || len(s.written()) != 0 {
			t.Fatalf("unread: next look after %s, error %v; there are %q", again, err, s.names())
		}
	}
	unread = false
	if err := r.once(t, s, web); err != nil {
		t.Fatal(err)
	}
	if got := s.names(); len(got) != 0 {
		t.Errorf("read and not ours: %q are left", got)
	}
}

// TestDriftBesideAWebhook has an admission webhook that keeps one field as it wants it. Fields after that one are looked after all
// the same.
func TestDriftBesideAWebhook(t *testing.T) {
	const deployment = "deployments/shop/web-moongate"
	s := newServer(t)
	s.mutate = func(object string, o tree, _ map[string]tree) {
		if object == deployment {
			o["spec"].(tree)["replicas"] = 7.0
		}
	}
	r := startReplica(t, s)
	if err := r.settle(t, s, specOf(web, nil)); err != nil {
		t.Fatal(err)
	}
	s.written()
	s.set(deployment, func(o tree) { o["spec"].(tree)["template"].(tree)["spec"].(tree)["serviceAccountName"] = "another" })
	if err := r.once(t, s, web); err != nil {
		t.Fatal(err)
	}
	if got := s.at(deployment, "spec", "template", "spec", "serviceAccountName"); got != "web-moongate" {
		t.Errorf("the ServiceAccount of the pods is %v", got)
	}
	if got := s.written(); !slices.Equal(got, []string{"apply " + deployment}) {
		t.Errorf("%q was written", got)
	}
	if err := r.once(t, s, web); err != nil || len(s.written()) != 0 {
		t.Errorf("the webhook's field was applied again; error %v", err)
	}
}

// TestRestoredServer restores an API server from a backup while a replica watches. It sees what is there now, without a restart.
func TestRestoredServer(t *testing.T) {
	const service = "services/shop/web-moongate"
	s := newServer(t)
	r := startReplica(t, s)
	if err := r.settle(t, s, specOf(web, nil)); err != nil {
		t.Fatal(err)
	}
	restore := s.Backup()
	for i := range 50 {
		s.set(service, func(o tree) { o["spec"].(tree)["later"] = fmt.Sprint(i) })
	}
	s.set("configmaps/shop/web-moongate", nil)
	r.caughtUp(t, s)

	restore()
	s.set(service, func(o tree) { o["spec"].(tree)["type"] = "NodePort" })
	s.Disconnect(t) // as it restarts
	r.caughtUp(t, s)
	if err := r.once(t, s, web); err != nil {
		t.Fatal(err)
	}
	if got := s.at(service, "spec", "type"); got != "LoadBalancer" {
		t.Errorf("the Service is of type %v", got)
	}
}

// TestFirstListIsOfTheNewestVersion: a replica that starts does not ask for a version that may be older than what the leader before has written.
func TestFirstListIsOfTheNewestVersion(t *testing.T) {
	s := newServer(t)
	if err := startReplica(t, s).settle(t, s, specOf(web, nil)); err != nil {
		t.Fatal(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cached > 0 {
		t.Errorf("%d of %d lists may be of any version", s.cached, len(s.listed))
	}
}

// TestTrustIsRenewed gives the certificates of a new authority to proxies that stay as they are: those of a spec that is held, and those of the
// class that the Gateway had before.
func TestTrustIsRenewed(t *testing.T) {
	held := func(p *translate.ProxySpec) { p.Paused = true }
	for what, spec := range map[string]translate.ProxySpecChange{
		"held":                      specOf(web, held),
		"held under another class":  specOf(web, func(p *translate.ProxySpec) { p.Paused, p.Class = true, "other" }),
		"of another class":          specOf(web, func(p *translate.ProxySpec) { p.Class = "other" }),
		"held, parameters unlike":   specOf(web, func(p *translate.ProxySpec) { p.Paused, p.Parameters.LogLevel = true, "debug" }),
		"held, nothing is to begin": specOf(gatewayName{"shop", "new"}, held),
	} {
		t.Run(what, func(t *testing.T) {
			s := newServer(t)
			r := startReplica(t, s)
			if err := r.settle(t, s, specOf(web, nil)); err != nil {
				t.Fatal(err)
			}
			s.written()
			r.mu.Lock()
			r.ca = "another"
			r.mu.Unlock()
			if err := r.settle(t, s, spec); err != nil {
				t.Fatal(err)
			}
			if spec.Name != "web" {
				if got := s.written(); len(got) != 0 {
					t.Errorf("%q was written", got)
				}
				return
			}
			if got := s.at("configmaps/shop/web-moongate", "data", caFile); got != "another" {
				t.Errorf("proxies trust %v", got)
			}
			class := s.at("configmaps/shop/web-moongate", "metadata", "labels", gwv1.GatewayClassNameLabelKey)
			if got := s.written(); class != "moongate" || spec.Spec.Paused && !slices.Equal(got, []string{"apply configmaps/shop/web-moongate"}) {
				t.Errorf("%q was written; the ConfigMap is of class %v", got, class)
			}
			if err := r.once(t, s, web); err != nil || len(s.written()) != 0 {
				t.Errorf("it was written again; error %v", err)
			}
		})
	}
}

// TestForeignAutoscaler leaves the number of replicas to an autoscaler that somebody else made, also when the Deployment changes otherwise, and takes
// it back once the autoscaler has gone. One of another Deployment does not count.
func TestForeignAutoscaler(t *testing.T) {
	const deployment, autoscaler = "deployments/shop/web-moongate", "horizontalpodautoscalers/shop/theirs"
	s := newServer(t)
	r := startReplica(t, s)
	debug := specOf(web, func(p *translate.ProxySpec) { p.Parameters.LogLevel = "debug" })
	if err := r.settle(t, s, specOf(web, nil)); err != nil {
		t.Fatal(err)
	}
	target := func(name string) func(tree) {
		return func(o tree) {
			o["spec"] = tree{"maxReplicas": 9, "scaleTargetRef": tree{"apiVersion": "apps/v1", "kind": "Deployment", "name": name}}
		}
	}
	s.set(autoscaler, target("web-moongate"))
	s.set(deployment, func(o tree) { o["spec"].(tree)["replicas"] = 5 })
	s.Disown(refOf(deployment), fieldManager, "spec", "replicas")
	s.written()
	r.caughtUp(t, s)
	if again, err := r.reconcile(t.Context(), web); again <= 0 || err != nil || len(s.written()) != 0 {
		t.Errorf("next look after %s, error %v; replicas %v", again, err, s.at(deployment, "spec", "replicas"))
	}
	if err := r.settle(t, s, debug); err != nil {
		t.Fatal(err)
	}
	if got := s.at(deployment, "spec", "replicas"); got != 5.0 {
		t.Errorf("another change of the Deployment set replicas to %v", got)
	}
	s.set(autoscaler, target("web-other"))
	if err := r.once(t, s, web); err != nil {
		t.Fatal(err)
	}
	if got := s.at(deployment, "spec", "replicas"); got != 1.0 {
		t.Errorf("without the autoscaler there are %v replicas", got)
	}
}

// TestReportedBeforeListed checks that whoever waits for Listed, as a new leader does, knows what runs for each Gateway: it
// would say otherwise that nothing does, and names that point to it would be removed.
func TestReportedBeforeListed(t *testing.T) {
	s := newServer(t)
	first := startReplica(t, s)
	const gateways = 20
	for i := range gateways {
		if err := first.settle(t, s, specOf(gatewayName{"shop", fmt.Sprint("web-", i)}, nil)); err != nil {
			t.Fatal(err)
		}
	}
	reporting, goOn := make(chan struct{}), make(chan struct{})
	begin := sync.OnceFunc(func() { close(reporting) })
	var reported atomic.Int32
	p, err := New(Options{
		Config: s.config(), ControllerName: settings.ControllerName, Image: settings.Image, ControllerAddress: settings.ControllerAddress,
		CAPEM: func() []byte { return nil },
		Report: func(string, string, *translate.Infrastructure, []string) {
			begin()
			<-goOn
			reported.Add(1)
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	run(t, p.Watch)
	select {
	case <-reporting:
	case <-time.After(patience):
		close(goOn)
		t.Fatal("nothing is reported")
	}
	select {
	case <-p.Listed():
		t.Error("it says that everything was listed while it reports the first Gateway")
	default:
	}
	close(goOn)
	select {
	case <-p.Listed():
	case <-time.After(patience):
		t.Fatal("not everything was listed")
	}
	if n := reported.Load(); n != gateways {
		t.Errorf("%d Gateways were reported by then, want %d", n, gateways)
	}
}

// TestServiceAccountIsOurs checks who a ServiceAccount is believed for: it must be the one that was made for the Gateway as it is.
func TestServiceAccountIsOurs(t *testing.T) {
	const account = "serviceaccounts/shop/web-moongate"
	s := newServer(t)
	r := startReplica(t, s)
	// Somebody made it before the Gateway was there, under the name that its own would have.
	s.set(account, func(o tree) { o["metadata"].(tree)["uid"] = "foreign" })
	if err := r.settle(t, s, specOf(web, nil)); err == nil {
		t.Error("a foreign ServiceAccount was taken over")
	}
	if name, ok := r.Gateway("shop", "web-moongate", "foreign"); ok {
		t.Errorf("a foreign ServiceAccount is believed to be of %q", name)
	}
	// It has the labels of ours.
	s.set(account, func(o tree) {
		o["metadata"].(tree)["labels"] = tree{labelManagedBy: managedBy, labelName: proxyName, gwv1.GatewayClassNameLabelKey: "moongate"}
		o["metadata"].(tree)["annotations"] = tree{annotationGateway: "web", annotationController: settings.ControllerName}
	})
	r.caughtUp(t, s)
	if name, ok := r.Gateway("shop", "web-moongate", "foreign"); ok {
		t.Errorf("a foreign ServiceAccount with labels of ours is believed to be of %q", name)
	}
	s.set(account, nil)
	r.caughtUp(t, s)
	if err := r.once(t, s, web); err != nil {
		t.Fatal(err)
	}
	uid := fmt.Sprint(s.at(account, "metadata", "uid"))
	if name, ok := r.Gateway("shop", "web-moongate", uid); !ok || name != "web" {
		t.Errorf("ours is of %q, %v", name, ok)
	}
	if _, ok := r.Gateway("shop", "web-moongate", "another"); ok {
		t.Error("the token of one that had the name before is believed")
	}
	again := specOf(web, func(p *translate.ProxySpec) { p.UID = "uid-of-another" })
	r.Update([]translate.ProxySpecChange{again})
	if _, ok := r.Gateway("shop", "web-moongate", uid); ok {
		t.Error("one that was made for a Gateway that is no more is believed")
	}
	// The proxies of the class that the Gateway had before serve on until there are others.
	r.Update([]translate.ProxySpecChange{specOf(web, func(p *translate.ProxySpec) { p.Class = "other" })})
	if name, ok := r.Gateway("shop", "web-moongate", uid); !ok || name != "web" {
		t.Errorf("under another class ours is of %q, %v", name, ok)
	}
}

// TestServiceAccountMadeAgain deletes a ServiceAccount under running proxies, whose tokens have its UID until the kubelet renews them: they are accepted once it was created
// again, and no others.
func TestServiceAccountMadeAgain(t *testing.T) {
	const account = "serviceaccounts/shop/web-moongate"
	s := newServer(t)
	r := startReplica(t, s)
	believed := func(what, uid string, want bool) {
		t.Helper()
		if name, ok := r.Gateway("shop", "web-moongate", uid); ok != want || ok && name != "web" {
			t.Errorf("%s: %q, %v", what, name, ok)
		}
	}
	again := func() (uid string) {
		t.Helper()
		s.set(account, nil)
		r.caughtUp(t, s)
		if err := r.once(t, s, web); err != nil {
			t.Fatal(err)
		}
		r.caughtUp(t, s)
		return fmt.Sprint(s.at(account, "metadata", "uid"))
	}
	// One of somebody else, with labels and annotations of ours.
	s.set(account, func(o tree) {
		meta := o["metadata"].(tree)
		meta["uid"], meta["labels"] = "foreign", tree{labelManagedBy: managedBy, labelName: proxyName, gwv1.GatewayClassNameLabelKey: "moongate"}
		meta["annotations"] = tree{annotationGateway: "web", annotationController: settings.ControllerName}
	})
	r.caughtUp(t, s)
	r.Update([]translate.ProxySpecChange{specOf(web, nil)})
	first := again()
	believed("one that was there before the Gateway", "foreign", false)
	s.set(account, nil)
	r.caughtUp(t, s)
	believed("one that is gone", first, false)
	second := again()
	if first == second {
		t.Fatal("it has the UID of before")
	}
	believed("ours", second, true)
	believed("the former one", first, true)
	believed("another", "another", false)
	believed("one that was there before the Gateway, later", "foreign", false)
	for range formerAccounts {
		again()
	}
	believed("one that was replaced too often", first, false)
	third := again()
	fourth := again()
	believed("the former one, later", third, true)
	name := accountName{web, "web-moongate"}
	r.store.mu.Lock()
	for i := range r.store.former[name] {
		r.store.former[name][i].gone = time.Now().Add(-tokenLife)
	}
	r.store.mu.Unlock()
	believed("one whose tokens have expired", third, false)
	believed("ours, still", fourth, true)
	fifth := again()
	believed("the former one, last", fourth, true)
	r.Update([]translate.ProxySpecChange{specOf(web, func(p *translate.ProxySpec) { p.UID = "uid-of-another" })})
	believed("of a Gateway that is no more", fourth, false)
	if err := r.once(t, s, web); err != nil { // the account is taken over
		t.Fatal(err)
	}
	r.caughtUp(t, s)
	believed("the former one, which was made for a Gateway that is no more", fourth, false)
	believed("ours, taken over", fifth, fmt.Sprint(s.at(account, "metadata", "uid")) == fifth)
}

// TestPodsAreTold checks that a pod that is gone, or another one of its name, is told at once.
func TestPodsAreTold(t *testing.T) {
	const pod = "pods/shop/web-0"
	s := newServer(t)
	var mu sync.Mutex
	var told map[string]string
	p, err := New(Options{
		Config: s.config(), ControllerName: settings.ControllerName, Image: settings.Image, ControllerAddress: settings.ControllerAddress,
		CAPEM: func() []byte { return nil }, Report: func(string, string, *translate.Infrastructure, []string) {},
		Pods: func(_, _ string, uids map[string]string) { mu.Lock(); defer mu.Unlock(); told = uids },
	})
	if err != nil {
		t.Fatal(err)
	}
	run(t, p.Watch)
	is := func(what, uid string) {
		t.Helper()
		testkit.Eventually(t, what, func() bool { mu.Lock(); defer mu.Unlock(); return told["web-0"] == uid })
	}
	state := func(uid, phase string) func(tree) {
		return func(o tree) {
			meta := o["metadata"].(tree)
			meta["uid"], meta["labels"] = uid, tree{labelManagedBy: managedBy, labelName: proxyName}
			meta["annotations"] = tree{annotationGateway: "web", annotationController: settings.ControllerName}
			o["status"] = tree{"phase": phase}
		}
	}
	s.set(pod, state("one", "Running"))
	is("the pod is told", "one")
	s.set(pod, nil)
	is("its end is told", "")
	s.set(pod, state("two", "Running"))
	is("the next one of its name is told", "two")
	s.set(pod, state("two", "Failed"))
	is("that it has failed is told", "")
}
