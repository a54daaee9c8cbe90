package client

import (
	"testing"
	"unsafe"

	"google.golang.org/protobuf/proto"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/proxy"
)

// TestShare: Resources share equal texts and messages, also with those of later generations, and say the same as before.
func TestShare(t *testing.T) {
	sent := manyRoutes(t, 20)
	c := New(Options{Apply: func(*config.Update) proxy.Result { return proxy.Result{} }})
	c.apply(decoded(t, sent))
	again := decoded(t, sent)
	if u := c.held.difference(again); !u.Empty() {
		t.Errorf("the same once more changes %v", u)
	}
	edit := decoded(t, sent)
	for id, r := range edit.upserts {
		switch k := r.Kind.(type) {
		case *config.Resource_Backend:
			k.Backend.Port++
		case *config.Resource_Route:
			k.Route.Rules[0].RequestTimeoutNanos++
		default:
			delete(edit.upserts, id)
		}
	}
	edit.full = false
	for _, when := range []string{"at first", "edited"} {
		same := func(what, a, b string) {
			t.Helper()
			if a != b || unsafe.StringData(a) != unsafe.StringData(b) {
				t.Errorf("%s, %s: %q and %q are not the same in memory", when, what, a, b)
			}
		}
		l := c.held.resources.get(config.ID{Kind: config.KindListener, Key: "default/gateway/http"}).GetListener()
		var matches *config.Match
		for id, r := range c.held.resources.all() {
			rt := r.GetRoute()
			if rt == nil {
				continue
			}
			if !proto.Equal(r, again.upserts[id]) {
				t.Errorf("%s: %v, want %v", when, r, again.upserts[id])
			}
			backend, host := c.held.resources.backends.Get(rt.Rules[0].BackendRefs[0].Backend), rt.Attachments[0].Hostnames[0]
			same("key of backend", rt.Rules[0].BackendRefs[0].Backend, backend.Key)
			same("key of endpoints", c.held.resources.endpoints.Get(backend.Key).key, backend.Key)
			same("name of backend", backend.Name, part(backend.Key, backend.Name))
			same("name of route", rt.Name, part(rt.Key, rt.Name))
			same("listener", rt.Attachments[0].Listener, l.Key)
			same("hostname", host.Original, host.Effective)
			if m := rt.Rules[0].Matches[0]; matches == nil {
				matches = m
			} else if m != matches {
				t.Errorf("%s: equal matches are not shared", when)
			}
		}
		c.apply(edit)
		again.upserts = map[config.ID]*config.Resource{}
		for id, r := range edit.upserts {
			again.upserts[id] = proto.CloneOf(r)
		}
	}
}
