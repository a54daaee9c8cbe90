package writer

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/moongate-dev/moongate/internal/kind"
)

func (s *site) addClass(name string, controller gwv1.GatewayController) kind.ObjectKey {
	k := key("GatewayClass", name)
	s.set(k, &gwv1.GatewayClass{ObjectMeta: meta(k, 1), Spec: gwv1.GatewayClassSpec{ControllerName: controller}})
	s.see(k)
	return k
}

func (s *site) addGateway(name, class string) kind.ObjectKey {
	k := key("Gateway", name)
	s.set(k, &gwv1.Gateway{
		ObjectMeta: meta(k, 1), Spec: gwv1.GatewaySpec{GatewayClassName: gwv1.ObjectName(class)},
		Status: gwv1.GatewayStatus{Conditions: conditions(1, "Accepted"), Addresses: []gwv1.GatewayStatusAddress{{Value: "192.0.2.1"}}},
	})
	s.see(k)
	return k
}

func (s *site) addSet(name, gateway string) kind.ObjectKey {
	k := key("ListenerSet", name)
	s.set(k, &gwv1.ListenerSet{
		ObjectMeta: meta(k, 1), Spec: gwv1.ListenerSetSpec{ParentRef: gwv1.ParentGatewayReference{Name: gwv1.ObjectName(gateway)}},
		Status: gwv1.ListenerSetStatus{Conditions: conditions(1, "Accepted")},
	})
	s.see(k)
	return k
}

// TestEndOfOurRelation: what another controller has taken over is left alone; what
// nobody looks after says so.
func TestEndOfOurRelation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, newAPIServer())
		s.addRoute(web, 1)
		s.addClass("theirs", foreign)
		s.addClass("mine", ours)
		abandoned := []kind.ObjectKey{s.addGateway("abandoned", "deleted"), s.addSet("of-abandoned", "abandoned"), s.addSet("orphan", "nothing")}
		kept := []kind.ObjectKey{s.addGateway("taken", "theirs"), s.addSet("of-taken", "taken"), s.addGateway("mine", "mine"), s.addSet("of-mine", "mine")}
		s.start(t)
		defer s.end()
		s.Publish([]Change{wanted(web, 1, "Accepted")})
		s.settle(t)
		s.Publish([]Change{{Key: web}, {Key: key("GatewayClass", "theirs")}})
		for _, k := range slices.Concat(abandoned, kept) {
			s.Publish([]Change{{Key: k}})
		}
		s.settle(t)
		expect(t, "route", s.reasons(web), "example Theirs")
		for _, k := range abandoned {
			if got := reasonOf(s.object(k)); got != "Pending" {
				t.Errorf("%v says %s", k, got)
			}
		}
		for _, k := range kept {
			if got := reasonOf(s.object(k)); got != "Accepted" {
				t.Errorf("%v says %s", k, got)
			}
		}
		if a := s.object(abandoned[0]).(*gwv1.Gateway).Status.Addresses; len(a) != 0 {
			t.Errorf("a Gateway without a class has the addresses %v", a)
		}
		expect(t, "objects that are remembered", len(s.entries), 0)
	})
}

func reasonOf(object metav1.Object) string {
	switch o := object.(type) {
	case *gwv1.Gateway:
		return o.Status.Conditions[0].Reason
	case *gwv1.ListenerSet:
		return o.Status.Conditions[0].Reason
	}
	return ""
}

// TestSweep: entries from before a restart go where translation wants nothing any more.
func TestSweep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, newAPIServer())
		old, held, clean := key("HTTPRoute", "old"), key("HTTPRoute", "held"), key("HTTPRoute", "clean")
		for _, k := range []kind.ObjectKey{web, old, held, clean} {
			s.addRoute(k, 1)
			if k != clean {
				edit(s.apiServer, k, func(r *gwv1.HTTPRoute) {
					r.Status.Parents = append(r.Status.Parents, parents(ours, "gw", 1, "Before")...)
				})
			}
			s.see(k)
		}
		s.Publish([]Change{wanted(web, 1, "Accepted")})
		s.Sweep([]kind.ObjectKey{web, old, clean}) // that of web was overtaken by Publish
		s.start(t)
		defer s.end()
		s.settle(t)
		expect(t, "wanted", s.reasons(web), "example Theirs, moongate Accepted")
		expect(t, "unwanted", s.reasons(old), "example Theirs")
		expect(t, "held back", s.reasons(held), "example Theirs, moongate Before")
		expect(t, "writes", s.attempts, 2)
		expect(t, "objects that are remembered", len(s.entries), 1)
	})
}

// TestSweepOfSets: of ListenerSets from before a restart those are cleared whose Gateway does not exist. Of others nobody can tell whose
// status they have: it names no controller.
func TestSweepOfSets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, newAPIServer())
		s.addGateway("theirs", "example")
		s.addGateway("classless", "none")
		s.set(classKey("example"), &gwv1.GatewayClass{ObjectMeta: meta(classKey("example"), 1), Spec: gwv1.GatewayClassSpec{ControllerName: foreign}})
		s.see(classKey("example"))
		gone, wanted, unread := s.addSet("gone-set", "gone"), s.addSet("wanted-set", "gone"), s.addSet("unread-set", "unread")
		spared := []kind.ObjectKey{s.addSet("foreign-set", "theirs"), s.addSet("classless-set", "classless"), s.addSet("meshed-set", "mesh")}
		edit(s.apiServer, spared[2], func(set *gwv1.ListenerSet) {
			of := gwv1.Kind("Mesh")
			set.Spec.ParentRef.Kind = &of
		})
		s.see(spared[2])
		elsewhere := s.addSet("elsewhere-set", "gone")
		edit(s.apiServer, elsewhere, func(set *gwv1.ListenerSet) {
			namespace := gwv1.Namespace("elsewhere")
			set.Spec.ParentRef.Namespace = &namespace
		})
		s.see(elsewhere)
		spared = append(spared, elsewhere)
		s.unread.Store("unread-set", true)
		s.Publish([]Change{{Key: wanted, Generation: 1, Desired: &gwv1.ListenerSetStatus{Conditions: conditions(1, "Wanted")}}})
		s.Sweep(append(spared, gone, wanted, unread))
		s.start(t)
		defer s.end()
		time.Sleep(time.Minute)
		synctest.Wait()
		expect(t, "without a Gateway", reasonOf(s.object(gone)), "Pending")
		expect(t, "wanted", reasonOf(s.object(wanted)), "Wanted")
		for _, k := range append(spared, unread) {
			expect(t, k.String(), reasonOf(s.object(k)), "Accepted")
		}
		s.see(gone)
		s.unread.Clear()
		s.settle(t)
		expect(t, "known not to be there", reasonOf(s.object(unread)), "Pending")
		expect(t, "objects that are remembered", len(s.entries), 1)
	})
}

// TestUnknownParentGoesWithItsReference: an entry that was kept, and written with the others, goes when the route does not refer to its
// parent any more, though nothing else is wanted than before.
func TestUnknownParentGoesWithItsReference(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, newAPIServer())
		route := key("HTTPRoute", "route")
		s.addRoute(route, 1)
		edit(s.apiServer, route, func(r *gwv1.HTTPRoute) {
			r.Status.Parents = slices.Concat(r.Status.Parents, parents(ours, "unread", 1, "Unread"), parents(ours, "gone", 1, "Gone"))
			r.Spec.ParentRefs = append(r.Spec.ParentRefs, gwv1.ParentReference{Name: "unread"})
		})
		s.see(route)
		s.unread.Store("unread", true)
		s.start(t)
		defer s.end()
		s.Publish([]Change{{Key: route}})
		time.Sleep(time.Second)
		s.see(route)
		time.Sleep(time.Minute)
		expect(t, "it is unknown", s.reasons(route), "example Theirs, moongate Unread")
		edit(s.apiServer, route, func(r *gwv1.HTTPRoute) { r.Spec.ParentRefs, r.Generation = nil, 2 })
		s.see(route)
		s.settle(t)
		expect(t, "the route does not refer to it", s.reasons(route), "example Theirs")
	})
}

// TestUnknownParents: what was said at a parent of which nobody knows what it is stays, whether something is wanted at others, nothing any
// more, or nothing from the beginning. It goes once the parent is known for a while and still nothing is wanted there.
func TestUnknownParents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, newAPIServer())
		mixed, ended, swept, policy := key("HTTPRoute", "mixed"), key("HTTPRoute", "ended"), key("HTTPRoute", "swept"), key("BackendTLSPolicy", "policy")
		for _, k := range []kind.ObjectKey{mixed, ended, swept} {
			s.addRoute(k, 1)
			edit(s.apiServer, k, func(r *gwv1.HTTPRoute) {
				r.Status.Parents = slices.Concat(r.Status.Parents, parents(ours, "unread", 1, "Unread"), parents(ours, "gone", 1, "Gone"))
				r.Spec.ParentRefs = append(r.Spec.ParentRefs, gwv1.ParentReference{Name: "unread"}, gwv1.ParentReference{Name: "gone"})
			})
			s.see(k)
		}
		s.set(policy, &gwv1.BackendTLSPolicy{ObjectMeta: meta(policy, 1), Status: gwv1.PolicyStatus{Ancestors: []gwv1.PolicyAncestorStatus{
			{AncestorRef: gwv1.ParentReference{Name: "unread"}, ControllerName: ours, Conditions: conditions(1, "Unread")},
			{AncestorRef: gwv1.ParentReference{Name: "gone"}, ControllerName: ours, Conditions: conditions(1, "Gone")}}}})
		s.see(policy)
		gateway, set := s.addGateway("unread", "unread-class"), s.addSet("unread-set", "unread")
		for _, name := range []string{"unread", "unread-set"} {
			s.unread.Store(name, true)
		}
		s.start(t)
		defer s.end()
		s.Publish([]Change{wanted(mixed, 1, "Accepted"), {Key: ended}, {Key: policy}, {Key: gateway}, {Key: set}})
		s.Sweep([]kind.ObjectKey{swept})
		ancestors := func() (all []string) {
			for _, a := range s.object(policy).(*gwv1.BackendTLSPolicy).Status.Ancestors {
				all = append(all, string(a.AncestorRef.Name))
			}
			return all
		}
		look := func(when, ofMixed, ofOthers, ofGateway string, ofPolicy ...string) {
			t.Helper()
			synctest.Wait()
			expect(t, when+", mixed", s.reasons(mixed), ofMixed)
			expect(t, when+", ended", s.reasons(ended), ofOthers)
			expect(t, when+", swept", s.reasons(swept), ofOthers)
			expect(t, when+", Gateway", reasonOf(s.object(gateway)), ofGateway)
			expect(t, when+", ListenerSet", reasonOf(s.object(set)), ofGateway)
			if got := ancestors(); !slices.Equal(got, ofPolicy) {
				t.Errorf("%s, policy: %q", when, got)
			}
			s.see(mixed, ended, swept, policy, gateway, set)
		}
		time.Sleep(time.Second)
		look("unknown", "example Theirs, moongate Accepted, moongate Unread", "example Theirs, moongate Unread", "Accepted", "unread")
		time.Sleep(time.Hour)
		look("for long", "example Theirs, moongate Accepted, moongate Unread", "example Theirs, moongate Unread", "Accepted", "unread")
		s.unread.Clear()
		time.Sleep(knownAfter - unknownPoll - time.Second)
		look("just known", "example Theirs, moongate Accepted, moongate Unread", "example Theirs, moongate Unread", "Accepted", "unread")
		s.settle(t)
		look("known", "example Theirs, moongate Accepted", "example Theirs", "Pending")
		expect(t, "objects that are remembered", len(s.entries), 1)
	})
}

func (s *apiServer) finalized(k kind.ObjectKey) bool {
	return slices.Contains(s.object(k).(*gwv1.GatewayClass).Finalizers, gwv1.GatewayClassFinalizerGatewaysExist)
}

// TestClassFinalizerOfUnread: a class keeps its finalizer while there may be Gateways that name it and could not be read, and loses it once
// all are read and name others.
func TestClassFinalizerOfUnread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, newAPIServer())
		var classes []kind.ObjectKey
		for _, name := range []string{"unused", "used"} {
			k := s.addClass(name, ours)
			edit(s.apiServer, k, func(c *gwv1.GatewayClass) { c.Finalizers = []string{gwv1.GatewayClassFinalizerGatewaysExist} })
			s.see(k)
			classes = append(classes, k)
			s.Publish([]Change{{Key: k, Desired: &gwv1.GatewayClassStatus{Conditions: conditions(1, "Accepted")}, Generation: 1}})
		}
		s.unread.Store("", true)
		s.Sweep(nil)
		s.start(t)
		defer s.end()
		time.Sleep(time.Hour)
		for _, k := range classes {
			expect(t, k.Name+" while Gateways are unread", s.finalized(k), true)
		}
		s.see(classes...)
		s.unread.Clear()
		time.Sleep(knownAfter / 2) // what was read is told a little later
		s.Gateway("default", "was-unread", "used")
		s.settle(t)
		expect(t, "the class of none", s.finalized(classes[0]), false)
		expect(t, "the class of the Gateway that was unread", s.finalized(classes[1]), true)
	})
}

func TestClassFinalizer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, newAPIServer())
		mine, theirs := s.addClass("mine", ours), s.addClass("theirs", foreign)
		edit(s.apiServer, mine, func(c *gwv1.GatewayClass) { c.Finalizers = []string{"example.com/theirs"} })
		s.see(mine)
		s.start(t)
		defer s.end()
		s.Gateway("default", "a", "mine")
		s.Gateway("default", "b", "mine")
		s.Gateway("default", "c", "theirs")
		s.Publish([]Change{{Key: mine, Desired: &gwv1.GatewayClassStatus{Conditions: conditions(1, "Accepted")}, Generation: 1}, {Key: theirs}})
		s.settle(t)
		expect(t, "ours has it", s.finalized(mine), true)
		expect(t, "theirs has it", s.finalized(theirs), false)
		expect(t, "finalizers", len(s.object(mine).(*gwv1.GatewayClass).Finalizers), 2)
		expect(t, "status beside it", s.object(mine).(*gwv1.GatewayClass).Status.Conditions[0].Reason, "Accepted")
		s.Gateway("default", "a", "")
		s.settle(t)
		expect(t, "with one Gateway left", s.finalized(mine), true)
		s.Gateway("default", "b", "theirs")
		s.settle(t)
		expect(t, "before all Gateways are known", s.finalized(mine), true)
		s.Sweep(nil)
		s.settle(t)
		expect(t, "without a Gateway", s.finalized(mine), false)
		expect(t, "finalizers of others", s.object(mine).(*gwv1.GatewayClass).Finalizers[0], "example.com/theirs")

		// A class that is being deleted cannot get one, only lose it.
		edit(s.apiServer, mine, func(c *gwv1.GatewayClass) { c.DeletionTimestamp = &metav1.Time{Time: time.Now()} })
		s.see(mine)
		before := s.attempts
		s.Gateway("default", "b", "mine")
		s.settle(t)
		expect(t, "attempts", s.attempts, before)
	})
}
