package translate_test

import (
	"encoding/json"
	"fmt"
	"runtime"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	k8sruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"
	kjson "sigs.k8s.io/json"

	"github.com/moongate-dev/moongate/internal/kind"
	"github.com/moongate-dev/moongate/internal/translate"
)

// BenchmarkMemory5000Services reports what a controller keeps for a route with a Service and an endpoint of its own, as they come from an API server: of the objects alone, and with
// translation.
func BenchmarkMemory5000Services(b *testing.B) {
	const n, namespaces = 5000, 50
	for b.Loop() {
		w := newWorld()
		gc := &gwv1.GatewayClass{Spec: gwv1.GatewayClassSpec{ControllerName: controllerName}}
		gc.Name = "moongate"
		w.Upsert(gc)
		gw := crowdGateway(1)
		for i := range gw.Spec.Listeners {
			gw.Spec.Listeners[i].AllowedRoutes = &gwv1.AllowedRoutes{Namespaces: &gwv1.RouteNamespaces{From: new(gwv1.NamespacesFromAll)}}
		}
		w.Upsert(gw)
		before := heapInUse()
		kept := make([]metav1.Object, 0, 3*n)
		for i := range n {
			namespace, name := fmt.Sprintf("load-%d", i%namespaces), fmt.Sprintf("app-%d", i/namespaces)
			kept = append(kept, asRead(b, namespace, name, servedRoute(i, name)), asRead(b, namespace, name, servedService(i)), asRead(b, namespace, name, servedSlice(i, name)))
		}
		b.ReportMetric(float64(heapInUse()-before)/n, "B/objects")
		for _, o := range kept {
			w.Upsert(o)
		}
		r := w.Commit()
		if got := len(r.Config.Upserts); got != 3*n+2 {
			b.Fatalf("%d resources", got)
		}
		r = translate.Result{}
		b.ReportMetric(float64(heapInUse()-before)/n, "B/route")
		runtime.KeepAlive(w)
		runtime.KeepAlive(kept)
	}
}

// asRead is an object as a controller keeps it that an API server has sent.
func asRead[T any, O interface {
	*T
	metav1.Object
	k8sruntime.Object
}](b *testing.B, namespace, name string, sent O) metav1.Object {
	sent.SetNamespace(namespace)
	sent.SetName(name)
	sent.SetUID(types.UID(fmt.Sprintf("0b2bc66f-3d95-4ad4-9ae2-%012d", len(namespace+name))))
	sent.SetResourceVersion("123456")
	data, err := json.Marshal(sent)
	if err != nil {
		b.Fatal(err)
	}
	o := O(new(T))
	if err := kjson.UnmarshalCaseSensitivePreserveInts(data, o); err != nil {
		b.Fatal(err)
	}
	return kind.Of(o).Keep(o)
}

// servedRoute is a route to a Service as the API server fills it in, with our status.
func servedRoute(i int, service string) *gwv1.HTTPRoute {
	r := crowdRoute(i, fmt.Sprintf("/%d", 1<<29+i))
	r.CreationTimestamp = metav1.NewTime(time.Date(2026, 1, 1, 0, 0, i/100, 0, time.UTC))
	r.Spec.Hostnames = nil
	parent := &r.Spec.ParentRefs[0]
	parent.Group, parent.Kind, parent.Namespace = new(gwv1.Group(gwv1.GroupName)), new(gwv1.Kind("Gateway")), new(gwv1.Namespace("default"))
	rule := &r.Spec.Rules[0]
	rule.Matches[0].Path.Type = new(gwv1.PathMatchPathPrefix)
	ref := &rule.BackendRefs[0]
	ref.Group, ref.Kind, ref.Name, ref.Weight = new(gwv1.Group("")), new(gwv1.Kind("Service")), gwv1.ObjectName(service), new(int32(1))
	condition := func(of, message string) metav1.Condition {
		return metav1.Condition{Type: of, Status: metav1.ConditionTrue, ObservedGeneration: 1, LastTransitionTime: r.CreationTimestamp, Reason: of, Message: message}
	}
	r.Status.Parents = []gwv1.RouteParentStatus{{ParentRef: *parent, ControllerName: controllerName, Conditions: []metav1.Condition{
		condition("Accepted", "The route is accepted by 1 listener"), condition("ResolvedRefs", "All references are resolved")}}}
	return r
}

func servedService(i int) *corev1.Service {
	s := crowdService(i)
	s.Spec.Type, s.Spec.ClusterIP, s.Spec.IPFamilies, s.Spec.SessionAffinity = corev1.ServiceTypeClusterIP, fmt.Sprintf("10.96.%d.%d", i/250, i%250), []corev1.IPFamily{corev1.IPv4Protocol}, corev1.ServiceAffinityNone
	s.Spec.Ports[0].Protocol = corev1.ProtocolTCP
	return s
}

func servedSlice(i int, service string) *discoveryv1.EndpointSlice {
	e := crowdSlice(i, fmt.Sprintf("10.1.%d.%d", i/250, i%250))
	e.Labels = map[string]string{discoveryv1.LabelServiceName: service, discoveryv1.LabelManagedBy: "endpointslice-controller.k8s.io"}
	e.AddressType, e.Endpoints[0].Conditions.Ready, e.Ports[0].Protocol = discoveryv1.AddressTypeIPv4, new(true), new(corev1.ProtocolTCP)
	return e
}
