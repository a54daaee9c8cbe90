package provision

import (
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/moongate-dev/moongate/internal/testkit"
	"github.com/moongate-dev/moongate/internal/testkit/apiserver"
	"github.com/moongate-dev/moongate/internal/translate"
)

// node is one as a reflector has it, in a zone unless that is "".
func node(name, zone string) *metav1.PartialObjectMetadata {
	o := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if zone != "" {
		o.Labels = map[string]string{corev1.LabelTopologyZone: zone}
	}
	return o
}

// TestNodes: whose zone is another one is told, also where an event was missed and a list has it.
func TestNodes(t *testing.T) {
	told := map[string]bool{}
	n := newNodes(func(names map[string]bool) { maps.Copy(told, names) })
	for _, step := range []struct {
		what  string
		do    func() error
		told  string
		zones string // of a, b and c
	}{
		{"a list", func() error { return n.Replace([]any{node("a", "1"), node("b", "2"), node("c", "")}, "5") }, "a b", "1 2 -"},
		{"no news", func() error { return n.Update(node("a", "1")) }, "", "1 2 -"},
		{"one without a zone", func() error { return n.Add(node("d", "")) }, "", "1 2 -"},
		{"the label comes", func() error { return n.Update(node("c", "3")) }, "c", "1 2 3"},
		{"the label is another", func() error { return n.Update(node("a", "4")) }, "a", "4 2 3"},
		{"the label goes", func() error { return n.Update(node("a", "")) }, "a", "- 2 3"},
		{"the node goes", func() error { return n.Delete(node("b", "2")) }, "b", "- - 3"},
		{"it goes twice", func() error { return n.Delete(node("b", "2")) }, "", "- - 3"},
		{"what a list finds", func() error { return n.Replace([]any{node("a", "1"), node("b", "2")}, "9") }, "a b c", "1 2 -"},
		{"the same list", func() error { return n.Replace([]any{node("b", "2"), node("a", "1")}, "9") }, "", "1 2 -"},
		{"no nodes", func() error { return n.Replace(nil, "12") }, "a b", "- - -"},
	} {
		clear(told)
		if err := step.do(); err != nil {
			t.Fatal(err)
		}
		var zones []string
		for _, name := range []string{"a", "b", "c"} {
			zones = append(zones, max(n.zone(name), "-"))
		}
		if got := strings.Join(slices.Sorted(maps.Keys(told)), " "); got != step.told || strings.Join(zones, " ") != step.zones {
			t.Errorf("%s: told %q, zones %q; want %q, %q", step.what, got, zones, step.told, step.zones)
		}
	}
}

// zoneWatch is a Provisioner's word on the zones of pods.
type zoneWatch struct {
	mu    sync.Mutex
	zones map[string]string
	calls []string // "zones" and "pods", in their order
	log   strings.Builder
}

func (z *zoneWatch) Write(p []byte) (int, error) {
	z.mu.Lock()
	defer z.mu.Unlock()
	return z.log.Write(p)
}

func (z *zoneWatch) logged() string { z.mu.Lock(); defer z.mu.Unlock(); return z.log.String() }

func (z *zoneWatch) at(pod string) string { z.mu.Lock(); defer z.mu.Unlock(); return z.zones[pod] }

func (z *zoneWatch) order() []string { z.mu.Lock(); defer z.mu.Unlock(); return slices.Clone(z.calls) }

func (z *zoneWatch) start(t *testing.T, s *server) *Provisioner {
	t.Helper()
	p, err := New(Options{
		Config: s.config(), ControllerName: settings.ControllerName, Image: settings.Image, ControllerAddress: settings.ControllerAddress,
		CAPEM: func() []byte { return nil }, Report: func(string, string, *translate.Infrastructure, []string) {},
		Pods: func(string, string, map[string]string) {
			z.mu.Lock()
			defer z.mu.Unlock()
			z.calls = append(z.calls, "pods")
		},
		Zones: func(_, _ string, zones map[string]string) {
			z.mu.Lock()
			defer z.mu.Unlock()
			z.zones, z.calls = zones, append(z.calls, "zones")
		},
		Logger: slog.New(slog.NewTextHandler(z, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	run(t, p.Watch)
	return p
}

// withNodes has the server have nodes.
func withNodes(s *server) *server {
	s.Serve(apiserver.Kind{Version: "v1", Resource: "nodes", Kind: "Node", ClusterScoped: true})
	return s
}

// onNodes has f called with each request for nodes, before one is served.
func onNodes(s *server, f func(*apiserver.Request)) {
	next := s.Intercept
	s.Intercept = func(r *apiserver.Request) *metav1.Status {
		if r.Resource == "nodes" {
			f(r)
		}
		return next(r)
	}
}

func inZone(zone string) func(tree) {
	return func(o tree) {
		o["metadata"].(tree)["labels"] = tree{corev1.LabelTopologyZone: zone}
		o["status"] = tree{"nodeInfo": tree{"kubeletVersion": "v1.0.0"}} // of which nothing is asked for
	}
}

// proxyPod is a pod of Gateway shop/web on a node; "" is that it is not scheduled.
func proxyPod(node string) func(tree) {
	return func(o tree) {
		meta := o["metadata"].(tree)
		meta["labels"] = tree{labelManagedBy: managedBy, labelName: proxyName}
		meta["annotations"] = tree{annotationGateway: "web", annotationController: settings.ControllerName}
		o["spec"], o["status"] = tree{"nodeName": node}, tree{"phase": "Pending"}
	}
}

// TestZonesOfPods: whatever comes first, the pod, its node or the label, the zone is told once all are there.
func TestZonesOfPods(t *testing.T) {
	s := withNodes(newServer(t))
	s.set("nodes//n1", inZone("a"))
	s.set("pods/shop/web-0", proxyPod("n1"))
	var mu sync.Mutex
	var asked []string
	onNodes(s, func(r *apiserver.Request) {
		mu.Lock()
		defer mu.Unlock()
		asked = append(asked, r.Header.Get("Accept"))
	})
	var z zoneWatch
	p := z.start(t, s)
	is := func(what, pod, zone string) {
		t.Helper()
		testkit.Eventually(t, what, func() bool { return z.at(pod) == zone })
	}
	is("what there was is told", "web-0", "a")
	<-p.Listed()

	s.set("pods/shop/web-1", proxyPod(""))
	s.set("pods/shop/web-1", proxyPod("n1"))
	is("a pod is scheduled", "web-1", "a")
	s.set("pods/shop/web-2", proxyPod("n2"))
	s.set("nodes//n2", func(tree) {})
	s.set("nodes//n2", inZone("b"))
	is("the label of a node comes after the pod", "web-2", "b")
	s.set("nodes//n1", inZone("c"))
	is("the label is another one", "web-0", "c")
	is("for all pods of the node", "web-1", "c")
	if z.at("web-2") != "b" {
		t.Errorf("another node's pod is in %q", z.at("web-2"))
	}
	s.set("pods/shop/web-0", nil)
	is("a pod that is gone is in no zone", "web-0", "")
	s.set("nodes//n1", nil)
	is("nor is one whose node is gone", "web-1", "")
	mu.Lock()
	defer mu.Unlock()
	if len(asked) == 0 || slices.ContainsFunc(asked, func(accept string) bool { return !strings.Contains(accept, "as=PartialObjectMetadata") }) {
		t.Errorf("more than the metadata of nodes is asked for: %q", asked)
	}
}

// TestZoneBeforePod: a proxy that connects as soon as its pod is known is told its zone with what it is sent first.
func TestZoneBeforePod(t *testing.T) {
	s := withNodes(newServer(t))
	s.set("nodes//n1", inZone("a"))
	var z zoneWatch
	p := z.start(t, s)
	<-p.Listed()
	testkit.Eventually(t, "the node is known", func() bool { return p.nodes.zone("n1") == "a" })
	s.set("pods/shop/web-0", proxyPod("n1"))
	testkit.Eventually(t, "the pod is told", func() bool { return len(z.order()) == 2 })
	if got := z.order(); !slices.Equal(got, []string{"zones", "pods"}) {
		t.Errorf("told in the order %v", got)
	}
}

// TestNodesForbidden: without the right to read nodes everything but the zones is known, which is said once; and with it these are too.
func TestNodesForbidden(t *testing.T) {
	s := withNodes(newServer(t))
	s.set("nodes//n1", inZone("a"))
	s.set("pods/shop/web-0", proxyPod("n1"))
	var tries atomic.Int32
	onNodes(s, func(*apiserver.Request) { tries.Add(1) })
	s.forbidden = map[string]bool{"nodes": true}
	var z zoneWatch
	p := z.start(t, s)
	select {
	case <-p.Listed():
	case <-time.After(patience):
		t.Fatal("nodes are waited for")
	}
	testkit.Eventually(t, "nodes are tried again", func() bool { return tries.Load() >= 4 })
	if log := z.logged(); strings.Count(log, "Nodes cannot be read") != 1 || !strings.Contains(log, "allow the controller's ServiceAccount to list and watch nodes") {
		t.Errorf("logged: %s", log)
	}
	if waiting := p.Waiting(); len(waiting) > 0 || !slices.Contains(z.order(), "pods") || z.at("web-0") != "" {
		t.Errorf("waiting for %v, told %v", waiting, z.order())
	}
	s.mu.Lock()
	s.forbidden = nil
	s.mu.Unlock()
	testkit.Eventually(t, "the zone is told", func() bool { return z.at("web-0") == "a" })
	testkit.Eventually(t, "that is said", func() bool { return strings.Contains(z.logged(), "nodes are watched again") })
}

// BenchmarkNodes has one of 5000 nodes change its zone, with 2000 pods of 1000 Gateways.
func BenchmarkNodes(b *testing.B) {
	p := &Provisioner{store: newStore(settings.ControllerName)}
	p.store.changed = func(gatewayName, string) {}
	found := 0
	n := newNodes(func(names map[string]bool) { found += len(p.store.on(names)) })
	for i := range 2000 {
		p.store.put(kindPod, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: fmt.Sprint("pod-", i), ResourceVersion: "1", Annotations: map[string]string{
			annotationGateway: fmt.Sprint("gw-", i/2), annotationController: settings.ControllerName,
		}}, Spec: corev1.PodSpec{NodeName: fmt.Sprint("n", i)}})
	}
	for i := range b.N {
		n.set("n7", []string{"a", "b"}[i%2])
	}
	if found == 0 {
		b.Error("no Gateway is found")
	}
}
