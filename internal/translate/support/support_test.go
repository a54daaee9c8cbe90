package support_test

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	gwv1 "sigs.k8s.io/gateway-api/apis/v1"
	"sigs.k8s.io/gateway-api/pkg/features"

	"github.com/moongate-dev/moongate/internal/translate/support"
)

func names(list []gwv1.SupportedFeature) (out []string) {
	for _, f := range list {
		out = append(out, string(f.Name))
	}
	return out
}

func TestFeatures(t *testing.T) {
	known := map[string]bool{}
	for f := range features.AllFeatures {
		known[string(f.Name)] = true
	}
	alone, cluster := names(support.Features(false, nil, true)), names(support.Features(true, nil, true))
	for _, list := range [][]string{alone, cluster} {
		if !slices.IsSorted(list) || len(slices.Compact(slices.Clone(list))) != len(list) || len(list) > 64 {
			t.Errorf("not sorted, not distinct or too many: %v", list)
		}
		for _, f := range list {
			if !known[f] {
				t.Errorf("%s is no feature of the Gateway API", f)
			}
		}
	}
	if slices.Contains(alone, "GatewayInfrastructure") || !slices.Contains(cluster, "GatewayInfrastructure") {
		t.Error("only a cluster has infrastructure")
	}
}

// TestFeaturesOfKinds checks that every feature is about a kind, without which it is gone.
func TestFeaturesOfKinds(t *testing.T) {
	of := func(kinds ...gwv1.Kind) []string {
		return names(support.Features(true, func(k gwv1.Kind) bool { return k == "" || !slices.Contains(kinds, k) }, true))
	}
	if got := of(); got != nil {
		t.Errorf("about no kind: %v", got)
	}
	for _, kind := range []gwv1.Kind{"BackendTLSPolicy", "ClusterTrustBundle", "GRPCRoute", "Gateway", "HTTPRoute", "ListenerSet", "ReferenceGrant", "TCPRoute", "TLSRoute", "UDPRoute"} {
		got := of(kind)
		if len(got) == 0 {
			t.Errorf("nothing about %s", kind)
		}
		for _, f := range got {
			if !strings.HasPrefix(f, string(kind)) {
				t.Errorf("%s is not about %s", f, kind)
			}
		}
	}
	if all := names(support.Features(true, nil, true)); !reflect.DeepEqual(of("BackendTLSPolicy", "ClusterTrustBundle", "GRPCRoute", "Gateway", "HTTPRoute", "ListenerSet", "ReferenceGrant", "TCPRoute", "TLSRoute", "UDPRoute"), all) {
		t.Errorf("some of %v are about other kinds", all)
	}
}

// TestFeaturesWithoutExperiments checks that nothing else is lost where API servers drop the fields.
func TestFeaturesWithoutExperiments(t *testing.T) {
	with, without := names(support.Features(true, nil, true)), names(support.Features(true, nil, false))
	lost := slices.DeleteFunc(slices.Clone(with), func(f string) bool { return slices.Contains(without, f) })
	if want := []string{"GatewayAddressRoutability", "GatewayAddressRoutabilityCluster", "GatewayListenerFilters"}; !slices.Equal(lost, want) || len(without) != len(with)-len(want) {
		t.Errorf("lost: %v; with %v, without %v", lost, with, without)
	}
}

func TestHasExperimentalFields(t *testing.T) {
	for _, c := range []struct {
		version, channel string
		want             bool
	}{
		{"v1.7.0", "experimental", true}, {"v1.7.0-rc.1", "experimental", true}, {"v1.7.12", "experimental", true},
		{"v1.7.0", "standard", false}, {"v1.7.0", "", false}, {"v1.6.2", "experimental", false}, {"", "experimental", false},
		{"v1.8.0", "experimental", false}, {"v1.7.x", "experimental", false},
	} {
		if got := support.HasExperimentalFields(c.version, c.channel); got != c.want {
			t.Errorf("bundle %q of channel %q: %v, want %v", c.version, c.channel, got, c.want)
		}
	}
}

func TestUnsupported(t *testing.T) {
	for version, supported := range map[string]bool{
		"v1.6.0": true, "v1.7.0": true, "v1.7.12": true, "v1.7.0-rc.1": true,
		"": false, "v1.5.9": false, "v1.8.0": false, "v1.70.0": false, "v1.7": false, "1.7.0": false, "v1.7.0 ": false, "v1.7.01": false, "main": false,
	} {
		crds := []support.CRD{{Name: "gateways", BundleVersion: "v1.7.0"}, {Name: "httproutes", BundleVersion: version}}
		p := support.Unsupported(crds)
		if (p == nil) != supported {
			t.Errorf("%q: %v", version, p)
			continue
		}
		if p != nil && (!strings.Contains(p.What, version) || !strings.Contains(p.What, "httproutes") || !strings.Contains(p.Remedy, "v1.6 or v1.7")) {
			t.Errorf("%q: the message does not tell what is there and what is supported: %v", version, p)
		}
	}
	if support.Unsupported(nil) == nil {
		t.Error("without a CRD nothing is known to work")
	}
}
