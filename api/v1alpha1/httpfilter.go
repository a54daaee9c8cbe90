package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"
)

// HTTPFilter changes header fields of requests and responses. Filters of type ExtensionRef refer to it, those of the rules of HTTPRoutes and GRPCRoutes and of
// their backendRefs, and those of the listeners of Gateways and ListenerSets, in its own namespace.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:categories=moongate
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type HTTPFilter struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is what the filter does.
	Spec HTTPFilterSpec `json:"spec"`
}

// HTTPFilterList is a list of them.
//
// +kubebuilder:object:root=true
type HTTPFilterList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []HTTPFilter `json:"items"`
}

// HTTPFilterSpec is what a filter does.
//
// +kubebuilder:validation:MinProperties=1
type HTTPFilterSpec struct {
	// RequestHeaders sets, adds and removes header fields of requests. A filter of a listener cannot set Host, by which the listener was chosen.
	//
	// +optional
	RequestHeaders *gwv1.HTTPHeaderFilter `json:"requestHeaders,omitempty"`

	// ResponseHeaders sets, adds and removes header fields of responses, those that the gateway makes itself among them.
	//
	// +optional
	ResponseHeaders *gwv1.HTTPHeaderFilter `json:"responseHeaders,omitempty"`
}
