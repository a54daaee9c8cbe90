package v1alpha1

import (
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"
)

// LoadBalancer is how an endpoint is chosen.
//
// +kubebuilder:validation:XValidation:rule="self.type == 'ConsistentHash' ? has(self.consistentHash) : !has(self.consistentHash)",message="consistentHash must be set exactly where type is ConsistentHash"
// +kubebuilder:validation:XValidation:rule="self.type == 'BackendUtilization' ? has(self.backendUtilization) : !has(self.backendUtilization)",message="backendUtilization must be set exactly where type is BackendUtilization"
// +kubebuilder:validation:XValidation:rule="self.type == 'DynamicModule' ? has(self.dynamicModule) : !has(self.dynamicModule)",message="dynamicModule must be set exactly where type is DynamicModule"
// +kubebuilder:validation:XValidation:rule="self.type in ['Random', 'ConsistentHash', 'DynamicModule'] ? !has(self.slowStart) : true",message="slowStart is for the types RoundRobin, LeastRequest and BackendUtilization"
// +kubebuilder:validation:XValidation:rule="self.type in ['ConsistentHash', 'BackendUtilization'] && has(self.zoneAware) ? !has(self.zoneAware.preferLocal) : true",message="zoneAware.preferLocal is for the types RoundRobin, LeastRequest and Random"
// +kubebuilder:validation:XValidation:rule="self.type == 'DynamicModule' ? !has(self.zoneAware) && !has(self.endpointOverride) : true",message="zoneAware and endpointOverride cannot be set where type is DynamicModule"
// +kubebuilder:validation:XValidation:rule="has(self.zoneAware) ? !(has(self.zoneAware.preferLocal) && has(self.zoneAware.weightedZones)) : true",message="zoneAware.preferLocal and zoneAware.weightedZones cannot both be set"
type LoadBalancer struct {
	// Type is the algorithm.
	//
	// +kubebuilder:validation:Enum=ConsistentHash;LeastRequest;Random;RoundRobin;BackendUtilization;DynamicModule
	Type LoadBalancerType `json:"type"`

	// ConsistentHash is what makes requests equal, which go to the same endpoint then.
	//
	// +optional
	ConsistentHash *ConsistentHash `json:"consistentHash,omitempty"`

	// BackendUtilization weighs endpoints by what they report of themselves.
	//
	// +optional
	BackendUtilization *BackendUtilization `json:"backendUtilization,omitempty"`

	// DynamicModule is not supported.
	//
	// +optional
	DynamicModule *DynamicModuleLB `json:"dynamicModule,omitempty"`

	// EndpointOverride has requests name their endpoint.
	//
	// +optional
	EndpointOverride *EndpointOverride `json:"endpointOverride,omitempty"`

	// SlowStart has the share of a new endpoint grow.
	//
	// +optional
	SlowStart *SlowStart `json:"slowStart,omitempty"`

	// ZoneAware has zones count.
	//
	// +optional
	ZoneAware *ZoneAware `json:"zoneAware,omitempty"`
}

// LoadBalancerType is an algorithm.
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

// ConsistentHash is what makes requests equal.
//
// +kubebuilder:validation:XValidation:rule="self.type == 'Header' ? has(self.header) : !has(self.header)",message="header must be set exactly where type is Header"
// +kubebuilder:validation:XValidation:rule="self.type == 'Headers' ? has(self.headers) : !has(self.headers)",message="headers must be set exactly where type is Headers"
// +kubebuilder:validation:XValidation:rule="self.type == 'Cookie' ? has(self.cookie) : !has(self.cookie)",message="cookie must be set exactly where type is Cookie"
// +kubebuilder:validation:XValidation:rule="self.type == 'QueryParams' ? has(self.queryParams) : !has(self.queryParams)",message="queryParams must be set exactly where type is QueryParams"
type ConsistentHash struct {
	// Type is what of a request.
	//
	// +kubebuilder:validation:Enum=SourceIP;Header;Headers;Cookie;QueryParams
	Type string `json:"type"`

	// Header is one header. Write headers instead.
	//
	// +optional
	Header *Named `json:"header,omitempty"`

	// Headers are headers, all of them together.
	//
	// +optional
	Headers []*Named `json:"headers,omitempty"`

	// Cookie is a cookie, which clients that have none are sent.
	//
	// +optional
	Cookie *Cookie `json:"cookie,omitempty"`

	// QueryParams are query parameters, all of them together.
	//
	// +optional
	QueryParams []*Named `json:"queryParams,omitempty"`

	// TableSize is that of Maglev's table, a prime.
	//
	// +optional
	// +kubebuilder:validation:Minimum=2
	// +kubebuilder:validation:Maximum=5000011
	// +kubebuilder:default=65537
	TableSize *int64 `json:"tableSize,omitempty"`
}

// Named is a header or a query parameter.
type Named struct {
	// Name is its name.
	Name string `json:"name"`
}

// Cookie is a cookie.
type Cookie struct {
	// Name is its name.
	Name string `json:"name"`

	// TTL is its Max-Age; unset, it lasts until the client ends.
	//
	// +optional
	TTL *gwv1.Duration `json:"ttl,omitempty"`

	// Attributes are further ones.
	//
	// +optional
	Attributes map[string]string `json:"attributes,omitempty"`
}

// BackendUtilization weighs endpoints by requests in time over utilization, as they report both (ORCA).
type BackendUtilization struct {
	// BlackoutPeriod is how long an endpoint has reported before that counts; unset is 10s.
	//
	// +optional
	BlackoutPeriod *gwv1.Duration `json:"blackoutPeriod,omitempty"`

	// WeightExpirationPeriod is after which a report does not count any more; unset is 3m.
	//
	// +optional
	WeightExpirationPeriod *gwv1.Duration `json:"weightExpirationPeriod,omitempty"`

	// WeightUpdatePeriod is how often weights are computed, at least 100ms; unset is 1s.
	//
	// +optional
	WeightUpdatePeriod *gwv1.Duration `json:"weightUpdatePeriod,omitempty"`

	// ErrorUtilizationPenaltyPercent is how much the share of errors adds to the utilization.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	ErrorUtilizationPenaltyPercent *int32 `json:"errorUtilizationPenaltyPercent,omitempty"`

	// MetricNamesForComputingUtilization are used where an endpoint reports no application_utilization.
	//
	// +optional
	MetricNamesForComputingUtilization []string `json:"metricNamesForComputingUtilization,omitempty"`

	// KeepResponseHeaders has clients get the reports, too.
	//
	// +optional
	// +kubebuilder:default=false
	KeepResponseHeaders *bool `json:"keepResponseHeaders,omitempty"`

	// OutOfBand has endpoints asked for reports by a stream of their own, and not read from responses.
	//
	// +optional
	OutOfBand *OutOfBandReporting `json:"outOfBand,omitempty"`
}

// OutOfBandReporting asks endpoints for reports.
type OutOfBandReporting struct {
	// ReportingPeriod is how often they report; unset is 10s.
	//
	// +optional
	// +kubebuilder:validation:XValidation:rule="duration(self) > duration('0s')",message="reportingPeriod must be greater than 0s"
	ReportingPeriod *gwv1.Duration `json:"reportingPeriod,omitempty"`

	// Port is where; unset is the endpoint's own.
	//
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	Port *int32 `json:"port,omitempty"`

	// Authority is what they are addressed by.
	//
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=259
	// +kubebuilder:validation:Pattern=`^[^\x00\n\r]*$`
	Authority *string `json:"authority,omitempty"`
}

// DynamicModuleLB is not supported.
type DynamicModuleLB struct {
	// Name is that of a module.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`

	// LBPolicyName is what of the module.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	LBPolicyName string `json:"lbPolicyName"`

	// Config is the module's.
	//
	// +optional
	Config *apiextensionsv1.JSON `json:"config,omitempty"`
}

// EndpointOverride has requests name their endpoint.
type EndpointOverride struct {
	// ExtractFrom is where it is named; the first that names a usable endpoint counts.
	//
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=10
	ExtractFrom []EndpointOverrideExtractFrom `json:"extractFrom"`
}

// EndpointOverrideExtractFrom is where an endpoint is named.
type EndpointOverrideExtractFrom struct {
	// Header is a header of the request, with an IP address and port, or several with commas between.
	//
	// +optional
	Header *string `json:"header,omitempty"`
}

// SlowStart has the share of a new endpoint grow.
type SlowStart struct {
	// Window is how long.
	Window *gwv1.Duration `json:"window"`
}

// ZoneAware has zones count.
type ZoneAware struct {
	// PreferLocal has requests stay in the proxy's own zone.
	//
	// +optional
	PreferLocal *PreferLocalZone `json:"preferLocal,omitempty"`

	// WeightedZones are shares of zones.
	//
	// +optional
	// +listType=map
	// +listMapKey=zone
	WeightedZones []WeightedZoneConfig `json:"weightedZones,omitempty"`
}

// PreferLocalZone has requests stay in the proxy's own zone.
type PreferLocalZone struct {
	// Force has all stay, while the zone has endpoints.
	//
	// +optional
	Force *ForceLocalZone `json:"force,omitempty"`

	// MinEndpointsThreshold is with how few endpoints zones do not count; unset is 6.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	MinEndpointsThreshold *int64 `json:"minEndpointsThreshold,omitempty"`

	// PercentageEnabled is for which percentage of requests zones count; unset is 100.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	PercentageEnabled *int32 `json:"percentageEnabled,omitempty"`
}

// ForceLocalZone has all requests stay in the proxy's own zone.
type ForceLocalZone struct {
	// MinEndpointsInZoneThreshold is how many endpoints the zone must have for that; unset is 1.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	MinEndpointsInZoneThreshold *int32 `json:"minEndpointsInZoneThreshold,omitempty"`
}

// WeightedZoneConfig is the share of a zone.
type WeightedZoneConfig struct {
	// Zone is the value of label topology.kubernetes.io/zone.
	Zone string `json:"zone"`

	// Weight is its share beside the others'; that of zones which are not named is 1.
	//
	// +kubebuilder:validation:Minimum=0
	Weight int32 `json:"weight"`
}
