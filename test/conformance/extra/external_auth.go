package extra

import (
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "sigs.k8s.io/gateway-api/apis/v1"
	"sigs.k8s.io/gateway-api/conformance/utils/http"
	"sigs.k8s.io/gateway-api/conformance/utils/kubernetes"
	"sigs.k8s.io/gateway-api/conformance/utils/suite"
	"sigs.k8s.io/gateway-api/pkg/features"
)

func init() {
	ConformanceTests = append(ConformanceTests, HTTPRouteExternalAuth, GatewayListenerFiltersExternalAuth)
}

// authBy asks a Service of the suite by HTTP. Under /status it answers with the status that the path says, and elsewhere 200 and the fields that it is asked for
// by X-Echo-Set-Header.
func authBy(service, path string) *v1.HTTPExternalAuthFilter {
	port := v1.PortNumber(8080)
	return &v1.HTTPExternalAuthFilter{
		ExternalAuthProtocol: v1.HTTPRouteExternalAuthHTTPProtocol,
		BackendRef:           v1.BackendObjectReference{Name: v1.ObjectName(service), Port: &port},
		HTTPAuthConfig:       &v1.HTTPAuthConfig{Path: path, AllowedRequestHeaders: []string{"X-Echo-Set-Header"}, AllowedResponseHeaders: []string{"X-User"}},
	}
}

func guardedRule(path string, auth *v1.HTTPExternalAuthFilter) v1.HTTPRouteRule {
	port := v1.PortNumber(8080)
	rule := v1.HTTPRouteRule{
		Matches:     []v1.HTTPRouteMatch{{Path: &v1.HTTPPathMatch{Value: &path}}},
		BackendRefs: []v1.HTTPBackendRef{{BackendRef: v1.BackendRef{BackendObjectReference: v1.BackendObjectReference{Name: suite.InfraBackendServiceNameV1, Port: &port}}}},
	}
	if auth != nil {
		rule.Filters = []v1.HTTPRouteFilter{{Type: v1.HTTPRouteFilterExternalAuth, ExternalAuth: auth}}
	}
	return rule
}

// HTTPRouteExternalAuth tests filters of type ExternalAuth (GEP-1494) with a server that speaks HTTP.
var HTTPRouteExternalAuth = suite.ConformanceTest{
	ShortName: "HTTPRouteExternalAuth",
	Description: "A request should reach its backend only if the authorization server answers 200, with the fields of that answer that are allowed. Any other status should be " +
		"the client's answer, and without a server there should be none but errors.",
	Features: []features.FeatureName{features.SupportGateway, features.SupportHTTPRoute},
	Test: func(t *testing.T, s *suite.ConformanceTestSuite) {
		gwNN := types.NamespacedName{Namespace: suite.InfrastructureNamespace, Name: "same-namespace"}
		route := &v1.HTTPRoute{ObjectMeta: metav1.ObjectMeta{Name: "external-auth", Namespace: suite.InfrastructureNamespace}}
		route.Spec.ParentRefs = []v1.ParentReference{{Name: v1.ObjectName(gwNN.Name)}}
		route.Spec.Rules = []v1.HTTPRouteRule{
			guardedRule("/200", authBy(suite.InfraBackendServiceNameV2, "/status")),
			guardedRule("/201", authBy(suite.InfraBackendServiceNameV2, "/status")),
			guardedRule("/401", authBy(suite.InfraBackendServiceNameV2, "/status")),
			guardedRule("/user", authBy(suite.InfraBackendServiceNameV2, "")),
			guardedRule("/unguarded", nil),
		}
		create(t, s, route)
		missing := &v1.HTTPRoute{ObjectMeta: metav1.ObjectMeta{Name: "external-auth-missing", Namespace: suite.InfrastructureNamespace}}
		missing.Spec.ParentRefs = route.Spec.ParentRefs
		missing.Spec.Rules = []v1.HTTPRouteRule{guardedRule("/missing", authBy("nobody", ""))}
		create(t, s, missing)
		address := kubernetes.GatewayAndRoutesMustBeAccepted(t, s.Client, s.TimeoutConfig, s.ControllerName, kubernetes.NewGatewayRef(gwNN), &v1.HTTPRoute{}, false,
			types.NamespacedName{Namespace: route.Namespace, Name: route.Name})
		expect := func(t *testing.T, e http.ExpectedResponse) {
			t.Helper()
			e.Namespace = suite.InfrastructureNamespace
			if e.Response.StatusCode == 200 {
				e.Backend = suite.InfraBackendServiceNameV1
			}
			http.MakeRequestAndExpectEventuallyConsistentResponse(t, s.RoundTripper, s.TimeoutConfig, address, e)
		}
		t.Run("A request that the server allows reaches its backend", func(t *testing.T) {
			expect(t, http.ExpectedResponse{Request: http.Request{Path: "/200"}, Response: http.Response{StatusCode: 200}})
		})
		t.Run("A request that it denies is answered as it says", func(t *testing.T) {
			expect(t, http.ExpectedResponse{Request: http.Request{Path: "/401"}, Response: http.Response{StatusCode: 401}})
		})
		t.Run("No status but 200 allows a request", func(t *testing.T) {
			expect(t, http.ExpectedResponse{Request: http.Request{Path: "/201"}, Response: http.Response{StatusCodes: []int{201, 401, 403}}})
		})
		t.Run("The backend gets the fields of the answer that are allowed, in place of the client's", func(t *testing.T) {
			expect(t, http.ExpectedResponse{
				BackendSetResponseHeaders: map[string]string{"X-User": "alice", "X-Plan": "gold"},
				Request:                   http.Request{Path: "/user", Headers: map[string]string{"X-User": "root"}},
				ExpectedRequest: &http.ExpectedRequest{
					Request:       http.Request{Path: "/user", Headers: map[string]string{"X-User": "alice"}},
					AbsentHeaders: []string{"X-Plan"},
				},
				Response: http.Response{StatusCode: 200},
			})
			expect(t, http.ExpectedResponse{
				Request:         http.Request{Path: "/user", Headers: map[string]string{"X-User": "root"}},
				ExpectedRequest: &http.ExpectedRequest{Request: http.Request{Path: "/user"}, AbsentHeaders: []string{"X-User"}},
				Response:        http.Response{StatusCode: 200},
			})
		})
		t.Run("Without a server requests are answered with an error", func(t *testing.T) {
			kubernetes.HTTPRouteMustHaveCondition(t, s.Client, s.TimeoutConfig, types.NamespacedName{Namespace: missing.Namespace, Name: missing.Name}, gwNN, metav1.Condition{
				Type: string(v1.RouteConditionResolvedRefs), Status: metav1.ConditionFalse, Reason: string(v1.RouteReasonBackendNotFound),
			})
			expect(t, http.ExpectedResponse{Request: http.Request{Path: "/missing"}, Response: http.Response{StatusCode: 500}})
		})
		t.Run("Other rules of the route are not concerned", func(t *testing.T) {
			expect(t, http.ExpectedResponse{Request: http.Request{Path: "/unguarded"}, Response: http.Response{StatusCode: 200}})
		})
	},
}

// GatewayListenerFiltersExternalAuth tests filters of listeners (GEP-5224) with an authorization server.
var GatewayListenerFiltersExternalAuth = suite.ConformanceTest{
	ShortName: "GatewayListenerFiltersExternalAuth",
	Description: "A filter of a listener should be run for each of its requests before a route is looked for, also if there is none, and the route should be found by what it has made of " +
		"the request. A listener whose filter refers to nothing should say so, and should not be programmed.",
	Features: []features.FeatureName{features.SupportGateway, features.SupportHTTPRoute, features.SupportGatewayListenerFilters},
	Test: func(t *testing.T, s *suite.ConformanceTestSuite) {
		filtered := func(name string, auth *v1.HTTPExternalAuthFilter) *v1.Gateway {
			gw := newGateway(s, name)
			gw.Spec.Listeners[0].Port = 80
			gw.Spec.Listeners[0].Filters = &v1.ListenerFilters{Requests: []v1.ListenerFilter{{Type: v1.ListenerFilterExternalAuth, ExternalAuth: auth}}}
			create(t, s, gw)
			return gw
		}
		gw := filtered("listener-filters", authBy(suite.InfraBackendServiceNameV2, "/status"))
		route := &v1.HTTPRoute{ObjectMeta: metav1.ObjectMeta{Name: gw.Name, Namespace: suite.InfrastructureNamespace}}
		route.Spec.ParentRefs = []v1.ParentReference{{Name: v1.ObjectName(gw.Name)}}
		route.Spec.Rules = []v1.HTTPRouteRule{guardedRule("/200", nil), guardedRule("/403", nil)}
		create(t, s, route)
		address := kubernetes.GatewayAndRoutesMustBeAccepted(t, s.Client, s.TimeoutConfig, s.ControllerName, kubernetes.NewGatewayRef(types.NamespacedName{Namespace: gw.Namespace, Name: gw.Name}), &v1.HTTPRoute{}, false,
			types.NamespacedName{Namespace: route.Namespace, Name: route.Name})
		for path, status := range map[string]int{"/200": 200, "/403": 403, "/401": 401} { // no route has the last one
			t.Run("Request "+path, func(t *testing.T) {
				e := http.ExpectedResponse{Namespace: suite.InfrastructureNamespace, Request: http.Request{Path: path}, Response: http.Response{StatusCode: status}}
				if status == 200 {
					e.Backend = suite.InfraBackendServiceNameV1
				}
				http.MakeRequestAndExpectEventuallyConsistentResponse(t, s.RoundTripper, s.TimeoutConfig, address, e)
			})
		}
		t.Run("A filter that refers to nothing", func(t *testing.T) {
			broken := filtered("listener-filters-missing", authBy("nobody", ""))
			awaitGateway(t, s, broken.Name, func(gw *v1.Gateway) bool {
				if len(gw.Status.Listeners) != 1 {
					return false
				}
				conditions := gw.Status.Listeners[0].Conditions
				refs := meta.FindStatusCondition(conditions, string(v1.ListenerConditionResolvedRefs))
				return refs != nil && refs.Status == metav1.ConditionFalse && refs.Reason == "InvalidListenerFilterRef" && refs.ObservedGeneration == gw.Generation &&
					meta.IsStatusConditionFalse(conditions, string(v1.ListenerConditionProgrammed))
			})
		})
	},
}
