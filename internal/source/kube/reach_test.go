package kube

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/moongate-dev/moongate/internal/kind"
	"github.com/moongate-dev/moongate/internal/testkit"
	"github.com/moongate-dev/moongate/internal/testkit/apiserver"
)

// unanswered makes an API server break the connections of lists and watches of a resource while end is not closed.
func unanswered(s *apiServer, resource string, end <-chan struct{}) {
	intercept := s.server.Intercept
	s.server.Intercept = func(r *apiserver.Request) *metav1.Status {
		if resourceOf(r.Ref) == resource && r.Name == "" {
			select {
			case <-end:
			default:
				return apiserver.Broken
			}
		}
		return intercept(r)
	}
}

// TestAKindWithoutAnswersIsNoOutage: the start does not wait for a kind that does not determine what is served although none of its
// requests is answered, and what is reported names the kind.
func TestAKindWithoutAnswersIsNoOutage(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, s *apiServer) {
		const resource = "secrets"
		s.install(nil)
		s.putRoute("a", "a.example", nil)
		end := make(chan struct{})
		unanswered(s, resource, end)
		c := consume(t, s, func(s *Source) { s.skip = 4 * time.Second })
		c.next()
		if c.objects[routeID("a")] == nil {
			t.Error("other kinds are not read")
		}
		unread := c.UnreadKinds()
		if len(unread) != 1 || unread[0].Kind != kind.Secret.Name || !strings.Contains(unread[0].Remedy, "not requests for "+resource) {
			t.Errorf("unread: %+v", unread)
		}
		testkit.Eventually(t, "the log names the kind", func() bool {
			return strings.Contains(c.log.String(), "objects cannot be read; the known ones are kept: the API server answers, but not requests for "+resource)
		})
		if strings.Contains(c.log.String(), "the API server does not answer") || c.Away() != 0 {
			t.Errorf("away for %v; log:\n%s", c.Away(), c.log)
		}
		s.mu.Lock()
		s.refused = map[string]bool{resource: true}
		s.mu.Unlock()
		close(end)
		for remedy := ""; !strings.Contains(remedy, "ServiceAccount"); remedy = c.UnreadKinds()[0].Remedy {
			c.next() // a change of the reason is one of what statuses say
		}
		s.mu.Lock()
		s.refused = nil
		s.mu.Unlock()
		testkit.Eventually(t, "it is over", func() bool { return len(c.UnreadKinds()) == 0 })
	})
}

// TestTheStartWaitsForAnEssentialKindWithoutAnswers: without routes, proxies would lose theirs.
func TestTheStartWaitsForAnEssentialKindWithoutAnswers(t *testing.T) {
	t.Parallel()
	s := newAPIServer(t, true)
	s.install(nil)
	s.putRoute("a", "a.example", nil)
	end := make(chan struct{})
	unanswered(s, gatewayGroup+"/httproutes", end)
	c := consume(t, s, func(s *Source) { s.skip = 100 * time.Millisecond })
	testkit.Eventually(t, "it is said what the start waits for", func() bool {
		waiting := c.Waiting()
		return len(waiting) == 1 && strings.HasPrefix(waiting[0], "HTTPRoute: ") && len(c.UnreadKinds()) == 1 &&
			strings.Contains(c.log.String(), "the start waits for them, because what is served depends on them: the list of httproutes.")
	})
	select {
	case change := <-c.changes:
		t.Errorf("a Change came: %+v", change)
	default:
	}
	close(end)
	c.next()
	if c.objects[routeID("a")] == nil {
		t.Error("the route is missing")
	}
}

// TestListsThatTimeOutAreReported: an API server that gives up a list has answered, and it is not the version that is too new.
func TestListsThatTimeOutAreReported(t *testing.T) {
	s := unstarted(t, newAPIServer(t, true))
	f := &feed{source: s, kind: kindNamed("HTTPRoute")}
	f.scopes = []*scope{{feed: f}}
	p := f.scopes[0]
	tooLarge := apiserver.Failure(http.StatusGatewayTimeout, metav1.StatusReasonTimeout)
	tooLarge.Details = &metav1.StatusDetails{Causes: []metav1.StatusCause{{Type: metav1.CauseTypeResourceVersionTooLarge}}}
	s.note(t.Context(), p, &p.listing, &apierrors.StatusError{ErrStatus: *tooLarge})
	if p.trouble() != "" {
		t.Error("a version that is too new is trouble")
	}
	s.note(t.Context(), p, &p.listing, &apierrors.StatusError{ErrStatus: *apiserver.Failure(http.StatusGatewayTimeout, metav1.StatusReasonTimeout)})
	if p.trouble() == "" {
		t.Error("a list that times out is no trouble")
	}
}

// TestAnOldProbeIsNoOutage: what was answered after a probe began counts more than that the probe was not.
func TestAnOldProbeIsNoOutage(t *testing.T) {
	s := unstarted(t, newAPIServer(t, true))
	begun := time.Now()
	s.noteReach(nil)
	if !s.noteProbe(errors.New("timeout"), begun) || s.reach.text != "" {
		t.Error("the API server counts as unavailable")
	}
	if s.noteProbe(errors.New("timeout"), time.Now().Add(time.Second)) || s.reach.text == "" {
		t.Error("the API server counts as available")
	}
}
