package conformance

import (
	"slices"
	"testing"

	"sigs.k8s.io/gateway-api/conformance/utils/suite"
	"sigs.k8s.io/gateway-api/pkg/features"
)

var core = []features.FeatureName{features.SupportGateway, features.SupportReferenceGrant, features.SupportHTTPRoute}

func TestClaimed(t *testing.T) {
	for name, test := range map[string]struct {
		supported []features.FeatureName
		want      []suite.ConformanceProfileName
	}{
		"nothing":              {nil, nil},
		"core of HTTP":         {core, []suite.ConformanceProfileName{"GATEWAY-HTTP"}},
		"no grants":            {[]features.FeatureName{features.SupportGateway, features.SupportHTTPRoute}, nil},
		"HTTP and TCP":         {append(slices.Clone(core), features.SupportTCPRoute), []suite.ConformanceProfileName{"GATEWAY-HTTP", "GATEWAY-TCP"}},
		"a mesh is no gateway": {[]features.FeatureName{features.SupportMesh, features.SupportHTTPRoute}, nil},
	} {
		if got := Claimed(test.supported); !slices.Equal(got, test.want) {
			t.Errorf("%s: %v, want %v", name, got, test.want)
		}
	}
}

func TestExpected(t *testing.T) {
	all := []suite.ConformanceTest{
		{ShortName: "B", Features: []features.FeatureName{features.SupportGateway, features.SupportHTTPRoute}},
		{ShortName: "TCP", Features: []features.FeatureName{features.SupportGateway, features.SupportTCPRoute}},
		{ShortName: "Extended", Features: []features.FeatureName{features.SupportGateway, features.SupportHTTPRoutePathRedirect}},
		{ShortName: "A", Features: []features.FeatureName{features.SupportGateway}},
		{ShortName: "None"},
	}
	if got, want := Expected(all, core), []string{"A", "B", "None"}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

func TestForeign(t *testing.T) {
	supported := append(slices.Clone(core), features.SupportMesh, "Teleport")
	if got, want := Foreign(supported), []features.FeatureName{features.SupportMesh, "Teleport"}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

func TestDifference(t *testing.T) {
	for _, test := range []struct {
		got, want []string
		says      string
	}{
		{nil, nil, ""},
		{[]string{"A", "B"}, []string{"A", "B"}, ""},
		{[]string{"A"}, []string{"A", "B"}, "missing B"},
		{[]string{"A", "C"}, []string{"A", "B"}, "missing B\nunexpected C"},
		{[]string{"A", "A"}, []string{"A"}, "a name more than once, or out of order"},
	} {
		if says := Difference(test.got, test.want); says != test.says {
			t.Errorf("%v, %v: %q, want %q", test.got, test.want, says, test.says)
		}
	}
}
