// Package parameters validates GatewayParameters beyond their schema, and merges those of a Gateway with those of its class. It is
// separate from translate because it is pure functions of one or two objects.
//
// It must never import translate, nor anything that translate must not.
package parameters

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"net/url"
	"path"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/moongate-dev/moongate/api/v1alpha1"
	"github.com/moongate-dev/moongate/internal/accesslog"
	"github.com/moongate-dev/moongate/internal/translate/condition"
)

// Limits of fields that the schema checks too; an object may be older than the installed schema.
const (
	maxReplicas      = 1000
	maxPercent       = 1000
	maxShutdownDelay = 5 * time.Minute
	maxDrainTimeout  = time.Hour
)

// joinedErrors returns an error, which may be several joined errors, in one line for a condition's message.
func joinedErrors(err error) string { return strings.ReplaceAll(err.Error(), "\n", ", ") }

// checker collects problems in the order of the fields.
type checker struct{ problems []*condition.Problem }

// Check returns what is wrong with parameters, in the order of the fields; nil if nothing.
func Check(s *v1alpha1.GatewayParametersSpec) []*condition.Problem {
	var c checker
	if s.Replicas != nil {
		c.bounded("spec.replicas", *s.Replicas, 0, maxReplicas)
	}
	if s.Autoscaling != nil {
		c.autoscaling(s)
	}
	if s.ExternalAutoscaler && (s.Replicas != nil || s.Autoscaling != nil) {
		c.add("spec.externalAutoscaler", "remove it, or replicas and autoscaling", "it excludes replicas and autoscaling")
	}
	if s.DaemonSet && (s.Replicas != nil || s.Autoscaling != nil || s.ExternalAutoscaler || s.DisruptionBudget != nil) {
		c.add("spec.daemonSet", "remove it, or replicas, autoscaling, externalAutoscaler and disruptionBudget", "one proxy runs on each node, so that it excludes these")
	}
	if s.DisruptionBudget != nil {
		c.disruptionBudget(s.DisruptionBudget)
	}
	if s.Resources != nil {
		c.resources(s.Resources)
	}
	if s.Service != nil {
		c.service(s.Service)
	}
	c.oneOf("spec.logLevel", s.LogLevel, "debug", "info", "warn", "error")
	c.oneOf("spec.accessLog", s.AccessLog, "stdout", "json", "off")
	if s.AccessLogOptions != nil {
		c.accessLogOptions(s.AccessLogOptions)
	}
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

// oneOf accepts the listed values, and the empty value, which is the default.
func (c *checker) oneOf(field, value string, allowed ...string) {
	if value != "" && !slices.Contains(allowed, value) {
		c.add(field, "use one of "+strings.Join(allowed, ", "), "%q is not known", value)
	}
}

func (c *checker) secretKey(field string, ref *v1alpha1.SecretKeyReference) {
	if ref.Name == "" {
		c.add(field+".name", "name a Secret of the same namespace", "it is empty")
	}
	if ref.Key == "" {
		c.add(field+".key", "name a key of the Secret", "it is empty")
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
	if a.MemoryUtilization != nil {
		c.bounded("spec.autoscaling.memoryUtilization", *a.MemoryUtilization, 1, maxPercent)
	}
}

func (c *checker) disruptionBudget(b *v1alpha1.DisruptionBudget) {
	if (b.MinAvailable == nil) == (b.MaxUnavailable == nil) {
		c.add("spec.disruptionBudget", "set one of both", "either minAvailable or maxUnavailable has to be set")
	}
	for _, f := range []struct {
		field string
		value *intstr.IntOrString
	}{{"spec.disruptionBudget.minAvailable", b.MinAvailable}, {"spec.disruptionBudget.maxUnavailable", b.MaxUnavailable}} {
		if f.value == nil {
			continue
		}
		n, err := intstr.GetScaledValueFromIntOrPercent(f.value, 100, false)
		switch {
		case err != nil || n < 0 || f.value.Type == intstr.String && n > 100:
			c.add(f.field, "use a number from 0 on, or a percentage such as 50%", "%q is neither", f.value.String())
		case f.value == b.MaxUnavailable && n == 0, f.value == b.MinAvailable && f.value.Type == intstr.String && n == 100:
			c.add(f.field, "leave room for one proxy", "%q lets no node be drained that has a proxy", f.value.String())
		}
	}
}

func (c *checker) accessLogOptions(o *v1alpha1.AccessLogOptions) {
	_, problems := accesslog.Compile(AccessLogOptions(o))
	for _, p := range problems {
		field := "spec.accessLogOptions." + [...]string{accesslog.OptionFormat: "format", accesslog.OptionMembers: "members",
			accesslog.OptionRedact: "redactQueryParameters", accesslog.OptionOneIn: "oneIn"}[p.Option]
		if p.Index >= 0 {
			field += fmt.Sprintf("[%d]", p.Index)
		}
		c.add(field, p.Remedy, "%s", p.Text)
	}
}

// AccessLogOptions converts the options to the proxy's form.
func AccessLogOptions(o *v1alpha1.AccessLogOptions) accesslog.Options {
	options := accesslog.Options{Format: o.Format, Members: o.Members, Redact: o.RedactQueryParameters}
	if o.OneIn != nil {
		options.OneIn = int(*o.OneIn)
	}
	return options
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
	c.ipFamilies(s.IPFamilies)
	if s.IPFamilyPolicy != nil && DualStack(s) != nil {
		c.problems = append(c.problems, DualStack(s))
	}
	c.nodePorts(s)
}

// DualStack returns why an API server would reject Services with two IP families; nil if it would not. Without a policy the API
// server uses SingleStack, but a Gateway's parameters may leave the policy to those of its class, so Check calls it only if there is
// one.
func DualStack(s *v1alpha1.Service) *condition.Problem {
	if s == nil || len(s.IPFamilies) < 2 || s.IPFamilyPolicy != nil && *s.IPFamilyPolicy != corev1.IPFamilyPolicySingleStack {
		return nil
	}
	policy := "no ipFamilyPolicy is set, which means SingleStack"
	if s.IPFamilyPolicy != nil {
		policy = "ipFamilyPolicy is SingleStack"
	}
	return condition.NewProblem(v1alpha1.ReasonInvalid, "spec.service.ipFamilies", "name one family, or set service.ipFamilyPolicy to PreferDualStack or RequireDualStack",
		"a Service cannot have two IP families while %s", policy)
}

// ipFamilies and nodePorts check fields of a Service.
func (c *checker) ipFamilies(families []corev1.IPFamily) {
	for i, f := range families {
		c.oneOf(fmt.Sprintf("spec.service.ipFamilies[%d]", i), string(f), string(corev1.IPv4Protocol), string(corev1.IPv6Protocol))
		if slices.Contains(families[:i], f) {
			c.add(fmt.Sprintf("spec.service.ipFamilies[%d]", i), "name it once", "%q is named twice", f)
		}
	}
}

func (c *checker) nodePorts(s *v1alpha1.Service) {
	if s.Type == corev1.ServiceTypeClusterIP && len(s.NodePorts) > 0 {
		c.add("spec.service.nodePorts", "remove it, or use another type", "a Service of type %s has none", s.Type)
	}
	for i, p := range s.NodePorts {
		field := fmt.Sprintf("spec.service.nodePorts[%d]", i)
		c.bounded(field+".port", p.Port, 1, 65535)
		c.bounded(field+".nodePort", p.NodePort, 1, 65535)
		c.oneOf(field+".protocol", string(p.Protocol), string(corev1.ProtocolTCP), string(corev1.ProtocolUDP))
		for _, other := range s.NodePorts[:i] {
			if cmp.Or(other.Protocol, corev1.ProtocolTCP) != cmp.Or(p.Protocol, corev1.ProtocolTCP) {
				continue
			}
			if other.Port == p.Port {
				c.add(field+".port", "name it once", "port %d is named twice", p.Port)
			}
			if other.NodePort == p.NodePort {
				c.add(field+".nodePort", "use another one", "node port %d is of another port, too", p.NodePort)
			}
		}
	}
}

// volumes checks volumes, their mounts, and the file that needs one of them.
func (c *checker) volumes(s *v1alpha1.ClassOnly) {
	var names []string
	for i, v := range s.Volumes {
		field := fmt.Sprintf("spec.classOnly.volumes[%d]", i)
		switch {
		case len(validation.IsDNS1123Label(v.Name)) > 0:
			c.add(field+".name", "correct it", "%q is not the name of a volume", v.Name)
		case slices.Contains(ownVolumes, v.Name) || slices.Contains(names, v.Name):
			c.add(field+".name", "use another one", "there is a volume %q already", v.Name)
		}
		names = append(names, v.Name)
		sources := 0
		for _, there := range []bool{v.ConfigMap != nil, v.Secret != nil, v.EmptyDir != nil, v.PersistentVolumeClaim != nil, v.CSI != nil, v.HostPath != nil} {
			if there {
				sources++
			}
		}
		if sources != 1 {
			c.add(field, "name exactly one source", "it has %d sources", sources)
		}
	}
	for i, m := range s.VolumeMounts {
		field := fmt.Sprintf("spec.classOnly.volumeMounts[%d]", i)
		if !slices.Contains(names, m.Name) {
			c.add(field+".name", "name one of spec.classOnly.volumes", "there is no volume %q", m.Name)
		}
		at := path.Clean(m.MountPath)
		if !path.IsAbs(m.MountPath) || at == "/" || strings.Contains(m.MountPath, ":") || within(at, ownDirectory) || within(ownDirectory, at) {
			c.add(field+".mountPath", "use an absolute path outside of "+ownDirectory, "nothing can be mounted at %q", m.MountPath)
		}
	}
	if u := s.AccessLogCollector; u != "" {
		if parsed, err := url.Parse(u); err != nil || parsed.Scheme != "http" && parsed.Scheme != "https" || parsed.Hostname() == "" || strings.ContainsAny(u, "$@?# ") {
			c.add("spec.classOnly.accessLogCollector", "write it as http://collector.observability.svc:4318", "%q is not the URL of a collector", u)
		}
		if s.AccessLogFile != "" {
			c.add("spec.classOnly.accessLogCollector", "remove one of both", "it excludes accessLogFile")
		}
	}
	switch f := s.AccessLogFile; {
	case f == "":
	case !path.IsAbs(f) || strings.Contains(f, "$") || path.Clean(f) != f:
		c.add("spec.classOnly.accessLogFile", "write an absolute path, such as /var/log/moongate/access.log", "%q is not one", f)
	case !writable(s, f):
		c.add("spec.classOnly.accessLogFile", "add one to spec.classOnly.volumes and volumeMounts, neither a configMap nor a secret, and not readOnly",
			"%q is in no volume that can be written, and nothing else can be", f)
	}
}

// writable reports whether a file can be created: it is below a mount, and the deepest such mount is writable.
func writable(s *v1alpha1.ClassOnly, file string) bool {
	deepest, can := "", false
	for _, m := range s.VolumeMounts {
		at := path.Clean(m.MountPath)
		if !within(file, at) || len(at) < len(deepest) {
			continue
		}
		deepest, can = at, !m.ReadOnly && (file != at || m.SubPath != "") && slices.ContainsFunc(s.Volumes, func(v v1alpha1.Volume) bool {
			return v.Name == m.Name && v.ConfigMap == nil && v.Secret == nil
		})
	}
	return can
}

// What the pods of proxies always contain.
const ownDirectory = "/var/run/moongate"

var ownVolumes = []string{"token", "ca", "state"}

// within reports whether a path is in a directory, or is the directory.
func within(p, directory string) bool {
	return p == directory || strings.HasPrefix(p, strings.TrimSuffix(directory, "/")+"/")
}

// serviceMetadata checks labels or annotations that a class adds to Services.
func (c *checker) serviceMetadata(field string, pairs map[string]string, labels bool) {
	for _, key := range slices.Sorted(maps.Keys(pairs)) {
		for _, wrong := range validation.IsQualifiedName(strings.ToLower(key)) {
			c.add(field, "correct it", "%q cannot be a key: %s", key, wrong)
		}
		if reservedKey(key) {
			c.add(field, "remove it", "%q is the controller's", key)
		}
		if !labels {
			continue
		}
		for _, wrong := range validation.IsValidLabelValue(pairs[key]) {
			c.add(field, "correct it", "%q of %q cannot be the value of a label: %s", pairs[key], key, wrong)
		}
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
	if s.RateLimit != nil && s.RateLimit.Redis != nil {
		c.secretKey("spec.classOnly.rateLimit.redis.urlSecretRef", &s.RateLimit.Redis.URLSecretRef)
	}
	c.ranges("spec.classOnly.deniedEndpoints", s.DeniedEndpoints)
	c.ranges("spec.classOnly.allowedExternalAddresses", s.AllowedExternalAddresses)
	if m := s.Infrastructure; m != nil {
		c.metadata("spec.classOnly.infrastructure.labels", m.Labels)
		c.metadata("spec.classOnly.infrastructure.annotations", m.Annotations)
	}
	c.serviceMetadata("spec.classOnly.serviceLabels", s.ServiceLabels, true)
	c.serviceMetadata("spec.classOnly.serviceAnnotations", s.ServiceAnnotations, false)
	c.volumes(s)
	if s.PlatformUser && s.HostNetwork {
		c.add("spec.classOnly.platformUser", "remove it, or hostNetwork", "proxies in the network of their node run as root")
	}
	for i, e := range s.Env {
		if e.Name == "" || strings.Contains(e.Name, "=") {
			c.add(fmt.Sprintf("spec.classOnly.env[%d].name", i), "correct it", "%q is not the name of a variable", e.Name)
		}
	}
	checkPatch(c, "spec.classOnly.deploymentPatch", "Deployment", s.DeploymentPatch, &appsv1.Deployment{})
	checkPatch(c, "spec.classOnly.daemonSetPatch", "DaemonSet", s.DaemonSetPatch, &appsv1.DaemonSet{})
}

// checkPatch checks a patch of a workload; empty is a workload without fields.
func checkPatch[T any](c *checker, field, kind string, patch *runtime.RawExtension, empty *T) {
	if patch == nil || patch.Object != nil {
		return
	}
	remedy := "write the fields of a " + kind
	var object map[string]any
	if err := json.Unmarshal(patch.Raw, &object); err != nil || object == nil {
		c.add(field, remedy, "it is not an object")
	} else if _, err := Patch(empty, patch.Raw); err != nil {
		c.add(field, remedy, "it cannot be applied: %s", joinedErrors(err))
	}
}

// ranges checks ranges of IP addresses.
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
