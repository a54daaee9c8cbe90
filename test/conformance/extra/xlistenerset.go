package extra

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
	v1 "sigs.k8s.io/gateway-api/apis/v1"
	"sigs.k8s.io/gateway-api/conformance/utils/http"
	"sigs.k8s.io/gateway-api/conformance/utils/suite"
	"sigs.k8s.io/gateway-api/pkg/features"
)

func init() {
	ConformanceTests = append(ConformanceTests, XListenerSet)
}

// xListenerSet is the kind that ListenerSets had before v1.5.0, whose CRD must be installed.
var xListenerSet = schema.GroupVersionKind{Group: "gateway.networking.x-k8s.io", Version: "v1alpha1", Kind: "XListenerSet"}

// XListenerSet tests that the former kind is served beside ListenerSets.
var XListenerSet = suite.ConformanceTest{
	ShortName:   "XListenerSet",
	Description: "An XListenerSet in the gateway-conformance-infra namespace should add listeners to a Gateway that allows it, report the port of each, and let routes attach by its kind.",
	Features:    []features.FeatureName{features.SupportGateway, features.SupportHTTPRoute, features.SupportListenerSet},
	Test: func(t *testing.T, s *suite.ConformanceTestSuite) {
		allowed := createSharedGateway(t, s, "xlistenerset-allowed", v1.NamespacesFromSame)
		createSharedGateway(t, s, "xlistenerset-not-allowed", v1.NamespacesFromNone)
		otherPort := map[string]any{"name": "other-port", "port": int64(8081), "protocol": "HTTP"}
		set := createXListenerSet(t, s, "served", "xlistenerset-allowed",
			map[string]any{"name": "hostname", "port": int64(8080), "protocol": "HTTP", "hostname": "former.example.com"},
			map[string]any{"name": "conflict", "port": int64(8080), "protocol": "HTTP", "hostname": "gateway.example.com"},
			otherPort)
		createXListenerSet(t, s, "not-allowed", "xlistenerset-not-allowed", otherPort)
		createRouteToSet(t, s, "xlistenerset-served", "served")

		t.Run("It is accepted and programmed, and says of each listener which port it has", func(t *testing.T) {
			got := awaitSet(t, s, "served", func(o *unstructured.Unstructured) bool {
				return hasCondition(o, "Accepted", metav1.ConditionTrue, "ListenersNotValid") && hasCondition(o, "Programmed", metav1.ConditionTrue, "ListenersNotValid", "Programmed") &&
					len(listenersOf(o)) == 3 && attached(o, "hostname") == 1 && attached(o, "other-port") == 1
			})
			for _, l := range listenersOf(got) {
				want := int64(8080)
				if l["name"] == "other-port" {
					want = 8081
				}
				require.EqualValues(t, want, l["port"], "port of listener %v", l["name"])
			}
			gw := awaitGateway(t, s, allowed.Name, func(gw *v1.Gateway) bool {
				return gw.Status.AttachedListenerSets != nil && *gw.Status.AttachedListenerSets == 1
			})
			require.Len(t, gw.Status.Listeners, 1, "listeners of the Gateway itself")
		})
		t.Run("A listener in conflict with the Gateway's is refused, and the others are served", func(t *testing.T) {
			awaitSet(t, s, "served", func(o *unstructured.Unstructured) bool {
				return listenerHas(o, "conflict", "Conflicted", metav1.ConditionTrue, "HostnameConflict") && listenerHas(o, "hostname", "Programmed", metav1.ConditionTrue, "Programmed")
			})
			address := gatewayAddress(t, s, allowed.Name)
			for _, c := range []struct{ host, port string }{{"former.example.com", "8080"}, {"any.example.com", "8081"}} {
				http.MakeRequestAndExpectEventuallyConsistentResponse(t, s.RoundTripper, s.TimeoutConfig, address+":"+c.port, http.ExpectedResponse{
					Request: http.Request{Host: c.host, Path: "/"}, Response: http.Response{StatusCode: 200}, Backend: "infra-backend-v1", Namespace: suite.InfrastructureNamespace,
				})
			}
			http.MakeRequestAndExpectEventuallyConsistentResponse(t, s.RoundTripper, s.TimeoutConfig, address+":8080", http.ExpectedResponse{
				Request: http.Request{Host: "gateway.example.com", Path: "/"}, Response: http.Response{StatusCode: 404}, Namespace: suite.InfrastructureNamespace,
			})
		})
		t.Run("A Gateway that allows none has none", func(t *testing.T) {
			awaitSet(t, s, "not-allowed", func(o *unstructured.Unstructured) bool {
				return hasCondition(o, "Accepted", metav1.ConditionFalse, "NotAllowed") && hasCondition(o, "Programmed", metav1.ConditionFalse, "NotAllowed")
			})
		})
		t.Run("Its listeners go with it", func(t *testing.T) {
			require.NoError(t, s.Client.Delete(t.Context(), set))
			awaitGateway(t, s, allowed.Name, func(gw *v1.Gateway) bool {
				return gw.Status.AttachedListenerSets == nil || *gw.Status.AttachedListenerSets == 0
			})
			http.MakeRequestAndExpectEventuallyConsistentResponse(t, s.RoundTripper, s.TimeoutConfig, gatewayAddress(t, s, allowed.Name)+":8080", http.ExpectedResponse{
				Request: http.Request{Host: "former.example.com", Path: "/"}, Response: http.Response{StatusCode: 404}, Namespace: suite.InfrastructureNamespace,
			})
		})
	},
}

// createSharedGateway creates a Gateway with one listener, and those of sets of some namespaces.
func createSharedGateway(t *testing.T, s *suite.ConformanceTestSuite, name string, from v1.FromNamespaces) *v1.Gateway {
	t.Helper()
	gw, hostname := newGateway(s, name), v1.Hostname("gateway.example.com")
	gw.Spec.Listeners[0].Hostname = &hostname
	gw.Spec.AllowedListeners = &v1.AllowedListeners{Namespaces: &v1.ListenerNamespaces{From: &from}}
	create(t, s, gw)
	return gw
}

func createXListenerSet(t *testing.T, s *suite.ConformanceTestSuite, name, gateway string, listeners ...any) *unstructured.Unstructured {
	t.Helper()
	o := newXListenerSet(name)
	o.Object["spec"] = map[string]any{"parentRef": map[string]any{"name": gateway}, "listeners": listeners}
	create(t, s, o)
	return o
}

func newXListenerSet(name string) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: map[string]any{}}
	o.SetGroupVersionKind(xListenerSet)
	o.SetNamespace(suite.InfrastructureNamespace)
	o.SetName(name)
	return o
}

// createRouteToSet creates a route for all hostnames whose parent is an XListenerSet.
func createRouteToSet(t *testing.T, s *suite.ConformanceTestSuite, name, set string) {
	t.Helper()
	group, ofKind, port := v1.Group(xListenerSet.Group), v1.Kind(xListenerSet.Kind), v1.PortNumber(8080)
	route := &v1.HTTPRoute{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: suite.InfrastructureNamespace}}
	route.Spec.ParentRefs = []v1.ParentReference{{Group: &group, Kind: &ofKind, Name: v1.ObjectName(set)}}
	backend := v1.BackendObjectReference{Name: "infra-backend-v1", Port: &port}
	route.Spec.Rules = []v1.HTTPRouteRule{{BackendRefs: []v1.HTTPBackendRef{{BackendRef: v1.BackendRef{BackendObjectReference: backend}}}}}
	create(t, s, route)
}

// create creates an object that is deleted after the test.
func create(t *testing.T, s *suite.ConformanceTestSuite, o client.Object) {
	t.Helper()
	require.NoError(t, s.Client.Create(t.Context(), o))
	t.Cleanup(func() {
		require.NoError(t, client.IgnoreNotFound(s.Client.Delete(context.Background(), o)))
	})
}

func awaitSet(t *testing.T, s *suite.ConformanceTestSuite, name string, is func(*unstructured.Unstructured) bool) *unstructured.Unstructured {
	t.Helper()
	o := newXListenerSet(name)
	err := wait.PollUntilContextTimeout(t.Context(), s.TimeoutConfig.DefaultPollInterval, s.TimeoutConfig.GatewayStatusMustHaveListeners, true,
		func(ctx context.Context) (bool, error) {
			return s.Client.Get(ctx, types.NamespacedName{Namespace: suite.InfrastructureNamespace, Name: name}, o) == nil && is(o), nil
		})
	require.NoError(t, err, "XListenerSet %s: %v", name, o.Object["status"])
	return o
}

// gatewayAddress returns the first address of a Gateway, once it has one.
func gatewayAddress(t *testing.T, s *suite.ConformanceTestSuite, name string) string {
	t.Helper()
	return awaitGateway(t, s, name, func(gw *v1.Gateway) bool { return len(gw.Status.Addresses) > 0 }).Status.Addresses[0].Value
}

// hasCondition reports whether a condition of the object's generation has the status and one of the reasons.
func hasCondition(o *unstructured.Unstructured, condition string, status metav1.ConditionStatus, reasons ...string) bool {
	conditions, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
	return conditionIn(conditions, o.GetGeneration(), condition, status, reasons)
}

func listenerHas(o *unstructured.Unstructured, name, condition string, status metav1.ConditionStatus, reasons ...string) bool {
	for _, l := range listenersOf(o) {
		if l["name"] == name {
			conditions, _ := l["conditions"].([]any)
			return conditionIn(conditions, o.GetGeneration(), condition, status, reasons)
		}
	}
	return false
}

func conditionIn(list []any, generation int64, condition string, status metav1.ConditionStatus, reasons []string) bool {
	var conditions []metav1.Condition
	for _, item := range list {
		fields, _ := item.(map[string]any)
		text := func(name string) string { s, _, _ := unstructured.NestedString(fields, name); return s }
		observed, _, _ := unstructured.NestedInt64(fields, "observedGeneration")
		conditions = append(conditions, metav1.Condition{Type: text("type"), Status: metav1.ConditionStatus(text("status")), Reason: text("reason"), ObservedGeneration: observed})
	}
	c := meta.FindStatusCondition(conditions, condition)
	if c == nil || c.Status != status || c.ObservedGeneration != generation {
		return false
	}
	for _, reason := range reasons {
		if c.Reason == reason {
			return true
		}
	}
	return false
}

func listenersOf(o *unstructured.Unstructured) (all []map[string]any) {
	list, _, _ := unstructured.NestedSlice(o.Object, "status", "listeners")
	for _, item := range list {
		if fields, ok := item.(map[string]any); ok {
			all = append(all, fields)
		}
	}
	return all
}

// attached is how many routes a listener has, -1 where there is no such listener.
func attached(o *unstructured.Unstructured, name string) int64 {
	for _, l := range listenersOf(o) {
		if l["name"] == name {
			n, _, _ := unstructured.NestedInt64(l, "attachedRoutes")
			return n
		}
	}
	return -1
}
