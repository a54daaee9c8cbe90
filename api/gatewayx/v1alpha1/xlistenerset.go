package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"
)

// XListenerSet is a set of listeners to attach to a Gateway. It is the predecessor of ListenerSet in versions before Gateway API v1.5.0, and has the same
// meaning. Use ListenerSet in new manifests.
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

	// Spec defines the desired state.
	Spec ListenerSetSpec `json:"spec"`

	// Status defines the observed state.
	// +kubebuilder:default={conditions: {{type: "Accepted", status: "Unknown", reason:"Pending", message:"Waiting for controller", lastTransitionTime: "1970-01-01T00:00:00Z"},{type: "Programmed", status: "Unknown", reason:"Pending", message:"Waiting for controller", lastTransitionTime: "1970-01-01T00:00:00Z"}}}
	// +optional
	Status ListenerSetStatus `json:"status,omitempty"`
}

// XListenerSetList is a list of XListenerSets.
//
// +kubebuilder:object:root=true
type XListenerSetList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []XListenerSet `json:"items"`
}

// ListenerSetSpec defines the desired state of an XListenerSet.
type ListenerSetSpec struct {
	// ParentRef refers to the Gateway to attach the listeners to. It must allow the namespace in spec.allowedListeners.
	ParentRef gwv1.ParentGatewayReference `json:"parentRef"`

	// Listeners are the listeners. The Gateway's own take precedence, then those of the oldest set; if two conflict, the first is served.
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

// ListenerEntry is a listener.
type ListenerEntry struct {
	// Name is the name of the listener, which must be unique in the set. Routes refer to it in sectionName.
	Name gwv1.SectionName `json:"name"`

	// Hostname is the hostname to serve, which may have a wildcard as its first label. By default all hostnames are served.
	// +optional
	Hostname *gwv1.Hostname `json:"hostname,omitempty"`

	// Port is the port to listen on.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	Port int32 `json:"port"`

	// Protocol is the protocol of clients.
	Protocol gwv1.ProtocolType `json:"protocol"`

	// TLS configures TLS, for protocols HTTPS and TLS.
	// +optional
	TLS *GatewayTLSConfig `json:"tls,omitempty"`

	// AllowedRoutes specifies which routes may attach. Defaults to those of the set's namespace.
	// +kubebuilder:default={namespaces:{from: Same}}
	// +optional
	AllowedRoutes *gwv1.AllowedRoutes `json:"allowedRoutes,omitempty"`
}

// GatewayTLSConfig configures TLS.
//
// +kubebuilder:validation:XValidation:message="certificateRefs or options must be specified when mode is Terminate",rule="self.mode == 'Terminate' ? size(self.certificateRefs) > 0 || size(self.options) > 0 : true"
type GatewayTLSConfig struct {
	// Mode specifies whether TLS is terminated by the Gateway (Terminate) or by the backend (Passthrough).
	// +kubebuilder:default=Terminate
	// +optional
	Mode *gwv1.TLSModeType `json:"mode,omitempty"`

	// CertificateRefs refer to the Secrets with the certificates to present to clients.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +optional
	CertificateRefs []gwv1.SecretObjectReference `json:"certificateRefs,omitempty"`

	// FrontendValidation requests certificates from clients. This is not supported for a single listener: a listener that sets it is not accepted. Gateways support it for
	// their ports, in spec.tls.frontend.
	// +optional
	FrontendValidation *FrontendTLSValidation `json:"frontendValidation,omitempty"`

	// Options are further options, specific to an implementation.
	// +kubebuilder:validation:MaxProperties=16
	// +optional
	Options map[gwv1.AnnotationKey]gwv1.AnnotationValue `json:"options,omitempty"`
}

// FrontendTLSValidation specifies how certificates of clients are validated.
type FrontendTLSValidation struct {
	// CACertificateRefs refer to objects with CA certificates.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=8
	// +kubebuilder:validation:MinItems=1
	CACertificateRefs []gwv1.ObjectReference `json:"caCertificateRefs,omitempty"`
}

// ListenerSetStatus defines the observed state of an XListenerSet.
type ListenerSetStatus struct {
	// Conditions are Accepted and Programmed.
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=8
	// +kubebuilder:default={{type: "Accepted", status: "Unknown", reason:"Pending", message:"Waiting for controller", lastTransitionTime: "1970-01-01T00:00:00Z"},{type: "Programmed", status: "Unknown", reason:"Pending", message:"Waiting for controller", lastTransitionTime: "1970-01-01T00:00:00Z"}}
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// Listeners is the status of each listener.
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=64
	// +optional
	Listeners []ListenerEntryStatus `json:"listeners,omitempty"`
}

// ListenerEntryStatus is the status of a listener.
type ListenerEntryStatus struct {
	// Name is the name of the listener.
	Name gwv1.SectionName `json:"name"`

	// Port is the port of the listener.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	Port int32 `json:"port"`

	// SupportedKinds are the kinds of routes that the listener supports.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=8
	SupportedKinds []gwv1.RouteGroupKind `json:"supportedKinds"`

	// AttachedRoutes is the number of attached routes.
	AttachedRoutes int32 `json:"attachedRoutes"`

	// Conditions are the same as those of a listener of a Gateway.
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=8
	Conditions []metav1.Condition `json:"conditions"`
}
