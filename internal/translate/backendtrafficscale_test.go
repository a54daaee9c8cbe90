package translate_test

import (
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	eg "github.com/moongate-dev/moongate/api/envoygateway/v1alpha1"
)

// selectingPolicy is a BackendTrafficPolicy for the HTTPRoutes that a selector selects.
func selectingPolicy(name string, selector eg.TargetSelector) *eg.BackendTrafficPolicy {
	p := &eg.BackendTrafficPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Generation: 1}}
	selector.Kind = "HTTPRoute"
	p.Spec.TargetSelectors = []eg.TargetSelector{selector}
	return p
}

// policyFor is a BackendTrafficPolicy for an object in its namespace, with a setting that has no effect on connections.
func policyFor(kind, name string) *eg.BackendTrafficPolicy {
	p := &eg.BackendTrafficPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Generation: 1}}
	p.Spec.TargetRefs = []eg.PolicyTargetReference{{LocalPolicyTargetReferenceWithSectionName: gwv1.LocalPolicyTargetReferenceWithSectionName{
		LocalPolicyTargetReference: gwv1.LocalPolicyTargetReference{Group: gwv1.GroupName, Kind: gwv1.Kind(kind), Name: gwv1.ObjectName(name)}}}}
	p.Spec.Retry = &eg.Retry{NumRetries: new(int32(2))}
	return p
}

// TestOneMoreListenerSetWithPolicy: a ListenerSet with a policy wakes neither the statuses of the policies for others nor the routes of
// others.
func TestOneMoreListenerSetWithPolicy(t *testing.T) {
	const sets, most = 50, 40 // of functions
	for _, protocol := range []gwv1.ProtocolType{gwv1.HTTPProtocolType, gwv1.TCPProtocolType} {
		w := newWorld()
		w.Upsert(ownClass("moongate"))
		gw := crowdGateway(1)
		gw.Spec.AllowedListeners = &gwv1.AllowedListeners{Namespaces: &gwv1.ListenerNamespaces{From: new(gwv1.NamespacesFromSame)}}
		w.Upsert(gw)
		add := func(i int) {
			set := &gwv1.ListenerSet{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprintf("set%d", i), Generation: 1}}
			set.Spec.ParentRef.Name = "gw"
			set.Spec.Listeners = []gwv1.ListenerEntry{{Name: "l", Port: gwv1.PortNumber(9000 + i), Protocol: protocol}}
			w.Upsert(set)
			w.Upsert(policyFor("ListenerSet", set.Name))
			route := crowdRoute(i, "/") // attaches to HTTP only
			route.Spec.ParentRefs[0] = gwv1.ParentReference{Kind: new(gwv1.Kind("ListenerSet")), Name: gwv1.ObjectName(set.Name)}
			w.Upsert(route)
		}
		for i := range sets {
			add(i)
		}
		w.Commit()
		add(sets)
		r := w.Commit()
		if n := r.Stats.RunsByName["BackendTrafficPolicy status"]; n != 1 {
			t.Errorf("%s: the statuses of %d policies were computed, want 1", protocol, n)
		}
		if r.Stats.Runs > most {
			t.Errorf("%s: %d functions ran, want at most %d: %v", protocol, r.Stats.Runs, most, r.Stats.RunsByName)
		}
	}
}

// TestOneMoreSelectedRoute: a route that joins those that a policy selects runs what concerns itself and the policy, and nothing for the others.
func TestOneMoreSelectedRoute(t *testing.T) {
	const routes, most = 2000, 40 // of functions
	w := newWorld()
	w.Upsert(ownClass("moongate"))
	w.Upsert(crowdGateway(1))
	w.Upsert(selectingPolicy("all", eg.TargetSelector{}))
	rule := selectingPolicy("rule", eg.TargetSelector{})
	rule.Spec.TargetSelectors = nil
	rule.Spec.TargetRefs = []eg.PolicyTargetReference{{LocalPolicyTargetReferenceWithSectionName: gwv1.LocalPolicyTargetReferenceWithSectionName{
		LocalPolicyTargetReference: gwv1.LocalPolicyTargetReference{Group: gwv1.GroupName, Kind: "HTTPRoute", Name: "r7"}, SectionName: new(gwv1.SectionName("first"))}}}
	w.Upsert(rule)
	for i := range routes {
		r := crowdRoute(i, "/")
		r.Spec.Rules[0].Name = new(gwv1.SectionName("first"))
		w.Upsert(r)
	}
	w.Commit()
	w.Upsert(crowdRoute(routes, "/"))
	r := w.Commit()
	if n := r.Stats.RunsByName["BackendTrafficPolicies of a route"]; n != 1 {
		t.Errorf("the policies of %d routes were looked for, want 1", n)
	}
	if r.Stats.Runs > most {
		t.Errorf("%d functions ran, want at most %d: %v", r.Stats.Runs, most, r.Stats.RunsByName)
	}
}

// TestSelectorOverNamespaces: a policy for all namespaces looks at the objects of those that grant it something, and at nothing of them but their labels.
func TestSelectorOverNamespaces(t *testing.T) {
	const namespaces, routes = 40, 50 // routes in each
	w := newWorld()
	w.Upsert(ownClass("moongate"))
	w.Upsert(crowdGateway(1))
	w.Upsert(selectingPolicy("all", eg.TargetSelector{Namespaces: &eg.TargetSelectorNamespaces{From: "All"}}))
	route := func(namespace, i int, path string) *gwv1.HTTPRoute {
		r := crowdRoute(i, path)
		r.Namespace = fmt.Sprintf("n%d", namespace)
		return r
	}
	grant := func(namespace int, only string) {
		g := &gwv1.ReferenceGrant{ObjectMeta: metav1.ObjectMeta{Namespace: fmt.Sprintf("n%d", namespace), Name: "policies"}}
		g.Spec.From = []gwv1.ReferenceGrantFrom{{Group: eg.GroupName, Kind: "BackendTrafficPolicy", Namespace: "default"}}
		g.Spec.To = []gwv1.ReferenceGrantTo{{Group: gwv1.GroupName, Kind: "HTTPRoute"}}
		if only != "" {
			g.Spec.To[0].Name = new(gwv1.ObjectName(only))
		}
		w.Upsert(g)
	}
	for n := range namespaces {
		for i := range routes {
			w.Upsert(route(n, i, "/"))
		}
	}
	const targets = "BackendTrafficPolicy targets"
	r := w.Commit()
	if got, most := r.Stats.ReadsByName[targets], namespaces+1; got > most {
		t.Errorf("%d reads where nothing is granted, want at most %d", got, most)
	}
	grant(1, "")
	grant(2, "r7")
	r = w.Commit()
	// Of each namespace the grants; of the two that grant something also which routes there are, and of those that may be selected the labels.
	if got, want := r.Stats.ReadsByName[targets], namespaces+1+2+2+routes+1; got != want {
		t.Errorf("%d reads where two namespaces grant something, want %d", got, want)
	}
	if got, want := r.Stats.RunsByName["BackendTrafficPolicies of a route"], routes+1; got != want {
		t.Errorf("%d routes have a policy, want %d", got, want)
	}
	w.Upsert(route(1, 3, "/other"))
	w.Upsert(route(2, 3, "/other"))
	if r = w.Commit(); r.Stats.RunsByName[targets] != 0 {
		t.Errorf("an edit of a route's rules has its policy look for targets again: %v", r.Stats.RunsByName)
	}
	labelled := route(1, 3, "/other")
	labelled.Labels = map[string]string{"tier": "gold"}
	w.Upsert(labelled)
	if r = w.Commit(); r.Stats.RunsByName[targets] != 1 {
		t.Errorf("a label wakes no policy: %v", r.Stats.RunsByName)
	}
}
