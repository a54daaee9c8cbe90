package provision

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/moongate-dev/moongate/api/v1alpha1"
	"github.com/moongate-dev/moongate/internal/testkit"
	"github.com/moongate-dev/moongate/internal/testkit/apiserver"
	"github.com/moongate-dev/moongate/internal/translate"
)

// TestGoesOnWithoutBudgetsAndAutoscalers leads without the right to list them: everything else is made and changed, but for the
// number of replicas, which may be an autoscaler's.
func TestGoesOnWithoutBudgetsAndAutoscalers(t *testing.T) {
	s := newServer(t)
	s.forbidden = map[string]bool{"horizontalpodautoscalers": true, "poddisruptionbudgets": true}
	r := startReplicaAfter(t, s, 100*time.Millisecond)
	if err := r.settle(t, s, specOf(web, func(p *translate.ProxySpec) { p.Parameters.Replicas = pointer[int32](2) })); err != nil {
		t.Fatal(err)
	}
	const deployment = "deployments/shop/web-moongate"
	if !slices.Contains(s.names(), deployment) || !slices.Contains(s.names(), "poddisruptionbudgets/shop/web-moongate") {
		t.Fatalf("there is %v", s.names())
	}
	r.o.Image = "example.org/moongate:v2"
	err := r.applyDeployment(t, s, specOf(web, func(p *translate.ProxySpec) { p.Parameters.Replicas = pointer[int32](3) }))
	if err == nil || !strings.Contains(err.Error(), "the number of replicas stays") {
		t.Errorf("the error is %v", err)
	}
	live := r.store.find("shop", objectName{kindDeployment, "web-moongate"}).(*appsv1.Deployment)
	if *live.Spec.Replicas != 2 || live.Spec.Template.Spec.Containers[0].Image != r.o.Image {
		t.Errorf("%d replicas of %s", *live.Spec.Replicas, live.Spec.Template.Spec.Containers[0].Image)
	}
}

// TestReplicasKeptWhileWaiting: that the number of replicas stays is also reported while the changes of another writer are left for now.
func TestReplicasKeptWhileWaiting(t *testing.T) {
	const deployment = "deployments/shop/web-moongate"
	s := newServer(t)
	s.forbidden = map[string]bool{"horizontalpodautoscalers": true}
	r := startReplicaAfter(t, s, 100*time.Millisecond)
	if err := r.settle(t, s, specOf(web, func(p *translate.ProxySpec) { p.Parameters.Replicas = pointer[int32](2) })); err != nil {
		t.Fatal(err)
	}
	three := specOf(web, func(p *translate.ProxySpec) { p.Parameters.Replicas = pointer[int32](3) })
	for limit := int32(100); limit < 104; limit++ {
		s.set(deployment, func(o tree) { o["spec"].(tree)["revisionHistoryLimit"] = limit })
		testkit.Eventually(t, "the change is seen", func() bool {
			return *r.store.find("shop", objectName{kindDeployment, "web-moongate"}).(*appsv1.Deployment).Spec.RevisionHistoryLimit == limit
		})
		if err := r.applyDeployment(t, s, three); err == nil || !strings.Contains(err.Error(), "the number of replicas stays") {
			t.Errorf("with revisionHistoryLimit %d the error is %v", limit, err)
		}
	}
	if got := s.at(deployment, "spec", "revisionHistoryLimit"); got != float64(103) {
		t.Errorf("revisionHistoryLimit is %v: the last change was not left for now", got)
	}
}

// TestDispensable is which kinds are gone on without: those that may not be listed, or that the API server does not have. One that fails for a while is waited for, since what is there is
// not known.
func TestDispensable(t *testing.T) {
	p := &Provisioner{read: map[string]bool{kindService: true}}
	of := func(code int32, reason metav1.StatusReason) error {
		return &apierrors.StatusError{ErrStatus: metav1.Status{Code: code, Reason: reason}}
	}
	forbidden, missing, failing := of(http.StatusForbidden, metav1.StatusReasonForbidden), of(http.StatusNotFound, metav1.StatusReasonNotFound), of(http.StatusInternalServerError, metav1.StatusReasonInternalError)
	for _, c := range []struct {
		s    scope
		err  error
		want bool
	}{
		{scope{kindDaemonSet, ""}, forbidden, true}, {scope{kindAutoscaler, ""}, missing, true}, {scope{kindDisruptionBudget, "shop"}, forbidden, true},
		{scope{kindDaemonSet, ""}, failing, false}, {scope{kindDisruptionBudget, ""}, of(http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests), false},
		{scope{kindDaemonSet, ""}, errors.New("connection refused"), false},
		{scope{kindService, ""}, forbidden, false}, {scope{kindService, "shop"}, forbidden, true}, {scope{kindService, "shop"}, failing, false},
	} {
		if got := p.dispensable(c.s, c.err); got != c.want {
			t.Errorf("%v, %v: %v", c.s, c.err, got)
		}
	}
}

// TestServedWithoutBudgetsAndAutoscalers has no right at all to budgets and autoscalers, as with a role of one's own: the Gateway is as ready as
// it would be with them, the rest of the spec is carried out, and what is missing is said.
func TestServedWithoutBudgetsAndAutoscalers(t *testing.T) {
	s := newServer(t)
	r := startReplica(t, s)
	spec := func(addresses []gwv1.GatewaySpecAddress, edit func(*translate.ProxySpec)) translate.ProxySpecChange {
		return specOf(web, func(p *translate.ProxySpec) {
			p.Addresses, p.Parameters.Service = addresses, &v1alpha1.Service{Type: corev1.ServiceTypeClusterIP}
			edit(p)
		})
	}
	two := func(p *translate.ProxySpec) { p.Parameters.Replicas = pointer[int32](2) }
	if err := r.settle(t, s, spec(addressesOf("10.0.0.1", "10.0.0.2"), func(*translate.ProxySpec) {})); err != nil {
		t.Fatal(err)
	}
	s.set("pods/shop/web-moongate-x", func(o tree) {
		o["metadata"].(tree)["labels"] = tree{labelManagedBy: managedBy, labelName: proxyName, gwv1.GatewayClassNameLabelKey: "moongate"}
		o["metadata"].(tree)["annotations"] = tree{annotationGateway: "web", annotationController: settings.ControllerName}
		o["status"] = tree{"conditions": []any{tree{"type": "Ready", "status": "True"}}}
	})
	s.written()
	s.mu.Lock()
	s.forbidden = map[string]bool{"horizontalpodautoscalers": true, "poddisruptionbudgets": true}
	s.fail = func(_, object string) *metav1.Status {
		if strings.HasPrefix(object, "horizontalpodautoscalers/") || strings.HasPrefix(object, "poddisruptionbudgets/") {
			return apiserver.Failure(http.StatusForbidden, metav1.StatusReasonForbidden, "no such right")
		}
		return nil
	}
	s.mu.Unlock()
	for _, test := range []struct {
		what    string
		spec    translate.ProxySpecChange
		lagging string
	}{
		{"a budget", spec(addressesOf("10.0.0.1"), two), "PodDisruptionBudget shop/web-moongate is forbidden: no such right"},
		{"an autoscaler", spec(addressesOf("10.0.0.1"), func(p *translate.ProxySpec) { p.Parameters.Autoscaling = &v1alpha1.Autoscaling{MaxReplicas: 1} }),
			"HorizontalPodAutoscaler shop/web-moongate is forbidden: no such right"},
		{"another number of replicas", spec(addressesOf("10.0.0.1"), func(p *translate.ProxySpec) { p.Parameters.Replicas = pointer[int32](1) }), "the number of replicas stays"},
	} {
		r = startReplicaAfter(t, s, 100*time.Millisecond)
		s.set("deployments/shop/web-moongate", func(o tree) { o["spec"].(tree)["replicas"] = 2 })
		if err := r.settle(t, s, test.spec); err == nil {
			t.Errorf("%s: no error", test.what)
		}
		testkit.Eventually(t, test.what+": "+test.lagging, func() bool {
			i := r.last("shop/web").infrastructure
			return i != nil && i.Waiting == "" && i.Ready && strings.Contains(i.Lagging, test.lagging) && i.Unassigned == ""
		})
		if slices.Contains(s.names(), "services/shop/web-moongate-2") {
			t.Errorf("%s: the Service of an address that nobody wants is still there", test.what)
		}
	}
	s.mu.Lock()
	s.forbidden, s.fail = nil, nil
	s.mu.Unlock()
	if err := r.settle(t, s, spec(addressesOf("10.0.0.1"), two)); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, "all is well", func() bool { i := r.last("shop/web").infrastructure; return i.Waiting == "" && i.Lagging == "" })
}

// TestWithoutAutoscalingAPI has a cluster that does not serve autoscaling/v2: nobody else sets a number of replicas there.
func TestWithoutAutoscalingAPI(t *testing.T) {
	s := newServer(t)
	s.missing = "horizontalpodautoscalers"
	r := startReplicaAfter(t, s, 100*time.Millisecond)
	for replicas := range int32(3) {
		if err := r.settle(t, s, specOf(web, func(p *translate.ProxySpec) { p.Parameters.Replicas = pointer(replicas + 1) })); err != nil {
			t.Fatal(err)
		}
		if got := s.at("deployments/shop/web-moongate", "spec", "replicas"); got != float64(replicas+1) {
			t.Errorf("%v replicas, want %d", got, replicas+1)
		}
	}
}

// TestAShortLeadershipIsForgotten: the specs of one that is over before everything was listed must not be the first ones of the next.
func TestAShortLeadershipIsForgotten(t *testing.T) {
	p, err := New(Options{Config: &rest.Config{Host: "http://127.0.0.1:1"}})
	if err != nil {
		t.Fatal(err)
	}
	p.Update([]translate.ProxySpecChange{specOf(web, nil)})
	ctx, end := context.WithCancel(t.Context())
	end()
	if err := p.Run(ctx); err != nil {
		t.Fatal(err)
	}
	if p.specified || len(p.gateways) > 0 {
		t.Errorf("it still has %v", p.gateways)
	}
}

// applyDeployment applies the Deployment of a spec alone.
func (r *replica) applyDeployment(t *testing.T, s *server, change translate.ProxySpecChange) error {
	t.Helper()
	g := gatewayName{change.Namespace, change.Name}
	testkit.Eventually(t, "the store has the Deployment", func() bool { return r.store.find(g.namespace, objectName{kindDeployment, g.name + "-moongate"}) != nil })
	objects, err := Objects(change.Spec, Settings{ControllerName: r.o.ControllerName, Image: r.o.Image, ControllerAddress: r.o.ControllerAddress})
	if err != nil {
		t.Fatal(err)
	}
	for _, object := range objects {
		if nameOf(object).kind == kindDeployment {
			_, err = r.apply(t.Context(), g, change.Spec, object)
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
	testkit.Eventually(t, "it says what it waits for", func() bool {
		waiting := p.Waiting()
		return len(waiting) == 2 && strings.HasPrefix(waiting[0], "Deployment blog: ") && strings.Contains(waiting[1], "forbidden")
	})
	select {
	case <-p.Listed():
		t.Error("it goes on without Deployments")
	default:
	}
}

// TestUnlistedStaysAsItIs restarts where one kind of what runs in a namespace cannot be listed: nothing is written for the Gateways there, and
// nothing is said of them, until it can. Those of other namespaces are none the worse.
func TestUnlistedStaysAsItIs(t *testing.T) {
	for kind, r := range resources {
		if optional(kind) {
			continue
		}
		t.Run(kind, func(t *testing.T) { testUnlisted(t, r.resource) })
	}
}

func testUnlisted(t *testing.T, resource string) {
	s := newServer(t)
	blog := gatewayName{"blog", "web"}
	spec := func(addresses ...string) translate.ProxySpecChange {
		return specOf(blog, func(p *translate.ProxySpec) {
			p.Addresses = addressesOf(addresses...)
			p.Parameters.Service = &v1alpha1.Service{Type: corev1.ServiceTypeClusterIP}
		})
	}
	first := startReplica(t, s, "shop", "blog")
	for _, change := range []translate.ProxySpecChange{specOf(web, nil), spec("10.0.0.1", "10.0.0.2")} {
		if err := first.settle(t, s, change); err != nil {
			t.Fatal(err)
		}
	}
	for name, ip := range map[string]string{"web-moongate": "10.0.0.1", "web-moongate-2": "10.0.0.2"} {
		s.set("services/blog/"+name, func(o tree) { o["spec"].(tree)["clusterIPs"] = []any{ip} })
	}
	s.set("pods/blog/web-moongate-x", func(o tree) {
		o["metadata"].(tree)["labels"] = tree{labelManagedBy: managedBy, labelName: proxyName, gwv1.GatewayClassNameLabelKey: "moongate"}
		o["metadata"].(tree)["annotations"] = tree{annotationGateway: "web", annotationController: settings.ControllerName}
	})
	s.written()
	s.mu.Lock()
	s.forbidden = map[string]bool{"blog/" + resource: true}
	s.mu.Unlock()

	r := startReplicaAfter(t, s, 100*time.Millisecond, "shop", "blog")
	<-r.Listed()
	r.Update([]translate.ProxySpecChange{specOf(web, nil), spec("10.0.0.2", "10.0.0.1")}) // swapped, which moves no address
	for _, g := range []gatewayName{web, blog} {
		if again, err := r.reconcile(t.Context(), g); again != 0 || err != nil {
			t.Errorf("%s: %s, %v", g, again, err)
		}
	}
	testkit.Eventually(t, "the other namespace is reported", func() bool { return r.last("shop/web").infrastructure != nil })
	if got := s.written(); len(got) != 0 || !r.Unlisted("blog") || r.Unlisted("shop") || len(r.Waiting()) != 0 {
		t.Errorf("unlisted: %q was written, it waits for %q", got, r.Waiting())
	}
	r.mu.Lock()
	if slices.Contains(r.order, "blog/web") {
		t.Errorf("reported: %+v", r.reports["blog/web"].infrastructure)
	}
	if known := r.pods["blog/web"]["web-moongate-x"] != ""; known != (resource != "pods") {
		t.Errorf("the pod is known: %v", known)
	}
	r.mu.Unlock()

	s.mu.Lock()
	s.forbidden = nil
	s.mu.Unlock()
	testkit.Eventually(t, "everything is known", func() bool { return !r.Unlisted("blog") })
	for _, reported := range r.reportsOf("blog/web") {
		if i := reported.infrastructure; i == nil || len(i.Addresses) != 2 {
			t.Errorf("reported: %+v", i)
		}
	}
	if err := r.once(t, s, blog); err != nil {
		t.Fatal(err)
	}
	for name, ip := range map[string]string{"web-moongate": "10.0.0.1", "web-moongate-2": "10.0.0.2"} {
		if got := s.at("services/blog/"+name, "spec", "clusterIP"); got != ip {
			t.Errorf("Service %s asks for %v", name, got)
		}
	}
}

// TestWatchRefused lists and may not watch: that is said once, and its end once, however often a list succeeds in between.
func TestWatchRefused(t *testing.T) {
	s := newServer(t)
	s.unwatched = true
	var mu sync.Mutex
	var log bytes.Buffer
	p, err := New(Options{Config: s.config(), CAPEM: func() []byte { return nil }, Report: func(string, string, *translate.Infrastructure, []string) {},
		Logger: slog.New(slog.NewTextHandler(lockedWriter{&mu, &log}, nil))})
	if err != nil {
		t.Fatal(err)
	}
	run(t, p.Watch)
	count := func(words string) int {
		mu.Lock()
		defer mu.Unlock()
		return strings.Count(log.String(), words)
	}
	testkit.Eventually(t, "each kind was tried several times", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return len(s.listed) > 5*len(resources) && count("cannot watch what runs") >= len(resources)
	})
	if began, ended := count("cannot watch what runs"), count("is watched again"); began != len(resources) || ended != 0 {
		t.Errorf("of %d kinds, %d cannot be watched and %d can again", len(resources), began, ended)
	}
	s.mu.Lock()
	s.unwatched = false
	s.mu.Unlock()
	testkit.Eventually(t, "all are watched again", func() bool { return count("is watched again") == len(resources) })
	if began := count("cannot watch what runs"); began != len(resources) {
		t.Errorf("of %d kinds, %d could not be watched", len(resources), began)
	}
}

// lockedWriter may be written from anywhere.
type lockedWriter struct {
	mu *sync.Mutex
	to io.Writer
}

func (w lockedWriter) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.to.Write(p)
}
