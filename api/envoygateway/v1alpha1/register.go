package v1alpha1

import (
	"embed"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupName is the API group.
const GroupName = "gateway.envoyproxy.io"

// GroupVersion is the group and version of the types in this package.
var GroupVersion = schema.GroupVersion{Group: GroupName, Version: "v1alpha1"}

// SchemeBuilder collects what AddToScheme adds.
var SchemeBuilder = runtime.NewSchemeBuilder(func(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion, &BackendTrafficPolicy{}, &BackendTrafficPolicyList{})
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
})

// AddToScheme adds the types to a scheme.
var AddToScheme = SchemeBuilder.AddToScheme

// Definitions has the CustomResourceDefinitions of the group, as "<group>_<plural>.yaml".
//
//go:embed gateway.envoyproxy.io_*.yaml
var Definitions embed.FS
