//go:build cluster

// Against a real API server with the CRDs of the Gateway API and ours: KUBECONFIG says where,
// as one who may do all.
//
//	go test -tags cluster -run TestCluster ./internal/controller

package controller

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/moongate-dev/moongate/internal/testkit"
)

// TestClusterEvents: a route whose backend does not exist, and a Gateway that a quota keeps from being provisioned, have an Event where "kubectl describe" looks for
// it, another one when they are mended, and none again when the controller starts anew.
func TestClusterEvents(t *testing.T) {
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	if err != nil {
		t.Fatal(err)
	}
	config.QPS = -1
	kube, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	objects, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	namespace := fmt.Sprint("controller-test-", os.Getpid()) // the one of an earlier run may still be ending
	class := namespace
	put := func(resource, namespace string, o metav1.Object) *unstructured.Unstructured {
		t.Helper()
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
		if err != nil {
			t.Fatal(err)
		}
		u := &unstructured.Unstructured{Object: content}
		u.SetManagedFields(nil)
		delete(content, "status")
		unstructured.RemoveNestedField(content, "metadata", "creationTimestamp")
		made, err := objects.Resource(schema.GroupVersionResource{Group: gwv1.GroupName, Version: "v1", Resource: resource}).Namespace(namespace).
			Apply(t.Context(), o.GetName(), u, metav1.ApplyOptions{FieldManager: "test", Force: true})
		if err != nil {
			t.Fatal(err)
		}
		return made
	}
	if _, err := kube.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx := context.Background()
		for resource, name := range map[string]string{"httproutes": "web", "gateways": "gw"} {
			_ = objects.Resource(schema.GroupVersionResource{Group: gwv1.GroupName, Version: "v1", Resource: resource}).Namespace(namespace).Delete(ctx, name, metav1.DeleteOptions{})
		}
		classes := objects.Resource(schema.GroupVersionResource{Group: gwv1.GroupName, Version: "v1", Resource: "gatewayclasses"})
		_, _ = classes.Patch(ctx, class, "application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
		_ = classes.Delete(ctx, class, metav1.DeleteOptions{})
		_ = kube.CoreV1().Namespaces().Delete(ctx, namespace, metav1.DeleteOptions{})
	})
	meta := func(of, name string) (metav1.TypeMeta, metav1.ObjectMeta) {
		return metav1.TypeMeta{APIVersion: gwv1.GroupVersion.String(), Kind: of}, metav1.ObjectMeta{Name: name, Namespace: namespace}
	}
	gc := &gwv1.GatewayClass{Spec: gwv1.GatewayClassSpec{ControllerName: "example.org/controller-test"}}
	gc.TypeMeta, gc.ObjectMeta = meta("GatewayClass", class)
	gc.Namespace = ""
	put("gatewayclasses", "", gc)
	gw := gatewayOf("gw", class, 0)
	gw.TypeMeta, gw.ObjectMeta = meta("Gateway", "gw")
	gateway := put("gateways", namespace, gw)
	quotas := kube.CoreV1().ResourceQuotas(namespace)
	if _, err := quotas.Create(t.Context(), &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "none"},
		Spec: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{corev1.ResourceServices: resource.MustParse("0")}}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, "the quota is in force", func() bool {
		q, err := quotas.Get(t.Context(), "none", metav1.GetOptions{})
		return err == nil && len(q.Status.Hard) > 0
	})
	route := routeTo("web", "gw")
	route.TypeMeta, route.ObjectMeta = meta("HTTPRoute", "web")
	path := gwv1.PathMatchPathPrefix
	refers := func(service string, port gwv1.PortNumber) *unstructured.Unstructured {
		route.Spec.Rules = []gwv1.HTTPRouteRule{{
			Matches:     []gwv1.HTTPRouteMatch{{Path: &gwv1.HTTPPathMatch{Type: &path, Value: new("/")}}},
			BackendRefs: []gwv1.HTTPBackendRef{{BackendRef: gwv1.BackendRef{BackendObjectReference: gwv1.BackendObjectReference{Name: gwv1.ObjectName(service), Port: &port}}}},
		}}
		return put("httproutes", namespace, route)
	}
	made := refers("absent", 80)

	// describeObject is what "kubectl describe" lists: Events of the core group, by what they involve.
	describeObject := func(o *unstructured.Unstructured) (all []string) {
		t.Helper()
		list, err := kube.CoreV1().Events(namespace).List(t.Context(), metav1.ListOptions{FieldSelector: fields.Set{
			"involvedObject.name": o.GetName(), "involvedObject.namespace": namespace, "involvedObject.kind": o.GetKind(), "involvedObject.uid": string(o.GetUID()),
		}.String()})
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range list.Items {
			n := int32(1)
			if e.Series != nil {
				n = e.Series.Count
			}
			all = append(all, fmt.Sprintf("%s %s x%d %s from %s", e.Type, e.Reason, n, e.Message, e.ReportingController))
		}
		slices.Sort(all)
		return all
	}
	describe := func() []string { return describeObject(made) }
	log := &testkit.Log{}
	start := func(identity string) (c *Controller, stop func()) {
		c, err := New(Options{
			Config: config, ControllerName: "example.org/controller-test", Namespace: namespace, Namespaces: []string{namespace}, Identity: identity, Image: "image",
			DeliveryAddress: "127.0.0.1:0", Service: "moongate-controller", LeaderElection: true, Logger: slog.New(slog.NewTextHandler(log, nil)),
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan error, 1)
		go func() { done <- c.Run(ctx) }()
		testkit.Eventually(t, identity+" leads, and has written all", func() bool { return c.Leading() && c.writer.Idle() && len(c.writer.Conditions()) > 0 })
		return c, func() {
			cancel()
			if err := <-done; err != nil {
				t.Error(err)
			}
			if written, dropped := c.events.Stats(); len(dropped) != 0 {
				t.Errorf("%s has written %d Events, dropped %v", identity, written, dropped)
			}
		}
	}
	defer func() {
		if t.Failed() {
			t.Logf("Events:\n%q\n%q\nlog:\n%s", describe(), describeObject(gateway), log)
		}
	}()
	const broken = "Warning BackendNotFound x1 "
	_, stop := start("first")
	testkit.Eventually(t, "an Event tells of the backend that does not exist", func() bool { return one(describe(), broken) })
	refused := "Warning ProvisioningFailed x1 Service " + namespace + "/gw-"
	testkit.Eventually(t, "an Event tells of the quota", func() bool { return one(describeObject(gateway), refused) })
	testkit.Eventually(t, "the Gateway's status says it too", func() bool {
		o, err := objects.Resource(schema.GroupVersionResource{Group: gwv1.GroupName, Version: "v1", Resource: "gateways"}).Namespace(namespace).Get(t.Context(), "gw", metav1.GetOptions{})
		text, _ := json.Marshal(o)
		return err == nil && strings.Contains(string(text), "exceeded quota")
	})
	stop()
	told := describe()
	second, stop := start("second")
	testkit.Eventually(t, "the second meets the quota", func() bool { return second.Stats().Reconciled["provision"].Errors > 1 })
	if all := describe(); !slices.Equal(all, told) || !one(describeObject(gateway), refused) {
		t.Errorf("after a restart there are %q and %q, before there were %q", all, describeObject(gateway), told)
	}
	if err := quotas.Delete(t.Context(), "none", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, "an Event tells that the Gateway is provisioned", func() bool { return one(describeObject(gateway), "Normal Provisioned x1 ") })
	if _, err := kube.CoreV1().Services(namespace).Create(t.Context(), &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "absent"},
		Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, "an Event tells that it is mended", func() bool { return one(describe(), "Normal ResolvedRefs x1 ") })
	if all := describe(); len(all) != len(told)+1 || !one(all, broken) {
		t.Errorf("%q", all)
	}
	stop()
	_, stop = start("third")
	refers("elsewhere", 80)
	testkit.Eventually(t, "the next fault is told", func() bool { return len(describe()) == len(told)+2 })
	stop()
	if all := describe(); len(all) != len(told)+2 || !one(describeObject(gateway), refused) { // Events are written in the order in which they were recorded
		t.Errorf("in the end there are %q", all)
	}
}
