package kube

import (
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"

	"github.com/moongate-dev/moongate/internal/kind"
)

// watchedKind is a kind that is read.
type watchedKind struct {
	*kind.Kind
	versions []string // those that are read, in order of preference
	// partial is set if only the metadata is requested.
	partial bool
	// keep returns what is needed of a decoded object, which it may modify.
	keep func(runtime.Object) metav1.Object
}

// resource returns the name of the kind's resource with its group.
func (k *watchedKind) resource() string {
	return schema.GroupResource{Group: k.Group, Resource: k.Resource}.String()
}

const crdGroup = "apiextensions.k8s.io"

// kinds are all watched kinds except Secrets and CustomResourceDefinitions.
var kinds = func() (list []*watchedKind) {
	for _, k := range kind.All() {
		if k.Cluster == kind.Watched || k.Cluster == kind.WatchedMetadata {
			list = append(list, &watchedKind{k, k.ReadVersions(), k.Cluster == kind.WatchedMetadata, k.Keep})
		}
	}
	return list
}()

// The kinds whose objects this package itself reads.
var (
	namespaceKind = watchedOf(kind.Namespace.Kind)
	classKind     = watchedOf(kind.GatewayClass.Kind)
	grantKind     = watchedOf(kind.ReferenceGrant.Kind)
)

// watchedOf returns the watchedKind of a kind; nil if it is not watched.
func watchedOf(k *kind.Kind) *watchedKind {
	for _, w := range kinds {
		if w.Kind == k {
			return w
		}
	}
	return nil
}

// secretMetadata and definitionMetadata are watched to notice changes; wholeSecret is read one by one.
var (
	wholeSecret        = &watchedKind{kind.Secret.Kind, kind.Secret.Versions, false, kind.Secret.Keep}
	secretMetadata     = &watchedKind{kind.Secret.Kind, kind.Secret.Versions, true, keepMetadata}
	definitionMetadata = &watchedKind{&kind.Kind{Group: crdGroup, Name: "CustomResourceDefinition", Resource: "customresourcedefinitions"}, []string{"v1"}, true, keepMetadata}
)

// seen returns the part of a kept object that translation gets.
func (k *watchedKind) seen(o metav1.Object) metav1.Object {
	if !k.HasStatus() || partial(o) {
		return o
	}
	return k.View(o)
}

// same reports whether two kept objects are equal for translation.
func (k *watchedKind) same(a, b metav1.Object) bool {
	return equality.Semantic.DeepEqual(k.seen(a), k.seen(b))
}

func (k *watchedKind) key(n name) kind.ObjectKey { return k.Key(n.Namespace, n.Name) }

// keepMetadata returns names, version and annotations of an object that is watched by its metadata.
func keepMetadata(obj runtime.Object) metav1.Object {
	o := obj.(*metav1.PartialObjectMetadata)
	return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		Namespace: o.Namespace, Name: o.Name, ResourceVersion: o.ResourceVersion, Labels: o.Labels, Annotations: o.Annotations,
	}}
}

// scheme contains every version of every kind, as the Go type of its first version.
var scheme = func() *runtime.Scheme {
	s := runtime.NewScheme()
	utilruntime.Must(corev1.AddToScheme(s))
	utilruntime.Must(discoveryv1.AddToScheme(s))
	for _, k := range kinds {
		for _, version := range k.versions {
			gv := schema.GroupVersion{Group: k.Group, Version: version}
			if k.Optional {
				object, list := k.Known()
				s.AddKnownTypeWithName(gv.WithKind(k.Name), object)
				s.AddKnownTypeWithName(gv.WithKind(k.Name+"List"), list)
			}
			metav1.AddToGroupVersion(s, gv)
		}
	}
	metav1.AddToGroupVersion(s, schema.GroupVersion{Group: crdGroup, Version: "v1"})
	return s
}()
