// Package v1alpha1 is the API group gateway.envoyproxy.io/v1alpha1 as far as Moongate carries it out: BackendTrafficPolicy, with the fields of Envoy
// Gateway v1.9 and those of the design that came before it. It exists so that manifests written for that API work unchanged; it must import nothing of
// this module.
//
// +kubebuilder:object:generate=true
// +groupName=gateway.envoyproxy.io
package v1alpha1
