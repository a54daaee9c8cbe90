package extra

import (
	"context"
	"net/url"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/wait"
	v1 "sigs.k8s.io/gateway-api/apis/v1"
	"sigs.k8s.io/gateway-api/conformance/utils/http"
	"sigs.k8s.io/gateway-api/conformance/utils/kubernetes"
	"sigs.k8s.io/gateway-api/conformance/utils/suite"
	"sigs.k8s.io/gateway-api/pkg/features"
)

func init() {
	ConformanceTests = append(ConformanceTests, XBackendTrafficPolicyRetryConstraint)
}

var xBackendTrafficPolicy = schema.GroupVersionKind{Group: "gateway.networking.x-k8s.io", Version: "v1alpha1", Kind: "XBackendTrafficPolicy"}

// XBackendTrafficPolicyRetryConstraint tests retry budgets (GEP-3388).
var XBackendTrafficPolicyRetryConstraint = suite.ConformanceTest{
	ShortName:   "XBackendTrafficPolicyRetryConstraint",
	Description: "The retryConstraint of an XBackendTrafficPolicy should bound the retries that an HTTPRoute asks for: beyond the budget the client gets 503. Of several policies for a Service the oldest is in force.",
	Features:    []features.FeatureName{features.SupportGateway, features.SupportHTTPRoute, features.SupportHTTPRouteRetryCodes},
	Test: func(t *testing.T, s *suite.ConformanceTestSuite) {
		const name = "retry-constraint"
		gwNN := types.NamespacedName{Namespace: suite.InfrastructureNamespace, Name: "same-namespace"}
		service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: suite.InfrastructureNamespace, Name: name}}
		service.Spec.Selector = map[string]string{"app": suite.InfraBackendServiceNameV3}
		service.Spec.Ports = []corev1.ServicePort{{Port: 8080, TargetPort: intstr.FromInt32(3000)}}
		create(t, s, service)
		far, farKind := v1.Group("multicluster.x-k8s.io"), v1.Kind("ServiceImport")
		createRetryingRoute(t, s, name, "/retry/"+name, v1.BackendObjectReference{Name: name})
		createRetryingRoute(t, s, name+"-far", "/retry/"+name+"-far", v1.BackendObjectReference{Group: &far, Kind: &farKind, Name: name})
		address := kubernetes.GatewayAndRoutesMustBeAccepted(t, s.Client, s.TimeoutConfig, s.ControllerName, kubernetes.NewGatewayRef(gwNN), &v1.HTTPRoute{}, false,
			types.NamespacedName{Namespace: suite.InfrastructureNamespace, Name: name})
		// answers waits for the status of requests whose first attempts fail.
		answers := func(t *testing.T, failures string, status int) {
			t.Helper()
			http.AwaitConvergence(t, s.TimeoutConfig, func(time.Duration) bool {
				query := url.Values{"responseCode": {"500"}, "succeedAfter": {failures}, "uuid": {uuid.New().String()}}
				expected := http.ExpectedResponse{Namespace: suite.InfrastructureNamespace, Request: http.Request{Path: "/retry/" + name + "?" + query.Encode()}, Response: http.Response{StatusCode: status}}
				request := http.MakeRequest(t, &expected, address, "HTTP", "http")
				got, response, err := s.RoundTripper.CaptureRoundTrip(request)
				return err == nil && http.CompareRoundTrip(t, &request, got, response, expected) == nil
			})
		}
		says := func(t *testing.T, policy string, status metav1.ConditionStatus, reason v1.PolicyConditionReason) {
			t.Helper()
			awaitPolicy(t, s, policy, gwNN.Name, status, string(reason))
		}
		t.Run("Without a policy a request is tried again as often as its rule asks for", func(t *testing.T) {
			answers(t, "2", 200)
			answers(t, "4", 500)
		})

		// The budget allows nothing, and the minimum rate next to nothing.
		policy := createTrafficPolicy(t, s, "a-"+name, "", "Service", map[string]any{
			"budget": map[string]any{"percent": int64(0), "interval": "1h"}, "minRetryRate": map[string]any{"count": int64(1), "interval": "1h"},
		})
		t.Run("Beyond the budget the client gets 503", func(t *testing.T) {
			says(t, policy.GetName(), metav1.ConditionTrue, v1.PolicyReasonAccepted)
			answers(t, "2", 503)
		})
		t.Run("A younger policy for the Service is in conflict", func(t *testing.T) {
			created := policy.GetCreationTimestamp()
			for time.Since(created.Time) < 2*time.Second { // creation times are in seconds
				time.Sleep(100 * time.Millisecond)
			}
			younger := createTrafficPolicy(t, s, "b-"+name, "", "Service", map[string]any{"budget": map[string]any{"percent": int64(100)}})
			says(t, younger.GetName(), metav1.ConditionFalse, v1.PolicyReasonConflicted)
			says(t, policy.GetName(), metav1.ConditionTrue, v1.PolicyReasonAccepted)
			answers(t, "2", 503)
		})
		t.Run("Within another budget requests are tried again", func(t *testing.T) {
			require.NoError(t, retryConflict(t, s, func(ctx context.Context) error {
				if err := s.Client.Get(ctx, types.NamespacedName{Namespace: suite.InfrastructureNamespace, Name: policy.GetName()}, policy); err != nil {
					return err
				}
				require.NoError(t, unstructured.SetNestedMap(policy.Object, map[string]any{"count": int64(1000), "interval": "1s"}, "spec", "retryConstraint", "minRetryRate"))
				return s.Client.Update(ctx, policy)
			}))
			says(t, policy.GetName(), metav1.ConditionTrue, v1.PolicyReasonAccepted)
			answers(t, "2", 200)
		})
		t.Run("A target that cannot be a backend is named", func(t *testing.T) {
			other := createTrafficPolicy(t, s, "c-"+name, string(far), string(farKind), map[string]any{})
			says(t, other.GetName(), metav1.ConditionFalse, v1.PolicyReasonInvalid)
		})
	},
}

// createRetryingRoute makes a route whose rule has up to three retries.
func createRetryingRoute(t *testing.T, s *suite.ConformanceTestSuite, name, path string, backend v1.BackendObjectReference) {
	t.Helper()
	port, attempts, backoff := v1.PortNumber(8080), 3, v1.Duration("1ms")
	backend.Port = &port
	route := &v1.HTTPRoute{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: suite.InfrastructureNamespace}}
	route.Spec.ParentRefs = []v1.ParentReference{{Name: "same-namespace"}}
	route.Spec.Rules = []v1.HTTPRouteRule{{
		Matches:     []v1.HTTPRouteMatch{{Path: &v1.HTTPPathMatch{Value: &path}}},
		Retry:       &v1.HTTPRouteRetry{Codes: []v1.HTTPRouteRetryStatusCode{500}, Attempts: &attempts, Backoff: &backoff},
		BackendRefs: []v1.HTTPBackendRef{{BackendRef: v1.BackendRef{BackendObjectReference: backend}}},
	}}
	create(t, s, route)
}

// createTrafficPolicy makes a policy for the object "retry-constraint" of a kind.
func createTrafficPolicy(t *testing.T, s *suite.ConformanceTestSuite, name, group, kind string, retryConstraint map[string]any) *unstructured.Unstructured {
	t.Helper()
	o := newTrafficPolicy(name)
	o.Object["spec"] = map[string]any{
		"targetRefs":      []any{map[string]any{"group": group, "kind": kind, "name": "retry-constraint"}},
		"retryConstraint": retryConstraint,
	}
	create(t, s, o)
	return o
}

func newTrafficPolicy(name string) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: map[string]any{}}
	o.SetGroupVersionKind(xBackendTrafficPolicy)
	o.SetNamespace(suite.InfrastructureNamespace)
	o.SetName(name)
	return o
}

// awaitPolicy waits for condition Accepted of a policy, as it is said of a Gateway.
func awaitPolicy(t *testing.T, s *suite.ConformanceTestSuite, name, gateway string, status metav1.ConditionStatus, reason string) {
	t.Helper()
	awaitPolicyCondition(t, s, newTrafficPolicy(name), gateway, "Accepted", status, reason)
}

// awaitPolicyCondition waits for a condition of a policy, as it is said of a Gateway.
func awaitPolicyCondition(t *testing.T, s *suite.ConformanceTestSuite, o *unstructured.Unstructured, gateway, condition string, status metav1.ConditionStatus, reason string) {
	t.Helper()
	name := o.GetName()
	err := wait.PollUntilContextTimeout(t.Context(), s.TimeoutConfig.DefaultPollInterval, s.TimeoutConfig.HTTPRouteMustHaveCondition, true,
		func(ctx context.Context) (bool, error) {
			if s.Client.Get(ctx, types.NamespacedName{Namespace: suite.InfrastructureNamespace, Name: name}, o) != nil {
				return false, nil
			}
			ancestors, _, _ := unstructured.NestedSlice(o.Object, "status", "ancestors")
			for _, item := range ancestors {
				ancestor, _ := item.(map[string]any)
				of, _, _ := unstructured.NestedString(ancestor, "ancestorRef", "name")
				conditions, _, _ := unstructured.NestedSlice(ancestor, "conditions")
				if of == gateway && conditionIn(conditions, o.GetGeneration(), condition, status, []string{reason}) {
					return true, nil
				}
			}
			return false, nil
		})
	require.NoError(t, err, "%s %s: %v", o.GetKind(), name, o.Object["status"])
}
