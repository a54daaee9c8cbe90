package reconcile

import (
	"fmt"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/deliver"
	"github.com/moongate-dev/moongate/internal/kind"
	"github.com/moongate-dev/moongate/internal/translate"
)

// TestHold: a newer status takes the place of the one that is held without beginning the wait anew, a status that
// concerns nobody goes out at once, and so does the word that an object is no longer managed.
func TestHold(t *testing.T) {
	p := &standIn{generations: map[string]uint64{"n/gw": 1}}
	r := newStatusGate(p, func(string, *translate.StatusChange) bool { return true }, func(*translate.StatusChange) bool { return false }, time.Minute)
	route := translate.StatusChange{Object: kind.ObjectKey{Kind: "HTTPRoute", Namespace: "m", Name: "r"}, Generation: 1,
		Status: &gwv1.RouteStatus{}, Gateways: []string{"m/unknown", "n/gw"}}
	start := time.Now()
	step := func(at time.Duration, do func(now time.Time), want ...int64) {
		t.Helper()
		do(start.Add(at))
		published := r.take()
		if len(published) != len(want) {
			t.Fatalf("after %s: published %v, want generations %v", at, published, want)
		}
		for i, s := range published {
			if s.Generation != want[i] {
				t.Errorf("after %s: published %v, want generations %v", at, published, want)
			}
		}
	}
	newer := route
	newer.Generation = 2
	step(0, func(now time.Time) { r.add(route, now) })
	step(50*time.Second, func(now time.Time) { r.add(newer, now) })
	step(59*time.Second, r.releaseOld)
	step(60*time.Second, r.releaseOld, 2)
	if len(r.held) > 0 || len(r.byGateway) > 0 {
		t.Errorf("still held: %v, %v", r.held, r.byGateway)
	}

	step(0, func(now time.Time) { r.add(route, now) })
	gone := translate.StatusChange{Object: route.Object}
	step(0, func(now time.Time) { r.add(gone, now) }, 0)
	foreign := translate.StatusChange{Object: route.Object, Generation: 5, Status: &gwv1.RouteStatus{}}
	step(0, func(now time.Time) { r.add(foreign, now) }, 5)
	step(time.Hour, r.releaseOld)

	policy := translate.StatusChange{Object: kind.ObjectKey{Kind: "BackendTLSPolicy", Namespace: "n", Name: "p"}, Generation: 7,
		Status: &gwv1.PolicyStatus{}, Gateways: []string{"n/gw"}}
	step(0, func(now time.Time) { r.add(policy, now) })
	p.acknowledged = 1
	step(0, func(time.Time) { r.release("n/gw") }, 7)
}

// TestReleaseAsksOncePerGeneration: what an answer of one of many proxies costs does not grow by the product of the statuses that are held and the proxies.
func TestReleaseAsksOncePerGeneration(t *testing.T) {
	p := &standIn{generations: map[string]uint64{}}
	r := newStatusGate(p, func(string, *translate.StatusChange) bool { return true }, func(*translate.StatusChange) bool { return false }, time.Minute)
	for i := range 90 {
		p.generations["n/gw"] = uint64(1 + i%3)
		r.add(translate.StatusChange{Object: kind.ObjectKey{Kind: "HTTPRoute", Namespace: "n", Name: fmt.Sprint(i)}, Status: &gwv1.RouteStatus{}, Gateways: []string{"n/gw"}}, time.Now())
	}
	for acknowledged, freed := range []int{0, 30, 30, 30} {
		p.acknowledged, p.asked = uint64(acknowledged), 0
		r.release("n/gw")
		if out := len(r.take()); out != freed || p.asked > 3 {
			t.Errorf("generation %d: %d statuses are free, want %d; asked %d times for 3 generations", acknowledged, out, freed, p.asked)
		}
	}
}

// standIn are proxies that all have acknowledged the same generation.
type standIn struct {
	asked        int               // calls of Serves
	generations  map[string]uint64 // to be served, by Gateway
	acknowledged uint64
	retains      bool
}

func (s *standIn) Generation(gateway string) (uint64, bool) {
	g, ok := s.generations[gateway]
	return g, ok
}

func (s *standIn) Serves(_ string, generation uint64) bool {
	s.asked++
	return s.acknowledged >= generation
}

func (s *standIn) Withholds(string) (awaits, retains bool) { return false, s.retains }

// leader is a Cluster that leads, with Gateways that proxies are to run for.
func leader(o ClusterOptions, gateways ...string) *Cluster {
	o.Delivery = deliver.NewRemote(deliver.RemoteOptions{})
	c := NewCluster(o)
	c.leading = true
	run := map[string]bool{}
	for _, name := range gateways {
		run[name] = true
	}
	o.Delivery.Apply(&deliver.Change{Config: &config.Update{}, Gateways: run})
	return c
}

// TestHoldUntilOpen: neither a Gateway nor a ListenerSet of it is called programmed before the Gateway's Services have the ports of its
// listeners, and not for what runs under the class that it had before. What says that it is not programmed waits for nothing of that.
func TestHoldUntilOpen(t *testing.T) {
	http, https := translate.ProxyPort{Port: 80}, translate.ProxyPort{Port: 443}
	both := []translate.ProxyPort{http, https}
	for _, c := range []struct {
		what           string
		infrastructure *translate.Infrastructure
		paused         bool
		programmed     metav1.ConditionStatus
		out            bool
	}{
		{"all is there", &translate.Infrastructure{Class: "c", Ports: both}, false, metav1.ConditionTrue, true},
		{"a port is missing", &translate.Infrastructure{Class: "c", Ports: both[:1]}, false, metav1.ConditionTrue, false},
		{"every port is missing", &translate.Infrastructure{Class: "c", Ports: both[:0]}, false, metav1.ConditionTrue, false},
		{"a port of the same number is", &translate.Infrastructure{Ports: []translate.ProxyPort{http, {Port: 443, UDP: true}}}, false, metav1.ConditionTrue, false},
		{"it is missing, and the status says more", &translate.Infrastructure{Class: "c", Ports: both[:1]}, false, metav1.ConditionFalse, true},
		{"no Service is needed", &translate.Infrastructure{Class: "c"}, false, metav1.ConditionTrue, true},
		{"it is of another class", &translate.Infrastructure{Class: "b", Ports: both}, false, metav1.ConditionTrue, false},
		{"nothing will be done about it", &translate.Infrastructure{Class: "b"}, true, metav1.ConditionTrue, true},
		{"nothing is known", nil, false, metav1.ConditionTrue, true},
	} {
		conditions := []metav1.Condition{{Type: string(gwv1.GatewayConditionProgrammed), Status: c.programmed}}
		for of, status := range map[string]any{
			"Gateway":     &gwv1.GatewayStatus{Conditions: conditions},
			"ListenerSet": &gwv1.ListenerSetStatus{Conditions: conditions},
		} {
			published := 0
			r := leader(ClusterOptions{Publish: func(s []translate.StatusChange) { published += len(s) }}, "n/gw")
			g := r.gateway("n/gw")
			g.spec, g.infrastructure = &translate.ProxySpec{Class: "c", Ports: both, Paused: c.paused}, c.infrastructure
			r.gate.add(translate.StatusChange{Object: kind.ObjectKey{Kind: of, Namespace: "m", Name: "x"}, Generation: 1, Gateways: []string{"n/gw"}, Status: status}, time.Now())
			r.publish()
			if out := published == 1; out != c.out {
				t.Errorf("%s, %s: published %v, want %v", of, c.what, out, c.out)
			}
			g.infrastructure = &translate.Infrastructure{Class: "c", Ports: both}
			r.gate.release("n/gw")
			r.publish()
			if published != 1 || len(r.gate.held)+len(r.gate.byGateway) > 0 {
				t.Errorf("%s, %s: published %d times once it has come true, still held %v", of, c.what, published, r.gate.held)
			}
		}
	}
}

// TestUndecidedHoldsStatus: while proxies keep what they have, because it is not known what they may serve, the status of their Gateway
// and of its ListenerSets is held beyond the limit, and that of a route is not.
func TestUndecidedHoldsStatus(t *testing.T) {
	p := &standIn{generations: map[string]uint64{"n/gw": 1}, retains: true}
	r := newStatusGate(p, func(string, *translate.StatusChange) bool { return true }, func(*translate.StatusChange) bool { return false }, time.Minute)
	start := time.Now()
	for of, status := range map[string]any{"Gateway": &gwv1.GatewayStatus{}, "ListenerSet": &gwv1.ListenerSetStatus{}, "HTTPRoute": &gwv1.RouteStatus{}} {
		r.add(translate.StatusChange{Object: kind.ObjectKey{Kind: of, Namespace: "n", Name: "x"}, Status: status, Gateways: []string{"n/gw"}}, start)
	}
	r.releaseOld(start.Add(time.Hour))
	if free := r.take(); len(free) != 1 || free[0].Object.Kind != "HTTPRoute" {
		t.Errorf("published %v, want the status of the route alone", free)
	}
	p.acknowledged = 1
	r.release("n/gw")
	if free := r.take(); len(free) != 2 {
		t.Errorf("published %v once it was served", free)
	}
}

// TestUnlistedHoldsStatus: while it is not known what runs for a Gateway, its status is not published, however long that lasts, nor are
// those of its ListenerSets in whatever namespace; those of its routes are. Afterwards the newest one is, once it is served.
func TestUnlistedHoldsStatus(t *testing.T) {
	var published []translate.StatusChange
	unlisted := map[string]bool{"n": true}
	r := leader(ClusterOptions{Publish: func(s []translate.StatusChange) { published = append(published, s...) }, HoldLimit: time.Minute,
		Unlisted: func(namespace string) bool { return unlisted[namespace] }}, "n/gw", "m/gw")
	for _, name := range []string{"n/gw", "m/gw"} {
		r.gateway(name).spec = &translate.ProxySpec{}
	}
	change := func(of, namespace string, generation int64, status any) translate.StatusChange {
		return translate.StatusChange{Object: kind.ObjectKey{Kind: of, Namespace: namespace, Name: "gw"}, Generation: generation, Status: status, Gateways: []string{namespace + "/gw"}}
	}
	set := change("ListenerSet", "m", 1, &gwv1.ListenerSetStatus{})
	set.Gateways = []string{"n/gw"}
	start := time.Now()
	for _, c := range []translate.StatusChange{
		change("Gateway", "n", 1, &gwv1.GatewayStatus{}), change("Gateway", "m", 1, &gwv1.GatewayStatus{}),
		change("HTTPRoute", "n", 1, &gwv1.RouteStatus{}), set,
	} {
		r.gate.add(c, start)
	}
	expect := func(after time.Duration, want ...string) {
		t.Helper()
		r.gate.release("n/gw")
		r.gate.releaseOld(start.Add(after))
		r.publish()
		var got []string
		for _, c := range published {
			got = append(got, fmt.Sprint(c.Object.Kind, " ", c.Object.Namespace, " ", c.Generation))
		}
		if !slices.Equal(got, want) {
			t.Errorf("after %s: published %q, want %q", after, got, want)
		}
		published = nil
	}
	expect(time.Hour, "Gateway m 1", "HTTPRoute n 1")
	r.o.Delivery.SetReady("n/gw", []string{"pod"}) // which is known now, and has acknowledged nothing
	r.gate.add(change("Gateway", "n", 2, &gwv1.GatewayStatus{}), start.Add(time.Hour))
	set.Generation = 2
	r.gate.add(set, start.Add(time.Hour))
	clear(unlisted)
	expect(time.Hour)
	expect(time.Hour+time.Minute, "Gateway n 2", "ListenerSet m 2")
}
