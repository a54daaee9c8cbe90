package cli

import (
	"slices"
	"sync"
	"time"

	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/moongate-dev/moongate/internal/admin"
	"github.com/moongate-dev/moongate/internal/source/files"
	"github.com/moongate-dev/moongate/internal/translate"
)

// shelf holds what a cluster would: the objects with their statuses, and what in the
// manifests could not be used. It is safe for concurrent use.
type shelf struct {
	mu       sync.Mutex
	objects  map[translate.ObjectKey]*shelved
	problems []files.Problem
}

// shelved is a Gateway API object and its status, which is nil where it has none.
type shelved struct {
	object files.Object
	status any
}

func newShelf() *shelf { return &shelf{objects: map[translate.ObjectKey]*shelved{}} }

func keyOf(id files.ObjectID) translate.ObjectKey {
	return translate.ObjectKey{Group: id.Group, Kind: id.Kind, Namespace: id.Namespace, Name: id.Name}
}

// change takes what the manifests say now.
func (s *shelf) change(c files.Change) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range c.Deletes {
		delete(s.objects, keyOf(id))
	}
	for _, o := range c.Upserts {
		if o.ID.Group != gwv1.GroupName {
			continue
		}
		if known := s.objects[keyOf(o.ID)]; known != nil {
			known.object = o // keeps its status, as in a cluster
		} else {
			s.objects[keyOf(o.ID)] = &shelved{object: o}
		}
	}
	s.problems = c.Problems
}

// publish merges new statuses into the objects.
func (s *shelf) publish(changes []translate.StatusChange) {
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range changes {
		if o := s.objects[c.Object]; o != nil {
			o.status = c.Status
			_ = now
		}
	}
}

// status is everything, as /status shows it.
func (s *shelf) status() admin.Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	shown := admin.Status{Items: []any{}, Problems: []admin.Problem{}}
	keys := make([]translate.ObjectKey, 0, len(s.objects))
	for key := range s.objects {
		keys = append(keys, key)
	}
	slices.SortFunc(keys, translate.ObjectKey.Compare)
	for _, key := range keys {
		shown.Items = append(shown.Items, s.objects[key].show())
	}
	for _, p := range s.problems {
		shown.Problems = append(shown.Problems, admin.Problem{File: p.File, Line: p.Line, Object: p.Object.String(),
			Field: p.Field, Message: p.Message, Remedy: p.Remedy, Ignored: p.Ignored})
	}
	return shown
}

// show is a copy of the object with its status.
func (s *shelved) show() any {
	switch o := s.object.Object.(type) {
	case *gwv1.GatewayClass:
		return withStatus(*o, func(o *gwv1.GatewayClass, st *gwv1.GatewayClassStatus) { o.Status = *st }, s.status)
	case *gwv1.Gateway:
		return withStatus(*o, func(o *gwv1.Gateway, st *gwv1.GatewayStatus) { o.Status = *st }, s.status)
	case *gwv1.ListenerSet:
		return withStatus(*o, func(o *gwv1.ListenerSet, st *gwv1.ListenerSetStatus) { o.Status = *st }, s.status)
	case *gwv1.HTTPRoute:
		return withStatus(*o, func(o *gwv1.HTTPRoute, st *gwv1.RouteStatus) { o.Status.RouteStatus = *st }, s.status)
	case *gwv1.GRPCRoute:
		return withStatus(*o, func(o *gwv1.GRPCRoute, st *gwv1.RouteStatus) { o.Status.RouteStatus = *st }, s.status)
	case *gwv1.TLSRoute:
		return withStatus(*o, func(o *gwv1.TLSRoute, st *gwv1.RouteStatus) { o.Status.RouteStatus = *st }, s.status)
	case *gwv1.TCPRoute:
		return withStatus(*o, func(o *gwv1.TCPRoute, st *gwv1.RouteStatus) { o.Status.RouteStatus = *st }, s.status)
	case *gwv1.UDPRoute:
		return withStatus(*o, func(o *gwv1.UDPRoute, st *gwv1.RouteStatus) { o.Status.RouteStatus = *st }, s.status)
	case *gwv1.BackendTLSPolicy:
		return withStatus(*o, func(o *gwv1.BackendTLSPolicy, st *gwv1.PolicyStatus) { o.Status = *st }, s.status)
	}
	return s.object.Object
}

// withStatus is a copy of an object (passed by value) with a status, if there is one.
func withStatus[O, S any](object O, set func(*O, *S), status any) *O {
	if st, ok := status.(*S); ok && st != nil {
		set(&object, st)
	}
	return &object
}
