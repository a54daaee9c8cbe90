package selector

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	"github.com/moongate-dev/moongate/api/v1alpha1"
	"github.com/moongate-dev/moongate/internal/testkit"
	"github.com/moongate-dev/moongate/internal/translate"
)

const controllerName = "moongate.dev/gateway-controller"

// cluster is an API server that has Services.
type cluster struct {
	*fake.Clientset
	t *testing.T

	mu      sync.Mutex
	made    int
	writes  []string
	failing error                 // of what is written
	alter   func(*corev1.Service) // as an admission webhook does, when it is created
}

func newCluster(t *testing.T) *cluster {
	c := &cluster{Clientset: fake.NewClientset(), t: t}
	c.PrependReactor("*", "services", func(a clienttesting.Action) (bool, runtime.Object, error) {
		c.mu.Lock()
		defer c.mu.Unlock()
		switch a.GetVerb() {
		case "create", "patch", "delete":
			if c.failing != nil {
				return true, nil, c.failing
			}
			c.writes = append(c.writes, a.GetVerb())
		}
		if create, is := a.(clienttesting.CreateAction); is { // what the API server does, and the fake does not
			s := create.GetObject().(*corev1.Service)
			c.made++
			if s.Name == "" {
				s.Name = fmt.Sprintf("%s%05d", s.GenerateName, c.made)
			}
			if c.alter != nil {
				c.alter(s)
			}
			s.UID, s.CreationTimestamp = types.UID(fmt.Sprint("service ", c.made)), metav1.Unix(int64(c.made), 0)
		}
		return false, nil, nil
	})
	return c
}

func (c *cluster) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.failing = err
}

func (c *cluster) written() (all []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	all, c.writes = c.writes, nil
	return all
}

// of are the Services with the label of an XBackend.
func (c *cluster) of(x string) []corev1.Service {
	list, err := c.CoreV1().Services("team").List(c.t.Context(), metav1.ListOptions{LabelSelector: v1alpha1.LabelXBackend + "=" + v1alpha1.XBackendLabel(x)})
	if err != nil {
		c.t.Fatal(err)
	}
	return list.Items
}

// one waits until an XBackend has one Service, which selects that.
func (c *cluster) one(x, selects string) (found corev1.Service) {
	c.t.Helper()
	testkit.Eventually(c.t, fmt.Sprintf("one Service of %s selects %s", x, selects), func() bool {
		all := c.of(x)
		if len(all) != 1 {
			return false
		}
		found = all[0]
		return labels.Set(found.Spec.Selector).String()+fmt.Sprint(" ", found.Spec.Ports[0].TargetPort.IntVal) == selects
	})
	return found
}

func (c *cluster) start(k *Keeper) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := k.Run(ctx); err != nil {
			c.t.Error(err)
		}
	})
	stop = sync.OnceFunc(func() { cancel(); wg.Wait() })
	c.t.Cleanup(stop)
	return stop
}

func selects(x, uid string, port int32, pods ...string) translate.SelectorChange {
	s := &translate.EndpointSelector{UID: types.UID(uid), Port: port, Labels: map[string]string{}}
	for _, p := range pods {
		name, value, _ := strings.Cut(p, "=")
		s.Labels[name] = value
	}
	return translate.SelectorChange{Namespace: "team", Name: x, Selector: s}
}

func (c *cluster) keeper() *Keeper {
	return New(Options{Client: c, ControllerName: controllerName})
}

// TestKeeper: each XBackend that selects pods has one Service, which follows it, and is mended.
func TestKeeper(t *testing.T) {
	c := newCluster(t)
	k := c.keeper()
	k.Update([]translate.SelectorChange{selects("web", "1", 8080, "app=web"), {Namespace: "team", Name: "gone"}, selects("host", "2", 80)})
	if w := c.written(); len(w) != 0 {
		t.Fatalf("on standby: %v", w)
	}
	stop := c.start(k)
	svc := c.one("web", "app=web 8080")
	of := metav1.GetControllerOf(&svc)
	if svc.Spec.ClusterIP != "None" || len(svc.Spec.Ports) != 1 || !strings.HasPrefix(svc.Name, "web-") || of == nil || of.Kind != "XBackend" || of.Name != "web" || of.UID != "1" ||
		of.APIVersion != "gateway.networking.x-k8s.io/v1alpha1" || svc.Annotations["moongate.dev/controller"] != controllerName {
		t.Errorf("Service %+v", svc)
	}
	k.Update([]translate.SelectorChange{selects("web", "1", 9090, "app=web", "tier=a")})
	if after := c.one("web", "app=web,tier=a 9090"); after.UID != svc.UID {
		t.Error("a change makes another Service")
	}
	// Somebody else's edits.
	svc = c.one("web", "app=web,tier=a 9090")
	svc.Spec.Selector = map[string]string{"app": "other"}
	if _, err := c.CoreV1().Services("team").Update(t.Context(), &svc, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	c.one("web", "app=web,tier=a 9090")
	if err := c.CoreV1().Services("team").Delete(t.Context(), svc.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	again := c.one("web", "app=web,tier=a 9090")
	if again.UID == svc.UID {
		t.Error("the Service that was removed is still there")
	}
	// One that nobody names keeps what it has; one that selects nothing any more does not.
	c.written()
	k.Update([]translate.SelectorChange{{Namespace: "team", Name: "web"}})
	time.Sleep(20 * time.Millisecond)
	k.Update([]translate.SelectorChange{selects("web", "1", 9090, "app=web", "tier=a")})
	time.Sleep(20 * time.Millisecond)
	if w := c.written(); len(w) != 0 {
		t.Errorf("not named for a moment: %v", w)
	}
	k.Update([]translate.SelectorChange{selects("web", "1", 80)})
	testkit.Eventually(t, "a host has no Service", func() bool { return len(c.of("web")) == 0 })
	k.Update([]translate.SelectorChange{selects("web", "1", 80, "app=web")})
	c.one("web", "app=web 80")
	stop()

	// Another leader takes over what is there.
	c.written()
	next := c.keeper()
	next.Update([]translate.SelectorChange{selects("web", "1", 80, "app=web")})
	stop = c.start(next)
	time.Sleep(50 * time.Millisecond)
	if w := c.written(); len(w) != 0 {
		t.Errorf("the next leader: %v", w)
	}
	// An XBackend that was made anew has another Service; that of the one before goes with it.
	next.Update([]translate.SelectorChange{selects("web", "9", 80, "app=web")})
	testkit.Eventually(t, "another Service", func() bool { return len(c.of("web")) == 2 })
	stop()
}

// TestTwins: of two Services, which two replicas may have made, the older one stays, and those of others are left alone.
func TestTwins(t *testing.T) {
	c := newCluster(t)
	k := c.keeper()
	s := selects("web", "1", 80, "app=web").Selector
	add := func(change func(*corev1.Service)) types.UID {
		t.Helper()
		svc := k.service(key{"team", "web"}, s)
		change(svc)
		made, err := c.CoreV1().Services("team").Create(t.Context(), svc, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return made.UID
	}
	first := add(func(*corev1.Service) {})
	second := add(func(*corev1.Service) {})
	foreign := add(func(svc *corev1.Service) { svc.Annotations["moongate.dev/controller"] = "example.com/other" })
	users := add(func(svc *corev1.Service) { svc.OwnerReferences = nil })
	k.Update([]translate.SelectorChange{selects("web", "1", 80, "app=web")})
	c.start(k)
	testkit.Eventually(t, "the twin goes", func() bool {
		left := map[types.UID]bool{}
		for _, svc := range c.of("web") {
			left[svc.UID] = true
		}
		return len(left) == 3 && left[first] && !left[second] && left[foreign] && left[users]
	})
}

// TestFailures: what the API server refuses is tried again.
func TestFailures(t *testing.T) {
	c := newCluster(t)
	log := &testkit.Log{}
	k := New(Options{Client: c, ControllerName: controllerName, Logger: slog.New(slog.NewTextHandler(log, nil))})
	c.fail(errors.New("forbidden"))
	k.Update([]translate.SelectorChange{selects("web", "1", 80, "app=web")})
	c.start(k)
	testkit.Eventually(t, "the log says so", func() bool {
		return strings.Contains(log.String(), "xbackend=team/web") && strings.Contains(log.String(), "forbidden")
	})
	if errors, failing := k.Failures(); errors == 0 || failing != 1 {
		t.Errorf("%d tries have failed, of which those of %d XBackends last", errors, failing)
	}
	c.fail(nil)
	c.one("web", "app=web 80")
	testkit.Eventually(t, "nothing fails any more", func() bool {
		errors, failing := k.Failures()
		return errors > 0 && failing == 0
	})
	if n := strings.Count(log.String(), "forbidden"); n != 1 {
		t.Errorf("logged %d times", n)
	}
}

// TestFailureEndsWithTheXBackend: an XBackend that is gone, or selects nothing any more, is not counted until its next try, which may be minutes away.
func TestFailureEndsWithTheXBackend(t *testing.T) {
	c := newCluster(t)
	k := New(Options{Client: c, ControllerName: controllerName})
	c.fail(errors.New("forbidden"))
	k.Update([]translate.SelectorChange{selects("web", "1", 80, "app=web")})
	c.start(k)
	testkit.Eventually(t, "it has failed for a while", func() bool { n, _ := k.Failures(); return n >= 4 }) // the next try is 1.6 s away
	k.Update([]translate.SelectorChange{{Namespace: "team", Name: "web"}})
	if _, failing := k.Failures(); failing != 0 {
		t.Errorf("%d fail", failing)
	}
}

// TestQueueForgets: the queue does not remember XBackends that are gone, although each Service is deleted after its XBackend.
func TestQueueForgets(t *testing.T) {
	c := newCluster(t)
	k := c.keeper()
	k.Update([]translate.SelectorChange{selects("web", "1", 8080, "app=web")})
	c.start(k)
	svc := c.one("web", "app=web 8080")
	k.Update([]translate.SelectorChange{{Namespace: "team", Name: "web"}})
	if err := c.CoreV1().Services("team").Delete(t.Context(), svc.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	x := key{"team", "web"}
	testkit.Eventually(t, "nothing is kept of the XBackend", func() bool {
		k.mu.Lock()
		defer k.mu.Unlock()
		return len(k.services)+len(k.owners) == 0 && k.work.NumRequeues(x) == 0
	})
}

// TestForeignLabels: what others have put on a Service stays when it is corrected, and the UID of the XBackend comes to one without.
func TestForeignLabels(t *testing.T) {
	c := newCluster(t)
	k := c.keeper()
	svc := k.service(key{"team", "web"}, selects("web", "1", 80, "app=web").Selector)
	delete(svc.Labels, v1alpha1.LabelXBackendUID)
	svc.Labels["example.com/cost"] = "7"
	if _, err := c.CoreV1().Services("team").Create(t.Context(), svc, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	k.Update([]translate.SelectorChange{selects("web", "1", 80, "app=web")})
	c.start(k)
	testkit.Eventually(t, "both labels", func() bool {
		all := c.of("web")
		return len(all) == 1 && all[0].Labels[v1alpha1.LabelXBackendUID] == "1" && all[0].Labels["example.com/cost"] == "7"
	})
}

// TestAltered: where a webhook of the cluster changes what is written, that is tried again later and later, and logged once.
func TestAltered(t *testing.T) {
	c := newCluster(t)
	c.alter = func(s *corev1.Service) { s.Spec.ClusterIP = "10.96.0.7" }
	log := &testkit.Log{}
	k := New(Options{Client: c, ControllerName: controllerName, Logger: slog.New(slog.NewTextHandler(log, nil))})
	x := key{"team", "web"}
	k.Update([]translate.SelectorChange{selects("web", "1", 80, "app=web")})
	c.start(k)
	testkit.Eventually(t, "it is tried again", func() bool {
		k.mu.Lock()
		defer k.mu.Unlock()
		return k.work != nil && k.work.NumRequeues(x) >= 3
	})
	if n := strings.Count(log.String(), "admission webhook"); n != 1 {
		t.Errorf("logged %d times: %s", n, log)
	}
	k.mu.Lock()
	tries := k.work.NumRequeues(x)
	k.mu.Unlock()
	// Each try removes a Service and creates another: events of these are no reason for another try.
	if w := len(c.written()); w > 2*(tries+1) {
		t.Errorf("%d writes in %d tries", w, tries)
	}
}

// TestNamesInFailures: messages in which the API server names what it has made up are one failure.
func TestNamesInFailures(t *testing.T) {
	log := &testkit.Log{}
	k := New(Options{ControllerName: controllerName, Logger: slog.New(slog.NewTextHandler(log, nil))})
	x := key{"team", "web"}
	refused := func(name string) error {
		return &writeError{"creating a Service", apierrors.NewForbidden(corev1.Resource("services"), name, errors.New("exceeded quota"))}
	}
	k.noteFailure(x, refused("web-abcde"))
	k.noteFailure(x, refused("web-fghij"))
	if n := strings.Count(log.String(), "exceeded quota"); n != 1 {
		t.Errorf("logged %d times", n)
	}
	k.noteFailure(x, &writeError{"creating a Service", errors.New("connection refused")})
	k.noteFailure(x, nil)
	k.noteFailure(x, refused("web-klmno"))
	if n := strings.Count(log.String(), "exceeded quota"); n != 2 {
		t.Errorf("after another failure, and none, logged %d times", n)
	}
}

// TestRelist: Services are known together with all of their namespace, or an XBackend is not looked at: else it would get another.
func TestRelist(t *testing.T) {
	c := newCluster(t)
	k := c.keeper()
	x := key{"team", "web"}
	s := selects("web", "1", 80, "app=web")
	k.Update([]translate.SelectorChange{s})
	k.work = workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[key](minDelay, maxDelay))
	defer k.work.ShutDown()
	svc := k.service(x, s.Selector)
	svc.Name, svc.UID = "web-1", "service 1"
	if err := k.reconcile(t.Context(), x); err != nil || len(c.written()) != 0 {
		t.Errorf("before Services are known: %v", err)
	}
	k.list("team", []any{svc})
	if err := k.reconcile(t.Context(), x); err != nil || len(c.written()) != 0 {
		t.Errorf("what is there is made again: %v", err)
	}
	// Only what has changed is a reason to look.
	k.work.Get()
	k.work.Done(x)
	k.note(svc.DeepCopy(), false)
	if n := k.work.Len() + k.work.NumRequeues(x); n != 0 {
		t.Errorf("an event that says nothing new: %d", n)
	}
	gone := svc.DeepCopy()
	gone.UID = "service 0"
	k.note(gone, true)
	if len(k.services[x]) != 1 {
		t.Error("a Service of the same name that has gone before takes it away")
	}
	k.note(svc, true)
	if len(k.services) != 0 || len(k.owners) != 0 || k.work.NumRequeues(x) != 1 {
		t.Errorf("a Service that is gone: %v, %v, %d", k.services, k.owners, k.work.NumRequeues(x))
	}
}

// TestFirstListIsOfTheNewestVersion: a leader that begins does not ask for a version that may be older than what the leader before has written.
func TestFirstListIsOfTheNewestVersion(t *testing.T) {
	c := newCluster(t)
	var asked []string
	c.PrependReactor("list", "services", func(action clienttesting.Action) (bool, runtime.Object, error) {
		asked = append(asked, action.(clienttesting.ListActionImpl).ListOptions.ResourceVersion)
		return false, nil, nil
	})
	services := cache.ToListerWatcherWithContext(c.keeper().listWatch("team"))
	if _, err := services.ListWithContext(t.Context(), metav1.ListOptions{ResourceVersion: "0"}); err != nil {
		t.Fatal(err)
	}
	if len(asked) != 1 || asked[0] != "" {
		t.Errorf("asked for versions %q", asked)
	}
}

// TestNames: the API server takes the names and labels of all XBackends.
func TestNames(t *testing.T) {
	k := New(Options{ControllerName: controllerName})
	for _, name := range []string{"a", "0.example", "web.v1.example.com", strings.Repeat("a", 49) + ".b.c", strings.Repeat("long.", 50) + "end"} {
		svc := k.service(key{"team", name}, selects(name, "1", 80, "app=web").Selector)
		if why := validation.IsDNS1035Label(svc.GenerateName + "x7k2p"); why != nil {
			t.Errorf("%s: Service %s: %v", name, svc.GenerateName, why)
		}
		if why := validation.IsValidLabelValue(svc.Labels[v1alpha1.LabelXBackend]); why != nil {
			t.Errorf("%s: label %v", name, why)
		}
	}
}

// TestRestoredServer: a watch of an API server whose data were restored from a backup does not go on from a version that it has not reached.
func TestRestoredServer(t *testing.T) {
	c := newCluster(t)
	c.PrependReactor("list", "services", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, &corev1.ServiceList{ListMeta: metav1.ListMeta{ResourceVersion: "20"}}, nil
	})
	services := cache.ToListerWatcherWithContext(c.keeper().listWatch("team"))
	for version, expired := range map[string]bool{"19": false, "20": false, "21": true, "100": true} {
		w, err := services.WatchWithContext(t.Context(), metav1.ListOptions{ResourceVersion: version})
		if apierrors.IsResourceExpired(err) != expired {
			t.Errorf("a watch from version %s of a server at 20: %v", version, err)
		}
		if err == nil {
			w.Stop()
		}
	}
}
