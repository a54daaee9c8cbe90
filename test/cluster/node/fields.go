package node

import (
	"encoding/json"
	"fmt"
	"slices"
	"sort"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// The fields of a pod's spec that this node acts on, or that another part of
// the cluster has acted on before the pod arrives. Every other field that is set is
// refused, so that a pod that runs runs as its author asked. A path that ends in
// ".*" stands for everything below it.
var (
	scheduling = []string{
		"affinity.*", "nodeName", "nodeSelector.*", "preemptionPolicy", "priority", "priorityClassName",
		"schedulerName", "tolerations.*", "topologySpreadConstraints.*",
	}
	podFields = []string{
		"automountServiceAccountToken", "dnsConfig.*", "dnsPolicy", "enableServiceLinks", "hostAliases.*", "hostNetwork",
		"hostname", "imagePullSecrets.*", "readinessGates.*", "restartPolicy", "serviceAccount", "serviceAccountName",
		"subdomain", "terminationGracePeriodSeconds",
		"securityContext.fsGroup", "securityContext.fsGroupChangePolicy", "securityContext.runAsGroup",
		"securityContext.runAsNonRoot", "securityContext.runAsUser", "securityContext.seccompProfile.type",
		"securityContext.supplementalGroups", "securityContext.supplementalGroupsPolicy", "securityContext.sysctls.*",
		"volumes.name", "volumes.configMap.*", "volumes.downwardAPI.*", "volumes.emptyDir.*", "volumes.secret.*",
		"volumes.projected.defaultMode", "volumes.projected.sources.configMap.*",
		"volumes.projected.sources.downwardAPI.*", "volumes.projected.sources.secret.*",
		"volumes.projected.sources.serviceAccountToken.*",
	}
	// containerFields hold for initContainers as well.
	containerFields = []string{
		"args", "command", "image", "imagePullPolicy", "name", "workingDir",
		"env.name", "env.value", "env.valueFrom.configMapKeyRef.*", "env.valueFrom.fieldRef.*",
		"env.valueFrom.resourceFieldRef.*", "env.valueFrom.secretKeyRef.*", "envFrom.*",
		"lifecycle.preStop.exec.*", "lifecycle.preStop.sleep.*",
		"livenessProbe.*", "readinessProbe.*", "startupProbe.*",
		"ports.containerPort", "ports.name", "ports.protocol", "ports.hostPort",
		"resources.requests.*",
		"securityContext.allowPrivilegeEscalation", "securityContext.capabilities.*", "securityContext.privileged",
		"securityContext.procMount", "securityContext.readOnlyRootFilesystem", "securityContext.runAsGroup",
		"securityContext.runAsNonRoot", "securityContext.runAsUser", "securityContext.seccompProfile.type",
		"terminationMessagePath", "terminationMessagePolicy",
		"volumeMounts.mountPath", "volumeMounts.name", "volumeMounts.readOnly", "volumeMounts.recursiveReadOnly",
	}
)

// refuse names every field of the pod that this node does not implement.
func refuse(pod *corev1.Pod) error {
	encoded, err := json.Marshal(pod.Spec)
	if err != nil {
		return err
	}
	var tree map[string]any
	if err := json.Unmarshal(encoded, &tree); err != nil {
		return err
	}
	var refused []string
	for key, value := range tree {
		if key == "containers" || key == "initContainers" {
			refused = append(refused, unknown("", value, containerFields, key)...)
		} else {
			refused = append(refused, unknown(key, value, append(podFields, scheduling...), "")...)
		}
	}
	refused = append(refused, refusedValues(pod)...)
	if len(refused) == 0 {
		return nil
	}
	sort.Strings(refused)
	return fmt.Errorf("this node does not implement: %s", strings.Join(slices.Compact(refused), ", "))
}

// unknown walks value, found at path, and returns what no entry of known covers.
func unknown(path string, value any, known []string, prefix string) []string {
	if slices.Contains(known, path+".*") || slices.Contains(known, path) {
		return nil
	}
	var refused []string
	switch value := value.(type) {
	case map[string]any:
		for key, below := range value {
			refused = append(refused, unknown(strings.TrimPrefix(path+"."+key, "."), below, known, prefix)...)
		}
	case []any:
		for _, below := range value {
			refused = append(refused, unknown(path, below, known, prefix)...)
		}
	default:
		refused = append(refused, strings.TrimPrefix(prefix+"."+path, "."))
	}
	return refused
}

// refusedValues covers the fields of which only some values are implemented.
func refusedValues(pod *corev1.Pod) []string {
	var refused []string
	say := func(condition bool, what string) {
		if condition {
			refused = append(refused, what)
		}
	}
	localProfile := func(p *corev1.SeccompProfile) bool { return p != nil && p.Type == corev1.SeccompProfileTypeLocalhost }
	if sc := pod.Spec.SecurityContext; sc != nil {
		say(localProfile(sc.SeccompProfile), "securityContext.seccompProfile.type Localhost")
		for _, sysctl := range sc.Sysctls {
			say(!strings.HasPrefix(sysctl.Name, "net."), "sysctl "+sysctl.Name)
		}
		say(len(sc.Sysctls) > 0 && pod.Spec.HostNetwork, "sysctls with hostNetwork")
	}
	for _, container := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		for _, port := range container.Ports {
			say(port.HostPort != 0 && !pod.Spec.HostNetwork, "hostPort without hostNetwork")
		}
		for _, probe := range []*corev1.Probe{container.LivenessProbe, container.ReadinessProbe, container.StartupProbe} {
			say(probe != nil && probe.GRPC != nil, "probe grpc")
		}
		sc := container.SecurityContext
		if sc == nil {
			continue
		}
		say(localProfile(sc.SeccompProfile), "seccompProfile.type Localhost")
		say(sc.Privileged != nil && *sc.Privileged, "privileged")
		say(sc.ProcMount != nil && *sc.ProcMount != corev1.DefaultProcMount, "procMount Unmasked")
	}
	return refused
}
