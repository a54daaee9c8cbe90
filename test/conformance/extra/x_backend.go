package extra

import (
	"context"
	nethttp "net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	v1 "sigs.k8s.io/gateway-api/apis/v1"
	"sigs.k8s.io/gateway-api/conformance/utils/http"
	"sigs.k8s.io/gateway-api/conformance/utils/kubernetes"
	"sigs.k8s.io/gateway-api/conformance/utils/suite"
	"sigs.k8s.io/gateway-api/pkg/features"
)

func init() {
	ConformanceTests = append(ConformanceTests, XBackendEndpointSelector)
}

var xBackend = schema.GroupVersionKind{Group: "gateway.networking.x-k8s.io", Version: "v1alpha1", Kind: "XBackend"}

// XBackendEndpointSelector tests backends that select pods (GEP-4894).
var XBackendEndpointSelector = suite.ConformanceTest{
	ShortName: "XBackendEndpointSelector",
	Description: "A reference to an XBackend of type EndpointSelector should lead to the pods that it selects, by the port and the protocol that it says, and requests of a session should stay with one. " +
		"It should say of each Gateway that reaches it whether it is accepted. One that does not exist should be named by the route.",
	Features: []features.FeatureName{features.SupportGateway, features.SupportHTTPRoute},
	Test: func(t *testing.T, s *suite.ConformanceTestSuite) {
		const name = "endpoint-selector"
		gwNN := types.NamespacedName{Namespace: suite.InfrastructureNamespace, Name: "same-namespace"}
		group, kind := v1.Group(xBackend.Group), v1.Kind(xBackend.Kind)
		path := "/" + name
		routeTo := func(routeName, backend, path string) *v1.HTTPRoute {
			route := &v1.HTTPRoute{ObjectMeta: metav1.ObjectMeta{Name: routeName, Namespace: suite.InfrastructureNamespace}}
			route.Spec.ParentRefs = []v1.ParentReference{{Name: v1.ObjectName(gwNN.Name)}}
			route.Spec.Rules = []v1.HTTPRouteRule{{
				Matches:     []v1.HTTPRouteMatch{{Path: &v1.HTTPPathMatch{Value: &path}}},
				BackendRefs: []v1.HTTPBackendRef{{BackendRef: v1.BackendRef{BackendObjectReference: v1.BackendObjectReference{Group: &group, Kind: &kind, Name: v1.ObjectName(backend)}}}},
			}}
			return route
		}
		x := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{
			"type": "EndpointSelector", "port": map[string]any{"number": int64(3000)},
			"endpointSelector": map[string]any{"matchLabels": map[string]any{"app": suite.InfraBackendServiceNameV1}},
		}}}
		x.SetGroupVersionKind(xBackend)
		x.SetNamespace(suite.InfrastructureNamespace)
		x.SetName(name)
		create(t, s, x)
		create(t, s, routeTo(name, name, path))
		create(t, s, routeTo(name+"-missing", name+"-missing", path+"-missing"))
		address := kubernetes.GatewayAndRoutesMustBeAccepted(t, s.Client, s.TimeoutConfig, s.ControllerName, kubernetes.NewGatewayRef(gwNN), &v1.HTTPRoute{}, false,
			types.NamespacedName{Namespace: suite.InfrastructureNamespace, Name: name})
		edit := func(t *testing.T, change func(spec map[string]any)) {
			t.Helper()
			require.NoError(t, retryConflict(t, s, func(ctx context.Context) error {
				if err := s.Client.Get(ctx, types.NamespacedName{Namespace: x.GetNamespace(), Name: name}, x); err != nil {
					return err
				}
				change(x.Object["spec"].(map[string]any))
				return s.Client.Update(ctx, x)
			}))
			awaitPolicyCondition(t, s, x, gwNN.Name, "Accepted", metav1.ConditionTrue, "Accepted")
		}
		// ask returns the pod that has answered, and the head of its response, once that is one of the backend.
		ask := func(t *testing.T, backend, cookie string) (pod string, head nethttp.Header) {
			t.Helper()
			expected := http.ExpectedResponse{Namespace: suite.InfrastructureNamespace, Request: http.Request{Path: path, Headers: map[string]string{"Cookie": cookie}}}
			request := http.MakeRequest(t, &expected, address, "HTTP", "http")
			http.AwaitConvergence(t, s.TimeoutConfig, func(time.Duration) bool {
				got, response, err := s.RoundTripper.CaptureRoundTrip(request)
				if err != nil || response.StatusCode != 200 || !strings.HasPrefix(got.Pod, backend+"-") {
					return false
				}
				pod, head = got.Pod, response.Headers
				return true
			})
			return pod, head
		}

		t.Run("Requests are answered by the pods that are selected", func(t *testing.T) {
			awaitPolicyCondition(t, s, x, gwNN.Name, "Accepted", metav1.ConditionTrue, "Accepted")
			ask(t, suite.InfraBackendServiceNameV1, "none=1")
		})
		t.Run("No Service has the name of the XBackend", func(t *testing.T) {
			err := s.Client.Get(t.Context(), types.NamespacedName{Namespace: suite.InfrastructureNamespace, Name: name}, &corev1.Service{})
			require.True(t, apierrors.IsNotFound(err), "%v", err)
		})
		t.Run("Another selector leads to other pods", func(t *testing.T) {
			edit(t, func(spec map[string]any) {
				spec["endpointSelector"] = map[string]any{"matchLabels": map[string]any{"app": suite.InfraBackendServiceNameV2}}
			})
			ask(t, suite.InfraBackendServiceNameV2, "none=1")
		})
		t.Run("Requests of a session are answered by one pod", func(t *testing.T) {
			edit(t, func(spec map[string]any) {
				spec["sessionPersistence"] = map[string]any{"type": "Cookie", "cookie": map[string]any{"name": "pod"}}
			})
			var pod, cookie string
			http.AwaitConvergence(t, s.TimeoutConfig, func(time.Duration) bool {
				var head nethttp.Header
				pod, head = ask(t, suite.InfraBackendServiceNameV2, "none=1")
				for _, c := range (&nethttp.Response{Header: head}).Cookies() {
					if c.Name == "pod" {
						cookie = c.Name + "=" + c.Value
						return true
					}
				}
				return false
			})
			for range 50 {
				got, _ := ask(t, suite.InfraBackendServiceNameV2, cookie)
				require.Equal(t, pod, got, "the pod that answers")
			}
		})
		t.Run("Pods are spoken to by HTTP/2 at another port", func(t *testing.T) {
			edit(t, func(spec map[string]any) {
				spec["protocol"], spec["port"] = "H2C", map[string]any{"number": int64(3001)}
			})
			ask(t, suite.InfraBackendServiceNameV2, "none=1")
		})
		t.Run("A route names an XBackend that does not exist", func(t *testing.T) {
			kubernetes.HTTPRouteMustHaveCondition(t, s.Client, s.TimeoutConfig, types.NamespacedName{Namespace: suite.InfrastructureNamespace, Name: name + "-missing"}, gwNN, metav1.Condition{
				Type: string(v1.RouteConditionResolvedRefs), Status: metav1.ConditionFalse, Reason: string(v1.RouteReasonBackendNotFound),
			})
		})
	},
}
