package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"
	gateways "sigs.k8s.io/gateway-api/pkg/client/clientset/versioned"
)

const (
	home         = "scale" // namespace and name of the Gateway
	backend      = "backend"
	backendPort  = 8080
	backendImage = "example.org/scale-backend"
	// patience is for each thing that is waited for.
	patience = 3 * time.Minute
)

// world is the cluster, with a Gateway and a backend on it.
type world struct {
	kube       *kubernetes.Clientset
	gateways   *gateways.Clientset
	controller gwv1.GatewayController // of the GatewayClass
	address    string                 // of the Gateway
}

// open makes what all tests need and waits for it.
func open(ctx context.Context, class string) (*world, error) {
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	if err != nil {
		return nil, err
	}
	config.QPS = -1
	w := &world{}
	if w.kube, err = kubernetes.NewForConfig(config); err != nil {
		return nil, err
	}
	if w.gateways, err = gateways.NewForConfig(config); err != nil {
		return nil, err
	}
	gc, err := w.gateways.GatewayV1().GatewayClasses().Get(ctx, class, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	w.controller = gc.Spec.ControllerName
	if err := errors.Join(w.namespace(ctx, home), w.deploy(ctx), w.createGateway(ctx, class)); err != nil {
		return nil, err
	}
	return w, errors.Join(w.awaitGateway(ctx), w.clear(ctx))
}

func (w *world) namespace(ctx context.Context, name string) error {
	_, err := w.kube.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	return unlessThere(err)
}

// unlessThere lets a second run find what the first one has made.
func unlessThere(err error) error {
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

// deploy makes the backend: one pod, and a Service with a port for each of its two.
func (w *world) deploy(ctx context.Context) error {
	labels := map[string]string{"app": backend}
	_, err := w.kube.AppsV1().Deployments(home).Create(ctx, &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: backend},
		Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{Containers: []corev1.Container{{
					Name: backend, Image: backendImage,
					ReadinessProbe: &corev1.Probe{ProbeHandler: corev1.ProbeHandler{
						TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromInt32(backendPort)}}, PeriodSeconds: 1},
				}}},
			},
		},
	}, metav1.CreateOptions{})
	if unlessThere(err) != nil {
		return err
	}
	_, err = w.kube.CoreV1().Services(home).Create(ctx, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: backend},
		Spec: corev1.ServiceSpec{Selector: labels, Ports: []corev1.ServicePort{
			{Name: "one", Port: 80, TargetPort: intstr.FromInt32(backendPort)},
			{Name: "two", Port: 8080, TargetPort: intstr.FromInt32(8081)},
		}},
	}, metav1.CreateOptions{})
	return unlessThere(err)
}

func (w *world) createGateway(ctx context.Context, class string) error {
	all := gwv1.NamespacesFromAll
	_, err := w.gateways.GatewayV1().Gateways(home).Create(ctx, &gwv1.Gateway{
		ObjectMeta: metav1.ObjectMeta{Name: home},
		Spec: gwv1.GatewaySpec{GatewayClassName: gwv1.ObjectName(class), AllowedListeners: &gwv1.AllowedListeners{Namespaces: &gwv1.ListenerNamespaces{From: &all}}, Listeners: []gwv1.Listener{{
			Name: "http", Protocol: gwv1.HTTPProtocolType, Port: 80,
			AllowedRoutes: &gwv1.AllowedRoutes{Namespaces: &gwv1.RouteNamespaces{From: &all}},
		}}},
	}, metav1.CreateOptions{})
	return unlessThere(err)
}

func (w *world) gateway(ctx context.Context) (*gwv1.Gateway, error) {
	return w.gateways.GatewayV1().Gateways(home).Get(ctx, home, metav1.GetOptions{})
}

func (w *world) awaitGateway(ctx context.Context) error {
	return eventually(ctx, func() error {
		gw, err := w.gateway(ctx)
		switch {
		case err != nil:
			return err
		case !meta.IsStatusConditionTrue(gw.Status.Conditions, string(gwv1.GatewayConditionProgrammed)) || len(gw.Status.Addresses) == 0:
			return fmt.Errorf("the Gateway is not programmed: %+v", gw.Status.Conditions)
		}
		w.address = gw.Status.Addresses[0].Value
		d, err := w.kube.AppsV1().Deployments(home).Get(ctx, backend, metav1.GetOptions{})
		switch {
		case err != nil:
			return err
		case d.Status.ReadyReplicas == 0:
			return errors.New("the backend is not ready")
		}
		return nil
	})
}

// attached is what the listener counts.
func attached(gw *gwv1.Gateway) int {
	if len(gw.Status.Listeners) == 0 {
		return 0
	}
	return int(gw.Status.Listeners[0].AttachedRoutes)
}

// awaitAttached waits until the listener counts so many routes.
func (w *world) awaitAttached(ctx context.Context, want int) error {
	return eventually(ctx, func() error {
		gw, err := w.gateway(ctx)
		if err == nil && attached(gw) != want {
			err = fmt.Errorf("%d routes are attached, not %d", attached(gw), want)
		}
		return err
	})
}

// clear deletes all routes, also those of a run before, and waits until none of them is counted.
func (w *world) clear(ctx context.Context) error {
	list, err := w.gateways.GatewayV1().HTTPRoutes("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	namespaces := map[string]bool{}
	for i := range list.Items {
		namespaces[list.Items[i].Namespace] = true
	}
	for namespace := range namespaces {
		if err := w.gateways.GatewayV1().HTTPRoutes(namespace).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
			return err
		}
	}
	return w.awaitAttached(ctx, 0)
}

// eventually tries until there is no error, and answers the last one when patience is over.
func eventually(ctx context.Context, try func() error) error {
	for until := time.Now().Add(patience); ; {
		err := try()
		if err == nil {
			return nil
		}
		if time.Now().After(until) {
			return fmt.Errorf("not after %s: %w", patience, err)
		}
		if err := pause(ctx, 50*time.Millisecond); err != nil {
			return err
		}
	}
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// each calls do with 0 to n-1, so many at a time, and answers the first error.
func each(ctx context.Context, n, workers int, do func(ctx context.Context, i int) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var all sync.WaitGroup
	next := make(chan int)
	for range workers {
		all.Go(func() {
			for i := range next {
				if err := do(ctx, i); err != nil {
					cancel(err)
				}
			}
		})
	}
	for i := 0; i < n && ctx.Err() == nil; i++ {
		select {
		case next <- i:
		case <-ctx.Done():
		}
	}
	close(next)
	all.Wait()
	return context.Cause(ctx)
}
