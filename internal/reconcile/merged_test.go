package reconcile_test

import (
	"testing"

	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/moongate-dev/moongate/api/v1alpha1"
)

// TestMergedMeanwhile: what a new leader says of a route waits for the proxies that serve it now, though its status has not changed since it was served by others.
func TestMergedMeanwhile(t *testing.T) {
	c := newCluster(t, forever)
	parameters := func(merge bool) *v1alpha1.GatewayParameters {
		p := &v1alpha1.GatewayParameters{Spec: v1alpha1.GatewayParametersSpec{ClassOnly: &v1alpha1.ClassOnly{MergeGateways: merge}}}
		p.Namespace, p.Name = "infra", "shared"
		return p
	}
	merging := class()
	merging.Spec.ParametersRef = &gwv1.ParametersReference{Group: v1alpha1.GroupName, Kind: "GatewayParameters", Name: "shared", Namespace: ptr(gwv1.Namespace("infra"))}
	c.set(merging, parameters(false), gateway(80), edited("/one", 1))
	c.set(parameters(true))
	c.up("infra/gatewayclass:c", "pod-0")
	c.Lead("first")
	if g, held := c.routeGeneration(), c.Status().Held; g != 0 || held == 0 {
		t.Errorf("generation %d is published and %d are held though the proxy has not answered", g, held)
	}
}
