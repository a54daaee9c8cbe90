//go:build cluster

package main

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func (h *harness) createService(t *testing.T, name string, spec corev1.ServiceSpec) *corev1.Service {
	t.Helper()
	spec.Ports = []corev1.ServicePort{{Name: "http", Port: 80}}
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: echoNamespace}, Spec: spec}
	service, err := h.client.CoreV1().Services(echoNamespace).Create(t.Context(), service, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return service
}

// awaitResolved waits until a name means exactly these addresses, as seen by the pod at base.
func (h *harness) awaitResolved(t *testing.T, base, name string, want ...string) {
	t.Helper()
	slices.Sort(want)
	eventually(t, func() string {
		// A name without addresses is an error for the pod that asks.
		_, body, err := h.ask("GET", base+"resolve/"+name)
		if err != nil {
			return err.Error()
		}
		got := strings.Fields(body)
		slices.Sort(got)
		if !slices.Equal(got, want) {
			return fmt.Sprintf("%s resolves to %q, want %q", name, body, want)
		}
		return ""
	})
}

// testHeadless lets pods find each other before they are ready, as replicas of a
// controller must.
func (h *harness) testHeadless(t *testing.T) {
	pods := h.echoPods(t)
	asking := "http://" + pods[0].Status.PodIP + ":8080/"
	unready := "http://" + pods[1].Status.PodIP + ":8080/unready/"
	selector := map[string]string{"app": "echo"}
	h.createService(t, "ready-peers", corev1.ServiceSpec{ClusterIP: corev1.ClusterIPNone, Selector: selector})
	h.createService(t, "all-peers", corev1.ServiceSpec{ClusterIP: corev1.ClusterIPNone, Selector: selector, PublishNotReadyAddresses: true})
	if status, _, err := h.ask("POST", unready+"true"); err != nil || status != http.StatusOK {
		t.Fatal(status, err)
	}
	h.awaitResolved(t, asking, "ready-peers.echo.svc.cluster.local", pods[0].Status.PodIP)
	h.awaitResolved(t, asking, "all-peers.echo.svc.cluster.local", pods[0].Status.PodIP, pods[1].Status.PodIP)
	if status, _, err := h.ask("POST", unready+"false"); err != nil || status != http.StatusOK {
		t.Fatal(status, err)
	}
	h.awaitResolved(t, asking, "ready-peers", pods[0].Status.PodIP, pods[1].Status.PodIP)
}

// testManualEndpoints reaches a Service without a selector by the slice that was
// written for it.
func (h *harness) testManualEndpoints(t *testing.T) {
	pod := h.echoPods(t)[0]
	manual := h.createService(t, "manual", corev1.ServiceSpec{})
	h.createService(t, "manual-headless", corev1.ServiceSpec{ClusterIP: corev1.ClusterIPNone})
	name, port := "http", int32(8080)
	for _, service := range []string{"manual", "manual-headless"} {
		slice := &discoveryv1.EndpointSlice{
			ObjectMeta:  metav1.ObjectMeta{Name: service, Labels: map[string]string{discoveryv1.LabelServiceName: service}},
			AddressType: discoveryv1.AddressTypeIPv4,
			Ports:       []discoveryv1.EndpointPort{{Name: &name, Port: &port}},
			Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{pod.Status.PodIP}}},
		}
		if _, err := h.client.DiscoveryV1().EndpointSlices(echoNamespace).Create(t.Context(), slice, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, func() string {
		status, _, err := h.ask("GET", "http://"+manual.Spec.ClusterIP+"/")
		if err != nil || status != http.StatusOK {
			return fmt.Sprint(status, err)
		}
		return ""
	})
	if got := h.echo(t, "http://"+manual.Spec.ClusterIP+"/").Pod; got != pod.Name {
		t.Errorf("pod %s answers, want %s", got, pod.Name)
	}
	asking := "http://" + pod.Status.PodIP + ":8080/"
	h.awaitResolved(t, asking, "manual", manual.Spec.ClusterIP)
	h.awaitResolved(t, asking, "manual-headless", pod.Status.PodIP)
}
