//go:build nodrop

package nodrop

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"reflect"
	"slices"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
	typed "sigs.k8s.io/gateway-api/pkg/client/clientset/versioned/typed/apis/v1"
)

// Who writes into the same statuses.
const (
	ours    = "moongate.dev/gateway-controller"
	theirs  = "example.org/other-controller" // Moongate too
	foreign = "example.org/foreign"          // this test
)

const (
	sharedRoutes = 5
	edits        = 120 // of specs, and as many of foreign entries
	// seed makes a run's edits those of every run; how they meet the controllers differs.
	seed = 7
	// quiet is how long nobody may write once everything is as it should be.
	quiet = 3 * time.Second
)

// TestSharing lets two controllers and a foreign writer write into the statuses of the same
// routes while these are edited, and looks at every version that any of the writes made.
func TestSharing(t *testing.T) {
	w := open(t)
	if err := helm("moongate", "moongate-other", "moongate", "crds.enabled=false", "image.repository="+setting("IMAGE"), "image.tag="+current,
		"controllerName="+theirs, "gatewayClass.name=other"); err != nil {
		t.Fatal(err)
	}
	cluster(t, "apply", filepath.Join(setting("ROOT"), "test/nodrop/testdata/sharing.yaml"))
	w.programmed(t, "sharing", "ours")
	w.programmed(t, "sharing", "theirs")

	s := &sharing{routes: w.gateways.GatewayV1().HTTPRoutes("sharing"), wrote: map[string][][]gatewayv1.RouteParentStatus{}}
	for i := range sharedRoutes {
		s.names = append(s.names, fmt.Sprintf("route-%d", i))
	}
	// Of a run before, on a cluster that stayed.
	if err := s.routes.DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
		t.Fatal(err)
	}
	list, err := s.routes.List(t.Context(), metav1.ListOptions{})
	if err != nil || len(list.Items) > 0 {
		t.Fatal(len(list.Items), err)
	}
	observed := make(chan []string, 1)
	stop := s.observe(t, list.ResourceVersion, observed)
	for _, name := range s.names {
		s.create(t, name)
	}
	var writers sync.WaitGroup
	writers.Go(func() { s.edit(t, rand.New(rand.NewPCG(seed, 1))) })
	writers.Go(func() { s.interfere(t, rand.New(rand.NewPCG(seed, 2))) })
	writers.Wait()
	s.settle(t)
	before := s.versions(t)
	time.Sleep(quiet)
	if after := s.versions(t); !reflect.DeepEqual(before, after) {
		t.Errorf("somebody writes on although everything is written: %v, then %v", before, after)
	}
	stop()
	for _, problem := range <-observed {
		t.Error(problem)
	}
}

// sharing is the routes and what the foreign writer wrote into each of them.
type sharing struct {
	routes typed.HTTPRouteInterface
	names  []string

	mu    sync.Mutex
	wrote map[string][][]gatewayv1.RouteParentStatus // by route; the first is nothing
}

// parents are references to the Gateways that a number's bits name.
func parents(bits int) []gatewayv1.ParentReference {
	var all []gatewayv1.ParentReference
	for i, name := range []gatewayv1.ObjectName{"ours", "theirs", "nobodys"} {
		if bits&(1<<i) != 0 {
			all = append(all, gatewayv1.ParentReference{Name: name})
		}
	}
	return all
}

func (s *sharing) create(t *testing.T, name string) {
	t.Helper()
	s.mu.Lock()
	s.wrote[name] = [][]gatewayv1.RouteParentStatus{nil}
	s.mu.Unlock()
	route := &gatewayv1.HTTPRoute{ObjectMeta: metav1.ObjectMeta{Name: name}}
	route.Spec.ParentRefs = parents(3)
	route.Spec.Hostnames = []gatewayv1.Hostname{gatewayv1.Hostname(name + ".example.org")}
	hostname := gatewayv1.PreciseHostname("elsewhere.example.org")
	route.Spec.Rules = []gatewayv1.HTTPRouteRule{{Filters: []gatewayv1.HTTPRouteFilter{{
		Type: gatewayv1.HTTPRouteFilterRequestRedirect, RequestRedirect: &gatewayv1.HTTPRequestRedirectFilter{Hostname: &hostname},
	}}}}
	if _, err := s.routes.Create(t.Context(), route, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// update changes a route as it is, again where somebody else was faster.
func (s *sharing) update(ctx context.Context, name string, status bool, change func(*gatewayv1.HTTPRoute)) error {
	for {
		route, err := s.routes.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		change(route)
		if status {
			_, err = s.routes.UpdateStatus(ctx, route, metav1.UpdateOptions{})
		} else {
			_, err = s.routes.Update(ctx, route, metav1.UpdateOptions{})
		}
		if !apierrors.IsConflict(err) {
			return err
		}
	}
}

// edit changes to which Gateways routes belong, and their hostnames.
func (s *sharing) edit(t *testing.T, random *rand.Rand) {
	for i := range edits {
		name, bits := s.names[random.IntN(len(s.names))], 1+random.IntN(7)
		if err := s.update(t.Context(), name, false, func(route *gatewayv1.HTTPRoute) {
			route.Spec.ParentRefs = parents(bits)
			route.Spec.Hostnames = []gatewayv1.Hostname{gatewayv1.Hostname(fmt.Sprintf("edit-%d.example.org", i))}
		}); err != nil {
			t.Error(err)
		}
	}
}

// interfere writes and removes foreign entries, some of them for the same Gateways.
func (s *sharing) interfere(t *testing.T, random *rand.Rand) {
	for i := range edits {
		name, bits := s.names[random.IntN(len(s.names))], random.IntN(8)
		var entries []gatewayv1.RouteParentStatus
		for _, parent := range parents(bits) {
			entries = append(entries, gatewayv1.RouteParentStatus{ParentRef: parent, ControllerName: foreign, Conditions: []metav1.Condition{{
				Type: "Accepted", Status: metav1.ConditionTrue, Reason: "Foreign", Message: fmt.Sprintf("edit %d", i),
				LastTransitionTime: metav1.Unix(int64(i+1), 0).Rfc3339Copy(),
			}}})
		}
		s.mu.Lock()
		s.wrote[name] = append(s.wrote[name], entries)
		s.mu.Unlock()
		if err := s.update(t.Context(), name, true, func(route *gatewayv1.HTTPRoute) {
			route.Status.Parents = append(by(route, ours, theirs), entries...)
		}); err != nil {
			t.Error(err)
		}
	}
}

// by are the entries that some controllers wrote.
func by(route *gatewayv1.HTTPRoute, controllers ...gatewayv1.GatewayController) []gatewayv1.RouteParentStatus {
	all := []gatewayv1.RouteParentStatus{}
	for _, entry := range route.Status.Parents {
		if slices.Contains(controllers, entry.ControllerName) {
			all = append(all, entry)
		}
	}
	return all
}

// same compares what entries say.
func same(a, b []gatewayv1.RouteParentStatus) bool { return slices.Equal(text(a), text(b)) }

func text(entries []gatewayv1.RouteParentStatus) []string {
	var all []string
	for _, e := range entries {
		line := fmt.Sprint(e.ParentRef.Name, " by ", e.ControllerName)
		for _, c := range e.Conditions {
			line += fmt.Sprintf(", %s=%s %s %q for %d since %s", c.Type, c.Status, c.Reason, c.Message, c.ObservedGeneration, c.LastTransitionTime.UTC())
		}
		all = append(all, line)
	}
	return all
}

// observe looks at every version of every route, until stop is called: one write changes the
// entries of one controller at most, and the foreign ones are always what was written last, or,
// where the answer to that is under way, before. Problems are sent when it has ended.
func (s *sharing) observe(t *testing.T, from string, problems chan<- []string) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	watcher, err := s.routes.Watch(ctx, metav1.ListOptions{ResourceVersion: from})
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		var found []string
		last, at, seen := map[string]*gatewayv1.HTTPRoute{}, map[string]int{}, 0
		for event := range watcher.ResultChan() {
			route, ok := event.Object.(*gatewayv1.HTTPRoute)
			if ctx.Err() != nil {
				break // what comes now says only that
			}
			if !ok {
				found = append(found, fmt.Sprintf("the watch ended: %+v", event.Object))
				break
			}
			seen++
			changed := 0
			for _, controller := range []gatewayv1.GatewayController{ours, theirs, foreign} {
				if before := last[route.Name]; before != nil && !same(by(before, controller), by(route, controller)) {
					changed++
				}
			}
			if changed > 1 {
				found = append(found, fmt.Sprintf("one write changed entries of %d controllers of %s:\n%q\n%q",
					changed, route.Name, text(last[route.Name].Status.Parents), text(route.Status.Parents)))
			}
			if strange := len(route.Status.Parents) - len(by(route, ours, theirs, foreign)); strange != 0 {
				found = append(found, fmt.Sprintf("%d entries of %s are of nobody", strange, route.Name))
			}
			next, ok := s.follows(route, at[route.Name])
			if ctx.Err() != nil {
				break // what comes now says only that
			}
			if !ok {
				found = append(found, fmt.Sprintf("the foreign entries of %s are not what was written: %q", route.Name, text(by(route, foreign))))
			}
			last[route.Name], at[route.Name] = route, next
		}
		if seen < 2*edits {
			found = append(found, fmt.Sprintf("only %d versions were seen", seen))
		}
		problems <- found
	}()
	return cancel
}

// follows says which of the foreign states a route has, from the place of the last one on.
func (s *sharing) follows(route *gatewayv1.HTTPRoute, from int) (at int, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, state := range s.wrote[route.Name][from:] {
		if same(state, by(route, foreign)) {
			return from + i, true
		}
	}
	return from, false
}

// settle waits until each route has the entries that its spec asks for, and the foreign ones.
func (s *sharing) settle(t *testing.T) {
	t.Helper()
	eventually(t, func() string {
		for _, name := range s.names {
			route, err := s.routes.Get(t.Context(), name, metav1.GetOptions{})
			if err != nil {
				return err.Error()
			}
			if problem := s.settled(route); problem != "" {
				return fmt.Sprintf("%s of %+v: %s: %q", name, route.Spec.ParentRefs, problem, text(route.Status.Parents))
			}
		}
		return ""
	})
}

func (s *sharing) settled(route *gatewayv1.HTTPRoute) string {
	for name, controller := range map[gatewayv1.ObjectName]gatewayv1.GatewayController{"ours": ours, "theirs": theirs} {
		want := slices.ContainsFunc(route.Spec.ParentRefs, func(p gatewayv1.ParentReference) bool { return p.Name == name })
		entries := by(route, controller)
		if !want && len(entries) == 0 {
			continue
		}
		if !want || len(entries) != 1 || entries[0].ParentRef.Name != name {
			return fmt.Sprintf("%d entries by %s", len(entries), controller)
		}
		for _, kind := range []string{"Accepted", "ResolvedRefs"} {
			c := meta.FindStatusCondition(entries[0].Conditions, kind)
			if c == nil || c.Status != metav1.ConditionTrue || c.ObservedGeneration != route.Generation {
				return fmt.Sprintf("%s by %s is %+v", kind, controller, c)
			}
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if states := s.wrote[route.Name]; !same(states[len(states)-1], by(route, foreign)) {
		return "the foreign entries are not those written last"
	}
	return ""
}

func (s *sharing) versions(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	list, err := s.routes.List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, route := range list.Items {
		all[route.Name] = route.ResourceVersion
	}
	return all
}
