package status

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/moongate-dev/moongate/internal/kind"
)

func route(name string, generation int64) *gwv1.HTTPRoute {
	return &gwv1.HTTPRoute{
		TypeMeta:   metav1.TypeMeta{APIVersion: gwv1.GroupName + "/v1", Kind: "HTTPRoute"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Generation: generation},
	}
}

func gateway() *gwv1.Gateway {
	return &gwv1.Gateway{
		TypeMeta:   metav1.TypeMeta{APIVersion: gwv1.GroupName + "/v1", Kind: "Gateway"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "gw", Generation: 1},
		Spec:       gwv1.GatewaySpec{GatewayClassName: "moongate", Listeners: []gwv1.Listener{}},
		Status:     gwv1.GatewayStatus{Conditions: []metav1.Condition{{Type: "Accepted", Status: "Unknown", Reason: "Pending", Message: "Waiting for controller", LastTransitionTime: then}}},
	}
}

var (
	routeKey   = kind.HTTPRoute.Key("default", "web")
	gatewayKey = kind.Gateway.Key("default", "gw")
)

func accepted(generation int64) *gwv1.RouteStatus {
	return &gwv1.RouteStatus{Parents: []gwv1.RouteParentStatus{parent(ours, "gw", metav1.Condition{Type: "Accepted", Status: "True", Reason: "Accepted", ObservedGeneration: generation})}}
}

func show(t *testing.T, s *Store) string {
	t.Helper()
	b, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestStoreShowsWhatAClusterWould(t *testing.T) {
	s := NewStore(ours)
	if got := show(t, s); got != `{"items":[]}` {
		t.Errorf("empty: %s", got)
	}
	s.Upsert(route("web", 1))
	s.Upsert(gateway())
	const routeStart = `{"apiVersion":"gateway.networking.k8s.io/v1","kind":"HTTPRoute","metadata":{"name":"web","namespace":"default","generation":1},"spec":{}`
	const gatewayShown = `{"kind":"Gateway","apiVersion":"gateway.networking.k8s.io/v1","metadata":{"name":"gw","namespace":"default","generation":1},"spec":{"gatewayClassName":"moongate","listeners":[]},"status":{"conditions":[{"type":"Accepted","status":"Unknown","lastTransitionTime":"2026-01-02T03:04:05Z","reason":"Pending","message":"Waiting for controller"}]}}`
	before := show(t, s)
	if want := `{"items":[` + gatewayShown + `,` + routeStart + `}]}`; before != want {
		t.Errorf("before any status:\ngot  %s\nwant %s", before, want)
	}
	if !s.Apply(routeKey, accepted(1), now) || s.Apply(routeKey, accepted(1), now) {
		t.Error("the first status is a change, the second is not")
	}
	const routeShown = `{"kind":"HTTPRoute","apiVersion":"gateway.networking.k8s.io/v1","metadata":{"name":"web","namespace":"default","generation":1},"spec":{},"status":{"parents":[{"parentRef":{"name":"gw"},"controllerName":"moongate.dev/gateway-controller","conditions":[{"type":"Accepted","status":"True","observedGeneration":1,"lastTransitionTime":"2026-06-07T08:09:10Z","reason":"Accepted","message":""}]}]}}`
	if got, want := show(t, s), `{"items":[`+gatewayShown+`,`+routeShown+`]}`; got != want {
		t.Errorf("with a status:\ngot  %s\nwant %s", got, want)
	}
	if !s.Apply(routeKey, nil, now) || show(t, s) != before {
		t.Errorf("after the end of our relation:\ngot  %s\nwant %s", show(t, s), before)
	}
}

func TestStoreKeepsStatusOverChanges(t *testing.T) {
	s := NewStore(ours)
	s.Upsert(route("web", 2))
	s.Apply(routeKey, accepted(2), now)
	s.Upsert(route("web", 3))
	if o, _ := s.Get(routeKey); len(o.(*gwv1.HTTPRoute).Status.Parents) != 1 {
		t.Error("a change of the object lost its status")
	}
	s.Upsert(route("web", 1))
	if o, _ := s.Get(routeKey); len(o.(*gwv1.HTTPRoute).Status.Parents) != 0 {
		t.Error("a new object of the name has the status of the old one")
	}
	if !s.Apply(routeKey, accepted(1), now) {
		t.Error("the new object takes no status")
	}
	s.Delete(routeKey)
	if _, ok := s.Get(routeKey); ok || s.Apply(routeKey, accepted(1), now) {
		t.Error("a deleted object is still there")
	}
}

func TestStoreTypedNil(t *testing.T) {
	s := NewStore(ours)
	s.Upsert(gateway())
	if s.Apply(gatewayKey, (*gwv1.GatewayStatus)(nil), now) {
		t.Error("nothing of ours was there, and yet something changed")
	}
	if s.Apply(gatewayKey, &gwv1.RouteStatus{}, now) {
		t.Error("a Gateway took a route's status")
	}
}

func TestStoreConcurrentReaders(t *testing.T) {
	s := NewStore(ours)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 50 {
				if _, err := json.Marshal(s); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for g := range int64(200) {
		s.Upsert(route("web", g+1))
		s.Apply(routeKey, accepted(g+1), now)
	}
	wg.Wait()
	if o, _ := s.Get(routeKey); o.(*gwv1.HTTPRoute).Status.Parents[0].Conditions[0].ObservedGeneration != 200 {
		t.Error("the last status is not the last one")
	}
}

// TestItemKind: objects of a cluster's list do not say their kinds, those of files do.
func TestItemKind(t *testing.T) {
	read := metav1.TypeMeta{APIVersion: "gateway.networking.k8s.io/v1beta1", Kind: "Gateway"}
	for want, object := range map[string]metav1.Object{
		`{"apiVersion":"gateway.networking.k8s.io/v1","kind":"Gateway","metadata":{"name":"a"}`:      &gwv1.Gateway{ObjectMeta: metav1.ObjectMeta{Name: "a"}},
		`{"apiVersion":"v1","kind":"Service","metadata":{"name":"a"}`:                                &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "a"}},
		`{"apiVersion":"gateway.networking.k8s.io/v1beta1","kind":"Gateway","metadata":{"name":"a"}`: &gwv1.Gateway{TypeMeta: read, ObjectMeta: metav1.ObjectMeta{Name: "a"}},
	} {
		text, err := json.Marshal(Item{object})
		var fields map[string]json.RawMessage
		if err == nil {
			err = json.Unmarshal(text, &fields)
		}
		if prefix := fmt.Sprintf(`{"apiVersion":%s,"kind":%s,"metadata":%s`, fields["apiVersion"], fields["kind"], fields["metadata"]); err != nil || prefix != want || strings.Count(string(text), `"kind"`) != 1 {
			t.Errorf("%v %s, want %s", err, text, want)
		}
	}
}
