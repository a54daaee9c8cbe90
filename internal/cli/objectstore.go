package cli

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	gwx "github.com/moongate-dev/moongate/api/gatewayx/v1alpha1"
	"github.com/moongate-dev/moongate/internal/admin"
	"github.com/moongate-dev/moongate/internal/kind"
	"github.com/moongate-dev/moongate/internal/source/files"
	"github.com/moongate-dev/moongate/internal/status"
	"github.com/moongate-dev/moongate/internal/translate"
)

// objectStore contains what /status shows: the Gateway API objects as a cluster would contain them, and the problems of manifests.
// It is safe for concurrent use.
type objectStore struct {
	objects  *status.Store
	problems atomic.Pointer[[]files.Problem]

	mu sync.Mutex
	// waiting are Gateways that are valid, but have no own listener that is served, and why.
	waiting map[kind.ObjectKey]string
	// sets are the ListenerSets, of either kind, with at least one listener that is served.
	sets map[kind.ObjectKey]bool
}

// newObjectStore returns an empty store; controller is the controllerName of the GatewayClasses whose statuses are published.
func newObjectStore(controller string) *objectStore {
	return &objectStore{objects: status.NewStore(gwv1.GatewayController(controller)), waiting: map[kind.ObjectKey]string{}, sets: map[kind.ObjectKey]bool{}}
}

// change applies a change of the manifests.
func (s *objectStore) change(c files.Change) {
	for _, id := range c.Deletes {
		s.objects.Delete(id)
		s.note(translate.StatusChange{Object: id})
	}
	for _, o := range c.Upserts {
		if k := kind.Of(o.Object); k != nil && k.Custom {
			s.objects.Upsert(o.Object)
		}
	}
	problems := c.Problems // a copy, so that the rest of c is not retained
	s.problems.Store(&problems)
}

// problemsByKind counts the problems of manifests by the kind of the object: "" if it has none, "(other)" if the kind is unknown.
func (s *objectStore) problemsByKind() map[string]int {
	counts := map[string]int{}
	if problems := s.problems.Load(); problems != nil {
		for _, p := range *problems {
			switch {
			case !p.Missing():
			case p.Object.Kind == "" || kind.Named(p.Object.Kind) != nil:
				counts[p.Object.Kind]++
			default:
				counts["(other)"]++
			}
		}
	}
	return counts
}

// publish merges new statuses into the objects.
func (s *objectStore) publish(changes []translate.StatusChange) {
	now := time.Now()
	for _, c := range changes {
		s.objects.Apply(c.Object, c.Status, now)
		s.note(c)
	}
}

// note records whether a Gateway or ListenerSet has a listener that is served.
func (s *objectStore) note(c translate.StatusChange) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.waiting, c.Object)
	delete(s.sets, c.Object)
	switch now := c.Status.(type) {
	case *gwv1.GatewayStatus:
		if now == nil || slices.ContainsFunc(now.Listeners, func(l gwv1.ListenerStatus) bool { return listenerProgrammed(l.Conditions) }) {
			return
		}
		if why := unservedBecause(now); why != "" {
			s.waiting[c.Object] = why
		}
	case *gwv1.ListenerSetStatus:
		if now != nil && slices.ContainsFunc(now.Listeners, func(l gwv1.ListenerEntryStatus) bool { return listenerProgrammed(l.Conditions) }) {
			s.sets[c.Object] = true
		}
	case *gwx.ListenerSetStatus:
		if now != nil && slices.ContainsFunc(now.Listeners, func(l gwx.ListenerEntryStatus) bool { return listenerProgrammed(l.Conditions) }) {
			s.sets[c.Object] = true
		}
	}
}

func listenerProgrammed(conditions []metav1.Condition) bool {
	return meta.IsStatusConditionTrue(conditions, string(gwv1.ListenerConditionProgrammed))
}

// unservedBecause returns why a valid Gateway has no listener that is served; "" if the Gateway is invalid, or is programmed.
func unservedBecause(s *gwv1.GatewayStatus) string {
	programmed := meta.FindStatusCondition(s.Conditions, string(gwv1.GatewayConditionProgrammed))
	if programmed == nil || programmed.Status == metav1.ConditionTrue {
		return ""
	}
	var reasons []string
	if meta.IsStatusConditionTrue(s.Conditions, string(gwv1.GatewayConditionAccepted)) {
		reasons = append(reasons, programmed.Message)
	}
	for _, l := range s.Listeners {
		// A port that cannot be opened is a fault of this host, but the specification requires that Accepted reports it, also for
		// the Gateway.
		if c := meta.FindStatusCondition(l.Conditions, string(gwv1.ListenerConditionAccepted)); c != nil && c.Reason == string(gwv1.ListenerReasonPortUnavailable) {
			reasons = append(reasons, fmt.Sprintf("listener %s: %s", l.Name, c.Message))
		}
	}
	return strings.Join(reasons, "; ")
}

// unserved returns which Gateways are valid and not served, and why; nil if all are.
func (s *objectStore) unserved() error {
	var lines []string
	for key, why := range s.unservedGateways() {
		lines = append(lines, fmt.Sprintf("Gateway %s/%s is not served: %s", key.Namespace, key.Name, why))
	}
	if len(lines) == 0 {
		return nil
	}
	slices.Sort(lines)
	return errors.New(strings.Join(lines, "\n"))
}

// unservedGateways returns why each Gateway that is valid is not served.
func (s *objectStore) unservedGateways() map[kind.ObjectKey]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.waiting) == 0 {
		return nil
	}
	bySets := map[kind.ObjectKey]bool{}
	for set := range s.sets {
		if o, ok := s.objects.Get(set); ok {
			if p, ok := kind.ParentGatewayOf(o); ok {
				namespace := set.Namespace
				if p.Namespace != nil {
					namespace = string(*p.Namespace)
				}
				bySets[kind.Gateway.Key(namespace, string(p.Name))] = true
			}
		}
	}
	all := maps.Clone(s.waiting)
	maps.DeleteFunc(all, func(key kind.ObjectKey, _ string) bool { return bySets[key] })
	return all
}

// lacks returns why objects are not used. The keys are meaningful to other versions of the program too: kind, namespace and name as
// far as they are known, and the file.
func (s *objectStore) lacks() map[string]string {
	all := map[string]string{}
	for key, why := range s.unservedGateways() {
		all[key.String()] = oneLine(why)
	}
	problems := s.problems.Load()
	if problems == nil {
		return all
	}
	for _, p := range *problems {
		if !p.Missing() {
			continue
		}
		key := fmt.Sprintf("%s in %s", cmp.Or(p.Object.String(), "a document"), p.File)
		if all[key] == "" { // only the first problem of an object
			all[key] = oneLine(p.Message)
		}
	}
	return all
}

func (s *objectStore) status() admin.Status {
	shown := admin.Status{Items: []any{}, Problems: []admin.Problem{}}
	for _, item := range s.objects.Items() {
		shown.Items = append(shown.Items, item)
	}
	problems := s.problems.Load()
	if problems == nil {
		return shown
	}
	for _, p := range *problems {
		shown.Problems = append(shown.Problems, admin.Problem{File: p.File, Line: p.Line, Object: p.Object.String(),
			Field: p.Field, Message: p.Message, Remedy: p.Remedy, Ignored: p.Ignored, Warning: p.Warning, Kept: p.Kept, Effect: p.Effect})
	}
	return shown
}
