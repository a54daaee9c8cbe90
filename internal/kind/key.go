package kind

import (
	"cmp"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ObjectKey identifies an object, regardless of the version in which it is read.
type ObjectKey struct {
	Group     string `json:"group,omitempty"` // "" for the core group
	Kind      string `json:"kind,omitempty"`
	Namespace string `json:"namespace,omitempty"` // "" for a cluster-scoped object
	Name      string `json:"name,omitempty"`
}

// Key returns the key of an object of the kind.
func (k *Kind) Key(namespace, name string) ObjectKey {
	return ObjectKey{k.Group, k.Name, namespace, name}
}

// KeyOf returns the key of a typed object; its Group and Kind are empty if the kind is not known.
func KeyOf(o metav1.Object) ObjectKey {
	key := ObjectKey{Namespace: o.GetNamespace(), Name: o.GetName()}
	if k := Of(o); k != nil {
		key.Group, key.Kind = k.Group, k.Name
	}
	return key
}

// Compare orders by kind, group, namespace and name.
func (k ObjectKey) Compare(o ObjectKey) int {
	return cmp.Or(cmp.Compare(k.Kind, o.Kind), cmp.Compare(k.Group, o.Group),
		cmp.Compare(k.Namespace, o.Namespace), cmp.Compare(k.Name, o.Name))
}

// String returns "Kind namespace/name", "Kind name" for a cluster-scoped object, and only the kind if there is no name.
func (k ObjectKey) String() string {
	switch {
	case k.Name == "":
		return k.Kind
	case k.Namespace == "":
		return k.Kind + " " + k.Name
	}
	return k.Kind + " " + k.Namespace + "/" + k.Name
}
