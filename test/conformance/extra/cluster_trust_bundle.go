package extra

import (
	"context"
	cryptotls "crypto/tls"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	v1 "sigs.k8s.io/gateway-api/apis/v1"
	"sigs.k8s.io/gateway-api/conformance/utils/http"
	"sigs.k8s.io/gateway-api/conformance/utils/kubernetes"
	"sigs.k8s.io/gateway-api/conformance/utils/roundtripper"
	"sigs.k8s.io/gateway-api/conformance/utils/suite"
	"sigs.k8s.io/gateway-api/conformance/utils/tls"
	"sigs.k8s.io/gateway-api/pkg/features"
)

func init() {
	ConformanceTests = append(ConformanceTests, BackendTLSPolicyClusterTrustBundle, GatewayFrontendClusterTrustBundle)
}

// Authorities that the suite makes anew for each run.
const (
	backendAuthority = "tls-checks-ca-certificate" // of the backend tls-backend
	clientAuthority  = "tls-validity-checks-ca-certificate"
	otherAuthority   = "tls-validity-checks-per-port-ca-certificate"
)

// BackendTLSPolicyClusterTrustBundle tests authorities of backends.
var BackendTLSPolicyClusterTrustBundle = suite.ConformanceTest{
	ShortName:   "BackendTLSPolicyClusterTrustBundle",
	Description: "A BackendTLSPolicy should take the authorities of a ClusterTrustBundle, and follow its creation, changes and deletion; without it nothing is sent to the backend.",
	Features: []features.FeatureName{
		features.SupportGateway, features.SupportHTTPRoute, features.SupportBackendTLSPolicy, features.SupportClusterTrustBundle,
	},
	Test: func(t *testing.T, s *suite.ConformanceTestSuite) {
		const name = "backend-cluster-trust-bundle"
		gwNN, policyNN := types.NamespacedName{Namespace: suite.InfrastructureNamespace, Name: "same-namespace"}, types.NamespacedName{Namespace: suite.InfrastructureNamespace, Name: name}
		service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: suite.InfrastructureNamespace, Name: name}}
		service.Spec.Selector = map[string]string{"app": "tls-backend"}
		service.Spec.Ports = []corev1.ServicePort{{Name: "https", Port: 443, TargetPort: intstr.FromInt32(8443)}}
		create(t, s, service)
		policy := &v1.BackendTLSPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: suite.InfrastructureNamespace, Name: name}}
		policy.Spec.TargetRefs = []v1.LocalPolicyTargetReferenceWithSectionName{{LocalPolicyTargetReference: v1.LocalPolicyTargetReference{Kind: "Service", Name: name}}}
		policy.Spec.Validation = v1.BackendTLSPolicyValidation{
			Hostname:          "abc.example.com",
			CACertificateRefs: []v1.LocalObjectReference{{Group: trustBundleGroup, Kind: trustBundleKind, Name: name}},
		}
		create(t, s, policy)
		createHTTPSRoute(t, s, name, "same-namespace", "/backend-cluster-trust-bundle", v1.ObjectName(name))
		address := kubernetes.GatewayAndRoutesMustBeAccepted(t, s.Client, s.TimeoutConfig, s.ControllerName, kubernetes.NewGatewayRef(gwNN), &v1.HTTPRoute{}, false,
			types.NamespacedName{Namespace: suite.InfrastructureNamespace, Name: name})

		says := func(t *testing.T, condition v1.PolicyConditionType, status metav1.ConditionStatus, reason v1.PolicyConditionReason) {
			t.Helper()
			kubernetes.BackendTLSPolicyMustHaveCondition(t, s.Client, s.TimeoutConfig, policyNN, gwNN, metav1.Condition{Type: string(condition), Status: status, Reason: string(reason)})
		}
		answers := func(t *testing.T, statuses ...int) {
			t.Helper()
			http.MakeRequestAndExpectEventuallyConsistentResponse(t, s.RoundTripper, s.TimeoutConfig, address, http.ExpectedResponse{
				Namespace: suite.InfrastructureNamespace, Response: http.Response{StatusCodes: statuses},
				Request: http.Request{Host: "abc.example.com", Path: "/backend-cluster-trust-bundle", SNI: "abc.example.com"},
			})
		}
		fails := []int{500, 502, 503} // the policy's specification asks for an error of the server, and does not say which
		missing := func(t *testing.T) {
			says(t, v1.PolicyConditionAccepted, metav1.ConditionFalse, v1.BackendTLSPolicyReasonNoValidCACertificate)
			says(t, v1.BackendTLSPolicyConditionResolvedRefs, metav1.ConditionFalse, v1.BackendTLSPolicyReasonInvalidCACertificateRef)
			answers(t, fails...)
		}
		trusted := func(t *testing.T) {
			says(t, v1.PolicyConditionAccepted, metav1.ConditionTrue, v1.PolicyReasonAccepted)
			says(t, v1.BackendTLSPolicyConditionResolvedRefs, metav1.ConditionTrue, v1.BackendTLSPolicyReasonResolvedRefs)
			answers(t, 200)
		}
		t.Run("A reference to none is not valid", missing)
		bundle := createTrustBundle(t, s, name, backendAuthority)
		t.Run("Its authorities are trusted as soon as it is there", trusted)
		setTrustBundle(t, s, bundle, otherAuthority)
		t.Run("A backend of an authority that is not among them is not trusted", func(t *testing.T) { // the reference is valid
			says(t, v1.PolicyConditionAccepted, metav1.ConditionTrue, v1.PolicyReasonAccepted)
			answers(t, fails...)
		})
		setTrustBundle(t, s, bundle, backendAuthority, otherAuthority)
		t.Run("It may have several authorities", trusted)
		require.NoError(t, s.Client.Delete(t.Context(), bundle))
		t.Run("Nothing is trusted when it has gone", missing)
		createTrustBundle(t, s, name, backendAuthority)
		t.Run("Another one of its name takes its place", trusted)
	},
}

// GatewayFrontendClusterTrustBundle tests authorities of clients.
var GatewayFrontendClusterTrustBundle = suite.ConformanceTest{
	ShortName:   "GatewayFrontendClusterTrustBundle",
	Description: "A Gateway in the gateway-conformance-infra namespace should take the authorities of clients from a ClusterTrustBundle, and follow its changes.",
	Features: []features.FeatureName{
		features.SupportGateway, features.SupportHTTPRoute, features.SupportGatewayFrontendClientCertificateValidation, features.SupportClusterTrustBundle,
	},
	Test: func(t *testing.T, s *suite.ConformanceTestSuite) {
		const name, host = "frontend-cluster-trust-bundle", "example.org"
		gw := newGateway(s, name)
		gw.Spec.Listeners[0].Name, gw.Spec.Listeners[0].Port, gw.Spec.Listeners[0].Protocol = "https", 443, v1.HTTPSProtocolType
		gw.Spec.Listeners[0].TLS = &v1.ListenerTLSConfig{CertificateRefs: []v1.SecretObjectReference{{Name: "tls-validity-checks-certificate"}}}
		gw.Spec.TLS = &v1.GatewayTLSConfig{Frontend: &v1.FrontendTLSConfig{Default: v1.TLSConfig{Validation: &v1.FrontendTLSValidation{
			CACertificateRefs: []v1.ObjectReference{{Group: trustBundleGroup, Kind: trustBundleKind, Name: name}},
		}}}}
		create(t, s, gw)
		createHTTPSRoute(t, s, name, name, "/", "")
		bundle := createTrustBundle(t, s, name, clientAuthority)
		address := gatewayAddress(t, s, name) + ":443"
		infra := func(name string) types.NamespacedName {
			return types.NamespacedName{Namespace: suite.InfrastructureNamespace, Name: name}
		}
		server, _, err := kubernetes.GetTLSSecret(s.Client, infra("tls-validity-checks-certificate"))
		require.NoError(t, err)
		certificate, key, err := kubernetes.GetTLSSecret(s.Client, infra("tls-validity-checks-client-certificate"))
		require.NoError(t, err)
		request := http.ExpectedResponse{Namespace: suite.InfrastructureNamespace, Request: http.Request{Host: host, Path: "/"}, Response: http.Response{StatusCode: 200}}
		accepts := func(t *testing.T) {
			tls.MakeTLSRequestAndExpectEventuallyConsistentResponse(t, s.RoundTripper, s.TimeoutConfig, address, server, certificate, key, host, request)
		}
		pair, err := cryptotls.X509KeyPair(certificate, key)
		require.NoError(t, err)
		refuses := func(t *testing.T) { // whether it asks for the certificate, or does not serve at all
			r := http.MakeRequest(t, &request, address, roundtripper.HTTPSProtocol, "https")
			r.ServerName, r.ServerCertificate = host, server
			r.GetClientCertificateHook = func(*cryptotls.CertificateRequestInfo) (*cryptotls.Certificate, error) { return &pair, nil }
			http.AwaitConvergence(t, s.TimeoutConfig, func(time.Duration) bool {
				_, _, err := s.RoundTripper.CaptureRoundTrip(r)
				return err != nil
			})
		}
		t.Run("A client with a certificate of its authority is served", accepts)
		t.Run("A client without a certificate is not", func(t *testing.T) {
			tls.MakeTLSRequestAndExpectEventuallyConsistentFailureResponse(t, s.RoundTripper, s.TimeoutConfig, address, server, nil, nil, host, request)
		})
		setTrustBundle(t, s, bundle, otherAuthority)
		t.Run("A client of an authority that is not among them any more is not", refuses)
		setTrustBundle(t, s, bundle, otherAuthority, clientAuthority)
		t.Run("A client of an authority that has come is served", accepts)
		require.NoError(t, s.Client.Delete(t.Context(), bundle))
		t.Run("No client is served when it has gone", refuses)
	},
}

const (
	trustBundleGroup = "certificates.k8s.io"
	trustBundleKind  = "ClusterTrustBundle"
)

// createHTTPSRoute creates a route of a Gateway, to port 443 of a Service or, without one, to a backend in cleartext.
func createHTTPSRoute(t *testing.T, s *suite.ConformanceTestSuite, name, gateway, path string, service v1.ObjectName) {
	t.Helper()
	port := v1.PortNumber(443)
	if service == "" {
		service, port = "infra-backend-v1", 8080
	}
	route := &v1.HTTPRoute{ObjectMeta: metav1.ObjectMeta{Namespace: suite.InfrastructureNamespace, Name: name}}
	route.Spec.ParentRefs = []v1.ParentReference{{Name: v1.ObjectName(gateway)}}
	prefix := v1.PathMatchPathPrefix
	route.Spec.Rules = []v1.HTTPRouteRule{{
		Matches:     []v1.HTTPRouteMatch{{Path: &v1.HTTPPathMatch{Type: &prefix, Value: &path}}},
		BackendRefs: []v1.HTTPBackendRef{{BackendRef: v1.BackendRef{BackendObjectReference: v1.BackendObjectReference{Name: service, Port: &port}}}},
	}}
	create(t, s, route)
}

// createTrustBundle creates a ClusterTrustBundle with authorities that the suite has made, in the version that the API server prefers.
func createTrustBundle(t *testing.T, s *suite.ConformanceTestSuite, name string, authorities ...string) *unstructured.Unstructured {
	t.Helper()
	mapping, err := s.Client.RESTMapper().RESTMapping(schema.GroupKind{Group: trustBundleGroup, Kind: trustBundleKind})
	require.NoError(t, err, "the API server has no ClusterTrustBundles, and the feature is claimed")
	o := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"trustBundle": certificatesOf(t, s, authorities)}}}
	o.SetGroupVersionKind(mapping.GroupVersionKind)
	o.SetName(name)
	require.NoError(t, s.Client.Create(t.Context(), o))
	t.Cleanup(func() { _ = s.Client.Delete(context.Background(), o) })
	return o
}

func setTrustBundle(t *testing.T, s *suite.ConformanceTestSuite, bundle *unstructured.Unstructured, authorities ...string) {
	t.Helper()
	require.NoError(t, retryConflict(t, s, func(ctx context.Context) error {
		if err := s.Client.Get(ctx, client.ObjectKeyFromObject(bundle), bundle); err != nil {
			return err
		}
		bundle.Object["spec"] = map[string]any{"trustBundle": certificatesOf(t, s, authorities)}
		return s.Client.Update(ctx, bundle)
	}))
}

// certificatesOf returns the certificates in ConfigMaps, each as PEM.
func certificatesOf(t *testing.T, s *suite.ConformanceTestSuite, names []string) (all string) {
	t.Helper()
	for _, name := range names {
		var m corev1.ConfigMap
		require.NoError(t, s.Client.Get(t.Context(), types.NamespacedName{Namespace: suite.InfrastructureNamespace, Name: name}, &m))
		require.NotEmpty(t, m.Data["ca.crt"])
		all += m.Data["ca.crt"]
	}
	return all
}
