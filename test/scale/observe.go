package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"
)

// seen is what a watch shows of the Gateway: each of its versions, none left out.
type seen struct {
	mu     sync.Mutex
	writes int // versions, after the first
	wrong  []string
	last   int // routes that were attached
	most   int
	// reached is when a count was first seen, since it was asked for.
	target  int
	reached chan time.Time
}

// gatewayChanged takes the next version.
func (s *seen) gatewayChanged(gw *gwv1.Gateway, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.writes++
	s.last = attached(gw)
	s.most = max(s.most, s.last)
	if !meta.IsStatusConditionTrue(gw.Status.Conditions, string(gwv1.GatewayConditionProgrammed)) {
		s.wrong = append(s.wrong, fmt.Sprintf("the Gateway was not programmed at %d routes", s.last))
	}
	if s.reached != nil && s.last == s.target {
		s.reached <- now
		s.reached = nil
	}
}

// await asks for the moment at which so many routes are attached.
func (s *seen) await(target int) <-chan time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	reached := make(chan time.Time, 1)
	s.target, s.reached = target, reached
	if s.last == target {
		reached <- time.Now()
		s.reached = nil
	}
	return reached
}

// count is how many routes the newest version counts.
func (s *seen) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last
}

// take answers what was seen, and begins to count anew.
func (s *seen) take() (writes, most int, wrong []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	writes, most, wrong = s.writes, s.most, s.wrong
	s.writes, s.most, s.wrong = 0, s.last, nil
	return writes, most, wrong
}

// watchGateway follows the Gateway until ctx ends.
func (w *world) watchGateway(ctx context.Context) (*seen, error) {
	gw, err := w.gateway(ctx)
	if err != nil {
		return nil, err
	}
	s := &seen{last: attached(gw), most: attached(gw)}
	changes, err := w.gateways.GatewayV1().Gateways(home).Watch(ctx, metav1.ListOptions{
		ResourceVersion: gw.ResourceVersion, FieldSelector: "metadata.name=" + home})
	if err != nil {
		return nil, err
	}
	go func() {
		for event := range changes.ResultChan() {
			gw, ok := event.Object.(*gwv1.Gateway)
			if !ok {
				s.mu.Lock()
				s.wrong = append(s.wrong, fmt.Sprintf("the watch of the Gateway ended: %v", event.Object))
				s.mu.Unlock()
				return
			}
			s.gatewayChanged(gw, time.Now())
		}
	}()
	return s, nil
}

// nameOf is a route's.
type nameOf = types.NamespacedName

// tally counts how routes are written.
type tally struct {
	mu sync.Mutex
	// generations are the newest, by route.
	generations map[nameOf]int64
	specs       int // versions with another generation, creations included
	statuses    int // versions with the same generation
	early       int // of them, that say of a Service that it is not there
	err         error
}

// routeChanged takes the next version of a route.
func (t *tally) routeChanged(kind watch.EventType, r *gwv1.HTTPRoute) {
	t.mu.Lock()
	defer t.mu.Unlock()
	name := nameOf{Namespace: r.Namespace, Name: r.Name}
	switch {
	case kind == watch.Deleted:
		delete(t.generations, name)
	case t.generations[name] != r.Generation:
		t.generations[name] = r.Generation
		t.specs++
	default:
		t.statuses++
		if lacksService(r) {
			t.early++
		}
	}
}

// lacksService says that a status tells of a Service that does not exist: that of another watch may
// come later than a route that was made after it.
func lacksService(r *gwv1.HTTPRoute) bool {
	for _, parent := range r.Status.Parents {
		if c := meta.FindStatusCondition(parent.Conditions, string(gwv1.RouteConditionResolvedRefs)); c != nil &&
			c.Reason == string(gwv1.RouteReasonBackendNotFound) {
			return true
		}
	}
	return false
}

func (t *tally) counts() (specs, statuses, early int, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.specs, t.statuses, t.early, t.err
}

// watchRoutes follows the routes of a namespace, or of all where it is "", until ctx ends.
func (w *world) watchRoutes(ctx context.Context, namespace string) (*tally, error) {
	list, err := w.gateways.GatewayV1().HTTPRoutes(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	t := &tally{generations: map[nameOf]int64{}}
	for i := range list.Items {
		r := &list.Items[i]
		t.generations[nameOf{Namespace: r.Namespace, Name: r.Name}] = r.Generation
	}
	changes, err := w.gateways.GatewayV1().HTTPRoutes(namespace).Watch(ctx, metav1.ListOptions{ResourceVersion: list.ResourceVersion})
	if err != nil {
		return nil, err
	}
	go func() {
		for event := range changes.ResultChan() {
			r, ok := event.Object.(*gwv1.HTTPRoute)
			if !ok {
				t.mu.Lock()
				t.err = fmt.Errorf("the watch of the routes ended: %v", event.Object)
				t.mu.Unlock()
				return
			}
			t.routeChanged(event.Type, r)
		}
	}()
	return t, nil
}

// awaitStatuses waits until each version of each route has its status, and checks what they say.
func (w *world) awaitStatuses(ctx context.Context, namespace string) error {
	return eventually(ctx, func() error {
		list, err := w.gateways.GatewayV1().HTTPRoutes(namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for i := range list.Items {
			if err := w.checkParents(&list.Items[i]); err != nil {
				return err
			}
		}
		return nil
	})
}

// checkParents says what is wrong with a route's status: there must be one entry, ours, of this generation.
func (w *world) checkParents(r *gwv1.HTTPRoute) error {
	name := r.Namespace + "/" + r.Name
	if len(r.Status.Parents) != 1 {
		return fmt.Errorf("HTTPRoute %s has %d parent entries, not 1", name, len(r.Status.Parents))
	}
	parent := r.Status.Parents[0]
	want := gwv1.ObjectName(home)
	if refs := r.Spec.ParentRefs; len(refs) > 0 {
		want = refs[0].Name
	}
	if parent.ControllerName != w.controller || parent.ParentRef.Name != want {
		return fmt.Errorf("HTTPRoute %s has an entry of %s for %s", name, parent.ControllerName, parent.ParentRef.Name)
	}
	accepted := meta.FindStatusCondition(parent.Conditions, string(gwv1.RouteConditionAccepted))
	if accepted == nil || accepted.Status != metav1.ConditionTrue || accepted.ObservedGeneration != r.Generation {
		return fmt.Errorf("HTTPRoute %s is not accepted in generation %d: %+v", name, r.Generation, accepted)
	}
	return nil
}
