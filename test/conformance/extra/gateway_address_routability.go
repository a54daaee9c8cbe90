package extra

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
	v1 "sigs.k8s.io/gateway-api/apis/v1"
	"sigs.k8s.io/gateway-api/conformance/utils/suite"
	"sigs.k8s.io/gateway-api/pkg/features"
)

func init() {
	ConformanceTests = append(ConformanceTests, GatewayAddressRoutability, GatewayAddressRoutabilityValidation,
		GatewayAddressRoutabilityCluster, GatewayAddressRoutabilityClusterStaticAddresses)
}

// sentinel is the value that GEP-5093 reserves for these tests.
const sentinel v1.GatewayAddressRoutabilityType = "testing.x-k8s.io/sentinel"

// GatewayAddressRoutability tests what every implementation reports that claims the feature, whatever scopes it has.
var GatewayAddressRoutability = suite.ConformanceTest{
	ShortName:   "GatewayAddressRoutability",
	Description: "A Gateway in the gateway-conformance-infra namespace should report the routability of each address, and which requests for an address are not satisfied.",
	Features:    []features.FeatureName{features.SupportGateway, features.SupportGatewayAddressRoutability},
	Parallel:    true,
	Test: func(t *testing.T, s *suite.ConformanceTestSuite) {
		createGateway(t, s, "address-routability-unset")
		createGateway(t, s, "address-routability-empty", v1.GatewaySpecAddress{}, v1.GatewaySpecAddress{Routability: v1.GatewayAddressRoutabilityDefault})
		createGateway(t, s, "address-routability-sentinel", v1.GatewaySpecAddress{Routability: sentinel})
		createGateway(t, s, "address-routability-reserved", v1.GatewaySpecAddress{Routability: "testing.x-k8s.io/other"})
		t.Run("Without spec.addresses each address has a routability", func(t *testing.T) {
			gw := awaitAssignment(t, s, "address-routability-unset", metav1.ConditionTrue, v1.GatewayReasonAddressesAssigned)
			require.NotEmpty(t, gw.Status.Addresses)
			requireDefault(t, s, gw.Status.Addresses)
		})
		t.Run("Requests without a routability have an address each", func(t *testing.T) {
			gw := awaitAssignment(t, s, "address-routability-empty", metav1.ConditionTrue, v1.GatewayReasonAddressesAssigned)
			requireDistinct(t, gw, 2)
			requireDefault(t, s, gw.Status.Addresses)
		})
		t.Run("The sentinel is reported", func(t *testing.T) {
			gw := awaitAssignment(t, s, "address-routability-sentinel", metav1.ConditionTrue, v1.GatewayReasonAddressesAssigned)
			requireDistinct(t, gw, 1)
			require.NotNil(t, gw.Status.Addresses[0].Routability)
			require.Equal(t, sentinel, *gw.Status.Addresses[0].Routability)
		})
		t.Run("A reserved value that is not the sentinel is not satisfied", func(t *testing.T) {
			gw := awaitAssignment(t, s, "address-routability-reserved", metav1.ConditionFalse, v1.GatewayReasonAddressesNotAssigned)
			require.Empty(t, gw.Status.Addresses)
			requireNotProgrammed(t, s, gw)
		})
		t.Run("Who claims Cluster claims routability", func(t *testing.T) {
			if s.SupportedFeatures.Has(features.SupportGatewayAddressRoutabilityCluster) {
				require.True(t, s.SupportedFeatures.Has(features.SupportGatewayAddressRoutability))
			}
		})
	},
}

// GatewayAddressRoutabilityValidation tests the rules of the CRD, in spec and status.
var GatewayAddressRoutabilityValidation = suite.ConformanceTest{
	ShortName:   "GatewayAddressRoutabilityValidation",
	Description: "The API server should accept an empty routability, Cluster, and values with a DNS subdomain as prefix that is not reserved, and refuse others.",
	Features:    []features.FeatureName{features.SupportGateway, features.SupportGatewayAddressRoutability},
	Test: func(t *testing.T, s *suite.ConformanceTestSuite) {
		createGateway(t, s, "address-routability-validation")
		valid := []v1.GatewayAddressRoutabilityType{"", "Cluster", "example.com/CorpWan", "example.com/a/b", sentinel}
		invalid := []v1.GatewayAddressRoutabilityType{"Public", "cluster", "example.com", "example.com/", "/value", "Example_com/value", "-example.com/value",
			"k8s.io/value", "example.k8s.io/value", "gateway.networking.k8s.io/value"}
		for _, r := range slices.Concat(valid, invalid) {
			accepted := slices.Contains(valid, r)
			t.Run(fmt.Sprintf("spec %q", r), func(t *testing.T) {
				requireValidity(t, accepted, s.Client.Create(t.Context(), newGateway(s, "address-routability-dry-run", v1.GatewaySpecAddress{Routability: r}), client.DryRunAll))
			})
			t.Run(fmt.Sprintf("status %q", r), func(t *testing.T) {
				requireValidity(t, accepted, retryConflict(t, s, func(ctx context.Context) error {
					gw := &v1.Gateway{}
					if err := s.Client.Get(ctx, types.NamespacedName{Namespace: suite.InfrastructureNamespace, Name: "address-routability-validation"}, gw); err != nil {
						return err
					}
					gw.Status.Addresses = []v1.GatewayStatusAddress{{Value: "192.0.2.1", Routability: &r}}
					return s.Client.Status().Update(ctx, gw, client.DryRunAll)
				}))
			})
		}
	},
}

// GatewayAddressRoutabilityCluster tests requests for addresses within the cluster.
var GatewayAddressRoutabilityCluster = suite.ConformanceTest{
	ShortName:   "GatewayAddressRoutabilityCluster",
	Description: "A Gateway in the gateway-conformance-infra namespace that requests routability Cluster should be assigned an address of a ServiceCIDR.",
	Features:    []features.FeatureName{features.SupportGateway, features.SupportGatewayAddressRoutability, features.SupportGatewayAddressRoutabilityCluster},
	Parallel:    true,
	Test: func(t *testing.T, s *suite.ConformanceTestSuite) {
		createGateway(t, s, "address-routability-cluster", v1.GatewaySpecAddress{Routability: v1.GatewayAddressRoutabilityCluster})
		createGateway(t, s, "address-routability-cluster-and-empty", v1.GatewaySpecAddress{}, v1.GatewaySpecAddress{Routability: v1.GatewayAddressRoutabilityCluster})
		t.Run("A request for Cluster has an address of a ServiceCIDR", func(t *testing.T) {
			gw := awaitAssignment(t, s, "address-routability-cluster", metav1.ConditionTrue, v1.GatewayReasonAddressesAssigned)
			requireDistinct(t, gw, 1)
			requireCluster(t, s, gw.Status.Addresses[0])
		})
		t.Run("A request for Cluster and an empty one have an address each", func(t *testing.T) {
			gw := awaitAssignment(t, s, "address-routability-cluster-and-empty", metav1.ConditionTrue, v1.GatewayReasonAddressesAssigned)
			requireDistinct(t, gw, 2)
			ofCluster := slices.IndexFunc(gw.Status.Addresses, isCluster)
			require.GreaterOrEqual(t, ofCluster, 0, "no address is of routability Cluster: %v", gw.Status.Addresses)
			requireCluster(t, s, gw.Status.Addresses[ofCluster])
			requireDefault(t, s, slices.Delete(slices.Clone(gw.Status.Addresses), ofCluster, ofCluster+1))
		})
	},
}

// GatewayAddressRoutabilityClusterStaticAddresses tests requests that name the address within the cluster.
var GatewayAddressRoutabilityClusterStaticAddresses = suite.ConformanceTest{
	ShortName:   "GatewayAddressRoutabilityClusterStaticAddresses",
	Description: "A Gateway in the gateway-conformance-infra namespace that names an address of routability Cluster should get it if it is of a ServiceCIDR, and nothing in its place otherwise.",
	Features: []features.FeatureName{
		features.SupportGateway, features.SupportGatewayAddressRoutability, features.SupportGatewayAddressRoutabilityCluster, features.SupportGatewayStaticAddresses,
	},
	Parallel: true,
	Test: func(t *testing.T, s *suite.ConformanceTestSuite) {
		const outside = "192.0.2.200"
		require.False(t, inServiceCIDR(t, s, outside), "%s is for documentation (RFC 5737)", outside)
		unsatisfiable := v1.GatewaySpecAddress{Value: outside, Routability: v1.GatewayAddressRoutabilityCluster}
		createGateway(t, s, "address-routability-outside", unsatisfiable)
		createGateway(t, s, "address-routability-outside-and-empty", unsatisfiable, v1.GatewaySpecAddress{})
		t.Run("An address outside of the ServiceCIDRs is not assigned", func(t *testing.T) {
			gw := awaitAssignment(t, s, "address-routability-outside", metav1.ConditionFalse, v1.GatewayReasonAddressesNotAssigned)
			require.Empty(t, gw.Status.Addresses)
			requireNotProgrammed(t, s, gw)
		})
		t.Run("Beside a request that can be satisfied it is named in the condition's message", func(t *testing.T) {
			// Before the other has its address, neither has one.
			gw := awaitAssignment(t, s, "address-routability-outside-and-empty", metav1.ConditionFalse, v1.GatewayReasonAddressesPartiallyAssigned)
			c := meta.FindStatusCondition(gw.Status.Conditions, string(v1.GatewayConditionAddressesAssigned))
			requireDistinct(t, gw, 1)
			requireDefault(t, s, gw.Status.Addresses)
			require.True(t, strings.Contains(c.Message, outside) || strings.Contains(c.Message, "spec.addresses[0]"), "message %q does not name the request", c.Message)
		})
		t.Run("An address of a ServiceCIDR is assigned as it was requested", func(t *testing.T) {
			gw := createGateway(t, s, "address-routability-inside",
				v1.GatewaySpecAddress{Value: freeClusterIP(t, s), Routability: v1.GatewayAddressRoutabilityCluster})
			got := awaitAssignment(t, s, gw.Name, metav1.ConditionTrue, v1.GatewayReasonAddressesAssigned)
			requireDistinct(t, got, 1)
			require.Equal(t, gw.Spec.Addresses[0].Value, got.Status.Addresses[0].Value)
			requireCluster(t, s, got.Status.Addresses[0])
		})
	},
}

// createGateway creates a Gateway that is deleted after the test. Of manifests the suite leaves out the addresses that are no placeholders.
func createGateway(t *testing.T, s *suite.ConformanceTestSuite, name string, addresses ...v1.GatewaySpecAddress) *v1.Gateway {
	t.Helper()
	gw := newGateway(s, name, addresses...)
	create(t, s, gw)
	return gw
}

func newGateway(s *suite.ConformanceTestSuite, name string, addresses ...v1.GatewaySpecAddress) *v1.Gateway {
	gw := &v1.Gateway{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: suite.InfrastructureNamespace}}
	gw.Spec.GatewayClassName = v1.ObjectName(s.GatewayClassName)
	gw.Spec.Addresses = addresses
	gw.Spec.Listeners = []v1.Listener{{Name: "http", Port: 8080, Protocol: v1.HTTPProtocolType}}
	return gw
}

// awaitAssignment returns a Gateway once its condition AddressesAssigned, of its generation, has the status and one of the reasons.
func awaitAssignment(t *testing.T, s *suite.ConformanceTestSuite, name string, status metav1.ConditionStatus, reasons ...v1.GatewayConditionReason) *v1.Gateway {
	t.Helper()
	return awaitGateway(t, s, name, func(gw *v1.Gateway) bool {
		c := meta.FindStatusCondition(gw.Status.Conditions, string(v1.GatewayConditionAddressesAssigned))
		return c != nil && c.ObservedGeneration == gw.Generation && c.Status == status && slices.Contains(reasons, v1.GatewayConditionReason(c.Reason))
	})
}

func awaitGateway(t *testing.T, s *suite.ConformanceTestSuite, name string, is func(*v1.Gateway) bool) *v1.Gateway {
	t.Helper()
	gw := &v1.Gateway{}
	err := wait.PollUntilContextTimeout(t.Context(), s.TimeoutConfig.DefaultPollInterval, s.TimeoutConfig.GatewayStatusMustHaveListeners, true,
		func(ctx context.Context) (bool, error) {
			err := s.Client.Get(ctx, types.NamespacedName{Namespace: suite.InfrastructureNamespace, Name: name}, gw)
			return err == nil && is(gw), nil
		})
	require.NoError(t, err, "Gateway %s: addresses %v, conditions %+v", name, gw.Status.Addresses, gw.Status.Conditions)
	return gw
}

func requireNotProgrammed(t *testing.T, s *suite.ConformanceTestSuite, gw *v1.Gateway) {
	t.Helper()
	awaitGateway(t, s, gw.Name, func(gw *v1.Gateway) bool {
		c := meta.FindStatusCondition(gw.Status.Conditions, string(v1.GatewayConditionProgrammed))
		return c != nil && c.Status == metav1.ConditionFalse && c.Reason == string(v1.GatewayReasonAddressNotAssigned)
	})
}

// requireDistinct checks the number of addresses, of which none may be there twice.
func requireDistinct(t *testing.T, gw *v1.Gateway, number int) {
	t.Helper()
	values := map[string]bool{}
	for _, a := range gw.Status.Addresses {
		values[a.Value] = true
		require.Equal(t, v1.IPAddressType, *a.Type)
	}
	require.Len(t, gw.Status.Addresses, number)
	require.Len(t, values, number, "addresses are not distinct: %v", gw.Status.Addresses)
}

func isCluster(a v1.GatewayStatusAddress) bool {
	return a.Routability != nil && *a.Routability == v1.GatewayAddressRoutabilityCluster
}

// requireDefault checks addresses that nobody asked a routability of: it is Cluster if that is claimed and holds, and empty otherwise.
func requireDefault(t *testing.T, s *suite.ConformanceTestSuite, addresses []v1.GatewayStatusAddress) {
	t.Helper()
	for _, a := range addresses {
		require.NotNil(t, a.Routability, "address %s is without routability", a.Value)
		if isCluster(a) {
			requireCluster(t, s, a)
			continue
		}
		require.Empty(t, *a.Routability, "address %s", a.Value)
		if *a.Type == v1.IPAddressType && s.SupportedFeatures.Has(features.SupportGatewayAddressRoutabilityCluster) {
			require.False(t, inServiceCIDR(t, s, a.Value), "address %s is of a ServiceCIDR and not reported as Cluster", a.Value)
		}
	}
}

func requireCluster(t *testing.T, s *suite.ConformanceTestSuite, a v1.GatewayStatusAddress) {
	t.Helper()
	require.True(t, s.SupportedFeatures.Has(features.SupportGatewayAddressRoutabilityCluster), "address %s is reported as Cluster, which is not claimed", a.Value)
	require.True(t, isCluster(a), "address %s is not reported as Cluster", a.Value)
	require.True(t, inServiceCIDR(t, s, a.Value), "address %s is of no ServiceCIDR", a.Value)
}

// inServiceCIDR reports whether an address is in one of the cluster's ServiceCIDRs.
func inServiceCIDR(t *testing.T, s *suite.ConformanceTestSuite, address string) bool {
	t.Helper()
	ip, err := netip.ParseAddr(address)
	require.NoError(t, err)
	list, err := s.Clientset.NetworkingV1().ServiceCIDRs().List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err, "the cluster's ServiceCIDRs cannot be listed")
	found := false
	for _, item := range list.Items {
		for _, text := range item.Spec.CIDRs {
			prefix, err := netip.ParsePrefix(text)
			require.NoError(t, err)
			found = found || prefix.Contains(ip)
		}
	}
	require.NotEmpty(t, list.Items, "the cluster has no ServiceCIDR")
	return found
}

// freeClusterIP returns an address that a Service had a moment ago.
func freeClusterIP(t *testing.T, s *suite.ConformanceTestSuite) string {
	t.Helper()
	svc := &corev1.Service{ObjectMeta: metav1.ObjectMeta{GenerateName: "address-routability-", Namespace: suite.InfrastructureNamespace}}
	svc.Spec.Ports = []corev1.ServicePort{{Port: 80}}
	require.NoError(t, s.Client.Create(t.Context(), svc))
	require.NoError(t, s.Client.Delete(t.Context(), svc))
	require.NotEmpty(t, svc.Spec.ClusterIP)
	return svc.Spec.ClusterIP
}

func requireValidity(t *testing.T, accepted bool, err error) {
	t.Helper()
	if accepted {
		require.NoError(t, err)
		return
	}
	require.True(t, apierrors.IsInvalid(err), "want a refusal as invalid, got %v", err)
}

// retryConflict repeats an update while somebody else updates the object.
func retryConflict(t *testing.T, s *suite.ConformanceTestSuite, update func(context.Context) error) (last error) {
	t.Helper()
	_ = wait.PollUntilContextTimeout(t.Context(), s.TimeoutConfig.DefaultPollInterval, s.TimeoutConfig.GetTimeout, true, func(ctx context.Context) (bool, error) {
		last = update(ctx)
		return !apierrors.IsConflict(last), nil
	})
	return last
}
