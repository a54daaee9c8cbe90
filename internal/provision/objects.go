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

// Object is an object of Kubernetes.
type Object interface {
	metav1.Object
	runtime.Object
}

// Settings are what all Gateways have in common.
type Settings struct {
	ControllerName    string // of our GatewayClasses
	Image             string // unless the spec's parameters name another
	ControllerAddress string // host:port
	LogFormat         string // "json", or "" for text
	CAPEM             []byte
	// Services are those that run for the Gateway; each keeps the address that it has, if that is still wanted.
	Services []*corev1.Service
}

// Objects are what a ProxySpec needs, in the order in which to apply them: what pods refer to comes
// before them. A spec without ports needs no Service, and ends none. The error is of the spec's parameters.
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

// several says that more than one proxy may run whose number is known.
func several(spec *translate.ProxySpec) bool {
	if spec.Parameters.DaemonSet {
		return false // a node has one, whatever is done to keep several apart or a number of them in service
	}
	if a := spec.Parameters.Autoscaling; a != nil {
		return a.MaxReplicas > 1
	}
	if spec.Parameters.ExternalAutoscaler {
		return true
	}
	return spec.Parameters.Replicas != nil && *spec.Parameters.Replicas > 1
}

// serviceAccount is the identity of the proxies. It has no rights, and its pods no token for the API server.
func serviceAccount(spec *translate.ProxySpec, s Settings) *corev1.ServiceAccount {
	return &corev1.ServiceAccount{
		TypeMeta: kind("v1", "ServiceAccount"), ObjectMeta: meta(spec, s, v1alpha1.MetadataServiceAccount, Name(spec.Name, spec.Class)),
		AutomountServiceAccountToken: pointer(false),
	}
}

// configMap has what the proxies trust. Its change reaches pods that run.
func configMap(spec *translate.ProxySpec, s Settings) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		TypeMeta: kind("v1", kindConfigMap), ObjectMeta: meta(spec, s, v1alpha1.MetadataConfigMap, Name(spec.Name, spec.Class)),
		Data: map[string]string{caFile: string(s.CAPEM)},
	}
}

// disruptionBudget lets one proxy at a time be drained unless the parameters say otherwise, which leaves one that is ready where
// there are several. A proxy that is not ready holds no drain up. There is none for a
// single proxy: it could only forbid every drain.
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
			// Not the pods of a DaemonSet whose place the Deployment takes: where one is among them Kubernetes cannot count, and would let no node be drained.
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

// parameterError is a field of GatewayParameters that cannot be used.
func parameterError(spec *translate.ProxySpec, field string, err error) error {
	return fmt.Errorf("GatewayParameters of GatewayClass %q: %s: %w; correct or remove it", spec.Class, field, err)
}
