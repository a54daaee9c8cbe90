package kube

import (
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/moongate-dev/moongate/internal/kind"
	"github.com/moongate-dev/moongate/internal/testkit"
)

func encoded(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }

// value is what a Secret holds, "" for one that is not there.
func (c *consumer) value(n string) string {
	if o, ok := c.objects[secretID(n)].(*corev1.Secret); ok {
		return string(o.Data["k"])
	}
	return ""
}

func (c *consumer) fetch(requests ...SecretRequest) []metav1.Object {
	found, _ := c.Fetch(c.t.Context(), requests)
	for _, o := range found {
		c.objects[idOf(c.t, o)] = o
	}
	return found
}

func TestSecretsAreReadWhileTheyAreWanted(t *testing.T) {
	both(t, func(t *testing.T, s *apiServer) {
		for _, n := range []string{"wanted", "other"} {
			s.put("secrets", "Secret", "team", n, fields{
				"type": "kubernetes.io/tls", "data": fields{"k": encoded("first")}, "metadata": fields{"annotations": fields{"a": "b"}},
			})
		}
		c := consume(t, s)
		c.next()
		if _, ok := c.Get(secretID("wanted")); ok {
			t.Error("a Secret is there though nobody wanted it")
		}
		found := c.fetch(SecretRequest{"team", "wanted", true}, SecretRequest{"team", "absent", true})
		if len(found) != 1 || c.value("wanted") != "first" || found[0].GetResourceVersion() != "" || found[0].GetAnnotations() != nil ||
			found[0].(*corev1.Secret).Type != "kubernetes.io/tls" {
			t.Fatalf("found %+v", found)
		}
		s.putSecret("other", encoded("second"))
		s.putSecret("wanted", encoded("second"))
		c.until("the new contents come", func() bool { return c.value("wanted") == "second" })
		s.remove("secrets", "team", "wanted")
		c.until("it goes", func() bool { return c.value("wanted") == "" })
		s.putSecret("wanted", encoded("third"))
		s.putSecret("absent", encoded("here"))
		c.until("both come", func() bool { return c.value("wanted") == "third" && c.value("absent") == "here" })

		c.fetch(SecretRequest{"team", "wanted", false})
		c.until("what is no longer wanted goes", func() bool { return c.value("wanted") == "" })
		if _, ok := c.Get(secretID("wanted")); ok {
			t.Error("the contents of an unwanted Secret are kept")
		}
		s.mu.Lock()
		reads := s.gets["team/wanted"]
		s.mu.Unlock()
		s.putSecret("wanted", encoded("fourth"))
		s.putSecret("absent", encoded("changed"))
		c.until("the other one changes", func() bool { return c.value("absent") == "changed" })
		s.mu.Lock()
		if s.gets["team/wanted"] != reads || s.gets["team/other"] != 0 {
			t.Errorf("Secrets were read that nobody wants: %v", s.gets)
		}
		s.mu.Unlock()
		c.fetch(SecretRequest{"team", "wanted", true})
		if c.value("wanted") != "fourth" {
			t.Errorf("wanted again: %q", c.value("wanted"))
		}
	})
}

func TestManySecretsAreReadAFewAtATime(t *testing.T) {
	s := newAPIServer(t, true)
	var requests []SecretRequest
	for i := range 200 {
		n := fmt.Sprintf("s%03d", i)
		s.putSecret(n, encoded(n))
		requests = append(requests, SecretRequest{"team", n, true})
	}
	c := consume(t, s)
	c.next()
	slices.Reverse(requests)
	found := c.fetch(requests...)
	if len(found) != 200 || !slices.IsSortedFunc(found, func(a, b metav1.Object) int { return strings.Compare(a.GetName(), b.GetName()) }) {
		t.Errorf("%d found, or not in order", len(found))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mostReads > readers {
		t.Errorf("%d requests at a time", s.mostReads)
	}
}

func TestASecretThatCannotBeReadComesLater(t *testing.T) {
	s := newAPIServer(t, true)
	s.putSecret("one", encoded("v"))
	c := consume(t, s)
	c.next()
	s.mu.Lock()
	s.refused["secrets"] = true
	s.mu.Unlock()
	if found := c.fetch(SecretRequest{"team", "one", true}); len(found) > 0 {
		t.Errorf("found %v", found)
	}
	testkit.Eventually(t, "it is logged", func() bool { return strings.Contains(c.log.String(), "secret=team/one") })
	s.mu.Lock()
	delete(s.refused, "secrets")
	s.mu.Unlock()
	c.until("it comes", func() bool { return c.value("one") == "v" })
}

// Fetch is called while a Change is told that is older than what Fetch returns.
func TestAnOlderChangeDoesNotUndoAFetch(t *testing.T) {
	s := newAPIServer(t, true)
	s.putSecret("one", encoded("v"))
	c := consume(t, s)
	c.next()
	c.fetch(SecretRequest{"team", "one", true})
	c.fetch(SecretRequest{"team", "one", false})
	// Run has taken the Change with the deletion, and nobody receives it yet.
	testkit.Eventually(t, "the deletion is being told", func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.catalog.telling[nameOf(&metav1.ObjectMeta{Namespace: "team", Name: "one"})]
	})
	c.fetch(SecretRequest{"team", "one", true})
	if change := c.next(); !reflect.DeepEqual(change.Deletes, []kind.ObjectKey{secretID("one")}) {
		t.Fatalf("the Change is %+v", change)
	}
	c.until("what was fetched comes again", func() bool { return c.value("one") == "v" })
}

func TestTroubleIsSaidOnceAndItsEndToo(t *testing.T) {
	var tr trouble
	start := time.Now()
	refused := apierrors.NewForbidden(schema.GroupResource{Resource: "secrets"}, "n", errors.New("no"))
	wordedOtherwise := apierrors.NewForbidden(schema.GroupResource{Resource: "secrets"}, "other", errors.New("no"))
	busy := apierrors.NewTooManyRequests("later", 1)
	for i, step := range []struct {
		err       error
		after     time.Duration
		say, over bool
	}{
		{nil, 0, false, false},
		{refused, 0, false, false}, {nil, time.Second, false, false}, // nobody needs to know
		{refused, 10 * time.Second, false, false}, {wordedOtherwise, 13 * time.Second, true, false}, {refused, 14 * time.Second, false, false},
		{refused, 13*time.Second + again, true, false},
		{busy, 14*time.Second + again, false, false}, {busy, 17*time.Second + again, true, false},
		{nil, 2 * again, false, true}, {nil, 2 * again, false, false},
	} {
		if say, over := tr.next(step.err, start.Add(step.after)); say != step.say || over != step.over {
			t.Errorf("step %d: say %v, over %v", i, say, over)
		}
		if (tr.text == "") != (step.err == nil) {
			t.Errorf("step %d: text %q", i, tr.text)
		}
	}
}

// A Secret that could not be read is another thing than one that is not there.
func TestUnreadSecretsAreNotAbsent(t *testing.T) {
	for code, forbidden := range map[int32]bool{http.StatusTooManyRequests: false, http.StatusServiceUnavailable: false, http.StatusForbidden: true} {
		s := newAPIServer(t, true)
		s.putSecret("there", encoded("v"))
		c := consume(t, s)
		c.next()
		if found, unread := c.Fetch(t.Context(), []SecretRequest{{"team", "early", true}}); len(found)+len(unread) != 0 {
			t.Errorf("absent: found %v, unread %v", found, unread)
		}
		s.mu.Lock()
		s.failGet = code
		s.mu.Unlock()
		found, unread := c.Fetch(t.Context(), []SecretRequest{{"team", "there", true}, {"team", "absent", true}})
		if want := []UnreadSecret{{"team", "absent", forbidden}, {"team", "there", forbidden}}; len(found) != 0 || !slices.Equal(unread, want) {
			t.Errorf("%d: found %v, unread %v", code, found, unread)
		}
		if u, ok := c.UnreadSecret("team", "there"); !ok || u != (UnreadSecret{"team", "there", forbidden}) {
			t.Errorf("%d: at present %v, %v", code, u, ok)
		}
		if problems := c.Problems(); len(problems) != 1 || problems["Secret"] != 2 {
			t.Errorf("%d: problems %v", code, problems)
		}
		s.mu.Lock()
		s.failGet = 0
		s.mu.Unlock()
		c.objects[secretID("absent")] = nil // the consumer wants to know of it what is deleted
		c.until("both are read", func() bool {
			_, waiting := c.objects[secretID("absent")]
			return c.value("there") == "v" && !waiting
		})
		for _, n := range []string{"there", "absent"} {
			if u, ok := c.UnreadSecret("team", n); ok {
				t.Errorf("%d: unread after it was read: %v", code, u)
			}
		}
		if problems := c.Problems(); len(problems) != 0 {
			t.Errorf("%d: problems after they were read: %v", code, problems)
		}
	}
}

// Few Secrets that cannot be read are tried again soon, and many do not add up to a flood of requests.
func TestRetriesOfManySecrets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const many = 5000
		r := newReadRetries()
		soon := 0
		for round, longest := range []time.Duration{many * retryInterval, 2 * many * retryInterval} {
			for i := range many {
				wait := r.When(name{Name: fmt.Sprint(i)})
				if wait < minRetry || wait > longest {
					t.Fatalf("retry %d of Secret %d after %v", round, i, wait)
				}
				if wait <= time.Second {
					soon++
				}
			}
		}
		if limit := int(time.Second/retryInterval) + 1; soon > limit || soon < limit/2 {
			t.Errorf("%d retries within a second, at most %d expected", soon, limit)
		}
		time.Sleep(time.Hour)
		r.Forget(name{Name: "0"})
		if wait := r.When(name{Name: "0"}); wait != minRetry {
			t.Errorf("the retry of a single Secret after %v", wait)
		}
	})
}

// A Secret that is deleted is noticed although the controller may only watch Secrets, and one that is created then is not absent.
func TestForbiddenSecretsThatAreDeleted(t *testing.T) {
	both(t, func(t *testing.T, s *apiServer) {
		for _, n := range []string{"deleted", "kept", "unread"} {
			s.putSecret(n, encoded("v"))
		}
		c := consume(t, s)
		c.next()
		c.fetch(SecretRequest{"team", "deleted", true}, SecretRequest{"team", "kept", true})
		s.mu.Lock()
		s.failGet = http.StatusForbidden
		s.mu.Unlock()
		c.fetch(SecretRequest{"team", "unread", true})
		unread := func(n string) bool { _, is := c.UnreadSecret("team", n); return is }
		if !unread("unread") {
			t.Error("the Secret that was never read is not unread")
		}
		c.objects[secretID("unread")] = nil // the consumer wants to know of it what is deleted
		s.putSecret("kept", encoded("w"))
		s.remove("secrets", "team", "deleted")
		s.remove("secrets", "team", "unread")
		c.until("the deleted one goes", func() bool { return c.value("deleted") == "" })
		testkit.Eventually(t, "the one that was never read is known not to exist", func() bool { return !unread("unread") })
		if c.value("kept") != "v" || unread("deleted") {
			t.Errorf("kept: %q, unread %v", c.value("kept"), unread("deleted"))
		}
		c.objects[secretID("deleted")] = nil
		s.putSecret("deleted", encoded("w"))
		c.until("the consumer asks for the one that was created again", func() bool { _, waiting := c.objects[secretID("deleted")]; return !waiting })
		if !unread("deleted") {
			t.Error("the one that was created again is not unread")
		}
		s.mu.Lock()
		s.failGet = 0
		s.mu.Unlock()
		c.until("both come", func() bool { return c.value("deleted") == "w" && c.value("kept") == "w" })
	})
}

// What an unread Secret would have replaced is known although nothing can be read.
func TestASecretThatIsWantedAgainIsKnown(t *testing.T) {
	s := newAPIServer(t, true)
	s.putSecret("old", encoded("v"))
	c := consume(t, s)
	c.next()
	c.fetch(SecretRequest{"team", "old", true})
	s.mu.Lock()
	s.failGet = http.StatusTooManyRequests
	s.mu.Unlock()
	// Within emit no other Change is taken, as with this one that nobody has received yet.
	s.putService("one", 80)
	testkit.Eventually(t, "a Change is being told", func() bool {
		_, ok := c.Get(serviceID("one"))
		c.mu.Lock()
		defer c.mu.Unlock()
		return ok && len(c.catalog.pending) == 0
	})
	if _, unread := c.Fetch(t.Context(), []SecretRequest{{"team", "new", true}, {"team", "old", false}}); len(unread) != 1 {
		t.Errorf("unread %v", unread)
	}
	found, unread := c.Fetch(t.Context(), []SecretRequest{{"team", "old", true}})
	if len(found) != 1 || len(unread) != 0 {
		t.Errorf("found %v, unread %v", found, unread)
	}
	c.next()
	for range 2 { // what is told afterwards takes nothing away
		s.putService("one", int64(81+len(c.told)))
		c.next()
	}
	if c.value("old") != "v" {
		t.Error("the Secret was taken away")
	}
}

// A Secret that is wanted again and could not be read since is not told as deleted, because nobody knows that it is.
func TestAnUnreadSecretIsNotToldAsDeleted(t *testing.T) {
	s := newAPIServer(t, true)
	s.putSecret("one", encoded("v"))
	c := consume(t, s)
	c.next()
	c.fetch(SecretRequest{"team", "one", true})
	c.fetch(SecretRequest{"team", "one", false})
	testkit.Eventually(t, "the deletion is being told", func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.catalog.telling[nameOf(&metav1.ObjectMeta{Namespace: "team", Name: "one"})]
	})
	s.mu.Lock()
	s.failGet = http.StatusTooManyRequests
	s.mu.Unlock()
	if _, unread := c.Fetch(t.Context(), []SecretRequest{{"team", "one", true}}); len(unread) != 1 {
		t.Fatalf("unread %v", unread)
	}
	c.next() // of the time before it was wanted again
	for i := range 2 {
		s.putService("marker", int64(80+i))
		for c.objects[serviceID("marker")] == nil || c.objects[serviceID("marker")].(*corev1.Service).Spec.Ports[0].Port != int32(80+i) {
			if change := c.next(); len(change.Deletes) > 0 {
				t.Errorf("told as deleted: %v", change.Deletes)
			}
		}
	}
	s.mu.Lock()
	s.failGet = 0
	s.mu.Unlock()
	c.until("it comes", func() bool { return c.value("one") == "v" })
}
