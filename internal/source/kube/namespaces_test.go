package kube

import (
	"errors"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/moongate-dev/moongate/internal/kind"
	"github.com/moongate-dev/moongate/internal/testkit"
)

// in runs a Source that watches some namespaces only.
func in(t *testing.T, s *apiServer, namespaces ...string) *consumer {
	t.Helper()
	return follow(t, s.config(), func(source *Source) { source.namespaces = namespacesOf(namespaces) })
}

// routes are the HTTPRoutes that are known, sorted.
func (c *consumer) routes() (list []string) {
	for id := range c.objects {
		if id.Kind == "HTTPRoute" {
			list = append(list, id.Namespace+"/"+id.Name)
		}
	}
	slices.Sort(list)
	return list
}

func (s *apiServer) putRouteIn(namespace, n string) {
	s.put(gatewayGroup+"/httproutes", "HTTPRoute", namespace, n, fields{"spec": fields{"hostnames": []any{n + ".example"}}})
}

// asked are the paths of namespaced kinds that were asked for in the whole cluster.
func (s *apiServer) asked() (list []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for path := range s.accepts {
		for _, k := range append(slices.Clone(kinds), secretMetadata) {
			if k.Namespaced && strings.HasSuffix(path, "/"+k.Resource) && !strings.Contains(path, "/namespaces/") {
				list = append(list, path)
			}
		}
	}
	return list
}

// TestWatchedNamespaces reads two namespaces of three, through edits, a lost watch and a list that comes late.
func TestWatchedNamespaces(t *testing.T) {
	both(t, func(t *testing.T, s *apiServer) {
		s.install(nil)
		s.put("namespaces", "Namespace", "", "other", fields{})
		s.put(gatewayGroup+"/gatewayclasses", "GatewayClass", "", "class", fields{"spec": fields{"controllerName": "example.org/x"}})
		for _, namespace := range []string{"blue", "green", "other"} {
			s.putRouteIn(namespace, "old")
		}
		c := in(t, s, "green", "blue", "green")
		c.next()
		if got := c.routes(); !slices.Equal(got, []string{"blue/old", "green/old"}) {
			t.Errorf("routes %v", got)
		}
		for _, id := range []kind.ObjectKey{kind.Namespace.Key("", "other"), kind.GatewayClass.Key("", "class")} {
			if c.objects[id] == nil {
				t.Errorf("%v is in no namespace and was not read; there is %v", id, slices.Collect(maps.Keys(c.objects)))
			}
		}
		s.putRouteIn("other", "new")
		s.putRouteIn("blue", "new")
		s.remove(gatewayGroup+"/httproutes", "green", "old")
		c.until("both namespaces are followed", func() bool { return slices.Equal(c.routes(), []string{"blue/new", "blue/old"}) })

		// The list of one namespace says nothing of another.
		s.stop()
		s.remove(gatewayGroup+"/httproutes", "blue", "old")
		s.putRouteIn("green", "late")
		s.compact()
		s.start()
		c.until("what happened meanwhile is known", func() bool { return slices.Equal(c.routes(), []string{"blue/new", "green/late"}) })
		if asked := s.asked(); len(asked) > 0 {
			t.Errorf("asked for in the whole cluster: %v", asked)
		}
	})
}

// TestWatchedNamespacesOneRefused lets a Role be missing in one namespace: the start waits, and says for which.
func TestWatchedNamespacesOneRefused(t *testing.T) {
	s := newAPIServer(t, true)
	s.install(nil)
	s.putRouteIn("blue", "a")
	s.mu.Lock()
	s.forbidden = map[string]bool{"green/" + gatewayGroup + "/httproutes": true}
	s.mu.Unlock()
	c := in(t, s, "blue", "green")
	testkit.Eventually(t, "it says what it waits for", func() bool {
		waiting := c.Waiting()
		return len(waiting) == 1 && strings.HasPrefix(waiting[0], "HTTPRoute: ") && !strings.Contains(waiting[0], "not listed yet")
	})
	s.mu.Lock()
	s.forbidden = nil
	s.mu.Unlock()
	c.next()
	if got := c.routes(); !slices.Equal(got, []string{"blue/a"}) {
		t.Errorf("routes %v", got)
	}
}

// TestTroubleWhileAnotherNamespaceIsListed breaks the watch of one namespace for a moment, just when the other one is listed for the
// first time: nothing is listed anew afterwards, and the kind counts as listed nevertheless.
func TestTroubleWhileAnotherNamespaceIsListed(t *testing.T) {
	s := unstarted(t, newAPIServer(t, true))
	f := &feed{source: s, kind: kindNamed("HTTPRoute"), to: s.catalog.table(kindNamed("HTTPRoute"))}
	s.feeds[f.kind] = f
	blue, green := &scope{feed: f, namespace: "blue"}, &scope{feed: f, namespace: "green"}
	f.scopes = []*scope{blue, green}
	ctx := t.Context()
	s.note(ctx, blue, &blue.listing, nil)
	blue.Replace(nil, "1")
	s.note(ctx, green, &green.listing, nil)
	s.note(ctx, blue, &blue.watching, errClosed)
	green.Replace(nil, "1")
	s.note(ctx, blue, &blue.watching, nil)
	if !f.listed || f.failing() {
		t.Errorf("listed %v, failing %v", f.listed, f.failing())
	}
}

// forbid lets nothing of a namespace be listed but what is excepted, as group/resource.
func (s *apiServer) forbid(namespace string, but ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forbidden = map[string]bool{}
	for _, k := range append(slices.Clone(kinds), secretMetadata) {
		if resource := strings.TrimPrefix(k.Group+"/"+k.Resource, "/"); k.Namespaced && !slices.Contains(but, resource) {
			s.forbidden[namespace+"/"+resource] = true
		}
	}
}

// permit forbids nothing but these, as namespace/group/resource.
func (s *apiServer) permit(but ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forbidden = map[string]bool{}
	for _, resource := range but {
		s.forbidden[resource] = true
	}
}

// impatient runs a Source that watches some namespaces, and goes on without those that are forbidden after a moment.
func impatient(t *testing.T, s *apiServer, namespaces ...string) *consumer {
	t.Helper()
	return follow(t, s.config(), func(source *Source) { source.namespaces, source.skip = namespacesOf(namespaces), 300*time.Millisecond })
}

// TestAForbiddenNamespaceHoldsUpNobody starts without the Role of one namespace for good: the other one is read and goes on, and nothing
// is said of objects of the first until all that is essential of it can be read. Then all comes at once, since a route or Service must
// not be in force before the policies that protect it.
func TestAForbiddenNamespaceHoldsUpNobody(t *testing.T) {
	both(t, func(t *testing.T, s *apiServer) {
		s.install(nil)
		s.put("namespaces", "Namespace", "", "green", fields{})
		s.putRouteIn("blue", "a")
		s.putRouteIn("green", "b")
		s.putRouteIn("green", "c")
		s.putRouteIn("other", "z")
		s.forbid("green")
		c := impatient(t, s, "blue", "green")
		c.next()
		if got := c.routes(); !slices.Equal(got, []string{"blue/a"}) {
			t.Errorf("routes %v", got)
		}
		c.until("it is said of which namespace nothing is read", func() bool { return slices.Equal(c.installed.UnreadNamespaces, []string{"green"}) })
		route := func(namespace string) kind.ObjectKey {
			return kind.ObjectKey{Group: gatewayGroup, Kind: "HTTPRoute", Namespace: namespace, Name: "absent"}
		}
		if c.Unread(route("blue")) || !c.Unread(route("green")) {
			t.Errorf("unread: blue %v, green %v", c.Unread(route("blue")), c.Unread(route("green")))
		}
		remedy := "allow the controller's ServiceAccount to list and watch httproutes.gateway.networking.k8s.io in namespace green"
		c.until("it is said which kinds are unread", func() bool {
			return slices.Contains(c.UnreadKinds(), Unread{gatewayGroup, "HTTPRoute", remedy})
		})

		s.permit("green/" + gatewayGroup + "/backendtlspolicies")
		c.until("the other kinds can be read", func() bool { return len(c.installed.Unread) == 1 })
		s.remove(gatewayGroup+"/httproutes", "green", "c")
		s.putRouteIn("green", "d")
		s.putRouteIn("blue", "e")
		c.until("the other namespace goes on", func() bool { return len(c.routes()) == 2 })
		if !c.Unread(route("green")) {
			t.Error("a namespace counts as read without its policies")
		}
		for id := range c.objects {
			if id.Namespace == "green" {
				t.Errorf("%v is told without the policies of its namespace", id)
			}
		}
		if len(c.Waiting()) != 0 {
			t.Errorf("it waits for %v", c.Waiting())
		}

		s.permit()
		c.until("the namespace joins in", func() bool {
			return slices.Equal(c.routes(), []string{"blue/a", "blue/e", "green/b", "green/d"}) && len(c.installed.Unread) == 0 && len(c.installed.UnreadNamespaces) == 0
		})
		if c.Unread(route("green")) {
			t.Error("still unread")
		}
		s.putRouteIn("green", "f")
		c.until("it goes on", func() bool { return len(c.routes()) == 5 })
	})
}

// TestANamespaceIsReadWholeOrNotAtAll: where a part of what is essential can be read, the start waits for the rest.
func TestANamespaceIsReadWholeOrNotAtAll(t *testing.T) {
	for _, missing := range []string{gatewayGroup + "/backendtlspolicies", "discovery.k8s.io/endpointslices", gatewayGroup + "/httproutes"} {
		t.Run(missing, func(t *testing.T) {
			s := newAPIServer(t, true)
			s.install(nil)
			s.permit("green/" + missing)
			c := impatient(t, s, "blue", "green")
			testkit.Eventually(t, "it is said that the start waits", func() bool {
				return len(c.Waiting()) == 1 && strings.Contains(c.log.String(), "the start waits for them")
			})
			if waiting := c.Waiting(); len(waiting) != 1 || strings.Contains(c.log.String(), "a namespace may not be read") {
				t.Errorf("it waits for %v; log:\n%s", waiting, c.log)
			}
			select {
			case change := <-c.changes:
				t.Errorf("a Change came: %+v", change)
			default:
			}
			s.permit()
			c.next()
		})
	}
}

// TestOneRefusalIsNotMany: a namespace that is slow to be listed is not gone on without because it is forbidden for a moment.
func TestOneRefusalIsNotMany(t *testing.T) {
	s := unstarted(t, newAPIServer(t, true))
	s.skip, s.discovered, s.log = time.Minute, true, slog.New(slog.DiscardHandler)
	s.namespaces = []string{"blue", "green"}
	var green []*scope
	for _, k := range kinds {
		if k.Namespaced {
			f := &feed{source: s, kind: k, to: s.catalog.table(k)}
			f.scopes = []*scope{{feed: f, namespace: "blue", done: true}, {feed: f, namespace: "green"}}
			s.feeds[k], green = f, append(green, f.scopes[1])
		}
	}
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "any"}, "", nil)
	for _, test := range []struct {
		what  string
		err   error
		after time.Duration
		want  bool
	}{
		{"slow", apierrors.NewInternalError(errors.New("slow")), 2 * time.Minute, false},
		{"forbidden just now", forbidden, 0, false}, {"forbidden for long", forbidden, time.Minute + time.Second, true},
	} {
		for _, p := range green {
			s.note(t.Context(), p, &p.listing, test.err)
		}
		s.mu.Lock()
		s.check(time.Now())
		s.check(time.Now().Add(test.after))
		if got := s.catalog.withheld["green"]; got != test.want {
			t.Errorf("%s: gone on without it: %v", test.what, got)
		}
		s.mu.Unlock()
	}
}

// TestTheStartWaitsForParametersOfAClass that are in a forbidden namespace: the addresses that they deny are denied to all Gateways. A
// namespace that does not exist has none.
func TestTheStartWaitsForParametersOfAClass(t *testing.T) {
	s := newAPIServer(t, true)
	s.install(nil)
	class := func(n, namespace string) {
		s.put(gatewayGroup+"/gatewayclasses", "GatewayClass", "", n, fields{"spec": fields{"controllerName": "example.org/x",
			"parametersRef": fields{"group": "moongate.dev", "kind": kind.GatewayParameters.Name, "namespace": namespace, "name": "p"}}})
	}
	s.put("namespaces", "Namespace", "", "green", fields{})
	class("first", "green")
	s.forbid("green")
	c := impatient(t, s, "blue", "green")
	testkit.Eventually(t, "it is said what the start waits for", func() bool {
		waiting := c.Waiting()
		return len(waiting) == 1 && strings.HasPrefix(waiting[0], "GatewayParameters green/p of GatewayClass first: ") &&
			strings.Contains(c.log.String(), "green/p of GatewayClass first")
	})
	select {
	case change := <-c.changes:
		t.Errorf("a Change came: %+v", change)
	default:
	}
	class("first", "blue")
	c.next()
	class("second", "green")
	c.until("it is there", func() bool {
		return c.objects[kind.ObjectKey{Group: gatewayGroup, Kind: "GatewayClass", Name: "second"}] != nil
	})
	if len(c.Waiting()) != 0 {
		t.Errorf("after the start, it waits for %v", c.Waiting())
	}

	class("second", "nowhere")
	s.forbid("nowhere")
	impatient(t, s, "blue", "nowhere").next()
}

// TestNothingIsDispensableInAllNamespaces: a verb that is missing everywhere is no matter of one namespace.
func TestNothingIsDispensableInAllNamespaces(t *testing.T) {
	s := newAPIServer(t, true)
	s.install(nil)
	s.unlisted[gatewayGroup+"/httproutes"] = true
	c := follow(t, s.config(), func(source *Source) {
		source.namespaces, source.skip = namespacesOf([]string{"blue", "green"}), 50*time.Millisecond
	})
	testkit.Eventually(t, "both are said to hold up the start", func() bool {
		said := 0 // of this kind: on a slow machine others may not have been listed in time, too
		for line := range strings.Lines(c.log.String()) {
			if strings.Contains(line, "the start waits for them") && strings.Contains(line, "kind=HTTPRoute") {
				said++
			}
		}
		return said == 2 && len(c.Waiting()) == 1
	})
	select {
	case change := <-c.changes:
		t.Errorf("a Change came: %+v", change)
	default:
	}
}

// TestSecretsOfOtherNamespaces wants Secrets here and elsewhere.
func TestSecretsOfOtherNamespaces(t *testing.T) {
	s := newAPIServer(t, true)
	s.install(nil)
	s.putSecret("here", "bGFyZ2U=")
	s.put("secrets", "Secret", "other", "there", fields{"type": "Opaque", "data": fields{"k": "bGFyZ2U="}})
	c := in(t, s, "team")
	c.next()
	got, _ := c.Fetch(t.Context(), []SecretRequest{{"team", "here", true}, {"other", "there", true}})
	if len(got) != 1 || got[0].GetName() != "here" {
		t.Errorf("fetched %v", got)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.gets["team/here"] != 1 || s.gets["other/there"] != 0 {
		t.Errorf("asked for %v", s.gets)
	}
}

// TestSecretRefused checks that the log says where the controller needs to read Secrets.
func TestSecretRefused(t *testing.T) {
	for where, namespaces := range map[string][]string{"in the whole cluster": nil, "in namespace team": {"other", "team"}} {
		t.Run(where, func(t *testing.T) {
			t.Parallel() // trouble is logged once it lasts
			s := newAPIServer(t, true)
			s.install(nil)
			c := in(t, s, namespaces...)
			c.next()
			s.mu.Lock()
			s.refused["secrets"] = true
			s.mu.Unlock()
			c.Fetch(t.Context(), []SecretRequest{{"team", "s", true}})
			testkit.Eventually(t, "the log says that the Secret cannot be read", func() bool { return strings.Contains(c.log.String(), "a Secret cannot be read") })
			if want := "allow the controller's ServiceAccount to get secrets " + where + ","; !strings.Contains(c.log.String(), want) {
				t.Errorf("the log lacks %q:\n%s", want, c.log)
			}
		})
	}
}

func TestNamespacesOption(t *testing.T) {
	for _, test := range []struct {
		namespaces         []string
		blue, green, other bool
	}{{nil, true, true, true}, {[]string{"green", "blue"}, true, true, false}, {[]string{"blue"}, true, false, false}} {
		source, err := New(Options{Config: &rest.Config{Host: "http://127.0.0.1:1"}, Namespaces: test.namespaces})
		if err != nil {
			t.Fatal(err)
		}
		if source.watches("blue") != test.blue || source.watches("green") != test.green || source.watches("else") != test.other {
			t.Errorf("%q: watches %q", test.namespaces, source.namespaces)
		}
	}
}

// TestAKindThatComesLaterWaitsForNoNamespace: a kind that begins to be served after the start is read and served where it may be listed, though a
// namespace has been forbidden meanwhile.
func TestAKindThatComesLaterWaitsForNoNamespace(t *testing.T) {
	s := newAPIServer(t, true)
	s.install(nil)
	for _, namespace := range []string{"blue", "green"} {
		s.put("namespaces", "Namespace", "", namespace, fields{})
		s.putRouteIn(namespace, "a")
	}
	c := follow(t, s.config(), func(source *Source) {
		source.namespaces, source.skip, source.grace = namespacesOf([]string{"blue", "green"}), 300*time.Millisecond, 0
	})
	c.next()
	installed := func() bool {
		return slices.ContainsFunc(c.installed.Kinds, func(k Served) bool { return k.Kind == "HTTPRoute" })
	}
	if !installed() {
		t.Fatalf("kinds %v", c.installed.Kinds)
	}
	s.forbid("green")
	s.mu.Lock()
	s.unserve(kindNamed("HTTPRoute"))
	s.mu.Unlock()
	s.remove(crdGroup+"/customresourcedefinitions", "", "httproutes."+gatewayGroup)
	c.until("the kind goes", func() bool { return !installed() })
	s.define(kindNamed("HTTPRoute"), "v1")
	c.until("it comes again", func() bool { return installed() && slices.Contains(c.routes(), "blue/a") })
}
