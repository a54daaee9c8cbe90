package provision

import (
	"context"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

// nodes contains the zones of the cluster's nodes. It is a reflector's store, and safe for concurrent use. Nothing waits for it: if
// nodes may not be read, only the zones of pods are not known.
type nodes struct {
	// changed is called with the nodes whose zones have changed. It must not block.
	changed func(names map[string]bool)

	mu    sync.Mutex
	zones map[string]string // by node; nodes without a zone are left out
}

func newNodes(changed func(map[string]bool)) *nodes {
	return &nodes{changed: changed, zones: map[string]string{}}
}

// zone returns the zone of a node, "" if it is not known.
func (n *nodes) zone(node string) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.zones[node]
}

// set sets the zone of a node, "" for none.
func (n *nodes) set(node, zone string) {
	n.mu.Lock()
	before := n.zones[node]
	if zone == "" {
		delete(n.zones, node)
	} else {
		n.zones[node] = zone
	}
	n.mu.Unlock()
	if zone != before {
		n.changed(map[string]bool{node: true})
	}
}

func zoneOf(object any) (node, zone string) {
	o := object.(metav1.Object)
	return o.GetName(), o.GetLabels()[corev1.LabelTopologyZone]
}

func (n *nodes) Add(object any) error { return n.Update(object) }
func (n *nodes) Resync() error        { return nil }

func (n *nodes) Update(object any) error {
	n.set(zoneOf(object))
	return nil
}

func (n *nodes) Delete(object any) error {
	node, _ := zoneOf(object)
	n.set(node, "")
	return nil
}

// Replace sets all nodes that exist. The difference contains what happened while nothing was watched.
func (n *nodes) Replace(list []any, _ string) error {
	now := make(map[string]string, len(list))
	for _, object := range list {
		if node, zone := zoneOf(object); zone != "" {
			now[node] = zone
		}
	}
	n.mu.Lock()
	others := map[string]bool{}
	for node, zone := range now {
		if n.zones[node] != zone {
			others[node] = true
		}
	}
	for node := range n.zones {
		if now[node] == "" {
			others[node] = true
		}
	}
	n.zones = now
	n.mu.Unlock()
	if len(others) > 0 {
		n.changed(others)
	}
	return nil
}

// listWatchNodes is listWatch for nodes. The API server sends only their metadata, because their status is large and changes all the
// time.
func (c *client) listWatchNodes(trouble *trouble) cache.ListerWatcher {
	get := func(o *metav1.ListOptions, as string) *rest.Request {
		as = ";as=" + as + ";g=meta.k8s.io;v=v1"
		return c.metadata.Get().Resource("nodes").VersionedParams(o, metav1.ParameterCodec).
			SetHeader("Accept", runtime.ContentTypeProtobuf+as+","+runtime.ContentTypeJSON+as)
	}
	list := func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
		return get(&o, "PartialObjectMetadataList").Do(ctx).Get()
	}
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			all, err := list(ctx, o)
			trouble.listed(ctx, err)
			return all, err
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			if err := trouble.resume(ctx, o, list); err != nil {
				return nil, err
			}
			o.Watch = true
			events, err := get(&o, "PartialObjectMetadata").Watch(ctx)
			trouble.watched(ctx, err)
			return events, err
		},
	}
}

// followNodes keeps the zones of nodes up to date until ctx ends.
func (p *Provisioner) followNodes(ctx context.Context) {
	trouble := &trouble{log: p.o.Logger.With("kind", "Node"),
		failing: "Nodes cannot be read, so proxies are not told which zone they are in, and no load balancer prefers it; trying again",
		mended:  "nodes are watched again", remedy: "allow the controller's ServiceAccount to list and watch nodes"}
	reflector := cache.NewReflectorWithOptions(p.client.listWatchNodes(trouble), &metav1.PartialObjectMetadata{}, p.nodes, cache.ReflectorOptions{
		Name: "provision Node", Logger: &klog.Logger{},
		Backoff: &wait.Backoff{Duration: 100 * time.Millisecond, Factor: 2, Jitter: 0.5, Steps: 10, Cap: 30 * time.Second}, // nothing waits for it
	})
	reflector.RunWithContext(ctx)
}

// nodesChanged reports the Gateways with pods on these nodes.
func (p *Provisioner) nodesChanged(names map[string]bool) {
	for _, g := range p.store.on(names) {
		p.reports.Add(g)
	}
}

// on returns the Gateways with pods on any of these nodes.
func (s *store) on(nodes map[string]bool) (all []gatewayName) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for g, objects := range s.gateways {
		for _, o := range objects {
			if pod, is := o.(*corev1.Pod); is && nodes[pod.Spec.NodeName] {
				all = append(all, g)
				break
			}
		}
	}
	return all
}

// podZones returns the zones of a Gateway's pods by name, as far as they are known; nil if none is.
func (n *nodes) podZones(objects map[objectName]Object) (zones map[string]string) {
	for _, object := range objects {
		pod, is := object.(*corev1.Pod)
		if !is || pod.Spec.NodeName == "" {
			continue
		}
		if zone := n.zone(pod.Spec.NodeName); zone != "" {
			if zones == nil {
				zones = map[string]string{}
			}
			zones[pod.Name] = zone
		}
	}
	return zones
}
