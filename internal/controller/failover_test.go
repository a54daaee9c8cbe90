package controller

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/moongate-dev/moongate/internal/source/kube"
	"github.com/moongate-dev/moongate/internal/status"
	"github.com/moongate-dev/moongate/internal/status/writer"
	"github.com/moongate-dev/moongate/internal/testkit"
	"github.com/moongate-dev/moongate/internal/translate"
)

// statusServer is as much of an API server as the status writer uses, and remembers each status that was written.
type statusServer struct {
	*httptest.Server
	mu      sync.Mutex
	version int
	objects map[string]map[string]any // by path
	writes  map[string][]string       // statuses as they were written, by path
}

func newStatusServer(t *testing.T) *statusServer {
	s := &statusServer{objects: map[string]map[string]any{}, writes: map[string][]string{}}
	s.Server = httptest.NewServer(s)
	t.Cleanup(s.Close)
	return s
}

func (s *statusServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	refuse := func(code int, reason metav1.StatusReason) {
		w.WriteHeader(code)
		_ = json.NewEncoder(w).Encode(metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
			Status: metav1.StatusFailure, Code: int32(code), Reason: reason})
	}
	path, ofStatus := strings.CutSuffix(r.URL.Path, "/status")
	object := s.objects[path]
	if object == nil {
		refuse(http.StatusNotFound, metav1.StatusReasonNotFound)
		return
	}
	if r.Method == http.MethodPatch {
		body, _ := io.ReadAll(r.Body)
		var patch map[string]any
		if err := json.Unmarshal(body, &patch); err != nil {
			refuse(http.StatusBadRequest, metav1.StatusReasonBadRequest)
			return
		}
		given, here := patch["metadata"].(map[string]any), object["metadata"].(map[string]any)
		if given["resourceVersion"] != here["resourceVersion"] {
			refuse(http.StatusConflict, metav1.StatusReasonConflict)
			return
		}
		after := maps.Clone(object)
		if ofStatus {
			before, _ := object["status"].(map[string]any)
			merged := maps.Clone(before)
			if merged == nil {
				merged = map[string]any{}
			}
			maps.Copy(merged, patch["status"].(map[string]any))
			maps.DeleteFunc(merged, func(_ string, v any) bool { return v == nil })
			after["status"] = merged
			text, _ := json.Marshal(merged)
			s.writes[path] = append(s.writes[path], string(text))
		} else {
			meta := maps.Clone(here)
			maps.Copy(meta, given)
			after["metadata"] = meta
		}
		s.store(path, after)
	}
	_ = json.NewEncoder(w).Encode(s.objects[path])
}

// store keeps an object in a new version; s.mu is held.
func (s *statusServer) store(path string, object map[string]any) {
	s.version++
	meta := maps.Clone(object["metadata"].(map[string]any))
	meta["resourceVersion"] = strconv.Itoa(s.version)
	object["metadata"] = meta
	s.objects[path] = object
}

var plurals = map[string]string{"GatewayClass": "gatewayclasses", "Gateway": "gateways", "HTTPRoute": "httproutes"}

func pathOf(key status.Key) string {
	namespace := ""
	if key.Namespace != "" {
		namespace = "namespaces/" + key.Namespace + "/"
	}
	return "/apis/gateway.networking.k8s.io/v1/" + namespace + plurals[key.Kind] + "/" + key.Name
}

// put creates or replaces an object as a user does: its status stays.
func (s *statusServer) put(key status.Key, o metav1.Object) {
	text, _ := json.Marshal(o)
	var fields map[string]any
	_ = json.Unmarshal(text, &fields)
	delete(fields, "status")
	s.mu.Lock()
	defer s.mu.Unlock()
	if before := s.objects[pathOf(key)]; before != nil && before["status"] != nil {
		fields["status"] = before["status"]
	}
	s.store(pathOf(key), fields)
}

func (s *statusServer) remove(key status.Key) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.objects, pathOf(key))
}

// Get is the object as a watch that is never late has it.
func (s *statusServer) Get(key status.Key) (metav1.Object, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	fields := s.objects[pathOf(key)]
	if fields == nil {
		return nil, false
	}
	object := map[string]metav1.Object{"GatewayClass": &gwv1.GatewayClass{}, "Gateway": &gwv1.Gateway{}, "HTTPRoute": &gwv1.HTTPRoute{}}[key.Kind]
	text, _ := json.Marshal(fields)
	_ = json.Unmarshal(text, object)
	return object, true
}

// written are the statuses of an object that were written since the last call.
func (s *statusServer) written(key status.Key) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := s.writes[pathOf(key)]
	delete(s.writes, pathOf(key))
	return out
}

// statusText is the status of an object as JSON; "" for none.
func (s *statusServer) statusText(key status.Key) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	text, _ := json.Marshal(s.objects[pathOf(key)]["status"])
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
	config := &rest.Config{Host: s.URL}
	c, err := New(Options{Config: config, ControllerName: "moongate.dev/gateway-controller", Namespace: "moongate-system", Identity: identity,
		Image: "image", DeliveryAddress: "127.0.0.1:0", Service: "moongate-controller"})
	if err != nil {
		t.Fatal(err)
	}
	c.writer, err = writer.New(writer.Options{Config: config, ControllerName: "moongate.dev/gateway-controller", Objects: s,
		Version: c.objects.version, Logger: slog.New(slog.DiscardHandler)})
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

func keyOf(kind, name string) status.Key {
	key := status.Key{Group: gwv1.GroupName, Kind: kind, Namespace: "n", Name: name}
	if kind == "GatewayClass" {
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
		change.Observed = append(change.Observed, kube.ID(key))
	}
	for _, r := range s.replicas {
		r.change(change)
	}
}

func (s *site) delete(keys ...status.Key) {
	var change kube.Change
	for _, key := range keys {
		s.remove(key)
		change.Deletes = append(change.Deletes, kube.ID(key))
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
	has := func(key status.Key, words string) func() bool {
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
		for _, key := range []status.Key{moved, late, gw} {
			server.written(key)
		}
		next.begin(t)
		// A Gateway without proxies, of which is spoken at once: when that is written, so is all that would be.
		marker := fmt.Sprint("marker-", i)
		s.apply(gatewayOf(marker, "moongate", 1), routeTo(marker, marker))
		testkit.Eventually(t, "the new leader writes", func() bool { return has(keyOf("HTTPRoute", marker), ours)() && next.writer.Idle() })
		if got := server.written(moved); len(got) > 0 {
			t.Errorf("turn %d: of a route that is of another's Gateway by now was written %s", i, got)
		}
		for _, text := range server.written(late) {
			if !strings.Contains(text, ours) {
				t.Errorf("turn %d: the parents of a route that is ours were wiped: %s", i, text)
			}
		}
		if got := server.written(gw); slices.ContainsFunc(got, func(text string) bool { return !strings.Contains(text, "192.0.2.2") }) {
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
