// Package parameters judges GatewayParameters beyond what their schema can say, and
// puts a Gateway's over its class's. It exists apart from translate because it is pure
// functions of one or two objects that know nothing of Gateways.
//
// It must never import translate, nor anything that translate must not.
package parameters

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/moongate-dev/moongate/api/v1alpha1"
	"github.com/moongate-dev/moongate/internal/translate/condition"
)

// The bounds of what the API leaves open; the schema has them too, but an object may be
// older than the schema that is installed.
const (
	maxReplicas      = 1000
	maxPercent       = 1000
	maxShutdownDelay = 5 * time.Minute
	maxDrainTimeout  = time.Hour
)

// oneLine is an error, which may be several, as a condition's message has it.
func oneLine(err error) string { return strings.ReplaceAll(err.Error(), "\n", ", ") }

// checker collects problems in the order of the fields.
type checker struct{ problems []*condition.Problem }

// Check returns what is wrong with parameters, in the order of the fields; none is nil.
func Check(s *v1alpha1.GatewayParametersSpec) []*condition.Problem {
	var c checker
	if s.Replicas != nil {
		c.bounded("spec.replicas", *s.Replicas, 0, maxReplicas)
	}
	if s.Autoscaling != nil {
		c.autoscaling(s)
	}
	if s.Resources != nil {
		c.resources(s.Resources)
	}
	if s.Service != nil {
		c.service(s.Service)
	}
	c.oneOf("spec.logLevel", s.LogLevel, "debug", "info", "warn", "error")
	c.oneOf("spec.accessLog", s.AccessLog, "json", "off")
	c.oneOf("spec.requestIDs", s.RequestIDs, "generate", "preserve")
	c.duration("spec.shutdownDelay", s.ShutdownDelay, maxShutdownDelay)
	c.duration("spec.drainTimeout", s.DrainTimeout, maxDrainTimeout)
	c.ranges("spec.trustedProxies", s.TrustedProxies)
	c.ports(s.Ports)
	c.listeners(s.Listeners)
	if s.ClassOnly != nil {
		c.classOnly(s.ClassOnly)
	}
	return c.problems
}

func (c *checker) add(field, remedy, format string, args ...any) {
	c.problems = append(c.problems, condition.NewProblem(v1alpha1.ReasonInvalid, field, remedy, format, args...))
}

func (c *checker) bounded(field string, n, low, high int32) {
	if n < low || n > high {
		c.add(field, fmt.Sprintf("use a number from %d to %d", low, high), "%d is out of bounds", n)
	}
}

// oneOf accepts the empty value, which is the default.
func (c *checker) oneOf(field, value string, allowed ...string) {
	if value != "" && !slices.Contains(allowed, value) {
		c.add(field, "use one of "+strings.Join(allowed, ", "), "%q is not known", value)
	}
}

func (c *checker) duration(field string, d *metav1.Duration, most time.Duration) {
	if d != nil && (d.Duration < 0 || d.Duration > most) {
		c.add(field, fmt.Sprintf("use a duration from 0s to %v", most), "%v is out of bounds", d.Duration)
	}
}

func (c *checker) autoscaling(s *v1alpha1.GatewayParametersSpec) {
	if s.Replicas != nil {
		c.add("spec.autoscaling", "remove one of both", "replicas and autoscaling exclude each other")
	}
	a := s.Autoscaling
	if a.MinReplicas != nil {
		c.bounded("spec.autoscaling.minReplicas", *a.MinReplicas, 1, maxReplicas)
		if *a.MinReplicas > a.MaxReplicas {
			c.add("spec.autoscaling.minReplicas", "lower it, or raise maxReplicas", "%d is above maxReplicas, which is %d", *a.MinReplicas, a.MaxReplicas)
		}
	}
	c.bounded("spec.autoscaling.maxReplicas", a.MaxReplicas, 1, maxReplicas)
	if a.CPUUtilization != nil {
		c.bounded("spec.autoscaling.cpuUtilization", *a.CPUUtilization, 1, maxPercent)
	}
}

func (c *checker) resources(r *corev1.ResourceRequirements) {
	for _, list := range []struct {
		field string
		list  corev1.ResourceList
	}{{"spec.resources.limits", r.Limits}, {"spec.resources.requests", r.Requests}} {
		for _, name := range slices.Sorted(maps.Keys(list.list)) {
			if q := list.list[name]; q.Sign() < 0 {
				c.add(list.field+"."+string(name), "use a quantity that is not negative", "%s is negative", q.String())
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(r.Requests)) {
		request := r.Requests[name]
		if limit, limited := r.Limits[name]; limited && request.Cmp(limit) > 0 {
			c.add("spec.resources.requests."+string(name), "lower it, or raise the limit", "%s is above the limit, which is %s", request.String(), limit.String())
		}
	}
}

func (c *checker) service(s *v1alpha1.Service) {
	c.oneOf("spec.service.type", string(s.Type), string(corev1.ServiceTypeLoadBalancer), string(corev1.ServiceTypeNodePort), string(corev1.ServiceTypeClusterIP))
	if cmp.Or(s.Type, corev1.ServiceTypeLoadBalancer) != corev1.ServiceTypeLoadBalancer {
		if s.LoadBalancerClass != nil {
			c.add("spec.service.loadBalancerClass", "remove it, or use type LoadBalancer", "a Service of type %s has none", s.Type)
		}
		if len(s.LoadBalancerSourceRanges) > 0 {
			c.add("spec.service.loadBalancerSourceRanges", "remove it, or use type LoadBalancer", "a Service of type %s has none", s.Type)
		}
	}
	if s.LoadBalancerClass != nil {
		for _, wrong := range validation.IsQualifiedName(*s.LoadBalancerClass) {
			c.add("spec.service.loadBalancerClass", "correct it", "%q cannot be a class: %s", *s.LoadBalancerClass, wrong)
		}
	}
	for i, r := range s.LoadBalancerSourceRanges {
		if _, err := netip.ParsePrefix(r); err != nil {
			c.add(fmt.Sprintf("spec.service.loadBalancerSourceRanges[%d]", i), "write it like 192.0.2.0/24", "%q is not a range of IP addresses", r)
		}
	}
	c.oneOf("spec.service.externalTrafficPolicy", string(s.ExternalTrafficPolicy),
		string(corev1.ServiceExternalTrafficPolicyCluster), string(corev1.ServiceExternalTrafficPolicyLocal))
	if s.Type == corev1.ServiceTypeClusterIP && s.ExternalTrafficPolicy != "" {
		c.add("spec.service.externalTrafficPolicy", "remove it, or use another type", "a Service of type %s has none", s.Type)
	}
	if s.IPFamilyPolicy != nil {
		c.oneOf("spec.service.ipFamilyPolicy", string(*s.IPFamilyPolicy), string(corev1.IPFamilyPolicySingleStack),
			string(corev1.IPFamilyPolicyPreferDualStack), string(corev1.IPFamilyPolicyRequireDualStack))
	}
}

func (c *checker) classOnly(s *v1alpha1.ClassOnly) {
	if strings.ContainsFunc(s.Image, func(r rune) bool { return r <= ' ' }) {
		c.add("spec.classOnly.image", "correct it", "%q is not the name of an image", s.Image)
	}
	c.oneOf("spec.classOnly.imagePullPolicy", string(s.ImagePullPolicy), string(corev1.PullAlways), string(corev1.PullIfNotPresent), string(corev1.PullNever))
	for i, field := range s.Locked {
		if !slices.Contains(v1alpha1.LockedFields, field) {
			c.add(fmt.Sprintf("spec.classOnly.locked[%d]", i), fmt.Sprintf("use one of %v", v1alpha1.LockedFields), "%q cannot be locked", field)
		}
	}
	c.ranges("spec.classOnly.deniedEndpoints", s.DeniedEndpoints)
	c.ranges("spec.classOnly.allowedExternalAddresses", s.AllowedExternalAddresses)
	if m := s.Infrastructure; m != nil {
		c.metadata("spec.classOnly.infrastructure.labels", m.Labels)
		c.metadata("spec.classOnly.infrastructure.annotations", m.Annotations)
	}
	for i, e := range s.Env {
		if e.Name == "" || strings.Contains(e.Name, "=") {
			c.add(fmt.Sprintf("spec.classOnly.env[%d].name", i), "correct it", "%q is not the name of a variable", e.Name)
		}
	}
	if p := s.DeploymentPatch; p != nil && p.Object == nil {
		var object map[string]any
		if err := json.Unmarshal(p.Raw, &object); err != nil || object == nil {
			c.add("spec.classOnly.deploymentPatch", "write the fields of a Deployment", "it is not an object")
		} else if _, err := PatchDeployment(&appsv1.Deployment{}, p.Raw); err != nil {
			c.add("spec.classOnly.deploymentPatch", "write the fields of a Deployment", "it cannot be applied: %s", oneLine(err))
		}
	}
}

// ranges accepts ranges of IP addresses.
func (c *checker) ranges(field string, ranges []string) {
	for i, r := range ranges {
		if p, err := netip.ParsePrefix(r); err != nil {
			c.add(fmt.Sprintf("%s[%d]", field, i), "write it like 192.0.2.0/24", "%q is not a range of IP addresses", r)
		} else if p.Addr().Is4In6() {
			c.add(fmt.Sprintf("%s[%d]", field, i), "write it like 192.0.2.0/24", "%q is a range of IPv4 addresses in the form of IPv6, which no address matches", r)
		}
	}
}

func (c *checker) metadata(field string, rules []v1alpha1.MetadataRule) {
	for i, r := range rules {
		for j, key := range r.Keys {
			if strings.Contains(strings.TrimSuffix(key, "*"), "*") || key == "" {
				c.add(fmt.Sprintf("%s[%d].keys[%d]", field, i, j), "write a key, or the beginning of keys and *", "%q is neither", key)
			}
		}
		for j, kind := range r.Kinds {
			if !slices.Contains(v1alpha1.MetadataKinds, kind) {
				c.add(fmt.Sprintf("%s[%d].kinds[%d]", field, i, j), fmt.Sprintf("use one of %v", v1alpha1.MetadataKinds), "%q is not known", kind)
			}
		}
	}
}
