// Package v1alpha1 is the API group moongate.dev/v1alpha1: what the Gateway API leaves
// to implementations. It exists so that other programs can read and write it; it must
// import nothing of this module.
//
// +kubebuilder:object:generate=true
// +groupName=moongate.dev
package v1alpha1
