package provision

import (
	"cmp"
	"math"
	"strconv"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/moongate-dev/moongate/api/v1alpha1"
	"github.com/moongate-dev/moongate/internal/translate"
	"github.com/moongate-dev/moongate/internal/translate/parameters"
)

// Ports of its pod that a proxy itself uses: no listener can have them.
const (
	AdminPort  = 15900 // on loopback; the default of the proxy's --admin-address
	HealthPort = 15901
)

// TokenAudience is the audience of the proxy's token; the controller accepts no other.
const TokenAudience = "moongate.dev/controller"

// Paths and names in the proxy's pod; docs/kubernetes.md documents them.
const (
	tokenDir, caDir, stateDir = "/var/run/moongate/token", "/var/run/moongate/ca", "/var/run/moongate/state"
	tokenFile, caFile         = "token", "ca.crt"
	tokenSeconds              = 3600
	user                      = 65532
)

const (
	defaultShutdownDelay = 5 * time.Second
	defaultDrainTimeout  = 30 * time.Second
	// lastWords is the time that a proxy gets after its drain timeout before it is killed.
	lastWords = 5 * time.Second
)

// proxies returns the workload that runs the proxies. Nothing in it depends on the listeners, so that an edit of these restarts no
// proxy.
func proxies(spec *translate.ProxySpec, s Settings) (Object, error) {
	if spec.Parameters.DaemonSet {
		return daemonSet(spec, s)
	}
	return deployment(spec, s)
}

func classOnlyOf(spec *translate.ProxySpec) *v1alpha1.ClassOnly {
	return cmp.Or(spec.Parameters.ClassOnly, &v1alpha1.ClassOnly{})
}

func deployment(spec *translate.ProxySpec, s Settings) (*appsv1.Deployment, error) {
	classOnly := classOnlyOf(spec)
	d := &appsv1.Deployment{
		TypeMeta: kind("apps/v1", "Deployment"), ObjectMeta: meta(spec, s, v1alpha1.MetadataDeployment, Name(spec.Name, spec.Class)),
		Spec: appsv1.DeploymentSpec{
			Selector:             &metav1.LabelSelector{MatchLabels: identityLabels(spec)},
			Strategy:             strategy(classOnly),
			RevisionHistoryLimit: pointer[int32](2),
			Template:             template(spec, s, classOnly),
		},
	}
	if !scaledElsewhere(spec) { // otherwise the autoscaler sets the number
		d.Spec.Replicas = pointer[int32](1)
		if r := spec.Parameters.Replicas; r != nil {
			d.Spec.Replicas = r
		}
	}
	if classOnly.DeploymentPatch == nil || len(classOnly.DeploymentPatch.Raw) == 0 {
		return d, nil
	}
	patched, err := parameters.Patch(d, classOnly.DeploymentPatch.Raw)
	if err != nil {
		return nil, parameterError(spec, "spec.classOnly.deploymentPatch", err)
	}
	patched.TypeMeta, patched.Spec.Selector, patched.Status = d.TypeMeta, d.Spec.Selector, appsv1.DeploymentStatus{}
	restore(spec, &patched.ObjectMeta, &patched.Spec.Template, &d.ObjectMeta, &d.Spec.Template)
	return patched, nil
}

// daemonSet returns a DaemonSet that runs a proxy on each node.
func daemonSet(spec *translate.ProxySpec, s Settings) (*appsv1.DaemonSet, error) {
	classOnly := classOnlyOf(spec)
	d := &appsv1.DaemonSet{
		TypeMeta: kind("apps/v1", kindDaemonSet), ObjectMeta: meta(spec, s, v1alpha1.MetadataDaemonSet, Name(spec.Name, spec.Class)),
		Spec: appsv1.DaemonSetSpec{
			Selector:             &metav1.LabelSelector{MatchLabels: identityLabels(spec)},
			RevisionHistoryLimit: pointer[int32](2),
			Template:             template(spec, s, classOnly),
		},
	}
	surge, unavailable := rollingUpdate(classOnly)
	d.Spec.UpdateStrategy = appsv1.DaemonSetUpdateStrategy{
		Type:          appsv1.RollingUpdateDaemonSetStrategyType,
		RollingUpdate: &appsv1.RollingUpdateDaemonSet{MaxSurge: &surge, MaxUnavailable: &unavailable},
	}
	if classOnly.DaemonSetPatch == nil || len(classOnly.DaemonSetPatch.Raw) == 0 {
		return d, nil
	}
	patched, err := parameters.Patch(d, classOnly.DaemonSetPatch.Raw)
	if err != nil {
		return nil, parameterError(spec, "spec.classOnly.daemonSetPatch", err)
	}
	patched.TypeMeta, patched.Spec.Selector, patched.Status = d.TypeMeta, d.Spec.Selector, appsv1.DaemonSetStatus{}
	restore(spec, &patched.ObjectMeta, &patched.Spec.Template, &d.ObjectMeta, &d.Spec.Template)
	return patched, nil
}

func template(spec *translate.ProxySpec, s Settings, classOnly *v1alpha1.ClassOnly) corev1.PodTemplateSpec {
	t := corev1.PodTemplateSpec{Spec: pod(spec, s, classOnly)}
	t.Labels, t.Annotations = labelsAndAnnotations(spec, s, v1alpha1.MetadataPod)
	return t
}

// restore resets the names, labels and annotations that identify a patched workload and its template: a patch must not change them.
func restore(spec *translate.ProxySpec, object *metav1.ObjectMeta, template *corev1.PodTemplateSpec, of *metav1.ObjectMeta, templateOf *corev1.PodTemplateSpec) {
	object.Name, object.Namespace, object.OwnerReferences = of.Name, of.Namespace, of.OwnerReferences
	keep := func(have *map[string]string, from map[string]string, keys ...string) {
		if *have == nil {
			*have = map[string]string{}
		}
		for _, key := range keys {
			(*have)[key] = from[key]
		}
	}
	for key := range identityLabels(spec) {
		keep(&object.Labels, of.Labels, key)
		keep(&template.Labels, templateOf.Labels, key)
	}
	keep(&object.Annotations, of.Annotations, annotationGateway, annotationController)
	keep(&template.Annotations, templateOf.Annotations, annotationGateway, annotationController)
}

// strategy starts new proxies before old ones end, as far as there is room.
func strategy(classOnly *v1alpha1.ClassOnly) appsv1.DeploymentStrategy {
	surge, unavailable := rollingUpdate(classOnly)
	return appsv1.DeploymentStrategy{
		Type:          appsv1.RollingUpdateDeploymentStrategyType,
		RollingUpdate: &appsv1.RollingUpdateDeployment{MaxSurge: &surge, MaxUnavailable: &unavailable},
	}
}

// rollingUpdate returns how many new proxies start before old ones end, and how many old ones may end before that. With hostNetwork a
// node has no room for two, so there one ends first.
func rollingUpdate(classOnly *v1alpha1.ClassOnly) (surge, unavailable intstr.IntOrString) {
	if classOnly.HostNetwork {
		return intstr.FromInt32(0), intstr.FromInt32(1)
	}
	return intstr.FromString("25%"), intstr.FromInt32(0)
}

func pod(spec *translate.ProxySpec, s Settings, classOnly *v1alpha1.ClassOnly) corev1.PodSpec {
	grace := orDefault(spec.Parameters.ShutdownDelay, defaultShutdownDelay) + orDefault(spec.Parameters.DrainTimeout, defaultDrainTimeout) + lastWords
	p := corev1.PodSpec{
		ServiceAccountName:            Name(spec.Name, spec.Class),
		AutomountServiceAccountToken:  pointer(false),
		EnableServiceLinks:            pointer(false),
		TerminationGracePeriodSeconds: pointer(int64(math.Ceil(grace.Seconds()))),
		SecurityContext: &corev1.PodSecurityContext{
			RunAsNonRoot: pointer(true), RunAsUser: pointer[int64](user), RunAsGroup: pointer[int64](user), FSGroup: pointer[int64](user),
			SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
		},
		Containers:                []corev1.Container{container(spec, s, classOnly)},
		Volumes:                   volumes(Name(spec.Name, spec.Class)),
		ImagePullSecrets:          classOnly.ImagePullSecrets,
		NodeSelector:              classOnly.NodeSelector,
		Tolerations:               classOnly.Tolerations,
		Affinity:                  classOnly.Affinity,
		PriorityClassName:         classOnly.PriorityClassName,
		TopologySpreadConstraints: spread(spec, classOnly),
	}
	for i := range classOnly.Volumes {
		p.Volumes = append(p.Volumes, classOnly.Volumes[i].Source())
	}
	if classOnly.PlatformUser {
		p.SecurityContext.RunAsUser, p.SecurityContext.RunAsGroup, p.SecurityContext.FSGroup = nil, nil, nil
	}
	if classOnly.HostNetwork {
		p.HostNetwork, p.DNSPolicy = true, corev1.DNSClusterFirstWithHostNet
		// Ports below 1024 of a node require a capability, which Kubernetes makes effective only for root: so it runs as root with
		// no other capability.
		p.SecurityContext.RunAsNonRoot, p.SecurityContext.RunAsUser = pointer(false), pointer[int64](0)
	} else {
		// A safe sysctl of the pod's own network: ports below 1024 without a capability.
		p.SecurityContext.Sysctls = []corev1.Sysctl{{Name: "net.ipv4.ip_unprivileged_port_start", Value: "0"}}
	}
	return p
}

// spread keeps proxies apart, in zones and on nodes, where these allow it. Both are named, because any constraint of a pod takes the
// place of the scheduler's default ones, which spread over zones. Only pods of the same template are counted: if a rollout counted those that it
// replaces, the ones that are left after it could share a node.
func spread(spec *translate.ProxySpec, classOnly *v1alpha1.ClassOnly) []corev1.TopologySpreadConstraint {
	selector := &metav1.LabelSelector{MatchLabels: identityLabels(spec)}
	var constraints []corev1.TopologySpreadConstraint
	for _, c := range classOnly.TopologySpreadConstraints {
		if c.LabelSelector == nil {
			c.LabelSelector = selector
		}
		constraints = append(constraints, c)
	}
	if len(constraints) == 0 && several(spec) {
		for _, key := range []string{corev1.LabelTopologyZone, corev1.LabelHostname} {
			constraints = append(constraints, corev1.TopologySpreadConstraint{
				MaxSkew: 1, TopologyKey: key, WhenUnsatisfiable: corev1.ScheduleAnyway, LabelSelector: selector,
				MatchLabelKeys: []string{appsv1.DefaultDeploymentUniqueLabelKey}, // DaemonSets have no such constraints
			})
		}
	}
	return constraints
}

func container(spec *translate.ProxySpec, s Settings, classOnly *v1alpha1.ClassOnly) corev1.Container {
	image := s.Image
	if classOnly.Image != "" {
		image = classOnly.Image
	}
	capabilities := &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}}
	if classOnly.HostNetwork {
		capabilities.Add = []corev1.Capability{"NET_BIND_SERVICE"}
	}
	resources := resourcesOf(spec)
	return corev1.Container{
		Name: "proxy", Image: image, ImagePullPolicy: classOnly.ImagePullPolicy,
		Args:      arguments(spec, s),
		Env:       environment(resources, classOnly.Env),
		Resources: resources,
		// The ports of listeners are not listed: they would restart the pods. With hostNetwork this port keeps two proxies off the
		// same node, where both could not bind it. The chart's PodMonitor knows it by its name.
		Ports: []corev1.ContainerPort{{Name: "health", ContainerPort: HealthPort, Protocol: corev1.ProtocolTCP}},
		// A proxy is ready once it has its configuration, which may be long before the next period begins. A terminating proxy gets
		// no new connections as long as there are others. If it is the last one of its node, it must be ready to get any, until it
		// stops accepting them (KEP-1669).
		ReadinessProbe: probe("/readyz?exclude=shutdown", 1, 3, 3),
		// A proxy that is only slow must not be restarted: that would close its connections.
		LivenessProbe: probe("/healthz", 10, 5, 6),
		SecurityContext: &corev1.SecurityContext{
			AllowPrivilegeEscalation: pointer(false), ReadOnlyRootFilesystem: pointer(true), Capabilities: capabilities,
		},
		VolumeMounts: append([]corev1.VolumeMount{
			{Name: "token", MountPath: tokenDir, ReadOnly: true},
			{Name: "ca", MountPath: caDir, ReadOnly: true},
			{Name: "state", MountPath: stateDir},
		}, classOnly.VolumeMounts...),
	}
}

// The requests of a proxy unless parameters set others. With autoscaling, utilization is measured relative to the CPU request: a
// small one would start proxies for almost no load.
var (
	defaultCPU       = resource.MustParse("50m")
	defaultScaledCPU = resource.MustParse("500m")
	defaultMemory    = resource.MustParse("32Mi")
)

// resourcesOf returns the resources of the parameters, with the default request of each resource that has neither a request nor a
// limit; Kubernetes uses a limit without a request as the request. An autoscaler cannot determine the CPU utilization without a
// request.
func resourcesOf(spec *translate.ProxySpec) corev1.ResourceRequirements {
	var r corev1.ResourceRequirements
	if spec.Parameters.Resources != nil {
		r = *spec.Parameters.Resources.DeepCopy()
	}
	cpu := defaultCPU
	if spec.Parameters.Autoscaling != nil {
		cpu = defaultScaledCPU
	}
	for name, request := range map[corev1.ResourceName]resource.Quantity{corev1.ResourceCPU: cpu, corev1.ResourceMemory: defaultMemory} {
		_, requested := r.Requests[name]
		_, limited := r.Limits[name]
		if requested || limited {
			continue
		}
		if r.Requests == nil {
			r.Requests = corev1.ResourceList{}
		}
		r.Requests[name] = request
	}
	return r
}

func probe(path string, period, timeout, failures int32) *corev1.Probe {
	return &corev1.Probe{
		ProbeHandler:  corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: path, Port: intstr.FromInt32(HealthPort)}},
		PeriodSeconds: period, TimeoutSeconds: timeout, FailureThreshold: failures,
	}
}

func arguments(spec *translate.ProxySpec, s Settings) []string {
	logLevel, accessLog := spec.Parameters.LogLevel, spec.Parameters.AccessLog
	if logLevel == "" {
		logLevel = "info"
	}
	if accessLog == "" || accessLog == "stdout" { // proxies of an earlier version only know json, which is the same
		accessLog = "json"
	}
	if c := spec.Parameters.ClassOnly; c != nil && accessLog != "off" {
		accessLog = cmp.Or(c.AccessLogFile, c.AccessLogCollector, accessLog)
	}
	arguments := []string{
		"proxy",
		"--controller=" + s.ControllerAddress,
		"--gateway=" + spec.Namespace + "/" + spec.Name,
		"--ca-file=" + caDir + "/" + caFile,
		"--token-file=" + tokenDir + "/" + tokenFile,
		"--state-dir=" + stateDir,
		"--health-address=:" + strconv.Itoa(HealthPort),
		"--access-log=" + accessLog,
		"--log-level=" + logLevel,
		"--shutdown-delay=" + orDefault(spec.Parameters.ShutdownDelay, defaultShutdownDelay).String(),
		"--drain-timeout=" + orDefault(spec.Parameters.DrainTimeout, defaultDrainTimeout).String(),
	}
	// Proxies of earlier versions do not know these flags, so each is only passed if it is set.
	if s.LogFormat != "" {
		arguments = append(arguments, "--log-format="+s.LogFormat)
	}
	if ids := spec.Parameters.RequestIDs; ids != "" {
		arguments = append(arguments, "--request-ids="+ids)
	}
	if o := spec.Parameters.AccessLogOptions; o != nil {
		arguments = append(arguments, accessLogArguments(o)...)
	}
	return arguments
}

// accessLogArguments returns flags for the options that are set. For lists the flag is repeated, because names may contain commas,
// as CSV fields.
func accessLogArguments(o *v1alpha1.AccessLogOptions) (arguments []string) {
	if o.Format != "" {
		arguments = append(arguments, "--access-log-format="+literal(o.Format))
	}
	for _, member := range o.Members {
		arguments = append(arguments, "--access-log-members="+literal(quoted(member)))
	}
	for _, name := range o.RedactQueryParameters {
		arguments = append(arguments, "--access-log-redact="+literal(quoted(name)))
	}
	if o.OneIn != nil {
		arguments = append(arguments, "--access-log-one-in="+strconv.Itoa(int(*o.OneIn)))
	}
	return arguments
}

// quoted returns a text as a CSV field, the format of list flags.
func quoted(text string) string {
	if !strings.ContainsAny(text, ",\"\r\n") && strings.TrimSpace(text) == text {
		return text
	}
	return `"` + strings.ReplaceAll(text, `"`, `""`) + `"`
}

// literal escapes a text for the arguments of a container: with $(NAME), users of a namespace could read environment variables that
// the class sets.
func literal(text string) string { return strings.ReplaceAll(text, "$", "$$") }

// environment adds GOMEMLIMIT for a memory limit; Go itself respects a CPU limit. It is 90 % of the limit, because memory outside of
// the heap counts too.
func environment(resources corev1.ResourceRequirements, more []corev1.EnvVar) []corev1.EnvVar {
	limit, limited := resources.Limits[corev1.ResourceMemory]
	for _, v := range more {
		limited = limited && v.Name != "GOMEMLIMIT"
	}
	if !limited {
		return more
	}
	return append([]corev1.EnvVar{{Name: "GOMEMLIMIT", Value: strconv.FormatInt(limit.Value()/10*9, 10)}}, more...)
}

func volumes(configMap string) []corev1.Volume {
	size := resource.MustParse("256Mi") // memory: far more than any configuration needs, but a limit
	return []corev1.Volume{
		{Name: "token", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{
			Sources: []corev1.VolumeProjection{{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{
				Audience: TokenAudience, ExpirationSeconds: pointer[int64](tokenSeconds), Path: tokenFile,
			}}},
		}}},
		{Name: "ca", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
			LocalObjectReference: corev1.LocalObjectReference{Name: configMap},
		}}},
		{Name: "state", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{
			Medium: corev1.StorageMediumMemory, SizeLimit: &size,
		}}},
	}
}

func orDefault(d *metav1.Duration, otherwise time.Duration) time.Duration {
	if d == nil {
		return otherwise
	}
	return d.Duration
}
