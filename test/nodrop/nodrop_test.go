//go:build nodrop

package nodrop

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/moongate-dev/moongate/test/nodrop/load"
)

// TestNoDrop lets one thing after the other fail or change. The API server goes last: for most of a
// minute after it is back, Kubernetes' own controllers are slow.
func TestNoDrop(t *testing.T) {
	w := open(t)
	w.setUp(t)
	t.Run("the load notices", w.notice)
	w.scenario(t, "nothing", func(*testing.T, *traffic) {})
	w.scenario(t, "a route changes", func(t *testing.T, _ *traffic) {
		for range 10 {
			w.changes(t)
		}
	})
	w.scenario(t, "a certificate is rotated", w.rotateCertificate)
	w.scenario(t, "a listener comes and goes", w.addListener)
	w.scenario(t, "the leader is killed", w.killLeader)
	w.scenario(t, "the leader changes", w.deleteLeader)
	w.scenario(t, "proxies restart", func(t *testing.T, _ *traffic) { w.restart(t, namespace, proxies) })
	w.scenario(t, "a proxy is deleted", w.deleteProxy)
	w.scenario(t, "proxies on each node, and back", w.changeWorkload)
	w.scenario(t, "backends restart", func(t *testing.T, _ *traffic) { w.restart(t, namespace, backend) })
	w.scenario(t, "backends restart at once", w.restartAtOnce)
	w.scenario(t, "versions", w.changeVersions)
	w.scenario(t, "the API server is away", w.stopAPIServer)
}

// notice takes the proxies away without a grace: a load that sees nothing of that would see nothing at all. Where no request was under
// way at that moment, it sees a connection that waited for the next proxy: the first segment of one is sent again after a second.
func (w *world) notice(t *testing.T) {
	l := w.start()
	l.proceed(t)
	for _, pod := range w.rolledOut(t, namespace, proxies) {
		now := int64(0)
		if err := w.kube.CoreV1().Pods(namespace).Delete(t.Context(), pod.Name, metav1.DeleteOptions{GracePeriodSeconds: &now}); err != nil {
			t.Fatal(err)
		}
	}
	l.proceed(t)
	w.rolledOut(t, namespace, proxies)
	l.each(func(one *load.Load) {
		if report := one.Stop(); len(report.Failures) == 0 && report.Slowest < time.Second {
			t.Errorf("no request failed or waited although no proxy was there: %s", report)
		}
	})
}

func (w *world) rotateCertificate(t *testing.T, l *traffic) {
	next := w.authority.issue(t, host)
	l.phase("rotate")
	w.setCertificate(t, namespace, "web", next)
	for _, pod := range w.rolledOut(t, namespace, proxies) {
		eventually(t, func() string {
			connection, err := tls.Dial("tcp", net.JoinHostPort(pod.Status.PodIP, "443"), w.tls)
			if err != nil {
				return err.Error()
			}
			defer connection.Close()
			if serial := connection.ConnectionState().PeerCertificates[0].SerialNumber.Int64(); serial != next.serial {
				return fmt.Sprintf("proxy %s shows certificate %d, not %d", pod.Name, serial, next.serial)
			}
			return ""
		})
	}
}

func (w *world) addListener(t *testing.T, l *traffic) {
	before := w.rolledOut(t, namespace, proxies)
	list, err := w.gateways.GatewayV1().Gateways(namespace).Get(t.Context(), "web", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	extra := net.JoinHostPort(w.address, "8080")
	set := func(patch string) {
		if _, err := w.gateways.GatewayV1().Gateways(namespace).Patch(t.Context(), "web", types.JSONPatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	l.phase("add")
	set(`[{"op":"add","path":"/spec/listeners/-","value":{"name":"extra","protocol":"HTTP","port":8080}}]`)
	w.serves(t, extra, host)
	l.phase("remove")
	set(fmt.Sprintf(`[{"op":"remove","path":"/spec/listeners/%d"}]`, len(list.Spec.Listeners)))
	eventually(t, func() string {
		if err := w.ask(extra, host); !errors.Is(err, syscall.ECONNREFUSED) {
			return fmt.Sprintf("port 8080 is still served: %v", err)
		}
		return ""
	})
	after := w.rolledOut(t, namespace, proxies)
	names := func(pods []corev1.Pod) map[string]bool {
		all := map[string]bool{}
		for _, pod := range pods {
			all[pod.Name] = true
		}
		return all
	}
	for name := range names(before) {
		if !names(after)[name] {
			t.Errorf("proxy %s was restarted for a listener", name)
		}
	}
}

func (w *world) deleteProxy(t *testing.T, _ *traffic) {
	pods := w.rolledOut(t, namespace, proxies)
	w.deletePod(t, namespace, pods[0].Name)
	w.rolledOut(t, namespace, proxies)
}

// changeWorkload goes from a Deployment to a DaemonSet, replaces the proxies of that, and goes back.
func (w *world) changeWorkload(t *testing.T, l *traffic) {
	set := func(patch string) {
		t.Helper()
		err := w.kube.CoreV1().RESTClient().Patch(types.MergePatchType).AbsPath("/apis/moongate.dev/v1alpha1/namespaces", namespace, "gatewayparameters/two").
			Body([]byte(patch)).Do(t.Context()).Error()
		if err != nil {
			t.Fatal(err)
		}
	}
	alone := func(kind string) func() string {
		return func() string {
			deployments, err := w.kube.AppsV1().Deployments(namespace).List(t.Context(), metav1.ListOptions{FieldSelector: "metadata.name=" + proxies})
			if err != nil {
				return err.Error()
			}
			sets, err := w.kube.AppsV1().DaemonSets(namespace).List(t.Context(), metav1.ListOptions{FieldSelector: "metadata.name=" + proxies})
			if err != nil {
				return err.Error()
			}
			pods, err := w.kube.CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{LabelSelector: "gateway.networking.k8s.io/gateway-name=web"})
			if err != nil {
				return err.Error()
			}
			for _, pod := range pods.Items {
				if len(pod.OwnerReferences) != 1 || pod.OwnerReferences[0].Kind != kind {
					return fmt.Sprintf("proxy %s is there, of %v", pod.Name, pod.OwnerReferences)
				}
			}
			if len(pods.Items) == 0 || len(deployments.Items) > 0 != (kind == "ReplicaSet") || len(sets.Items) > 0 != (kind == "DaemonSet") {
				return fmt.Sprintf("%d Deployments, %d DaemonSets and %d proxies", len(deployments.Items), len(sets.Items), len(pods.Items))
			}
			return ""
		}
	}
	l.phase("to a DaemonSet")
	set(`{"spec":{"replicas":null,"daemonSet":true}}`)
	eventually(t, alone("DaemonSet"))
	l.proceed(t)
	l.phase("a DaemonSet is updated")
	set(`{"spec":{"logLevel":"debug"}}`)
	eventually(t, func() string {
		d, err := w.kube.AppsV1().DaemonSets(namespace).Get(t.Context(), proxies, metav1.GetOptions{})
		if err != nil {
			return err.Error()
		}
		if s := d.Status; !slices.Contains(d.Spec.Template.Spec.Containers[0].Args, "--log-level=debug") || s.ObservedGeneration < d.Generation ||
			s.UpdatedNumberScheduled != s.DesiredNumberScheduled || s.NumberAvailable != s.DesiredNumberScheduled {
			return fmt.Sprintf("it is %+v", s)
		}
		return alone("DaemonSet")()
	})
	l.proceed(t)
	l.phase("to a Deployment")
	set(`{"spec":{"replicas":2,"daemonSet":null,"logLevel":null}}`)
	eventually(t, alone("ReplicaSet"))
	w.rolledOut(t, namespace, proxies)
}

// deletePod waits until it is gone.
func (w *world) deletePod(t *testing.T, namespace, name string) {
	t.Helper()
	if err := w.kube.CoreV1().Pods(namespace).Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() string {
		if _, err := w.kube.CoreV1().Pods(namespace).Get(t.Context(), name, metav1.GetOptions{}); err == nil {
			return name + " is still there"
		}
		return ""
	})
}

// restartAtOnce restarts backends that stop listening when they are told to end, while proxies
// still know their addresses: what is refused goes to another. A server that ends closes connections on which it has
// heard nothing, and an upload may be on its way there at that moment; nobody can know whether it was
// processed, so it is answered 502 and not sent again.
func (w *world) restartAtOnce(t *testing.T, l *traffic) {
	pods := len(w.rolledOut(t, namespace, backend))
	lost := map[string]int{}
	l.forgiven = func(f load.Failure) bool {
		if f.Kind != load.Upload || !strings.Contains(f.Reason, "502 upstream_reset") {
			return false
		}
		client := fmt.Sprint(f.Secure, f.Client)
		lost[client]++
		return lost[client] <= 2*pods // each is restarted twice
	}
	l.phase("change")
	w.patchDeployment(t, namespace, backend, `{"spec":{"template":{"spec":{"containers":[{"name":"backend","lifecycle":null}]}}}}`)
	w.rolledOut(t, namespace, backend)
	l.phase("restart")
	w.restart(t, namespace, backend)
}
