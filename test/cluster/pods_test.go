//go:build cluster

package main

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// pod creates a pod of one echo container.
func (h *harness) pod(t *testing.T, name string, change func(*corev1.PodSpec)) {
	t.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: echoNamespace},
		Spec: corev1.PodSpec{
			RestartPolicy: corev1.RestartPolicyNever,
			Containers:    []corev1.Container{{Name: "main", Image: "example.org/echo", Command: []string{"/echo", "check"}}},
		},
	}
	change(&pod.Spec)
	if _, err := h.client.CoreV1().Pods(echoNamespace).Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.client.CoreV1().Pods(echoNamespace).Delete(t.Context(), name, metav1.DeleteOptions{}) })
}

func (h *harness) awaitPod(t *testing.T, name string, missing func(*corev1.Pod) string) {
	t.Helper()
	eventually(t, func() string {
		pod, err := h.client.CoreV1().Pods(echoNamespace).Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			return err.Error()
		}
		return missing(pod)
	})
}

func (h *harness) testEndingPods(t *testing.T) {
	h.pod(t, "fails", func(*corev1.PodSpec) {})
	h.awaitPod(t, "fails", func(pod *corev1.Pod) string {
		s := pod.Status
		if s.Phase != corev1.PodFailed || s.ContainerStatuses[0].State.Terminated.ExitCode != 1 {
			return fmt.Sprintf("%+v", s)
		}
		return ""
	})
	if got := h.logs(t, "fails", &corev1.PodLogOptions{}); !strings.HasPrefix(got, "not ready") {
		t.Errorf("the log of a pod that ended is %q", got)
	}
	h.pod(t, "restarts", func(spec *corev1.PodSpec) { spec.RestartPolicy = corev1.RestartPolicyAlways })
	h.awaitPod(t, "restarts", func(pod *corev1.Pod) string {
		if len(pod.Status.ContainerStatuses) == 0 {
			return "no status"
		}
		s := pod.Status.ContainerStatuses[0]
		if s.RestartCount != 1 || s.State.Waiting == nil || s.State.Waiting.Reason != "CrashLoopBackOff" {
			return fmt.Sprintf("%+v", s)
		}
		return ""
	})
	// An init container that fails keeps the others from starting.
	h.pod(t, "init", func(spec *corev1.PodSpec) {
		spec.InitContainers = []corev1.Container{{Name: "first", Image: "example.org/echo", Command: []string{"/echo", "check"}}}
	})
	h.awaitPod(t, "init", func(pod *corev1.Pod) string {
		if pod.Status.Phase != corev1.PodFailed || pod.Status.ContainerStatuses[0].State.Waiting == nil {
			return fmt.Sprintf("%+v", pod.Status)
		}
		return ""
	})
}

func (h *harness) testRefusals(t *testing.T) {
	yes, root := true, int64(0)
	for name, test := range map[string]struct {
		change func(*corev1.PodSpec)
		reason string
		says   string
	}{
		"hostpid": {func(s *corev1.PodSpec) { s.HostPID = true }, "Unsupported", "hostPID"},
		"hostpath": {func(s *corev1.PodSpec) {
			s.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/"}}}}
		}, "Unsupported", "volumes.hostPath.path"},
		"subpath": {func(s *corev1.PodSpec) {
			s.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
			s.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "v", MountPath: "/v", SubPath: "x"}}
		}, "Unsupported", "containers.volumeMounts.subPath"},
		"nonroot": {func(s *corev1.PodSpec) { s.SecurityContext = &corev1.PodSecurityContext{RunAsNonRoot: &yes} },
			"CreateContainerConfigError", "runAsNonRoot"},
		"image": {func(s *corev1.PodSpec) {
			s.Containers[0].Image = "example.org/none:v1"
			s.SecurityContext = &corev1.PodSecurityContext{RunAsUser: &root}
		}, "ImagePullBackOff", "example.org/none"},
	} {
		h.pod(t, name, test.change)
		h.awaitPod(t, name, func(pod *corev1.Pod) string {
			if len(pod.Status.ContainerStatuses) == 0 {
				return "no status"
			}
			w := pod.Status.ContainerStatuses[0].State.Waiting
			if w == nil || w.Reason != test.reason || !strings.Contains(w.Message, test.says) {
				return fmt.Sprintf("%s: %+v", name, pod.Status.ContainerStatuses[0].State)
			}
			return ""
		})
	}
}

func (h *harness) testLoadBalancer(t *testing.T) {
	for name, test := range map[string]struct{ asks, gets string }{
		"first": {"", "10.97.0.2"}, "asks": {"10.97.0.77", "10.97.0.77"}, "outside": {"192.0.2.1", ""}, "taken": {"10.97.0.1", ""},
	} {
		service := &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: echoNamespace},
			Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer, LoadBalancerIP: test.asks,
				Selector: map[string]string{"app": "echo"}, Ports: []corev1.ServicePort{{Port: 80}}},
		}
		if _, err := h.client.CoreV1().Services(echoNamespace).Create(t.Context(), service, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		eventually(t, func() string {
			got := ""
			if ingress := h.service(t, name).Status.LoadBalancer.Ingress; len(ingress) > 0 {
				got = ingress[0].IP
			}
			if got != test.gets {
				return fmt.Sprintf("%s got %q, want %q", name, got, test.gets)
			}
			return ""
		})
	}
	// Events are recorded in the background, and neither of these Services
	// has an address before it is looked at either.
	eventually(t, func() string {
		list, err := h.client.CoreV1().Events(echoNamespace).List(t.Context(), metav1.ListOptions{FieldSelector: "reason=AllocationFailed"})
		if err != nil || len(list.Items) < 2 {
			return fmt.Sprintf("%d events about addresses that cannot be had, %v; want 2", len(list.Items), err)
		}
		return ""
	})
	for _, name := range []string{"outside", "taken"} {
		if ingress := h.service(t, name).Status.LoadBalancer.Ingress; len(ingress) > 0 {
			t.Errorf("%s got %v", name, ingress)
		}
	}
}

func (h *harness) testZones(t *testing.T) {
	nodes, err := h.client.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	zones := map[string]bool{}
	for _, node := range nodes.Items {
		zones[node.Labels[corev1.LabelTopologyZone]] = true
	}
	if len(zones) != 2 {
		t.Errorf("the nodes are in zones %v, want 2", zones)
	}
	h.pod(t, "zoned", func(spec *corev1.PodSpec) {
		spec.NodeSelector = map[string]string{corev1.LabelTopologyZone: "zone-2"}
		spec.Containers[0].Command = []string{"/echo"}
	})
	h.awaitPod(t, "zoned", func(pod *corev1.Pod) string {
		if pod.Spec.NodeName != "node-2" || pod.Status.HostIP != "10.95.0.2" || pod.Status.Phase != corev1.PodRunning {
			return fmt.Sprintf("%s %+v", pod.Spec.NodeName, pod.Status)
		}
		return ""
	})
	eventually(t, func() string { // a pod runs before it says its first word
		if got := h.logs(t, "zoned", &corev1.PodLogOptions{}); !strings.Contains(got, "listening") {
			return fmt.Sprintf("the log through the second node is %q", got)
		}
		return ""
	})
}

// testAway crashes the API server: traffic goes on, and everything finds its way back.
func (h *harness) testAway(t *testing.T) {
	url := h.loadBalancer(t)
	command(t, h.name, "kill", "kube-apiserver")
	if said := command(t, h.name, "parts"); !strings.Contains(said, "kube-apiserver           stopped") {
		t.Errorf("parts says %q", said)
	}
	if _, err := h.client.ServerVersion(); err == nil {
		t.Error("the API server still answers")
	}
	for range 20 {
		h.echo(t, url)
	}
	command(t, h.name, "start", "kube-apiserver")
	h.awaitEcho(t, "2")
	pods := h.echoPods(t)
	if err := h.client.CoreV1().Pods(echoNamespace).Delete(t.Context(), pods[0].Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	h.awaitEcho(t, "2")
}
