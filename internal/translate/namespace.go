package translate

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/moongate-dev/moongate/internal/incremental"
)

// namespaces contains the labels of Namespaces.
type namespaces struct {
	labels *incremental.Collection[name, map[string]string]
}

func newNamespaces(e *incremental.Engine, namespaceObjects *incremental.Collection[name, *corev1.Namespace]) *namespaces {
	ns := &namespaces{}
	ns.labels = incremental.Map(e, "Namespace labels", namespaceObjects,
		func(_ *incremental.View, _ name, ns *corev1.Namespace) (map[string]string, bool) {
			return ns.Labels, true
		}, sameDeeply[map[string]string])
	return ns
}

// selects reports whether a selector selects a namespace. As everywhere in Kubernetes, an empty selector selects all namespaces. An
// absent one, which makes the listener invalid, selects none.
func (ns *namespaces) selects(v *incremental.View, s *metav1.LabelSelector, namespace string) bool {
	selector, err := metav1.LabelSelectorAsSelector(s)
	if err != nil {
		return false
	}
	known, _ := incremental.Fetch(v, ns.labels, name{"", namespace})
	// The API server sets this label on every Namespace.
	all := labels.Merge(known, labels.Set{corev1.LabelMetadataName: namespace})
	return selector.Matches(all)
}
