//go:build cluster

package provision

// These tests want a test cluster (see test/cluster/README.md) of two nodes with the CRDs of the Gateway API. make packages-on-cluster runs them; by hand:
//
//	KUBECONFIG=... CLUSTER="../../bin/cluster -name mine" go test -tags cluster ./internal/provision

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/yaml"

	"github.com/moongate-dev/moongate/api/v1alpha1"
	"github.com/moongate-dev/moongate/internal/testkit"
	"github.com/moongate-dev/moongate/internal/translate"
)

const standinImage = "example.org/standin"

// counter counts what is written.
type counter struct {
	next http.RoundTripper
	mu   sync.Mutex
	all  []string
}

func (c *counter) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method != http.MethodGet {
		c.mu.Lock()
		c.all = append(c.all, r.Method+" "+r.URL.Path)
		c.mu.Unlock()
	}
	return c.next.RoundTrip(r)
}

func (c *counter) take() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := c.all
	c.all = nil
	return all
}

type real struct {
	*client
	config    *rest.Config
	namespace string
}

func newReal(t *testing.T) *real {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	if err != nil {
		t.Fatal(err)
	}
	c, err := newClient(config)
	if err != nil {
		t.Fatal(err)
	}
	r := &real{c, config, fmt.Sprintf("provision-%d", time.Now().UnixNano())}
	body := fmt.Sprintf(`{"apiVersion":"v1","kind":"Namespace","metadata":{"name":%q}}`, r.namespace)
	if err := r.raw().Post().AbsPath("/api/v1/namespaces").SetHeader("Content-Type", "application/json").Body([]byte(body)).Do(t.Context()).Error(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.raw().Delete().AbsPath("/api/v1/namespaces/" + r.namespace).Do(context.Background()).Error(); err != nil {
			t.Error(err)
		}
	})
	return r
}

func (r *real) raw() *rest.RESTClient { return r.byVersion[corev1.SchemeGroupVersion] }

func (r *real) gateways() string {
	return "/apis/gateway.networking.k8s.io/v1/namespaces/" + r.namespace + "/gateways"
}

// gateway creates a Gateway to own what is made, and answers its UID.
func (r *real) gateway(t *testing.T, name string) types.UID {
	t.Helper()
	body := fmt.Sprintf(`{"apiVersion":"gateway.networking.k8s.io/v1","kind":"Gateway","metadata":{"name":%q},
		"spec":{"gatewayClassName":"moongate","listeners":[{"name":"a","port":80,"protocol":"HTTP"}]}}`, name)
	answer, err := r.raw().Post().AbsPath(r.gateways()).SetHeader("Content-Type", "application/json").SetHeader("Accept", "application/json").Body([]byte(body)).Do(t.Context()).Raw()
	if err != nil {
		t.Fatal(err, string(answer))
	}
	var created struct{ Metadata struct{ UID types.UID } }
	if err := json.Unmarshal(answer, &created); err != nil {
		t.Fatal(err)
	}
	return created.Metadata.UID
}

// lead runs a Provisioner that leads.
func (r *real) lead(t *testing.T, writes *counter) (p *replica, end func()) {
	t.Helper()
	p = &replica{reports: map[string]report{}, history: map[string][]report{}, ca: "certificate"}
	config := rest.CopyConfig(r.config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { writes.next = next; return writes })
	made, err := New(Options{
		Config: config, ControllerName: settings.ControllerName, Image: standinImage, ControllerAddress: settings.ControllerAddress,
		CAPEM: func() []byte { p.mu.Lock(); defer p.mu.Unlock(); return []byte(p.ca) },
		Report: func(namespace, name string, i *translate.Infrastructure, ready []string) {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.reports[namespace+"/"+name] = report{infrastructure: i, ready: ready}
			p.history[namespace+"/"+name] = append(p.history[namespace+"/"+name], report{infrastructure: i, ready: ready})
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	p.Provisioner = made
	endWatch, endRun := run(t, made.Watch), run(t, made.Run)
	return p, func() { endRun(); endWatch() }
}

// freeNodePort returns a node port that no Service has, not even one of an earlier test that is going, and that the cluster chooses for none as long as it has others: one of 30000 to 30085.
func (r *real) freeNodePort(t *testing.T) int32 {
	t.Helper()
	all, err := r.services(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	for port := int32(30000); port <= 30085; port++ {
		if !slices.ContainsFunc(all, func(svc corev1.Service) bool { return holdsNodePort(&svc, port) }) {
			return port
		}
	}
	t.Fatal("no node port is free")
	return 0
}

func find[T Object](t *testing.T, r *real, kind, name string) T {
	t.Helper()
	object, err := r.get(t.Context(), kind, r.namespace, name)
	if err != nil {
		t.Fatal(err)
	}
	return object.(T)
}

// TestOnACluster takes a Gateway through its life on a real API server, controller manager and scheduler.
func TestOnACluster(t *testing.T) {
	mapImage(t)
	r := newReal(t)
	const name = "web-moongate"
	g := gatewayName{r.namespace, "web"}
	uid := r.gateway(t, "web")
	spec := func(edit func(*translate.ProxySpec)) []translate.ProxySpecChange {
		change := specOf(g, edit)
		change.Spec.UID = uid
		return []translate.ProxySpecChange{change}
	}
	three := int32(3)
	base := func(p *translate.ProxySpec) { p.Parameters.Replicas = &three }
	writes := &counter{}
	p, end := r.lead(t, writes)
	p.Update(spec(base))
	serves := func() bool {
		l := p.last(g.String())
		return l.infrastructure != nil && l.infrastructure.Waiting == "" && len(l.infrastructure.Addresses) == 1 && len(l.ready) == 3
	}
	testkit.Eventually(t, "three proxies are ready", serves)
	before := p.last(g.String())
	if got := len(writes.take()); got != 5 {
		t.Errorf("%d writes for five objects", got)
	}

	end() // another leader
	p, _ = r.lead(t, writes)
	p.Update(spec(base))
	testkit.Eventually(t, "another leader says the same", func() bool { return reflect.DeepEqual(p.last(g.String()), before) })
	service := find[*corev1.Service](t, r, kindService, name)

	// One listener more, on TCP and UDP: an edit of the Service, and of nothing else.
	ports := func(p *translate.ProxySpec) {
		base(p)
		p.Ports = []translate.ProxyPort{{Port: 53}, {Port: 53, UDP: true}, {Port: 80}}
	}
	p.Update(spec(ports))
	testkit.Eventually(t, "the ports are there", func() bool { return len(find[*corev1.Service](t, r, kindService, name).Spec.Ports) == 3 })
	after := find[*corev1.Service](t, r, kindService, name)
	if after.Spec.ClusterIP != service.Spec.ClusterIP || !slices.ContainsFunc(after.Spec.Ports, func(p corev1.ServicePort) bool { return p.NodePort == service.Spec.Ports[0].NodePort }) {
		t.Errorf("the Service was %+v and is %+v", service.Spec, after.Spec)
	}
	if got := writes.take(); len(got) != 1 {
		t.Errorf("for another leader, and a listener: %q", got)
	}
	if got := p.last(g.String()).infrastructure.Addresses; !reflect.DeepEqual(got, before.infrastructure.Addresses) {
		t.Errorf("addresses %+v, were %+v", got, before.infrastructure.Addresses)
	}

	// From a number of replicas to an autoscaler, which has no metrics here and leaves them alone.
	p.Update(spec(func(p *translate.ProxySpec) {
		ports(p)
		p.Parameters.Replicas, p.Parameters.Autoscaling = nil, &v1alpha1.Autoscaling{MinReplicas: pointer[int32](2), MaxReplicas: 9}
	}))
	testkit.Eventually(t, "the autoscaler is there", func() bool {
		_, err := r.get(t.Context(), "HorizontalPodAutoscaler", r.namespace, name)
		return err == nil
	})
	if d := find[*appsv1.Deployment](t, r, kindDeployment, name); *d.Spec.Replicas != 3 {
		t.Errorf("%d replicas", *d.Spec.Replicas)
	}
	p.Update(spec(ports))
	testkit.Eventually(t, "the autoscaler is gone", func() bool {
		_, err := r.get(t.Context(), "HorizontalPodAutoscaler", r.namespace, name)
		return err != nil
	})
	if got := p.last(g.String()).infrastructure.Addresses; !reflect.DeepEqual(got, before.infrastructure.Addresses) {
		t.Errorf("addresses %+v, were %+v", got, before.infrastructure.Addresses)
	}

	// Two addresses, of which the second becomes the only one.
	pinned := before.infrastructure.Addresses[0].Value
	p.Update(spec(func(p *translate.ProxySpec) { ports(p); p.Addresses = addressesOf("10.97.0.200", pinned) }))
	testkit.Eventually(t, "both addresses", func() bool {
		i := p.last(g.String()).infrastructure
		return len(i.Addresses) == 2 && i.Addresses[0].Value == "10.97.0.200" && i.Addresses[1].Value == pinned
	})
	if svc := find[*corev1.Service](t, r, kindService, name); svc.UID != service.UID || svc.Spec.LoadBalancerIP != pinned {
		t.Errorf("the address went to another Service: %+v", svc)
	}
	p.Update(spec(func(p *translate.ProxySpec) { ports(p); p.Addresses = addressesOf("10.97.0.200") }))
	testkit.Eventually(t, "one address", func() bool {
		i := p.last(g.String()).infrastructure
		return len(i.Addresses) == 1 && i.Addresses[0].Value == "10.97.0.200"
	})

	// Another type of Service and back, which keeps the address in the cluster.
	inside := find[*corev1.Service](t, r, kindService, name+"-2").Spec.ClusterIP
	p.Update(spec(func(p *translate.ProxySpec) {
		ports(p)
		p.Parameters.Service = &v1alpha1.Service{Type: corev1.ServiceTypeClusterIP}
	}))
	testkit.Eventually(t, "the address in the cluster", func() bool {
		i := p.last(g.String()).infrastructure
		return len(i.Addresses) == 1 && i.Addresses[0].Value == inside && i.Waiting == ""
	})
	p.Update(spec(ports))
	testkit.Eventually(t, "an address of the load balancer", func() bool {
		i := p.last(g.String()).infrastructure
		return len(i.Addresses) == 1 && i.Addresses[0].Value != inside && i.Waiting == ""
	})

	// The owner goes, and Kubernetes removes the rest.
	if err := r.raw().Delete().AbsPath(r.gateways() + "/web").Do(t.Context()).Error(); err != nil {
		t.Fatal(err)
	}
	p.Update([]translate.ProxySpecChange{{Namespace: g.namespace, Name: g.name}})
	testkit.Eventually(t, "nothing is left", func() bool { return p.last(g.String()).infrastructure == nil && len(p.store.of(g)) == 0 })
}

// TestHostNetworkOnACluster runs a proxy in the network of its node.
func TestHostNetworkOnACluster(t *testing.T) {
	mapImage(t)
	r := newReal(t)
	g := gatewayName{r.namespace, "edge"}
	change := specOf(g, func(p *translate.ProxySpec) { p.Parameters.ClassOnly = &v1alpha1.ClassOnly{HostNetwork: true} })
	change.Spec.UID = r.gateway(t, "edge")
	p, _ := r.lead(t, &counter{})
	p.Update([]translate.ProxySpecChange{change})
	testkit.Eventually(t, "it is reached at its node", func() bool {
		l := p.last(g.String())
		if l.infrastructure == nil || l.infrastructure.Waiting != "" || len(l.infrastructure.Addresses) != 1 || len(l.ready) != 1 {
			return false
		}
		pod := p.store.find(r.namespace, objectName{kindPod, l.ready[0]}).(*corev1.Pod)
		return l.infrastructure.Addresses[0].Value == pod.Status.HostIP
	})
}

// TestDaemonSetOnACluster runs a proxy on each node, replaces all, and goes back to a number of them.
func TestDaemonSetOnACluster(t *testing.T) {
	mapImage(t)
	r := newReal(t)
	g := gatewayName{r.namespace, "web"}
	uid := r.gateway(t, "web")
	p, _ := r.lead(t, &counter{})
	update := func(edit func(*v1alpha1.GatewayParametersSpec)) {
		change := specOf(g, func(p *translate.ProxySpec) { edit(&p.Parameters) })
		change.Spec.UID = uid
		p.Update([]translate.ProxySpecChange{change})
	}
	gone := func(kind string) func() bool {
		return func() bool {
			_, err := r.get(t.Context(), kind, r.namespace, "web-moongate")
			l := p.last(g.String())
			return apierrors.IsNotFound(err) && l.infrastructure != nil && l.infrastructure.Lagging == "" && l.infrastructure.Waiting == ""
		}
	}
	two := func(p *v1alpha1.GatewayParametersSpec) { p.Replicas = pointer[int32](2) }
	each := func(p *v1alpha1.GatewayParametersSpec) { p.DaemonSet = true }
	update(two)
	testkit.Eventually(t, "two proxies", func() bool { return len(p.last(g.String()).ready) == 2 })
	update(each)
	testkit.Eventually(t, "the Deployment is gone", gone(kindDeployment))
	d := find[*appsv1.DaemonSet](t, r, kindDaemonSet, "web-moongate")
	if d.Status.DesiredNumberScheduled == 0 || d.Status.NumberReady != d.Status.DesiredNumberScheduled {
		t.Errorf("the Deployment is gone, and the DaemonSet has %+v", d.Status)
	}
	update(func(p *v1alpha1.GatewayParametersSpec) { each(p); p.LogLevel = "debug" })
	testkit.Eventually(t, "all are replaced", func() bool {
		s := find[*appsv1.DaemonSet](t, r, kindDaemonSet, "web-moongate").Status
		return s.ObservedGeneration > d.Generation && s.UpdatedNumberScheduled == s.DesiredNumberScheduled && s.NumberAvailable == s.DesiredNumberScheduled
	})
	update(two)
	testkit.Eventually(t, "the DaemonSet is gone", gone(kindDaemonSet))
	if d := find[*appsv1.Deployment](t, r, kindDeployment, "web-moongate"); d.Status.ReadyReplicas < 2 {
		t.Errorf("the DaemonSet is gone, and the Deployment has %+v", d.Status)
	}
}

// TestDaemonSetOnHostsOnACluster has a DaemonSet take the place of a Deployment on two nodes, in the network of these: one of both always has a proxy that is ready.
func TestDaemonSetOnHostsOnACluster(t *testing.T) {
	mapImage(t)
	r := newReal(t)
	g := gatewayName{r.namespace, "web"}
	uid := r.gateway(t, "web")
	p, _ := r.lead(t, &counter{})
	update := func(edit func(*v1alpha1.GatewayParametersSpec)) {
		change := specOf(g, func(p *translate.ProxySpec) {
			p.Parameters.ClassOnly = &v1alpha1.ClassOnly{HostNetwork: true}
			edit(&p.Parameters)
		})
		change.Spec.UID = uid
		p.Update([]translate.ProxySpecChange{change})
	}
	update(func(p *v1alpha1.GatewayParametersSpec) { p.Replicas = pointer[int32](2) })
	testkit.Eventually(t, "a proxy on each node", func() bool {
		l := p.last(g.String())
		return len(l.ready) == 2 && len(l.infrastructure.Addresses) == 2
	})
	before := len(p.reportsOf(g.String()))
	update(func(p *v1alpha1.GatewayParametersSpec) { p.DaemonSet = true })
	testkit.Eventually(t, "the DaemonSet has the place of the Deployment", func() bool {
		_, err := r.get(t.Context(), kindDeployment, r.namespace, "web-moongate")
		l := p.last(g.String())
		return apierrors.IsNotFound(err) && len(l.ready) == 2 && l.infrastructure.Lagging == ""
	})
	for _, l := range p.reportsOf(g.String())[before:] {
		if len(l.ready) == 0 {
			t.Errorf("no proxy was ready: %+v", l.infrastructure)
		}
	}
}

// TestNodePortsOnACluster fixes a port at nodes for two Gateways: the first has it, whatever the order of its addresses, and the second says so.
func TestNodePortsOnACluster(t *testing.T) {
	mapImage(t)
	r := newReal(t)
	p, _ := r.lead(t, &counter{})
	nodePort := r.freeNodePort(t)
	update := func(name string, uid types.UID, addresses ...string) {
		change := specOf(gatewayName{r.namespace, name}, func(p *translate.ProxySpec) {
			p.Addresses = addressesOf(addresses...)
			p.Parameters.Service = &v1alpha1.Service{NodePorts: []v1alpha1.NodePort{{Port: 80, NodePort: nodePort}}}
		})
		change.Spec.UID = uid
		p.Update([]translate.ProxySpecChange{change})
	}
	first, second := r.gateway(t, "first"), r.gateway(t, "second")
	update("first", first, "10.97.0.210", "10.97.0.211")
	has := func(order ...string) func() bool {
		return func() bool {
			i := p.last(r.namespace + "/first").infrastructure
			return i != nil && i.Waiting == "" && len(i.Addresses) == 2 && i.Addresses[0].Value == order[0] && i.Addresses[1].Value == order[1] &&
				find[*corev1.Service](t, r, kindService, "first-moongate").Spec.Ports[0].NodePort == nodePort
		}
	}
	testkit.Eventually(t, "the first has it", has("10.97.0.210", "10.97.0.211"))
	update("first", first, "10.97.0.211", "10.97.0.210")
	testkit.Eventually(t, "it has it still", has("10.97.0.211", "10.97.0.210"))
	// A Service that goes leaves it to the other one. The second Gateway is not there yet: whoever asks first for a port that is free has it.
	update("first", first, "10.97.0.211")
	testkit.Eventually(t, "another Service has it", func() bool {
		svc, err := r.get(t.Context(), kindService, r.namespace, "first-moongate-2")
		return err == nil && svc.(*corev1.Service).Spec.Ports[0].NodePort == nodePort
	})
	update("second", second)
	holder := fmt.Sprintf("Service %s/first-moongate-2 of Gateway %s/first", r.namespace, r.namespace)
	testkit.Eventually(t, "the second names "+holder, func() bool {
		why := p.waiting(r.namespace + "/second")
		return strings.Contains(why, fmt.Sprint("node port ", nodePort)) && strings.Contains(why, holder)
	})
}

// TestNoImageOnACluster waits for an image that nobody has.
func TestNoImageOnACluster(t *testing.T) {
	r := newReal(t)
	g := gatewayName{r.namespace, "web"}
	change := specOf(g, func(p *translate.ProxySpec) {
		p.Parameters.ClassOnly = &v1alpha1.ClassOnly{Image: "example.org/nobody-has-this"}
	})
	change.Spec.UID = r.gateway(t, "web")
	p, _ := r.lead(t, &counter{})
	p.Update([]translate.ProxySpecChange{change})
	testkit.Eventually(t, "the image is said to be missing", func() bool {
		return strings.Contains(p.waiting(g.String()), `cannot get image "example.org/nobody-has-this"`)
	})
}

// TestAppliedOnACluster applies the objects of every golden file. The API server takes them all, and keeps
// every field as it was applied: otherwise a controller that restarts would write.
func TestAppliedOnACluster(t *testing.T) {
	r := newReal(t)
	files, err := filepath.Glob("testdata/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatal("no golden files", err)
	}
	applied := 0
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		head, _, _ := strings.Cut(string(text), "\n---\n")
		var in input
		if err := yaml.UnmarshalStrict([]byte(head), &in); err != nil {
			t.Fatal(err)
		}
		s := settings
		s.Services = in.Services
		in.Spec.Namespace = r.namespace
		objects, err := Objects(&in.Spec, s)
		if err != nil {
			continue // such files are there too
		}
		for _, object := range objects {
			applied++
			n := nameOf(object)
			wanted, err := encode(object)
			if err != nil {
				t.Fatal(err)
			}
			after, err := r.apply(t.Context(), n.kind, r.namespace, n.name, wanted)
			if err != nil {
				t.Errorf("%s: %s: %v", file, n, err)
				continue
			}
			if differs, err := differsFrom(wanted, after); len(differs) > 0 || err != nil {
				t.Errorf("%s: %s: %s %v", file, n, describe(differs), err)
			}
			// Its owner does not exist, so Kubernetes may be the first to remove it.
			if err := r.delete(t.Context(), n.kind, after); err != nil && !apierrors.IsNotFound(err) {
				t.Errorf("%s: %s: %v", file, n, err)
			}
			testkit.Eventually(t, "it is gone", func() bool { _, err := r.get(t.Context(), n.kind, r.namespace, n.name); return err != nil })
		}
	}
	if applied < 20 {
		t.Errorf("only %d objects", applied)
	}
}

// mapImage lets an image's name stand for a program that stands in for the proxy.
func mapImage(t *testing.T) {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "standin")
	build := exec.Command("go", "build", "-o", binary, "./testdata/standin")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	cluster := append(strings.Fields(cmp.Or(os.Getenv("CLUSTER"), "../../bin/cluster")), "image", standinImage, binary)
	if out, err := exec.Command(cluster[0], cluster[1:]...).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}
