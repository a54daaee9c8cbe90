package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"
)

// HTTPFilter modifies header fields of requests and responses. Filters of type ExtensionRef in the same namespace can refer to it: those of rules and backendRefs of HTTPRoutes and
// GRPCRoutes, and those of listeners of Gateways and ListenerSets.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:categories=moongate
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type HTTPFilter struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec defines the desired behavior of the filter.
	Spec HTTPFilterSpec `json:"spec"`
}

// HTTPFilterList is a list of HTTPFilters.
//
// +kubebuilder:object:root=true
type HTTPFilterList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []HTTPFilter `json:"items"`
}

// HTTPFilterSpec defines the desired behavior of a filter.
//
// +kubebuilder:validation:MinProperties=1
type HTTPFilterSpec struct {
	// RequestHeaders sets, adds and removes header fields of requests. A filter of a listener cannot set Host, because the listener was selected by it.
	//
	// +optional
	RequestHeaders *gwv1.HTTPHeaderFilter `json:"requestHeaders,omitempty"`

	// ResponseHeaders sets, adds and removes header fields of responses, including responses of the gateway itself.
	//
	// +optional
	ResponseHeaders *gwv1.HTTPHeaderFilter `json:"responseHeaders,omitempty"`
}
