package parameters

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/moongate-dev/moongate/api/v1alpha1"
)

// Unlocked returns a Gateway's own parameters without the fields that its class locks, and the paths of those locked fields whose
// values differ from the class's; nil means none. own is not modified.
func Unlocked(class, own *v1alpha1.GatewayParametersSpec) (rest *v1alpha1.GatewayParametersSpec, refused []string) {
	if class == nil || class.ClassOnly == nil || len(class.ClassOnly.Locked) == 0 || own == nil {
		return own, nil
	}
	l := locks{fields: class.ClassOnly.Locked}
	out := *own
	// Each of them replaces all of the class's.
	if l.has(v1alpha1.LockReplicas) {
		clearField(&l, "spec.replicas", &out.Replicas, class.Replicas)
		clearField(&l, "spec.autoscaling", &out.Autoscaling, class.Autoscaling)
		clearField(&l, "spec.externalAutoscaler", &out.ExternalAutoscaler, class.ExternalAutoscaler)
		clearField(&l, "spec.daemonSet", &out.DaemonSet, class.DaemonSet)
	}
	if l.has(v1alpha1.LockDisruptionBudget) {
		clearField(&l, "spec.disruptionBudget", &out.DisruptionBudget, class.DisruptionBudget)
	}
	if l.has(v1alpha1.LockResources) {
		clearField(&l, "spec.resources", &out.Resources, class.Resources)
	}
	if own.Service != nil {
		service := *own.Service
		l.service(&service, cmp.Or(class.Service, &v1alpha1.Service{}))
		out.Service = &service
		if equality.Semantic.DeepEqual(service, v1alpha1.Service{}) {
			out.Service = nil
		}
	}
	if l.has(v1alpha1.LockLogLevel) {
		clearField(&l, "spec.logLevel", &out.LogLevel, class.LogLevel)
	}
	if l.has(v1alpha1.LockAccessLog) {
		clearField(&l, "spec.accessLog", &out.AccessLog, class.AccessLog)
	}
	if l.has(v1alpha1.LockAccessLog, v1alpha1.LockAccessLogOptions) { // a log without lines is as good as disabled
		clearField(&l, "spec.accessLogOptions", &out.AccessLogOptions, class.AccessLogOptions)
	}
	if l.has(v1alpha1.LockRequestIDs) {
		clearField(&l, "spec.requestIDs", &out.RequestIDs, class.RequestIDs)
	}
	if l.has(v1alpha1.LockShutdownDelay) {
		clearField(&l, "spec.shutdownDelay", &out.ShutdownDelay, class.ShutdownDelay)
	}
	if l.has(v1alpha1.LockDrainTimeout) {
		clearField(&l, "spec.drainTimeout", &out.DrainTimeout, class.DrainTimeout)
	}
	if l.has(v1alpha1.LockTrustedProxies) {
		clearField(&l, "spec.trustedProxies", &out.TrustedProxies, class.TrustedProxies)
	}
	if l.has(v1alpha1.LockPorts) {
		clearField(&l, "spec.ports", &out.Ports, class.Ports)
	}
	if l.has(v1alpha1.LockListeners) {
		clearField(&l, "spec.listeners", &out.Listeners, class.Listeners)
	}
	return &out, l.refused
}

type locks struct {
	fields  []v1alpha1.LockedField
	refused []string
}

// has reports whether any of the fields is locked.
func (l *locks) has(any ...v1alpha1.LockedField) bool {
	return slices.ContainsFunc(any, func(f v1alpha1.LockedField) bool { return slices.Contains(l.fields, f) })
}

// service clears the locked fields of a Gateway's service.
func (l *locks) service(own, class *v1alpha1.Service) {
	all := v1alpha1.LockService
	if l.has(all, v1alpha1.LockServiceType, v1alpha1.LockLoadBalancerClass, v1alpha1.LockLoadBalancerSourceRanges) {
		if own.Type == cmp.Or(class.Type, corev1.ServiceTypeLoadBalancer) {
			own.Type = class.Type // it equals the default
		}
		clearField(l, "spec.service.type", &own.Type, class.Type)
	}
	if l.has(all, v1alpha1.LockLoadBalancerClass) {
		clearField(l, "spec.service.loadBalancerClass", &own.LoadBalancerClass, class.LoadBalancerClass)
	}
	if l.has(all, v1alpha1.LockLoadBalancerSourceRanges) {
		clearField(l, "spec.service.loadBalancerSourceRanges", &own.LoadBalancerSourceRanges, class.LoadBalancerSourceRanges)
	}
	if l.has(all, v1alpha1.LockExternalTrafficPolicy) {
		clearField(l, "spec.service.externalTrafficPolicy", &own.ExternalTrafficPolicy, class.ExternalTrafficPolicy)
	}
	if l.has(all, v1alpha1.LockIPFamilyPolicy) {
		clearField(l, "spec.service.ipFamilyPolicy", &own.IPFamilyPolicy, class.IPFamilyPolicy)
	}
	if l.has(all, v1alpha1.LockIPFamilies) {
		clearField(l, "spec.service.ipFamilies", &own.IPFamilies, class.IPFamilies)
	}
	if l.has(all, v1alpha1.LockNodePorts) {
		clearField(l, "spec.service.nodePorts", &own.NodePorts, class.NodePorts)
	}
}

// clearField clears a locked field and records it if it would have changed the value of the class.
func clearField[T any](l *locks, field string, own *T, class T) {
	var unset T
	if !equality.Semantic.DeepEqual(*own, unset) && !equality.Semantic.DeepEqual(*own, class) {
		l.refused = append(l.refused, field)
	}
	*own = unset
}
