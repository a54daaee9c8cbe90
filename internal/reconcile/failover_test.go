package reconcile_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/moongate-dev/moongate/internal/deliver"
	"github.com/moongate-dev/moongate/internal/deliver/delivertest"
	"github.com/moongate-dev/moongate/internal/deliver/wire"
	"github.com/moongate-dev/moongate/internal/reconcile"
	"github.com/moongate-dev/moongate/internal/testkit"
	"github.com/moongate-dev/moongate/internal/translate"
)

// pair is two controllers behind one name: each stream comes to one of them by chance.
type pair struct {
	wire.UnimplementedDeliveryServer
	controllers [2]*cluster
	services    [2]wire.DeliveryServer
	leader      int
	epoch       int
}

// capture keeps what is registered.
type capture struct{ service wire.DeliveryServer }

func (c *capture) RegisterService(_ *grpc.ServiceDesc, service any) {
	c.service = service.(wire.DeliveryServer)
}

func (p *pair) Stream(s wire.Delivery_StreamServer) error { return p.services[rand.IntN(2)].Stream(s) }

func newPair(t *testing.T, limit time.Duration, change ...func(*reconcile.ClusterOptions)) *pair {
	t.Helper()
	p := &pair{}
	authority := testkit.NewAuthority(t)
	address, _ := delivertest.Serve(t, authority, "127.0.0.1:0", func(s *grpc.Server) { wire.RegisterDeliveryServer(s, p) }, deliver.ServerOptions()...)
	for i := range p.controllers {
		c := newClusterAt(t, authority, "127.0.0.1:0", limit, change...)
		c.address = address
		var captured capture
		c.remote.Serve(&captured)
		p.controllers[i], p.services[i] = c, captured.service
	}
	return p
}

func (p *pair) set(objects ...metav1.Object) {
	for _, c := range p.controllers {
		c.set(objects...)
	}
}

func (p *pair) up(gateway string, pods ...string) {
	for _, c := range p.controllers {
		c.up(gateway, pods...)
	}
}

// change makes the other one the leader.
func (p *pair) change() *cluster {
	p.controllers[p.leader].Standby()
	p.leader, p.epoch = 1-p.leader, p.epoch+1
	p.controllers[p.leader].Lead(fmt.Sprintf("epoch-%d", p.epoch))
	return p.controllers[p.leader]
}

// TestFailoverUnderLoad: while leaders come and go, nothing is said before every ready proxy serves it, and
// a proxy is told of nothing but what changed.
func TestFailoverUnderLoad(t *testing.T) {
	const edits, every = 120, 20
	var proxies [3]*remote
	early := atomic.Int32{}
	serves := func(generation int64) bool {
		for _, p := range proxies {
			if p.newest() < generation {
				return false
			}
		}
		return true
	}
	p := newPair(t, forever, func(o *reconcile.ClusterOptions) {
		publish := o.Publish
		o.Publish = func(changes []translate.StatusChange) {
			for _, s := range changes {
				if s.Object.Kind == "HTTPRoute" && proxies[0] != nil && !serves(s.Generation) {
					early.Add(1)
				}
			}
			publish(changes)
		}
	})
	p.controllers[1].set(class()) // its generations differ
	p.set(class(), gateway(80), edited("/edit-1", 1))
	leader := p.change()
	var started [3]*remote
	pods := []string{"pod-0", "pod-1", "pod-2"}
	for i, pod := range pods {
		started[i] = leader.connect(t, "n/gw", pod)
	}
	testkit.Eventually(t, "all are configured", func() bool { return leader.acked("n/gw", pods...) })
	proxies = started
	p.up("n/gw", pods...)
	for i := range edits {
		generation := int64(i + 2)
		p.set(edited(fmt.Sprintf("/edit-%d", generation), generation))
		if i%every == every-1 {
			leader = p.change()
		}
	}
	testkit.Eventually(t, "the last edit is published", func() bool { return leader.routeGeneration() == edits+1 && leader.programmed("gw") })
	if early.Load() > 0 {
		t.Errorf("%d statuses were published before they were served", early.Load())
	}
	for i, proxy := range proxies {
		proxy.mu.Lock()
		if proxy.touched > 2+edits {
			t.Errorf("proxy %d was told of %d resources, %d changed", i, proxy.touched, 2+edits)
		}
		proxy.mu.Unlock()
	}
}

// newest is the number of the edit that is served.
func (r *remote) newest() (generation int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, resource := range r.resources {
		if route := resource.GetRoute(); route != nil {
			_, _ = fmt.Sscanf(route.Rules[0].Matches[0].Path.Value, "/edit-%d", &generation)
		}
	}
	return generation
}

// TestChaos: proxies come, go, are slow, lose ports; pods are ready or not; leaders change; Gateways vanish. In the end
// everything is as if nothing had happened.
func TestChaos(t *testing.T) {
	p := newPair(t, 20*time.Millisecond)
	gateways := []string{"a", "b"}
	objects := func(generation int64) (out []metav1.Object) {
		out = append(out, class())
		for _, name := range gateways {
			r := edited(fmt.Sprintf("/edit-%d", generation), generation)
			r.Name, r.Spec.ParentRefs[0].Name = "r-"+name, "a"
			if name == "b" {
				r.Spec.ParentRefs = append(r.Spec.ParentRefs, r.Spec.ParentRefs[0])
				r.Spec.ParentRefs[1].Name = "b"
			}
			out = append(out, named(gateway(80), name), r)
		}
		return out
	}
	p.set(objects(1)...)
	p.change()

	var proxies sync.WaitGroup
	stop := make(chan struct{})
	pods := []string{"x", "y"}
	for _, name := range gateways {
		for i, pod := range pods {
			proxies.Go(func() {
				r := rand.New(rand.NewPCG(uint64(i), 9))
				for {
					proxy := p.controllers[0].connect(t, "n/"+name, pod)
					for range 3 {
						goOn := proxy.block()
						select {
						case <-stop:
							goOn()
							proxy.stop()
							return
						case <-time.After(time.Duration(r.IntN(30)) * time.Millisecond):
						}
						proxy.mu.Lock()
						proxy.listeners = nil
						if r.IntN(3) == 0 {
							proxy.listeners = failing("n/"+name+"/l0", fmt.Errorf("fault %d", r.IntN(2)))
						}
						proxy.mu.Unlock()
						goOn()
					}
					proxy.stop()
				}
			})
		}
	}
	r := rand.New(rand.NewPCG(1, 2))
	const steps = 300
	for i := range steps {
		switch r.IntN(6) {
		case 0:
			p.up("n/"+gateways[r.IntN(2)], pods[:r.IntN(3)]...)
		case 1:
			if r.IntN(5) == 0 {
				p.change()
			}
		case 2:
			name := gateways[r.IntN(2)]
			for _, c := range p.controllers {
				c.Update(func(tr *translate.Translator) { tr.Delete(translate.KindGateway, "n", name) })
			}
		case 3:
			time.Sleep(time.Duration(r.IntN(10)) * time.Millisecond)
		default:
			p.set(objects(int64(i + 2))...)
		}
	}
	close(stop)
	proxies.Wait()

	p.set(objects(1000)...)
	leader := p.change()
	var last []*remote
	for _, name := range gateways {
		p.up("n/"+name, pods...)
		for _, pod := range pods {
			last = append(last, leader.connect(t, "n/"+name, pod))
		}
	}
	testkit.Eventually(t, "everything is said", func() bool {
		return leader.programmed("a") && leader.programmed("b") && leader.acked("n/a", pods...) && leader.acked("n/b", pods...) && leader.published("HTTPRoute", "r-b").Generation == 1000 && leader.Status().Held == 0
	})
	for i, proxy := range last {
		want := []string{"Listener n/a/l0", "Route HTTPRoute/n/r-a", "Route HTTPRoute/n/r-b"}
		if i >= len(pods) {
			want = []string{"Listener n/b/l0", "Route HTTPRoute/n/r-b"}
		}
		if got := proxy.ids(); !slices.Equal(got, want) || proxy.newest() != 1000 {
			t.Errorf("proxy %d has %v of edit %d, want %v", i, got, proxy.newest(), want)
		}
	}
}
