//go:build nodrop

package nodrop

import (
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestWatchedNamespaces runs controllers that may see one namespace: what is there works whole with the
// permissions that the chart gives them, and what is elsewhere is left alone.
func TestWatchedNamespaces(t *testing.T) {
	w := open(t)
	cluster(t, "apply", filepath.Join(setting("ROOT"), "test/nodrop/testdata/watched.yaml"))
	const system, watched, elsewhere, proxies = "narrow-system", "watched", "elsewhere", "web-narrow"
	if err := helm("moongate", system, "moongate", "crds.enabled=false", "image.repository="+setting("IMAGE"), "image.tag="+current,
		"controllerName=example.org/narrow", "gatewayClass.name=narrow", "watchNamespaces={"+watched+"}",
		"gatewayClass.parameters.autoscaling.maxReplicas=2"); err != nil {
		t.Fatal(err)
	}
	w.authority = newAuthority(t)
	w.setCertificate(t, watched, "web", w.authority.issue(t, host))
	address := w.programmed(t, watched, "web")
	w.rolledOut(t, watched, proxies)
	w.rolledOut(t, watched, backend)
	for _, port := range []string{"80", "443"} {
		w.serves(t, net.JoinHostPort(address, port), host)
	}
	if _, err := w.kube.AutoscalingV2().HorizontalPodAutoscalers(watched).Get(t.Context(), proxies, metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
	eventually(t, func() string {
		route, err := w.gateways.GatewayV1().HTTPRoutes(watched).Get(t.Context(), "crossing", metav1.GetOptions{})
		if err != nil {
			return err.Error()
		}
		for _, p := range route.Status.Parents {
			if c := meta.FindStatusCondition(p.Conditions, "ResolvedRefs"); c != nil && c.Reason == "RefNotPermitted" && strings.Contains(c.Message, "not watched") {
				return ""
			}
		}
		return fmt.Sprintf("a reference out of the watched namespace: %+v", route.Status)
	})

	// Everything above was written by now, and so would this have been.
	if _, err := w.kube.AppsV1().Deployments(elsewhere).Get(t.Context(), proxies, metav1.GetOptions{}); err == nil {
		t.Error("a proxy runs in a namespace that is not watched")
	}
	gateway, err := w.gateways.GatewayV1().Gateways(elsewhere).Get(t.Context(), "web", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range gateway.Status.Conditions {
		if c.Status != metav1.ConditionUnknown { // the CRD's default
			t.Errorf("a Gateway that is not watched has a condition: %+v", c)
		}
	}
	route, err := w.gateways.GatewayV1().HTTPRoutes(elsewhere).Get(t.Context(), "backend", metav1.GetOptions{})
	if err != nil || len(route.Status.Parents) > 0 {
		t.Errorf("a route that is not watched: %+v, %v", route.Status, err)
	}

	for namespace, want := range map[string]bool{watched: true, elsewhere: false, "": false} {
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User:               "system:serviceaccount:" + system + ":" + controller,
			ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: namespace, Verb: "list", Resource: "secrets"},
		}}
		got, err := w.kube.AuthorizationV1().SubjectAccessReviews().Create(t.Context(), review, metav1.CreateOptions{})
		if err != nil || got.Status.Allowed != want {
			t.Errorf("may list the Secrets of namespace %q: %t, %v", namespace, got.Status.Allowed, err)
		}
	}
	for _, pod := range w.rolledOut(t, system, controller) {
		log, err := w.kube.CoreV1().Pods(system).GetLogs(pod.Name, &corev1.PodLogOptions{}).DoRaw(t.Context())
		if err != nil || len(log) == 0 {
			t.Errorf("the log of %s: %d bytes, %v", pod.Name, len(log), err)
		}
		for line := range strings.Lines(string(log)) {
			if strings.Contains(strings.ToLower(line), "forbidden") {
				t.Errorf("%s lacks a permission: %s", pod.Name, line)
			}
		}
	}
}
