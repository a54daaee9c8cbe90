package v1alpha1

import (
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// GatewayParameters configures how the proxies of Gateways run. A GatewayClass refers to GatewayParameters
// in spec.parametersRef and may use every field. A Gateway refers to GatewayParameters in its own
// namespace in spec.infrastructure.parametersRef and may use every field except classOnly.
// If both set a field, the value of the Gateway is used unless the class locks the field. The fields of service are merged one by one, while
// replicas, autoscaling, externalAutoscaler and daemonSet are treated as one field. Changes also apply to Gateways that are already running. As long as
// the parameters are invalid, running proxies keep their previous settings; the valid parts of trustedProxies, ports, listeners and rateLimit still apply.
// If manifests are read from files, only these four fields have an effect.
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

// GatewayParametersSpec defines the parameters. The zero value of each field is its default.
//
// +kubebuilder:validation:XValidation:rule="!(has(self.replicas) && has(self.autoscaling))",message="replicas and autoscaling exclude each other: remove one"
// +kubebuilder:validation:XValidation:rule="!(has(self.externalAutoscaler) && self.externalAutoscaler && (has(self.replicas) || has(self.autoscaling)))",message="externalAutoscaler excludes replicas and autoscaling"
// +kubebuilder:validation:XValidation:rule="!(has(self.daemonSet) && self.daemonSet && (has(self.replicas) || has(self.autoscaling) || (has(self.externalAutoscaler) && self.externalAutoscaler) || has(self.disruptionBudget)))",message="daemonSet excludes replicas, autoscaling, externalAutoscaler and disruptionBudget: one proxy runs on each node"
type GatewayParametersSpec struct {
	// Replicas is the number of proxies that run for each Gateway. Default 1.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000
	Replicas *int32 `json:"replicas,omitempty"`
	// Autoscaling creates a HorizontalPodAutoscaler instead of a fixed number of replicas.
	//
	// +optional
	Autoscaling *Autoscaling `json:"autoscaling,omitempty"`
	// ExternalAutoscaler leaves the number of replicas of the Deployment to another autoscaler, such as KEDA. The initial number is 1.
	// Default false: the number is set to replicas, unless a HorizontalPodAutoscaler that Moongate does not manage refers to the Deployment.
	//
	// +optional
	ExternalAutoscaler bool `json:"externalAutoscaler,omitempty"`
	// DaemonSet runs one proxy on each node that the class's nodeSelector, affinity and tolerations allow, instead of a number of replicas. If you change
	// it while proxies run, the old proxies serve until the new ones are ready, except with hostNetwork, where a node has room for only one. Default false: a Deployment.
	//
	// +optional
	DaemonSet bool `json:"daemonSet,omitempty"`
	// DisruptionBudget limits how many proxies may be evicted at a time. Default one. No PodDisruptionBudget is created for a single proxy, or with daemonSet,
	// because Kubernetes cannot tell how many proxies are expected, and draining a node does not evict the pods of a DaemonSet.
	//
	// +optional
	DisruptionBudget *DisruptionBudget `json:"disruptionBudget,omitempty"`
	// Resources of the proxy's container. No limits by default. A resource with neither a request nor a limit gets a
	// default request: 50m CPU (500m with autoscaling) and 32Mi memory.
	//
	// +optional
	Resources *corev1.ResourceRequirements `json:"resources,omitempty"`
	// Service configures the Services of the Gateway.
	//
	// +optional
	Service *Service `json:"service,omitempty"`
	// LogLevel is the level of the proxy's own log. Default info.
	//
	// +optional
	// +kubebuilder:validation:Enum=debug;info;warn;error
	LogLevel string `json:"logLevel,omitempty"`
	// AccessLog is stdout (the default; json is an older name for it) or off.
	//
	// +optional
	// +kubebuilder:validation:Enum=stdout;json;off
	AccessLog string `json:"accessLog,omitempty"`
	// AccessLogOptions configures the lines of the access log, and which requests are logged.
	//
	// +optional
	AccessLogOptions *AccessLogOptions `json:"accessLogOptions,omitempty"`
	// RequestIDs is generate (the default: each request gets a new X-Request-Id, which replaces the client's) or
	// preserve (the client's X-Request-Id is kept).
	//
	// +optional
	// +kubebuilder:validation:Enum=generate;preserve
	RequestIDs string `json:"requestIDs,omitempty"`
	// ShutdownDelay is how long a terminating proxy continues to accept connections, so that load
	// balancers have time to notice. Default 5s, at most 5m.
	//
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^([0-9]{1,5}(h|m|s|ms)){1,4}$`
	// +kubebuilder:validation:XValidation:rule="duration(self) <= duration('5m')",message="at most 5m"
	ShutdownDelay *metav1.Duration `json:"shutdownDelay,omitempty"`
	// DrainTimeout is how long requests in flight may take after the shutdown delay. Default 30s, at most 1h.
	//
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^([0-9]{1,5}(h|m|s|ms)){1,4}$`
	// +kubebuilder:validation:XValidation:rule="duration(self) <= duration('1h')",message="at most 1h"
	DrainTimeout *metav1.Duration `json:"drainTimeout,omitempty"`
	// TrustedProxies are address ranges of proxies in front of the Gateway, such as 192.0.2.0/24. If a request comes from one of them,
	// X-Forwarded-For, other X-Forwarded fields, Forwarded and X-Real-IP are passed on, and the client is the last address in X-Forwarded-For that is
	// not a trusted proxy. Ports with proxyProtocol accept connections from trusted proxies only. Default none: the client is the peer of the connection, and these
	// fields are removed. Do not name a range that clients connect from: they could claim any address.
	//
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=64
	TrustedProxies []string `json:"trustedProxies,omitempty"`
	// Ports are settings for connections to the ports of listeners. They apply to all listeners of a port.
	//
	// +optional
	// +listType=map
	// +listMapKey=port
	// +kubebuilder:validation:MaxItems=64
	Ports []Port `json:"ports,omitempty"`
	// Listeners are settings for requests to listeners with protocol HTTP or HTTPS.
	//
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=64
	Listeners []Listener `json:"listeners,omitempty"`
	// ClassOnly are parameters that the users of a namespace could misuse.
	// They are rejected if a Gateway refers to these GatewayParameters.
	//
	// +optional
	ClassOnly *ClassOnly `json:"classOnly,omitempty"`
}

// RateLimit configures where the counters of global rate limits are stored.
type RateLimit struct {
	// Redis stores the counters, instead of the Redis that is set with the controller's flag --redis, which is the default. All other settings of global rate limits are
	// those of the controller's flags.
	//
	// +optional
	Redis *Redis `json:"redis,omitempty"`
}

// Redis is a Redis server.
type Redis struct {
	// URLSecretRef refers to the Secret with its address: host:port, or a URL such as redis://user:password@host:6379/0, with rediss for TLS.
	URLSecretRef SecretKeyReference `json:"urlSecretRef"`
}

// SecretKeyReference refers to a value of a Secret in the namespace of the GatewayParameters.
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

// AccessLogOptions configures the lines of the access log.
type AccessLogOptions struct {
	// Format is json (the default), combined (the Combined Log Format), or a template with members in braces, such as
	// "{start_time} {method} {path} {response_code}".
	//
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Format string `json:"format,omitempty"`
	// Members are the members of the JSON object, in order: members listed in the documentation of the access log, request_header.<name>, response_header.<name>, or all, which stands for
	// the default members. Default all.
	//
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=96
	Members []string `json:"members,omitempty"`
	// RedactQueryParameters are the names of query parameters whose values are logged as *. "*" stands for all parameters. Default none.
	//
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=128
	RedactQueryParameters []string `json:"redactQueryParameters,omitempty"`
	// OneIn logs one of this many requests, and those that failed through no fault of the client, up to 100 a second for each proxy. Default 1: each request.
	//
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000000
	OneIn *int32 `json:"oneIn,omitempty"`
}

// DisruptionBudget configures a PodDisruptionBudget.
//
// +kubebuilder:validation:XValidation:rule="has(self.minAvailable) != has(self.maxUnavailable)",message="exactly one of minAvailable and maxUnavailable must be set"
type DisruptionBudget struct {
	// MinAvailable is how many proxies must stay ready, as a number or a percentage below 100. A number must be
	// less than the number of proxies. Otherwise no node with a proxy could be drained.
	//
	// +optional
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:Pattern=`^[0-9]{1,2}%$`
	// +kubebuilder:validation:XValidation:rule="type(self) == string || int(self) >= 0",message="must not be negative"
	MinAvailable *intstr.IntOrString `json:"minAvailable,omitempty"`
	// MaxUnavailable is how many proxies may be evicted at a time, as a number of at least 1 or a percentage.
	//
	// +optional
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:Pattern=`^(100|[1-9][0-9]?)%$`
	// +kubebuilder:validation:XValidation:rule="type(self) == string || int(self) >= 1",message="must be at least 1"
	MaxUnavailable *intstr.IntOrString `json:"maxUnavailable,omitempty"`
}

// Autoscaling configures a HorizontalPodAutoscaler.
//
// +kubebuilder:validation:XValidation:rule="!has(self.minReplicas) || self.minReplicas <= self.maxReplicas",message="minReplicas is above maxReplicas"
type Autoscaling struct {
	// MinReplicas is the minimum number of proxies. Default 1.
	//
	// +optional
	// +kubebuilder:validation:Minimum=1
	MinReplicas *int32 `json:"minReplicas,omitempty"`
	// MaxReplicas is the maximum number of proxies.
	//
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000
	MaxReplicas int32 `json:"maxReplicas"`
	// CPUUtilization is the target utilization in percent of the requested CPU. Default 80.
	//
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000
	CPUUtilization *int32 `json:"cpuUtilization,omitempty"`
	// MemoryUtilization is another target, in percent of the requested memory. Default none. The target that results in more proxies is used. If you set it, also set
	// resources.requests.memory, because the default request is small.
	//
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000
	MemoryUtilization *int32 `json:"memoryUtilization,omitempty"`
	// Behavior is the behavior of the HorizontalPodAutoscaler: how fast it scales up and down. Default: that of Kubernetes.
	//
	// +optional
	Behavior *autoscalingv2.HorizontalPodAutoscalerBehavior `json:"behavior,omitempty"`
}

// Port configures a port of listeners. The listeners of a port share these settings, because the proxy may not know yet which listener a new connection is for.
type Port struct {
	// Port is the port of the listeners. The settings do not apply to UDP listeners.
	//
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	Port int32 `json:"port"`
	// ProxyProtocol requires that each connection comes from one of trustedProxies and starts with a PROXY protocol header, version 1 or 2; others are closed.
	// The address in the header is that of the client. Default false.
	//
	// +optional
	ProxyProtocol bool `json:"proxyProtocol,omitempty"`
	// IdleTimeout is how long a connection may be idle between requests. Default 75s, from 1s to 24h. Open connections keep the timeouts that they were accepted with.
	//
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^([0-9]{1,5}(h|m|s|ms)){1,4}$`
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1s') && duration(self) <= duration('24h')",message="from 1s to 24h"
	IdleTimeout *metav1.Duration `json:"idleTimeout,omitempty"`
	// RequestHeadTimeout is the time from the first to the last byte of a request's head. Default 15s, from 1s to 24h.
	//
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^([0-9]{1,5}(h|m|s|ms)){1,4}$`
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1s') && duration(self) <= duration('24h')",message="from 1s to 24h"
	RequestHeadTimeout *metav1.Duration `json:"requestHeadTimeout,omitempty"`
	// RequestBodyIdleTimeout is how long the proxy waits for the next bytes of a request body. Default 60s, from 1s to 24h.
	//
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^([0-9]{1,5}(h|m|s|ms)){1,4}$`
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1s') && duration(self) <= duration('24h')",message="from 1s to 24h"
	RequestBodyIdleTimeout *metav1.Duration `json:"requestBodyIdleTimeout,omitempty"`
	// MaxConnections is the maximum number of connections to the port at a time, for each proxy; further connections are reset. Default: the limit of the process.
	//
	// +optional
	// +kubebuilder:validation:Minimum=1
	MaxConnections *int32 `json:"maxConnections,omitempty"`
}

// Listener configures one listener of a Gateway, or all listeners without an entry of their own.
type Listener struct {
	// Name of the listener in spec.listeners of the Gateway. "*" stands for all listeners without an entry of their own, and for listeners of ListenerSets.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
	// MaxRequestBodyBytes is the maximum length of a request body. A request whose declared length is longer is answered with 413 before it reaches a backend. If the body turns out
	// to be longer while it is forwarded, the request is cut off, with 413 if no response has started. Default none: bodies are streamed, so that long ones need no more memory.
	//
	// +optional
	// +kubebuilder:validation:Minimum=1
	MaxRequestBodyBytes *int64 `json:"maxRequestBodyBytes,omitempty"`
}

// Service configures the Services that are created for a Gateway.
//
// +kubebuilder:validation:XValidation:rule="!has(self.ipFamilies) || size(self.ipFamilies) < 2 || !has(self.ipFamilyPolicy) || self.ipFamilyPolicy != 'SingleStack'",message="two ipFamilies need ipFamilyPolicy PreferDualStack or RequireDualStack"
type Service struct {
	// Type is LoadBalancer (the default), NodePort or ClusterIP.
	//
	// +optional
	// +kubebuilder:validation:Enum=LoadBalancer;NodePort;ClusterIP
	Type corev1.ServiceType `json:"type,omitempty"`
	// LoadBalancerClass is the class of the load balancer. Only for type LoadBalancer.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=317
	LoadBalancerClass *string `json:"loadBalancerClass,omitempty"`
	// LoadBalancerSourceRanges are address ranges of the clients that may connect, such as 192.0.2.0/24, if the
	// load balancer supports this. Default: all clients. Only for type LoadBalancer.
	//
	// +optional
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=64
	LoadBalancerSourceRanges []string `json:"loadBalancerSourceRanges,omitempty"`
	// ExternalTrafficPolicy is Cluster or Local. Local preserves the addresses of clients and routes traffic only to nodes with a proxy.
	//
	// +optional
	// +kubebuilder:validation:Enum=Cluster;Local
	ExternalTrafficPolicy corev1.ServiceExternalTrafficPolicy `json:"externalTrafficPolicy,omitempty"`
	// IPFamilyPolicy specifies whether the Services have IPv4, IPv6 or both. Default: one of them.
	//
	// +optional
	// +kubebuilder:validation:Enum=SingleStack;PreferDualStack;RequireDualStack
	IPFamilyPolicy *corev1.IPFamilyPolicy `json:"ipFamilyPolicy,omitempty"`
	// IPFamilies are IPv4, IPv6 or both, the primary family first. Both need ipFamilyPolicy PreferDualStack or RequireDualStack. Default: what the cluster assigns. The primary family of a Service cannot be changed; delete the
	// Service, so that it is created again.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=2
	// +kubebuilder:validation:items:Enum=IPv4;IPv6
	// +kubebuilder:validation:XValidation:rule="size(self) < 2 || self[0] != self[1]",message="families must be unique"
	IPFamilies []corev1.IPFamily `json:"ipFamilies,omitempty"`
	// NodePorts are the node ports for ports of listeners, for types LoadBalancer and NodePort. The cluster chooses node ports that are not listed
	// here. Two Services cannot share a node port, so the list is for one Gateway: another Gateway with the same node port is not programmed, and its status names the Service that has the port if both are in the same namespace. If
	// spec.addresses has several entries, the Service that has a node port keeps it; otherwise it is assigned to the first Service that is reachable from outside the cluster.
	//
	// +optional
	// +listType=map
	// +listMapKey=port
	// +listMapKey=protocol
	// +kubebuilder:validation:MaxItems=64
	NodePorts []NodePort `json:"nodePorts,omitempty"`
}

// NodePort is a port on every node.
type NodePort struct {
	// Port is the port of the listeners.
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
	// NodePort is the port on the nodes, from the cluster's range of node ports.
	//
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	NodePort int32 `json:"nodePort"`
}

// ClassOnly are parameters that only a GatewayClass may set.
type ClassOnly struct {
	// MergeGateways serves all Gateways of the class by the same proxies, behind one Service, in the namespace of these GatewayParameters. Of two listeners of
	// different Gateways that cannot be told apart the one of the older Gateway is served. A Gateway of the class cannot have parameters of its own, and its
	// spec.infrastructure and spec.addresses ask for nothing. Default false: each Gateway has proxies and addresses of its own. A change gives every Gateway
	// of the class another address.
	//
	// +optional
	MergeGateways bool `json:"mergeGateways,omitempty"`
	// RateLimit configures where the counters of the global rate limits of BackendTrafficPolicies are stored. Only a class may set it, because proxies connect to that address from
	// their own network, with credentials from the Secret.
	//
	// +optional
	RateLimit *RateLimit `json:"rateLimit,omitempty"`
	// HostNetwork runs the proxies in the network of their node, on the ports of the listeners. They then have
	// the capability NET_BIND_SERVICE.
	//
	// +optional
	HostNetwork bool `json:"hostNetwork,omitempty"`
	// Image is the image of the proxy. Default: that of the controller.
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
	// TopologySpreadConstraints of the proxies. A constraint without a labelSelector selects the proxies of the Gateway.
	//
	// +optional
	TopologySpreadConstraints []corev1.TopologySpreadConstraint `json:"topologySpreadConstraints,omitempty"`
	// +optional
	PriorityClassName string `json:"priorityClassName,omitempty"`
	// Env are environment variables to add to the proxy's container.
	//
	// +optional
	Env []corev1.EnvVar `json:"env,omitempty"`
	// ServiceLabels are added to the Services, regardless of which labels Gateways may set.
	//
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	ServiceLabels map[string]string `json:"serviceLabels,omitempty"`
	// ServiceAnnotations are added to the Services, such as settings of the load balancer, regardless of which annotations Gateways may set. If a Gateway's spec.infrastructure has the same key, the
	// value of the class is used.
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
	// VolumeMounts are the mount points of the volumes in the proxy's container.
	//
	// +optional
	// +listType=map
	// +listMapKey=mountPath
	// +kubebuilder:validation:MaxItems=32
	VolumeMounts []corev1.VolumeMount `json:"volumeMounts,omitempty"`
	// AccessLogFile is the path of a file to write the access log to instead of standard output. It must be within a writable volume. The file is reopened
	// after it was renamed.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:Pattern=`^/[^$]+$`
	AccessLogFile string `json:"accessLogFile,omitempty"`
	// AccessLogCollector is the URL of an OpenTelemetry collector to send the access log to by OTLP over HTTP instead of writing it to standard output, such
	// as http://collector.observability.svc:4318. It cannot be used together with accessLogFile.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:Pattern=`^https?://[^$@?# ]+$`
	AccessLogCollector string `json:"accessLogCollector,omitempty"`
	// PlatformUser lets the cluster choose the user and group that the proxies run as. OpenShift assigns each namespace its own, and rejects pods that specify others.
	// Default false: user and group 65532.
	//
	// +optional
	PlatformUser bool `json:"platformUser,omitempty"`
	// DeploymentPatch is a strategic merge patch for the Deployment. It is applied last.
	//
	// +optional
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:validation:Type=object
	DeploymentPatch *runtime.RawExtension `json:"deploymentPatch,omitempty"`
	// DaemonSetPatch is a strategic merge patch for the DaemonSet, which is created instead of the Deployment if daemonSet is set. It is applied last.
	//
	// +optional
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:validation:Type=object
	DaemonSetPatch *runtime.RawExtension `json:"daemonSetPatch,omitempty"`
	// Locked are fields that the parameters of a Gateway cannot set: the value of the class is used, or the
	// default if the class has none. The status of the Gateway names the fields that are ignored.
	//
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=32
	Locked []LockedField `json:"locked,omitempty"`
	// Infrastructure defines which labels and annotations of a Gateway's spec.infrastructure are added to which objects. If it is set,
	// only its rules apply. If not, keys without a prefix are added to all objects, and
	// annotations that request an internal load balancer are added to Services.
	//
	// +optional
	Infrastructure *InfrastructureMetadata `json:"infrastructure,omitempty"`
	// DeniedEndpoints are ranges of IP addresses, such as 192.0.2.0/24, that no request is sent to, even if
	// an EndpointSlice has them: for example metadata services, the API server and nodes. Classes share Services and their endpoints,
	// so the ranges of all classes of the controller apply together. Loopback, link-local,
	// multicast and unspecified addresses are always denied.
	//
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MaxLength=64
	DeniedEndpoints []string `json:"deniedEndpoints,omitempty"`
	// AllowedExternalAddresses are ranges of IP addresses, such as 10.20.0.0/16, that requests to an XBackend of type ExternalHostname may be sent to
	// although they are loopback, link-local or private addresses. By default such addresses of a hostname are not used, because the owner of
	// the hostname could make a Gateway connect to what is inside the cluster. The ranges of all classes of the controller apply together.
	// deniedEndpoints take precedence.
	//
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MaxLength=64
	AllowedExternalAddresses []string `json:"allowedExternalAddresses,omitempty"`
}

// Volume is a volume of a pod, with the most common sources. For others use deploymentPatch or daemonSetPatch.
//
// +kubebuilder:validation:XValidation:rule="[has(self.configMap), has(self.secret), has(self.emptyDir), has(self.persistentVolumeClaim), has(self.csi), has(self.hostPath)].exists_one(x, x)",message="exactly one of configMap, secret, emptyDir, persistentVolumeClaim, csi and hostPath must be set"
type Volume struct {
	// Name of the volume. token, ca and state are reserved.
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

// InfrastructureMetadata defines rules for labels and annotations. Keys that no rule allows are left out, and the status of the Gateway
// names them. Keys of moongate.dev and gateway.networking.k8s.io are always left out.
type InfrastructureMetadata struct {
	// +optional
	// +kubebuilder:validation:MaxItems=32
	Labels []MetadataRule `json:"labels,omitempty"`
	// +optional
	// +kubebuilder:validation:MaxItems=32
	Annotations []MetadataRule `json:"annotations,omitempty"`
}

// MetadataRule allows keys on kinds of objects.
type MetadataRule struct {
	// Keys are complete keys, or prefixes of keys followed by "*".
	//
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=318
	Keys []string `json:"keys"`
	// Kinds of the objects. Default: all kinds.
	//
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=8
	Kinds []MetadataKind `json:"kinds,omitempty"`
}

// MetadataKind is a kind of object that is created for a Gateway.
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

// LockedField is a field of the spec of GatewayParameters; service stands for all its fields. replicas also locks
// autoscaling, externalAutoscaler and daemonSet. service.loadBalancerClass and service.loadBalancerSourceRanges also lock service.type,
// because they only exist for type LoadBalancer.
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

// Conditions and reasons of the status.
const (
	// ConditionAccepted is True if the parameters can be used.
	ConditionAccepted = "Accepted"
	// ReasonAccepted goes with Accepted=True.
	ReasonAccepted = "Accepted"
	// ReasonInvalid goes with Accepted=False; the message names each field and what to do about it.
	ReasonInvalid = "Invalid"
)

// GatewayParametersStatus defines the observed state of GatewayParameters.
type GatewayParametersStatus struct {
	// Conditions: Accepted, with reason Accepted or Invalid.
	//
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=8
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}
