package provision

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/moongate-dev/moongate/api/v1alpha1"
	"github.com/moongate-dev/moongate/internal/testkit"
	"github.com/moongate-dev/moongate/internal/testkit/apiserver"
	"github.com/moongate-dev/moongate/internal/translate"
)

// TestReplaces is when a workload that is no longer wanted can go.
func TestReplaces(t *testing.T) {
	many := func(wanted, ready int32) workload {
		w, _ := workloadOf(aDeployment(func(d *appsv1.Deployment) {
			d.Spec.Replicas, d.Status = &wanted, appsv1.DeploymentStatus{ReadyReplicas: ready, AvailableReplicas: ready}
		}))
		return w
	}
	each := func(nodes, ready int32) workload {
		w, _ := workloadOf(aDaemonSet(func(d *appsv1.DaemonSet) {
			d.Status = appsv1.DaemonSetStatus{DesiredNumberScheduled: nodes, NumberReady: ready, NumberAvailable: ready}
		}))
		return w
	}
	notLong, _ := workloadOf(aDaemonSet(func(d *appsv1.DaemonSet) {
		d.Status = appsv1.DaemonSetStatus{DesiredNumberScheduled: 3, NumberReady: 3, NumberAvailable: 2}
	}))
	unknown, _ := workloadOf(aDaemonSet(func(d *appsv1.DaemonSet) { d.Generation = 1; d.Status.NumberReady = 3 }))
	onHost := func(w workload) workload { w.template.Spec.HostNetwork = true; return w }
	three := v1alpha1.GatewayParametersSpec{Replicas: pointer[int32](3)}
	for _, c := range []struct {
		what       string
		by, it     workload
		parameters v1alpha1.GatewayParametersSpec
		nodes      int32 // with proxies of it
		want       bool
	}{
		{"ready on every node", each(3, 3), many(2, 2), v1alpha1.GatewayParametersSpec{}, 0, true},
		{"not yet for as long as asked for on one", notLong, many(2, 2), v1alpha1.GatewayParametersSpec{}, 0, false},
		{"not yet on one", each(3, 2), many(2, 2), v1alpha1.GatewayParametersSpec{}, 0, false},
		{"on no node", each(0, 0), many(2, 2), v1alpha1.GatewayParametersSpec{}, 0, false},
		{"made a moment ago", unknown, many(2, 2), v1alpha1.GatewayParametersSpec{}, 0, false},
		{"the other one does not serve by its status", each(3, 0), many(2, 0), v1alpha1.GatewayParametersSpec{}, 0, false},
		{"all replicas", many(2, 2), each(3, 3), v1alpha1.GatewayParametersSpec{}, 0, true},
		{"not all", many(2, 1), each(3, 3), v1alpha1.GatewayParametersSpec{}, 0, false},
		{"not as many as are asked for now", many(2, 2), each(3, 3), three, 0, false},
		{"none are wanted", many(0, 0), each(3, 3), v1alpha1.GatewayParametersSpec{}, 0, true},
		{"the autoscaler has yet to begin", many(1, 1), each(3, 3), v1alpha1.GatewayParametersSpec{Autoscaling: &v1alpha1.Autoscaling{MinReplicas: pointer[int32](2), MaxReplicas: 4}}, 0, false},
		{"on hosts, wherever there is room", onHost(each(3, 1)), onHost(many(2, 2)), v1alpha1.GatewayParametersSpec{}, 2, true},
		{"on hosts, not everywhere", onHost(each(3, 0)), onHost(many(2, 2)), v1alpha1.GatewayParametersSpec{}, 2, false},
		{"on hosts, without room", onHost(many(2, 0)), onHost(each(3, 3)), v1alpha1.GatewayParametersSpec{}, 3, true},
		{"on hosts, where some of it wait for room", onHost(each(3, 0)), onHost(many(3, 1)), v1alpha1.GatewayParametersSpec{}, 1, false},
		{"one of them on hosts", onHost(many(2, 0)), each(3, 3), v1alpha1.GatewayParametersSpec{}, 0, false},
	} {
		if got := c.by.replaces(c.it, c.nodes, &translate.ProxySpec{Parameters: c.parameters}); got != c.want {
			t.Errorf("%s: %v", c.what, got)
		}
	}
}

// TestDaemonSet goes from a Deployment to a DaemonSet and back. What serves stays until the other one is ready, with its budget, and the Gateway says that it does.
func TestDaemonSet(t *testing.T) {
	const deployment, daemonSet = "deployments/shop/web-moongate", "daemonsets/shop/web-moongate"
	s := newServer(t)
	r := startReplica(t, s)
	settle := func(edit func(*v1alpha1.GatewayParametersSpec), want ...string) {
		t.Helper()
		if err := r.settle(t, s, specOf(web, func(p *translate.ProxySpec) { edit(&p.Parameters) })); err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, name := range s.names() {
			if kind, _, _ := strings.Cut(name, "/"); kind != "services" && kind != "serviceaccounts" && kind != "configmaps" {
				got = append(got, kind)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("there are %q, want %q", got, want)
		}
	}
	says := func(want string) {
		t.Helper()
		testkit.Eventually(t, "it says "+want, func() bool {
			i := r.last("shop/web").infrastructure
			return i != nil && i.Lagging == want && i.Unassigned == ""
		})
	}
	two := func(p *v1alpha1.GatewayParametersSpec) { p.Replicas = pointer[int32](2) }
	each := func(p *v1alpha1.GatewayParametersSpec) { p.DaemonSet = true }
	settle(two, "deployments", "poddisruptionbudgets")
	s.set(deployment, func(o tree) { o["status"] = tree{"replicas": 2.0, "readyReplicas": 2.0, "availableReplicas": 2.0} })
	settle(each, "daemonsets", "deployments", "poddisruptionbudgets")
	says("Deployment shop/web-moongate serves until all proxies of DaemonSet web-moongate are ready; if this stays, look at its pods and events")
	s.set(daemonSet, func(o tree) {
		o["status"] = tree{"desiredNumberScheduled": 3.0, "numberReady": 2.0, "numberAvailable": 2.0}
	})
	settle(each, "daemonsets", "deployments", "poddisruptionbudgets")
	s.set(daemonSet, func(o tree) {
		o["status"] = tree{"desiredNumberScheduled": 3.0, "numberReady": 3.0, "numberAvailable": 3.0}
	})
	settle(each, "daemonsets")
	says("")
	settle(two, "daemonsets", "deployments", "poddisruptionbudgets")
	says("DaemonSet shop/web-moongate serves until all proxies of Deployment web-moongate are ready; if this stays, look at its pods and events")
	s.set(deployment, func(o tree) { o["status"] = tree{"replicas": 2.0, "readyReplicas": 2.0, "availableReplicas": 2.0} })
	settle(two, "deployments", "poddisruptionbudgets")
	says("")
}

// podsOn has a pod of a workload on each of some nodes, ready or not, and none on others.
func (s *server) podsOn(kind string, ready bool, nodes ...string) {
	label := appsv1.DefaultDeploymentUniqueLabelKey
	if kind == kindDaemonSet {
		label = appsv1.DefaultDaemonSetUniqueLabelKey
	}
	prefix := "pods/shop/" + strings.ToLower(kind) + "-"
	for _, name := range s.names() {
		if node, is := strings.CutPrefix(name, prefix); is && !slices.Contains(nodes, node) {
			s.set(name, nil)
		}
	}
	for _, node := range nodes {
		s.set(prefix+node, func(o tree) {
			o["metadata"].(tree)["labels"] = tree{labelManagedBy: managedBy, labelName: proxyName, gwv1.GatewayClassNameLabelKey: "moongate", label: "x"}
			o["metadata"].(tree)["annotations"] = tree{annotationGateway: "web", annotationController: settings.ControllerName}
			o["spec"] = tree{"nodeName": node, "hostNetwork": true}
			o["status"] = tree{"conditions": []any{tree{"type": "Ready", "status": map[bool]string{true: "True", false: "False"}[ready]}}}
		})
	}
}

// TestDaemonSetOnHosts goes from a Deployment to a DaemonSet, both in the network of their nodes: each node is without a proxy at another time.
func TestDaemonSetOnHosts(t *testing.T) {
	const deployment, daemonSet = "deployments/shop/web-moongate", "daemonsets/shop/web-moongate"
	s := newServer(t)
	r := startReplica(t, s)
	spec := func(edit func(*v1alpha1.GatewayParametersSpec)) translate.ProxySpecChange {
		return specOf(web, func(p *translate.ProxySpec) {
			p.Parameters.ClassOnly = &v1alpha1.ClassOnly{HostNetwork: true}
			edit(&p.Parameters)
		})
	}
	deploymentHas := func(ready int) {
		s.set(deployment, func(o tree) {
			o["status"] = tree{"replicas": float64(ready), "readyReplicas": float64(ready), "availableReplicas": float64(ready)}
		})
	}
	daemonSetHas := func(ready int) {
		s.set(daemonSet, func(o tree) {
			o["status"] = tree{"desiredNumberScheduled": 3.0, "numberReady": float64(ready), "numberAvailable": float64(ready)}
		})
	}
	settle := func(what string, change translate.ProxySpecChange, want any) {
		t.Helper()
		if err := r.settle(t, s, change); err != nil {
			t.Fatal(err)
		}
		if got := s.at(deployment, "spec", "replicas"); got != want {
			t.Fatalf("%s: the Deployment has %v replicas, want %v", what, got, want)
		}
	}
	// Autoscaled, with one proxy more than there are nodes: the autoscaler must not bring back what made room.
	settle("at first", spec(func(p *v1alpha1.GatewayParametersSpec) {
		p.Autoscaling = &v1alpha1.Autoscaling{MinReplicas: pointer[int32](4), MaxReplicas: 9}
	}), nil)
	s.set(deployment, func(o tree) { o["spec"].(tree)["replicas"] = 4.0 })
	deploymentHas(3)
	s.podsOn(kindDeployment, true, "a", "b", "c")
	each := spec(func(p *v1alpha1.GatewayParametersSpec) { p.DaemonSet = true })
	settle("the DaemonSet is made", each, 4.0)
	daemonSetHas(0)
	settle("no node has room", each, 2.0)
	if slices.Contains(s.names(), "horizontalpodautoscalers/shop/web-moongate") {
		t.Error("the autoscaler of what makes room is still there")
	}
	settle("a proxy is ending", each, 2.0)
	deploymentHas(2)
	s.podsOn(kindDeployment, true, "a", "b")
	settle("the other one is not ready yet", each, 2.0)
	daemonSetHas(1)
	settle("it is ready", each, 1.0)
	deploymentHas(1)
	s.podsOn(kindDeployment, true, "a")
	settle("the second one is not ready yet", each, 1.0)
	daemonSetHas(2)
	settle("the last node", each, nil)
	if slices.Contains(s.names(), deployment) {
		t.Error("the Deployment is still there")
	}
}

// TestReplacementIsBounded has a node that never is ready keep a DaemonSet from being ready everywhere: the Deployment goes nevertheless, once the DaemonSet has not come forward for
// long and has as many proxies as the Deployment.
func TestReplacementIsBounded(t *testing.T) {
	const deployment, daemonSet = "deployments/shop/web-moongate", "daemonsets/shop/web-moongate"
	for name, c := range map[string]struct {
		ready    float64
		deadline time.Duration
		stays    bool
	}{
		"enough are ready":     {2, 0, false},
		"they may become more": {2, time.Hour, true},
		"not enough are ready": {1, 0, true},
		"none is":              {0, 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			s := newServer(t)
			r := startReplica(t, s)
			r.deadline = c.deadline
			if err := r.settle(t, s, specOf(web, func(p *translate.ProxySpec) { p.Parameters.Replicas = pointer[int32](2) })); err != nil {
				t.Fatal(err)
			}
			s.set(deployment, func(o tree) { o["status"] = tree{"replicas": 2.0, "readyReplicas": 2.0, "availableReplicas": 2.0} })
			each := specOf(web, func(p *translate.ProxySpec) { p.Parameters.DaemonSet = true })
			if err := r.settle(t, s, each); err != nil {
				t.Fatal(err)
			}
			s.set(daemonSet, func(o tree) {
				o["status"] = tree{"desiredNumberScheduled": 3.0, "numberReady": c.ready, "numberAvailable": c.ready}
			})
			r.caughtUp(t, s)
			r.Update([]translate.ProxySpecChange{each})
			again, err := r.reconcile(t.Context(), web)
			if err != nil {
				t.Fatal(err)
			}
			if got := slices.Contains(s.names(), deployment); got != c.stays {
				t.Errorf("the Deployment is there: %v", got)
			}
			if c.stays && again != awaitedPoll {
				t.Errorf("it is looked at again after %v", again)
			}
		})
	}
}

// TestReplacementSettles has proxies of a DaemonSet that are ready, all for long enough, not for long enough, or one of them ending: what sends connections may know of none of those yet, or
// of none of the new ones.
func TestReplacementSettles(t *testing.T) {
	const deployment, daemonSet = "deployments/shop/web-moongate", "daemonsets/shop/web-moongate"
	for name, c := range map[string]struct {
		settle time.Duration
		ending bool
		stays  bool
	}{
		"for long enough": {},
		"a moment ago":    {settle: time.Hour, stays: true},
		"one is ending":   {ending: true, stays: true},
	} {
		t.Run(name, func(t *testing.T) {
			s := newServer(t)
			r := startReplica(t, s)
			r.settleTime = c.settle
			if err := r.settle(t, s, specOf(web, nil)); err != nil {
				t.Fatal(err)
			}
			s.set(deployment, func(o tree) { o["status"] = tree{"replicas": 1.0, "readyReplicas": 1.0, "availableReplicas": 1.0} })
			each := specOf(web, func(p *translate.ProxySpec) { p.Parameters.DaemonSet = true })
			if err := r.settle(t, s, each); err != nil {
				t.Fatal(err)
			}
			s.podsOn(kindDaemonSet, true, "a", "b")
			if c.ending {
				s.set("pods/shop/daemonset-a", func(o tree) { o["metadata"].(tree)["deletionTimestamp"] = "2026-01-02T03:04:05Z" })
			}
			s.set(daemonSet, func(o tree) {
				o["status"] = tree{"desiredNumberScheduled": 2.0, "numberReady": 2.0, "numberAvailable": 2.0}
			})
			if err := r.settle(t, s, each); err != nil {
				t.Fatal(err)
			}
			if got := slices.Contains(s.names(), deployment); got != c.stays {
				t.Errorf("the Deployment is there: %v", got)
			}
		})
	}
}

// TestRemovedTakesNoPlace removes a Deployment, which no watch reports: it cannot take the place of anything.
func TestRemovedTakesNoPlace(t *testing.T) {
	s := newServer(t)
	r := startReplica(t, s)
	if err := r.settle(t, s, specOf(web, nil)); err != nil {
		t.Fatal(err)
	}
	n := objectName{kindDeployment, "web-moongate"}
	blind, err := New(r.o)
	if err != nil {
		t.Fatal(err)
	}
	object := r.store.find("shop", n)
	blind.store.put(kindDeployment, object)
	if err := blind.remove(t.Context(), object, n); err != nil {
		t.Fatal(err)
	}
	if blind.store.find("shop", n) != nil {
		t.Error("what was removed is held to be there")
	}
}

// TestReadyBeforeItsStatus has proxies that are ready before the status of their Deployment says so: they serve, and stay. Those of the DaemonSet do not speak for it.
func TestReadyBeforeItsStatus(t *testing.T) {
	const deployment = "deployments/shop/web-moongate"
	for _, c := range []struct {
		ready string
		label string // of who owns the pod
		want  bool
	}{
		{"True", appsv1.DefaultDeploymentUniqueLabelKey, true},
		{"False", appsv1.DefaultDeploymentUniqueLabelKey, false},
		{"True", appsv1.DefaultDaemonSetUniqueLabelKey, false},
	} {
		s := newServer(t)
		r := startReplica(t, s)
		if err := r.settle(t, s, specOf(web, nil)); err != nil {
			t.Fatal(err)
		}
		s.set("pods/shop/web-moongate-x", func(o tree) {
			o["metadata"].(tree)["labels"] = tree{labelManagedBy: managedBy, labelName: proxyName, gwv1.GatewayClassNameLabelKey: "moongate", c.label: "x"}
			o["metadata"].(tree)["annotations"] = tree{annotationGateway: "web", annotationController: settings.ControllerName}
			o["status"] = tree{"conditions": []any{tree{"type": "Ready", "status": c.ready}}}
		})
		if err := r.settle(t, s, specOf(web, func(p *translate.ProxySpec) { p.Parameters.DaemonSet = true })); err != nil {
			t.Fatal(err)
		}
		if got := slices.Contains(s.names(), deployment); got != c.want {
			t.Errorf("with a proxy with %s whose readiness is %s the Deployment is there: %v", c.label, c.ready, got)
		}
	}
}

// TestScaledDeploymentTakesOver has a Deployment whose number of proxies an autoscaler decides on take the place of a DaemonSet: it begins with as many.
func TestScaledDeploymentTakesOver(t *testing.T) {
	const deployment, daemonSet = "deployments/shop/web-moongate", "daemonsets/shop/web-moongate"
	for name, c := range map[string]struct {
		parameters v1alpha1.GatewayParametersSpec
		want       float64
	}{
		"within the bounds":   {v1alpha1.GatewayParametersSpec{Autoscaling: &v1alpha1.Autoscaling{MaxReplicas: 50}}, 20},
		"no more than may be": {v1alpha1.GatewayParametersSpec{Autoscaling: &v1alpha1.Autoscaling{MaxReplicas: 7}}, 7},
		"somebody else's":     {v1alpha1.GatewayParametersSpec{ExternalAutoscaler: true}, 20},
	} {
		t.Run(name, func(t *testing.T) {
			s := newServer(t)
			r := startReplica(t, s)
			if err := r.settle(t, s, specOf(web, func(p *translate.ProxySpec) { p.Parameters.DaemonSet = true })); err != nil {
				t.Fatal(err)
			}
			s.set(daemonSet, func(o tree) {
				o["status"] = tree{"desiredNumberScheduled": 20.0, "numberReady": 20.0, "numberAvailable": 20.0}
			})
			scaled := specOf(web, func(p *translate.ProxySpec) { p.Parameters = c.parameters })
			if err := r.settle(t, s, scaled); err != nil {
				t.Fatal(err)
			}
			if got := s.at(deployment, "spec", "replicas"); got != c.want {
				t.Errorf("the Deployment begins with %v proxies, want %v", got, c.want)
			}
			s.set(deployment, func(o tree) {
				o["status"] = tree{"replicas": c.want, "readyReplicas": c.want - 1, "availableReplicas": c.want - 1}
			})
			if err := r.settle(t, s, scaled); err != nil {
				t.Fatal(err)
			}
			if !slices.Contains(s.names(), daemonSet) {
				t.Error("the DaemonSet is gone before the proxies of the Deployment are ready")
			}
			if got := s.at(deployment, "spec", "replicas"); got != c.want {
				t.Errorf("then there are %v proxies, want %v", got, c.want)
			}
		})
	}
}

// TestDaemonSetsUnlisted leads with a role of an earlier version, which knows no DaemonSets: Deployments are made, and of a Gateway that is to have a DaemonSet it is said what is missing.
func TestDaemonSetsUnlisted(t *testing.T) {
	s := newServer(t)
	s.forbidden = map[string]bool{"daemonsets": true}
	r := startReplicaAfter(t, s, 100*time.Millisecond)
	if err := r.settle(t, s, specOf(web, nil)); err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(s.names(), "deployments/shop/web-moongate") {
		t.Errorf("there is %v", s.names())
	}
	s.mu.Lock()
	s.fail = func(_, object string) *metav1.Status {
		if strings.HasPrefix(object, "daemonsets/") {
			return apiserver.Failure(http.StatusForbidden, metav1.StatusReasonForbidden, "no such right")
		}
		return nil
	}
	s.mu.Unlock()
	if err := r.settle(t, s, specOf(web, func(p *translate.ProxySpec) { p.Parameters.DaemonSet = true })); err == nil {
		t.Error("no error")
	}
	const want = "DaemonSet shop/web-moongate is forbidden: no such right; look at"
	testkit.Eventually(t, want, func() bool { return strings.HasPrefix(r.waiting("shop/web"), want) })
	if !slices.Contains(s.names(), "deployments/shop/web-moongate") {
		t.Errorf("there is %v", s.names())
	}
}
