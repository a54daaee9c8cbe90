package kube

import (
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	eg "github.com/moongate-dev/moongate/api/envoygateway/v1alpha1"
	"github.com/moongate-dev/moongate/api/v1alpha1"
	"github.com/moongate-dev/moongate/internal/kind"
	"github.com/moongate-dev/moongate/internal/testkit"
)

// FuzzDecode feeds the decoder what no API server should send: it must not panic, nor
// return an object that cannot be named.
func FuzzDecode(f *testing.F) {
	for _, seed := range []string{
		`{"apiVersion":"gateway.networking.k8s.io/v1","kind":"HTTPRoute","metadata":{"name":"a","namespace":"b"},"spec":{"hostnames":["x"]}}`,
		`{"apiVersion":"gateway.networking.k8s.io/v1","kind":"HTTPRoute","metadata":{"name":"a"},"spec":{"hostnames":7}}`,
		`{"apiVersion":"gateway.networking.k8s.io/v1","kind":"HTTPRouteList","metadata":{"resourceVersion":"1"},"items":[{"metadata":{"name":"a"}},{"metadata":{"name":"b"},"spec":[]},{},null,7]}`,
		`{"apiVersion":"moongate.dev/v1alpha1","kind":"GatewayParameters","metadata":{"name":"a"},"spec":{"drainTimeout":"soon"}}`,
		`{"apiVersion":"gateway.networking.k8s.io/v1","kind":"BackendTLSPolicy","metadata":{"name":"a"},"spec":{"validation":7,"targetRefs":[{"kind":"Service","name":"b"},null]}}`,
		`{"apiVersion":"gateway.networking.k8s.io/v1","kind":"HTTPRoute","metadata":{"name":"a","managedFields":7},"spec":{"hostnames":["x"]},"status":[]}`,
		`{"apiVersion":"gateway.networking.k8s.io/v1","kind":"HTTPRoute","metadata":{},"status":7}`,
		`{"apiVersion":"v1","kind":"Status"}`, `{}`, `[]`, ``, `{"kind":"HTTPRoute","apiVersion":"gateway.networking.k8s.io/v1","metadata":7}`,
	} {
		f.Add([]byte(seed))
	}
	info, ok := runtime.SerializerInfoForMediaType(codecs.SupportedMediaTypes(), runtime.ContentTypeJSON)
	if !ok {
		f.Fatal("no JSON")
	}
	decoder := codecs.DecoderToVersion(info.Serializer, nil)
	routes := kindNamed("HTTPRoute")
	f.Fuzz(func(t *testing.T, data []byte) {
		obj, _, err := decoder.Decode(data, nil, nil)
		if err != nil {
			return
		}
		items := []runtime.Object{obj}
		if mixed, ok := obj.(*mixedList); ok {
			items = mixed.Items
		}
		for _, item := range items {
			switch item := item.(type) {
			case *unreadable:
				if item.Name == "" || item.err == nil {
					t.Errorf("an unreadable object without name or error: %+v", item)
				}
			case *statusless:
				if item.GetName() == "" || item.err == nil || item.field == "" {
					t.Errorf("an object without its status has no name, error or field: %+v", item)
				}
			case metav1.Object:
				gvk, _, err := scheme.ObjectKinds(item.(runtime.Object))
				if err == nil && gvk[0].Kind == routes.Name {
					routes.seen(routes.keep(item.(runtime.Object)))
				}
			}
		}
	})
}

// TestFormerSessions: the session persistence of rules is read in the form of versions before v1.7.0 too, from the first list, from a
// watch, and beside an object that cannot be decoded.
func TestFormerSessions(t *testing.T) {
	both(t, func(t *testing.T, s *apiServer) {
		s.install(nil)
		put := func(k *kind.Kind, n string, sessions ...any) {
			rules := []any{}
			for _, p := range sessions {
				rules = append(rules, fields{"sessionPersistence": p})
			}
			s.put(gatewayGroup+"/"+k.Resource, k.Name, "team", n, fields{"spec": fields{"rules": rules}})
		}
		put(kind.HTTPRoute.Kind, "a-first", fields{"cookie": fields{"name": "first"}})
		put(kind.HTTPRoute.Kind, "listed", fields{"sessionName": "one", "type": "Cookie"},
			fields{"sessionName": "two", "type": "Header", "cookieConfig": fields{"lifetimeType": "Permanent"}}, fields{"cookieConfig": fields{"lifetimeType": "Permanent"}, "absoluteTimeout": "1h"},
			fields{"sessionName": "three", "cookie": fields{"name": "four"}}, fields{"type": "Header", "sessionName": "five", "header": fields{"name": "six"}}, fields{"type": "Header"}, nil)
		put(kind.GRPCRoute.Kind, "listed", fields{"sessionName": "one"})
		c := consume(t, s)
		text := func(k *kind.Kind, n string) string {
			var all []*gwv1.SessionPersistence
			switch o := c.objects[k.Key("team", n)].(type) {
			case *gwv1.HTTPRoute:
				all = sessionsOf(o)[0]
			case *gwv1.GRPCRoute:
				all = sessionsOf(o)[0]
			}
			var words []string
			for _, p := range all {
				switch {
				case p == nil:
					words = append(words, "none")
				case p.Cookie != nil:
					name, lifetime := gwv1.CookieName("?"), gwv1.CookieLifetimeType("?")
					if p.Cookie.Name != nil {
						name = *p.Cookie.Name
					}
					if p.Cookie.LifetimeType != nil {
						lifetime = *p.Cookie.LifetimeType
					}
					words = append(words, "cookie", string(name), string(lifetime))
				case p.Header != nil:
					words = append(words, "header", string(p.Header.Name))
				default:
					words = append(words, "nothing")
				}
			}
			return strings.Join(words, " ")
		}
		const all = "cookie one ? header two cookie ? Permanent cookie four ? header six nothing none"
		until := func(k *kind.Kind, n, want string) {
			t.Helper()
			c.until(k.Name+" "+n+" has its session persistence", func() bool { return text(k, n) == want })
		}
		until(kind.HTTPRoute.Kind, "a-first", "cookie first ?")
		until(kind.HTTPRoute.Kind, "listed", all)
		until(kind.GRPCRoute.Kind, "listed", "cookie one ?")
		put(kind.GRPCRoute.Kind, "watched", fields{"sessionName": "two", "type": "Header"})
		until(kind.GRPCRoute.Kind, "watched", "header two")
		put(kind.HTTPRoute.Kind, "watched", fields{"sessionName": "two", "type": "Header"})
		until(kind.HTTPRoute.Kind, "watched", "header two")
		s.stop()
		s.put(gatewayGroup+"/httproutes", "HTTPRoute", "team", "b-odd", fields{"spec": fields{"hostnames": int64(7)}})
		put(kind.HTTPRoute.Kind, "watched", fields{"sessionName": "three"})
		s.compact() // lists again
		s.start()
		until(kind.HTTPRoute.Kind, "watched", "cookie three ?")
	})
}

// TestDeniedEndpointsOutliveAMistake: what closes something is read though the object cannot be decoded, from the first list, from a
// watch, and with and without an older version.
func TestDeniedEndpointsOutliveAMistake(t *testing.T) {
	both(t, func(t *testing.T, s *apiServer) {
		s.install(nil)
		resource := "moongate.dev/gatewayparameters"
		put := func(n string, drain any, denied any) {
			s.put(resource, kind.GatewayParameters.Name, "team", n, fields{"spec": fields{"drainTimeout": drain, "classOnly": fields{"deniedEndpoints": denied}}})
		}
		put("listed", "soon", []any{"10.0.0.0/8", int64(7), "192.0.2.0/24"})
		c := consume(t, s)
		id := func(n string) kind.ObjectKey {
			return kind.ObjectKey{Group: "moongate.dev", Kind: kind.GatewayParameters.Name, Namespace: "team", Name: n}
		}
		denies := func(n string, want ...string) func() bool {
			return func() bool {
				u, ok := c.objects[id(n)].(*kind.Undecoded)
				return ok && slices.Equal(u.DeniedEndpoints, want) && strings.Contains(u.Error, "soon")
			}
		}
		c.until("what is listed denies", denies("listed", "10.0.0.0/8", "192.0.2.0/24"))
		if !c.Unread(id("listed")) {
			t.Error("it counts as read")
		}
		put("listed", "soon", "10.0.0.0/9")
		c.until("it is changed", denies("listed", "10.0.0.0/9"))
		put("watched", "soon", []any{"2001:db8::/32"})
		c.until("what is watched denies", denies("watched", "2001:db8::/32"))
		put("none", "soon", nil)
		c.until("none denies nothing", denies("none"))

		put("listed", "5s", []any{"10.0.0.0/10"})
		good := func() bool { _, ok := c.objects[id("listed")].(*v1alpha1.GatewayParameters); return ok }
		c.until("it is mended", good)
		put("listed", "soon", []any{"10.0.0.0/11"})
		put("last", "1s", nil)
		c.until("one more comes", func() bool { return c.objects[id("last")] != nil })
		if !good() || c.Unread(id("listed")) {
			t.Error("the last valid version did not stay")
		}
		s.remove(resource, "team", "watched")
		c.until("it goes when it is deleted", func() bool { return c.objects[id("watched")] == nil })
		s.stop()
		s.remove(resource, "team", "none")
		s.compact() // lists again
		s.start()
		c.until("it goes while nobody looks", func() bool { return c.objects[id("none")] == nil })
	})
}

// TestTargetsOutliveAMistake: a policy that cannot be decoded says which Services it is for, as far as all of its targets can be read.
func TestTargetsOutliveAMistake(t *testing.T) {
	both(t, func(t *testing.T, s *apiServer) {
		s.install(nil)
		put := func(n string, validation any, refs ...any) {
			s.put(gatewayGroup+"/backendtlspolicies", kind.BackendTLSPolicy.Name, "team", n, fields{"spec": fields{"validation": validation, "targetRefs": refs}})
		}
		ref := func(name any) any {
			return fields{"group": "", "kind": "Service", "name": name, "sectionName": "https"}
		}
		put("listed", "none", ref("one"), ref("two"))
		c := consume(t, s)
		id := func(n string) kind.ObjectKey {
			return kind.ObjectKey{Group: gatewayGroup, Kind: kind.BackendTLSPolicy.Name, Namespace: "team", Name: n}
		}
		targets := func(n string, want ...string) func() bool {
			return func() bool {
				u, ok := c.objects[id(n)].(*kind.Undecoded)
				if !ok || u.Error == "" || len(u.Targets) != len(want) {
					return false
				}
				for i, ref := range u.Targets {
					if string(ref.Name) != want[i] || ref.Kind != "Service" || *ref.SectionName != "https" {
						return false
					}
				}
				return true
			}
		}
		c.until("what is listed has its targets", targets("listed", "one", "two"))
		if !c.Unread(id("listed")) {
			t.Error("it counts as read")
		}
		put("one target", "none", ref("one"), ref(int64(7)))
		c.until("a target that cannot be read may be any", targets("one target"))
		put("no kind", "none", fields{"name": "one"})
		c.until("so may one without its kind", targets("no kind"))
		s.put(gatewayGroup+"/backendtlspolicies", kind.BackendTLSPolicy.Name, "team", "no list", fields{"spec": "none"})
		c.until("and one of no policy", targets("no list"))

		put("listed", fields{"hostname": "one.example"}, ref("one"))
		good := func() bool { _, ok := c.objects[id("listed")].(*gwv1.BackendTLSPolicy); return ok }
		c.until("it is mended", good)
		put("listed", "none", ref("two"))
		s.remove(gatewayGroup+"/backendtlspolicies", "team", "no list")
		c.until("another one goes when it is deleted", func() bool { return c.objects[id("no list")] == nil })
		if !good() || c.Unread(id("listed")) {
			t.Error("the last valid version did not stay")
		}
	})
}

// TestUnreadableTrafficTargets: a BackendTrafficPolicy of which is not known what it is for may be for anything, rather than for nothing.
func TestUnreadableTrafficTargets(t *testing.T) {
	both(t, func(t *testing.T, s *apiServer) {
		s.install(nil)
		put := func(n string, spec fields) {
			s.put("gateway.envoyproxy.io/backendtrafficpolicies", kind.BackendTrafficPolicy.Name, "team", n, fields{"spec": spec})
		}
		put("unreadable", fields{"targetRefs": "web"})
		put("readable", fields{"targetRefs": []any{fields{"group": gatewayGroup, "kind": "HTTPRoute", "name": "web"}}, "retry": fields{"numRetries": "many"}})
		c := consume(t, s)
		c.until("all are told", func() bool {
			u, undecoded := c.objects[kind.BackendTrafficPolicy.Key("team", "unreadable")].(*kind.Undecoded)
			p, decoded := c.objects[kind.BackendTrafficPolicy.Key("team", "readable")].(*eg.BackendTrafficPolicy)
			return undecoded && u.AnyTraffic && u.Error != "" && decoded && len(p.Spec.TargetRefs) == 1 && p.Spec.Unread.Field == "spec.retry.numRetries"
		})
	})
}

// TestUnreadableStatus: an object of which only the status cannot be decoded is told as any other, from the first list and from a watch. Its status
// must not be written until it can be.
func TestUnreadableStatus(t *testing.T) {
	both(t, func(t *testing.T, s *apiServer) {
		s.install(nil)
		putPolicy := func(n, target string, status any) {
			s.put("gateway.envoyproxy.io/backendtrafficpolicies", kind.BackendTrafficPolicy.Name, "team", n, fields{
				"spec": fields{"targetRefs": []any{fields{"group": gatewayGroup, "kind": "HTTPRoute", "name": target}}}, "status": status,
			})
		}
		listed, watched := kind.BackendTrafficPolicy.Key("team", "listed"), kind.BackendTrafficPolicy.Key("team", "watched")
		good := fields{"ancestors": []any{}}
		putPolicy("listed", "one", int64(7))
		s.putRoute("listed", "one.example", fields{"status": int64(7)})
		s.putRoute("good", "one.example", nil)
		c := consume(t, s)
		targets := func(id kind.ObjectKey, want string) bool {
			p, is := c.objects[id].(*eg.BackendTrafficPolicy)
			return is && len(p.Spec.TargetRefs) == 1 && string(p.Spec.TargetRefs[0].Name) == want
		}
		serves := func(n, want string) bool {
			r, is := c.objects[routeID(n)].(*gwv1.HTTPRoute)
			return is && len(r.Spec.Hostnames) == 1 && string(r.Spec.Hostnames[0]) == want
		}
		all := []kind.ObjectKey{listed, routeID("listed"), watched, routeID("watched")}
		writable := func(want bool) {
			t.Helper()
			for _, id := range all {
				if c.objects[id] != nil && c.Unwritable(id) == want {
					t.Errorf("%v: unwritable is %v", id, !want)
				}
			}
		}
		c.until("what is listed is told", func() bool { return targets(listed, "one") && serves("listed", "one.example") })
		writable(false)
		if c.Unwritable(routeID("good")) || c.Unwritable(routeID("none")) || c.Unwritable(kind.ObjectKey{Kind: "Nothing"}) {
			t.Error("the status of another object cannot be written")
		}
		putPolicy("watched", "one", int64(7))
		s.putRoute("watched", "one.example", fields{"status": int64(7)})
		c.until("what is watched is told", func() bool { return targets(watched, "one") && serves("watched", "one.example") })
		for _, id := range all {
			if o, ok := c.Get(id); !ok || o.GetResourceVersion() == "" || c.Unread(id) || c.UnreadAny(id.Group, id.Kind) {
				t.Errorf("%v counts as unread", id)
			}
		}
		if n := c.Problems(); n["HTTPRoute"] != 2 || n[kind.BackendTrafficPolicy.Name] != 2 {
			t.Errorf("problems: %v", n)
		}
		putPolicy("listed", "two", int64(7))
		s.putRoute("listed", "two.example", fields{"status": int64(7)})
		putPolicy("watched", "two", int64(7))
		s.putRoute("watched", "two.example", fields{"status": int64(7)})
		c.until("its spec is edited", func() bool {
			return targets(listed, "two") && serves("listed", "two.example") && targets(watched, "two") && serves("watched", "two.example")
		})
		writable(false)
		for _, id := range all {
			if n := strings.Count(c.log.String(), `object="`+id.String()+`" field=status`); n != 1 {
				t.Errorf("%v is logged %d times, want 1:\n%s", id, n, c.log)
			}
		}

		s.put(gatewayGroup+"/httproutes", "HTTPRoute", "team", "watched", fields{"spec": fields{"hostnames": int64(7)}, "status": good})
		testkit.Eventually(t, "another field cannot be decoded either", func() bool { return strings.Contains(c.log.String(), "is left as it was") })
		if !c.Unwritable(routeID("watched")) {
			t.Error("the status is written into a version that cannot be decoded")
		}
		observed := c.observed[listed]
		putPolicy("listed", "two", good)
		s.putRoute("listed", "two.example", fields{"status": fields{"parents": []any{}}})
		putPolicy("watched", "two", good)
		s.putRoute("watched", "two.example", fields{"status": fields{"parents": []any{}}})
		// Policies and routes come by watches of their own, in any order.
		c.until("its status is mended", func() bool {
			return c.observed[listed] > observed && !slices.ContainsFunc(all, c.Unwritable)
		})
		writable(true)
		if n := c.Problems(); len(n) != 0 {
			t.Errorf("problems: %v", n)
		}
	})
}

// TestUnreadableManagedFields: nobody reads them, so they keep nothing away.
func TestUnreadableManagedFields(t *testing.T) {
	s := newAPIServer(t, true)
	s.install(nil)
	s.putRoute("one", "one.example", fields{"metadata": fields{"managedFields": "somebody"}})
	c := consume(t, s)
	c.until("it is told", func() bool { return c.objects[routeID("one")] != nil })
	if !c.Unwritable(routeID("one")) || c.log.Count("field=metadata.managedFields") != 1 {
		t.Errorf("unwritable is %v; log:\n%s", c.Unwritable(routeID("one")), c.log)
	}
	s.remove(gatewayGroup+"/httproutes", "team", "one")
	c.until("it is deleted", func() bool { return c.objects[routeID("one")] == nil })
	if c.Unwritable(routeID("one")) || len(c.Problems()) != 0 {
		t.Error("it is not forgotten")
	}
}

// TestRecreatedUnreadable: an object that was deleted and created again while nobody looked is another one: if it cannot be decoded, nothing of the one
// before stays, be it found in a list or come by a watch.
func TestRecreatedUnreadable(t *testing.T) {
	both(t, func(t *testing.T, s *apiServer) {
		s.install(nil)
		put := func(n, uid string, validation any) {
			s.put(gatewayGroup+"/backendtlspolicies", kind.BackendTLSPolicy.Name, "team", n, fields{"metadata": fields{"uid": uid}, "spec": fields{
				"validation": validation, "targetRefs": []any{fields{"group": "", "kind": "Service", "name": "of-" + uid}},
			}})
		}
		putRoute := func(n string, uid, host any) {
			s.put(gatewayGroup+"/httproutes", "HTTPRoute", "team", n, fields{"metadata": fields{"uid": uid}, "spec": fields{"hostnames": host}})
		}
		valid, hosts := fields{"hostname": "one.example"}, []any{"one.example"}
		put("policy", "one", valid)
		put("kept", "one", valid)
		putRoute("route", "one", hosts)
		putRoute("kept", "one", hosts)
		putRoute("strange", "one", hosts)
		putRoute("watched", "one", hosts)
		c := consume(t, s)
		policy, kept := kind.BackendTLSPolicy.Key("team", "policy"), kind.BackendTLSPolicy.Key("team", "kept")
		decoded := func(id kind.ObjectKey) bool { _, is := c.objects[id].(*gwv1.BackendTLSPolicy); return is }
		c.until("all are read", func() bool { return decoded(policy) && decoded(kept) && c.objects[routeID("watched")] != nil })
		s.stop()
		put("policy", "two", "none")
		put("kept", "one", "none")
		putRoute("route", "two", int64(7))
		putRoute("kept", "one", int64(7))
		putRoute("strange", int64(7), int64(7)) // it may be the same
		s.compact()                             // lists again
		s.start()
		c.until("what was recreated is another one", func() bool {
			u, is := c.objects[policy].(*kind.Undecoded)
			return is && len(u.Targets) == 1 && u.Targets[0].Name == "of-two" && c.objects[routeID("route")] == nil
		})
		if !c.Unread(policy) || !c.Unread(routeID("route")) {
			t.Error("an object that was never read counts as read")
		}
		if !decoded(kept) || c.objects[routeID("kept")] == nil || c.objects[routeID("strange")] == nil {
			t.Error("the last valid version of the same object did not stay")
		}
		putRoute("watched", "two", int64(7))
		c.until("so it is if a watch brings it", func() bool { return c.objects[routeID("watched")] == nil })
	})
}

// TestUnreadableGrant: the last version of a ReferenceGrant may permit what the newest one does not, so it does not stay if that cannot be decoded.
func TestUnreadableGrant(t *testing.T) {
	both(t, func(t *testing.T, s *apiServer) {
		s.install(nil)
		id := kind.ReferenceGrant.Key("team", "grant")
		put := func(from any) {
			s.put(gatewayGroup+"/referencegrants", kind.ReferenceGrant.Name, "team", "grant", fields{"spec": fields{"from": from, "to": []any{fields{"group": "", "kind": "Service"}}}})
		}
		from := []any{fields{"group": gatewayGroup, "kind": "HTTPRoute", "namespace": "shop"}}
		put(from)
		c := consume(t, s)
		permits := func(want bool) func() bool { return func() bool { return (c.objects[id] != nil) == want } }
		c.until("it permits", permits(true))
		put("shop")
		c.until("it permits nothing after an edit that cannot be decoded", permits(false))
		if !c.Unread(id) || c.Problems()[kind.ReferenceGrant.Name] != 1 || c.log.Count("permits nothing until it can be") != 1 {
			t.Errorf("unread is %v, problems %v; log:\n%s", c.Unread(id), c.Problems(), c.log)
		}
		put(from)
		c.until("it permits once it is mended", permits(true))
		s.stop()
		put("shop")
		s.compact() // lists again
		s.start()
		c.until("it permits nothing if a list says so", permits(false))
	})
}
