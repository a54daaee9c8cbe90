package controller

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/moongate-dev/moongate/internal/kind"
	"github.com/moongate-dev/moongate/internal/source/kube"
	"github.com/moongate-dev/moongate/internal/status/writer"
	"github.com/moongate-dev/moongate/internal/testkit"
	"github.com/moongate-dev/moongate/internal/testkit/apiserver"
	"github.com/moongate-dev/moongate/internal/translate"
)

// statusServer is an API server of which the replicas use what the status writer does.
type statusServer struct{ *apiserver.Server }

func newStatusServer(t *testing.T) *statusServer {
	s := apiserver.New(
		apiserver.Kind{Group: gatewayAPI, Version: "v1", Resource: "gatewayclasses", Kind: "GatewayClass", ClusterScoped: true},
		apiserver.Kind{Group: gatewayAPI, Version: "v1", Resource: "gateways", Kind: "Gateway"},
		apiserver.Kind{Group: gatewayAPI, Version: "v1", Resource: "httproutes", Kind: "HTTPRoute"},
		apiserver.Kind{Group: gatewayAPI, Version: "v1", Resource: "listenersets", Kind: "ListenerSet"},
		apiserver.Kind{Group: "events.k8s.io", Version: "v1", Resource: "events", Kind: "Event"})
	s.Strict = true
	s.Listen(t)
	return &statusServer{s}
}

var plurals = map[string]string{"GatewayClass": "gatewayclasses", "Gateway": "gateways", "HTTPRoute": "httproutes", "ListenerSet": "listenersets"}

func refOf(key kind.ObjectKey) apiserver.Ref {
	return apiserver.Ref{Group: key.Group, Resource: plurals[key.Kind], Namespace: key.Namespace, Name: key.Name}
}

// put creates or replaces an object as a user does: its status stays.
func (s *statusServer) put(key kind.ObjectKey, o metav1.Object) {
	text, _ := json.Marshal(o)
	var fields map[string]any
	_ = json.Unmarshal(text, &fields)
	delete(fields, "status")
	if before := s.Server.Get(refOf(key)); before["status"] != nil {
		fields["status"] = before["status"]
	}
	s.Put(refOf(key), fields)
}

func (s *statusServer) remove(key kind.ObjectKey) { s.Remove(refOf(key)) }

// Get is the object as a watch that is never late has it.
func (s *statusServer) Get(key kind.ObjectKey) (metav1.Object, bool) {
	fields := s.Server.Get(refOf(key))
	if fields == nil {
		return nil, false
	}
	object := map[string]metav1.Object{"GatewayClass": &gwv1.GatewayClass{}, "Gateway": &gwv1.Gateway{}, "HTTPRoute": &gwv1.HTTPRoute{}, "ListenerSet": &gwv1.ListenerSet{}}[key.Kind]
	text, _ := json.Marshal(fields)
	_ = json.Unmarshal(text, object)
	return object, true
}

// written are the statuses that were written since the last call, by object.
func (s *statusServer) written() map[kind.ObjectKey][]string {
	out := map[kind.ObjectKey][]string{}
	for _, w := range s.TakeWrites() {
		for written, plural := range plurals {
			if w.Resource == plural && w.Subresource == "status" {
				key := kind.ObjectKey{Group: w.Group, Kind: written, Namespace: w.Namespace, Name: w.Name}
				text, _ := json.Marshal(w.Object["status"])
				out[key] = append(out[key], string(text))
			}
		}
	}
	return out
}

// statusText is the status of an object as JSON; "" for none.
func (s *statusServer) statusText(key kind.ObjectKey) string {
	text, _ := json.Marshal(s.Server.Get(refOf(key))["status"])
	return string(text)
}

// campaigner is a replica whose Lease the test holds.
type campaigner struct {
	*Controller
	stop func()
}

// newCampaigner makes a Controller that reads what the test tells, and writes statuses for real.
func newCampaigner(t *testing.T, s *statusServer, identity string) *campaigner {
	t.Helper()
	config := &rest.Config{Host: s.URL(), ContentConfig: rest.ContentConfig{ContentType: "application/json"}}
	c, err := New(Options{Config: config, ControllerName: "moongate.dev/gateway-controller", Namespace: "moongate-system", Identity: identity,
		Image: "image", DeliveryAddress: "127.0.0.1:0", Service: "moongate-controller"})
	if err != nil {
		t.Fatal(err)
	}
	c.writer, err = writer.New(writer.Options{Config: config, ControllerName: "moongate.dev/gateway-controller", Objects: s,
		Version: c.objects.version, Written: c.noteStatus, Omitted: c.noteOmitted, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	c.tickets.Secret = func() ([]byte, error) { return []byte("secret"), nil } // the authority's, which is not here
	t.Cleanup(c.loop.Close)
	return &campaigner{Controller: c}
}

// begin makes the replica the leader until end.
func (c *campaigner) begin(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); c.lead(ctx) }()
	c.stop = sync.OnceFunc(func() { cancel(); <-done })
	t.Cleanup(c.stop)
}

// site is two replicas in one cluster.
type site struct {
	t *testing.T
	*statusServer
	replicas [2]*campaigner
	full     bool
}

func keyOf(of, name string) kind.ObjectKey {
	key := kind.ObjectKey{Group: gwv1.GroupName, Kind: of, Namespace: "n", Name: name}
	if of == "GatewayClass" {
		key.Namespace = ""
	}
	return key
}

// apply changes objects in the cluster, which both replicas see.
func (s *site) apply(objects ...metav1.Object) {
	change := kube.Change{Full: !s.full, Upserts: objects}
	s.full = true
	for _, o := range objects {
		kind := strings.TrimPrefix(fmt.Sprintf("%T", o), "*v1.")
		key := keyOf(kind, o.GetName())
		s.put(key, o)
		change.Observed = append(change.Observed, key)
	}
	for _, r := range s.replicas {
		r.change(change)
	}
}

func (s *site) delete(keys ...kind.ObjectKey) {
	var change kube.Change
	for _, key := range keys {
		s.remove(key)
		change.Deletes = append(change.Deletes, key)
	}
	for _, r := range s.replicas {
		r.change(change)
	}
}

// reached says at which address a Gateway is reached, and which of its proxies are ready.
func (s *site) reached(gateway, address string, ready ...string) {
	kind := gwv1.IPAddressType
	for _, r := range s.replicas {
		r.loop.SetInfrastructure("n", gateway, &translate.Infrastructure{Ready: len(ready) > 0,
			Addresses: []gwv1.GatewayStatusAddress{{Type: &kind, Value: address}}}, ready)
	}
}

func className() *gwv1.GatewayClass {
	return &gwv1.GatewayClass{ObjectMeta: metav1.ObjectMeta{Name: "moongate", Generation: 1},
		Spec: gwv1.GatewayClassSpec{ControllerName: "moongate.dev/gateway-controller"}}
}

func gatewayOf(name, class string, generation int64) *gwv1.Gateway {
	return &gwv1.Gateway{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: name, Generation: generation}, Spec: gwv1.GatewaySpec{
		GatewayClassName: gwv1.ObjectName(class), Listeners: []gwv1.Listener{{Name: "http", Port: 80, Protocol: gwv1.HTTPProtocolType}}}}
}

func routeTo(name, gateway string) *gwv1.HTTPRoute {
	return &gwv1.HTTPRoute{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: name, Generation: 1}, Spec: gwv1.HTTPRouteSpec{
		CommonRouteSpec: gwv1.CommonRouteSpec{ParentRefs: []gwv1.ParentReference{{Name: gwv1.ObjectName(gateway)}}}}}
}

// TestNewLeaderWritesWhatIsTrueNow: of two replicas that lead by turns, neither writes what it knew in an earlier turn, or
// when it started: no parents of a Gateway that is another's by now, no old address, no end of what began since.
func TestNewLeaderWritesWhatIsTrueNow(t *testing.T) {
	server := newStatusServer(t)
	s := &site{t: t, statusServer: server, replicas: [2]*campaigner{newCampaigner(t, server, "a"), newCampaigner(t, server, "b")}}
	a, b := s.replicas[0], s.replicas[1]
	moved, stays, late := keyOf("HTTPRoute", "moved"), keyOf("HTTPRoute", "stays"), keyOf("HTTPRoute", "late")
	gw := keyOf("Gateway", "gw")
	// When the replicas start, the Gateway of route late is not there.
	s.apply(className(), gatewayOf("gw", "moongate", 1), gatewayOf("moves", "moongate", 1),
		routeTo("moved", "moves"), routeTo("stays", "gw"), routeTo("late", "comes"))
	s.reached("gw", "192.0.2.1")
	s.reached("moves", "192.0.2.9")
	has := func(key kind.ObjectKey, words string) func() bool {
		return func() bool { return strings.Contains(s.statusText(key), words) }
	}
	const ours = `"controllerName":"moongate.dev/gateway-controller"`
	a.begin(t)
	testkit.Eventually(t, "a writes what it knows", func() bool {
		return has(moved, ours)() && has(stays, ours)() && has(gw, "192.0.2.1")() && a.writer.Idle()
	})
	a.stop()

	b.begin(t)
	s.apply(gatewayOf("moves", "somebody-elses", 2), gatewayOf("comes", "moongate", 1))
	s.reached("gw", "192.0.2.2")
	s.reached("comes", "192.0.2.3")
	testkit.Eventually(t, "b writes what changed", func() bool {
		return !has(moved, ours)() && has(late, ours)() && has(gw, "192.0.2.2")() && b.writer.Idle()
	})
	b.stop()

	// From now on each Gateway has a proxy that has not answered yet, so that all is held back that speaks of it.
	s.reached("gw", "192.0.2.2", "pod")
	s.reached("comes", "192.0.2.3", "pod")
	for i, next := range []*campaigner{a, b, a} {
		server.written()
		next.begin(t)
		// A Gateway without proxies, of which is spoken at once: when that is written, so is all that would be.
		marker := fmt.Sprint("marker-", i)
		s.apply(gatewayOf(marker, "moongate", 1), routeTo(marker, marker))
		testkit.Eventually(t, "the new leader writes", func() bool { return has(keyOf("HTTPRoute", marker), ours)() && next.writer.Idle() })
		written := server.written()
		if got := written[moved]; len(got) > 0 {
			t.Errorf("turn %d: of a route that is of another's Gateway by now was written %s", i, got)
		}
		for _, text := range written[late] {
			if !strings.Contains(text, ours) {
				t.Errorf("turn %d: the parents of a route that is ours were wiped: %s", i, text)
			}
		}
		if got := written[gw]; slices.ContainsFunc(got, func(text string) bool { return !strings.Contains(text, "192.0.2.2") }) {
			t.Errorf("turn %d: an old address was written: %s", i, got)
		}
		next.stop()
	}

	// What ended while nobody led is found, too.
	s.apply(gatewayOf("gw", "somebody-elses", 2))
	b.begin(t)
	testkit.Eventually(t, "the parents of a Gateway that is another's are gone", func() bool { return !has(stays, ours)() })
	s.delete(stays)
}

// TestSetOfGatewayThatWent: a ListenerSet whose Gateway goes while nobody leads does not say for ever that it is programmed.
func TestSetOfGatewayThatWent(t *testing.T) {
	server := newStatusServer(t)
	s := &site{t: t, statusServer: server, replicas: [2]*campaigner{newCampaigner(t, server, "a"), newCampaigner(t, server, "b")}}
	a, b := s.replicas[0], s.replicas[1]
	gateway, all := gatewayOf("gw", "moongate", 1), gwv1.NamespacesFromAll
	gateway.Spec.AllowedListeners = &gwv1.AllowedListeners{Namespaces: &gwv1.ListenerNamespaces{From: &all}}
	s.apply(className(), gateway, &gwv1.ListenerSet{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "set", Generation: 1}, Spec: gwv1.ListenerSetSpec{
		ParentRef: gwv1.ParentGatewayReference{Name: "gw"}, Listeners: []gwv1.ListenerEntry{{Name: "more", Port: 8080, Protocol: gwv1.HTTPProtocolType}}}})
	s.reached("gw", "192.0.2.1")
	set := keyOf("ListenerSet", "set")
	says := func(word string) func() bool {
		return func() bool { return strings.Contains(s.statusText(set), word) }
	}
	a.begin(t)
	testkit.Eventually(t, "the set has a status", says("Accepted"))
	testkit.Eventually(t, "a has written all", a.writer.Idle)
	a.stop()
	s.delete(keyOf("Gateway", "gw"))
	b.begin(t)
	testkit.Eventually(t, "nobody looks after the set", says("Waiting for controller"))
}
