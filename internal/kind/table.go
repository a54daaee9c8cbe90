package kind

import (
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"
	apisx "sigs.k8s.io/gateway-api/apisx/v1alpha1"

	eg "github.com/moongate-dev/moongate/api/envoygateway/v1alpha1"
	gwx "github.com/moongate-dev/moongate/api/gatewayx/v1alpha1"
	"github.com/moongate-dev/moongate/api/v1alpha1"
)

// The kinds: a new kind is a row here.
var (
	ConfigMap     = builtin[corev1.ConfigMap](Kind{Name: "ConfigMap", Resource: "configmaps", Namespaced: true, Cluster: Watched, Essential: true, keep: keepConfigMap}, nil)
	Namespace     = builtin[corev1.Namespace](Kind{Name: "Namespace", Resource: "namespaces", Cluster: WatchedMetadata, Essential: true, NameRule: validation.NameIsDNSLabel, keep: keepNamespace}, clearNamespace)
	Secret        = builtin[corev1.Secret](Kind{Name: "Secret", Resource: "secrets", Namespaced: true, Cluster: Fetched, keep: keepSecret, leftover: nothing}, nil)
	Service       = builtin[corev1.Service](Kind{Name: "Service", Resource: "services", Namespaced: true, Cluster: Watched, Essential: true, NameRule: validation.NameIsDNS1035Label, keep: keepService}, clearService)
	EndpointSlice = builtin[discoveryv1.EndpointSlice](Kind{Group: discoveryv1.GroupName, Name: "EndpointSlice", Resource: "endpointslices", Namespaced: true, Cluster: Watched, Essential: true, keep: keepEndpointSlice}, nil)

	// A cluster may serve no version of it, or an older one (KEP-3257).
	ClusterTrustBundle = optional[certificatesv1.ClusterTrustBundle](Kind{Group: certificatesv1.GroupName, Name: "ClusterTrustBundle", Resource: "clustertrustbundles",
		Versions: []string{"v1", "v1beta1", "v1alpha1"}, Cluster: Watched, NameRule: trustBundleName, keep: keepClusterTrustBundle}, &certificatesv1.ClusterTrustBundleList{})

	GatewayClass = custom(Kind{Name: "GatewayClass", Resource: "gatewayclasses", ShortName: "gc", Versions: []string{"v1", "v1beta1"}, Essential: true, Finalizer: true},
		&gwv1.GatewayClassList{}, func(o *gwv1.GatewayClass) *gwv1.GatewayClassStatus { return &o.Status })
	Gateway = custom(Kind{Name: "Gateway", Resource: "gateways", ShortName: "gtw", Versions: []string{"v1", "v1beta1"}, Namespaced: true, Essential: true},
		&gwv1.GatewayList{}, func(o *gwv1.Gateway) *gwv1.GatewayStatus { return &o.Status })
	ListenerSet = custom(Kind{Name: "ListenerSet", Resource: "listenersets", ShortName: "lset", Versions: []string{"v1"}, Namespaced: true, Essential: true},
		&gwv1.ListenerSetList{}, func(o *gwv1.ListenerSet) *gwv1.ListenerSetStatus { return &o.Status })
	// An upgraded cluster may still have them (GEP-1713 in its first form); they have the same meaning.
	XListenerSet = custom(Kind{Group: gwx.GroupName, Name: "XListenerSet", Resource: "xlistenersets", Versions: []string{gwx.GroupVersion.Version}, Namespaced: true, Essential: true},
		&gwx.XListenerSetList{}, func(o *gwx.XListenerSet) *gwx.ListenerSetStatus { return &o.Status })
	ReferenceGrant = custom[gwv1.ReferenceGrant, struct{}](Kind{Name: "ReferenceGrant", Resource: "referencegrants", ShortName: "refgrant", Versions: []string{"v1", "v1beta1"}, Namespaced: true, Essential: true},
		&gwv1.ReferenceGrantList{}, nil)
	// Without them the addresses that a class denies would be allowed.
	GatewayParameters = custom(Kind{Group: v1alpha1.GroupName, Name: "GatewayParameters", Resource: "gatewayparameters", ShortName: "gwparams", Versions: []string{v1alpha1.GroupVersion.Version},
		Namespaced: true, Essential: true, leftover: parametersLeftover},
		&v1alpha1.GatewayParametersList{}, func(o *v1alpha1.GatewayParameters) *v1alpha1.GatewayParametersStatus { return &o.Status })
	HTTPFilter = custom[v1alpha1.HTTPFilter, struct{}](Kind{Group: v1alpha1.GroupName, Name: "HTTPFilter", Resource: "httpfilters", Versions: []string{v1alpha1.GroupVersion.Version}, Namespaced: true, Essential: true},
		&v1alpha1.HTTPFilterList{}, nil)

	HTTPRoute = route(Kind{Name: "HTTPRoute", Resource: "httproutes", Versions: []string{"v1", "v1beta1"}, Essential: true}, &gwv1.HTTPRouteList{},
		func(o *gwv1.HTTPRoute) (*gwv1.CommonRouteSpec, *gwv1.RouteStatus) {
			return &o.Spec.CommonRouteSpec, &o.Status.RouteStatus
		})
	GRPCRoute = route(Kind{Name: "GRPCRoute", Resource: "grpcroutes", Versions: []string{"v1"}, Past: []string{"v1alpha2"}, Essential: true}, &gwv1.GRPCRouteList{},
		func(o *gwv1.GRPCRoute) (*gwv1.CommonRouteSpec, *gwv1.RouteStatus) {
			return &o.Spec.CommonRouteSpec, &o.Status.RouteStatus
		})
	TLSRoute = route(Kind{Name: "TLSRoute", Resource: "tlsroutes", Versions: []string{"v1", "v1alpha3", "v1alpha2"}, Essential: true}, &gwv1.TLSRouteList{},
		func(o *gwv1.TLSRoute) (*gwv1.CommonRouteSpec, *gwv1.RouteStatus) {
			return &o.Spec.CommonRouteSpec, &o.Status.RouteStatus
		})
	TCPRoute = route(Kind{Name: "TCPRoute", Resource: "tcproutes", Versions: []string{"v1", "v1alpha2"}, Essential: true}, &gwv1.TCPRouteList{},
		func(o *gwv1.TCPRoute) (*gwv1.CommonRouteSpec, *gwv1.RouteStatus) {
			return &o.Spec.CommonRouteSpec, &o.Status.RouteStatus
		})
	UDPRoute = route(Kind{Name: "UDPRoute", Resource: "udproutes", Versions: []string{"v1", "v1alpha2"}, Essential: true}, &gwv1.UDPRouteList{},
		func(o *gwv1.UDPRoute) (*gwv1.CommonRouteSpec, *gwv1.RouteStatus) {
			return &o.Spec.CommonRouteSpec, &o.Status.RouteStatus
		})

	BackendTLSPolicy = policy(Kind{Name: "BackendTLSPolicy", Resource: "backendtlspolicies", ShortName: "btlspolicy", Versions: []string{"v1", "v1alpha3"}, Essential: true, leftover: policyTargets},
		&gwv1.BackendTLSPolicyList{}, func(o *gwv1.BackendTLSPolicy) *gwv1.PolicyStatus { return &o.Status })
	// The Go type also has the fields of versions before v1.7.0.
	XBackendTrafficPolicy = policy(Kind{Group: gwx.GroupName, Name: "XBackendTrafficPolicy", Resource: "xbackendtrafficpolicies", ShortName: "xbtrafficpolicy", Versions: []string{gwx.GroupVersion.Version}, Essential: true},
		&gwx.XBackendTrafficPolicyList{}, func(o *gwx.XBackendTrafficPolicy) *gwv1.PolicyStatus { return &o.Status })
	// Of another project, whose CRD a cluster may have instead of Moongate's.
	BackendTrafficPolicy = policy(Kind{Group: eg.GroupName, Name: "BackendTrafficPolicy", Resource: "backendtrafficpolicies", ShortName: "btp", Versions: []string{eg.GroupVersion.Version}, Essential: true,
		leftover: trafficPolicyTargets},
		&eg.BackendTrafficPolicyList{}, func(o *eg.BackendTrafficPolicy) *gwv1.PolicyStatus { return &o.Status })
	// Its status has the fields of that of every policy.
	XTelemetryPolicy = policy(Kind{Group: gwx.GroupName, Name: "XTelemetryPolicy", Resource: "xtelemetrypolicies", Versions: []string{gwx.GroupVersion.Version}, Essential: true},
		&apisx.XTelemetryPolicyList{}, func(o *apisx.XTelemetryPolicy) *gwv1.PolicyStatus { return (*gwv1.PolicyStatus)(&o.Status) })
	XBackend = backend(Kind{Group: gwx.GroupName, Name: "XBackend", Resource: "xbackends", Versions: []string{gwx.GroupVersion.Version}, Essential: true},
		&apisx.XBackendList{}, func(o *apisx.XBackend) *apisx.BackendStatus { return &o.Status })
)
