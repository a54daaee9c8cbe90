package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"
)

// BackendTrafficPolicy says how traffic of a Gateway, a ListenerSet or a route, or of a section of one, is sent to backends, and what is answered.
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

	// Spec is what is asked for.
	Spec BackendTrafficPolicySpec `json:"spec"`

	// Status says what became of it.
	// +optional
	Status gwv1.PolicyStatus `json:"status,omitempty"`
}

// BackendTrafficPolicyList is a list of them.
//
// +kubebuilder:object:root=true
type BackendTrafficPolicyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []BackendTrafficPolicy `json:"items"`
}

// BackendTrafficPolicySpec is what a BackendTrafficPolicy asks for. A field that is unset leaves things as they are without a policy.
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
	// TargetRef is what the policy is for, where that is one object. Write targetRefs instead.
	//
	// +optional
	TargetRef *PolicyTargetReference `json:"targetRef,omitempty"`

	// TargetRefs are what the policy is for, in its own namespace.
	//
	// +optional
	TargetRefs []PolicyTargetReference `json:"targetRefs,omitempty"`

	// TargetSelectors select what the policy is for, beside targetRefs.
	//
	// +optional
	TargetSelectors []TargetSelector `json:"targetSelectors,omitempty"`

	// MergeType has the policy of a route or of a rule be merged onto that of the listener or Gateway above it. Unset, it takes its place whole.
	//
	// +optional
	// +kubebuilder:validation:XValidation:rule="self != 'Replace'",message="Replace is what is done without mergeType: leave it out"
	MergeType *MergeType `json:"mergeType,omitempty"`

	Settings `json:",inline"`

	// Protocols is of the API's first design.
	//
	// +optional
	Protocols *Protocols `json:"protocols,omitempty"`

	// Unread is what was decoded and has no place here: no field of the API.
	Unread Unread `json:"-"`
}

// Settings are all that is not about targets.
type Settings struct {
	// LoadBalancer is how an endpoint is chosen.
	//
	// +optional
	LoadBalancer *LoadBalancer `json:"loadBalancer,omitempty"`

	// Retry says when a request is sent again. A rule's own retry is in force instead where it has one.
	//
	// +optional
	Retry *Retry `json:"retry,omitempty"`

	// ProxyProtocol has connections to backends begin with a PROXY header.
	//
	// +optional
	ProxyProtocol *ProxyProtocol `json:"proxyProtocol,omitempty"`

	// TCPKeepalive is that of connections to backends.
	//
	// +optional
	TCPKeepalive *TCPKeepalive `json:"tcpKeepalive,omitempty"`

	// HealthCheck says which endpoints are used.
	//
	// +optional
	HealthCheck *HealthCheck `json:"healthCheck,omitempty"`

	// CircuitBreaker bounds what is under way to a backend at a time.
	//
	// +optional
	CircuitBreaker *CircuitBreaker `json:"circuitBreaker,omitempty"`

	// Timeout is how long things may take.
	//
	// +optional
	Timeout *Timeout `json:"timeout,omitempty"`

	// Connection is about buffers of connections to backends, and connections made in advance.
	//
	// +optional
	Connection *BackendConnection `json:"connection,omitempty"`

	// DNS is how external hostnames are resolved.
	//
	// +optional
	DNS *DNS `json:"dns,omitempty"`

	// HTTP2 is for connections to backends in HTTP/2.
	//
	// +optional
	HTTP2 *HTTP2Settings `json:"http2,omitempty"`

	// RateLimit bounds requests.
	//
	// +optional
	RateLimit *RateLimit `json:"rateLimit,omitempty"`

	// BandwidthLimit bounds bytes in time.
	//
	// +optional
	BandwidthLimit *BandwidthLimit `json:"bandwidthLimit,omitempty"`

	// FaultInjection delays or fails requests on purpose.
	//
	// +optional
	FaultInjection *FaultInjection `json:"faultInjection,omitempty"`

	// AdmissionControl turns requests away while too many of those before have failed.
	//
	// +optional
	AdmissionControl *AdmissionControl `json:"admissionControl,omitempty"`

	// UseClientProtocol has requests sent to backends in the version of HTTP that the client speaks.
	//
	// +optional
	UseClientProtocol *bool `json:"useClientProtocol,omitempty"`

	// Compression is compressor by its former name.
	//
	// +optional
	// +patchMergeKey=type
	// +patchStrategy=merge
	Compression []Compressor `json:"compression,omitempty" patchMergeKey:"type" patchStrategy:"merge"`

	// Compressor are the encodings that responses are compressed with, the preferred one first.
	//
	// +optional
	// +patchMergeKey=type
	// +patchStrategy=merge
	Compressor []Compressor `json:"compressor,omitempty" patchMergeKey:"type" patchStrategy:"merge"`

	// ResponseOverride are responses that take the place of others. The first that matches is sent.
	//
	// +optional
	ResponseOverride []ResponseOverride `json:"responseOverride,omitempty"`

	// HTTPUpgrade are the protocols that clients may switch to; unset is websocket.
	//
	// +optional
	// +patchMergeKey=type
	// +patchStrategy=merge
	HTTPUpgrade []ProtocolUpgrade `json:"httpUpgrade,omitempty" patchMergeKey:"type" patchStrategy:"merge"`

	// RequestBuffer has the body of a request read whole before a backend hears of it.
	//
	// +optional
	RequestBuffer *RequestBuffer `json:"requestBuffer,omitempty"`

	// Telemetry is how requests are traced and counted.
	//
	// +optional
	Telemetry *BackendTelemetry `json:"telemetry,omitempty"`

	// RoutingType is whether requests are sent to endpoints, or to the address of their Service.
	//
	// +optional
	RoutingType *RoutingType `json:"routingType,omitempty"`
}

// Protocols is about protocols, as in the API's first design.
type Protocols struct {
	// EnableIPv6 false is dns.lookupFamily IPv4, and true IPv4AndIPv6.
	//
	// +optional
	EnableIPv6 *bool `json:"enableIPv6,omitempty"`
}

// MergeType is how a policy is merged onto another.
//
// +kubebuilder:validation:Enum=StrategicMerge;JSONMerge;Replace
type MergeType string

// The values of MergeType but for Replace, which cannot be asked for.
const (
	StrategicMerge MergeType = "StrategicMerge"
	JSONMerge      MergeType = "JSONMerge"
)

// PolicyTargetReference names a target in the policy's own namespace.
//
// +structType=atomic
type PolicyTargetReference struct {
	gwv1.LocalPolicyTargetReferenceWithSectionName `json:",inline"`

	// Namespace is of the API's first design, and must be that of the policy.
	//
	// +optional
	Namespace *gwv1.Namespace `json:"namespace,omitempty"`
}

// TargetSelector selects targets by their labels.
//
// +kubebuilder:validation:XValidation:rule="!has(self.group) || self.group == 'gateway.networking.k8s.io'",message="group must be gateway.networking.k8s.io"
type TargetSelector struct {
	// Group is that of the targets.
	//
	// +optional
	// +kubebuilder:default:="gateway.networking.k8s.io"
	Group *gwv1.Group `json:"group,omitempty"`

	// Kind is that of the targets.
	Kind gwv1.Kind `json:"kind"`

	// Namespaces are where targets are looked for; unset is the policy's own. A ReferenceGrant there must let BackendTrafficPolicies of the policy's
	// namespace refer to the kind.
	//
	// +optional
	Namespaces *TargetSelectorNamespaces `json:"namespaces,omitempty"`

	// MatchLabels are labels that a target has.
	//
	// +optional
	MatchLabels map[string]string `json:"matchLabels,omitempty"`

	// MatchExpressions are about labels that a target has; all hold.
	//
	// +optional
	// +listType=atomic
	MatchExpressions []metav1.LabelSelectorRequirement `json:"matchExpressions,omitempty"`
}

// TargetSelectorNamespaces are namespaces.
//
// +kubebuilder:validation:XValidation:rule="self.from != 'Selector' || has(self.selector)",message="selector must be set where from is Selector"
type TargetSelectorNamespaces struct {
	// From is which.
	//
	// +kubebuilder:validation:Enum=Same;All;Selector
	// +kubebuilder:default:=Same
	From string `json:"from"`

	// Selector selects them by their labels, where from is Selector.
	//
	// +optional
	Selector *metav1.LabelSelector `json:"selector,omitempty"`
}

// RoutingType is where requests are sent.
//
// +kubebuilder:validation:Enum=Service;Endpoint
type RoutingType string

// The values of RoutingType.
const (
	RoutingTypeService  RoutingType = "Service"
	RoutingTypeEndpoint RoutingType = "Endpoint"
)
