// Package node is the test cluster's kubelet: it runs the pods that the scheduler
// gave to its hosts as processes of this machine, and reports on them. It exists
// because a kubelet needs a container runtime, and that a machine of its own. Several
// hosts may share it, for clusters with zones. It implements what fields.go lists and
// refuses pods that ask for more. It knows no product that is tested on it.
package node

import (
	"context"
	"fmt"
	"log"
	"net/netip"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"

	"github.com/moongate-dev/moongate/test/cluster/image"
)

// Host is one Node object.
type Host struct {
	Name    string
	Zone    string
	Address netip.Addr   // on the machine already
	Pods    netip.Prefix // the addresses of its pods

	addresses *pool
}

// Node runs the pods of all its hosts.
type Node struct {
	Client kubernetes.Interface
	Hosts  []*Host
	Images image.Store
	Enter  string // the program of package sandbox/enter
	Dir    string // of the pods, on a file system that ends with the cluster
	LogDir string // of the pods' logs
	DNS    netip.Addr
	Domain string
	Log    *log.Logger
	Server ServerOptions

	events     record.EventRecorder
	services   listers.ServiceLister
	secrets    listers.SecretLister
	configMaps listers.ConfigMapLister
	stopping   context.Context

	mu   sync.Mutex
	pods map[types.UID]*pod
}

// Run registers the hosts and runs pods until ctx ends; then it ends them all,
// without grace, and returns when none is left.
func (n *Node) Run(ctx context.Context, factory informers.SharedInformerFactory, events record.EventRecorder) error {
	n.pods, n.events, n.stopping = map[types.UID]*pod{}, events, ctx
	if len(n.Hosts) > 1 {
		if err := makeHairpin(); err != nil {
			return err
		}
	}
	for _, host := range n.Hosts {
		host.addresses = newPool(host.Pods)
		if err := n.register(ctx, host); err != nil {
			return fmt.Errorf("register node %s: %w", host.Name, err)
		}
	}
	core := factory.Core().V1()
	n.services, n.secrets, n.configMaps = core.Services().Lister(), core.Secrets().Lister(), core.ConfigMaps().Lister()
	needed := []cache.SharedIndexInformer{core.Services().Informer(), core.Secrets().Informer(), core.ConfigMaps().Informer()}
	for _, informer := range needed[1:] {
		if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc: n.objectChanged, UpdateFunc: func(_, object any) { n.objectChanged(object) },
		}); err != nil {
			return err
		}
	}
	synced := make([]cache.InformerSynced, 0, len(needed))
	for _, informer := range needed {
		synced = append(synced, informer.HasSynced)
	}
	factory.Start(ctx.Done())
	if !cache.WaitForCacheSync(ctx.Done(), synced...) {
		return ctx.Err()
	}
	if _, err := core.Pods().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: n.podSeen, UpdateFunc: func(_, object any) { n.podSeen(object) }, DeleteFunc: n.podGone,
	}); err != nil {
		return err
	}
	factory.Start(ctx.Done())
	serve, err := n.listen()
	if err != nil {
		return err
	}
	defer serve.Close()
	<-ctx.Done()
	n.endAll()
	return nil
}

func (n *Node) endAll() {
	n.mu.Lock()
	var all []*pod
	for _, p := range n.pods {
		all = append(all, p)
	}
	n.mu.Unlock()
	for _, p := range all {
		p.terminate(0)
	}
	for _, p := range all {
		<-p.ended
	}
}

func nodeCapacity() corev1.ResourceList {
	// Requests are for the scheduler only; this machine has what it has.
	return corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("64"), corev1.ResourceMemory: resource.MustParse("256Gi"),
		corev1.ResourcePods: resource.MustParse("1000"), corev1.ResourceEphemeralStorage: resource.MustParse("256Gi"),
	}
}

func (n *Node) register(ctx context.Context, host *Host) error {
	object := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: host.Name, Labels: map[string]string{
			corev1.LabelHostname: host.Name, corev1.LabelOSStable: "linux", corev1.LabelArchStable: arch,
			corev1.LabelTopologyZone: host.Zone,
		}},
		Spec: corev1.NodeSpec{PodCIDR: host.Pods.String(), PodCIDRs: []string{host.Pods.String()}},
	}
	object, err := n.Client.CoreV1().Nodes().Create(ctx, object, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	now := metav1.Now()
	ready := corev1.NodeCondition{
		Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "Ready", LastHeartbeatTime: now, LastTransitionTime: now,
	}
	object.Status = corev1.NodeStatus{
		Conditions: []corev1.NodeCondition{ready},
		Addresses: []corev1.NodeAddress{
			{Type: corev1.NodeInternalIP, Address: host.Address.String()}, {Type: corev1.NodeHostName, Address: host.Name},
		},
		Capacity: nodeCapacity(), Allocatable: nodeCapacity(),
		DaemonEndpoints: corev1.NodeDaemonEndpoints{KubeletEndpoint: corev1.DaemonEndpoint{Port: ServerPort}},
		NodeInfo:        corev1.NodeSystemInfo{OperatingSystem: "linux", Architecture: arch, KubeletVersion: "v1.36.3"},
	}
	if object, err = n.Client.CoreV1().Nodes().UpdateStatus(ctx, object, metav1.UpdateOptions{}); err != nil {
		return err
	}
	// Admission taints every new node as not ready, and no controller watches over ours.
	object.Spec.Taints = nil
	_, err = n.Client.CoreV1().Nodes().Update(ctx, object, metav1.UpdateOptions{})
	return err
}

func (n *Node) podSeen(object any) {
	seen := object.(*corev1.Pod)
	host := n.host(seen.Spec.NodeName)
	if host == nil {
		return
	}
	n.mu.Lock()
	p, known := n.pods[seen.UID]
	if !known && n.stopping.Err() == nil {
		p = newPod(n, host, seen)
		n.pods[seen.UID] = p
		go func() {
			p.run()
			n.mu.Lock()
			defer n.mu.Unlock()
			delete(n.pods, p.uid)
		}()
	}
	n.mu.Unlock()
	if p != nil {
		p.seen(seen)
	}
}

// podGone ends a pod that was deleted by force.
func (n *Node) podGone(object any) {
	if last, ok := object.(cache.DeletedFinalStateUnknown); ok {
		object = last.Obj
	}
	gone, ok := object.(*corev1.Pod)
	if !ok {
		return
	}
	n.mu.Lock()
	p := n.pods[gone.UID]
	n.mu.Unlock()
	if p != nil {
		p.terminate(0)
	}
}

func (n *Node) host(name string) *Host {
	for _, host := range n.Hosts {
		if host.Name == name {
			return host
		}
	}
	return nil
}

// objectChanged lets the pods of the namespace look at their volumes.
func (n *Node) objectChanged(object any) {
	changed, ok := object.(metav1.Object)
	if !ok {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, p := range n.pods {
		if p.current().Namespace == changed.GetNamespace() {
			p.changed()
		}
	}
}

// find is the newest pod of that name.
func (n *Node) find(namespace, name string) *pod {
	n.mu.Lock()
	defer n.mu.Unlock()
	var found *pod
	for _, p := range n.pods {
		o := p.current()
		if o.Namespace == namespace && o.Name == name && (found == nil || found.current().CreationTimestamp.Before(&o.CreationTimestamp)) {
			found = p
		}
	}
	return found
}
