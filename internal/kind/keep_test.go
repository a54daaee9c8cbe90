package kind

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
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

// TestListsAreShared: equal lists of objects are one in memory.
func TestListsAreShared(t *testing.T) {
	service := func(port int32) *corev1.Service {
		return keepService(&corev1.Service{Spec: corev1.ServiceSpec{IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol},
			Ports: []corev1.ServicePort{{Name: "http", Port: port, AppProtocol: new("http")}}}}).(*corev1.Service)
	}
	a, b, other := service(80), service(80), service(81)
	if &a.Spec.Ports[0] != &b.Spec.Ports[0] || &a.Spec.IPFamilies[0] != &b.Spec.IPFamilies[0] {
		t.Error("equal lists are not shared")
	}
	if a.Spec.Ports[0].Port != 80 || other.Spec.Ports[0].Port != 81 {
		t.Errorf("ports %v and %v", a.Spec.Ports, other.Spec.Ports)
	}
	slice := func() *discoveryv1.EndpointSlice {
		return keepEndpointSlice(&discoveryv1.EndpointSlice{Ports: []discoveryv1.EndpointPort{{Name: new("http"), Port: new(int32(80))}}}).(*discoveryv1.EndpointSlice)
	}
	if a, b := slice(), slice(); &a.Ports[0] != &b.Ports[0] || *a.Ports[0].Port != 80 {
		t.Errorf("ports %v and %v are not shared", a.Ports, b.Ports)
	}
	if none := keepService(&corev1.Service{}).(*corev1.Service); none.Spec.Ports != nil || none.Spec.IPFamilies != nil {
		t.Errorf("kept are %+v", none.Spec)
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
