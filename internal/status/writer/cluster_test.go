//go:build cluster

// Against a real API server with the CRDs of the Gateway API and ours: KUBECONFIG says where,
// as one who may do all.
//
//	go test -tags cluster -run TestCluster ./internal/status/writer
//
// or make packages-on-cluster.

package writer

import (
	"context"
	"log/slog"
	"os"
	"slices"
	"sync"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/moongate-dev/moongate/api/v1alpha1"
	"github.com/moongate-dev/moongate/internal/kind"
	"github.com/moongate-dev/moongate/internal/status"
	"github.com/moongate-dev/moongate/internal/testkit"
)

// live is an API server, and what was seen of it.
type live struct {
	t *testing.T
	*client
	mu   sync.Mutex
	seen map[kind.ObjectKey]metav1.Object
}

func (r *live) Get(key kind.ObjectKey) (metav1.Object, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	o, ok := r.seen[key]
	return o, ok
}

// create makes an object anew, and sees it.
func (r *live) create(k kind.ObjectKey, object metav1.Object) {
	r.t.Helper()
	r.remove(k)
	o := encode(object)
	list := k
	list.Name = ""
	if _, err := r.do(r.t.Context(), r.rest.Post().SetHeader("Content-Type", "application/json").Body(o), list, object); err != nil {
		r.t.Fatal(err)
	}
	r.see(k, object)
}

func (r *live) remove(k kind.ObjectKey) {
	r.t.Helper()
	var like metav1.PartialObjectMetadata
	if _, err := r.do(context.Background(), r.rest.Delete(), k, &like); err != nil && !apierrors.IsNotFound(err) {
		r.t.Fatal(err)
	}
}

// see reads an object into what was seen.
func (r *live) see(k kind.ObjectKey, like metav1.Object) metav1.Object {
	r.t.Helper()
	o, err := r.get(r.t.Context(), k, like)
	if err != nil {
		r.t.Fatal(err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seen[k] = o
	return o
}

func TestCluster(t *testing.T) {
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	if err != nil {
		t.Fatal(err)
	}
	c, err := newClient(config, nil)
	if err != nil {
		t.Fatal(err)
	}
	r := &live{t: t, client: c, seen: map[kind.ObjectKey]metav1.Object{}}
	log := &testkit.Log{}
	w, err := New(Options{Config: config, ControllerName: ours, Objects: r, Logger: slog.New(slog.NewTextHandler(log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	class, gw, params := key("GatewayClass", "writer-test"), key("Gateway", "writer-test"), key("GatewayParameters", "writer-test")
	route := key("HTTPRoute", "writer-test")
	t.Cleanup(func() {
		for _, k := range []kind.ObjectKey{gw, route, params, class} {
			r.remove(k)
		}
	})
	r.create(class, &gwv1.GatewayClass{TypeMeta: typeMeta("GatewayClass"), ObjectMeta: metav1.ObjectMeta{Name: class.Name}, Spec: gwv1.GatewayClassSpec{ControllerName: ours}})
	r.create(gw, &gwv1.Gateway{TypeMeta: typeMeta("Gateway"), ObjectMeta: meta(gw, 0), Spec: gwv1.GatewaySpec{
		GatewayClassName: "writer-test", Listeners: []gwv1.Listener{{Name: "http", Port: 80, Protocol: "HTTP"}}}})
	r.create(params, &v1alpha1.GatewayParameters{TypeMeta: metav1.TypeMeta{APIVersion: "moongate.dev/v1alpha1", Kind: "GatewayParameters"}, ObjectMeta: meta(params, 0)})
	r.create(route, &gwv1.HTTPRoute{TypeMeta: typeMeta("HTTPRoute"), ObjectMeta: meta(route, 0)})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { w.Run(ctx); close(done) }()
	defer func() { cancel(); <-done }()
	settled := func() { t.Helper(); testkit.Eventually(t, "the writer settles", w.Idle) }

	// Another controller has written to the route, and we have not seen it.
	theirs := *r.seen[route].(*gwv1.HTTPRoute)
	theirs.Status.Parents = parents(foreign, "other", 1, "Theirs")
	theirs.Status.Parents[0].Conditions[0].LastTransitionTime = metav1.Now()
	body, err := status.Patch(r.seen[route], &theirs.Status.RouteStatus)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.patch(ctx, route, &theirs, body, "status"); err != nil {
		t.Fatal(err)
	}
	w.Gateway("default", "writer-test", "writer-test")
	w.Publish([]Change{
		{Key: class, Desired: &gwv1.GatewayClassStatus{Conditions: conditions(1, "Accepted"), SupportedFeatures: []gwv1.SupportedFeature{{Name: "Gateway"}}}, Generation: 1},
		{Key: gw, Desired: &gwv1.GatewayStatus{Conditions: conditions(1, "Accepted"), Listeners: []gwv1.ListenerStatus{{Name: "http", SupportedKinds: []gwv1.RouteGroupKind{}, Conditions: conditions(1, "Accepted")}}}, Generation: 1},
		{Key: params, Desired: &v1alpha1.GatewayParametersStatus{Conditions: conditions(1, "Accepted")}, Generation: 1},
		wanted(route, 1, "Accepted"),
	})
	settled()
	got := r.see(route, &gwv1.HTTPRoute{}).(*gwv1.HTTPRoute)
	if p := got.Status.Parents; len(p) != 2 || p[0].ControllerName != foreign || p[1].ControllerName != ours {
		t.Errorf("the route has the parents %+v", p)
	}
	gotClass := r.see(class, &gwv1.GatewayClass{}).(*gwv1.GatewayClass)
	if len(gotClass.Status.SupportedFeatures) != 1 || !slices.Contains(gotClass.Finalizers, gwv1.GatewayClassFinalizerGatewaysExist) {
		t.Errorf("the class is %s", encode(gotClass))
	}
	if g := r.see(gw, &gwv1.Gateway{}).(*gwv1.Gateway); len(g.Status.Listeners) != 1 || g.Status.Conditions[0].Reason != "Accepted" {
		t.Errorf("the Gateway has %s", encode(g.Status))
	}
	if p := r.see(params, &v1alpha1.GatewayParameters{}).(*v1alpha1.GatewayParameters); len(p.Status.Conditions) != 1 {
		t.Errorf("the parameters have %s", encode(p.Status))
	}
	version := r.seen[gw].GetResourceVersion()
	for _, k := range []kind.ObjectKey{class, gw, params, route} {
		w.Observed(k)
	}
	settled()
	if v := r.see(gw, &gwv1.Gateway{}).GetResourceVersion(); v != version {
		t.Error("what was there already was written again")
	}

	// A status that the CRD refuses.
	w.Publish([]Change{{Key: gw, Desired: &gwv1.GatewayStatus{Conditions: []metav1.Condition{{Type: "not a type", Status: "True", Reason: "X", ObservedGeneration: 1}}}, Generation: 1}})
	testkit.Eventually(t, "the refusal is told", func() bool { return log.Count("reason=Invalid") == 1 && log.Count("status.conditions") > 0 })

	// Deleting the class waits for its Gateway.
	r.remove(class)
	w.Publish([]Change{{Key: route}})
	if c := r.see(class, &gwv1.GatewayClass{}); c.GetDeletionTimestamp() == nil {
		t.Error("the class is not kept while a Gateway names it")
	}
	w.Sweep(nil)
	w.Gateway("default", "writer-test", "")
	testkit.Eventually(t, "the class goes", func() bool {
		_, err := c.get(ctx, class, &gwv1.GatewayClass{})
		return apierrors.IsNotFound(err)
	})
	if p := r.see(route, &gwv1.HTTPRoute{}).(*gwv1.HTTPRoute).Status.Parents; len(p) != 1 || p[0].ControllerName != foreign {
		t.Errorf("in the end the route has the parents %+v", p)
	}
	r.mu.Lock()
	delete(r.seen, class)
	r.mu.Unlock()
	w.Publish([]Change{{Key: gw}})
	settled()
	if g := r.see(gw, &gwv1.Gateway{}).(*gwv1.Gateway); len(g.Status.Listeners) != 0 || len(g.Status.Conditions) != 2 || g.Status.Conditions[0].Reason != "Pending" {
		t.Errorf("without a class the Gateway has %s", encode(g.Status))
	}
}

func typeMeta(kind string) metav1.TypeMeta {
	return metav1.TypeMeta{APIVersion: "gateway.networking.k8s.io/v1", Kind: kind}
}
