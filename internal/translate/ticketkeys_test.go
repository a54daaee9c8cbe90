package translate_test

import (
	"bytes"
	"fmt"
	"reflect"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	gwx "github.com/moongate-dev/moongate/api/gatewayx/v1alpha1"
	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/translate"
)

var ticketSecret = bytes.Repeat([]byte{7}, 32)

// ticketWorld has a Gateway with a good certificate, of this UID.
func ticketWorld(t *testing.T, uid types.UID, tickets translate.Tickets) *world {
	t.Helper()
	w := newWorldWith(clusterOptions)
	w.Upsert(ownClass("moongate"))
	gw := secretGateway("one")
	gw.UID = uid
	w.Upsert(gw)
	w.Upsert(tlsSecret(t, "one"))
	w.SetTickets(tickets)
	w.commit(t)
	return w
}

func tlsSecret(t *testing.T, name string) *corev1.Secret {
	t.Helper()
	text := "kind: Secret\nmetadata: {name: " + name + "}\ntype: kubernetes.io/tls\nstringData: {tls.crt: ${example.crt}, tls.key: ${example.key}}\n"
	return decode(t, name, text).object.(*corev1.Secret)
}

func (w *world) ticketKeys(gateway string) [][]byte {
	return w.config[config.ID{Kind: config.KindTicketKeys, Key: gateway}].GetTicketKeys().GetKeys()
}

// TestTicketKeys: present, next and previous, so that each rotation brings one key that nobody had and takes one.
func TestTicketKeys(t *testing.T) {
	w := ticketWorld(t, "uid", translate.Tickets{Secret: ticketSecret, Period: 10})
	before := w.ticketKeys("default/gw")
	if len(before) != 3 || len(before[0]) != 32 {
		t.Fatalf("%d keys", len(before))
	}
	if sorted := slices.SortedFunc(slices.Values(before), bytes.Compare); len(slices.CompactFunc(sorted, bytes.Equal)) != 3 {
		t.Error("periods share a key")
	}
	w.SetTickets(translate.Tickets{Secret: ticketSecret, Period: 11})
	if r := w.commit(t); len(r.Config.Upserts) != 1 || len(r.Statuses) != 0 {
		t.Errorf("a rotation changes %d resources and %d statuses, want the keys alone", len(r.Config.Upserts), len(r.Statuses))
	}
	after := w.ticketKeys("default/gw")
	if !bytes.Equal(after[0], before[1]) || !bytes.Equal(after[2], before[0]) {
		t.Error("the next key has not become the present one, or the present one not the previous")
	}
	if again := ticketWorld(t, "uid", translate.Tickets{Secret: bytes.Clone(ticketSecret), Period: 11}); !reflect.DeepEqual(again.ticketKeys("default/gw"), after) {
		t.Error("another replica has other keys")
	}
	for what, other := range map[string]*world{
		"another Gateway of the name": ticketWorld(t, "other", translate.Tickets{Secret: ticketSecret, Period: 11}),
		"another secret":              ticketWorld(t, "uid", translate.Tickets{Secret: bytes.Repeat([]byte{8}, 32), Period: 11}),
	} {
		for _, k := range other.ticketKeys("default/gw") {
			if slices.ContainsFunc(after, func(o []byte) bool { return bytes.Equal(k, o) }) {
				t.Errorf("%s has a key of this one", what)
			}
		}
	}
}

// TestTicketKeysGo with what they are for.
func TestTicketKeysGo(t *testing.T) {
	for what, end := range map[string]func(w *world){
		"no secret":             func(w *world) { w.SetTickets(translate.Tickets{Period: 10}) },
		"no certificate":        func(w *world) { w.Delete(translate.KindSecret, "default", "one") },
		"no HTTPS":              func(w *world) { w.Upsert(secretGateway()) },
		"no Gateway":            func(w *world) { w.Delete(translate.KindGateway, "default", "gw") },
		"a Gateway not of ours": func(w *world) { gw := secretGateway("one"); gw.Spec.GatewayClassName = "other"; w.Upsert(gw) },
	} {
		w := ticketWorld(t, "uid", translate.Tickets{Secret: ticketSecret, Period: 10})
		end(w)
		w.commit(t)
		if w.ticketKeys("default/gw") != nil {
			t.Errorf("%s: the keys are still there", what)
		}
	}
	w := ticketWorld(t, "uid", translate.Tickets{Secret: ticketSecret, Period: 10})
	gw := secretGateway("one")
	gw.UID, gw.Annotations = "uid", map[string]string{"a": "b"}
	gw.Spec.Listeners[0].Name = gwv1.SectionName("renamed")
	w.Upsert(gw)
	if r := w.commit(t); slices.ContainsFunc(r.Config.Upserts, func(r *config.Resource) bool { return r.GetTicketKeys() != nil }) {
		t.Error("an edit of the Gateway sends its keys again")
	}
}

// TestSessionKeysRunSeldom: of a backend with sessions, and of Gateways with keys, an edit of a route that leaves alone where it leads and is attached makes nobody look
// again; one more route does not have the keys made anew.
func TestSessionKeysRunSeldom(t *testing.T) {
	w := newWorldWith(clusterOptions)
	w.Upsert(ownClass("moongate"))
	w.Upsert(crowdGateway(1))
	w.Upsert(crowdService(1))
	w.SetTickets(translate.Tickets{Secret: ticketSecret, Period: 1})
	p := &gwx.XBackendTrafficPolicy{}
	p.Namespace, p.Name = "default", "sessions"
	p.Spec.TargetRefs = []gwv1.LocalPolicyTargetReference{{Kind: "Service", Name: "s1"}}
	p.Spec.SessionPersistence = &gwx.SessionPersistence{}
	w.Upsert(p)
	const routes = 50
	route := func(i int, path string) *gwv1.HTTPRoute {
		r := crowdRoute(1, path)
		r.Name = fmt.Sprint("r", i)
		return r
	}
	for i := range routes {
		w.Upsert(route(i, "/"))
	}
	w.commit(t)
	keys := config.ID{Kind: config.KindTicketKeys, Key: "default/gw"}
	if w.config[keys].GetTicketKeys().GetSessionKeys() == nil {
		t.Fatal("the Gateway has no keys of sessions")
	}
	ran := func(what string, want map[string]int) {
		t.Helper()
		r := w.commit(t)
		for _, f := range []string{"routes to a backend with sessions", "Gateways with a backend's sessions", "ticket keys"} {
			if r.Stats.RunsByName[f] != want[f] {
				t.Errorf("%s: %q ran %d times, want %d", what, f, r.Stats.RunsByName[f], want[f])
			}
		}
	}
	w.Upsert(route(0, "/other"))
	ran("another path", nil)
	w.Upsert(crowdSlice(1, "10.0.0.9"))
	ran("another endpoint", nil)
	w.Upsert(route(routes, "/"))
	ran("one more route", map[string]int{"routes to a backend with sessions": 1, "Gateways with a backend's sessions": 1})
	w.Delete(translate.KindHTTPRoute, "default", "r0")
	ran("one less", map[string]int{"routes to a backend with sessions": 1})
	for i := range routes {
		w.Delete(translate.KindHTTPRoute, "default", fmt.Sprint("r", i+1))
	}
	w.commit(t)
	if w.config[keys] != nil {
		t.Error("the keys stay without a route to the backend")
	}
}
