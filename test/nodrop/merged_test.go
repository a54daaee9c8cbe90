//go:build nodrop

package nodrop

import (
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"syscall"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Of the Gateways of class merged.
const (
	mergedNamespace = "merged"
	mergedProxies   = "merged-gateways" // Deployment
)

// TestMergedGateways has a Gateway served with others of its class: whatever becomes of these, its clients notice nothing. Then the Gateways get proxies of their own, and
// are merged again, and their clients are served at the address of before until the next one is.
func TestMergedGateways(t *testing.T) {
	w := open(t)
	w.setUp(t)
	apply := func(file string) { cluster(t, "apply", filepath.Join(setting("ROOT"), "test/nodrop/testdata", file)) }
	apply("merged.yaml")
	w.address = w.programmed(t, namespace, "first")
	pods := w.rolledOut(t, mergedNamespace, mergedProxies)
	for _, port := range []string{"80", "443"} {
		w.serves(t, net.JoinHostPort(w.address, port), host)
	}
	w.scenario(t, "a Gateway joins and leaves", func(t *testing.T, l *traffic) {
		l.phase("join")
		apply("joining.yaml")
		if address := w.programmed(t, "joining", "second"); address != w.address {
			t.Errorf("the second Gateway has address %s, the first one %s", address, w.address)
		}
		w.serves(t, net.JoinHostPort(w.address, "80"), "joining.example.org")
		w.serves(t, net.JoinHostPort(w.address, "8080"), "any.example.org")
		w.loses(t)
		if err := w.ask(net.JoinHostPort(w.address, "443"), "joining.example.org"); err == nil {
			t.Error("a certificate is shown that the Gateway may not have")
		}
		l.proceed(t)
		l.phase("leave")
		if err := w.kube.CoreV1().Namespaces().Delete(t.Context(), "joining", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		eventually(t, func() string {
			if err := w.ask(net.JoinHostPort(w.address, "8080"), host); !errors.Is(err, syscall.ECONNREFUSED) {
				return fmt.Sprintf("port 8080 is still served: %v", err)
			}
			return ""
		})
	})
	now := map[string]bool{}
	for _, pod := range w.rolledOut(t, mergedNamespace, mergedProxies) {
		now[pod.Name] = true
	}
	for _, pod := range pods {
		if !now[pod.Name] {
			t.Errorf("proxy %s was restarted for another Gateway", pod.Name)
		}
	}
	w.scenario(t, "proxies of its own", func(t *testing.T, _ *traffic) { w.moves(t, false) })
	w.address = w.programmed(t, namespace, "first")
	w.gone(t, mergedNamespace, mergedProxies)
	w.scenario(t, "merged again", func(t *testing.T, _ *traffic) { w.moves(t, true) })
	w.gone(t, namespace, "first-merged")
	if err := w.gateways.GatewayV1().Gateways(namespace).Delete(t.Context(), "first", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	w.gone(t, mergedNamespace, mergedProxies)
}

// loses waits until the listener of the second Gateway that asks for what the first one has says so.
func (w *world) loses(t *testing.T) {
	t.Helper()
	eventually(t, func() string {
		gateway, err := w.gateways.GatewayV1().Gateways("joining").Get(t.Context(), "second", metav1.GetOptions{})
		if err != nil {
			return err.Error()
		}
		for _, l := range gateway.Status.Listeners {
			if l.Name == "taken" {
				if c := meta.FindStatusCondition(l.Conditions, "Conflicted"); c == nil || c.Status != metav1.ConditionTrue || c.Reason != "HostnameConflict" {
					return fmt.Sprintf("the listener has conditions %+v", l.Conditions)
				}
				return ""
			}
		}
		return "the listener has no status"
	})
}

// moves has the Gateways of the class merged, or not, and waits until the first one is served at another address.
func (w *world) moves(t *testing.T, merge bool) {
	t.Helper()
	patch := fmt.Appendf(nil, `{"spec":{"classOnly":{"mergeGateways":%v}}}`, merge)
	err := w.kube.CoreV1().RESTClient().Patch(types.MergePatchType).AbsPath("/apis/moongate.dev/v1alpha1/namespaces", mergedNamespace, "gatewayparameters/merged").
		Body(patch).Do(t.Context()).Error()
	if err != nil {
		t.Fatal(err)
	}
	w.moved(t, "first")
}

// moved waits until a Gateway is served at another address.
func (w *world) moved(t *testing.T, name string) {
	t.Helper()
	eventually(t, func() string {
		gateway, err := w.gateways.GatewayV1().Gateways(namespace).Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			return err.Error()
		}
		for _, a := range gateway.Status.Addresses {
			if a.Value != w.address {
				return errorText(w.ask(net.JoinHostPort(a.Value, "443"), host))
			}
		}
		return fmt.Sprintf("it has addresses %+v", gateway.Status.Addresses)
	})
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// gone waits until there is no such Deployment, and no Service of its name.
func (w *world) gone(t *testing.T, namespace, name string) {
	t.Helper()
	eventually(t, func() string {
		if _, err := w.kube.AppsV1().Deployments(namespace).Get(t.Context(), name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			return fmt.Sprintf("Deployment %s is there: %v", name, err)
		}
		if _, err := w.kube.CoreV1().Services(namespace).Get(t.Context(), name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			return fmt.Sprintf("Service %s is there: %v", name, err)
		}
		return ""
	})
}
