package parameters

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/moongate-dev/moongate/api/v1alpha1"
	"github.com/moongate-dev/moongate/internal/accesslog"
)

// Merge merges a Gateway's own parameters onto its class's, field by field, and those of service one by one; nil means none. If the
// Gateway sets one of replicas, autoscaling, externalAutoscaler and daemonSet, it replaces all of these of the class; with daemonSet
// there is no disruptionBudget. Of service, only fields that its type can have are kept, so that a Gateway's type can be combined
// with a class's other fields. ClassOnly is always that of the class. The result shares values with both, which must not be
// modified. Merge ignores locks: own must be the result of Unlocked.
func Merge(class, own *v1alpha1.GatewayParametersSpec) v1alpha1.GatewayParametersSpec {
	var out v1alpha1.GatewayParametersSpec
	if class != nil {
		out = *class
	}
	if own == nil {
		own = &v1alpha1.GatewayParametersSpec{}
	}
	if own.Replicas != nil || own.Autoscaling != nil || own.ExternalAutoscaler || own.DaemonSet {
		out.Replicas, out.Autoscaling, out.ExternalAutoscaler, out.DaemonSet = own.Replicas, own.Autoscaling, own.ExternalAutoscaler, own.DaemonSet
	}
	out.DisruptionBudget = cmp.Or(own.DisruptionBudget, out.DisruptionBudget)
	if out.DaemonSet {
		out.DisruptionBudget = nil
	}
	out.Resources = cmp.Or(own.Resources, out.Resources)
	out.Service = mergeService(out.Service, own.Service)
	out.LogLevel = cmp.Or(own.LogLevel, out.LogLevel)
	out.AccessLog = cmp.Or(own.AccessLog, out.AccessLog)
	out.AccessLogOptions = mergeAccessLogOptions(out.AccessLogOptions, own.AccessLogOptions)
	out.RequestIDs = cmp.Or(own.RequestIDs, out.RequestIDs)
	out.ShutdownDelay = cmp.Or(own.ShutdownDelay, out.ShutdownDelay)
	out.DrainTimeout = cmp.Or(own.DrainTimeout, out.DrainTimeout)
	if len(own.TrustedProxies) > 0 {
		out.TrustedProxies = own.TrustedProxies
	}
	if len(own.Ports) > 0 {
		out.Ports = own.Ports
	}
	if len(own.Listeners) > 0 {
		out.Listeners = own.Listeners
	}
	return out
}

func mergeService(class, own *v1alpha1.Service) *v1alpha1.Service {
	if class == nil || own == nil {
		return cmp.Or(own, class) // if only one is set, its fields are kept
	}
	out := *class
	out.Type = cmp.Or(own.Type, out.Type)
	out.LoadBalancerClass = cmp.Or(own.LoadBalancerClass, out.LoadBalancerClass)
	if len(own.LoadBalancerSourceRanges) > 0 {
		out.LoadBalancerSourceRanges = own.LoadBalancerSourceRanges
	}
	out.ExternalTrafficPolicy = cmp.Or(own.ExternalTrafficPolicy, out.ExternalTrafficPolicy)
	out.IPFamilyPolicy = cmp.Or(own.IPFamilyPolicy, out.IPFamilyPolicy)
	if len(own.IPFamilies) > 0 {
		out.IPFamilies = own.IPFamilies
	}
	if len(own.NodePorts) > 0 {
		out.NodePorts = own.NodePorts
	}
	if t := cmp.Or(out.Type, corev1.ServiceTypeLoadBalancer); t != corev1.ServiceTypeLoadBalancer {
		out.LoadBalancerClass, out.LoadBalancerSourceRanges = nil, nil
	}
	if out.Type == corev1.ServiceTypeClusterIP {
		out.ExternalTrafficPolicy, out.NodePorts = "", nil
	}
	return &out
}

// mergeAccessLogOptions replaces the class's options as a whole, except for redaction: the query parameters that either of them redacts
// are redacted, or all parameters if these are more than accesslog.MaxRedacted.
func mergeAccessLogOptions(class, own *v1alpha1.AccessLogOptions) *v1alpha1.AccessLogOptions {
	if own == nil || class == nil || len(class.RedactQueryParameters) == 0 {
		return cmp.Or(own, class)
	}
	out := *own
	out.RedactQueryParameters = slices.Clone(class.RedactQueryParameters)
	for _, name := range own.RedactQueryParameters {
		if !slices.Contains(out.RedactQueryParameters, name) {
			out.RedactQueryParameters = append(out.RedactQueryParameters, name)
		}
	}
	if len(out.RedactQueryParameters) > accesslog.MaxRedacted {
		out.RedactQueryParameters = []string{"*"}
	}
	return &out
}
