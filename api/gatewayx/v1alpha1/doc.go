// Package v1alpha1 is what clusters and manifests may have of the API group gateway.networking.x-k8s.io/v1alpha1 that Gateway API v1.7.0 has no
// types for, or narrower ones: XListenerSet, which became ListenerSet in v1.5.0 (GEP-1713), and XBackendTrafficPolicy, which had other fields for
// session persistence before v1.7.0. It exists so that these objects are read as they were written; it must import nothing of this module.
//
// +kubebuilder:object:generate=true
// +groupName=gateway.networking.x-k8s.io
package v1alpha1
