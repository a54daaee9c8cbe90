package translate_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/moongate-dev/moongate/internal/translate"
)

// manyListeners is one Gateway with n listeners on two ports, every other one over TLS with one certificate for all of them.
func manyListeners(w *world, n int, certificate *corev1.Secret) *gwv1.Gateway {
	gc := &gwv1.GatewayClass{Spec: gwv1.GatewayClassSpec{ControllerName: controllerName}}
	gc.Name = "moongate"
	w.Upsert(gc)
	w.Upsert(certificate)
	gw := &gwv1.Gateway{Spec: gwv1.GatewaySpec{GatewayClassName: "moongate"}}
	gw.Namespace, gw.Name = "default", "gw"
	for i := range n {
		hostname := gwv1.Hostname(fmt.Sprintf("h%d.example.com", i/2))
		l := gwv1.Listener{Name: gwv1.SectionName(fmt.Sprintf("l%d", i)), Port: 80, Protocol: gwv1.HTTPProtocolType, Hostname: &hostname}
		if i%2 == 1 {
			l.Port, l.Protocol = 443, gwv1.HTTPSProtocolType
			l.TLS = &gwv1.ListenerTLSConfig{CertificateRefs: []gwv1.SecretObjectReference{{Name: gwv1.ObjectName(certificate.Name)}}}
		}
		gw.Spec.Listeners = append(gw.Spec.Listeners, l)
	}
	return gw
}

// TestManyListeners: what 10,000 listeners of one Gateway cost grows with their number and no faster.
func TestManyListeners(t *testing.T) {
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	const listeners = 10_000
	w := newWorld()
	gw := manyListeners(w, listeners, pemSecret(t, "cert"))
	before, begin := heap(), time.Now()
	w.Upsert(gw)
	r := w.Commit()
	took := time.Since(begin)
	used := heap() - before
	t.Logf("%d listeners: %d MB, %v, %d runs, %d reads", listeners, used>>20, took, r.Stats.Runs, r.Stats.Reads)
	if n := len(r.Config.Upserts); n != listeners+1 {
		t.Errorf("%d resources, want the listeners and a certificate", n)
	}
	if used > 100<<20 {
		t.Errorf("%d MB of heap, want at most 100", used>>20)
	}
	if most := 15 * listeners; r.Stats.Runs > most || r.Stats.Reads > most {
		t.Errorf("%d runs %v and %d reads %v, want at most %d", r.Stats.Runs, r.Stats.RunsByName, r.Stats.Reads, r.Stats.ReadsByName, most)
	}

	more := *gw
	more.Generation = 2
	added := gw.Spec.Listeners[listeners-1]
	other := gwv1.Hostname("another.example.com")
	added.Name, added.Hostname = "z", &other
	more.Spec.Listeners = append(more.Spec.Listeners[:listeners:listeners], added)
	w.Upsert(&more)
	if r = w.Commit(); len(r.Config.Upserts) != 1 || r.Stats.Runs > 25 {
		t.Errorf("one more: %d runs %v, %d reads %v, %d resources, want at most 25 and 1", r.Stats.Runs, r.Stats.RunsByName, r.Stats.Reads, r.Stats.ReadsByName, len(r.Config.Upserts))
	}
}

// TestListenerAddedBesideManyRoutes: a listener wakes the routes that it could let in, and no others, be it one of the Gateway or of a
// ListenerSet.
func TestListenerAddedBesideManyRoutes(t *testing.T) {
	for _, parent := range []string{"Gateway", "ListenerSet"} {
		t.Run(parent, func(t *testing.T) {
			const most = 20 // of functions
			w := newWorld()
			w.Upsert(ownClass("moongate"))
			from := gwv1.NamespacesFromSame
			gw := crowdGateway(1)
			gw.Spec.AllowedListeners = &gwv1.AllowedListeners{Namespaces: &gwv1.ListenerNamespaces{From: &from}}
			set := &gwv1.ListenerSet{Spec: gwv1.ListenerSetSpec{ParentRef: gwv1.ParentGatewayReference{Name: "gw"}}}
			set.Namespace, set.Name = "default", "set"
			add := func(listeners ...gwv1.Listener) {
				for _, l := range listeners {
					if parent == "Gateway" {
						gw = gw.DeepCopy()
						gw.Generation++
						gw.Spec.Listeners = append(gw.Spec.Listeners, l)
					} else {
						set = set.DeepCopy()
						set.Generation++
						set.Spec.Listeners = append(set.Spec.Listeners, gwv1.ListenerEntry(l))
					}
				}
				w.Upsert(gw)
				w.Upsert(set)
			}
			l := func(name string, port gwv1.PortNumber, hostname gwv1.Hostname) gwv1.Listener {
				return gwv1.Listener{Name: gwv1.SectionName(name), Port: port, Protocol: gwv1.HTTPProtocolType, Hostname: &hostname}
			}
			add(l("example", 81, "*.example.com"), l("com", 82, "*.com"), l("any", 83, ""), l("org", 81, "*.example.org"))
			for i := range many {
				r := crowdRoute(i, "/")
				r.Spec.ParentRefs[0].Kind = (*gwv1.Kind)(&parent)
				r.Spec.ParentRefs[0].Name = map[string]gwv1.ObjectName{"Gateway": "gw", "ListenerSet": "set"}[parent]
				if i%10 == 0 { // for every host, on one port
					port := gwv1.PortNumber(83)
					r.Spec.Hostnames, r.Spec.ParentRefs[0].Port = nil, &port
				}
				w.Upsert(r)
			}
			w.Commit()
			for _, c := range []struct {
				listener gwv1.Listener
				routes   int
			}{
				{l("nobody", 81, "nobody.example.net"), 0},
				{l("nobody-below", 81, "*.example.net"), 0},
				{gwv1.Listener{Name: "tcp", Port: 86, Protocol: gwv1.TCPProtocolType}, 0},
				{l("one", 84, "h7.example.com"), 1},
			} {
				add(c.listener)
				r := w.Commit()
				if r.Stats.Runs > most {
					t.Errorf("%s: %d functions ran, want at most %d: %v", c.listener.Name, r.Stats.Runs, most, r.Stats.RunsByName)
				}
				routes := 0
				for _, u := range r.Config.Upserts {
					if u.GetRoute() != nil {
						routes++
					}
				}
				if routes != c.routes {
					t.Errorf("%s: %d routes changed, want %d", c.listener.Name, routes, c.routes)
				}
			}
			add(l("all", 85, "*.example.com"))
			if r, want := w.Commit(), many-many/10+1; len(r.Config.Upserts) != want {
				t.Errorf("a listener for all routes with hostnames: %d resources changed, want %d", len(r.Config.Upserts), want)
			}
		})
	}
}

// TestOneOfManyListenerSets: an edit of one ListenerSet leaves the listeners of the others alone.
func TestOneOfManyListenerSets(t *testing.T) {
	const sets = 2000
	for what, o := range map[string]translate.Options{"standalone": options, "cluster": clusterOptions} {
		w := newWorldWith(o)
		w.Upsert(ownClass("moongate"))
		from := gwv1.NamespacesFromSame
		gw := crowdGateway(1)
		gw.Spec.AllowedListeners = &gwv1.AllowedListeners{Namespaces: &gwv1.ListenerNamespaces{From: &from}}
		w.Upsert(gw)
		w.SetInfrastructure("default", "gw", reachedAt("10.97.0.5"))
		set := func(i int, hostname gwv1.Hostname) *gwv1.ListenerSet {
			ls := &gwv1.ListenerSet{Spec: gwv1.ListenerSetSpec{ParentRef: gwv1.ParentGatewayReference{Name: "gw"},
				Listeners: []gwv1.ListenerEntry{{Name: "http", Port: 80, Protocol: gwv1.HTTPProtocolType, Hostname: &hostname}}}}
			ls.Namespace, ls.Name = "default", fmt.Sprintf("set%d", i)
			return ls
		}
		for i := range sets {
			w.Upsert(set(i, gwv1.Hostname(fmt.Sprintf("h%d.example.com", i))))
		}
		w.Commit()
		w.Commit()
		for edit, c := range map[string]struct {
			do       func()
			statuses int
		}{
			"another hostname": {func() { w.Upsert(set(7, "new.example.com")) }, 0},
			"a conflict":       {func() { w.Upsert(set(8, "h9.example.com")) }, 2}, // the set that loses, and the Gateway, which counts one less
			"one less":         {func() { w.Delete(translate.KindListenerSet, "default", "set10") }, 2},
			"the Gateway": {func() {
				more := gw.DeepCopy()
				more.Generation = 2
				hostname := gwv1.Hostname("own.example.com")
				more.Spec.Listeners = append(more.Spec.Listeners, gwv1.Listener{Name: "own", Port: 80, Protocol: gwv1.HTTPProtocolType, Hostname: &hostname})
				w.Upsert(more)
			}, 1},
		} {
			c.do()
			r := w.Commit()
			if r.Stats.Runs > 26 || len(r.Config.Upserts)+len(r.Config.Removals) > 2 || len(r.Statuses) != c.statuses {
				t.Errorf("%s, %s: %d runs %v, %d reads %v, %d resources, statuses %v", what, edit, r.Stats.Runs, r.Stats.RunsByName,
					r.Stats.Reads, r.Stats.ReadsByName, len(r.Config.Upserts)+len(r.Config.Removals), r.Statuses)
			}
		}
	}
}

// TestLongHostnames bounds what is read for a route whose hostnames have as many labels as a name may have.
func TestLongHostnames(t *testing.T) {
	const most = 500 // reads, where the hostnames have 2,000 suffixes
	w := newWorld()
	w.Upsert(ownClass("moongate"))
	w.Upsert(crowdGateway(1))
	w.Commit()
	r := crowdRoute(1, "/")
	r.Spec.Hostnames = nil
	for i := range 16 {
		r.Spec.Hostnames = append(r.Spec.Hostnames, gwv1.Hostname(strings.Repeat("a.", 124)+string(rune('a'+i))))
	}
	w.Upsert(r)
	if stats := w.Commit().Stats; stats.Reads > most {
		t.Errorf("%d reads, want at most %d", stats.Reads, most)
	}
}
