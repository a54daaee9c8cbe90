//go:build nodrop

package nodrop

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	gateways "sigs.k8s.io/gateway-api/pkg/client/clientset/versioned"

	"github.com/moongate-dev/moongate/test/nodrop/load"
)

const (
	namespace  = "nodrop"
	controller = "moongate-controller"
	system     = "moongate-system"
	host       = "echo.example.org"
	// patience is for each thing that is waited for.
	patience = 90 * time.Second
	// enough requests of each client before and after a fault, and while it lasts.
	enough = 200
)

// world is the cluster, with a Gateway at work on it.
type world struct {
	kube     *kubernetes.Clientset
	gateways *gateways.Clientset
	address  string
}

func open(t *testing.T) *world {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	if err != nil {
		t.Fatal(err)
	}
	config.QPS = -1
	w := &world{}
	if w.kube, err = kubernetes.NewForConfig(config); err != nil {
		t.Fatal(err)
	}
	if w.gateways, err = gateways.NewForConfig(config); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() string {
		gateway, err := w.gateways.GatewayV1().Gateways(namespace).Get(t.Context(), "nodrop", metav1.GetOptions{})
		if err != nil {
			return err.Error()
		}
		for _, condition := range gateway.Status.Conditions {
			if condition.Type == "Programmed" && condition.Status == "True" && len(gateway.Status.Addresses) > 0 {
				w.address = net.JoinHostPort(gateway.Status.Addresses[0].Value, "80")
				return ""
			}
		}
		return fmt.Sprintf("the Gateway is not programmed: %+v", gateway.Status.Conditions)
	})
	for _, deployment := range []string{"echo", "nodrop-moongate"} {
		w.awaitRolledOut(t, namespace, deployment)
	}
	return w
}

// scenario lets a fault happen under load, and fails the test for each request
// that failed before, meanwhile or after.
func (w *world) scenario(t *testing.T, name string, fault func(t *testing.T, l *load.Load)) {
	t.Run(name, func(t *testing.T) {
		l := w.start()
		ended := false
		end := func() {
			if ended {
				return
			}
			ended = true
			report := l.Stop()
			t.Log(report)
			if len(report.Failures) > 0 {
				t.Errorf("%d requests failed", len(report.Failures))
			}
		}
		defer end() // also when the fault ends the test
		proceed(t, l)
		fault(t, l)
		proceed(t, l)
		end()
	})
}

// start puts the Gateway under load.
func (w *world) start() *load.Load {
	clients := map[load.Kind]int{}
	for _, kind := range load.Kinds {
		clients[kind] = 4
	}
	return load.Start(load.Spec{Address: w.address, Host: host, Path: "/quiet", Clients: clients, Pause: time.Millisecond})
}

// proceed waits until every client was answered often enough.
func proceed(t *testing.T, l *load.Load) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := l.Await(ctx, enough); err != nil {
		t.Fatal(err)
	}
}

// part stops, kills or starts a part of the control plane.
func part(t *testing.T, verb, name string) {
	t.Helper()
	command := exec.Command(os.Getenv("NODROP_CLUSTER"), "-name", os.Getenv("NODROP_NAME"), verb, name)
	if output, err := command.CombinedOutput(); err != nil {
		t.Fatalf("%s %s: %v: %s", verb, name, err, output)
	}
}

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

// awaitRolledOut waits until all pods of a Deployment are its newest and ready,
// and no other is left.
func (w *world) awaitRolledOut(t *testing.T, namespace, name string) {
	t.Helper()
	eventually(t, func() string {
		d, err := w.kube.AppsV1().Deployments(namespace).Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			return err.Error()
		}
		selector := metav1.FormatLabelSelector(d.Spec.Selector)
		pods, err := w.kube.CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{LabelSelector: selector})
		if err != nil {
			return err.Error()
		}
		s, want := d.Status, *d.Spec.Replicas
		if s.ObservedGeneration < d.Generation || s.UpdatedReplicas != want || s.AvailableReplicas != want || len(pods.Items) != int(want) {
			return fmt.Sprintf("Deployment %s: %d of %d updated, %d available, %d pods", name, s.UpdatedReplicas, want, s.AvailableReplicas, len(pods.Items))
		}
		return ""
	})
}
