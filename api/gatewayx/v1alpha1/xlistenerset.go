package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"
)

// XListenerSet is a set of listeners that a Gateway takes beside its own. It is what ListenerSet was before Gateway API v1.5.0, and means the
// same; use that in new manifests.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:categories=gateway-api
// +kubebuilder:printcolumn:name="Accepted",type=string,JSONPath=`.status.conditions[?(@.type=="Accepted")].status`
// +kubebuilder:printcolumn:name="Programmed",type=string,JSONPath=`.status.conditions[?(@.type=="Programmed")].status`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type XListenerSet struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is what is asked for.
	Spec ListenerSetSpec `json:"spec"`

	// Status says what became of it.
	// +kubebuilder:default={conditions: {{type: "Accepted", status: "Unknown", reason:"Pending", message:"Waiting for controller", lastTransitionTime: "1970-01-01T00:00:00Z"},{type: "Programmed", status: "Unknown", reason:"Pending", message:"Waiting for controller", lastTransitionTime: "1970-01-01T00:00:00Z"}}}
	// +optional
	Status ListenerSetStatus `json:"status,omitempty"`
}

// XListenerSetList is a list of them.
//
// +kubebuilder:object:root=true
type XListenerSetList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []XListenerSet `json:"items"`
}

// ListenerSetSpec is what an XListenerSet asks for.
type ListenerSetSpec struct {
	// ParentRef names the Gateway that takes the listeners. It must allow the namespace in spec.allowedListeners.
	ParentRef gwv1.ParentGatewayReference `json:"parentRef"`

	// Listeners are the listeners. Those of the Gateway come first, then those of the oldest set; of two in conflict the first is served.
	//
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:XValidation:message="tls must not be specified for protocols ['HTTP', 'TCP', 'UDP']",rule="self.all(l, l.protocol in ['HTTP', 'TCP', 'UDP'] ? !has(l.tls) : true)"
	// +kubebuilder:validation:XValidation:message="tls mode must be Terminate for protocol HTTPS",rule="self.all(l, (l.protocol == 'HTTPS' && has(l.tls)) ? (l.tls.mode == '' || l.tls.mode == 'Terminate') : true)"
	// +kubebuilder:validation:XValidation:message="hostname must not be specified for protocols ['TCP', 'UDP']",rule="self.all(l, l.protocol in ['TCP', 'UDP']  ? (!has(l.hostname) || l.hostname == '') : true)"
	// +kubebuilder:validation:XValidation:message="Combination of port, protocol and hostname must be unique for each listener",rule="self.all(l1, self.exists_one(l2, l1.port == l2.port && l1.protocol == l2.protocol && (has(l1.hostname) && has(l2.hostname) ? l1.hostname == l2.hostname : !has(l1.hostname) && !has(l2.hostname))))"
	Listeners []ListenerEntry `json:"listeners"`
}

// ListenerEntry is one of the listeners.
type ListenerEntry struct {
	// Name is unique in the set. Routes name it in sectionName.
	Name gwv1.SectionName `json:"name"`

	// Hostname is the host that is served, also with a wildcard as its first label; every one where it is absent.
	// +optional
	Hostname *gwv1.Hostname `json:"hostname,omitempty"`

	// Port is where clients connect to.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	Port int32 `json:"port"`

	// Protocol is what clients speak.
	Protocol gwv1.ProtocolType `json:"protocol"`

	// TLS is what becomes of TLS, for protocols HTTPS and TLS.
	// +optional
	TLS *GatewayTLSConfig `json:"tls,omitempty"`

	// AllowedRoutes says which routes may attach; those of the set's namespace where it is absent.
	// +kubebuilder:default={namespaces:{from: Same}}
	// +optional
	AllowedRoutes *gwv1.AllowedRoutes `json:"allowedRoutes,omitempty"`
}

// GatewayTLSConfig says what becomes of TLS.
//
// +kubebuilder:validation:XValidation:message="certificateRefs or options must be specified when mode is Terminate",rule="self.mode == 'Terminate' ? size(self.certificateRefs) > 0 || size(self.options) > 0 : true"
type GatewayTLSConfig struct {
	// Mode says who ends TLS: the Gateway (Terminate) or the backend (Passthrough).
	// +kubebuilder:default=Terminate
	// +optional
	Mode *gwv1.TLSModeType `json:"mode,omitempty"`

	// CertificateRefs are the Secrets with the certificates that clients are shown.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +optional
	CertificateRefs []gwv1.SecretObjectReference `json:"certificateRefs,omitempty"`

	// FrontendValidation asks clients for certificates. It is not supported for one listener: a listener with it is not accepted. Gateways have it for
	// their ports, in spec.tls.frontend.
	// +optional
	FrontendValidation *FrontendTLSValidation `json:"frontendValidation,omitempty"`

	// Options are further options, by the implementation's domain.
	// +kubebuilder:validation:MaxProperties=16
	// +optional
	Options map[gwv1.AnnotationKey]gwv1.AnnotationValue `json:"options,omitempty"`
}

// FrontendTLSValidation is what certificates of clients are verified by.
type FrontendTLSValidation struct {
	// CACertificateRefs are objects with certificates of authorities.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=8
	// +kubebuilder:validation:MinItems=1
	CACertificateRefs []gwv1.ObjectReference `json:"caCertificateRefs,omitempty"`
}

// ListenerSetStatus says what became of an XListenerSet.
type ListenerSetStatus struct {
	// Conditions are Accepted and Programmed.
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=8
	// +kubebuilder:default={{type: "Accepted", status: "Unknown", reason:"Pending", message:"Waiting for controller", lastTransitionTime: "1970-01-01T00:00:00Z"},{type: "Programmed", status: "Unknown", reason:"Pending", message:"Waiting for controller", lastTransitionTime: "1970-01-01T00:00:00Z"}}
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// Listeners says it of each listener.
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=64
	// +optional
	Listeners []ListenerEntryStatus `json:"listeners,omitempty"`
}

// ListenerEntryStatus says what became of a listener.
type ListenerEntryStatus struct {
	// Name is that of the listener.
	Name gwv1.SectionName `json:"name"`

	// Port is where it listens.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	Port int32 `json:"port"`

	// SupportedKinds are the kinds of route that it takes.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=8
	SupportedKinds []gwv1.RouteGroupKind `json:"supportedKinds"`

	// AttachedRoutes is how many routes are attached.
	AttachedRoutes int32 `json:"attachedRoutes"`

	// Conditions are those of a listener of a Gateway.
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=8
	Conditions []metav1.Condition `json:"conditions"`
}
