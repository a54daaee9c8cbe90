package writer

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/moongate-dev/moongate/api/v1alpha1"
	"github.com/moongate-dev/moongate/internal/kind"
	"github.com/moongate-dev/moongate/internal/status"
)

func TestWritesOnlyWhatDiffers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, newAPIServer())
		s.addRoute(web, 1)
		s.Publish([]Change{wanted(web, 1, "Old"), wanted(web, 1, "Accepted")})
		s.start(t)
		defer s.end()
		s.settle(t)
		expect(t, "status", s.reasons(web), "example Theirs, moongate Accepted")
		expect(t, "writes", s.written(), 1)
		patch := s.patches()[0]
		if !strings.HasPrefix(patch, `{"metadata":{"resourceVersion":"101"},"status":{"parents":[`) || strings.Contains(patch, "spec") {
			t.Errorf("the patch is %s", patch)
		}
		s.Publish([]Change{wanted(web, 1, "Accepted")}) // before the write was seen
		s.settle(t)
		s.see(web)
		s.Observed(web)
		s.Publish([]Change{wanted(web, 1, "Accepted")})
		s.settle(t)
		expect(t, "writes for what is there already", s.attempts, 1)
		s.Publish([]Change{wanted(web, 1, "Changed")})
		s.Publish([]Change{wanted(web, 1, "Again")})
		s.settle(t)
		expect(t, "status", s.reasons(web), "example Theirs, moongate Again")
	})
}

// TestEveryKind: each status finds its way to its own resource.
func TestEveryKind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, newAPIServer())
		at := func(kind string) (kind.ObjectKey, metav1.ObjectMeta) { return key(kind, "x"), meta(key(kind, "x"), 3) }
		add := func(k kind.ObjectKey, object metav1.Object, desired any) {
			s.set(k, object)
			s.see(k)
			s.Publish([]Change{{Key: k, Desired: desired, Generation: 3}})
		}
		k, m := at("GatewayClass")
		add(k, &gwv1.GatewayClass{ObjectMeta: m}, &gwv1.GatewayClassStatus{Conditions: conditions(3, "Class")})
		k, m = at("Gateway")
		add(k, &gwv1.Gateway{ObjectMeta: m}, &gwv1.GatewayStatus{Conditions: conditions(3, "Gateway")})
		k, m = at("ListenerSet")
		add(k, &gwv1.ListenerSet{ObjectMeta: m}, &gwv1.ListenerSetStatus{Conditions: conditions(3, "Set")})
		k, m = at("BackendTLSPolicy")
		add(k, &gwv1.BackendTLSPolicy{ObjectMeta: m}, &gwv1.PolicyStatus{Ancestors: []gwv1.PolicyAncestorStatus{{AncestorRef: gwv1.ParentReference{Name: "gw"}, Conditions: conditions(3, "Policy")}}})
		k, m = at("GatewayParameters")
		add(k, &v1alpha1.GatewayParameters{ObjectMeta: m}, &v1alpha1.GatewayParametersStatus{Conditions: conditions(3, "Parameters")})
		s.start(t)
		defer s.end()
		s.settle(t)
		for kind, reason := range map[string]string{"GatewayClass": "Class", "Gateway": "Gateway", "ListenerSet": "Set", "BackendTLSPolicy": "Policy", "GatewayParameters": "Parameters"} {
			if text := string(encode(s.object(key(kind, "x")))); !strings.Contains(text, `"reason":"`+reason+`"`) {
				t.Errorf("%s: %s", kind, text)
			}
		}
		expect(t, "log", s.log.Count("\n"), 0)
	})
}

// TestReplacedObject: the status of an object is not written to another one that took its name, whose generation is the same.
func TestReplacedObject(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, newAPIServer())
		add := func(uid types.UID) {
			route := &gwv1.HTTPRoute{ObjectMeta: meta(web, 1)}
			route.UID = uid
			s.set(web, route)
			s.see(web)
		}
		of := func(uid types.UID) Change {
			c := wanted(web, 1, "OfUID"+string(uid))
			c.UID = uid
			return c
		}
		add("1")
		s.start(t)
		defer s.end()
		s.Publish([]Change{of("1")})
		s.settle(t)
		expect(t, "status", s.reasons(web), "moongate OfUID1")
		s.remove(web)
		add("2")
		s.Observed(web) // before the other one was translated
		s.settle(t)
		expect(t, "status of another object", s.reasons(web), "")
		s.Publish([]Change{of("2")})
		s.settle(t)
		expect(t, "status once it was translated", s.reasons(web), "moongate OfUID2")
	})
}

// TestConflict: someone else wrote, and we have not seen it yet.
func TestConflict(t *testing.T) {
	for _, seen := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			s := newSite(t, newAPIServer())
			s.addRoute(web, 1)
			edit(s.apiServer, web, func(r *gwv1.HTTPRoute) {
				r.Status.Parents = append(r.Status.Parents, parents(foreign, "third", 1, "Later")...)
			})
			s.start(t)
			defer s.end()
			s.Publish([]Change{wanted(web, 1, "Accepted")})
			time.Sleep(newerWait / 2)
			expect(t, "status", s.reasons(web), "example Later, example Theirs")
			if seen {
				s.see(web)
				s.Observed(web)
				synctest.Wait()
				expect(t, "status once it was seen", s.reasons(web), "example Later, example Theirs, moongate Accepted")
			}
			s.settle(t)
			expect(t, "status", s.reasons(web), "example Later, example Theirs, moongate Accepted")
			expect(t, "attempts", s.attempts, 2)
			expect(t, "it was read", s.reads > 0, !seen)
		})
	}
}

// TestFight: another controller undoes what we write, each time.
func TestFight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, newAPIServer())
		s.addRoute(web, 1)
		fighting := true
		undo := func() {
			edit(s.apiServer, web, func(r *gwv1.HTTPRoute) {
				r.Status.Parents = slices.DeleteFunc(r.Status.Parents, func(p gwv1.RouteParentStatus) bool { return p.ControllerName == ours })
			})
			s.see(web)
			s.Observed(web)
		}
		s.start(t)
		defer s.end()
		s.Publish([]Change{wanted(web, 1, "Accepted")})
		for range 600 {
			time.Sleep(100 * time.Millisecond)
			if fighting {
				undo()
			}
		}
		if n := s.written(); n < 60 || n > 60+writeBurst {
			t.Errorf("%d writes in a minute", n)
		}
		fighting = false
		s.settle(t)
		expect(t, "status in the end", s.reasons(web), "example Theirs, moongate Accepted")
		expect(t, "warnings", s.log.Count("another controller keeps changing"), 1)
	})
}

// TestOmitted: a status that is full is reported once, and again when it has room.
func TestOmitted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, newAPIServer())
		var mu sync.Mutex
		var omitted []string
		s.options.Omitted = func(o metav1.Object, message string) {
			mu.Lock()
			defer mu.Unlock()
			omitted = append(omitted, o.GetName()+": "+message)
		}
		tls := key("BackendTLSPolicy", "tls")
		policy := &gwv1.BackendTLSPolicy{ObjectMeta: meta(tls, 1)}
		for i := range status.MaxAncestors {
			policy.Status.Ancestors = append(policy.Status.Ancestors, gwv1.PolicyAncestorStatus{
				AncestorRef: gwv1.ParentReference{Name: gwv1.ObjectName(fmt.Sprint("gw", i))}, ControllerName: foreign, Conditions: conditions(1, "Theirs"),
			})
		}
		s.set(tls, policy)
		s.see(tls)
		s.start(t)
		defer s.end()
		s.Publish([]Change{{Key: tls, Generation: 1, Desired: &gwv1.PolicyStatus{Ancestors: []gwv1.PolicyAncestorStatus{
			{AncestorRef: gwv1.ParentReference{Name: "gw"}, ControllerName: ours, Conditions: conditions(1, "Accepted")},
		}}}})
		for range 2 {
			s.settle(t)
			s.Observed(tls)
		}
		s.settle(t)
		expect(t, "writes", s.written(), 0)
		expect(t, "warnings", s.log.Count("a status has no room"), 1)
		edit(s.apiServer, tls, func(p *gwv1.BackendTLSPolicy) { p.Status.Ancestors = p.Status.Ancestors[1:] })
		s.see(tls)
		s.Observed(tls)
		s.settle(t)
		expect(t, "writes with room", s.written(), 1)
		mu.Lock()
		defer mu.Unlock()
		if want := []string{"tls: status.ancestors has 16 entries, which is the maximum, and no room for: Gateway gw (Accepted=True)", "tls: "}; !slices.Equal(omitted, want) {
			t.Errorf("reported %q", omitted)
		}
	})
}

// TestOlderCRD: what the API server does not keep is not written over and over.
func TestOlderCRD(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, newAPIServer())
		gw := key("Gateway", "gw")
		s.set(gw, &gwv1.Gateway{ObjectMeta: meta(gw, 1)})
		s.see(gw)
		s.setStored(func(_ kind.ObjectKey, object map[string]any) {
			if status, _ := object["status"].(map[string]any); status != nil {
				delete(status, "attachedListenerSets")
			}
		})
		sets := int32(2)
		s.start(t)
		defer s.end()
		s.Publish([]Change{{Key: gw, Generation: 1, Desired: &gwv1.GatewayStatus{Conditions: conditions(1, "Accepted"), AttachedListenerSets: &sets}}})
		s.settle(t)
		s.see(gw)
		s.Observed(gw)
		s.settle(t)
		expect(t, "attempts", s.attempts, 1)
		s.Publish([]Change{{Key: gw, Generation: 1, Desired: &gwv1.GatewayStatus{Conditions: conditions(1, "Other"), AttachedListenerSets: &sets}}})
		s.settle(t)
		expect(t, "attempts after something new", s.attempts, 2)
	})
}

func TestRefused(t *testing.T) {
	for code, reason := range map[int]metav1.StatusReason{http.StatusForbidden: metav1.StatusReasonForbidden, http.StatusUnprocessableEntity: metav1.StatusReasonInvalid} {
		synctest.Test(t, func(t *testing.T) {
			s := newSite(t, newAPIServer())
			s.addRoute(web, 1)
			other := key("HTTPRoute", "other")
			s.addRoute(other, 1)
			tries := 0
			s.setFail(func(r *http.Request) (int, metav1.StatusReason) {
				if !strings.HasSuffix(r.URL.Path, "/web/status") {
					return 0, ""
				}
				tries++
				return code, reason
			})
			s.start(t)
			defer s.end()
			s.Publish([]Change{wanted(web, 1, "Accepted"), wanted(other, 1, "Accepted")})
			time.Sleep(10 * time.Minute)
			synctest.Wait()
			if tries < 10 || tries > 16 {
				t.Errorf("%s: %d tries in ten minutes", reason, tries)
			}
			expect(t, "the other one", s.reasons(other), "example Theirs, moongate Accepted")
			expect(t, "log", s.log.Count("object=\"HTTPRoute default/web\" reason="+string(reason)), 1)
			expect(t, "the server's own words", s.log.Count("refused for the test"), 1)
			expect(t, "remedies", s.log.Count("remedy="), 1)
			expect(t, "idle", s.Idle(), false)
			if stats := s.Stats(); stats.Failures[Failure{"HTTPRoute", string(reason)}] != uint64(tries) || stats.Away != 0 {
				t.Errorf("%d tries: failures %v, away for %v", tries, stats.Failures, stats.Away)
			}
			s.setFail(nil)
			time.Sleep(backoffMax)
			synctest.Wait()
			expect(t, "status", s.reasons(web), "example Theirs, moongate Accepted")
			expect(t, "idle", s.Idle(), true)
		})
	}
}

// TestUndecodedAnswer: an answer that does not fit the Go type is a matter of its object; the API server is not away.
func TestUndecodedAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, newAPIServer())
		s.addRoute(web, 1)
		status := func(value any) {
			s.apiServer.server.Edit(refOf(web), func(fields map[string]any) { fields["status"] = value })
		}
		status(float64(7)) // not seen yet
		s.start(t)
		defer s.end()
		s.Publish([]Change{wanted(web, 1, "Accepted")})
		time.Sleep(10*time.Minute - time.Second)
		synctest.Wait()
		if s.reads < 9 || s.reads > 11 || s.attempts != 1 {
			t.Errorf("in ten minutes: %d reads, %d attempts", s.reads, s.attempts)
		}
		if stats := s.Stats(); stats.Away != 0 || len(stats.Failures) != 1 || stats.Failures[Failure{"HTTPRoute", reasonOther}] != uint64(s.reads) {
			t.Errorf("away for %v, failures %v", stats.Away, stats.Failures)
		}
		expect(t, "log", s.log.Count("level="), 1)
		expect(t, "errors that name the object", s.log.Count(`level=ERROR msg="a status cannot be written" object="HTTPRoute default/web" reason=Other`), 1)
		expect(t, "remedies", s.log.Count(`remedy="check that the CRDs`), 1)

		status(map[string]any{"parents": parents(foreign, "other", 1, "Theirs")})
		s.see(web)
		s.Observed(web)
		s.settle(t)
		expect(t, "status once it is mended", s.reasons(web), "example Theirs, moongate Accepted")
		expect(t, "log", s.log.Count("level="), 1)
	})
}

// TestRefusedOnce: something new to write does not wait for what was refused.
func TestRefusedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, newAPIServer())
		s.addRoute(web, 1)
		s.setFail(func(*http.Request) (int, metav1.StatusReason) { return 422, metav1.StatusReasonInvalid })
		s.start(t)
		defer s.end()
		s.Publish([]Change{wanted(web, 1, "Bad")})
		time.Sleep(5 * time.Minute)
		s.setFail(nil)
		s.Publish([]Change{wanted(web, 1, "Good")})
		synctest.Wait()
		expect(t, "status", s.reasons(web), "example Theirs, moongate Good")
	})
}

// TestAway: an outage of the API server is told once, and ends without much delay.
func TestAway(t *testing.T) {
	for _, code := range []int{0, http.StatusServiceUnavailable, http.StatusTooManyRequests} {
		synctest.Test(t, func(t *testing.T) {
			s := newSite(t, newAPIServer())
			names := []kind.ObjectKey{web, key("HTTPRoute", "a"), key("HTTPRoute", "b")}
			reason := map[int]metav1.StatusReason{0: "connection refused", 503: metav1.StatusReasonServiceUnavailable, 429: metav1.StatusReasonTooManyRequests}[code]
			s.setFail(func(*http.Request) (int, metav1.StatusReason) { return code, reason })
			s.start(t)
			defer s.end()
			for _, k := range names {
				s.addRoute(k, 1)
				s.Publish([]Change{wanted(k, 1, "Accepted")})
			}
			time.Sleep(10 * time.Minute)
			synctest.Wait()
			stats, why := s.Stats(), map[int]string{0: "Unreachable", 503: "ServiceUnavailable", 429: "TooManyRequests"}[code]
			expect(t, "away", stats.Away, 10*time.Minute)
			if n := stats.Failures[Failure{"HTTPRoute", why}]; n < 3*100 || len(stats.Failures) != 1 || len(stats.Writes) != 0 {
				t.Errorf("failures %v, writes %v", stats.Failures, stats.Writes)
			}
			s.setFail(nil)
			time.Sleep(backoffAway)
			synctest.Wait()
			expect(t, "away after the end", s.Stats().Away, 0)
			expect(t, "writes", s.Stats().Writes["HTTPRoute"], 3)
			for _, k := range names {
				expect(t, "status of "+k.Name, s.reasons(k), "example Theirs, moongate Accepted")
			}
			expect(t, "warnings", s.log.Count("level=WARN"), 1)
			expect(t, "errors", s.log.Count("level=ERROR"), 0)
			expect(t, "ends", s.log.Count("answers again"), 1)
		})
	}
}

// TestGeneration: a status goes into an object of its own generation only.
func TestGeneration(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, newAPIServer())
		s.addRoute(web, 2)
		s.start(t)
		defer s.end()
		for _, c := range []Change{wanted(web, 1, "Stale"), wanted(web, 3, "OfAnother")} {
			s.Publish([]Change{c})
			s.settle(t)
			expect(t, "attempts", s.attempts, 0)
		}
		s.Publish([]Change{wanted(web, 2, "Accepted")})
		s.settle(t)
		expect(t, "status", s.reasons(web), "example Theirs, moongate Accepted")
	})
}

// TestUnwritable: nothing is written into a status that cannot be decoded, whether something is wanted or is to be cleared: what others have written there
// is missing in what was seen.
func TestUnwritable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, newAPIServer())
		old := key("HTTPRoute", "old")
		for _, k := range []kind.ObjectKey{web, old} {
			s.addRoute(k, 1)
			edit(s.apiServer, k, func(r *gwv1.HTTPRoute) {
				r.Status.Parents = append(r.Status.Parents, parents(ours, "gw", 1, "Before")...)
			})
			s.see(k)
			seen := *s.object(k).(*gwv1.HTTPRoute)
			seen.Status = gwv1.HTTPRouteStatus{}
			s.cache.seen[k] = &seen
			s.unwritable.Store(k, true)
		}
		s.Publish([]Change{wanted(web, 1, "Accepted")})
		s.Sweep([]kind.ObjectKey{old})
		s.start(t)
		defer s.end()
		time.Sleep(10 * time.Minute)
		s.Publish([]Change{wanted(web, 1, "Changed")})
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		expect(t, "attempts", s.attempts, 0)
		expect(t, "status", s.reasons(web), "example Theirs, moongate Before")

		for _, k := range []kind.ObjectKey{web, old} {
			edit(s.apiServer, k, func(r *gwv1.HTTPRoute) { r.Labels = map[string]string{"status": "mended"} })
			s.see(k)
			s.unwritable.Delete(k)
			s.Observed(k)
		}
		s.settle(t)
		expect(t, "status once it is mended", s.reasons(web), "example Theirs, moongate Changed")
		expect(t, "status that is cleared", s.reasons(old), "example Theirs")
		expect(t, "log", s.log.Count("\n"), 0)
	})
}

// TestGone: an object that vanished is no failure, and its successor gets the status.
func TestGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, newAPIServer())
		s.addRoute(web, 1)
		s.remove(web)
		s.start(t)
		defer s.end()
		s.Publish([]Change{wanted(web, 1, "Accepted")})
		s.settle(t)
		expect(t, "log", s.log.Count("\n"), 0)
		s.addRoute(web, 1)
		s.Observed(web)
		s.settle(t)
		expect(t, "status of the successor", s.reasons(web), "example Theirs, moongate Accepted")
		s.remove(web)
		s.see(web)
		s.Publish([]Change{{Key: web}})
		s.settle(t)
		expect(t, "objects that are remembered", len(s.entries), 0)
	})
}
