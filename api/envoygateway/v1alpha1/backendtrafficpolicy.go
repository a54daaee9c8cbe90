package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"
)

// BackendTrafficPolicy configures how traffic of a Gateway, a ListenerSet or a route, or of a section of one, is sent to backends, and how responses are changed.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:categories=envoy-gateway,shortName=btp
// +kubebuilder:metadata:labels="gateway.networking.k8s.io/policy=Inherited"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type BackendTrafficPolicy struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec defines the desired behavior.
	Spec BackendTrafficPolicySpec `json:"spec"`

	// Status defines the observed state.
	// +optional
	Status gwv1.PolicyStatus `json:"status,omitempty"`
}

// BackendTrafficPolicyList is a list of BackendTrafficPolicies.
//
// +kubebuilder:object:root=true
type BackendTrafficPolicyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []BackendTrafficPolicy `json:"items"`
}

// BackendTrafficPolicySpec defines the desired behavior of a BackendTrafficPolicy. A field that is not set has no effect.
//
// +kubebuilder:validation:XValidation:rule="(has(self.targetRef) && !has(self.targetRefs)) || (!has(self.targetRef) && has(self.targetRefs)) || (has(self.targetSelectors) && self.targetSelectors.size() > 0)",message="either targetRef or targetRefs must be set, or targetSelectors have an entry"
// +kubebuilder:validation:XValidation:rule="!has(self.targetRef) || self.targetRef.group == 'gateway.networking.k8s.io'",message="this policy can only have a targetRef.group of gateway.networking.k8s.io"
// +kubebuilder:validation:XValidation:rule="!has(self.targetRef) || self.targetRef.kind in ['Gateway', 'ListenerSet', 'HTTPRoute', 'GRPCRoute', 'UDPRoute', 'TCPRoute', 'TLSRoute']",message="this policy can only have a targetRef.kind of Gateway, ListenerSet, HTTPRoute, GRPCRoute, TCPRoute, UDPRoute or TLSRoute"
// +kubebuilder:validation:XValidation:rule="!has(self.targetRefs) || self.targetRefs.all(ref, ref.group == 'gateway.networking.k8s.io')",message="this policy can only have a targetRefs[*].group of gateway.networking.k8s.io"
// +kubebuilder:validation:XValidation:rule="!has(self.targetRefs) || self.targetRefs.all(ref, ref.kind in ['Gateway', 'ListenerSet', 'HTTPRoute', 'GRPCRoute', 'UDPRoute', 'TCPRoute', 'TLSRoute'])",message="this policy can only have a targetRefs[*].kind of Gateway, ListenerSet, HTTPRoute, GRPCRoute, TCPRoute, UDPRoute or TLSRoute"
// +kubebuilder:validation:XValidation:rule="!has(self.mergeType) || ((!has(self.targetRef) || !(self.targetRef.kind in ['Gateway', 'ListenerSet'])) && (!has(self.targetRefs) || self.targetRefs.all(ref, !(ref.kind in ['Gateway', 'ListenerSet']))) && (!has(self.targetSelectors) || self.targetSelectors.all(sel, !(sel.kind in ['Gateway', 'ListenerSet']))))",message="mergeType can only be set in policies of routes: nothing is above a Gateway or ListenerSet to merge with"
// +kubebuilder:validation:XValidation:rule="!has(self.compression) || !has(self.compressor)",message="compression and compressor cannot both be set"
// +kubebuilder:validation:XValidation:rule="!has(self.requestBuffer) || !has(self.httpUpgrade) || self.httpUpgrade.size() == 0",message="requestBuffer and httpUpgrade cannot both be set"
// +kubebuilder:validation:XValidation:rule="!has(self.admissionControl) || ((!has(self.targetRef) || self.targetRef.kind in ['Gateway', 'ListenerSet', 'HTTPRoute', 'GRPCRoute']) && (!has(self.targetRefs) || self.targetRefs.all(ref, ref.kind in ['Gateway', 'ListenerSet', 'HTTPRoute', 'GRPCRoute'])) && (!has(self.targetSelectors) || self.targetSelectors.all(sel, sel.kind in ['Gateway', 'ListenerSet', 'HTTPRoute', 'GRPCRoute'])))",message="admissionControl is for HTTP: it can be set in policies of Gateways, ListenerSets, HTTPRoutes and GRPCRoutes"
// +kubebuilder:validation:XValidation:rule="!(has(self.connection) && has(self.connection.preconnect) && has(self.connection.preconnect.predictivePercent)) || (has(self.loadBalancer) && self.loadBalancer.type in ['Random', 'RoundRobin'])",message="connection.preconnect.predictivePercent needs a loadBalancer of type Random or RoundRobin"
type BackendTrafficPolicySpec struct {
	// TargetRef is the target of the policy, if there is only one. Deprecated: use targetRefs.
	//
	// +optional
	TargetRef *PolicyTargetReference `json:"targetRef,omitempty"`

	// TargetRefs are the targets of the policy, in its own namespace.
	//
	// +optional
	TargetRefs []PolicyTargetReference `json:"targetRefs,omitempty"`

	// TargetSelectors select further targets of the policy by their labels.
	//
	// +optional
	TargetSelectors []TargetSelector `json:"targetSelectors,omitempty"`

	// MergeType merges the policy of a route or rule into the policy of the listener or Gateway above it. If it is not set, the policy replaces that one completely.
	//
	// +optional
	// +kubebuilder:validation:XValidation:rule="self != 'Replace'",message="Replace is what is done without mergeType: leave it out"
	MergeType *MergeType `json:"mergeType,omitempty"`

	Settings `json:",inline"`

	// Protocols is a field of the first design of the API.
	//
	// +optional
	Protocols *Protocols `json:"protocols,omitempty"`

	// Unread are decoded fields that the API does not have.
	Unread Unread `json:"-"`
}

// Settings are all fields except those about targets. Outside of lists none has a default in the CRD, except the denominators of
// fractions, which belong to a numerator: in a merge a default that the API server has set would replace the value of the policy above.
type Settings struct {
	// LoadBalancer configures how endpoints are chosen.
	//
	// +optional
	LoadBalancer *LoadBalancer `json:"loadBalancer,omitempty"`

	// Retry configures when a request is retried. If a rule has its own retry, that is used instead.
	//
	// +optional
	Retry *Retry `json:"retry,omitempty"`

	// ProxyProtocol sends a PROXY protocol header on connections to backends.
	//
	// +optional
	ProxyProtocol *ProxyProtocol `json:"proxyProtocol,omitempty"`

	// TCPKeepalive configures TCP keepalive for connections to backends.
	//
	// +optional
	TCPKeepalive *TCPKeepalive `json:"tcpKeepalive,omitempty"`

	// HealthCheck configures which endpoints are considered healthy.
	//
	// +optional
	HealthCheck *HealthCheck `json:"healthCheck,omitempty"`

	// CircuitBreaker limits the connections and requests to a backend at a time.
	//
	// +optional
	CircuitBreaker *CircuitBreaker `json:"circuitBreaker,omitempty"`

	// Timeout configures timeouts.
	//
	// +optional
	Timeout *Timeout `json:"timeout,omitempty"`

	// Connection configures buffers of connections to backends, and connections that are opened in advance.
	//
	// +optional
	Connection *BackendConnection `json:"connection,omitempty"`

	// DNS configures how external hostnames are resolved.
	//
	// +optional
	DNS *DNS `json:"dns,omitempty"`

	// HTTP2 configures HTTP/2 connections to backends.
	//
	// +optional
	HTTP2 *HTTP2Settings `json:"http2,omitempty"`

	// RateLimit limits the rate of requests.
	//
	// +optional
	RateLimit *RateLimit `json:"rateLimit,omitempty"`

	// BandwidthLimit limits the rate of bytes.
	//
	// +optional
	BandwidthLimit *BandwidthLimit `json:"bandwidthLimit,omitempty"`

	// FaultInjection delays or fails requests on purpose.
	//
	// +optional
	FaultInjection *FaultInjection `json:"faultInjection,omitempty"`

	// AdmissionControl rejects requests while too many earlier requests have failed.
	//
	// +optional
	AdmissionControl *AdmissionControl `json:"admissionControl,omitempty"`

	// UseClientProtocol sends requests to backends with the HTTP version of the client.
	//
	// +optional
	UseClientProtocol *bool `json:"useClientProtocol,omitempty"`

	// Compression is the former name of compressor.
	//
	// +optional
	// +patchMergeKey=type
	// +patchStrategy=merge
	Compression []Compressor `json:"compression,omitempty" patchMergeKey:"type" patchStrategy:"merge"`

	// Compressor lists the encodings that responses may be compressed with, in order of preference.
	//
	// +optional
	// +patchMergeKey=type
	// +patchStrategy=merge
	Compressor []Compressor `json:"compressor,omitempty" patchMergeKey:"type" patchStrategy:"merge"`

	// ResponseOverride replaces responses. The first override that matches is used.
	//
	// +optional
	ResponseOverride []ResponseOverride `json:"responseOverride,omitempty"`

	// HTTPUpgrade lists the protocols that clients may switch to. Without it the appProtocol of a Service's port decides, which can allow websocket.
	//
	// +optional
	// +patchMergeKey=type
	// +patchStrategy=merge
	HTTPUpgrade []ProtocolUpgrade `json:"httpUpgrade,omitempty" patchMergeKey:"type" patchStrategy:"merge"`

	// RequestBuffer reads the complete body of a request before the request is sent to a backend.
	//
	// +optional
	RequestBuffer *RequestBuffer `json:"requestBuffer,omitempty"`

	// Telemetry configures how requests are traced and counted.
	//
	// +optional
	Telemetry *BackendTelemetry `json:"telemetry,omitempty"`

	// RoutingType specifies whether requests are sent to endpoints, or to the address of their Service.
	//
	// +optional
	RoutingType *RoutingType `json:"routingType,omitempty"`
}

// Protocols configures protocols, as in the first design of the API.
type Protocols struct {
	// EnableIPv6 false means dns.lookupFamily IPv4, and true means IPv4AndIPv6.
	//
	// +optional
	EnableIPv6 *bool `json:"enableIPv6,omitempty"`
}

// MergeType specifies how a policy is merged into another.
//
// +kubebuilder:validation:Enum=StrategicMerge;JSONMerge;Replace
type MergeType string

// The values of MergeType except Replace, which cannot be set.
const (
	StrategicMerge MergeType = "StrategicMerge"
	JSONMerge      MergeType = "JSONMerge"
)

// PolicyTargetReference refers to a target in the namespace of the policy.
//
// +structType=atomic
type PolicyTargetReference struct {
	gwv1.LocalPolicyTargetReferenceWithSectionName `json:",inline"`

	// Namespace is a field of the first design of the API, and must be that of the policy.
	//
	// +optional
	Namespace *gwv1.Namespace `json:"namespace,omitempty"`
}

// TargetSelector selects targets by their labels.
//
// +kubebuilder:validation:XValidation:rule="!has(self.group) || self.group == 'gateway.networking.k8s.io'",message="group must be gateway.networking.k8s.io"
type TargetSelector struct {
	// Group is the API group of the targets.
	//
	// +optional
	// +kubebuilder:default:="gateway.networking.k8s.io"
	Group *gwv1.Group `json:"group,omitempty"`

	// Kind is the kind of the targets.
	Kind gwv1.Kind `json:"kind"`

	// Namespaces are the namespaces of the targets. Defaults to that of the policy. A ReferenceGrant in each other namespace must allow BackendTrafficPolicies of the policy's
	// namespace to refer to the kind.
	//
	// +optional
	Namespaces *TargetSelectorNamespaces `json:"namespaces,omitempty"`

	// MatchLabels are labels that targets must have.
	//
	// +optional
	MatchLabels map[string]string `json:"matchLabels,omitempty"`

	// MatchExpressions are requirements for the labels of targets, all of which must be met.
	//
	// +optional
	// +listType=atomic
	MatchExpressions []metav1.LabelSelectorRequirement `json:"matchExpressions,omitempty"`
}

// TargetSelectorNamespaces selects namespaces.
//
// +kubebuilder:validation:XValidation:rule="self.from != 'Selector' || has(self.selector)",message="selector must be set where from is Selector"
type TargetSelectorNamespaces struct {
	// From specifies which namespaces are selected.
	//
	// +kubebuilder:validation:Enum=Same;All;Selector
	// +kubebuilder:default:=Same
	From string `json:"from"`

	// Selector selects namespaces by their labels, if from is Selector.
	//
	// +optional
	Selector *metav1.LabelSelector `json:"selector,omitempty"`
}

// RoutingType specifies where requests are sent.
//
// +kubebuilder:validation:Enum=Service;Endpoint
type RoutingType string

// The values of RoutingType.
const (
	RoutingTypeService  RoutingType = "Service"
	RoutingTypeEndpoint RoutingType = "Endpoint"
)
