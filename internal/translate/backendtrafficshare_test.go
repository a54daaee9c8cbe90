package translate_test

import (
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"
	"sigs.k8s.io/yaml"

	eg "github.com/moongate-dev/moongate/api/envoygateway/v1alpha1"
	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/translate"
)

// trafficPolicyFor is a BackendTrafficPolicy for an HTTPRoute of its namespace, or for Gateway default/gw if route is "".
func trafficPolicyFor(t *testing.T, namespace, name string, created int64, route, settings string) *eg.BackendTrafficPolicy {
	t.Helper()
	p := &eg.BackendTrafficPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, CreationTimestamp: metav1.Unix(created, 0)}}
	if err := yaml.Unmarshal([]byte(settings), &p.Spec); err != nil || p.Spec.Unread != (eg.Unread{}) {
		t.Fatalf("%s: %v %+v", settings, err, p.Spec.Unread)
	}
	ref := gwv1.LocalPolicyTargetReferenceWithSectionName{LocalPolicyTargetReference: gwv1.LocalPolicyTargetReference{Group: gwv1.GroupName, Kind: "HTTPRoute", Name: gwv1.ObjectName(route)}}
	if route == "" {
		ref.Kind, ref.Name = "Gateway", "gw"
	}
	p.Spec.TargetRefs = []eg.PolicyTargetReference{{LocalPolicyTargetReferenceWithSectionName: ref}}
	return p
}

// sharingWorld has a Gateway for routes of all namespaces, and a Redis.
func sharingWorld() *world {
	o := options
	o.RateLimits = &config.RateLimitService{Address: "192.0.2.9:6379"}
	w := newWorldWith(o)
	w.Upsert(ownClass("moongate"))
	gw, all := crowdGateway(1), gwv1.NamespacesFromAll
	for i := range gw.Spec.Listeners {
		gw.Spec.Listeners[i].AllowedRoutes = &gwv1.AllowedRoutes{Namespaces: &gwv1.RouteNamespaces{From: &all}}
	}
	w.Upsert(gw)
	return w
}

// routeIn is a route of a namespace at both listeners of that Gateway.
func routeIn(namespace, name string) *gwv1.HTTPRoute {
	r := crowdRoute(1, "/")
	home := gwv1.Namespace("default")
	r.Namespace, r.Name, r.Spec.Hostnames, r.Spec.ParentRefs[0].Namespace = namespace, name, nil, &home
	return r
}

// accepted is what the policy's first ancestor says of Accepted: "" for True, else the message.
func (w *world) accepted(t *testing.T, namespace, name string) string {
	t.Helper()
	for _, s := range w.statuses {
		if status, is := s.Status.(*gwv1.PolicyStatus); is && s.Object.Kind == "BackendTrafficPolicy" && s.Object.Namespace == namespace && s.Object.Name == name {
			for _, c := range status.Ancestors[0].Conditions {
				if c.Type == "Accepted" && c.Status == metav1.ConditionTrue {
					return ""
				} else if c.Type == "Accepted" {
					return c.Message
				}
			}
		}
	}
	t.Fatalf("BackendTrafficPolicy %s/%s has no condition Accepted", namespace, name)
	return ""
}

// TestExpressionsOfPolicies: the regular expressions of a namespace's policies are bounded together. The newest policies lose, and not those of other namespaces.
func TestExpressionsOfPolicies(t *testing.T) {
	w := sharingWorld()
	limits := func(n int) string { // of size 1,993 each
		rules := ""
		for i := range n {
			rules += fmt.Sprintf("    - {limit: {requests: 1, unit: Hour}, clientSelectors: [{headers: [{name: x, type: RegularExpression, value: 'xxxxx%d.{0,990}'}]}]}\n", i)
		}
		return "rateLimit:\n  local:\n    rules:\n" + rules
	}
	add := func(namespace, name string, created int64, expressions int) {
		w.Upsert(routeIn(namespace, name))
		w.Upsert(trafficPolicyFor(t, namespace, name, created, name, limits(expressions)))
	}
	for i := range 5 {
		add("greedy", fmt.Sprintf("old-%d", i), int64(100+i), 5)
	}
	add("greedy", "new", 1000, 5)
	add("greedy", "without", 2000, 0)
	add("modest", "young", 3000, 5)
	w.commit(t)
	for i := range 5 {
		if got := w.accepted(t, "greedy", fmt.Sprintf("old-%d", i)); got != "" {
			t.Errorf("of an older policy: %s", got)
		}
	}
	for _, part := range []string{"spec.rateLimit: ", "no room for its regular expressions", "50000", "shorten"} {
		if got := w.accepted(t, "greedy", "new"); !strings.Contains(got, part) {
			t.Errorf("%q is not in %q", part, got)
		}
	}
	if got := w.config[config.ID{Kind: config.KindRoute, Key: "HTTPRoute/greedy/new"}].GetRoute().GetRules()[0].Failure.GetStatus(); got != 500 {
		t.Errorf("the rule whose policy has no room answers %d, want 500", got)
	}
	if got := w.accepted(t, "greedy", "without"); got != "" {
		t.Errorf("of a policy without expressions: %s", got)
	}
	if got := w.accepted(t, "modest", "young"); got != "" {
		t.Errorf("of another namespace's policy: %s", got)
	}
	w.Delete(translate.KindBackendTrafficPolicy, "greedy", "old-2")
	w.commit(t)
	if got := w.accepted(t, "greedy", "new"); got != "" {
		t.Errorf("with room for it: %s", got)
	}
}

// TestLongDistinctLimits: the limits of a namespace for which Redis remembers values for long are bounded.
func TestLongDistinctLimits(t *testing.T) {
	limit := func(unit, more string) string {
		return "rateLimit: {global: {rules: [{clientSelectors: [{headers: [{type: Distinct, name: x-user}]}], limit: {requests: 5, unit: " + unit + "}" + more + "}]}}"
	}
	for name, c := range map[string]struct {
		settings string
		bounded  bool
	}{
		"days": {limit("Day", ""), true}, "hours": {limit("Hour", ""), false}, "shared": {limit("Year", ", shared: true"), false},
		"not distinct": {"rateLimit: {global: {rules: [{limit: {requests: 5, unit: Year}}]}}", false},
	} {
		t.Run(name, func(t *testing.T) {
			w := sharingWorld()
			const routes = 150
			for _, policy := range []string{"first", "second"} {
				p := trafficPolicyFor(t, "shop", policy, int64(len(policy)), policy+"-0", c.settings)
				for i := range routes {
					r := fmt.Sprintf("%s-%d", policy, i)
					w.Upsert(routeIn("shop", r))
					if i > 0 {
						ref := p.Spec.TargetRefs[0]
						ref.Name = gwv1.ObjectName(r)
						p.Spec.TargetRefs = append(p.Spec.TargetRefs, ref)
					}
				}
				w.Upsert(p)
			}
			w.commit(t)
			if got := w.accepted(t, "shop", "first"); got != "" {
				t.Errorf("of the first policy: %s", got)
			}
			got := w.accepted(t, "shop", "second")
			if (got != "") != c.bounded || c.bounded && (!strings.HasPrefix(got, "spec.rateLimit.global.rules: it has 150 limits") || !strings.Contains(got, "shared: true")) {
				t.Errorf("of the second policy: %q, want one that is refused: %v", got, c.bounded)
			}
		})
	}
}

// TestMergedOnce: two policies are merged once for all routes for which they are in force, and not at all for an edit of a route.
func TestMergedOnce(t *testing.T) {
	const routes = 200
	w := sharingWorld()
	w.Upsert(trafficPolicyFor(t, "default", "gateway", 1, "", "retry: {numRetries: 1}"))
	child := func(retries int) *eg.BackendTrafficPolicy {
		p := trafficPolicyFor(t, "default", "routes", 2, "r-0", fmt.Sprintf("mergeType: JSONMerge\nretry: {numRetries: %d}", retries))
		for i := 1; i < routes; i++ {
			ref := p.Spec.TargetRefs[0]
			ref.Name = gwv1.ObjectName(fmt.Sprintf("r-%d", i))
			p.Spec.TargetRefs = append(p.Spec.TargetRefs, ref)
		}
		return p
	}
	for i := range routes {
		w.Upsert(routeIn("default", fmt.Sprintf("r-%d", i)))
	}
	w.Upsert(child(3))
	const merging = "merged BackendTrafficPolicies"
	if n := w.commit(t).Stats.RunsByName[merging]; n != 1 {
		t.Errorf("policies are merged %d times for %d routes, want 1", n, routes)
	}
	rule := w.config[config.ID{Kind: config.KindRoute, Key: "HTTPRoute/default/r-7"}].GetRoute().GetRules()[0]
	if got := rule.GetTraffic().GetPolicy(); got != "BackendTrafficPolicy default/routes, merged with default/gateway" || rule.Retry.GetAttempts() != 3 {
		t.Errorf("in force is %q, with %d retries", got, rule.Retry.GetAttempts())
	}
	w.Upsert(child(4))
	if n := w.commit(t).Stats.RunsByName[merging]; n != 1 {
		t.Errorf("an edit of one policy merges %d times, want 1", n)
	}
	w.Upsert(trafficPolicyFor(t, "default", "gateway", 1, "", "retry: {numRetries: 2}"))
	if stats := w.commit(t).Stats; stats.RunsByName[merging] != 1 || stats.RunsByName["route config"] != 0 {
		t.Errorf("an edit of a policy that changes nothing of what is merged runs %v", stats.RunsByName)
	}
	r := routeIn("default", "r-7")
	path := "/other"
	r.Spec.Rules[0].Matches[0].Path.Value, r.Generation = &path, 2
	w.Upsert(r)
	if stats := w.commit(t).Stats; stats.RunsByName[merging] != 0 || stats.RunsByName["route config"] != 1 {
		t.Errorf("an edit of a route runs %v", stats.RunsByName)
	}
	w.Delete(translate.KindBackendTrafficPolicy, "default", "gateway")
	w.commit(t)
	if got := w.config[config.ID{Kind: config.KindRoute, Key: "HTTPRoute/default/r-7"}].GetRoute().GetRules()[0].GetTraffic().GetPolicy(); got != "BackendTrafficPolicy default/routes" {
		t.Errorf("in force without the Gateway's policy is %q", got)
	}
}
