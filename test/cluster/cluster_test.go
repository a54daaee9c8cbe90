//go:build cluster

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

const echoNamespace = "echo"

// TestCluster uses, on one cluster and in this order, everything that README.md
// says it implements, ends it, and looks for what is left.
func TestCluster(t *testing.T) {
	before := lookForTraces(t)
	h := start(t, "-nodes", "2")
	command(t, h.name, "image", "example.org/echo", program("echo"))
	command(t, h.name, "apply", "testdata/echo.yaml")
	h.awaitEcho(t, "1")

	t.Run("addresses", h.testAddresses)
	t.Run("names", h.testNames)
	t.Run("headless Services", h.testHeadless)
	t.Run("manual endpoints", h.testManualEndpoints)
	t.Run("securityContext", h.testSecurity)
	t.Run("volumes", h.testVolumes)
	t.Run("readiness", h.testReadiness)
	t.Run("liveness and logs", h.testLiveness)
	t.Run("rolling update", h.testRollingUpdate)
	t.Run("pods that end", h.testEndingPods)
	t.Run("refusals", h.testRefusals)
	t.Run("load balancer addresses", h.testLoadBalancer)
	t.Run("zones", h.testZones)
	t.Run("API server away", h.testAway)

	own := h.own(t)
	if len(own) < 10 {
		t.Errorf("only %d namespaces of the cluster found; the search for leaks is broken", len(own))
	}
	begin := time.Now()
	command(t, h.name, "down")
	t.Logf("down after %s", time.Since(begin))
	checkGone(t, before, own)
	if _, err := os.Stat(h.dir); !os.IsNotExist(err) {
		t.Errorf("%s is still there: %v", h.dir, err)
	}
}

// TestCrash kills the cluster's process where nothing can tidy up.
func TestCrash(t *testing.T) {
	before := lookForTraces(t)
	h := start(t)
	own := h.own(t)
	p, err := h.process()
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(p.pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() string {
		if _, err := h.process(); err == nil {
			return "the process is still there"
		}
		return ""
	})
	checkGone(t, before, own)
}

type echoed struct {
	Pod, Version                      string
	User, Group                       int
	Capabilities, NoNewPrivs, Seccomp string
	Environment                       []string
}

func (h *harness) echo(t *testing.T, url string) echoed {
	t.Helper()
	var answer echoed
	if err := json.Unmarshal([]byte(h.get(t, url)), &answer); err != nil {
		t.Fatal(err)
	}
	return answer
}

func (h *harness) echoPods(t *testing.T) []corev1.Pod {
	t.Helper()
	list, err := h.client.CoreV1().Pods(echoNamespace).List(t.Context(), metav1.ListOptions{LabelSelector: "app=echo"})
	if err != nil {
		t.Fatal(err)
	}
	return list.Items
}

func (h *harness) service(t *testing.T, name string) *corev1.Service {
	t.Helper()
	service, err := h.client.CoreV1().Services(echoNamespace).Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return service
}

func (h *harness) loadBalancer(t *testing.T) string {
	t.Helper()
	ingress := h.service(t, "echo").Status.LoadBalancer.Ingress
	if len(ingress) != 1 {
		t.Fatalf("the Service has %d load balancer addresses, want 1", len(ingress))
	}
	return "http://" + ingress[0].IP + "/"
}

// awaitEcho waits until exactly the two pods of that version are there and ready.
func (h *harness) awaitEcho(t *testing.T, version string) {
	t.Helper()
	eventually(t, func() string {
		d, err := h.client.AppsV1().Deployments(echoNamespace).Get(t.Context(), "echo", metav1.GetOptions{})
		if err != nil {
			return err.Error()
		}
		s := d.Status
		if s.ObservedGeneration < d.Generation || s.UpdatedReplicas != 2 || s.AvailableReplicas != 2 || len(h.echoPods(t)) != 2 {
			return fmt.Sprintf("version %s: %+v, %d pods", version, s, len(h.echoPods(t)))
		}
		if status, body, err := h.ask("GET", h.loadBalancer(t)); err != nil || status != http.StatusOK {
			return fmt.Sprintf("%d %s %v", status, body, err)
		}
		return ""
	})
}

func (h *harness) testAddresses(t *testing.T) {
	service := h.service(t, "echo")
	clusterIP := "http://" + service.Spec.ClusterIP + "/"
	// The service proxy may learn of the second pod a moment after it is ready.
	eventually(t, func() string {
		seen := map[string]bool{}
		for range 20 {
			seen[h.echo(t, clusterIP).Pod] = true
			seen[h.echo(t, h.loadBalancer(t)).Pod] = true
		}
		if len(seen) != 2 {
			return fmt.Sprintf("40 requests met %d pods, want 2", len(seen))
		}
		return ""
	})
	h.echo(t, fmt.Sprintf("http://10.95.0.1:%d/", service.Spec.Ports[0].NodePort))
	for _, pod := range h.echoPods(t) {
		base := "http://" + pod.Status.PodIP + ":8080/"
		if got := h.echo(t, base).Pod; got != pod.Name {
			t.Errorf("pod %s answers as %s", pod.Name, got)
		}
		// From within a pod, also when the Service leads back to the same pod.
		for range 6 {
			h.get(t, base+"fetch/"+service.Spec.ClusterIP+"/")
			h.get(t, base+"fetch/"+strings.TrimPrefix(h.loadBalancer(t), "http://"))
		}
	}
	if _, _, err := h.ask("GET", "http://10.97.0.99/"); !strings.Contains(fmt.Sprint(err), "refused") {
		t.Errorf("an address that nobody has: %v, want a refused connection", err)
	}
}

func (h *harness) testNames(t *testing.T) {
	pod := h.echoPods(t)[0]
	service := h.service(t, "echo")
	for _, name := range []string{"echo", "echo.echo", "echo.echo.svc.cluster.local"} {
		if got := strings.TrimSpace(h.get(t, "http://"+pod.Status.PodIP+":8080/resolve/"+name)); got != service.Spec.ClusterIP {
			t.Errorf("%s resolves to %q, want %s", name, got, service.Spec.ClusterIP)
		}
	}
	env := h.echo(t, h.loadBalancer(t)).Environment
	for _, want := range []string{"PASSWORD=secret", "VERSION=1", "KUBERNETES_SERVICE_HOST=10.96.0.1", "ECHO_SERVICE_PORT_HTTP=80"} {
		if !slices.Contains(env, want) {
			t.Errorf("the environment lacks %s: %q", want, env)
		}
	}
}

func (h *harness) testSecurity(t *testing.T) {
	answer := h.echo(t, h.loadBalancer(t))
	if answer.User != 1234 || answer.Group != 2345 {
		t.Errorf("runs as %d:%d, want 1234:2345", answer.User, answer.Group)
	}
	if answer.Capabilities != "0000000000000000" || answer.NoNewPrivs != "1" || answer.Seccomp != "2" {
		t.Errorf("capabilities %s, no_new_privs %s, seccomp %s", answer.Capabilities, answer.NoNewPrivs, answer.Seccomp)
	}
	base := "http://" + h.echoPods(t)[0].Status.PodIP + ":8080/"
	for path, want := range map[string]int{"file": 403, "tmp/file": 403, "greeting/file": 403, "scratch/file": 200} {
		if status, body, err := h.ask("POST", base+"write/"+path); err != nil || status != want {
			t.Errorf("write /%s: %d %q %v, want %d", path, status, body, err, want)
		}
	}
}

func (h *harness) testVolumes(t *testing.T) {
	base := "http://" + h.echoPods(t)[0].Status.PodIP + ":8080/file/"
	if got := h.get(t, base+"greeting/greeting"); got != "hello" {
		t.Errorf("the ConfigMap's file holds %q", got)
	}
	if token := h.get(t, base+"var/run/secrets/kubernetes.io/serviceaccount/token"); strings.Count(token, ".") != 2 {
		t.Errorf("the token is %q", token)
	}
	patch := []byte(`{"data":{"greeting":"good evening"}}`)
	if _, err := h.client.CoreV1().ConfigMaps(echoNamespace).Patch(t.Context(), "greeting", types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() string {
		if got := h.get(t, base+"greeting/greeting"); got != "good evening" {
			return got
		}
		return ""
	})
}

// endpoint finds the pod's endpoint in the Service's slices.
func (h *harness) endpoint(t *testing.T, pod string) *discoveryv1.Endpoint {
	t.Helper()
	slices, err := h.client.DiscoveryV1().EndpointSlices(echoNamespace).List(t.Context(), metav1.ListOptions{LabelSelector: "kubernetes.io/service-name=echo"})
	if err != nil {
		t.Fatal(err)
	}
	for _, slice := range slices.Items {
		for _, endpoint := range slice.Endpoints {
			if endpoint.TargetRef.Name == pod {
				return &endpoint
			}
		}
	}
	return nil
}

func (h *harness) testReadiness(t *testing.T) {
	pod := h.echoPods(t)[0]
	base := "http://" + pod.Status.PodIP + ":8080/"
	tell := func(value string, want bool) {
		if status, _, err := h.ask("POST", base+"unready/"+value); err != nil || status != 200 {
			t.Fatal(status, err)
		}
		eventually(t, func() string {
			if e := h.endpoint(t, pod.Name); e == nil || *e.Conditions.Ready != want {
				return fmt.Sprintf("endpoint %+v, want ready %t", e, want)
			}
			return ""
		})
	}
	tell("true", false)
	eventually(t, func() string { // the service proxy follows
		for range 20 {
			if h.echo(t, h.loadBalancer(t)).Pod == pod.Name {
				return "a pod that is not ready is asked"
			}
		}
		return ""
	})
	tell("false", true)
}

func (h *harness) testLiveness(t *testing.T) {
	pod := h.echoPods(t)[0]
	if status, _, err := h.ask("POST", "http://"+pod.Status.PodIP+":8080/unhealthy/true"); err != nil || status != 200 {
		t.Fatal(status, err)
	}
	eventually(t, func() string {
		now, err := h.client.CoreV1().Pods(echoNamespace).Get(t.Context(), pod.Name, metav1.GetOptions{})
		if err != nil {
			return err.Error()
		}
		s := now.Status.ContainerStatuses[0]
		if s.RestartCount != 1 || !s.Ready || s.LastTerminationState.Terminated == nil {
			return fmt.Sprintf("%+v", s)
		}
		return ""
	})
	for previous, want := range map[bool]string{false: "listening\n", true: "ending\n"} {
		if got := h.logs(t, pod.Name, &corev1.PodLogOptions{Previous: previous}); !strings.Contains(got, want) {
			t.Errorf("the log (previous: %t) lacks %q: %q", previous, want, got)
		}
	}
	one := int64(1)
	if got := h.logs(t, pod.Name, &corev1.PodLogOptions{Previous: true, TailLines: &one}); got != "ending\n" {
		t.Errorf("the last line is %q", got)
	}
	h.awaitEcho(t, "1")
}

func (h *harness) logs(t *testing.T, pod string, options *corev1.PodLogOptions) string {
	t.Helper()
	stream, err := h.client.CoreV1().Pods(echoNamespace).GetLogs(pod, options).Stream(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	content, err := io.ReadAll(stream)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

// testRollingUpdate replaces every pod while requests arrive, none of which may fail.
func (h *harness) testRollingUpdate(t *testing.T) {
	url := h.loadBalancer(t)
	ctx, stop := context.WithCancel(t.Context())
	type tally struct {
		sent   int
		failed []string
		served map[string]int
	}
	done := make(chan tally)
	go func() {
		count := tally{served: map[string]int{}}
		for ; ctx.Err() == nil; count.sent++ {
			status, body, err := h.ask("GET", url)
			var answer echoed
			if err != nil || status != 200 || json.Unmarshal([]byte(body), &answer) != nil {
				count.failed = append(count.failed, fmt.Sprint(status, body, err))
			}
			count.served[answer.Version]++
			time.Sleep(5 * time.Millisecond)
		}
		done <- count
	}()
	old := h.echoPods(t)
	patch := []byte(`{"spec":{"template":{"spec":{"containers":[{"name":"echo","env":[{"name":"VERSION","value":"2"}]}]}}}}`)
	if _, err := h.client.AppsV1().Deployments(echoNamespace).Patch(t.Context(), "echo", types.StrategicMergePatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	terminating := false
	eventually(t, func() string {
		for _, pod := range old {
			if e := h.endpoint(t, pod.Name); e != nil && e.Conditions.Terminating != nil && *e.Conditions.Terminating {
				terminating = terminating || *e.Conditions.Serving && !*e.Conditions.Ready
			}
		}
		for _, pod := range h.echoPods(t) {
			if slices.ContainsFunc(old, func(o corev1.Pod) bool { return o.UID == pod.UID }) {
				return "pod " + pod.Name + " is still there"
			}
		}
		return ""
	})
	h.awaitEcho(t, "2")
	stop()
	count := <-done
	if len(count.failed) > 0 || count.served["1"] == 0 || count.served["2"] == 0 {
		t.Errorf("%d of %d requests failed; served by version: %v; %q", len(count.failed), count.sent, count.served, count.failed)
	}
	if !terminating {
		t.Error("no endpoint was seen terminating and still serving")
	}
}
