package cli

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/moongate-dev/moongate/internal/admin"
	"github.com/moongate-dev/moongate/internal/kind"
	"github.com/moongate-dev/moongate/internal/source/files"
	"github.com/moongate-dev/moongate/internal/status"
	"github.com/moongate-dev/moongate/internal/translate"
)

// objectStore is what /status shows: the Gateway API objects as a cluster would hold them, and what
// in the manifests could not be used. It is safe for concurrent use.
type objectStore struct {
	objects  *status.Store
	problems atomic.Pointer[[]files.Problem]

	mu sync.Mutex
	// waiting are the messages of Gateways that are valid and not programmed.
	waiting map[kind.ObjectKey]string
}

func newObjectStore() *objectStore {
	return &objectStore{objects: status.NewStore(controllerName), waiting: map[kind.ObjectKey]string{}}
}

// change takes what the manifests say now.
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
	problems := c.Problems // not all of c is to be kept with them
	s.problems.Store(&problems)
}

// problemsByKind counts what cannot be used of the manifests by the kind of the object: "" where it has none, "(other)" where it is not known.
func (s *objectStore) problemsByKind() map[string]int {
	counts := map[string]int{}
	if problems := s.problems.Load(); problems != nil {
		for _, p := range *problems {
			switch {
			case p.Ignored != p.Warning: // nothing is missing without the object
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

// note keeps whether a Gateway is served.
func (s *objectStore) note(c translate.StatusChange) {
	if c.Object.Kind != string(translate.KindGateway) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.waiting, c.Object)
	now, _ := c.Status.(*gwv1.GatewayStatus)
	if now == nil {
		return
	}
	programmed := meta.FindStatusCondition(now.Conditions, string(gwv1.GatewayConditionProgrammed))
	if programmed == nil || programmed.Status == metav1.ConditionTrue {
		return
	}
	accepted := meta.IsStatusConditionTrue(now.Conditions, string(gwv1.GatewayConditionAccepted))
	text := programmed.Message
	for _, l := range now.Listeners {
		// A port that cannot be opened is this host's fault; the specification has it reported by Accepted.
		if c := meta.FindStatusCondition(l.Conditions, string(gwv1.ListenerConditionAccepted)); c != nil && c.Reason == string(gwv1.ListenerReasonPortUnavailable) {
			accepted = true
			text += fmt.Sprintf("; listener %s: %s", l.Name, c.Message)
		}
	}
	if accepted {
		s.waiting[c.Object] = text
	}
}

// unserved returns which Gateways are accepted and not served, and why; nil for none.
func (s *objectStore) unserved() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.waiting) == 0 {
		return nil
	}
	var lines []string
	for key, why := range s.waiting {
		lines = append(lines, fmt.Sprintf("Gateway %s/%s is accepted and not served: %s", key.Namespace, key.Name, why))
	}
	slices.Sort(lines)
	return errors.New(strings.Join(lines, "\n"))
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
