// Package addresses gives each Service of type LoadBalancer an address of one
// range, as a cloud's or a rack's load balancer would. That traffic to it arrives
// is the service proxy's work; this package only writes status.loadBalancer.
package addresses

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/workqueue"
)

// Allocator holds which Service has which address. spec.loadBalancerIP asks for
// one address; a Service with a loadBalancerClass is somebody else's.
type Allocator struct {
	Client kubernetes.Interface
	Range  netip.Prefix
	Events record.EventRecorder

	byAddr map[netip.Addr]string
	byName map[string]netip.Addr
}

// Run allocates until ctx ends.
func (a *Allocator) Run(ctx context.Context, factory informers.SharedInformerFactory) error {
	a.byAddr, a.byName = map[netip.Addr]string{}, map[string]netip.Addr{}
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[string]())
	defer queue.ShutDown()
	context.AfterFunc(ctx, queue.ShutDown)
	add := func(object any) {
		if key, err := cache.DeletionHandlingMetaNamespaceKeyFunc(object); err == nil {
			queue.Add(key)
		}
	}
	services := factory.Core().V1().Services()
	_, err := services.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: add, UpdateFunc: func(_, object any) { add(object) }, DeleteFunc: add,
	})
	if err != nil {
		return err
	}
	factory.Start(ctx.Done())
	if !cache.WaitForCacheSync(ctx.Done(), services.Informer().HasSynced) {
		return ctx.Err()
	}
	for {
		key, shutdown := queue.Get()
		if shutdown {
			return nil
		}
		if err := a.sync(ctx, services.Lister(), key); err != nil && ctx.Err() == nil {
			queue.AddRateLimited(key)
		} else {
			queue.Forget(key)
		}
		queue.Done(key)
	}
}

func (a *Allocator) sync(ctx context.Context, lister listers.ServiceLister, key string) error {
	namespace, name, err := cache.SplitMetaNamespaceKey(key)
	if err != nil {
		return err
	}
	service, err := lister.Services(namespace).Get(name)
	if apierrors.IsNotFound(err) {
		a.release(key)
		return nil
	}
	if err != nil {
		return err
	}
	wanted := corev1.LoadBalancerStatus{}
	var refused error // tried again: an address may become free
	if service.Spec.Type == corev1.ServiceTypeLoadBalancer && service.Spec.LoadBalancerClass == nil && service.DeletionTimestamp == nil {
		var address netip.Addr
		if address, refused = a.allocate(key, service.Spec.LoadBalancerIP); refused != nil {
			a.release(key)
			a.Events.Event(service, corev1.EventTypeWarning, "AllocationFailed", refused.Error())
		} else {
			vip := corev1.LoadBalancerIPModeVIP
			wanted.Ingress = []corev1.LoadBalancerIngress{{IP: address.String(), IPMode: &vip}}
		}
	} else {
		a.release(key)
		if service.Spec.LoadBalancerClass != nil {
			return nil
		}
	}
	have := service.Status.LoadBalancer.Ingress
	if len(have) == len(wanted.Ingress) && (len(have) == 0 || have[0].IP == wanted.Ingress[0].IP) {
		return refused
	}
	service = service.DeepCopy()
	service.Status.LoadBalancer = wanted
	_, err = a.Client.CoreV1().Services(namespace).UpdateStatus(ctx, service, metav1.UpdateOptions{})
	return errors.Join(refused, err)
}

// allocate keeps what key has, unless it asks for another address.
func (a *Allocator) allocate(key, asked string) (netip.Addr, error) {
	has, ok := a.byName[key]
	if asked == "" {
		if ok {
			return has, nil
		}
		// The network's own address and the last one stay free, as in any subnet.
		for address := a.Range.Addr().Next(); a.Range.Contains(address.Next()); address = address.Next() {
			if a.byAddr[address] == "" {
				a.byAddr[address], a.byName[key] = key, address
				return address, nil
			}
		}
		return netip.Addr{}, fmt.Errorf("all addresses of %s are taken", a.Range)
	}
	address, err := netip.ParseAddr(asked)
	switch {
	case err != nil:
		return netip.Addr{}, fmt.Errorf("spec.loadBalancerIP: %w", err)
	case !a.Range.Contains(address):
		return netip.Addr{}, fmt.Errorf("spec.loadBalancerIP %s is not in %s", address, a.Range)
	case a.byAddr[address] != "" && a.byAddr[address] != key:
		return netip.Addr{}, fmt.Errorf("spec.loadBalancerIP %s belongs to Service %s", address, a.byAddr[address])
	}
	if ok {
		delete(a.byAddr, has)
	}
	a.byAddr[address], a.byName[key] = key, address
	return address, nil
}

func (a *Allocator) release(key string) {
	if address, ok := a.byName[key]; ok {
		delete(a.byName, key)
		delete(a.byAddr, address)
	}
}
