// Package v1alpha1 is the part of the API group gateway.envoyproxy.io/v1alpha1 that Moongate supports: BackendTrafficPolicy, with
// the fields of Envoy Gateway v1.9 and those of the design that preceded it. It exists so that manifests for that API work
// unchanged; it must import nothing of this module.
//
// +kubebuilder:object:generate=true
// +groupName=gateway.envoyproxy.io
package v1alpha1
