package provision

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/moongate-dev/moongate/api/v1alpha1"
	"github.com/moongate-dev/moongate/internal/testkit/apiserver"
	"github.com/moongate-dev/moongate/internal/translate"
)

// onHostsOf returns a spec whose proxies use the network of their nodes.
func onHostsOf(class string, replicas int32, daemonSet bool) translate.ProxySpecChange {
	return specOf(web, func(p *translate.ProxySpec) {
		p.Class, p.Parameters.ClassOnly = class, &v1alpha1.ClassOnly{HostNetwork: true}
		if daemonSet {
			p.Parameters.DaemonSet = true
		} else {
			p.Parameters.Replicas = &replicas
		}
	})
}

// proxiesOn creates a pod of a class's workload on each of some nodes, and removes its other pods. If the node is "" the pod cannot be scheduled. The status of
// the workload follows.
func (s *server) proxiesOn(class, kind string, wanted int, ready bool, nodes ...string) {
	label, workload := appsv1.DefaultDeploymentUniqueLabelKey, "deployments/shop/web-"+class
	if kind == kindDaemonSet {
		label, workload = appsv1.DefaultDaemonSetUniqueLabelKey, "daemonsets/shop/web-"+class
	}
	for _, name := range s.names() {
		if strings.HasPrefix(name, "pods/shop/"+class+"-") {
			s.set(name, nil)
		}
	}
	available := 0.0
	for i, node := range nodes {
		s.set(fmt.Sprintf("pods/shop/%s-%d", class, i), func(o tree) {
			meta := o["metadata"].(tree)
			meta["labels"] = tree{labelManagedBy: managedBy, labelName: proxyName, gwv1.GatewayClassNameLabelKey: class, label: "x"}
			meta["annotations"] = tree{annotationGateway: "web", annotationController: settings.ControllerName}
			o["spec"] = tree{"nodeName": node, "hostNetwork": true}
			o["status"] = tree{"conditions": []any{tree{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}}}
			if node != "" {
				o["status"] = tree{"conditions": []any{tree{"type": "Ready", "status": map[bool]string{true: "True", false: "False"}[ready]}}}
			}
		})
		if ready && node != "" {
			available++
		}
	}
	s.set(workload, func(o tree) {
		o["status"] = tree{"replicas": float64(wanted), "readyReplicas": available, "availableReplicas": available}
		if kind == kindDaemonSet {
			o["status"] = tree{"desiredNumberScheduled": float64(wanted), "numberReady": available, "numberAvailable": available}
		}
	})
}

// TestClassChangeKeepsProxiesOnHosts has no proxy of the other class ever become available: at most one proxy ends for it, and the Service stays.
func TestClassChangeKeepsProxiesOnHosts(t *testing.T) {
	const former = "deployments/shop/web-moongate"
	for name, c := range map[string]struct {
		daemonSet bool     // of the former class
		nodes     []string // with a proxy of it
		wanted    int32    // of the other class
		scaled    bool     // by another autoscaler
		noPod     bool     // of the other class
		want      any      // replicas of the Deployment of the former class
		left      bool     // whether the DaemonSet stays
	}{
		"a Deployment":                          {nodes: []string{"a", "b", "c"}, wanted: 1, want: 2.0},
		"as many":                               {nodes: []string{"a", "b"}, wanted: 2, want: 1.0},
		"a Deployment that others scale":        {nodes: []string{"a", "b", "c"}, wanted: 1, scaled: true, want: 3.0},
		"a DaemonSet":                           {daemonSet: true, nodes: []string{"a", "b", "c"}, wanted: 1, left: true},
		"a DaemonSet on one node":               {daemonSet: true, nodes: []string{"a"}, wanted: 1},
		"a proxy":                               {nodes: []string{"a"}, wanted: 1},
		"a proxy, and no pod can be created":    {nodes: []string{"a"}, wanted: 1, noPod: true, want: 1.0},
		"several, of which none shall be there": {nodes: []string{"a", "b"}, wanted: 0},
	} {
		t.Run(name, func(t *testing.T) {
			s := newServer(t)
			r := startReplica(t, s)
			r.grace = 0
			kind := kindDeployment
			if c.daemonSet {
				kind = kindDaemonSet
			}
			if err := r.settle(t, s, onHostsOf("moongate", int32(len(c.nodes)), c.daemonSet)); err != nil {
				t.Fatal(err)
			}
			nodes := c.nodes
			s.proxiesOn("moongate", kind, len(nodes), true, nodes...)
			if c.scaled {
				s.set("horizontalpodautoscalers/shop/theirs", func(o tree) {
					o["spec"] = tree{"maxReplicas": 9, "scaleTargetRef": tree{"apiVersion": "apps/v1", "kind": "Deployment", "name": "web-moongate"}}
				})
			}
			if err := r.settle(t, s, onHostsOf("other", c.wanted, false)); err != nil {
				t.Fatal(err)
			}
			pods := make([]string, c.wanted)
			if c.noPod {
				pods = nil
			}
			s.proxiesOn("other", kindDeployment, int(c.wanted), false, pods...)
			rounds := func() {
				for range 5 {
					if err := r.once(t, s, web); err != nil {
						t.Fatal(err)
					}
					// The Deployment's controller ends proxies.
					if replicas, ok := s.at(former, "spec", "replicas").(float64); ok && int(replicas) < len(nodes) {
						nodes = nodes[:int(replicas)]
						s.proxiesOn("moongate", kind, len(nodes), true, nodes...)
					}
				}
			}
			rounds()
			if got := s.at(former, "spec", "replicas"); got != c.want {
				t.Errorf("the Deployment of the former class has %v replicas, want %v", got, c.want)
			}
			if got := s.has("daemonsets/shop/web-moongate"); got != c.left {
				t.Errorf("the DaemonSet of the former class is there: %v", got)
			}
			if got := s.has("services/shop/web-moongate"); got != (c.wanted > 0) {
				t.Errorf("the Service of the former class is there: %v", got)
			}
			if c.wanted == 0 {
				return
			}
			s.proxiesOn("other", kindDeployment, int(c.wanted), true, []string{"x", "y"}[:c.wanted]...)
			rounds()
			for _, left := range []string{former, "daemonsets/shop/web-moongate", "services/shop/web-moongate"} {
				if s.has(left) {
					t.Errorf("once all proxies are available, %s stays", left)
				}
			}
		})
	}
}

// TestThreeClassesOnHosts changes the class twice: every node gets a proxy of the last class, which replaces those of both former ones.
func TestThreeClassesOnHosts(t *testing.T) {
	const first, second, service = "deployments/shop/web-moongate", "deployments/shop/web-other", "services/shop/web-other"
	s := newServer(t)
	r := startReplica(t, s)
	r.grace = 0
	begin := func(secondReady bool) {
		t.Helper()
		for _, class := range []string{"moongate", "other"} {
			if err := r.settle(t, s, onHostsOf(class, 1, false)); err != nil {
				t.Fatal(err)
			}
			s.proxiesOn("moongate", kindDeployment, 1, true, "a")
		}
		s.proxiesOn("other", kindDeployment, 1, secondReady, "b")
		if err := r.settle(t, s, onHostsOf("third", 2, false)); err != nil {
			t.Fatal(err)
		}
	}
	step := func(what string, want ...bool) {
		t.Helper()
		for range 2 {
			if err := r.once(t, s, web); err != nil {
				t.Fatal(err)
			}
		}
		if got := []bool{s.has(first), s.has(second), s.has(service)}; !slices.Equal(got, want) {
			t.Fatalf("%s: the Deployments of the former classes and the Service of the second are there: %v, want %v", what, got, want)
		}
	}
	begin(true)
	s.proxiesOn("third", kindDeployment, 2, true, "", "")
	step("no node has room", false, true, true)
	s.proxiesOn("moongate", kindDeployment, 1, true)
	s.set(first, nil) // proxiesOn has created it again
	step("the proxy has ended", false, true, true)
	s.proxiesOn("third", kindDeployment, 2, true, "a", "")
	step("one is available", false, false, false)

	s = newServer(t)
	r = startReplica(t, s)
	r.grace = 0
	begin(false)
	s.proxiesOn("third", kindDeployment, 2, true, "", "")
	if err := r.once(t, s, web); err != nil {
		t.Fatal(err)
	}
	if !s.has(first) || s.has(second) || !s.has(service) {
		t.Errorf("if no proxy of the second class is ready, there are %q", s.names())
	}
}

// TestRoomOnHostsAgain makes room a second time if the removal that was to make it has failed, and if a proxy of the other class has been available since.
func TestRoomOnHostsAgain(t *testing.T) {
	const former = "deployments/shop/web-moongate"
	begin := func(t *testing.T, nodes ...string) (*server, *replica) {
		s := newServer(t)
		r := startReplica(t, s)
		r.grace = 0
		if err := r.settle(t, s, onHostsOf("moongate", int32(len(nodes)), false)); err != nil {
			t.Fatal(err)
		}
		s.proxiesOn("moongate", kindDeployment, len(nodes), true, nodes...)
		if err := r.settle(t, s, onHostsOf("other", 2, false)); err != nil {
			t.Fatal(err)
		}
		s.proxiesOn("other", kindDeployment, 2, false, "", "")
		return s, r
	}
	t.Run("the removal has failed", func(t *testing.T) {
		s, r := begin(t, "a")
		s.set("deployments/shop/web-other", func(o tree) { o["spec"].(tree)["replicas"] = 1.0 })
		one := onHostsOf("other", 1, false)
		s.mu.Lock()
		s.fail = func(verb, object string) *metav1.Status {
			if verb == "delete" && object == former {
				return apiserver.Failure(http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable, "later")
			}
			return nil
		}
		s.mu.Unlock()
		if err := r.settle(t, s, one); err == nil || !s.has(former) {
			t.Fatalf("error %v; there are %q", err, s.names())
		}
		s.mu.Lock()
		s.fail = nil
		s.mu.Unlock()
		if err := r.once(t, s, web); err != nil || s.has(former) {
			t.Errorf("error %v; there are %q", err, s.names())
		}
	})
	t.Run("a proxy was available", func(t *testing.T) {
		s, r := begin(t, "a", "b", "c")
		for _, step := range []struct {
			others []string // nodes of the proxies of the other class
			former []string
			want   any
		}{
			{[]string{"", ""}, []string{"a", "b", "c"}, 2.0},
			{[]string{"", ""}, []string{"a", "b"}, 2.0},
			{[]string{"c", ""}, []string{"a", "b"}, 1.0},
			{[]string{"", ""}, []string{"a", "b"}, 1.0},
			{[]string{"", ""}, []string{"a"}, 1.0}, // it needs more nodes than that one
		} {
			s.proxiesOn("other", kindDeployment, 2, true, step.others...)
			s.proxiesOn("moongate", kindDeployment, len(step.former), true, step.former...)
			if err := r.once(t, s, web); err != nil {
				t.Fatal(err)
			}
			if got := s.at(former, "spec", "replicas"); got != step.want {
				t.Fatalf("with proxies on %q and %q the former class has %v, want %v", step.others, step.former, got, step.want)
			}
		}
		if r.roomMade(web, objectName{kindDeployment, "web-other"}, objectName{}) {
			t.Error("room is remembered although a proxy was available since")
		}
		r.setRoom(web, room{by: objectName{kindDeployment, "web-other"}})
		r.Update([]translate.ProxySpecChange{{Namespace: web.namespace, Name: web.name}})
		if r.peek(web).room != (room{}) {
			t.Error("room is remembered of a Gateway that has no spec")
		}
	})
}

// TestFormerClassBesideHosts has a former class whose proxies share no nodes with those of the present class, and one whose proxies do: the first one stays until the
// present class has all proxies.
func TestFormerClassBesideHosts(t *testing.T) {
	const first, second = "deployments/shop/web-moongate", "deployments/shop/web-other"
	s := newServer(t)
	r := startReplica(t, s)
	r.grace = 0
	if err := r.settle(t, s, specOf(web, nil)); err != nil {
		t.Fatal(err)
	}
	s.proxiesOn("moongate", kindDeployment, 1, true, "a")
	if err := r.settle(t, s, onHostsOf("other", 2, false)); err != nil {
		t.Fatal(err)
	}
	s.proxiesOn("other", kindDeployment, 2, true, "a", "b")
	if err := r.settle(t, s, onHostsOf("third", 2, false)); err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		third, second []string // nodes
		want          []bool   // whether the Deployments of the former classes are there
	}{
		{[]string{"", ""}, []string{"a", "b"}, []bool{true, true}},
		{[]string{"b", ""}, []string{"a"}, []bool{true, false}},
		{[]string{"b", ""}, nil, []bool{true, false}},
		{[]string{"b", "a"}, nil, []bool{false, false}},
	} {
		s.proxiesOn("third", kindDeployment, 2, true, step.third...)
		if step.second != nil {
			s.proxiesOn("other", kindDeployment, len(step.second), true, step.second...)
		}
		if err := r.once(t, s, web); err != nil {
			t.Fatal(err)
		}
		if got := []bool{s.has(first), s.has(second)}; !slices.Equal(got, step.want) {
			t.Fatalf("with proxies on %q the former Deployments are there: %v, want %v", step.third, got, step.want)
		}
	}
}
