package provision

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/moongate-dev/moongate/api/v1alpha1"
	"github.com/moongate-dev/moongate/internal/testkit"
	"github.com/moongate-dev/moongate/internal/testkit/apiserver"
	"github.com/moongate-dev/moongate/internal/translate"
)

// TestRolloutsAreBounded upgrades the controller of many Gateways: only so many have their proxies replaced at a time, each that is done or
// cannot go on lets the next one begin, and one without a proxy that serves waits for nobody.
func TestRolloutsAreBounded(t *testing.T) {
	const gateways = 12
	s := newServer(t)
	var specs []translate.ProxySpecChange
	for i := range gateways {
		specs = append(specs, specOf(gatewayName{"shop", fmt.Sprint("g", i)}, nil))
	}
	deployment := func(i int) string { return fmt.Sprintf("deployments/shop/g%d-moongate", i) }
	number := func(o tree, path ...string) float64 {
		for _, key := range path[:len(path)-1] {
			o, _ = o[key].(tree)
		}
		n, _ := o[path[len(path)-1]].(float64)
		return n
	}
	most := 0
	s.mutate = func(object string, o tree, all map[string]tree) { // as the API server and the deployment controller do
		meta, isDeployment := o["metadata"].(tree), o["kind"] == "Deployment"
		if !isDeployment {
			return
		}
		meta["generation"] = number(o, "metadata", "generation") + 1
		if number(o, "metadata", "generation") == 1 {
			ready := 1.0
			if object == deployment(gateways-1) {
				ready = 0
			}
			o["status"] = tree{"observedGeneration": 1.0, "readyReplicas": ready}
			return
		}
		rolling := 0
		for name, other := range all {
			if name != object && number(other, "metadata", "generation") > number(other, "status", "observedGeneration") {
				rolling++
			}
		}
		if object == deployment(gateways-1) {
			o["status"].(tree)["observedGeneration"] = meta["generation"] // it is done at once
		} else {
			most = max(most, rolling+1)
		}
	}
	first := startReplica(t, s)
	end := run(t, first.Run)
	first.Update(specs)
	testkit.Eventually(t, "everything is there", func() bool { return len(s.names()) == 4*gateways })
	end()

	second := startReplica(t, s)
	second.o.Image = "example.org/moongate:v2"
	run(t, second.Run)
	second.Update(specs)
	upgraded := func() (all []int) {
		for i := range gateways {
			if number(tree{"generation": s.at(deployment(i), "metadata", "generation")}, "generation") > 1 {
				all = append(all, i)
			}
		}
		return all
	}
	waiting := func() int {
		second.Provisioner.mu.Lock()
		defer second.Provisioner.mu.Unlock()
		return len(second.Provisioner.waiting)
	}
	testkit.Eventually(t, "as many as may are upgraded, and the one that does not serve", func() bool {
		all := upgraded()
		return len(all) == rolloutsAtLeast+1 && all[len(all)-1] == gateways-1 && waiting() == gateways-rolloutsAtLeast-1
	})
	done := map[int]bool{gateways - 1: true}
	for n := rolloutsAtLeast + 2; n <= gateways; n++ {
		for _, i := range upgraded() {
			if done[i] {
				continue
			}
			done[i] = true
			condition := tree{"type": "Progressing", "status": "True", "reason": "NewReplicaSetAvailable"}
			if n%2 == 0 {
				condition = tree{"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded"}
			}
			s.set(deployment(i), func(o tree) {
				o["status"].(tree)["observedGeneration"], o["status"].(tree)["conditions"] = 2.0, []any{condition}
			})
			break
		}
		testkit.Eventually(t, "another one is upgraded", func() bool { return len(upgraded()) == n })
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if most > rolloutsAtLeast {
		t.Errorf("%d rollouts at a time", most)
	}
}

// TestRemovalsAreRollouts: a field of the pods' template that is no longer wanted has no value to differ from, and its removal replaces the proxies all the same.
func TestRemovalsAreRollouts(t *testing.T) {
	s := newServer(t)
	r := startReplica(t, s)
	const deployment = "deployments/shop/web-moongate"
	with := specOf(web, func(p *translate.ProxySpec) {
		p.Parameters.ClassOnly = &v1alpha1.ClassOnly{NodeSelector: map[string]string{"disk": "fast"}}
	})
	if err := r.settle(t, s, with); err != nil {
		t.Fatal(err)
	}
	s.set(deployment, func(o tree) { o["status"] = tree{"readyReplicas": 1.0} })
	for i := range rolloutsAtLeast {
		r.starting[gatewayName{"shop", fmt.Sprint("other", i)}] = true
	}
	selector := func() any { return s.at(deployment, "spec", "template", "spec", "nodeSelector") }
	if err := r.settle(t, s, specOf(web, nil)); err != nil {
		t.Fatal(err)
	}
	if selector() == nil {
		t.Error("the proxies are replaced beside all that may be replaced at a time")
	}
	clear(r.starting)
	if err := r.once(t, s, web); err != nil {
		t.Fatal(err)
	}
	if selector() != nil {
		t.Errorf("the node selector is still %v", selector())
	}
}

// TestKindChangesAreBounded has the class of many Gateways ask for DaemonSets: no more begin at a time than rollouts may, as each adds a pod to every node.
func TestKindChangesAreBounded(t *testing.T) {
	const gateways = 12
	s := newServer(t)
	s.mutate = func(_ string, o tree, _ map[string]tree) {
		switch o["kind"] {
		case "Deployment":
			o["status"] = tree{"observedGeneration": 1.0, "readyReplicas": 1.0}
		case "DaemonSet":
			o["metadata"].(tree)["generation"] = 1.0 // which nobody has observed
		}
	}
	r := startReplica(t, s)
	run(t, r.Run)
	update := func(edit func(*translate.ProxySpec)) {
		var specs []translate.ProxySpecChange
		for i := range gateways {
			specs = append(specs, specOf(gatewayName{"shop", fmt.Sprint("g", i)}, edit))
		}
		r.Update(specs)
	}
	count := func(kind string) (n int) {
		for _, name := range s.names() {
			if strings.HasPrefix(name, kind+"/") {
				n++
			}
		}
		return n
	}
	update(nil)
	testkit.Eventually(t, "everything is there", func() bool { return len(s.names()) == 4*gateways })
	update(func(p *translate.ProxySpec) { p.Parameters.DaemonSet = true })
	testkit.Eventually(t, "as many begin as may, and the others wait", func() bool {
		r.Provisioner.mu.Lock()
		defer r.Provisioner.mu.Unlock()
		return len(r.Provisioner.waiting) == gateways-rolloutsAtLeast
	})
	if n, old := count("daemonsets"), count("deployments"); n != rolloutsAtLeast || old != gateways {
		t.Errorf("%d DaemonSets beside %d Deployments, want %d beside %d", n, old, rolloutsAtLeast, gateways)
	}
	for done := 1; done <= gateways; done++ { // one after the other is ready, and lets the next one begin
		var name string
		testkit.Eventually(t, "a DaemonSet that is not ready", func() bool {
			names := s.names() // once: another DaemonSet may come between two calls
			i := slices.IndexFunc(names, func(n string) bool {
				return strings.HasPrefix(n, "daemonsets/") && s.at(n, "status", "numberReady") == nil
			})
			if i >= 0 {
				name = names[i]
			}
			return i >= 0
		})
		s.set(name, func(o tree) {
			o["status"] = tree{"observedGeneration": 1.0, "desiredNumberScheduled": 3.0, "updatedNumberScheduled": 3.0, "numberReady": 3.0, "numberAvailable": 3.0}
		})
	}
	testkit.Eventually(t, "DaemonSets alone", func() bool { return count("daemonsets") == gateways && count("deployments") == 0 })
}

func TestRollingOut(t *testing.T) {
	progressing := func(status corev1.ConditionStatus, reason string) []appsv1.DeploymentCondition {
		return []appsv1.DeploymentCondition{{Type: appsv1.DeploymentProgressing, Status: status, Reason: reason}}
	}
	for _, c := range []struct {
		what       string
		generation int64
		conditions []appsv1.DeploymentCondition
		want       bool
	}{
		{"changed a moment ago", 2, progressing(corev1.ConditionTrue, "NewReplicaSetAvailable"), true},
		{"under way", 1, progressing(corev1.ConditionTrue, "ReplicaSetUpdated"), true},
		{"done", 1, progressing(corev1.ConditionTrue, "NewReplicaSetAvailable"), false},
		{"stuck", 1, progressing(corev1.ConditionFalse, "ProgressDeadlineExceeded"), false},
		{"paused by somebody", 1, progressing(corev1.ConditionUnknown, "DeploymentPaused"), false},
		{"unknown", 1, nil, false},
	} {
		d := aDeployment(func(d *appsv1.Deployment) {
			d.Generation, d.Status.ObservedGeneration, d.Status.Conditions = c.generation, 1, c.conditions
		})
		if got := rollingOut(d); got != c.want {
			t.Errorf("%s: %v", c.what, got)
		}
	}
	start := time.Unix(1e9, 0)
	of := newStore("")
	for _, c := range []struct {
		what                       string
		after                      time.Duration
		generation                 int64
		wanted, updated, available int32
		want                       bool
	}{
		{"changed a moment ago", 0, 2, 3, 3, 3, true},
		{"under way", 0, 1, 3, 1, 3, true},
		{"a proxy is missing", 5 * time.Minute, 1, 3, 3, 2, true},
		{"it makes no progress", 14 * time.Minute, 1, 3, 3, 2, true},
		{"it makes none for long", 15 * time.Minute, 1, 3, 3, 2, false},
		{"it does", 16 * time.Minute, 1, 3, 2, 2, true},
		{"done", 17 * time.Minute, 1, 3, 3, 3, false},
		{"a node is not ready", 20 * time.Minute, 1, 3, 3, 2, false},
		{"changed anew", 40 * time.Minute, 1, 3, 2, 3, true},
	} {
		d := aDaemonSet(func(d *appsv1.DaemonSet) {
			d.Generation, d.Status = c.generation, appsv1.DaemonSetStatus{ObservedGeneration: 1, DesiredNumberScheduled: c.wanted,
				UpdatedNumberScheduled: c.updated, NumberUnavailable: c.wanted - c.available}
		})
		if got := of.rollingOutOf(d, start.Add(c.after)); got != c.want {
			t.Errorf("a DaemonSet, %s: %v", c.what, got)
		}
	}
	serving := aDeployment(func(d *appsv1.Deployment) { d.Status.ReadyReplicas = 1 })
	serving.Annotations = map[string]string{annotationTemplate: "same"}
	w, _ := workloadOf(serving)
	for path, want := range map[string]bool{"spec.template.spec.containers[0].image": true, "spec.replicas": false, "metadata.labels.a": false} {
		if got := restarts(w, "same", map[string]string{path: "x"}); got != want {
			t.Errorf("%s of a Deployment that serves: %v", path, got)
		}
	}
}

// TestUnplacedProxies: with more replicas than nodes have room for, an update is allowed as many proxies more that are not available, until it is over. One that was begun without that, by
// an earlier version, goes on.
func TestUnplacedProxies(t *testing.T) {
	const deployment = "deployments/shop/web-moongate"
	s := newServer(t)
	r := startReplica(t, s)
	spec := func(disk string) translate.ProxySpecChange {
		return specOf(web, func(p *translate.ProxySpec) {
			p.Parameters.Replicas = pointer[int32](3)
			p.Parameters.ClassOnly = &v1alpha1.ClassOnly{HostNetwork: true, NodeSelector: map[string]string{"disk": disk}}
		})
	}
	status := func(updated float64, progressing, reason string) func() {
		return func() {
			s.set(deployment, func(o tree) {
				o["status"] = tree{"replicas": 3.0, "readyReplicas": 1.0, "updatedReplicas": updated, "conditions": []any{tree{"type": "Progressing", "status": progressing, "reason": reason}}}
			})
			r.caughtUp(t, s)
		}
	}
	if err := r.settle(t, s, spec("a")); err != nil {
		t.Fatal(err)
	}
	for _, pod := range []string{"one", "two"} {
		s.set("pods/shop/"+pod, func(o tree) {
			readyPod(web)(o)
			o["status"] = tree{"phase": "Pending", "conditions": []any{tree{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}}}
		})
	}
	stuck := status(3, "False", "ProgressDeadlineExceeded")
	for _, c := range []struct {
		what   string
		before func()
		disk   string
		want   float64
	}{
		{"nothing is updated", stuck, "a", 1},
		{"an update begins", stuck, "b", 3},
		{"it goes on", status(1, "True", "ReplicaSetUpdated"), "b", 3},
		{"it is over", stuck, "b", 1},
		{"one has not come forward", status(1, "False", "ProgressDeadlineExceeded"), "b", 3},
	} {
		c.before()
		if err := r.settle(t, s, spec(c.disk)); err != nil {
			t.Fatal(c.what, err)
		}
		if got := s.at(deployment, "spec", "strategy", "rollingUpdate", "maxUnavailable"); got != c.want {
			t.Errorf("%s: %v may be unavailable, want %v", c.what, got, c.want)
		}
	}
}

// TestATurnIsPassedOn: Gateways that were deleted while they waited for their turn do not use up that of another one.
func TestATurnIsPassedOn(t *testing.T) {
	r := startReplica(t, newServer(t))
	run(t, r.Run)
	testkit.Eventually(t, "it leads", func() bool {
		r.Provisioner.mu.Lock()
		defer r.Provisioner.mu.Unlock()
		return r.work != nil
	})
	r.Update(nil)
	waiting := func() int {
		r.Provisioner.mu.Lock()
		defer r.Provisioner.mu.Unlock()
		return len(r.Provisioner.waiting)
	}
	r.Provisioner.mu.Lock()
	for i := range 20 {
		r.Provisioner.waiting[gatewayName{"shop", fmt.Sprint("gone", i)}] = true
	}
	r.wakeWaiting()
	r.Provisioner.mu.Unlock()
	testkit.Eventually(t, "the turn is passed on until nobody waits", func() bool { return waiting() == 0 })
	r.Provisioner.mu.Lock()
	defer r.Provisioner.mu.Unlock()
	if n := len(r.woken); n > 1 { // the last one may not have ended yet
		t.Errorf("%d Gateways are remembered", n)
	}
}

// TestAFailedRolloutWakesAnother: a Gateway whose changed Deployment is refused does not use up the turn of one that waits.
func TestAFailedRolloutWakesAnother(t *testing.T) {
	s := newServer(t)
	first := startReplica(t, s)
	if err := first.settle(t, s, specOf(web, nil)); err != nil {
		t.Fatal(err)
	}
	s.set("deployments/shop/web-moongate", func(o tree) {
		o["metadata"].(tree)["generation"], o["status"] = 1.0, tree{"observedGeneration": 1.0, "readyReplicas": 1.0}
	})
	s.mu.Lock()
	s.fail = func(verb, object string) *metav1.Status {
		if verb == "apply" && strings.HasPrefix(object, "deployments/") {
			return apiserver.Failure(http.StatusForbidden, metav1.StatusReasonForbidden, "a webhook does not like it")
		}
		return nil
	}
	s.mu.Unlock()
	second := startReplica(t, s)
	second.o.Image = "example.org/moongate:v2"
	run(t, second.Run)
	testkit.Eventually(t, "it leads", func() bool {
		second.Provisioner.mu.Lock()
		defer second.Provisioner.mu.Unlock()
		return second.work != nil
	})
	second.Provisioner.mu.Lock()
	second.Provisioner.waiting[gatewayName{"shop", "other"}] = true
	second.Provisioner.mu.Unlock()
	second.Update([]translate.ProxySpecChange{specOf(web, nil)})
	testkit.Eventually(t, "the other one is woken", func() bool {
		second.Provisioner.mu.Lock()
		defer second.Provisioner.mu.Unlock()
		return !second.Provisioner.waiting[gatewayName{"shop", "other"}]
	})
}
