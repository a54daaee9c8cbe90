package kind

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/moongate-dev/moongate/api/v1alpha1"
)

// TestEndpointSliceLabels: of an EndpointSlice the labels are kept by which it is found, and no others.
func TestEndpointSliceLabels(t *testing.T) {
	read := map[string]string{discoveryv1.LabelServiceName: "web-x7k2p", v1alpha1.LabelXBackend: "web", v1alpha1.LabelXBackendUID: "1"}
	all := maps.Clone(read)
	all["example.com/cost"] = "7"
	kept := keepEndpointSlice(&discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Labels: all}})
	if got := kept.GetLabels(); !maps.Equal(got, read) {
		t.Errorf("kept are %v", got)
	}
}

// TestZonesAreBounded: the names of zones are shared, and whoever writes EndpointSlices cannot have any number of them kept.
func TestZonesAreBounded(t *testing.T) {
	zone := func(name string) *string {
		kept := keepEndpointSlice(&discoveryv1.EndpointSlice{Endpoints: []discoveryv1.Endpoint{{Zone: new(name)}}})
		return kept.(*discoveryv1.EndpointSlice).Endpoints[0].Zone
	}
	if a := zone("zone-a"); a != zone("zone-a") || *a != "zone-a" {
		t.Error("the name of a zone is not shared")
	}
	for i := range 4 * maxZones {
		for _, name := range []string{fmt.Sprint("zone-", i), fmt.Sprint(strings.Repeat("z", 10_000), i)} {
			if got := *zone(name); got != name {
				t.Fatalf("zone %q is %q", name, got)
			}
		}
	}
	if n := len(zones.byName); n > maxZones {
		t.Errorf("%d names are kept", n)
	}
	for name := range zones.byName {
		if len(name) > maxZone {
			t.Errorf("a name with %d bytes is kept", len(name))
		}
	}
}
