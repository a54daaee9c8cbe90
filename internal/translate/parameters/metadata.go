package parameters

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/moongate-dev/moongate/api/v1alpha1"
)

// Controllers act on labels and annotations: they inject a container, give a pod a cloud role, or remove a security profile. A user
// who may create a Gateway must not be able to set such keys on pods and ServiceAccounts that run its class's image, so only those
// that are known to be harmless are copied.

// reserved are prefixes of keys that are never copied, because Moongate identifies objects by them.
var reserved = []string{"moongate.dev/", "gateway.networking.k8s.io/"}

// powerful are keys without a prefix that controllers act on nevertheless.
var powerful = []string{
	"aadpodidbinding",          // gives a pod an Azure identity
	"pod-template-hash",        // identifies pods of a ReplicaSet
	"controller-revision-hash", // identifies pods of other controllers
}

// internal contains the annotations of Services, with their values in lower case, that request a load balancer in the cluster's own
// network. Without them the load balancer would be public, so to ignore them would be worse.
var internal = map[string][]string{
	"cloud.google.com/load-balancer-type":                                {"internal"},
	"networking.gke.io/load-balancer-type":                               {"internal"},
	"service.beta.kubernetes.io/alibaba-cloud-loadbalancer-address-type": {"intranet"},
	"service.beta.kubernetes.io/aws-load-balancer-internal":              {"true", "0.0.0.0/0"},
	"service.beta.kubernetes.io/aws-load-balancer-scheme":                {"internal"},
	"service.beta.kubernetes.io/azure-load-balancer-internal":            {"true"},
	"service.beta.kubernetes.io/oci-load-balancer-internal":              {"true"},
	"service.beta.kubernetes.io/openstack-internal-load-balancer":        {"true"},
	"service.kubernetes.io/ibm-load-balancer-cloud-provider-ip-type":     {"private"},
}

// controllers contains the annotations that select the controller that reads those of AWS. They are ignored if the class locks
// service.loadBalancerClass, which has the same effect.
var controllers = map[string][]string{
	"service.beta.kubernetes.io/aws-load-balancer-nlb-target-type": {"instance", "ip"},
	"service.beta.kubernetes.io/aws-load-balancer-type":            {"external", "nlb", "nlb-ip"},
}

// Metadata returns those of a Gateway's labels and annotations that its class allows on objects of a kind. The maps are new.
func Metadata(class *v1alpha1.ClassOnly, kind v1alpha1.MetadataKind, labels, annotations map[string]string) (l, a map[string]string) {
	l, a = map[string]string{}, map[string]string{}
	for key, v := range labels {
		if labelAllowed(class, kind, key, v) {
			l[key] = v
		}
	}
	for key, v := range annotations {
		if annotationAllowed(class, kind, key, v) {
			a[key] = v
		}
	}
	return l, a
}

// Allowed returns those of a Gateway's labels and annotations that its class allows on at least one kind of object, nil if none, and
// the paths of the others below spec.infrastructure, in order.
func Allowed(class *v1alpha1.ClassOnly, labels, annotations map[string]string) (l, a map[string]string, leftOut []string) {
	some := func(field string, m map[string]string, allowed func(class *v1alpha1.ClassOnly, kind v1alpha1.MetadataKind, key, value string) bool) (out map[string]string) {
		for _, key := range slices.Sorted(maps.Keys(m)) {
			if !slices.ContainsFunc(v1alpha1.MetadataKinds, func(k v1alpha1.MetadataKind) bool { return allowed(class, k, key, m[key]) }) {
				leftOut = append(leftOut, fmt.Sprintf("%s[%q]", field, key))
				continue
			}
			if out == nil {
				out = map[string]string{}
			}
			out[key] = m[key]
		}
		return out
	}
	l = some("labels", labels, labelAllowed)
	a = some("annotations", annotations, annotationAllowed)
	return l, a, leftOut
}

func labelAllowed(class *v1alpha1.ClassOnly, kind v1alpha1.MetadataKind, key, _ string) bool {
	if class != nil && class.Infrastructure != nil {
		return ruleAllows(class.Infrastructure.Labels, kind, key)
	}
	return harmless(key)
}

func annotationAllowed(class *v1alpha1.ClassOnly, kind v1alpha1.MetadataKind, key, value string) bool {
	if class != nil && class.Infrastructure != nil {
		return ruleAllows(class.Infrastructure.Annotations, kind, key)
	}
	if kind == v1alpha1.MetadataService {
		value = strings.ToLower(value)
		locked := class != nil && (&locks{fields: class.Locked}).has(v1alpha1.LockService, v1alpha1.LockLoadBalancerClass)
		if slices.Contains(internal[key], value) || !locked && slices.Contains(controllers[key], value) {
			return true
		}
	}
	return harmless(key)
}

// harmless reports whether a key is allowed everywhere by default: keys without a prefix are private to users
// (https://kubernetes.io/docs/concepts/overview/working-with-objects/labels).
func harmless(key string) bool {
	return !strings.Contains(key, "/") && !slices.Contains(powerful, key)
}

// reservedKey reports whether a key is never copied.
func reservedKey(key string) bool {
	return slices.ContainsFunc(reserved, func(prefix string) bool { return strings.HasPrefix(key, prefix) })
}

func ruleAllows(rules []v1alpha1.MetadataRule, kind v1alpha1.MetadataKind, key string) bool {
	if reservedKey(key) {
		return false
	}
	return slices.ContainsFunc(rules, func(r v1alpha1.MetadataRule) bool {
		return (len(r.Kinds) == 0 || slices.Contains(r.Kinds, kind)) && slices.ContainsFunc(r.Keys, func(k string) bool {
			beginning, open := strings.CutSuffix(k, "*")
			return open && strings.HasPrefix(key, beginning) || k == key
		})
	})
}
