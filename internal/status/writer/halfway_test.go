package writer

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/moongate-dev/moongate/internal/kind"
	"github.com/moongate-dev/moongate/internal/status"
)

// TestKilledHalfway ends a writer between merging and writing, and between writing
// and the answer; then another one goes on, or the same one leads again.
func TestKilledHalfway(t *testing.T) {
	for _, written := range []bool{false, true} {
		for _, same := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				server := newAPIServer()
				first := newSite(t, server)
				first.addRoute(web, 1)
				other := key("HTTPRoute", "other")
				first.addRoute(other, 1)
				kill := func() { first.stop() }
				if written {
					server.setStored(func(kind.ObjectKey, map[string]any) { kill() })
				} else {
					server.setFail(func(r *http.Request) (int, metav1.StatusReason) {
						kill()
						return 0, "broken off"
					})
				}
				changes := []Change{wanted(web, 1, "Accepted"), wanted(other, 1, "Accepted")}
				first.Publish(changes)
				first.options.Workers = 1 // the other route is not begun
				first.start(t)
				<-first.done
				expect(t, "writes before the end", server.written(), map[bool]int{false: 0, true: 1}[written])

				server.setStored(nil)
				server.setFail(nil)
				edit(server, web, func(r *gwv1.HTTPRoute) {
					r.Status.Parents = append(r.Status.Parents, parents(foreign, "third", 1, "Later")...)
				})
				next := first // which has seen nothing of it
				if !same {
					next = newSite(t, server)
					next.see(web, other)
				}
				next.Publish(changes)
				next.start(t)
				defer next.end()
				next.settle(t)
				expect(t, "status", server.reasons(web), "example Later, example Theirs, moongate Accepted")
				expect(t, "status of the other", server.reasons(other), "example Theirs, moongate Accepted")
				expect(t, "writes", server.written(), 2)
				expect(t, "errors", next.log.Count("level="), 0)
			})
		}
	}
}

// world is two controllers that take turns in leading, and another one that writes beside them.
type world struct {
	t      *testing.T
	r      *rand.Rand
	server *apiServer
	sites  [2]*site
	leader *site
	keys   []kind.ObjectKey
	// Under the server's lock: how late things are seen, and the foreign entries as
	// they were written, by path.
	lags   *rand.Rand
	theirs map[kind.ObjectKey]string
	want   map[kind.ObjectKey]Change
}

// TestForeignEntriesAreNeverLost: whatever happens in whatever order, what others
// wrote stays, and in the end everything says what is wanted.
func TestForeignEntriesAreNeverLost(t *testing.T) {
	for seed := range uint64(40) {
		synctest.Test(t, func(t *testing.T) {
			w := &world{t: t, r: rand.New(rand.NewPCG(seed, 5)), lags: rand.New(rand.NewPCG(seed, 6)), server: newAPIServer(), theirs: map[kind.ObjectKey]string{}, want: map[kind.ObjectKey]Change{}}
			w.begin()
			for range 80 {
				w.step()
				time.Sleep(time.Duration(w.r.IntN(400)) * time.Millisecond)
			}
			w.finish()
			if t.Failed() {
				t.Fatalf("with seed %d", seed)
			}
		})
	}
}

func foreignText(route *gwv1.HTTPRoute) string {
	var theirs []gwv1.RouteParentStatus
	for _, p := range route.Status.Parents {
		if p.ControllerName != ours {
			theirs = append(theirs, p)
		}
	}
	return string(encode(theirs))
}

func (w *world) begin() {
	for i := range w.sites {
		w.sites[i] = newSite(w.t, w.server)
	}
	w.server.setStored(func(key kind.ObjectKey, object map[string]any) {
		for _, k := range w.keys {
			if k != key {
				continue
			}
			if got := foreignText(decode(k, object).(*gwv1.HTTPRoute)); got != w.theirs[key] {
				w.t.Errorf("the entries of others in %s went from\n%s to\n%s", k.Name, w.theirs[key], got)
			}
			for _, s := range w.sites {
				lag := time.Duration(w.lags.IntN(900)) * time.Millisecond
				go func() {
					time.Sleep(lag)
					s.see(k)
					s.Observed(k)
				}()
			}
		}
	})
	for i := range 4 {
		k := key("HTTPRoute", fmt.Sprint("route-", i))
		w.keys = append(w.keys, k)
		route := &gwv1.HTTPRoute{ObjectMeta: meta(k, 1)}
		w.theirs[k] = foreignText(route)
		w.server.set(k, route)
	}
	w.lead()
}

func (w *world) lead() {
	if w.leader != nil {
		w.leader.end()
	}
	w.leader = w.sites[w.r.IntN(2)]
	w.leader.Publish(slices.Collect(maps.Values(w.want)))
	w.leader.start(w.t)
}

func (w *world) step() {
	k := w.keys[w.r.IntN(len(w.keys))]
	switch w.r.IntN(10) {
	case 0, 1, 2: // the other controller writes
		w.edit(k, func(route *gwv1.HTTPRoute) {
			kept := route.Status.Parents[:0]
			for _, p := range route.Status.Parents {
				// Now and then it throws away what is ours.
				if p.ControllerName == ours && w.r.IntN(4) > 0 || p.ControllerName == foreign && w.r.IntN(2) > 0 {
					kept = append(kept, p)
				}
			}
			reason := fmt.Sprint("Theirs", w.r.IntN(100))
			route.Status.Parents = append(kept, parents(foreign, fmt.Sprint("gw-", w.r.IntN(4)), route.Generation, reason)...)
		})
	case 3: // a user edits the route; translation follows
		w.edit(k, func(route *gwv1.HTTPRoute) { route.Generation++ })
		w.publish(k)
	case 4, 5, 6:
		w.publish(k)
	case 7:
		w.want[k] = Change{Key: k}
		for _, s := range w.sites {
			s.Publish([]Change{w.want[k]})
		}
	case 8:
		w.lead()
	case 9:
		w.server.setFail([]func(*http.Request) (int, metav1.StatusReason){
			nil, nil,
			func(*http.Request) (int, metav1.StatusReason) { return 0, "connection refused" },
			func(*http.Request) (int, metav1.StatusReason) {
				return http.StatusForbidden, metav1.StatusReasonForbidden
			},
		}[w.r.IntN(4)])
	}
}

func (w *world) edit(k kind.ObjectKey, change func(*gwv1.HTTPRoute)) {
	edit(w.server, k, func(route *gwv1.HTTPRoute) {
		change(route)
		w.theirs[k] = foreignText(route)
	})
}

// publish wants another status of a route, of its present generation.
func (w *world) publish(k kind.ObjectKey) {
	generation := w.server.object(k).GetGeneration()
	w.want[k] = wanted(k, generation, fmt.Sprint("Ours", w.r.IntN(100)))
	for _, s := range w.sites {
		s.Publish([]Change{w.want[k]})
	}
}

func (w *world) finish() {
	w.server.setFail(nil)
	for _, k := range w.keys {
		if w.want[k].Desired != nil {
			w.publish(k)
		}
	}
	time.Sleep(2 * time.Second) // everything is seen
	w.leader.settle(w.t)
	time.Sleep(2 * time.Second)
	w.leader.settle(w.t)
	w.leader.end()
	for _, k := range w.keys {
		m := status.Merger{ControllerName: ours, Now: time.Now()}
		object := w.server.object(k)
		if left, changed, _ := m.Merge(object, w.want[k].Desired); changed {
			w.t.Errorf("%s has %s and should have %s", k.Name, encode(status.Of(object)), encode(left))
		}
	}
	synctest.Wait()
}

// TestWantedMeanwhile: what is published while a write is under way is not lost
// with what that write completes.
func TestWantedMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, newAPIServer())
		s.addRoute(web, 1)
		s.start(t)
		defer s.end()
		s.Publish([]Change{wanted(web, 1, "First")})
		s.settle(t)
		s.setFail(func(*http.Request) (int, metav1.StatusReason) {
			time.Sleep(time.Second) // slow, and then it succeeds
			return 0, ""
		})
		s.Publish([]Change{{Key: web}})
		synctest.Wait()
		s.Publish([]Change{wanted(web, 1, "Second")})
		s.settle(t)
		expect(t, "status", s.reasons(web), "example Theirs, moongate Second")
		expect(t, "writes", s.written(), 3)
	})
}

// TestLeadingAgain does not wait for what was refused in the time before.
func TestLeadingAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, newAPIServer())
		s.addRoute(web, 1)
		s.setFail(func(*http.Request) (int, metav1.StatusReason) {
			return http.StatusForbidden, metav1.StatusReasonForbidden
		})
		s.Publish([]Change{wanted(web, 1, "Accepted")})
		s.start(t)
		time.Sleep(5 * time.Minute)
		s.end()
		s.setFail(nil)
		s.Publish([]Change{wanted(web, 1, "Accepted")})
		s.start(t)
		defer s.end()
		synctest.Wait()
		expect(t, "status", s.reasons(web), "example Theirs, moongate Accepted")
	})
}

// TestForgetsAtTheEnd: what was wanted in an earlier time as leader is not written in a later one, in which it is not wanted:
// neither a status nor its end.
func TestForgetsAtTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, newAPIServer())
		other, old := key("HTTPRoute", "other"), key("HTTPRoute", "old")
		for _, k := range []kind.ObjectKey{web, other, old} {
			s.addRoute(k, 1)
		}
		s.setFail(func(*http.Request) (int, metav1.StatusReason) {
			return http.StatusForbidden, metav1.StatusReasonForbidden
		})
		s.Publish([]Change{wanted(web, 1, "Accepted"), {Key: old}})
		s.start(t)
		time.Sleep(time.Minute)
		s.end()
		// Another leader has written of the one, and the other is not its business any more.
		s.setFail(nil)
		edit(s.apiServer, old, func(r *gwv1.HTTPRoute) {
			r.Status.Parents = append(r.Status.Parents, parents(ours, "gw", 1, "Accepted")...)
		})
		s.see(old)
		s.Publish([]Change{wanted(other, 1, "Accepted")})
		s.start(t)
		defer s.end()
		s.settle(t)
		expect(t, "status that is no longer wanted", s.reasons(web), "example Theirs")
		expect(t, "status whose end is no longer wanted", s.reasons(old), "example Theirs, moongate Accepted")
		expect(t, "status that is wanted", s.reasons(other), "example Theirs, moongate Accepted")
	})
}
