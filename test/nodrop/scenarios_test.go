//go:build nodrop

package nodrop

import (
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/moongate-dev/moongate/test/nodrop/load"
)

// TestNoDrop breaks one thing after the other.
func TestNoDrop(t *testing.T) {
	w := open(t)
	w.scenario(t, "nothing happens", func(*testing.T, *load.Load) {})
	w.scenario(t, "the API server crashes", w.crashAPIServer)
	w.scenario(t, "all controllers are away", w.removeControllers)
	w.scenario(t, "controllers restart", func(t *testing.T, _ *load.Load) { w.restart(t, system, controller) })
	w.scenario(t, "proxies restart", func(t *testing.T, _ *load.Load) { w.restart(t, namespace, "nodrop-moongate") })
	w.scenario(t, "a proxy is deleted", w.deleteProxy)
	w.scenario(t, "backends restart", func(t *testing.T, _ *load.Load) { w.restart(t, namespace, "echo") })
	w.scenario(t, "a route is edited", w.editRoute)
}

// TestDropsAreNoticed takes all proxies away without a grace, as no scenario may,
// and fails if the load does not see it.
func TestDropsAreNoticed(t *testing.T) {
	w := open(t)
	l := w.start()
	proceed(t, l)
	pods := w.kube.CoreV1().Pods(namespace)
	proxies := metav1.ListOptions{LabelSelector: gatewayv1.GatewayNameLabelKey + "=nodrop"}
	if err := pods.DeleteCollection(t.Context(), *metav1.NewDeleteOptions(0), proxies); err != nil {
		t.Fatal(err)
	}
	w.awaitRolledOut(t, namespace, "nodrop-moongate")
	proceed(t, l)
	if report := l.Stop(); len(report.Failures) == 0 {
		t.Error(report)
	}
}

func (w *world) crashAPIServer(t *testing.T, l *load.Load) {
	part(t, "kill", "kube-apiserver")
	proceed(t, l)
	part(t, "start", "kube-apiserver")
	eventually(t, func() string {
		if err := w.kube.Discovery().RESTClient().Get().AbsPath("/readyz").Do(t.Context()).Error(); err != nil {
			return err.Error()
		}
		return ""
	})
	w.awaitRolledOut(t, system, controller)
}

func (w *world) scale(t *testing.T, namespace, name string, replicas int) {
	t.Helper()
	patch := fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, replicas)
	if _, err := w.kube.AppsV1().Deployments(namespace).Patch(t.Context(), name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	w.awaitRolledOut(t, namespace, name)
}

func (w *world) removeControllers(t *testing.T, l *load.Load) {
	w.scale(t, system, controller, 0)
	proceed(t, l)
	w.scale(t, system, controller, 2)
}

// restart is what `kubectl rollout restart` does.
func (w *world) restart(t *testing.T, namespace, name string) {
	t.Helper()
	patch := fmt.Appendf(nil, `{"spec":{"template":{"metadata":{"annotations":{"kubectl.kubernetes.io/restartedAt":%q}}}}}`,
		time.Now().Format(time.RFC3339Nano))
	if _, err := w.kube.AppsV1().Deployments(namespace).Patch(t.Context(), name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	w.awaitRolledOut(t, namespace, name)
}

func (w *world) deleteProxy(t *testing.T, _ *load.Load) {
	selector := gatewayv1.GatewayNameLabelKey + "=nodrop"
	pods, err := w.kube.CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{LabelSelector: selector})
	if err != nil || len(pods.Items) == 0 {
		t.Fatal(len(pods.Items), err)
	}
	if err := w.kube.CoreV1().Pods(namespace).Delete(t.Context(), pods.Items[0].Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() string {
		now, err := w.kube.CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{LabelSelector: selector})
		if err != nil {
			return err.Error()
		}
		for _, pod := range now.Items {
			if pod.Name == pods.Items[0].Name {
				return pod.Name + " is still there"
			}
		}
		return ""
	})
	w.awaitRolledOut(t, namespace, "nodrop-moongate")
}

func (w *world) editRoute(t *testing.T, l *load.Load) {
	for i := range 10 {
		patch := fmt.Appendf(nil, `{"spec":{"hostnames":[%q,"edit-%d.example.org"]}}`, host, i)
		if _, err := w.gateways.GatewayV1().HTTPRoutes(namespace).Patch(t.Context(), "echo", types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
		if i == 5 {
			proceed(t, l)
		}
	}
}
