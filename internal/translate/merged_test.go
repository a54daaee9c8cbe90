package translate_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/moongate-dev/moongate/api/v1alpha1"
	"github.com/moongate-dev/moongate/internal/kind"
	"github.com/moongate-dev/moongate/internal/translate"
)

// mergedName is that of the proxies of mergedWorld.
const mergedName = "infra/gatewayclass:moongate"

func mergingParameters(merge bool) *v1alpha1.GatewayParameters {
	p := &v1alpha1.GatewayParameters{Spec: v1alpha1.GatewayParametersSpec{ClassOnly: &v1alpha1.ClassOnly{MergeGateways: merge}}}
	p.Namespace, p.Name = "infra", "shared"
	return p
}

// mergedGateway is one of namespace default with a hostname of its own on port 80, the older the lower its number.
func mergedGateway(i int) *gwv1.Gateway {
	hostname := gwv1.Hostname(fmt.Sprintf("h%d.example.com", i))
	gw := &gwv1.Gateway{Spec: gwv1.GatewaySpec{GatewayClassName: "moongate", Listeners: []gwv1.Listener{{Name: "http", Port: 80, Protocol: gwv1.HTTPProtocolType, Hostname: &hostname}}}}
	gw.Namespace, gw.Name, gw.UID, gw.CreationTimestamp = "default", fmt.Sprintf("gw-%d", i), "uid", metav1.NewTime(time.Unix(1e9+int64(i), 0))
	return gw
}

// mergedWorld has n Gateways that are served together.
func mergedWorld(t *testing.T, n int) *world {
	w := newWorldWith(clusterOptions)
	gc := ownClass("moongate")
	gc.UID, gc.Spec.ParametersRef = "class", &gwv1.ParametersReference{Group: v1alpha1.GroupName, Kind: "GatewayParameters", Name: "shared", Namespace: new(gwv1.Namespace("infra"))}
	w.Upsert(gc)
	w.Upsert(mergingParameters(true))
	for i := range n {
		w.Upsert(mergedGateway(i))
	}
	w.SetInfrastructure("infra", "gatewayclass:moongate", reachedAt("10.97.0.5"))
	w.commit(t)
	return w
}

// mergedIn are the listeners that are sent to proxies of several Gateways.
func (w *world) mergedIn() (keys []string) {
	for _, r := range w.config {
		if l := r.GetListener(); l.GetMerged() == mergedName {
			keys = append(keys, l.Key)
		}
	}
	slices.Sort(keys)
	return keys
}

// TestMergedGatewayJoins: a Gateway that joins many, or leaves them, is looked at alone.
func TestMergedGatewayJoins(t *testing.T) {
	cost := func(n int) (join, leave int) {
		w := mergedWorld(t, n)
		w.Upsert(mergedGateway(n))
		r := w.commit(t)
		if len(r.Config.Upserts) != 1 || len(r.ProxySpecs) != 1 || len(w.mergedIn()) != n+1 {
			t.Fatalf("beside %d: %d resources, ProxySpecs %v", n, len(r.Config.Upserts), r.ProxySpecs)
		}
		join = r.Stats.Runs
		w.Delete(translate.KindGateway, "default", fmt.Sprintf("gw-%d", n))
		r = w.commit(t)
		if len(r.Config.Removals) != 1 || len(r.Config.Upserts) != 0 {
			t.Fatalf("beside %d: %d resources are gone, %d changed", n, len(r.Config.Removals), len(r.Config.Upserts))
		}
		return join, r.Stats.Runs
	}
	fewJoin, fewLeave := cost(3)
	if join, leave := cost(300); join > fewJoin+5 || leave > fewLeave+5 {
		t.Errorf("beside 300 Gateways one joins with %d runs and leaves with %d, beside 3 with %d and %d", join, leave, fewJoin, fewLeave)
	}
}

// TestOlderMergedGatewayWins: which Gateway has a hostname is decided by their age, and anew when one goes.
func TestOlderMergedGatewayWins(t *testing.T) {
	w := mergedWorld(t, 2)
	rival := mergedGateway(0)
	rival.Name, rival.CreationTimestamp = "a-rival", metav1.NewTime(time.Unix(2e9, 0))
	w.Upsert(rival)
	w.commit(t)
	if got := w.mergedIn(); !slices.Equal(got, []string{"default/gw-0/http", "default/gw-1/http"}) {
		t.Errorf("served are %q", got)
	}
	if said := w.said("Gateway"); !strings.Contains(said, "HostnameConflict") {
		t.Errorf("said is %s", said)
	}
	w.Delete(translate.KindGateway, "default", "gw-0")
	w.commit(t)
	if got := w.mergedIn(); !slices.Equal(got, []string{"default/a-rival/http", "default/gw-1/http"}) {
		t.Errorf("once the older one is gone, served are %q", got)
	}
	if said := w.said("Gateway"); strings.Contains(said, "HostnameConflict") {
		t.Errorf("said is %s", said)
	}
}

// TestMergedPortsAreBounded: the ports of all Gateways together are bounded, and a Gateway with many takes none of an older one.
func TestMergedPortsAreBounded(t *testing.T) {
	w := mergedWorld(t, 2)
	for i := 2; i < 8; i++ { // with port 80 there are 257 without the last one
		gw := mergedGateway(i)
		gw.Spec.Listeners = nil
		for j := range 64 {
			port := int32(1000*i + j)
			gw.Spec.Listeners = append(gw.Spec.Listeners, gwv1.Listener{Name: gwv1.SectionName(fmt.Sprint(port)), Port: port, Protocol: gwv1.HTTPProtocolType})
		}
		w.Upsert(gw)
	}
	w.commit(t)
	served := func(gateway string) (n int) {
		for _, key := range w.mergedIn() {
			if strings.HasPrefix(key, "default/"+gateway+"/") {
				n++
			}
		}
		return n
	}
	want := func(what string, counts ...int) {
		t.Helper()
		sum := 0
		for i, n := range counts {
			if got := served(fmt.Sprintf("gw-%d", i)); got != n {
				t.Errorf("%s: gw-%d has %d listeners, want %d", what, i, got, n)
			}
			sum += n
		}
		if got := len(w.specs[mergedName].Ports); got != min(sum, 256) {
			t.Errorf("%s: the ProxySpec has %d ports", what, got)
		}
	}
	want("too many", 1, 1, 64, 64, 64, 63, 0, 0)
	for i, reason := range map[int]string{5: "Accepted", 6: "PortUnavailable"} {
		s := w.statuses[kind.Gateway.Key("default", fmt.Sprintf("gw-%d", i))].Status.(*gwv1.GatewayStatus)
		if got := s.Listeners[0].Conditions[0]; got.Reason != reason {
			t.Errorf("gw-%d: %+v", i, got)
		}
	}
	w.Upsert(mergedGateway(8)) // on a port that there is
	w.Delete(translate.KindGateway, "default", "gw-2")
	w.commit(t)
	want("one is gone", 1, 1, 0, 64, 64, 64, 63, 0, 1)
}

// TestMergedFaults: what proxies of its own said of a listener before its Gateway was merged says nothing of the proxies that it has now, nor does it take back what these say.
func TestMergedFaults(t *testing.T) {
	w := mergedWorld(t, 1)
	programmed := func() bool {
		s := w.statuses[kind.Gateway.Key("default", "gw-0")].Status.(*gwv1.GatewayStatus)
		return meta.IsStatusConditionTrue(s.Listeners[0].Conditions, "Programmed")
	}
	key, fault := "default/gw-0/http", &translate.ListenerFault{Message: "port 80 is taken"}
	for _, c := range []struct {
		what string
		do   func()
		want bool
	}{
		{"proxies of its own cannot serve it", func() { w.SetListenerFault(key, "default", "gw-0", fault) }, true},
		{"nor can the shared ones", func() { w.SetListenerFault(key, "infra", "gatewayclass:moongate", fault) }, false},
		{"its own have ended", func() { w.SetListenerFault(key, "default", "gw-0", nil) }, false},
		{"the shared ones can", func() { w.SetListenerFault(key, "infra", "gatewayclass:moongate", nil) }, true},
	} {
		c.do()
		w.commit(t)
		if got := programmed(); got != c.want {
			t.Errorf("%s: programmed is %v", c.what, got)
		}
	}
}

// TestMergedAndBack sets mergeGateways and takes it back. Parameters that are wrong or gone change nothing.
func TestMergedAndBack(t *testing.T) {
	w := mergedWorld(t, 2)
	invalid := mergingParameters(true)
	invalid.Spec.Replicas = new(int32(-1))
	undecoded := &kind.Undecoded{ObjectMeta: metav1.ObjectMeta{Namespace: "infra", Name: "shared"}, Kind: "GatewayParameters", Error: "it is not valid"}
	for _, c := range []struct {
		what   string
		do     func()
		merged bool
		paused bool
	}{
		{"merged", func() {}, true, false},
		{"not valid", func() { w.Upsert(invalid) }, true, true},
		{"not to be read", func() { w.Upsert(undecoded) }, true, true},
		{"gone", func() { w.Delete(translate.KindGatewayParameters, "infra", "shared") }, true, true},
		{"there again", func() { w.Upsert(mergingParameters(true)) }, true, false},
		{"not merged", func() { w.Upsert(mergingParameters(false)) }, false, false},
		{"gone while not merged, and nothing is left", func() {
			w.SetInfrastructure("infra", "gatewayclass:moongate", nil)
			w.Delete(translate.KindGatewayParameters, "infra", "shared")
		}, false, true},
		{"merged again", func() { w.Upsert(mergingParameters(true)) }, true, false},
	} {
		c.do()
		w.commit(t)
		var specs []string
		for name, spec := range w.specs {
			specs = append(specs, name)
			if spec.Paused != c.paused {
				t.Errorf("%s: ProxySpec %s is paused: %v", c.what, name, spec.Paused)
			}
		}
		slices.Sort(specs)
		want, listeners := []string{"default/gw-0", "default/gw-1"}, 0
		if c.merged {
			want, listeners = []string{mergedName}, 2
		}
		if got := len(w.mergedIn()); !slices.Equal(specs, want) || got != listeners {
			t.Errorf("%s: ProxySpecs %q, and %d listeners are merged, want %q and %d", c.what, specs, got, want, listeners)
		}
	}
}

// TestMergedWaitTogether: a status that waits for the proxies of merged Gateways waits for one thing, and so does what waits for a Secret. One Gateway of which it is not known
// whether it may use a Secret holds up no other.
func TestMergedWaitTogether(t *testing.T) {
	w := mergedWorld(t, 2)
	gw := mergedGateway(0)
	for i, namespace := range []string{"default", "certs"} {
		gw.Spec.Listeners = append(gw.Spec.Listeners, gwv1.Listener{Name: gwv1.SectionName(namespace), Port: int32(8443 + i), Protocol: gwv1.HTTPSProtocolType,
			TLS: &gwv1.ListenerTLSConfig{CertificateRefs: []gwv1.SecretObjectReference{{Name: "cert", Namespace: new(gwv1.Namespace(namespace))}}}})
	}
	w.Upsert(gw)
	route := crowdRoute(0, "/")
	route.Spec.ParentRefs = []gwv1.ParentReference{{Name: "gw-0"}, {Name: "gw-1"}}
	route.Spec.Hostnames = nil
	w.Upsert(route)
	for _, n := range []string{"default", "certs", "infra"} {
		w.Upsert(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: n}})
	}
	w.SetInstalled(translate.Installed{Kinds: []translate.Kind{"HTTPRoute", "GRPCRoute"}, UnreadNamespaces: []string{"certs"}})
	w.commit(t)
	for _, key := range []kind.ObjectKey{kind.Gateway.Key("default", "gw-0"), kind.Gateway.Key("default", "gw-1"), kind.HTTPRoute.Key("default", route.Name)} {
		if got := w.statuses[key].Gateways; !slices.Equal(got, []string{mergedName}) {
			t.Errorf("the status of %v waits for %q", key, got)
		}
	}
	if got := w.GatewaysWith(kind.Secret.Key("default", "cert")); !slices.Equal(got, []string{mergedName}) {
		t.Errorf("the Secret is awaited by %q", got)
	}
	if got := w.Undecided(); len(got) != 0 {
		t.Errorf("undecided are %q", got)
	}
	w.Upsert(mergingParameters(false))
	edited := *route
	edited.Generation = 2 // else its status stays, and waits for nothing anew
	w.Upsert(&edited)
	w.commit(t)
	if got := w.Undecided(); !slices.Equal(got, []string{"default/gw-0"}) {
		t.Errorf("alone, undecided are %q", got)
	}
	if got := w.statuses[kind.HTTPRoute.Key("default", route.Name)].Gateways; !slices.Equal(got, []string{"default/gw-0", "default/gw-1"}) {
		t.Errorf("alone, the status of the route waits for %q", got)
	}
}
