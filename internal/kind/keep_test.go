package kind

import (
	"maps"
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
