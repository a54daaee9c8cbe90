package kube

import (
	"errors"
	"fmt"
	"net"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/moongate-dev/moongate/api/v1alpha1"
	"github.com/moongate-dev/moongate/internal/kind"
	"github.com/moongate-dev/moongate/internal/testkit"
	"github.com/moongate-dev/moongate/internal/testkit/apiserver"
)

// both runs a test with lists that are streamed, and with those that are not.
func both(t *testing.T, test func(t *testing.T, s *apiServer)) {
	for _, streams := range []bool{true, false} {
		t.Run(fmt.Sprintf("streams=%v", streams), func(t *testing.T) { test(t, newAPIServer(t, streams)) })
	}
}

func TestTheFirstChangeHasEverything(t *testing.T) {
	both(t, func(t *testing.T, s *apiServer) {
		s.install(nil)
		var want []kind.ObjectKey
		for _, k := range kinds {
			if k.Custom {
				namespace := "team"
				if k.Name == "GatewayClass" {
					namespace = ""
				}
				s.put(k.Group+"/"+k.Resource, k.Name, namespace, "one", fields{
					"metadata": fields{
						"labels": fields{"l": "1"}, "finalizers": []any{"example.org/f"},
						"annotations":     fields{corev1.LastAppliedConfigAnnotation: "{}", "example.org/a": "1"},
						"ownerReferences": []any{fields{"apiVersion": "example.org/v1", "kind": "App", "name": "a", "uid": "1"}}, "generateName": "o",
					},
					"status": fields{"conditions": []any{fields{"type": "Accepted"}}},
				})
				want = append(want, kind.ObjectKey{Group: k.Group, Kind: k.Name, Namespace: namespace, Name: "one"})
			}
		}
		s.put("namespaces", "Namespace", "", "team", fields{"metadata": fields{"labels": fields{"l": "1"}}, "status": fields{"phase": "Active"}})
		s.putService("one", 80)
		s.put("discovery.k8s.io/endpointslices", "EndpointSlice", "team", "one", fields{
			"metadata":    fields{"labels": fields{discoveryv1.LabelServiceName: "one", "other": "x"}, "annotations": fields{"endpoints.kubernetes.io/last-change-trigger-time": "now"}},
			"addressType": "IPv4",
			"ports":       []any{fields{"name": "http", "port": int64(8080), "protocol": "TCP"}},
			"endpoints": []any{fields{
				"addresses": []any{"10.244.0.7"}, "nodeName": "n", "zone": "z", "targetRef": fields{"kind": "Pod", "name": "p"},
				"conditions": fields{"ready": true, "terminating": false},
			}},
		})
		s.putSecret("one", "aaaa")
		want = append(want, kind.ObjectKey{Kind: "Namespace", Name: "team"}, serviceID("one"), kind.ObjectKey{Group: "discovery.k8s.io", Kind: "EndpointSlice", Namespace: "team", Name: "one"})
		slices.SortFunc(want, kind.ObjectKey.Compare)

		release := s.hold(gatewayGroup + "/udproutes")
		c := consume(t, s)
		testkit.Eventually(t, "all but UDPRoutes are listed", func() bool {
			return reflect.DeepEqual(c.Waiting(), []string{"UDPRoute: not listed yet"})
		})
		select {
		case change := <-c.changes:
			t.Fatalf("a Change came too early: %+v", change)
		default:
		}
		release()
		change := c.next()
		var got []kind.ObjectKey
		for _, o := range change.Upserts {
			got = append(got, idOf(t, o))
		}
		if !slices.Equal(got, want) {
			t.Errorf("got  %v\nwant %v", got, want)
		}
		if len(change.Deletes) > 0 {
			t.Errorf("deletes %v", change.Deletes)
		}
		for _, o := range change.Upserts {
			if o.GetResourceVersion() != "" || o.GetManagedFields() != nil || o.GetAnnotations() != nil || o.GetFinalizers() != nil {
				t.Errorf("%v has metadata that translation does not read: %+v", idOf(t, o), o)
			}
			if o.GetNamespace() == "" && o.GetLabels()["l"] != "1" {
				t.Errorf("%v has labels %v", idOf(t, o), o.GetLabels())
			}
		}
		route := c.objects[routeID("one")].(*gwv1.HTTPRoute)
		if len(route.Status.Parents) > 0 || route.Generation != 1 {
			t.Errorf("route %+v", route)
		}
		if p := c.objects[kind.ObjectKey{Group: "moongate.dev", Kind: "GatewayParameters", Namespace: "team", Name: "one"}].(*v1alpha1.GatewayParameters); len(p.Status.Conditions) > 0 {
			t.Errorf("GatewayParameters come with a status: %+v", p.Status)
		}
		if g, _ := c.Get(kind.ObjectKey{Group: gatewayGroup, Kind: "Gateway", Namespace: "team", Name: "one"}); len(g.(*gwv1.Gateway).Status.Conditions) != 1 || g.GetResourceVersion() == "" ||
			g.GetAnnotations() != nil || g.GetOwnerReferences() != nil || g.GetGenerateName() != "" || g.GetManagedFields() != nil || len(g.GetFinalizers()) != 1 {
			t.Errorf("Get: %+v", g)
		}
		checkSlice(t, c.objects[kind.ObjectKey{Group: "discovery.k8s.io", Kind: "EndpointSlice", Namespace: "team", Name: "one"}].(*discoveryv1.EndpointSlice))
		if svc := c.objects[serviceID("one")].(*corev1.Service); svc.Spec.ClusterIP != "10.96.0.9" || len(svc.Spec.Ports) != 1 || svc.Spec.Ports[0].Port != 80 || svc.Spec.Type != "ClusterIP" {
			t.Errorf("service %+v", svc)
		}
		checkInstalled(t, c.installed)
		s.mu.Lock()
		defer s.mu.Unlock()
		for path, want := range map[string]string{
			"/api/v1/services": "application/vnd.kubernetes.protobuf", "/apis/discovery.k8s.io/v1/endpointslices": "application/vnd.kubernetes.protobuf",
			"/api/v1/secrets": "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata", "/api/v1/namespaces": "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata",
			"/apis/gateway.networking.k8s.io/v1/httproutes": "application/json",
		} {
			if got := s.accepts[path]; !strings.HasPrefix(got, want) {
				t.Errorf("%s is asked for as %q, want %q", path, got, want)
			}
		}
		if !reflect.DeepEqual(s.agents, map[string]bool{"moongate/1.2": true}) || len(s.gets) > 0 || (s.lists == 0) != s.streams {
			t.Errorf("agents %v, Secrets read %v, %d lists that were not streamed", s.agents, s.gets, s.lists)
		}
	})
}

func checkSlice(t *testing.T, slice *discoveryv1.EndpointSlice) {
	t.Helper()
	name, zone, port, tcp, yes, no := "http", "z", int32(8080), corev1.ProtocolTCP, true, false
	want := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Namespace: "team", Name: "one", Labels: map[string]string{discoveryv1.LabelServiceName: "one"}},
		AddressType: "IPv4", Ports: []discoveryv1.EndpointPort{{Name: &name, Port: &port, Protocol: &tcp}},
		Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"10.244.0.7"}, Conditions: discoveryv1.EndpointConditions{Ready: &yes, Terminating: &no}, Zone: &zone}},
	}
	if !reflect.DeepEqual(slice, want) {
		t.Errorf("got  %+v\nwant %+v", slice, want)
	}
}

func checkInstalled(t *testing.T, got *Installed) {
	t.Helper()
	if got == nil || len(got.CRDs) != 10 || len(got.Kinds) != 17 {
		t.Fatalf("installed: %+v", got)
	}
	if want := (CRD{"backendtlspolicies." + gatewayGroup, "v1.7.0", "standard"}); got.CRDs[0] != want {
		t.Errorf("got %+v, want %+v", got.CRDs[0], want)
	}
	if want := (Served{"moongate.dev", "GatewayParameters", "v1alpha1", "gatewayparameters"}); got.Kinds[15] != want {
		t.Errorf("got %+v, want %+v", got.Kinds[14], want)
	}
}

func TestWhatTranslationDoesNotReadWakesNothing(t *testing.T) {
	both(t, func(t *testing.T, s *apiServer) {
		s.install(nil)
		s.putRoute("one", "a.example", nil)
		s.putService("one", 80)
		c := consume(t, s)
		c.next()

		s.putRoute("one", "a.example", fields{"status": fields{"parents": []any{fields{"controllerName": "example.org/c"}}}})
		change := c.next()
		if change.ConcernsTranslation() || !slices.Equal(change.Observed, []kind.ObjectKey{routeID("one")}) {
			t.Errorf("after a write of a status: %+v", change)
		}
		o, _ := c.Get(routeID("one"))
		if len(o.(*gwv1.HTTPRoute).Status.Parents) != 1 {
			t.Errorf("Get: %+v", o)
		}
		if translated := c.objects[routeID("one")].(*gwv1.HTTPRoute); &o.(*gwv1.HTTPRoute).Spec.Hostnames[0] != &translated.Spec.Hostnames[0] {
			t.Error("the spec is in memory twice after a write of a status")
		}
		s.putRoute("one", "a.example", fields{"metadata": fields{"annotations": fields{"a": "b"}, "finalizers": []any{"example.org/f"}}})
		if change := c.next(); change.ConcernsTranslation() {
			t.Errorf("after a write of an annotation: %+v", change)
		}
		// A Service has no status that anybody here would write: not even Observed.
		s.put("services", "Service", "team", "one", fields{
			"metadata": fields{"annotations": fields{"a": "b"}}, "status": fields{"loadBalancer": fields{"ingress": []any{fields{"ip": "1.2.3.4"}}}},
			"spec": fields{"type": "ClusterIP", "clusterIP": "10.96.0.9", "ports": []any{fields{"port": int64(80), "protocol": "TCP", "nodePort": int64(30000)}}},
		})
		s.putService("two", 80)
		if change := c.next(); len(change.Upserts) != 1 || change.Upserts[0].GetName() != "two" || len(change.Observed) > 0 {
			t.Errorf("after a write of a Service: %+v", change)
		}
		s.putRoute("one", "b.example", nil)
		change = c.next()
		if len(change.Upserts) != 1 || !slices.Equal(change.Observed, []kind.ObjectKey{routeID("one")}) {
			t.Errorf("after an edit: %+v", change)
		}
	})
}

func TestKindsComeAndGo(t *testing.T) {
	both(t, func(t *testing.T, s *apiServer) {
		s.define(kindNamed("Gateway"), "v1")
		s.putService("one", 80)
		s.putRoute("one", "a.example", nil) // nobody can read it yet
		c := consume(t, s)
		if change := c.next(); len(change.Upserts) != 1 || len(change.Installed.Kinds) != 1 || len(change.Installed.CRDs) != 1 {
			t.Errorf("before: %+v", change)
		}
		s.define(kindNamed("HTTPRoute"), "v1")
		c.until("the route and its kind come", func() bool { return c.objects[routeID("one")] != nil && len(c.installed.Kinds) == 2 })
		s.putRoute("two", "b.example", nil)
		c.until("another route comes", func() bool { return c.objects[routeID("two")] != nil })

		s.mu.Lock()
		s.unserve(kindNamed("HTTPRoute"))
		s.mu.Unlock()
		s.remove(crdGroup+"/customresourcedefinitions", "", "httproutes."+gatewayGroup)
		c.until("the routes and their kind go", func() bool {
			return c.objects[routeID("one")] == nil && c.objects[routeID("two")] == nil && len(c.installed.Kinds) == 1 && len(c.installed.CRDs) == 1
		})
		if _, ok := c.Get(routeID("one")); ok || c.objects[serviceID("one")] == nil {
			t.Errorf("objects %v, route there: %v", c.objects, ok)
		}
		s.define(kindNamed("HTTPRoute"), "v1")
		c.until("they come again", func() bool { return c.objects[routeID("one")] != nil && len(c.installed.Kinds) == 2 })
	})
}

// TestTrustBundlesComeAndGo: no CRD tells of their API, which an API server serves, or not, since it was started with other flags or is of another version.
func TestTrustBundlesComeAndGo(t *testing.T) {
	both(t, func(t *testing.T, s *apiServer) {
		s.install(nil)
		k := kindNamed("ClusterTrustBundle")
		serve := func(version string) {
			s.server.Serve(apiserver.Kind{Group: k.Group, Version: version, Resource: k.Resource, Kind: k.Name, ClusterScoped: true})
		}
		put := func(text string) {
			s.put(k.Group+"/"+k.Resource, k.Name, "", "roots", fields{"spec": fields{"trustBundle": text}})
		}
		c := consume(t, s)
		c.next()
		id := k.Key("", "roots")
		version := func() string {
			i := slices.IndexFunc(c.installed.Kinds, func(s Served) bool { return s.Kind == k.Name })
			if i < 0 {
				return ""
			}
			return c.installed.Kinds[i].Version
		}
		holds := func(text string) func() bool {
			return func() bool {
				b, _ := c.objects[id].(*certificatesv1.ClusterTrustBundle)
				return b != nil && b.Spec.TrustBundle == text
			}
		}
		if version() != "" {
			t.Errorf("it is served in %s", version())
		}
		serve("v1beta1")
		put("one")
		c.lookAgain()
		c.until("it comes", func() bool { return holds("one")() && version() == "v1beta1" })
		put("two")
		c.until("its change comes", holds("two"))
		serve("v1")
		c.lookAgain()
		c.until("it is read in v1", func() bool { return version() == "v1" })
		s.remove(k.Group+"/"+k.Resource, "", "roots")
		c.until("it goes", func() bool { return c.objects[id] == nil })
		put("three")
		c.until("it comes again", holds("three"))
		c.mu.Lock()
		c.grace = 0
		c.mu.Unlock()
		s.mu.Lock()
		s.unserve(k)
		s.mu.Unlock()
		c.lookAgain()
		c.until("it goes with its API", func() bool { return c.objects[id] == nil && version() == "" })
	})
}

// An API server that has just started may not know all kinds at once.
func TestAKindWithACRDIsNotGoneAtOnce(t *testing.T) {
	s := newAPIServer(t, true)
	s.install(nil)
	s.putRoute("one", "a.example", nil)
	c := consume(t, s, func(s *Source) { s.grace = time.Hour })
	c.next()
	s.mu.Lock()
	s.unserve(kindNamed("HTTPRoute"))
	s.mu.Unlock()
	c.lookAgain()
	testkit.Eventually(t, "it is noticed", func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return !c.feeds[kindNamed("HTTPRoute")].absent.IsZero()
	})
	if _, ok := c.Get(routeID("one")); !ok {
		t.Error("the route is gone at once")
	}
	c.mu.Lock()
	c.grace = 0
	c.mu.Unlock()
	c.until("it goes", func() bool { return c.objects[routeID("one")] == nil })
}

// TestTheStartWaitsForDiscovery: without routes, because the API server does not name their kind yet, a first generation would end all of them.
func TestTheStartWaitsForDiscovery(t *testing.T) {
	s := newAPIServer(t, true)
	s.install(nil)
	s.putRoute("one", "a.example", nil)
	route := kindNamed("HTTPRoute")
	s.mu.Lock()
	s.unserve(route)
	s.mu.Unlock()
	c := consume(t, s, func(s *Source) { s.grace = time.Hour })
	testkit.Eventually(t, "it waits for nothing else", func() bool {
		waiting := c.Waiting()
		return len(waiting) == 1 && strings.HasPrefix(waiting[0], "HTTPRoute: has a CustomResourceDefinition")
	})
	s.define(route, "v1")
	if c.next(); c.objects[routeID("one")] == nil {
		t.Error("the first Change lacks the route")
	}
}

// TestTheStartDoesNotWaitForDiscoveryForEver: a CRD may serve none of the versions that are read.
func TestTheStartDoesNotWaitForDiscoveryForEver(t *testing.T) {
	s := newAPIServer(t, true)
	s.install(nil)
	s.mu.Lock()
	s.unserve(kindNamed("ReferenceGrant"))
	s.mu.Unlock()
	c := consume(t, s, func(s *Source) { s.grace = 50 * time.Millisecond })
	c.next()
}

func TestNothingGoesWhileTheServerIsAway(t *testing.T) {
	both(t, func(t *testing.T, s *apiServer) {
		s.install(nil)
		for _, n := range []string{"stays", "goes", "changes"} {
			s.putRoute(n, "a.example", nil)
			s.putService(n, 80)
		}
		c := consume(t, s)
		c.next()
		before := len(c.told)
		s.stop()
		testkit.Eventually(t, "it is noticed", func() bool { return strings.Contains(c.log.String(), "does not answer") })
		if away := c.Away(); away < lasting {
			t.Errorf("it is said to be away for %v", away)
		}
		if _, ok := c.Get(routeID("goes")); !ok || len(c.told) != before {
			t.Error("something went while the server was away")
		}
		s.remove(gatewayGroup+"/httproutes", "team", "goes")
		s.remove("services", "team", "goes")
		s.putRoute("changes", "b.example", nil)
		s.putService("new", 80)
		s.compact()
		s.start()
		c.until("all differences come", func() bool {
			_, serviceStays := c.objects[serviceID("goes")]
			return c.objects[routeID("goes")] == nil && !serviceStays && c.objects[serviceID("new")] != nil &&
				c.objects[routeID("changes")].(*gwv1.HTTPRoute).Spec.Hostnames[0] == "b.example"
		})
		for _, id := range []kind.ObjectKey{routeID("stays"), serviceID("stays"), serviceID("changes")} {
			if c.upserts[id] != 1 {
				t.Errorf("%v came %d times", id, c.upserts[id])
			}
		}
		testkit.Eventually(t, "its return is logged", func() bool { return strings.Contains(c.log.String(), "answers again") })
		testkit.Eventually(t, "it is not away", func() bool { return c.Away() == 0 })
	})
}

// TestRestoredServer gives the API server the data of a backup: what was written after it goes, and what is written then is followed,
// though its versions are those of the past.
func TestRestoredServer(t *testing.T) {
	both(t, func(t *testing.T, s *apiServer) {
		s.install(nil)
		s.putRoute("stays", "a.example", nil)
		s.putRoute("changes", "a.example", nil)
		restore := s.server.Backup()
		for i := range 50 {
			s.putRoute("changes", fmt.Sprintf("b%d.example", i), nil)
		}
		c := consume(t, s)
		c.next()
		s.putRoute("later", "c.example", nil)
		c.until("the watch goes on, after it asked for the version", func() bool { return c.objects[routeID("later")] != nil })
		s.stop()
		restore()
		s.start()
		s.putRoute("new", "d.example", nil)
		c.until("what the backup has is known, and what was written since", func() bool {
			changed, _ := c.objects[routeID("changes")].(*gwv1.HTTPRoute)
			return c.objects[routeID("later")] == nil && c.objects[routeID("new")] != nil && changed.Spec.Hostnames[0] == "a.example"
		})
	})
}

// TestTheFirstListIsOfTheNewestVersion: a replica that starts does not ask for a version that may be older than what the leader before has delivered.
func TestTheFirstListIsOfTheNewestVersion(t *testing.T) {
	both(t, func(t *testing.T, s *apiServer) {
		s.install(nil)
		c := consume(t, s)
		c.next()
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.cached > 0 {
			t.Errorf("%d of %d lists may be of any version", s.cached, s.lists)
		}
	})
}

func TestOlderVersions(t *testing.T) {
	s := newAPIServer(t, true)
	older := map[string]string{
		"TCPRoute": "v1alpha2", "UDPRoute": "v1alpha2", "TLSRoute": "v1alpha2", "ReferenceGrant": "v1beta1", "BackendTLSPolicy": "v1alpha3",
		"GRPCRoute": "v1alpha2", "HTTPRoute": "v1beta1", "Gateway": "v1beta1", "GatewayClass": "v1beta1",
	}
	s.install(older)
	parents := fields{"parentRefs": []any{fields{"name": "g"}}}
	for _, resource := range []string{"tcproutes", "udproutes", "tlsroutes"} {
		s.put(gatewayGroup+"/"+resource, map[string]string{"tcproutes": "TCPRoute", "udproutes": "UDPRoute", "tlsroutes": "TLSRoute"}[resource], "team", "one", fields{"spec": parents})
	}
	s.put(gatewayGroup+"/referencegrants", "ReferenceGrant", "team", "one", fields{"spec": fields{"from": []any{fields{"group": "", "kind": "Service", "namespace": "n"}}}})
	c := consume(t, s)
	c.next()
	tcpID := kind.ObjectKey{Group: gatewayGroup, Kind: "TCPRoute", Namespace: "team", Name: "one"}
	check := func() {
		t.Helper()
		if r := c.objects[tcpID].(*gwv1.TCPRoute); r.Spec.ParentRefs[0].Name != "g" {
			t.Errorf("TCPRoute %+v", r)
		}
		if g := c.objects[kind.ObjectKey{Group: gatewayGroup, Kind: "ReferenceGrant", Namespace: "team", Name: "one"}].(*gwv1.ReferenceGrant); g.Spec.From[0].Namespace != "n" {
			t.Errorf("ReferenceGrant %+v", g)
		}
	}
	check()
	version := func(kind string) string {
		i := slices.IndexFunc(c.installed.Kinds, func(s Served) bool { return s.Kind == kind })
		return c.installed.Kinds[i].Version
	}
	for kind, want := range older {
		if got := version(kind); got != want {
			t.Errorf("%s is read in %s, want %s", kind, got, want)
		}
	}
	s.define(kindNamed("TCPRoute"), "v1")
	c.until("it is read in v1", func() bool { return version("TCPRoute") == "v1" })
	s.put(gatewayGroup+"/tcproutes", "TCPRoute", "team", "two", fields{"spec": parents})
	c.until("another comes", func() bool {
		return c.objects[kind.ObjectKey{Group: gatewayGroup, Kind: "TCPRoute", Namespace: "team", Name: "two"}] != nil
	})
	check()
	if c.upserts[tcpID] != 1 {
		t.Errorf("the same object came %d times", c.upserts[tcpID])
	}
}

func TestOneUnreadableObjectHurtsOnlyItself(t *testing.T) {
	both(t, func(t *testing.T, s *apiServer) {
		s.install(nil)
		resource := "moongate.dev/gatewayparameters"
		id := func(n string) kind.ObjectKey {
			return kind.ObjectKey{Group: "moongate.dev", Kind: "GatewayParameters", Namespace: "team", Name: n}
		}
		put := func(n, drain string) {
			s.put(resource, "GatewayParameters", "team", n, fields{"spec": fields{"drainTimeout": drain}})
		}
		put("bad", "soon")
		put("good", "10s")
		c := consume(t, s)
		c.next()
		if c.objects[id("good")] == nil || !partial(c.objects[id("bad")]) || !strings.Contains(c.log.String(), "GatewayParameters team/bad") {
			t.Errorf("objects %v; log:\n%s", c.objects, c.log)
		}
		put("good", "later")
		put("other", "20s")
		c.until("another comes", func() bool { return c.objects[id("other")] != nil })
		put("bad", "30s")
		c.until("the bad one is good", func() bool { return !partial(c.objects[id("bad")]) })
		s.stop()
		s.compact() // lists again
		s.start()
		put("last", "1s")
		c.until("one more comes", func() bool { return c.objects[id("last")] != nil })
		if p, ok := c.objects[id("good")].(*v1alpha1.GatewayParameters); !ok || p.Spec.DrainTimeout.Duration != 10*time.Second {
			t.Errorf("the last valid version did not stay: %+v", p)
		}
		s.remove(resource, "team", "good")
		c.until("it goes when it is deleted", func() bool { return c.objects[id("good")] == nil })
	})
}

func TestARefusalNamesItsRemedy(t *testing.T) {
	s := newAPIServer(t, true)
	s.install(nil)
	s.refused[gatewayGroup+"/listenersets"] = true
	c := consume(t, s, func(s *Source) { s.skip = time.Hour })
	want := "allow the controller's ServiceAccount to list and watch listenersets.gateway.networking.k8s.io in the whole cluster"
	testkit.Eventually(t, "it is logged", func() bool { return strings.Contains(c.log.String(), want) })
	testkit.Eventually(t, "it is what is waited for", func() bool {
		w := c.Waiting()
		return len(w) == 1 && strings.HasPrefix(w[0], "ListenerSet: ")
	})
	s.mu.Lock()
	delete(s.refused, gatewayGroup+"/listenersets")
	s.mu.Unlock()
	c.next()
	if w := c.Waiting(); len(w) > 0 {
		t.Errorf("waiting for %v", w)
	}
}

func TestSomethingMustBeConfigured(t *testing.T) {
	if _, err := New(Options{}); err == nil || !strings.Contains(err.Error(), "kubeconfig") {
		t.Errorf("got %v", err)
	}
}

// Before many API servers there is a load balancer, which accepts connections for them.
func TestConnectionsThatCloseAreAnOutage(t *testing.T) {
	both(t, func(t *testing.T, s *apiServer) {
		s.install(nil)
		s.putRoute("one", "a.example", nil)
		c := consume(t, s)
		c.next()
		s.stop()
		var balancer net.Listener
		testkit.Eventually(t, "the address is free", func() (ok bool) {
			var err error
			balancer, err = net.Listen("tcp", strings.TrimPrefix(s.server.URL(), "http://"))
			return err == nil
		})
		go func() {
			for {
				conn, err := balancer.Accept()
				if err != nil {
					return
				}
				conn.Close()
			}
		}()
		testkit.Eventually(t, "it is logged", func() bool { return strings.Contains(c.log.String(), "does not answer") })
		balancer.Close()
		s.start()
		s.putRoute("two", "a.example", nil)
		c.until("a route comes", func() bool { return c.objects[routeID("two")] != nil })
		if c.upserts[routeID("one")] != 1 {
			t.Errorf("the other route came %d times", c.upserts[routeID("one")])
		}
	})
}

// What could not be read must not be taken for what is not there.
func TestUnreadIsNotAbsent(t *testing.T) {
	gateway := func(n string) kind.ObjectKey {
		return kind.ObjectKey{Group: gatewayGroup, Kind: "Gateway", Namespace: "team", Name: n}
	}
	both(t, func(t *testing.T, s *apiServer) {
		put := func(n string, class any) {
			s.put(gatewayGroup+"/gateways", "Gateway", "team", n, fields{"spec": fields{"gatewayClassName": class}})
		}
		s.define(kindNamed("Gateway"), "v1")
		put("good", "moongate")
		put("bad", fields{"not": "a name"})
		c := consume(t, s, func(s *Source) { s.grace = 0 })
		if id := gateway("absent"); !unstarted(t, s).Unread(id) {
			t.Error("before anything is listed an absent Gateway counts as read")
		}
		c.next()
		for id, want := range map[kind.ObjectKey]bool{
			gateway("good"): false, gateway("bad"): true, gateway("absent"): false,
			kind.GatewayClass.Key("", "moongate"): true, // not served
		} {
			if got := c.Unread(id); got != want {
				t.Errorf("%v: unread is %v", id, got)
			}
		}
		put("good", fields{"not": "a name"})
		put("bad", "moongate")
		put("later", fields{"not": "a name"})
		testkit.Eventually(t, "all are taken in", func() bool {
			return c.Unread(gateway("later")) && !c.Unread(gateway("bad"))
		})
		if c.Unread(gateway("good")) {
			t.Error("a Gateway whose last valid version is kept counts as unread")
		}
		s.remove(gatewayGroup+"/gateways", "team", "later")
		testkit.Eventually(t, "it is absent once it is deleted", func() bool { return !c.Unread(gateway("later")) })
		s.mu.Lock()
		s.unserve(kindNamed("Gateway"))
		s.mu.Unlock()
		c.lookAgain()
		testkit.Eventually(t, "a kind that is no longer served is unread", func() bool { return c.Unread(gateway("good")) })
	})
}

// unstarted is a Source that has read nothing.
func unstarted(t *testing.T, s *apiServer) *Source {
	t.Helper()
	source, err := New(Options{Config: s.config()})
	if err != nil {
		t.Fatal(err)
	}
	return source
}

// A kind that cannot be listed does not hold up the start for ever, and joins in as soon as it can be.
func TestTheStartGoesOnWithoutAKind(t *testing.T) {
	both(t, func(t *testing.T, s *apiServer) {
		s.install(nil)
		s.putRoute("one", "a.example", nil)
		k := kindNamed("ClusterTrustBundle")
		resource, id := k.Group+"/"+k.Resource, k.Key("", "roots")
		s.server.Serve(apiserver.Kind{Group: k.Group, Version: "v1beta1", Resource: k.Resource, Kind: k.Name, ClusterScoped: true})
		s.put(resource, k.Name, "", "roots", fields{"spec": fields{"trustBundle": "one"}})
		s.unlisted[resource] = true
		c := consume(t, s, func(s *Source) { s.skip = 300 * time.Millisecond })
		change := c.next()
		remedy := "allow the controller's ServiceAccount to list and watch clustertrustbundles.certificates.k8s.io in the whole cluster"
		want := []Unread{{k.Group, k.Name, remedy}}
		if !reflect.DeepEqual(change.Installed.Unread, want) || !reflect.DeepEqual(c.UnreadKinds(), want) || c.objects[routeID("one")] == nil {
			t.Errorf("unread %v, %v; objects %v", change.Installed.Unread, c.UnreadKinds(), c.objects)
		}
		if !strings.Contains(c.log.String(), "continuing without them until they can: "+remedy) || !c.Source.Unread(id) {
			t.Errorf("it is not said; log:\n%s", c.log)
		}
		if slices.ContainsFunc(c.installed.Kinds, func(s Served) bool { return s.Kind == k.Name }) {
			t.Error("the kind counts as installed")
		}
		s.mu.Lock()
		delete(s.unlisted, resource)
		s.mu.Unlock()
		c.until("it joins in", func() bool {
			return c.objects[id] != nil && len(c.installed.Unread) == 0 && slices.ContainsFunc(c.installed.Kinds, func(s Served) bool { return s.Kind == k.Name })
		})
		if len(c.UnreadKinds()) != 0 {
			t.Errorf("still unread: %v", c.UnreadKinds())
		}
	})
}

// Without routes or endpoints a first generation would take away what proxies serve.
func TestTheStartWaitsForWhatIsServed(t *testing.T) {
	s := newAPIServer(t, true)
	s.install(nil)
	if !kindNamed("GatewayParameters").Essential {
		t.Error("the start does not wait for the addresses that a class denies")
	}
	s.unlisted["discovery.k8s.io/endpointslices"] = true
	c := consume(t, s, func(s *Source) { s.skip = 50 * time.Millisecond })
	testkit.Eventually(t, "it is said", func() bool {
		return strings.Contains(c.log.String(), "the start waits for them") && len(c.UnreadKinds()) == 1 && len(c.Waiting()) == 1
	})
	select {
	case change := <-c.changes:
		t.Errorf("a Change came: %+v", change)
	default:
	}
	s.mu.Lock()
	delete(s.unlisted, "discovery.k8s.io/endpointslices")
	s.mu.Unlock()
	c.next()
	testkit.Eventually(t, "it is said no longer", func() bool { return len(c.UnreadKinds()) == 0 })
}

// An API server that is away is no reason to go on without anything.
func TestAnAbsentServerSkipsNothing(t *testing.T) {
	s := unstarted(t, newAPIServer(t, true))
	s.skip = time.Minute
	f := &feed{source: s, kind: kindNamed("ListenerSet")}
	f.scopes = []*scope{{feed: f}}
	start := time.Now()
	for i, step := range []struct {
		after   time.Duration
		away    bool
		failing bool
	}{
		{0, true, false}, {2 * time.Minute, true, false}, {3 * time.Minute, false, false}, {3*time.Minute + 50*time.Second, false, false},
		{3*time.Minute + 51*time.Second, true, false}, {5 * time.Minute, false, false}, {6 * time.Minute, false, true},
	} {
		if s.reach.text = ""; step.away {
			s.reach.text = "connection refused"
		}
		f.scopes[0].check(start.Add(step.after))
		if f.failing() != step.failing {
			t.Errorf("step %d: failing is %v", i, f.failing())
		}
	}
}

// TestTheEndOfAnOutageIsNoTrouble: the first request that is answered ends the outage, and those of other kinds come a moment later.
func TestTheEndOfAnOutageIsNoTrouble(t *testing.T) {
	s := unstarted(t, newAPIServer(t, true))
	scopeOf := func(kind string) *scope {
		f := &feed{source: s, kind: kindNamed(kind), listed: true}
		f.scopes = []*scope{{feed: f, done: true}}
		return f.scopes[0]
	}
	first, second := scopeOf("HTTPRoute"), scopeOf("Gateway")
	s.skip = time.Minute
	refused := errors.New("connection refused")
	for _, p := range []*scope{first, second} {
		s.note(t.Context(), p, &p.watching, refused)
		p.watching.since = p.watching.since.Add(-time.Hour)
		s.note(t.Context(), p, &p.watching, refused)
	}
	s.noteProbe(refused, time.Now())
	s.note(t.Context(), first, &first.watching, nil)
	answered := time.Now()
	if second.check(answered); second.failing {
		t.Error("a kind is unreadable at the moment the API server answers again")
	}
	if second.check(answered.Add(s.skip)); !second.failing {
		t.Error("a kind that goes on not being readable is not noted")
	}
}

// Who may read Secrets but not watch them gets their changes late, but gets them.
func TestSecretsThatCannotBeWatchedAreReadAgain(t *testing.T) {
	s := newAPIServer(t, true)
	s.putSecret("one", encoded("first"))
	s.unlisted["secrets"] = true
	c := consume(t, s, func(s *Source) { s.skip, s.secretsPoll = 50*time.Millisecond, 50*time.Millisecond })
	c.next()
	c.fetch(SecretRequest{"team", "one", true})
	s.putSecret("one", encoded("second"))
	c.until("the new contents come", func() bool { return c.value("one") == "second" })
}

// TestAWatchThatDoesNotBeginIsTriedAgain: what keeps a watch from going on for a moment does not make everything be listed, and what happened
// meanwhile is not missed.
func TestAWatchThatDoesNotBeginIsTriedAgain(t *testing.T) {
	for what, code := range map[string]int{"internal error": 500, "timeout": 504, "no answer": -1} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			both(t, func(t *testing.T, s *apiServer) {
				s.install(nil)
				c := consume(t, s)
				c.next()
				s.putRoute("a", "a.example", nil)
				c.until("the watch goes on", func() bool { return c.objects[routeID("a")] != nil })
				s.mu.Lock()
				before := s.whole[gatewayGroup+"/httproutes"]
				s.failBegin = code
				s.mu.Unlock()
				s.stop()
				s.start()
				s.putRoute("b", "b.example", nil)
				testkit.Eventually(t, "it is tried several times", func() bool {
					s.mu.Lock()
					defer s.mu.Unlock()
					return s.failed > 3
				})
				s.mu.Lock()
				s.failBegin = 0
				s.mu.Unlock()
				c.until("the watch goes on", func() bool { return c.objects[routeID("b")] != nil })
				s.mu.Lock()
				defer s.mu.Unlock()
				if n := s.whole[gatewayGroup+"/httproutes"] - before; n > 0 {
					t.Errorf("everything was listed %d times", n)
				}
			})
		})
	}
}

// TestWhatCannotBeWatchedIsSaid: who may list a kind but not watch it reads it again and again, and says so for as long as that lasts.
func TestWhatCannotBeWatchedIsSaid(t *testing.T) {
	t.Parallel() // it takes a while until everything is listed again
	both(t, func(t *testing.T, s *apiServer) {
		s.install(nil)
		s.putRoute("a", "a.example", nil)
		unwatched := func(is bool) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.unwatched = map[string]bool{gatewayGroup + "/httproutes": is}
		}
		unwatched(true)
		c := consume(t, s, func(s *Source) { s.skip = 50 * time.Millisecond })
		c.next()
		remedy := "allow the controller's ServiceAccount to list and watch httproutes.gateway.networking.k8s.io in the whole cluster"
		c.until("it is told", func() bool { return slices.Equal(c.installed.Unread, []Unread{{gatewayGroup, "HTTPRoute", remedy}}) })
		testkit.Eventually(t, "the log says it", func() bool {
			return strings.Contains(c.log.String(), "objects cannot be watched") && strings.Contains(c.log.String(), remedy)
		})
		s.putRoute("b", "b.example", nil)
		c.until("changes are read", func() bool { return c.objects[routeID("b")] != nil })
		if len(c.UnreadKinds()) != 1 {
			t.Error("a list that succeeds makes it forgotten")
		}
		unwatched(false)
		c.until("it is over", func() bool { return len(c.installed.Unread) == 0 })
		if strings.Count(c.log.String(), "objects can be read again") != 1 {
			t.Errorf("log:\n%s", c.log)
		}
	})
}

// TestServicesKeepTheirFamilies: which address family comes first decides which endpoints are used.
func TestServicesKeepTheirFamilies(t *testing.T) {
	s := newAPIServer(t, true)
	s.put("services", "Service", "team", "one", fields{"spec": fields{"ipFamilies": []any{"IPv6", "IPv4"}, "ports": []any{fields{"port": int64(80)}}}})
	c := consume(t, s)
	c.next()
	if svc, ok := c.objects[serviceID("one")].(*corev1.Service); !ok || !slices.Equal(svc.Spec.IPFamilies, []corev1.IPFamily{corev1.IPv6Protocol, corev1.IPv4Protocol}) {
		t.Errorf("the Service is %+v", svc)
	}
}

// The same where they could be watched at first.
func TestSecretsThatCannotBeWatchedAnyMoreAreReadAgain(t *testing.T) {
	s := newAPIServer(t, true)
	s.putSecret("one", encoded("first"))
	c := consume(t, s, func(s *Source) { s.skip, s.secretsPoll = 50*time.Millisecond, 50*time.Millisecond })
	c.next()
	c.fetch(SecretRequest{"team", "one", true})
	s.mu.Lock()
	s.unlisted["secrets"] = true
	s.mu.Unlock()
	s.stop()
	s.start()
	c.until("the kind is unread", func() bool { return len(c.UnreadKinds()) == 1 && c.UnreadKinds()[0].Kind == kind.Secret.Name })
	s.putSecret("one", encoded("second"))
	c.until("the new contents come", func() bool { return c.value("one") == "second" })
}
