package conformance

import (
	"slices"
	"strings"

	"sigs.k8s.io/gateway-api/conformance/utils/suite"
	"sigs.k8s.io/gateway-api/pkg/features"
)

// profiles are those for gateways. The suite keeps its own list to itself.
var profiles = []suite.ConformanceProfile{
	suite.GatewayHTTPConformanceProfile,
	suite.GatewayGRPCConformanceProfile,
	suite.GatewayTLSConformanceProfile,
	suite.GatewayTCPConformanceProfile,
	suite.GatewayUDPConformanceProfile,
}

// Claimed returns the gateway profiles, in the order above, whose core features
// are all among the supported ones.
func Claimed(supported []features.FeatureName) []suite.ConformanceProfileName {
	var claimed []suite.ConformanceProfileName
	for _, profile := range profiles {
		if profile.CoreFeatures.Len() > 0 && contains(supported, profile.CoreFeatures.UnsortedList()) {
			claimed = append(claimed, profile.Name)
		}
	}
	return claimed
}

// Expected returns the sorted names of the tests that need no feature but the supported ones.
func Expected(all []suite.ConformanceTest, supported []features.FeatureName) []string {
	var names []string
	for _, test := range all {
		if contains(supported, test.Features) {
			names = append(names, test.ShortName)
		}
	}
	slices.Sort(names)
	return names
}

// Foreign returns the supported features that a GatewayClass must not name:
// those of meshes, which the suite would drop with a warning, and names that no
// release of the specification has.
func Foreign(supported []features.FeatureName) []features.FeatureName {
	known := features.SetsToNamesSet(features.AllFeatures)
	mesh := features.SetsToNamesSet(features.MeshCoreFeatures, features.MeshExtendedFeatures)
	var foreign []features.FeatureName
	for _, name := range supported {
		if !known.Has(name) || mesh.Has(name) {
			foreign = append(foreign, name)
		}
	}
	return foreign
}

// Difference says which of two sorted lists of names has what the other lacks;
// "" if they are equal.
func Difference(got, want []string) string {
	var lines []string
	for _, name := range want {
		if !slices.Contains(got, name) {
			lines = append(lines, "missing "+name)
		}
	}
	for _, name := range got {
		if !slices.Contains(want, name) {
			lines = append(lines, "unexpected "+name)
		}
	}
	if lines == nil && !slices.Equal(got, want) {
		lines = []string{"a name more than once, or out of order"}
	}
	return strings.Join(lines, "\n")
}

func contains(set, subset []features.FeatureName) bool {
	return !slices.ContainsFunc(subset, func(name features.FeatureName) bool { return !slices.Contains(set, name) })
}
