package provision

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/client-go/rest"

	"github.com/moongate-dev/moongate/internal/translate"
)

// TestGoesOnWithoutBudgetsAndAutoscalers leads without the right to list them: everything else is made and changed, but for the
// number of replicas, which may be an autoscaler's.
func TestGoesOnWithoutBudgetsAndAutoscalers(t *testing.T) {
	s := newServer(t)
	s.forbidden = map[string]bool{"horizontalpodautoscalers": true, "poddisruptionbudgets": true}
	r := startReplicaAfter(t, s, 100*time.Millisecond)
	if err := r.settle(t, s, planOf(web, func(p *translate.Plan) { p.Parameters.Replicas = pointer[int32](2) })); err != nil {
		t.Fatal(err)
	}
	const deployment = "deployments/shop/web-moongate"
	if !slices.Contains(s.names(), deployment) || !slices.Contains(s.names(), "poddisruptionbudgets/shop/web-moongate") {
		t.Fatalf("there is %v", s.names())
	}
	r.o.Image = "example.org/moongate:v2"
	err := r.applyDeployment(t, s, planOf(web, func(p *translate.Plan) { p.Parameters.Replicas = pointer[int32](3) }))
	if err == nil || !strings.Contains(err.Error(), "the number of replicas stays") {
		t.Errorf("the error is %v", err)
	}
	live := r.store.find("shop", objectName{kindDeployment, "web-moongate"}).(*appsv1.Deployment)
	if *live.Spec.Replicas != 2 || live.Spec.Template.Spec.Containers[0].Image != r.o.Image {
		t.Errorf("%d replicas of %s", *live.Spec.Replicas, live.Spec.Template.Spec.Containers[0].Image)
	}
}

// TestAShortLeadershipIsForgotten: the plans of one that is over before everything was listed must not be the first ones of the next.
func TestAShortLeadershipIsForgotten(t *testing.T) {
	p, err := New(Options{Config: &rest.Config{Host: "http://127.0.0.1:1"}})
	if err != nil {
		t.Fatal(err)
	}
	p.Plan([]translate.PlanChange{planOf(web, nil)})
	ctx, end := context.WithCancel(t.Context())
	end()
	if err := p.Run(ctx); err != nil {
		t.Fatal(err)
	}
	if p.planned || len(p.plans) > 0 {
		t.Errorf("it still has %v", p.plans)
	}
}

// applyDeployment applies the Deployment of a plan alone.
func (r *replica) applyDeployment(t *testing.T, s *server, change translate.PlanChange) error {
	t.Helper()
	g := gatewayName{change.Namespace, change.Name}
	eventually(t, "the store has the Deployment", func() bool { return r.store.find(g.namespace, objectName{kindDeployment, g.name + "-moongate"}) != nil })
	objects, err := Objects(change.Plan, Settings{ControllerName: r.o.ControllerName, Image: r.o.Image, ControllerAddress: r.o.ControllerAddress})
	if err != nil {
		t.Fatal(err)
	}
	for _, object := range objects {
		if nameOf(object).kind == kindDeployment {
			_, err = r.apply(t.Context(), g, change.Plan, object)
		}
	}
	return err
}

// TestAForbiddenNamespaceHoldsUpNobody leads without the Role of one namespace, and not without a verb that is missing in all of them.
func TestAForbiddenNamespaceHoldsUpNobody(t *testing.T) {
	s := newServer(t)
	s.forbidden = map[string]bool{}
	for _, r := range resources {
		s.forbidden["blog/"+r.resource] = true
	}
	startReplicaAfter(t, s, 100*time.Millisecond, "shop", "blog")

	s = newServer(t)
	s.forbidden = map[string]bool{"deployments": true}
	p, err := New(Options{Config: s.config(), Namespaces: []string{"shop", "blog"}})
	if err != nil {
		t.Fatal(err)
	}
	p.skip = time.Millisecond
	run(t, p.Watch)
	eventually(t, "it says what it waits for", func() bool {
		waiting := p.Waiting()
		return len(waiting) == 2 && strings.HasPrefix(waiting[0], "Deployment blog: ") && strings.Contains(waiting[1], "forbidden")
	})
	select {
	case <-p.Listed():
		t.Error("it goes on without Deployments")
	default:
	}
}
