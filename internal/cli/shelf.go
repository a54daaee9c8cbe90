package cli

import (
	"sync/atomic"
	"time"

	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/moongate-dev/moongate/internal/admin"
	"github.com/moongate-dev/moongate/internal/source/files"
	"github.com/moongate-dev/moongate/internal/status"
	"github.com/moongate-dev/moongate/internal/translate"
)

// shelf is what /status shows: the Gateway API objects as a cluster would hold them, and what
// in the manifests could not be used. It is safe for concurrent use.
type shelf struct {
	objects  *status.Store
	problems atomic.Pointer[[]files.Problem]
}

func newShelf() *shelf { return &shelf{objects: status.NewStore(controllerName)} }

// change takes what the manifests say now.
func (s *shelf) change(c files.Change) {
	for _, id := range c.Deletes {
		s.objects.Delete(status.Key(id))
	}
	for _, o := range c.Upserts {
		if o.ID.Group == gwv1.GroupName {
			s.objects.Upsert(o.Object)
		}
	}
	s.problems.Store(&c.Problems)
}

// publish merges new statuses into the objects.
func (s *shelf) publish(changes []translate.StatusChange) {
	now := time.Now()
	for _, c := range changes {
		s.objects.Apply(status.Key(c.Object), c.Status, now)
	}
}

func (s *shelf) status() admin.Status {
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
			Field: p.Field, Message: p.Message, Remedy: p.Remedy, Ignored: p.Ignored, Kept: p.Kept})
	}
	return shown
}
