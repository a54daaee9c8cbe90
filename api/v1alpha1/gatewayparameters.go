package v1alpha1

import (
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// GatewayParameters says how the proxies of Gateways run. A GatewayClass refers to one
// by spec.parametersRef and may use every field; a Gateway refers to one of its own
// namespace by spec.infrastructure.parametersRef and may use every field but classOnly.
// Where both set a field, the Gateway's wins unless the class locks it; the fields of service count one by one, and
// replicas, autoscaling, externalAutoscaler and daemonSet as one. A change reaches the Gateways that run already. While
// parameters cannot be used, what runs stays as it is; of trustedProxies, ports, listeners and rateLimit what is valid counts nevertheless. In
// files these four alone have a meaning.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=gwparams,categories=gateway-api
// +kubebuilder:metadata:labels="app.kubernetes.io/part-of=moongate"
// +kubebuilder:printcolumn:name="Replicas",type=integer,JSONPath=`.spec.replicas`
// +kubebuilder:printcolumn:name="Service",type=string,JSONPath=`.spec.service.type`
// +kubebuilder:printcolumn:name="Accepted",type=string,JSONPath=`.status.conditions[?(@.type=="Accepted")].status`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type GatewayParameters struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec GatewayParametersSpec `json:"spec,omitempty"`
	// +optional
	Status GatewayParametersStatus `json:"status,omitempty"`
}

// GatewayParametersList is a list of GatewayParameters.
//
// +kubebuilder:object:root=true
type GatewayParametersList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []GatewayParameters `json:"items"`
}

// GatewayParametersSpec are the parameters; the zero value of each is the default.
//
// +kubebuilder:validation:XValidation:rule="!(has(self.replicas) && has(self.autoscaling))",message="replicas and autoscaling exclude each other: remove one"
// +kubebuilder:validation:XValidation:rule="!(has(self.externalAutoscaler) && self.externalAutoscaler && (has(self.replicas) || has(self.autoscaling)))",message="externalAutoscaler excludes replicas and autoscaling"
// +kubebuilder:validation:XValidation:rule="!(has(self.daemonSet) && self.daemonSet && (has(self.replicas) || has(self.autoscaling) || (has(self.externalAutoscaler) && self.externalAutoscaler) || has(self.disruptionBudget)))",message="daemonSet excludes replicas, autoscaling, externalAutoscaler and disruptionBudget: one proxy runs on each node"
type GatewayParametersSpec struct {
	// Replicas is how many proxies run for each Gateway; default 1.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000
	Replicas *int32 `json:"replicas,omitempty"`
	// Autoscaling creates a HorizontalPodAutoscaler in the place of a number of replicas.
	//
	// +optional
	Autoscaling *Autoscaling `json:"autoscaling,omitempty"`
	// ExternalAutoscaler leaves the number of replicas of the Deployment to somebody else, such as KEDA or an autoscaler of your own; it begins with 1.
	// Default false: the number is set to replicas, unless a HorizontalPodAutoscaler of somebody else refers to the Deployment.
	//
	// +optional
	ExternalAutoscaler bool `json:"externalAutoscaler,omitempty"`
	// DaemonSet runs one proxy on each node that the class's nodeSelector, affinity and tolerations allow, instead of a number of replicas. If it is set or
	// unset while proxies run, these serve until the others are ready, except with hostNetwork, where a node has room for one. Default false: a Deployment.
	//
	// +optional
	DaemonSet bool `json:"daemonSet,omitempty"`
	// DisruptionBudget says how many proxies may be drained at a time; default one. There is none for a single proxy, nor with daemonSet, where Kubernetes
	// cannot count and drains leave the proxies alone.
	//
	// +optional
	DisruptionBudget *DisruptionBudget `json:"disruptionBudget,omitempty"`
	// Resources of the proxy's container; no limits by default. A resource that is neither requested nor limited has a
	// default request: 50m CPU, with autoscaling 500m, and 32Mi memory.
	//
	// +optional
	Resources *corev1.ResourceRequirements `json:"resources,omitempty"`
	// Service says how the Gateway is reached.
	//
	// +optional
	Service *Service `json:"service,omitempty"`
	// LogLevel of the proxy's own log; default info.
	//
	// +optional
	// +kubebuilder:validation:Enum=debug;info;warn;error
	LogLevel string `json:"logLevel,omitempty"`
	// AccessLog is stdout (the default; json is its older name) or off.
	//
	// +optional
	// +kubebuilder:validation:Enum=stdout;json;off
	AccessLog string `json:"accessLog,omitempty"`
	// AccessLogOptions say what the lines of the access log have, and which requests have one.
	//
	// +optional
	AccessLogOptions *AccessLogOptions `json:"accessLogOptions,omitempty"`
	// RequestIDs is generate (the default: each request gets an X-Request-Id, in place of one that the client has sent) or
	// preserve (that one is kept).
	//
	// +optional
	// +kubebuilder:validation:Enum=generate;preserve
	RequestIDs string `json:"requestIDs,omitempty"`
	// ShutdownDelay is how long an ending proxy goes on accepting connections, so that load
	// balancers notice; default 5s, at most 5m.
	//
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^([0-9]{1,5}(h|m|s|ms)){1,4}$`
	// +kubebuilder:validation:XValidation:rule="duration(self) <= duration('5m')",message="at most 5m"
	ShutdownDelay *metav1.Duration `json:"shutdownDelay,omitempty"`
	// DrainTimeout is how long requests in flight may take after that; default 30s, at most 1h.
	//
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^([0-9]{1,5}(h|m|s|ms)){1,4}$`
	// +kubebuilder:validation:XValidation:rule="duration(self) <= duration('1h')",message="at most 1h"
	DrainTimeout *metav1.Duration `json:"drainTimeout,omitempty"`
	// TrustedProxies are ranges of the addresses of proxies in front of the Gateway, such as 192.0.2.0/24. Of a connection from there
	// X-Forwarded-For, other X-Forwarded fields, Forwarded and X-Real-IP are passed on, and the client is the last address in X-Forwarded-For that is
	// not one of these; ports with proxyProtocol are open to these alone. Default none: the client is the connection's other end, and what it says
	// of itself is dropped. Name no range that clients connect from: they could pass for anyone.
	//
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=64
	TrustedProxies []string `json:"trustedProxies,omitempty"`
	// Ports are settings for the connections to ports of listeners, whatever listener of its port a connection is for.
	//
	// +optional
	// +listType=map
	// +listMapKey=port
	// +kubebuilder:validation:MaxItems=64
	Ports []Port `json:"ports,omitempty"`
	// Listeners are settings for the requests of listeners of protocols HTTP and HTTPS.
	//
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=64
	Listeners []Listener `json:"listeners,omitempty"`
	// ClassOnly are parameters that could do harm in the hands of a namespace's users.
	// They are refused where a Gateway refers to these GatewayParameters.
	//
	// +optional
	ClassOnly *ClassOnly `json:"classOnly,omitempty"`
}

// RateLimit is where global rate limits count.
type RateLimit struct {
	// Redis that they count in, in the place of the one that the controller was started with (--redis); default that one. All else of global rate limits is as the
	// controller's flags say.
	//
	// +optional
	Redis *Redis `json:"redis,omitempty"`
}

// Redis is a server.
type Redis struct {
	// URLSecretRef is where its address stands: host:port, or a URL such as redis://user:password@host:6379/0, with rediss for TLS.
	URLSecretRef SecretKeyReference `json:"urlSecretRef"`
}

// SecretKeyReference names a value of a Secret in the namespace of the GatewayParameters.
type SecretKeyReference struct {
	// Name of the Secret.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
	// Key of the value.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Key string `json:"key"`
}

// AccessLogOptions say what the lines of the access log have.
type AccessLogOptions struct {
	// Format is json (the default), combined (the Combined Log Format), or a text with members in braces, such as
	// "{start_time} {method} {path} {response_code}".
	//
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Format string `json:"format,omitempty"`
	// Members of the JSON object, in their order: those of the page on the access log, request_header.<name>, response_header.<name>, or all for those
	// that are there by default. Default all.
	//
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=96
	Members []string `json:"members,omitempty"`
	// RedactQueryParameters are the names of query parameters whose values are logged as *; "*" is all. Default none.
	//
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=128
	RedactQueryParameters []string `json:"redactQueryParameters,omitempty"`
	// OneIn logs one of so many requests, and each that failed by no fault of its client. Default 1: each request.
	//
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000000
	OneIn *int32 `json:"oneIn,omitempty"`
}

// DisruptionBudget is a PodDisruptionBudget.
//
// +kubebuilder:validation:XValidation:rule="has(self.minAvailable) != has(self.maxUnavailable)",message="exactly one of minAvailable and maxUnavailable must be set"
type DisruptionBudget struct {
	// MinAvailable is how many proxies must stay ready, as a number or in percent, of which 100 would let no node be drained that has a proxy. A number must be
	// less than that of the proxies for the same reason.
	//
	// +optional
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:Pattern=`^[0-9]{1,2}%$`
	// +kubebuilder:validation:XValidation:rule="type(self) == string || int(self) >= 0",message="must not be negative"
	MinAvailable *intstr.IntOrString `json:"minAvailable,omitempty"`
	// MaxUnavailable is how many proxies may be drained at a time, as a number from 1 on or in percent.
	//
	// +optional
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:Pattern=`^(100|[1-9][0-9]?)%$`
	// +kubebuilder:validation:XValidation:rule="type(self) == string || int(self) >= 1",message="must be at least 1"
	MaxUnavailable *intstr.IntOrString `json:"maxUnavailable,omitempty"`
}

// Autoscaling is a HorizontalPodAutoscaler.
//
// +kubebuilder:validation:XValidation:rule="!has(self.minReplicas) || self.minReplicas <= self.maxReplicas",message="minReplicas is above maxReplicas"
type Autoscaling struct {
	// MinReplicas defaults to 1.
	//
	// +optional
	// +kubebuilder:validation:Minimum=1
	MinReplicas *int32 `json:"minReplicas,omitempty"`
	// MaxReplicas bounds the number of proxies.
	//
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000
	MaxReplicas int32 `json:"maxReplicas"`
	// CPUUtilization is the aim, in percent of the requested CPU; default 80.
	//
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000
	CPUUtilization *int32 `json:"cpuUtilization,omitempty"`
	// MemoryUtilization is another aim, in percent of the requested memory; default none. The one of both that asks for more proxies counts. Set
	// resources.requests.memory with it, of which the default is small.
	//
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000
	MemoryUtilization *int32 `json:"memoryUtilization,omitempty"`
	// Behavior is that of the HorizontalPodAutoscaler: how fast it scales up and down. Default as Kubernetes has it.
	//
	// +optional
	Behavior *autoscalingv2.HorizontalPodAutoscalerBehavior `json:"behavior,omitempty"`
}

// Port is a port of listeners. The listeners of a port share its connections: which of them one is for is known later, if at all.
type Port struct {
	// Port of the listeners; of those of UDP nothing here counts.
	//
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	Port int32 `json:"port"`
	// ProxyProtocol has each connection begin with a header of the PROXY protocol, version 1 or 2, from one of trustedProxies; others are closed.
	// The connection's client is the one in the header. Default false.
	//
	// +optional
	ProxyProtocol bool `json:"proxyProtocol,omitempty"`
	// IdleTimeout is how long a connection may be without a request; default 75s, from 1s to 24h. Connections that are open keep the timeouts that they had.
	//
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^([0-9]{1,5}(h|m|s|ms)){1,4}$`
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1s') && duration(self) <= duration('24h')",message="from 1s to 24h"
	IdleTimeout *metav1.Duration `json:"idleTimeout,omitempty"`
	// RequestHeadTimeout is how long the head of a request may take from its first byte to its last; default 15s, from 1s to 24h.
	//
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^([0-9]{1,5}(h|m|s|ms)){1,4}$`
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1s') && duration(self) <= duration('24h')",message="from 1s to 24h"
	RequestHeadTimeout *metav1.Duration `json:"requestHeadTimeout,omitempty"`
	// RequestBodyIdleTimeout is how long nothing may come of a request body that is awaited; default 60s, from 1s to 24h.
	//
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^([0-9]{1,5}(h|m|s|ms)){1,4}$`
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1s') && duration(self) <= duration('24h')",message="from 1s to 24h"
	RequestBodyIdleTimeout *metav1.Duration `json:"requestBodyIdleTimeout,omitempty"`
	// MaxConnections is how many connections one proxy may have at the port at a time; those beyond are reset. Default: what the process may have at all.
	//
	// +optional
	// +kubebuilder:validation:Minimum=1
	MaxConnections *int32 `json:"maxConnections,omitempty"`
}

// Listener is a listener of a Gateway, or all that have no entry.
type Listener struct {
	// Name of the listener in spec.listeners of the Gateway; "*" stands for all that have no entry of their own, and for those of ListenerSets.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
	// MaxRequestBodyBytes bounds the body of a request: one that says that it is longer is answered with 413 before a backend is asked, and one that turns out
	// to be longer on its way is cut off, with 413 where no response has begun. Default none: bodies are streamed, and cost no memory by their length.
	//
	// +optional
	// +kubebuilder:validation:Minimum=1
	MaxRequestBodyBytes *int64 `json:"maxRequestBodyBytes,omitempty"`
}

// Service are fields of the Services that are created for a Gateway.
type Service struct {
	// Type is LoadBalancer (the default), NodePort or ClusterIP.
	//
	// +optional
	// +kubebuilder:validation:Enum=LoadBalancer;NodePort;ClusterIP
	Type corev1.ServiceType `json:"type,omitempty"`
	// LoadBalancerClass, for type LoadBalancer.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=317
	LoadBalancerClass *string `json:"loadBalancerClass,omitempty"`
	// LoadBalancerSourceRanges are the clients that may connect, such as 192.0.2.0/24, where the
	// load balancer heeds it; none allows all. For type LoadBalancer.
	//
	// +optional
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=64
	LoadBalancerSourceRanges []string `json:"loadBalancerSourceRanges,omitempty"`
	// ExternalTrafficPolicy Local keeps the clients' addresses and skips nodes without a proxy.
	//
	// +optional
	// +kubebuilder:validation:Enum=Cluster;Local
	ExternalTrafficPolicy corev1.ServiceExternalTrafficPolicy `json:"externalTrafficPolicy,omitempty"`
	// IPFamilyPolicy says whether IPv4 and IPv6 are both asked for.
	//
	// +optional
	// +kubebuilder:validation:Enum=SingleStack;PreferDualStack;RequireDualStack
	IPFamilyPolicy *corev1.IPFamilyPolicy `json:"ipFamilyPolicy,omitempty"`
	// IPFamilies are IPv4, IPv6 or both, the primary one first. Default: what the cluster assigns. The primary one of a Service cannot be changed; delete the
	// Service to have it made anew.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=2
	// +kubebuilder:validation:items:Enum=IPv4;IPv6
	// +kubebuilder:validation:XValidation:rule="size(self) < 2 || self[0] != self[1]",message="families must be unique"
	IPFamilies []corev1.IPFamily `json:"ipFamilies,omitempty"`
	// NodePorts are the ports at nodes by which ports of listeners are reached, for types LoadBalancer and NodePort; the cluster chooses those that are not
	// here. No two Services can share one, so that they fit one Gateway: another one with the same is not programmed, and names the Service that has the port. Where
	// spec.addresses has several entries, the Service that has a port keeps it; one that none has is the first's that is not within the cluster.
	//
	// +optional
	// +listType=map
	// +listMapKey=port
	// +listMapKey=protocol
	// +kubebuilder:validation:MaxItems=64
	NodePorts []NodePort `json:"nodePorts,omitempty"`
}

// NodePort is a port at every node.
type NodePort struct {
	// Port of the listeners.
	//
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	Port int32 `json:"port"`
	// Protocol is TCP (the default) or UDP.
	//
	// +optional
	// +kubebuilder:default=TCP
	// +kubebuilder:validation:Enum=TCP;UDP
	Protocol corev1.Protocol `json:"protocol,omitempty"`
	// NodePort is the port at the nodes, of the range that the cluster has for them.
	//
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	NodePort int32 `json:"nodePort"`
}

// ClassOnly are parameters for a GatewayClass.
type ClassOnly struct {
	// MergeGateways serves all Gateways of the class by the same proxies, behind one Service, in the namespace of these GatewayParameters. Of two listeners of
	// different Gateways that cannot be told apart the one of the older Gateway is served. A Gateway of the class cannot have parameters of its own, and its
	// spec.infrastructure and spec.addresses ask for nothing. Default false: each Gateway has proxies and addresses of its own. A change gives every Gateway
	// of the class another address.
	//
	// +optional
	MergeGateways bool `json:"mergeGateways,omitempty"`
	// RateLimit says where the global rate limits of BackendTrafficPolicies count. It is the class's alone, as proxies connect to it from
	// where they are, with words that it has.
	//
	// +optional
	RateLimit *RateLimit `json:"rateLimit,omitempty"`
	// HostNetwork runs proxies in their node's network, on the listeners' ports; they get
	// the capability NET_BIND_SERVICE then.
	//
	// +optional
	HostNetwork bool `json:"hostNetwork,omitempty"`
	// Image of the proxy; default the controller's own.
	//
	// +optional
	Image string `json:"image,omitempty"`
	// +optional
	ImagePullPolicy corev1.PullPolicy `json:"imagePullPolicy,omitempty"`
	// +optional
	ImagePullSecrets []corev1.LocalObjectReference `json:"imagePullSecrets,omitempty"`
	// +optional
	NodeSelector map[string]string `json:"nodeSelector,omitempty"`
	// +optional
	Tolerations []corev1.Toleration `json:"tolerations,omitempty"`
	// +optional
	Affinity *corev1.Affinity `json:"affinity,omitempty"`
	// TopologySpreadConstraints whose labelSelector is absent select the proxies of the Gateway.
	//
	// +optional
	TopologySpreadConstraints []corev1.TopologySpreadConstraint `json:"topologySpreadConstraints,omitempty"`
	// +optional
	PriorityClassName string `json:"priorityClassName,omitempty"`
	// Env is added to the proxy's container.
	//
	// +optional
	Env []corev1.EnvVar `json:"env,omitempty"`
	// ServiceLabels are added to the Services, whatever Gateways may ask for.
	//
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	ServiceLabels map[string]string `json:"serviceLabels,omitempty"`
	// ServiceAnnotations are added to the Services, whatever Gateways may ask for: orders to the load balancer. Where a Gateway's spec.infrastructure has the same key, the
	// class's value is used.
	//
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	ServiceAnnotations map[string]string `json:"serviceAnnotations,omitempty"`
	// Volumes are added to the pods of the proxies.
	//
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=32
	Volumes []Volume `json:"volumes,omitempty"`
	// VolumeMounts say where the proxy's container has the volumes.
	//
	// +optional
	// +listType=map
	// +listMapKey=mountPath
	// +kubebuilder:validation:MaxItems=32
	VolumeMounts []corev1.VolumeMount `json:"volumeMounts,omitempty"`
	// AccessLogFile is the path of a file that the access log is written to in the place of standard output, within a volume that is writable. It is opened anew
	// after it was renamed.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:Pattern=`^/[^$]+$`
	AccessLogFile string `json:"accessLogFile,omitempty"`
	// AccessLogCollector is the URL of a collector of OpenTelemetry that the access log is sent to by OTLP over HTTP, in the place of standard output, such
	// as http://collector.observability.svc:4318. It excludes accessLogFile.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:Pattern=`^https?://[^$@?# ]+$`
	AccessLogCollector string `json:"accessLogCollector,omitempty"`
	// PlatformUser leaves it to the cluster as which user and group the proxies run: OpenShift assigns each namespace its own, and refuses pods that name another.
	// Default false: 65532.
	//
	// +optional
	PlatformUser bool `json:"platformUser,omitempty"`
	// DeploymentPatch is a strategic-merge patch of the Deployment, applied last.
	//
	// +optional
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:validation:Type=object
	DeploymentPatch *runtime.RawExtension `json:"deploymentPatch,omitempty"`
	// DaemonSetPatch is a strategic-merge patch of the DaemonSet, which has the place of the Deployment with daemonSet; applied last.
	//
	// +optional
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:validation:Type=object
	DaemonSetPatch *runtime.RawExtension `json:"daemonSetPatch,omitempty"`
	// Locked are fields that a Gateway's parameters cannot set: the class's value is used, or the
	// default where the class has none. The Gateway says which of its fields are not used.
	//
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=32
	Locked []LockedField `json:"locked,omitempty"`
	// Infrastructure says which labels and annotations of a Gateway's spec.infrastructure go where. With it
	// its rules alone count. Without it keys that have no prefix go everywhere, and to Services
	// the annotations that ask for a load balancer in the cluster's own network.
	//
	// +optional
	Infrastructure *InfrastructureMetadata `json:"infrastructure,omitempty"`
	// DeniedEndpoints are ranges of IP addresses, such as 192.0.2.0/24, that no request is sent to whatever
	// EndpointSlices say: metadata services, the API server, nodes. Services and so their endpoints are
	// the same for all classes, so the ranges of all classes of the controller count together. Loopback, link-local,
	// multicast and unspecified addresses are denied without being named.
	//
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MaxLength=64
	DeniedEndpoints []string `json:"deniedEndpoints,omitempty"`
	// AllowedExternalAddresses are ranges of IP addresses, such as 10.20.0.0/16, that requests to an XBackend of type ExternalHostname are sent to
	// although they are of the machine, link-local, or of private networks: by default a name is not followed to such addresses, because whoever
	// owns it could have a Gateway reach what is inside of the cluster. The ranges of all classes of the controller count together, and
	// deniedEndpoints come first.
	//
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MaxLength=64
	AllowedExternalAddresses []string `json:"allowedExternalAddresses,omitempty"`
}

// Volume is a volume of a pod. Of the sources that Kubernetes has these are the common ones; for others use deploymentPatch or daemonSetPatch.
//
// +kubebuilder:validation:XValidation:rule="[has(self.configMap), has(self.secret), has(self.emptyDir), has(self.persistentVolumeClaim), has(self.csi), has(self.hostPath)].exists_one(x, x)",message="exactly one of configMap, secret, emptyDir, persistentVolumeClaim, csi and hostPath must be set"
type Volume struct {
	// Name of the volume; token, ca and state are taken.
	//
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	// +kubebuilder:validation:XValidation:rule="!(self in ['token', 'ca', 'state'])",message="volumes of the proxy itself have this name"
	Name string `json:"name"`
	// +optional
	ConfigMap *corev1.ConfigMapVolumeSource `json:"configMap,omitempty"`
	// +optional
	Secret *corev1.SecretVolumeSource `json:"secret,omitempty"`
	// +optional
	EmptyDir *corev1.EmptyDirVolumeSource `json:"emptyDir,omitempty"`
	// +optional
	PersistentVolumeClaim *corev1.PersistentVolumeClaimVolumeSource `json:"persistentVolumeClaim,omitempty"`
	// +optional
	CSI *corev1.CSIVolumeSource `json:"csi,omitempty"`
	// +optional
	HostPath *corev1.HostPathVolumeSource `json:"hostPath,omitempty"`
}

// Source is the volume as a pod has it.
func (v *Volume) Source() corev1.Volume {
	return corev1.Volume{Name: v.Name, VolumeSource: corev1.VolumeSource{
		ConfigMap: v.ConfigMap, Secret: v.Secret, EmptyDir: v.EmptyDir, PersistentVolumeClaim: v.PersistentVolumeClaim, CSI: v.CSI, HostPath: v.HostPath,
	}}
}

// InfrastructureMetadata are rules for labels and annotations. What no rule allows is left out, and the Gateway says
// so; keys of moongate.dev and gateway.networking.k8s.io always are.
type InfrastructureMetadata struct {
	// +optional
	// +kubebuilder:validation:MaxItems=32
	Labels []MetadataRule `json:"labels,omitempty"`
	// +optional
	// +kubebuilder:validation:MaxItems=32
	Annotations []MetadataRule `json:"annotations,omitempty"`
}

// MetadataRule allows keys on objects.
type MetadataRule struct {
	// Keys are whole keys, or beginnings of keys that end with "*".
	//
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=318
	Keys []string `json:"keys"`
	// Kinds of the objects; none is every kind.
	//
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=8
	Kinds []MetadataKind `json:"kinds,omitempty"`
}

// MetadataKind is a kind of what runs for a Gateway.
//
// +kubebuilder:validation:Enum=Pod;Deployment;DaemonSet;Service;ServiceAccount;ConfigMap;PodDisruptionBudget;HorizontalPodAutoscaler
type MetadataKind string

// The kinds.
const (
	MetadataPod                     MetadataKind = "Pod"
	MetadataDeployment              MetadataKind = "Deployment"
	MetadataDaemonSet               MetadataKind = "DaemonSet"
	MetadataService                 MetadataKind = "Service"
	MetadataServiceAccount          MetadataKind = "ServiceAccount"
	MetadataConfigMap               MetadataKind = "ConfigMap"
	MetadataPodDisruptionBudget     MetadataKind = "PodDisruptionBudget"
	MetadataHorizontalPodAutoscaler MetadataKind = "HorizontalPodAutoscaler"
)

// MetadataKinds are all of them.
var MetadataKinds = []MetadataKind{
	MetadataPod, MetadataDeployment, MetadataDaemonSet, MetadataService, MetadataServiceAccount, MetadataConfigMap,
	MetadataPodDisruptionBudget, MetadataHorizontalPodAutoscaler,
}

// LockedField is a field of GatewayParameters below spec; service is all fields of it. replicas locks
// autoscaling, externalAutoscaler and daemonSet too. service.loadBalancerClass and service.loadBalancerSourceRanges lock service.type
// too, since of another type there would be none.
//
// +kubebuilder:validation:Enum=replicas;resources;service;service.type;service.loadBalancerClass;service.loadBalancerSourceRanges;service.externalTrafficPolicy;service.ipFamilyPolicy;service.ipFamilies;service.nodePorts;disruptionBudget;logLevel;accessLog;accessLogOptions;requestIDs;shutdownDelay;drainTimeout;trustedProxies;ports;listeners
type LockedField string

// The fields that can be locked.
const (
	LockReplicas                 LockedField = "replicas"
	LockResources                LockedField = "resources"
	LockService                  LockedField = "service"
	LockServiceType              LockedField = "service.type"
	LockLoadBalancerClass        LockedField = "service.loadBalancerClass"
	LockLoadBalancerSourceRanges LockedField = "service.loadBalancerSourceRanges"
	LockExternalTrafficPolicy    LockedField = "service.externalTrafficPolicy"
	LockIPFamilyPolicy           LockedField = "service.ipFamilyPolicy"
	LockIPFamilies               LockedField = "service.ipFamilies"
	LockNodePorts                LockedField = "service.nodePorts"
	LockDisruptionBudget         LockedField = "disruptionBudget"
	LockLogLevel                 LockedField = "logLevel"
	LockAccessLog                LockedField = "accessLog"
	LockAccessLogOptions         LockedField = "accessLogOptions"
	LockRequestIDs               LockedField = "requestIDs"
	LockShutdownDelay            LockedField = "shutdownDelay"
	LockDrainTimeout             LockedField = "drainTimeout"
	LockTrustedProxies           LockedField = "trustedProxies"
	LockPorts                    LockedField = "ports"
	LockListeners                LockedField = "listeners"
)

// LockedFields are all of them.
var LockedFields = []LockedField{
	LockReplicas, LockResources, LockService, LockServiceType, LockLoadBalancerClass, LockLoadBalancerSourceRanges,
	LockExternalTrafficPolicy, LockIPFamilyPolicy, LockIPFamilies, LockNodePorts, LockDisruptionBudget, LockLogLevel, LockAccessLog, LockAccessLogOptions, LockRequestIDs, LockShutdownDelay, LockDrainTimeout,
	LockTrustedProxies, LockPorts, LockListeners,
}

// What the status says.
const (
	// ConditionAccepted is True where the parameters can be used.
	ConditionAccepted = "Accepted"
	// ReasonAccepted goes with Accepted=True.
	ReasonAccepted = "Accepted"
	// ReasonInvalid goes with Accepted=False; the message names each field and what to do about it.
	ReasonInvalid = "Invalid"
)

// GatewayParametersStatus says whether the parameters can be used.
type GatewayParametersStatus struct {
	// Conditions: Accepted, with reason Accepted or Invalid.
	//
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=8
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}
