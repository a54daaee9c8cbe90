package extra

import (
	nethttp "net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "sigs.k8s.io/gateway-api/apis/v1"
	"sigs.k8s.io/gateway-api/conformance/utils/http"
	"sigs.k8s.io/gateway-api/conformance/utils/kubernetes"
	"sigs.k8s.io/gateway-api/conformance/utils/suite"
	"sigs.k8s.io/gateway-api/pkg/features"
)

func init() {
	ConformanceTests = append(ConformanceTests, HTTPRouteSessionPersistence)
}

// HTTPRouteSessionPersistence tests what GEP-1619 plans tests for.
var HTTPRouteSessionPersistence = suite.ConformanceTest{
	ShortName: "HTTPRouteSessionPersistence",
	Description: "Requests that bring the cookie of a session, or its header field, should be answered by one pod of each backend, whatever their weights, " +
		"and the cookie should last as long as the rule says.",
	Features: []features.FeatureName{features.SupportGateway, features.SupportHTTPRoute},
	Test: func(t *testing.T, s *suite.ConformanceTestSuite) {
		gwNN := types.NamespacedName{Namespace: suite.InfrastructureNamespace, Name: "same-namespace"}
		cookie, header := v1.CookieBasedSessionPersistence, v1.HeaderBasedSessionPersistence
		permanent, fiveMinutes, cookieName := v1.PermanentCookieLifetimeType, v1.Duration("5m"), v1.CookieName("split-session")
		backends := func(weights ...int32) (refs []v1.HTTPBackendRef) {
			port := v1.PortNumber(8080)
			for i, name := range []v1.ObjectName{suite.InfraBackendServiceNameV1, suite.InfraBackendServiceNameV2}[:len(weights)] {
				refs = append(refs, v1.HTTPBackendRef{BackendRef: v1.BackendRef{Weight: &weights[i], BackendObjectReference: v1.BackendObjectReference{Name: name, Port: &port}}})
			}
			return refs
		}
		rule := func(path string, sp *v1.SessionPersistence, refs []v1.HTTPBackendRef) v1.HTTPRouteRule {
			return v1.HTTPRouteRule{
				Matches: []v1.HTTPRouteMatch{{Path: &v1.HTTPPathMatch{Value: &path}}},
				//lint:ignore SA1019 routes still have the deprecated field
				SessionPersistence: sp, BackendRefs: refs,
			}
		}
		route := &v1.HTTPRoute{ObjectMeta: metav1.ObjectMeta{Name: "session-persistence", Namespace: suite.InfrastructureNamespace}}
		route.Spec.ParentRefs = []v1.ParentReference{{Name: v1.ObjectName(gwNN.Name)}}
		route.Spec.Rules = []v1.HTTPRouteRule{
			rule("/session-cookie", &v1.SessionPersistence{Type: &cookie, Cookie: &v1.CookieConfig{}}, backends(1)),
			rule("/session-permanent", &v1.SessionPersistence{Type: &cookie, AbsoluteTimeout: &fiveMinutes, Cookie: &v1.CookieConfig{LifetimeType: &permanent}}, backends(1)),
			rule("/session-header", &v1.SessionPersistence{Type: &header, Header: &v1.HeaderConfig{Name: "X-Session"}}, backends(1)),
			rule("/session-split", &v1.SessionPersistence{Type: &cookie, Cookie: &v1.CookieConfig{Name: &cookieName}}, backends(70, 30)),
		}
		create(t, s, route)
		address := kubernetes.GatewayAndRoutesMustBeAccepted(t, s.Client, s.TimeoutConfig, s.ControllerName, kubernetes.NewGatewayRef(gwNN), &v1.HTTPRoute{}, false,
			types.NamespacedName{Namespace: route.Namespace, Name: route.Name})

		// ask returns the pod that has answered, and the head of its response.
		ask := func(t *testing.T, path string, fields map[string]string) (pod string, head nethttp.Header) {
			t.Helper()
			expected := http.ExpectedResponse{Namespace: route.Namespace, Request: http.Request{Path: path, Headers: fields}}
			request := http.MakeRequest(t, &expected, address, "HTTP", "http")
			http.AwaitConvergence(t, s.TimeoutConfig, func(time.Duration) bool {
				got, response, err := s.RoundTripper.CaptureRoundTrip(request)
				if err != nil || response.StatusCode != 200 {
					return false
				}
				pod, head = got.Pod, response.Headers
				return true
			})
			return pod, head
		}
		cookieOf := func(t *testing.T, head nethttp.Header) *nethttp.Cookie {
			t.Helper()
			cookies := (&nethttp.Response{Header: head}).Cookies()
			require.Len(t, cookies, 1, "one cookie in the response")
			return cookies[0]
		}
		stays := func(t *testing.T, path, pod string, fields map[string]string) {
			t.Helper()
			for range 50 {
				got, _ := ask(t, path, fields)
				require.Equal(t, pod, got, "the pod that answers")
			}
		}

		t.Run("Requests with the cookie are answered by one pod", func(t *testing.T) {
			pod, head := ask(t, "/session-cookie", nil)
			c := cookieOf(t, head)
			require.Zero(t, c.MaxAge, "Max-Age of a session cookie")
			require.True(t, c.Expires.IsZero(), "Expires of a session cookie")
			require.Equal(t, "/", c.Path)
			require.True(t, c.HttpOnly)
			stays(t, "/session-cookie", pod, map[string]string{"Cookie": "other=1; " + c.Name + "=" + c.Value})
		})
		t.Run("A permanent cookie lasts for the absolute timeout", func(t *testing.T) {
			pod, head := ask(t, "/session-permanent", nil)
			c := cookieOf(t, head)
			require.Equal(t, 300, c.MaxAge)
			stays(t, "/session-permanent", pod, map[string]string{"Cookie": c.Name + "=" + c.Value})
		})
		t.Run("Requests with the header field are answered by one pod", func(t *testing.T) {
			pod, head := ask(t, "/session-header", nil)
			require.NotEmpty(t, head.Get("X-Session"))
			stays(t, "/session-header", pod, map[string]string{"X-Session": head.Get("X-Session")})
		})
		t.Run("Sessions do not override the weights", func(t *testing.T) {
			fields, pods, first := map[string]string{}, map[string]int{}, 0
			const requests = 500
			for range requests {
				pod, head := ask(t, "/session-split", fields)
				if len(head["Set-Cookie"]) > 0 {
					fields["Cookie"] = string(cookieName) + "=" + cookieOf(t, head).Value
				}
				if pods[pod]++; strings.HasPrefix(pod, suite.InfraBackendServiceNameV1+"-") {
					first++
				}
			}
			require.Len(t, pods, 2, "one pod of each backend")
			require.InDelta(t, 0.7*requests, float64(first), 62, "requests of the backend with weight 70: six standard deviations") // sqrt(500*0.7*0.3) is 10.2
		})
	},
}
