package extra

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
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
	ConformanceTests = append(ConformanceTests, XTelemetryPolicyTracing)
}

var xTelemetryPolicy = schema.GroupVersionKind{Group: "gateway.networking.x-k8s.io", Version: "v1alpha1", Kind: "XTelemetryPolicy"}

// XTelemetryPolicyTracing tests what backends and statuses show of tracing (GEP-4768). The collector is one that takes no spans, which is to hurt nobody.
var XTelemetryPolicyTracing = suite.ConformanceTest{
	ShortName: "XTelemetryPolicyTracing",
	Description: "Where an XTelemetryPolicy has the requests of a Gateway traced, backends should be told their parent by traceparent. Of several policies the oldest should be in force, and one whose " +
		"collector does not exist should say so. Requests should be answered whatever becomes of spans.",
	Features: []features.FeatureName{features.SupportGateway, features.SupportHTTPRoute},
	Test: func(t *testing.T, s *suite.ConformanceTestSuite) {
		const client = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
		gw := newGateway(s, "telemetry")
		gw.Spec.Listeners[0].Port = 80
		create(t, s, gw)
		route := &v1.HTTPRoute{ObjectMeta: metav1.ObjectMeta{Name: gw.Name, Namespace: suite.InfrastructureNamespace}}
		route.Spec.ParentRefs = []v1.ParentReference{{Name: v1.ObjectName(gw.Name)}}
		route.Spec.Rules = []v1.HTTPRouteRule{guardedRule("/", nil)}
		create(t, s, route)
		address := kubernetes.GatewayAndRoutesMustBeAccepted(t, s.Client, s.TimeoutConfig, s.ControllerName, kubernetes.NewGatewayRef(types.NamespacedName{Namespace: gw.Namespace, Name: gw.Name}), &v1.HTTPRoute{}, false,
			types.NamespacedName{Namespace: route.Namespace, Name: route.Name})
		// told waits until the backend is told something of its parent, and no request fails meanwhile.
		told := func(t *testing.T, is func(parents []string) bool) {
			t.Helper()
			expected := http.ExpectedResponse{Namespace: suite.InfrastructureNamespace, Request: http.Request{Path: "/", Headers: map[string]string{"Traceparent": client}}}
			request := http.MakeRequest(t, &expected, address, "HTTP", "http")
			http.AwaitConvergence(t, s.TimeoutConfig, func(time.Duration) bool {
				got, response, err := s.RoundTripper.CaptureRoundTrip(request)
				return err == nil && response.StatusCode == 200 && is(got.Headers["Traceparent"])
			})
		}
		policy := func(name, collector string) *unstructured.Unstructured {
			o := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{
				"targetRefs": []any{map[string]any{"group": v1.GroupName, "kind": "Gateway", "name": gw.Name}},
				"tracing":    map[string]any{"mode": "Enabled", "provider": map[string]any{"backendRef": map[string]any{"name": collector, "port": int64(8080)}}},
			}}}
			o.SetGroupVersionKind(xTelemetryPolicy)
			o.SetNamespace(suite.InfrastructureNamespace)
			o.SetName(name)
			return o
		}
		says := func(t *testing.T, o *unstructured.Unstructured, condition string, status metav1.ConditionStatus, reason string) {
			t.Helper()
			awaitPolicyCondition(t, s, o, gw.Name, condition, status, reason)
		}
		unchanged := func(parents []string) bool { return len(parents) == 1 && parents[0] == client }

		t.Run("Without a policy traceparent is passed on", func(t *testing.T) { told(t, unchanged) })
		missing, younger := policy("a-telemetry", "nobody"), policy("b-telemetry", suite.InfraBackendServiceNameV2)
		t.Cleanup(func() { // they outlive the steps that create them
			for _, o := range []*unstructured.Unstructured{missing, younger} {
				_ = s.Client.Delete(context.Background(), o)
			}
		})
		t.Run("A collector that does not exist is named", func(t *testing.T) {
			require.NoError(t, s.Client.Create(t.Context(), missing))
			says(t, missing, "ResolvedRefs", metav1.ConditionFalse, "BackendNotFound")
			told(t, unchanged)
		})
		t.Run("A younger policy is in conflict", func(t *testing.T) {
			created := missing.GetCreationTimestamp()
			for time.Since(created.Time) < 2*time.Second { // creation times are in seconds
				time.Sleep(100 * time.Millisecond)
			}
			require.NoError(t, s.Client.Create(t.Context(), younger))
			says(t, younger, "Accepted", metav1.ConditionFalse, string(v1.PolicyReasonConflicted))
			told(t, unchanged)
			require.NoError(t, s.Client.Delete(t.Context(), missing))
			says(t, younger, "Accepted", metav1.ConditionTrue, string(v1.PolicyReasonAccepted))
			says(t, younger, "ResolvedRefs", metav1.ConditionTrue, "ResolvedRefs")
		})
		t.Run("Backends are told of a parent in the client's trace", func(t *testing.T) {
			told(t, func(parents []string) bool {
				return len(parents) == 1 && len(parents[0]) == len(client) && parents[0][:35] == client[:35] && parents[0][36:52] != client[36:52] && parents[0][53:] == "01"
			})
		})
	},
}
