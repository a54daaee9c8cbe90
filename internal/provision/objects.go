package provision

import (
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/moongate-dev/moongate/api/v1alpha1"
	"github.com/moongate-dev/moongate/internal/translate"
)

// Object is a Kubernetes object.
type Object interface {
	metav1.Object
	runtime.Object
}

// Settings are common to all Gateways.
type Settings struct {
	ControllerName    string // of the managed GatewayClasses
	Image             string // unless the parameters name another
	ControllerAddress string // host:port
	LogFormat         string // "json", or "" for text
	CAPEM             []byte
	// Services are the existing ones of the Gateway; each keeps its address, if it is still wanted.
	Services []*corev1.Service
}

// Objects returns the objects that a ProxySpec needs, in the order in which they must be applied: objects that pods refer to come
// first. A spec without ports needs no Service, and removes none. The error is one in the parameters.
func Objects(spec *translate.ProxySpec, s Settings) ([]Object, error) {
	proxies, err := proxies(spec, s)
	if err != nil {
		return nil, err
	}
	objects := []Object{serviceAccount(spec, s), configMap(spec, s)}
	for _, service := range services(spec, s) {
		objects = append(objects, service)
	}
	objects = append(objects, proxies)
	if several(spec) {
		objects = append(objects, disruptionBudget(spec, s))
	}
	if spec.Parameters.Autoscaling != nil {
		objects = append(objects, autoscaler(spec, s))
	}
	return objects, nil
}

func kind(apiVersion, kind string) metav1.TypeMeta {
	return metav1.TypeMeta{APIVersion: apiVersion, Kind: kind}
}

func pointer[T any](v T) *T { return &v }

// several reports whether more than one proxy may run and the number is known.
func several(spec *translate.ProxySpec) bool {
	if spec.Parameters.DaemonSet {
		return false // each node has exactly one, so there is nothing to distribute or to limit
	}
	if a := spec.Parameters.Autoscaling; a != nil {
		return a.MaxReplicas > 1
	}
	if spec.Parameters.ExternalAutoscaler {
		return true
	}
	return spec.Parameters.Replicas != nil && *spec.Parameters.Replicas > 1
}

// serviceAccount returns the identity of the proxies. It has no permissions, and its pods have no token for the API server.
func serviceAccount(spec *translate.ProxySpec, s Settings) *corev1.ServiceAccount {
	return &corev1.ServiceAccount{
		TypeMeta: kind("v1", "ServiceAccount"), ObjectMeta: meta(spec, s, v1alpha1.MetadataServiceAccount, Name(spec.Name, spec.Class)),
		AutomountServiceAccountToken: pointer(false),
	}
}

// configMap returns the ConfigMap with the certificates that the proxies trust. Running pods see its changes.
func configMap(spec *translate.ProxySpec, s Settings) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		TypeMeta: kind("v1", kindConfigMap), ObjectMeta: meta(spec, s, v1alpha1.MetadataConfigMap, Name(spec.Name, spec.Class)),
		Data: map[string]string{caFile: string(s.CAPEM)},
	}
}

// disruptionBudget lets one proxy at a time be evicted unless the parameters set another number, so that a ready one remains if
// there are several. A proxy that is not ready does not block an eviction. There is none for a single proxy: it could only block
// every drain.
func disruptionBudget(spec *translate.ProxySpec, s Settings) *policyv1.PodDisruptionBudget {
	least, most := (*intstr.IntOrString)(nil), pointer(intstr.FromInt32(1))
	if b := spec.Parameters.DisruptionBudget; b != nil {
		least, most = b.MinAvailable, b.MaxUnavailable
	}
	return &policyv1.PodDisruptionBudget{
		TypeMeta: kind("policy/v1", "PodDisruptionBudget"), ObjectMeta: meta(spec, s, v1alpha1.MetadataPodDisruptionBudget, Name(spec.Name, spec.Class)),
		Spec: policyv1.PodDisruptionBudgetSpec{
			MinAvailable:   least,
			MaxUnavailable: most,
			// It excludes the pods of a DaemonSet that the Deployment replaces: with one of these Kubernetes cannot count, and would
			// not let any node be drained.
			Selector: &metav1.LabelSelector{
				MatchLabels:      identityLabels(spec),
				MatchExpressions: []metav1.LabelSelectorRequirement{{Key: appsv1.DefaultDeploymentUniqueLabelKey, Operator: metav1.LabelSelectorOpExists}},
			},
			UnhealthyPodEvictionPolicy: pointer(policyv1.AlwaysAllow),
		},
	}
}

func autoscaler(spec *translate.ProxySpec, s Settings) *autoscalingv2.HorizontalPodAutoscaler {
	a := spec.Parameters.Autoscaling
	least, utilization := a.MinReplicas, a.CPUUtilization
	if least == nil {
		least = pointer[int32](1)
	}
	if utilization == nil {
		utilization = pointer[int32](80)
	}
	metrics := []autoscalingv2.MetricSpec{utilizationOf(corev1.ResourceCPU, utilization)}
	if a.MemoryUtilization != nil {
		metrics = append(metrics, utilizationOf(corev1.ResourceMemory, a.MemoryUtilization))
	}
	name := Name(spec.Name, spec.Class)
	return &autoscalingv2.HorizontalPodAutoscaler{
		TypeMeta: kind("autoscaling/v2", "HorizontalPodAutoscaler"), ObjectMeta: meta(spec, s, v1alpha1.MetadataHorizontalPodAutoscaler, name),
		Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
			ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: name},
			MinReplicas:    least, MaxReplicas: a.MaxReplicas,
			Metrics: metrics, Behavior: a.Behavior,
		},
	}
}

func utilizationOf(name corev1.ResourceName, percent *int32) autoscalingv2.MetricSpec {
	return autoscalingv2.MetricSpec{Type: autoscalingv2.ResourceMetricSourceType, Resource: &autoscalingv2.ResourceMetricSource{
		Name: name, Target: autoscalingv2.MetricTarget{Type: autoscalingv2.UtilizationMetricType, AverageUtilization: percent},
	}}
}

// scaledElsewhere reports whether the number of replicas is not set in the Deployment.
func scaledElsewhere(spec *translate.ProxySpec) bool {
	return spec.Parameters.Autoscaling != nil || spec.Parameters.ExternalAutoscaler
}

// parameterError returns the error of a field of GatewayParameters that cannot be used.
func parameterError(spec *translate.ProxySpec, field string, err error) error {
	return fmt.Errorf("GatewayParameters of GatewayClass %q: %s: %w; correct or remove it", spec.Class, field, err)
}
