package translate

import (
	"fmt"
	"testing"

	gwv1 "sigs.k8s.io/gateway-api/apis/v1"
)

// TestManyAncestors: to find one of the ancestors of a policy that selects many routes costs the same however many others there are.
func TestManyAncestors(t *testing.T) {
	const routes, parents = 500, 4
	ref := func(i int) gwv1.ParentReference {
		return ancestorRef(kindName{KindGateway, name{"default", "gw"}}, fmt.Sprintf("l%d", i))
	}
	var all trafficAncestors
	for i := range routes * parents {
		all.of(ref(i))
	}
	last := ref(routes*parents - 1)
	found := all.of(last)
	if got := testing.AllocsPerRun(3, func() {
		if all.of(last) != found {
			t.Error("it is there twice")
		}
	}); got > 5 {
		t.Errorf("%v allocations to find one of %d ancestors, want at most 5", got, routes*parents)
	}
	if n := len(all.list); n != routes*parents {
		t.Errorf("%d ancestors, want %d", n, routes*parents)
	}
	port := gwv1.PortNumber(80)
	for _, other := range []func(*gwv1.ParentReference){
		func(r *gwv1.ParentReference) { r.Group = new(gwv1.Group("other")) },
		func(r *gwv1.ParentReference) { r.Kind = new(gwv1.Kind("ListenerSet")) },
		func(r *gwv1.ParentReference) { r.Namespace = new(gwv1.Namespace("other")) },
		func(r *gwv1.ParentReference) { r.Name = "other" },
		func(r *gwv1.ParentReference) { r.SectionName = nil },
		func(r *gwv1.ParentReference) { r.Port = &port },
	} {
		r := last
		if other(&r); all.of(r) == found {
			t.Errorf("%+v is taken for another", r)
		}
	}
}
