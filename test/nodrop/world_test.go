//go:build nodrop

package nodrop

import (
	"crypto/tls"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	gateways "sigs.k8s.io/gateway-api/pkg/client/clientset/versioned"
)

const (
	namespace  = "nodrop"
	proxies    = "web-moongate" // Deployment of the Gateway web
	backend    = "backend"
	system     = "moongate-system"
	controller = "moongate-controller"
	host       = "www.example.org"
	// patience bounds each wait. Nothing that works comes near it.
	patience = 90 * time.Second
)

// world is the cluster with Moongate in it.
type world struct {
	config   *rest.Config
	kube     *kubernetes.Clientset
	gateways *gateways.Clientset

	// Of the Gateway web, once setUp has returned.
	address   string // without a port
	authority *authority
	tls       *tls.Config
}

// once installs Moongate for whichever test comes first.
var once = sync.OnceValue(func() error {
	if err := helm("moongate-crds", system, "moongate-crds", "channel=experimental"); err != nil {
		return err
	}
	return install(current, "")
})

// setting is an environment variable that the Makefile sets.
func setting(name string) string { return os.Getenv("NODROP_" + name) }

// Tags of the two builds.
const (
	current  = "current"
	previous = "previous"
)

// install installs a build, or upgrades to it; pinned, if not empty, is the build of the proxies.
func install(build, pinned string) error {
	values := []string{"crds.enabled=false", "image.repository=" + setting("IMAGE"), "image.tag=" + build}
	if pinned != "" {
		values = append(values, "gatewayClass.parameters.classOnly.image="+image(pinned))
	}
	return helm("moongate", system, "moongate", values...)
}

func image(build string) string { return setting("IMAGE") + ":" + build }

// helm does what a user does.
func helm(release, namespace, chart string, values ...string) error {
	args := []string{"upgrade", "--install", release, filepath.Join(setting("ROOT"), "charts", chart),
		"--namespace", namespace, "--create-namespace", "--wait", "--timeout", "2m"}
	for _, value := range values {
		args = append(args, "--set", value)
	}
	if output, err := exec.Command(setting("HELM"), args...).CombinedOutput(); err != nil {
		return fmt.Errorf("helm %v: %w: %s", args, err, output)
	}
	return nil
}

// cluster runs a verb of the test cluster's program.
func cluster(t *testing.T, args ...string) {
	t.Helper()
	command := exec.Command(setting("CLUSTER"), append([]string{"-name", setting("NAME")}, args...)...)
	if output, err := command.CombinedOutput(); err != nil {
		t.Fatalf("cluster %v: %v: %s", args, err, output)
	}
}

// open connects to the cluster and installs Moongate.
func open(t *testing.T) *world {
	t.Helper()
	if err := once(); err != nil {
		t.Fatal(err)
	}
	w := &world{}
	var err error
	if w.config, err = clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG")); err != nil {
		t.Fatal(err)
	}
	w.config.QPS = -1
	if w.kube, err = kubernetes.NewForConfig(w.config); err != nil {
		t.Fatal(err)
	}
	if w.gateways, err = gateways.NewForConfig(w.config); err != nil {
		t.Fatal(err)
	}
	return w
}

// setUp applies the Gateway web with what belongs to it, and waits until it serves.
func (w *world) setUp(t *testing.T) {
	t.Helper()
	cluster(t, "apply", filepath.Join(setting("ROOT"), "test/nodrop/testdata/gateway.yaml"))
	w.authority = newAuthority(t)
	w.tls = &tls.Config{RootCAs: w.authority.pool, ServerName: host}
	w.setCertificate(t, namespace, "web", w.authority.issue(t, host))
	w.address = w.programmed(t, namespace, "web")
	w.rolledOut(t, namespace, proxies)
	w.rolledOut(t, namespace, backend)
	for _, port := range []string{"80", "443"} {
		w.serves(t, net.JoinHostPort(w.address, port), host)
	}
}

// programmed waits until a Gateway is, and returns its address.
func (w *world) programmed(t *testing.T, namespace, name string) (address string) {
	t.Helper()
	eventually(t, func() string {
		gateway, err := w.gateways.GatewayV1().Gateways(namespace).Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			return err.Error()
		}
		for _, c := range gateway.Status.Conditions {
			if c.Type == "Programmed" && c.Status == metav1.ConditionTrue && c.ObservedGeneration == gateway.Generation && len(gateway.Status.Addresses) > 0 {
				address = gateway.Status.Addresses[0].Value
				return ""
			}
		}
		return fmt.Sprintf("Gateway %s is not programmed: %+v", name, gateway.Status.Conditions)
	})
	return address
}

// eventually tries until try has nothing to complain about.
func eventually(t *testing.T, try func() string) {
	t.Helper()
	missing := ""
	for until := time.Now().Add(patience); time.Now().Before(until); time.Sleep(50 * time.Millisecond) {
		if missing = try(); missing == "" {
			return
		}
	}
	t.Fatalf("not after %s: %s", patience, missing)
}

// pods are those of a Deployment, ending ones included.
func (w *world) pods(t *testing.T, namespace, deployment string) ([]corev1.Pod, error) {
	d, err := w.kube.AppsV1().Deployments(namespace).Get(t.Context(), deployment, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	list, err := w.kube.CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{LabelSelector: metav1.FormatLabelSelector(d.Spec.Selector)})
	if err != nil {
		return nil, err
	}
	return list.Items, nil
}

// rolledOut waits until all pods of a Deployment are of its newest template and ready, and no
// other is left.
func (w *world) rolledOut(t *testing.T, namespace, deployment string) []corev1.Pod {
	t.Helper()
	var pods []corev1.Pod
	eventually(t, func() string {
		d, err := w.kube.AppsV1().Deployments(namespace).Get(t.Context(), deployment, metav1.GetOptions{})
		if err == nil {
			pods, err = w.pods(t, namespace, deployment)
		}
		if err != nil {
			return err.Error()
		}
		s, want := d.Status, *d.Spec.Replicas
		if s.ObservedGeneration < d.Generation || s.UpdatedReplicas != want || s.AvailableReplicas != want || len(pods) != int(want) {
			return fmt.Sprintf("Deployment %s: %d of %d updated, %d available, %d pods", deployment, s.UpdatedReplicas, want, s.AvailableReplicas, len(pods))
		}
		return ""
	})
	return pods
}
