package v1alpha1

import (
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"
)

// LoadBalancer configures how endpoints are chosen.
//
// +kubebuilder:validation:XValidation:rule="self.type == 'ConsistentHash' ? has(self.consistentHash) : !has(self.consistentHash)",message="consistentHash must be set exactly where type is ConsistentHash"
// +kubebuilder:validation:XValidation:rule="self.type == 'BackendUtilization' ? has(self.backendUtilization) : !has(self.backendUtilization)",message="backendUtilization must be set exactly where type is BackendUtilization"
// +kubebuilder:validation:XValidation:rule="self.type == 'DynamicModule' ? has(self.dynamicModule) : !has(self.dynamicModule)",message="dynamicModule must be set exactly where type is DynamicModule"
// +kubebuilder:validation:XValidation:rule="self.type in ['Random', 'ConsistentHash', 'DynamicModule'] ? !has(self.slowStart) : true",message="slowStart is for the types RoundRobin, LeastRequest and BackendUtilization"
// +kubebuilder:validation:XValidation:rule="self.type in ['ConsistentHash', 'BackendUtilization'] && has(self.zoneAware) ? !has(self.zoneAware.preferLocal) : true",message="zoneAware.preferLocal is for the types RoundRobin, LeastRequest and Random"
// +kubebuilder:validation:XValidation:rule="self.type == 'DynamicModule' ? !has(self.zoneAware) && !has(self.endpointOverride) : true",message="zoneAware and endpointOverride cannot be set where type is DynamicModule"
// +kubebuilder:validation:XValidation:rule="has(self.zoneAware) ? !(has(self.zoneAware.preferLocal) && has(self.zoneAware.weightedZones)) : true",message="zoneAware.preferLocal and zoneAware.weightedZones cannot both be set"
type LoadBalancer struct {
	// Type is the load balancing algorithm.
	//
	// +kubebuilder:validation:Enum=ConsistentHash;LeastRequest;Random;RoundRobin;BackendUtilization;DynamicModule
	Type LoadBalancerType `json:"type"`

	// ConsistentHash specifies what is hashed. Requests with the same hash go to the same endpoint.
	//
	// +optional
	ConsistentHash *ConsistentHash `json:"consistentHash,omitempty"`

	// BackendUtilization weights endpoints by the load that they report.
	//
	// +optional
	BackendUtilization *BackendUtilization `json:"backendUtilization,omitempty"`

	// DynamicModule is not supported.
	//
	// +optional
	DynamicModule *DynamicModuleLB `json:"dynamicModule,omitempty"`

	// EndpointOverride lets requests name their endpoint.
	//
	// +optional
	EndpointOverride *EndpointOverride `json:"endpointOverride,omitempty"`

	// SlowStart increases the share of a new endpoint gradually.
	//
	// +optional
	SlowStart *SlowStart `json:"slowStart,omitempty"`

	// ZoneAware takes zones into account.
	//
	// +optional
	ZoneAware *ZoneAware `json:"zoneAware,omitempty"`
}

// LoadBalancerType is a load balancing algorithm.
type LoadBalancerType string

// The values of LoadBalancerType.
const (
	ConsistentHashLoadBalancer     LoadBalancerType = "ConsistentHash"
	LeastRequestLoadBalancer       LoadBalancerType = "LeastRequest"
	RandomLoadBalancer             LoadBalancerType = "Random"
	RoundRobinLoadBalancer         LoadBalancerType = "RoundRobin"
	BackendUtilizationLoadBalancer LoadBalancerType = "BackendUtilization"
	DynamicModuleLoadBalancer      LoadBalancerType = "DynamicModule"
)

// ConsistentHash specifies what is hashed.
//
// +kubebuilder:validation:XValidation:rule="self.type == 'Header' ? has(self.header) : !has(self.header)",message="header must be set exactly where type is Header"
// +kubebuilder:validation:XValidation:rule="self.type == 'Headers' ? has(self.headers) : !has(self.headers)",message="headers must be set exactly where type is Headers"
// +kubebuilder:validation:XValidation:rule="self.type == 'Cookie' ? has(self.cookie) : !has(self.cookie)",message="cookie must be set exactly where type is Cookie"
// +kubebuilder:validation:XValidation:rule="self.type == 'QueryParams' ? has(self.queryParams) : !has(self.queryParams)",message="queryParams must be set exactly where type is QueryParams"
type ConsistentHash struct {
	// Type specifies which part of a request is hashed.
	//
	// +kubebuilder:validation:Enum=SourceIP;Header;Headers;Cookie;QueryParams
	Type string `json:"type"`

	// Header is a header to hash. Deprecated: use headers.
	//
	// +optional
	Header *Named `json:"header,omitempty"`

	// Headers are headers that are hashed together.
	//
	// +optional
	Headers []*Named `json:"headers,omitempty"`

	// Cookie is a cookie to hash. Clients without the cookie are sent one.
	//
	// +optional
	Cookie *Cookie `json:"cookie,omitempty"`

	// QueryParams are query parameters that are hashed together.
	//
	// +optional
	QueryParams []*Named `json:"queryParams,omitempty"`

	// TableSize is the size of the Maglev table, a prime number. Defaults to 65537.
	//
	// +optional
	// +kubebuilder:validation:Minimum=2
	// +kubebuilder:validation:Maximum=5000011
	TableSize *int64 `json:"tableSize,omitempty"`
}

// Named refers to a header or query parameter.
type Named struct {
	// Name is the name of the header or parameter.
	Name string `json:"name"`
}

// Cookie is a cookie.
type Cookie struct {
	// Name is the name of the cookie.
	Name string `json:"name"`

	// TTL is the Max-Age of the cookie. By default it is a session cookie.
	//
	// +optional
	TTL *gwv1.Duration `json:"ttl,omitempty"`

	// Attributes are further attributes of the cookie.
	//
	// +optional
	Attributes map[string]string `json:"attributes,omitempty"`
}

// BackendUtilization weights endpoints by their request rate divided by their utilization, as reported by the endpoints (ORCA).
type BackendUtilization struct {
	// BlackoutPeriod is how long an endpoint must have reported before its reports are used. Defaults to 10s.
	//
	// +optional
	BlackoutPeriod *gwv1.Duration `json:"blackoutPeriod,omitempty"`

	// WeightExpirationPeriod is the time after which a report is no longer used. Defaults to 3m.
	//
	// +optional
	WeightExpirationPeriod *gwv1.Duration `json:"weightExpirationPeriod,omitempty"`

	// WeightUpdatePeriod is how often weights are computed, at least 100ms. Defaults to 1s.
	//
	// +optional
	WeightUpdatePeriod *gwv1.Duration `json:"weightUpdatePeriod,omitempty"`

	// ErrorUtilizationPenaltyPercent is how much the error rate adds to the utilization.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	ErrorUtilizationPenaltyPercent *int32 `json:"errorUtilizationPenaltyPercent,omitempty"`

	// MetricNamesForComputingUtilization are used if an endpoint does not report application_utilization.
	//
	// +optional
	MetricNamesForComputingUtilization []string `json:"metricNamesForComputingUtilization,omitempty"`

	// KeepResponseHeaders passes the reports on to clients. Defaults to false.
	//
	// +optional
	KeepResponseHeaders *bool `json:"keepResponseHeaders,omitempty"`

	// OutOfBand requests reports from endpoints over a separate stream instead of reading them from responses.
	//
	// +optional
	OutOfBand *OutOfBandReporting `json:"outOfBand,omitempty"`
}

// OutOfBandReporting requests reports from endpoints over a separate stream.
type OutOfBandReporting struct {
	// ReportingPeriod is the interval between reports. Defaults to 10s.
	//
	// +optional
	// +kubebuilder:validation:XValidation:rule="duration(self) > duration('0s')",message="reportingPeriod must be greater than 0s"
	ReportingPeriod *gwv1.Duration `json:"reportingPeriod,omitempty"`

	// Port is the port of the stream. Defaults to that of the endpoint.
	//
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	Port *int32 `json:"port,omitempty"`

	// Authority is the authority of the stream.
	//
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=259
	// +kubebuilder:validation:Pattern=`^[^\x00\n\r]*$`
	Authority *string `json:"authority,omitempty"`
}

// DynamicModuleLB is not supported.
type DynamicModuleLB struct {
	// Name is the name of a module.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`

	// LBPolicyName is the name of a policy of the module.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	LBPolicyName string `json:"lbPolicyName"`

	// Config is the configuration of the module.
	//
	// +optional
	Config *apiextensionsv1.JSON `json:"config,omitempty"`
}

// EndpointOverride lets requests name their endpoint.
type EndpointOverride struct {
	// ExtractFrom lists where the endpoint is named. The first usable endpoint is used.
	//
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=10
	ExtractFrom []EndpointOverrideExtractFrom `json:"extractFrom"`
}

// EndpointOverrideExtractFrom specifies where the endpoint is named.
type EndpointOverrideExtractFrom struct {
	// Header is a request header with an IP address and port, or several separated by commas.
	//
	// +optional
	Header *string `json:"header,omitempty"`
}

// SlowStart increases the share of a new endpoint gradually.
type SlowStart struct {
	// Window is the time until a new endpoint has its full share.
	Window *gwv1.Duration `json:"window"`
}

// ZoneAware takes zones into account.
type ZoneAware struct {
	// PreferLocal keeps requests in the zone of the proxy.
	//
	// +optional
	PreferLocal *PreferLocalZone `json:"preferLocal,omitempty"`

	// WeightedZones assigns weights to zones.
	//
	// +optional
	// +listType=map
	// +listMapKey=zone
	WeightedZones []WeightedZoneConfig `json:"weightedZones,omitempty"`
}

// PreferLocalZone keeps requests in the zone of the proxy.
type PreferLocalZone struct {
	// Force keeps all requests in the zone, as long as it has endpoints.
	//
	// +optional
	Force *ForceLocalZone `json:"force,omitempty"`

	// MinEndpointsThreshold is the number of endpoints below which zones are ignored. Defaults to 6.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	MinEndpointsThreshold *int64 `json:"minEndpointsThreshold,omitempty"`

	// PercentageEnabled is the percentage of requests for which zones are taken into account. Defaults to 100.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	PercentageEnabled *int32 `json:"percentageEnabled,omitempty"`
}

// ForceLocalZone keeps all requests in the zone of the proxy.
type ForceLocalZone struct {
	// MinEndpointsInZoneThreshold is the number of endpoints that the zone must have. Defaults to 1.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	MinEndpointsInZoneThreshold *int32 `json:"minEndpointsInZoneThreshold,omitempty"`
}

// WeightedZoneConfig assigns a weight to a zone.
type WeightedZoneConfig struct {
	// Zone is the value of the label topology.kubernetes.io/zone.
	Zone string `json:"zone"`

	// Weight is the weight of the zone. 0 means no requests while an endpoint of another zone is healthy. Zones that are not listed have weight 1.
	//
	// +kubebuilder:validation:Minimum=0
	Weight int32 `json:"weight"`
}
