package node

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

func TestRefuse(t *testing.T) {
	for name, test := range map[string]struct{ spec, refused string }{
		"plain": {`containers: [{name: a, image: b}]`, ""},
		"everything a restricted pod has": {`
automountServiceAccountToken: false
nodeSelector: {a: b}
affinity: {podAntiAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{topologyKey: zone}]}}
securityContext: {runAsNonRoot: true, runAsUser: 1, fsGroup: 2, seccompProfile: {type: RuntimeDefault}, sysctls: [{name: net.core.somaxconn, value: "9"}]}
containers:
- name: a
  image: b
  env: [{name: A, valueFrom: {fieldRef: {fieldPath: metadata.name}}}]
  ports: [{containerPort: 80, name: http, protocol: TCP}]
  resources: {requests: {cpu: 1}}
  readinessProbe: {httpGet: {path: /, port: 80}}
  lifecycle: {preStop: {sleep: {seconds: 3}}}
  securityContext: {allowPrivilegeEscalation: false, readOnlyRootFilesystem: true, capabilities: {drop: [ALL]}}
  volumeMounts: [{name: v, mountPath: /v}]
volumes: [{name: v, projected: {sources: [{serviceAccountToken: {path: token, audience: x}}]}}]`, ""},
		"of the pod":            {`{hostPID: true, runtimeClassName: x, containers: []}`, "hostPID, runtimeClassName"},
		"of a container":        {`containers: [{name: a, tty: true, lifecycle: {postStart: {exec: {command: [x]}}}}]`, "containers.lifecycle.postStart.exec.command, containers.tty"},
		"of an init container":  {`{containers: [], initContainers: [{name: a, restartPolicy: Always}]}`, "initContainers.restartPolicy"},
		"limits":                {`containers: [{name: a, resources: {limits: {memory: 1Gi}}}]`, "containers.resources.limits.memory"},
		"a kind of volume":      {`{containers: [], volumes: [{name: a, hostPath: {path: /}}]}`, "volumes.hostPath.path"},
		"values":                {`{containers: [{name: a, securityContext: {privileged: true, procMount: Unmasked}}]}`, "privileged, procMount Unmasked"},
		"a sysctl of the node":  {`{containers: [], securityContext: {sysctls: [{name: kernel.x, value: a}]}}`, "sysctl kernel.x"},
		"a port of the host":    {`containers: [{name: a, ports: [{containerPort: 80, hostPort: 80}]}]`, "hostPort without hostNetwork"},
		"the host's own":        {`{hostNetwork: true, containers: [{name: a, ports: [{containerPort: 80, hostPort: 80}]}]}`, ""},
		"a profile of the node": {`containers: [{name: a, securityContext: {seccompProfile: {type: Localhost, localhostProfile: x}}}]`, "containers.securityContext.seccompProfile.localhostProfile, seccompProfile.type Localhost"},
	} {
		var spec corev1.PodSpec
		if err := yaml.UnmarshalStrict([]byte(test.spec), &spec); err != nil {
			t.Fatal(name, err)
		}
		got := ""
		if err := refuse(&corev1.Pod{Spec: spec}); err != nil {
			got = strings.TrimPrefix(err.Error(), "this node does not implement: ")
		}
		if got != test.refused {
			t.Errorf("%s: refused %q, want %q", name, got, test.refused)
		}
	}
}
