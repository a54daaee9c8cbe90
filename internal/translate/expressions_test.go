package translate_test

import (
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	eg "github.com/moongate-dev/moongate/api/envoygateway/v1alpha1"
	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/kind"
	"github.com/moongate-dev/moongate/internal/translate"
)

// expressionRoute has a rule with so many regular expressions of size 1,993 and one with a prefix.
func expressionRoute(n string, created int64, expressions int) *gwv1.HTTPRoute {
	r := crowdRoute(1, "/prefix")
	r.Name, r.CreationTimestamp = n, metav1.Unix(created, 0)
	rl := gwv1.HTTPRouteRule{BackendRefs: r.Spec.Rules[0].BackendRefs}
	kind := gwv1.PathMatchRegularExpression
	for i := range expressions {
		pattern := fmt.Sprintf("/%s%d.{0,990}", strings.Repeat("x", 5), i)
		rl.Matches = append(rl.Matches, gwv1.HTTPRouteMatch{Path: &gwv1.HTTPPathMatch{Type: &kind, Value: &pattern}})
	}
	r.Spec.Rules = append(r.Spec.Rules, rl)
	return r
}

// rules are the indexes of a route's rules that are served, and what its parent's PartiallyInvalid says.
func (w *world) rules(n string) (indexes []uint32, partial string) {
	r := w.config[config.ID{Kind: config.KindRoute, Key: "HTTPRoute/default/" + n}].GetRoute()
	for _, rl := range r.GetRules() {
		indexes = append(indexes, rl.Index)
	}
	for _, s := range w.statuses {
		if status, is := s.Status.(*gwv1.RouteStatus); is && s.Object.Name == n {
			for _, c := range status.Parents[0].Conditions {
				if c.Type == string(gwv1.RouteConditionPartiallyInvalid) {
					partial = c.Message
				}
			}
		}
	}
	return indexes, partial
}

// TestExpressionsOfNamespaces has a namespace bring more regular expressions than a listener takes of it: routes of
// another one keep theirs, though they are newer. A route that comes wakes none whose verdict stays.
func TestExpressionsOfNamespaces(t *testing.T) {
	w := newWorld()
	w.Upsert(ownClass("moongate"))
	gw, all := crowdGateway(1), gwv1.NamespacesFromAll
	for i := range gw.Spec.Listeners {
		gw.Spec.Listeners[i].AllowedRoutes = &gwv1.AllowedRoutes{Namespaces: &gwv1.RouteNamespaces{From: &all}}
	}
	w.Upsert(gw)
	w.Upsert(crowdService(1))
	of := func(namespace, n string, created int64) *gwv1.HTTPRoute {
		r := expressionRoute(n, created, 1)
		home := gwv1.Namespace("default")
		r.Namespace, r.Spec.ParentRefs[0].Namespace = namespace, &home
		return r
	}
	const many = 120
	for i := range many {
		w.Upsert(of("greedy", fmt.Sprintf("old-%03d", i), int64(100+i)))
	}
	w.Upsert(of("modest", "young", 1000))
	w.commit(t)
	served := func(key string) int {
		return len(w.config[config.ID{Kind: config.KindRoute, Key: "HTTPRoute/" + key}].GetRoute().GetRules())
	}
	if first, last := served("greedy/old-000"), served("greedy/old-119"); first != 2 || last != 1 {
		t.Errorf("of the oldest and the newest route %d and %d rules are served, want 2 and 1", first, last)
	}
	if got := served("modest/young"); got != 2 {
		t.Errorf("of another namespace's route %d rules are served, want 2", got)
	}

	w.Upsert(of("greedy", "newest", 2000))
	if r := w.commit(t); r.Stats.RunsByName["route config"] != 1 || r.Stats.RunsByName["route status"] != 1 {
		t.Errorf("a route beyond the limit runs %v", r.Stats.RunsByName)
	}
	w.Upsert(of("greedy", "oldest", 1))
	if r := w.commit(t); r.Stats.RunsByName["route config"] != 2 || r.Stats.RunsByName["route status"] != 2 {
		t.Errorf("a route that takes the place of another one runs %v", r.Stats.RunsByName)
	}
}

// TestListenerExpressions fills a listener with regular expressions: the newest route loses its rules that
// have any, and nothing else, until there is room.
func TestListenerExpressions(t *testing.T) {
	w := newWorld()
	w.Upsert(ownClass("moongate"))
	w.Upsert(crowdGateway(1))
	w.Upsert(crowdService(1))
	const full = 5 // routes of five expressions each
	for i := range full {
		w.Upsert(expressionRoute(fmt.Sprintf("old-%02d", i), int64(100+i), 5))
	}
	w.Upsert(expressionRoute("new", 1000, 5))
	w.Upsert(expressionRoute("newest", 2000, 0))
	w.commit(t)

	all := func(n string, want bool) {
		t.Helper()
		indexes, partial := w.rules(n)
		if (len(indexes) == 2) != want || (partial == "") != want || len(indexes) == 0 || indexes[0] != 0 {
			t.Errorf("%s: rules %v, %q, all wanted: %v", n, indexes, partial, want)
		}
	}
	all("new", false)
	all("newest", true)
	for i := range full {
		all(fmt.Sprintf("old-%02d", i), true)
	}
	_, partial := w.rules("new")
	for _, part := range []string{"Rule 1: spec.rules[1].matches[0].path.value", "/xxxxx0.{0,990}", `of Gateway default/gw has no room`, "50000", "attach the route to another listener"} {
		if !strings.Contains(partial, part) {
			t.Errorf("%q is not in %q", part, partial)
		}
	}

	small := expressionRoute("small", 3000, 0)
	kind, pattern := gwv1.PathMatchRegularExpression, "/[a-z]+"
	small.Spec.Rules[1].Matches = []gwv1.HTTPRouteMatch{{Path: &gwv1.HTTPPathMatch{Type: &kind, Value: &pattern}}}
	w.Upsert(small)
	w.commit(t)
	all("small", true)

	w.Delete(translate.KindHTTPRoute, "default", "old-02")
	w.commit(t)
	all("new", true)

	w.Upsert(expressionRoute("oldest", 1, 5))
	w.commit(t)
	all("oldest", true)
	all("new", false)
	all("old-04", true)

	only := expressionRoute("only", 1<<32, 5)
	only.Spec.Rules = only.Spec.Rules[1:]
	w.Upsert(only)
	w.commit(t)
	if r := w.config[config.ID{Kind: config.KindRoute, Key: "HTTPRoute/default/only"}]; r != nil {
		t.Errorf("of a route without room is served: %v", r)
	}
	for _, s := range w.statuses {
		if status, is := s.Status.(*gwv1.RouteStatus); is && s.Object.Name == "only" {
			if c := status.Parents[0].Conditions[0]; c.Status != metav1.ConditionFalse || !strings.Contains(c.Message, "no rule can be carried out") {
				t.Errorf("of a route without room is said: %+v", c)
			}
		}
	}
}

// TestExpressionsOfFilteredRules has rules with filters lose the room for their regular expressions: whatever begins like what these match fails.
func TestExpressionsOfFilteredRules(t *testing.T) {
	w := newWorld()
	w.Upsert(ownClass("moongate"))
	w.Upsert(crowdGateway(1))
	w.Upsert(crowdService(1))
	for i := range 5 {
		w.Upsert(expressionRoute(fmt.Sprintf("old-%02d", i), int64(100+i), 5))
	}
	filters := []gwv1.HTTPRouteFilter{{Type: gwv1.HTTPRouteFilterResponseHeaderModifier, ResponseHeaderModifier: &gwv1.HTTPHeaderFilter{Remove: []string{"x"}}}}
	of := func(n string, spoil func(*gwv1.HTTPRouteRule)) []*config.Rule {
		t.Helper()
		r := expressionRoute(n, 1000, 5)
		r.Spec.Rules[1].Filters = filters
		spoil(&r.Spec.Rules[1])
		w.Upsert(r)
		w.commit(t)
		return w.config[config.ID{Kind: config.KindRoute, Key: "HTTPRoute/default/" + n}].GetRoute().GetRules()
	}
	zero := gwv1.Duration("0.5s")
	for n, spoil := range map[string]func(*gwv1.HTTPRouteRule){
		"sound":     func(*gwv1.HTTPRouteRule) {},
		"backend":   func(r *gwv1.HTTPRouteRule) { r.Filters, r.BackendRefs[0].Filters = nil, filters },
		"two wrong": func(r *gwv1.HTTPRouteRule) { r.Timeouts = &gwv1.HTTPRouteTimeouts{Request: &zero} },
	} {
		rules := of(strings.ReplaceAll(n, " ", "-"), spoil)
		if len(rules) != 2 || rules[1].Failure.GetStatus() != 500 || len(rules[1].Matches) != 5 || len(rules[1].BackendRefs) != 0 {
			t.Fatalf("%s: rules %v", n, rules)
		}
		if path := rules[1].Matches[0].Path.Value; !strings.HasSuffix(path, "/xxxxx0.*") || len(path) < len("/xxxxx0.{0,990}") {
			t.Errorf("%s: it fails %s", n, path)
		}
		if _, partial := w.rules(strings.ReplaceAll(n, " ", "-")); !strings.Contains(partial, "requests are answered with 500 that match rule 1") {
			t.Errorf("%s: said is %q", n, partial)
		}
	}
}

// TestAttachedRoutesWithoutRoom: a route of which no rule has room for its regular expressions is not accepted, and so it is not counted, until there is room.
func TestAttachedRoutesWithoutRoom(t *testing.T) {
	w := newWorld()
	w.Upsert(ownClass("moongate"))
	w.Upsert(crowdGateway(1))
	w.Upsert(crowdService(1))
	route := func(i int) *gwv1.HTTPRoute {
		r := expressionRoute(fmt.Sprint("r", i), int64(100+i), 5)
		r.Spec.Rules = r.Spec.Rules[1:]
		return r
	}
	policyFor := func(name string, kind gwv1.Kind, target string) *eg.BackendTrafficPolicy {
		p := &eg.BackendTrafficPolicy{}
		p.Namespace, p.Name = "default", name
		ref := eg.PolicyTargetReference{}
		ref.Group, ref.Kind, ref.Name = gwv1.GroupName, kind, gwv1.ObjectName(target)
		p.Spec.TargetRefs = []eg.PolicyTargetReference{ref}
		return p
	}
	w.Upsert(policyFor("all", "Gateway", "gw"))
	w.Upsert(policyFor("sixth", "HTTPRoute", "r6"))
	expect := func(what string, attached int32, overridden bool) {
		t.Helper()
		gw := w.statuses[kind.ObjectKey{Group: gwv1.GroupName, Kind: "Gateway", Namespace: "default", Name: "gw"}].Status.(*gwv1.GatewayStatus)
		accepted := int32(0)
		for key, s := range w.statuses {
			if status, is := s.Status.(*gwv1.RouteStatus); is && key.Kind == "HTTPRoute" && status.Parents[0].Conditions[0].Status == metav1.ConditionTrue {
				accepted++
			}
		}
		if got := gw.Listeners[0].AttachedRoutes; got != attached || accepted != attached {
			t.Errorf("%s: %d routes are attached, %d accepted, want %d", what, got, accepted, attached)
		}
		all := w.statuses[kind.ObjectKey{Group: eg.GroupName, Kind: "BackendTrafficPolicy", Namespace: "default", Name: "all"}].Status.(*gwv1.PolicyStatus)
		if got := meta.IsStatusConditionTrue(all.Ancestors[0].Conditions, "Overridden"); got != overridden {
			t.Errorf("%s: the Gateway's policy is overridden by that of the route: %t", what, got)
		}
	}
	for i := 1; i <= 5; i++ {
		w.Upsert(route(i))
	}
	w.commit(t)
	expect("five routes", 5, false)
	w.Upsert(route(6))
	w.commit(t)
	expect("one without room", 5, false)
	w.Delete(translate.KindHTTPRoute, "default", "r3")
	w.commit(t)
	expect("in the place of another one", 5, true)
	w.Upsert(route(0))
	w.commit(t)
	expect("with an older one", 5, false)
	other := route(6)
	other.Spec.Rules = append(other.Spec.Rules, crowdRoute(1, "/").Spec.Rules...)
	w.Upsert(other)
	w.commit(t)
	expect("with a rule without regular expressions", 6, true)
}
