package cli

import (
	"fmt"
	"testing"

	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/moongate-dev/moongate/internal/kind"
	"github.com/moongate-dev/moongate/internal/source/files"
	"github.com/moongate-dev/moongate/internal/source/schema"
)

// TestSuggestionsCompareFew: a reference is compared with the names of its kind and namespace, once however many objects have it, so that the work grows as the objects do.
func TestSuggestionsCompareFew(t *testing.T) {
	const namespaces, each, routes = 40, 5, 10
	var objects []files.Object
	for n := range namespaces {
		for i := range each {
			objects = append(objects, files.Object{ID: kind.Service.Key(fmt.Sprintf("n%d", n), fmt.Sprintf("backend-%d", i))}, files.Object{ID: kind.Gateway.Key(fmt.Sprintf("n%d", n), fmt.Sprintf("gateway-%d", i)), Object: gatewayNamed(fmt.Sprintf("n%d", n), fmt.Sprintf("gateway-%d", i))})
		}
	}
	compared := 0
	counting := func(name string, candidates []string) string {
		compared += len(candidates)
		return schema.Nearest(name, candidates)
	}
	s := newSuggestions(objects, nil)
	s.names.compare = counting
	r := newReferences(nil, objects, nil)
	r.parents.compare = counting
	for n := range namespaces {
		namespace := fmt.Sprintf("n%d", n)
		for i := range routes {
			if got, want := s.rewrite("Service "+namespace+"/backend-x1 does not exist; create it or correct the name", namespace), "Service "+namespace+"/backend-x1 does not exist; did you mean backend-1? Else create it"; got != want {
				t.Fatalf("%q, want %q", got, want)
			}
			r.parent(files.Object{ID: kind.HTTPRoute.Key(namespace, fmt.Sprint(i))}, "spec.parentRefs[0]", kind.Gateway.Kind, nil, "gateway-x1")
		}
	}
	if want := 2 * namespaces * each; compared != want {
		t.Errorf("%d names were compared for %d references, want %d", compared, 2*namespaces*routes, want)
	}
	if len(r.problems) != namespaces*routes || r.problems[0].Remedy != "did you mean gateway-1?" {
		t.Errorf("the problems are %v", r.problems)
	}
}

func gatewayNamed(namespace, name string) *gwv1.Gateway {
	gw := new(gwv1.Gateway)
	gw.Namespace, gw.Name = namespace, name
	return gw
}

// TestNameIndex: what was removed is not meant any more, and what was added later may be.
func TestNameIndex(t *testing.T) {
	x := newNameIndex()
	a, b, far := kind.Service.Key("n", "backend-1"), kind.Service.Key("n", "backend-2"), kind.Service.Key("far", "backend-1")
	if x.nearest(kind.Service.Kind, "n", "backend-1x") != "" {
		t.Error("an empty index has a name")
	}
	x.add(a)
	x.add(a)
	x.add(far)
	if got := x.nearest(kind.Service.Kind, "n", "backend-1x"); got != "backend-1" || x.elsewhere(kind.Service.Kind, "backend-1") != "" {
		t.Errorf("nearest is %q, or one of two namespaces counts", got)
	}
	x.remove(a)
	x.add(b)
	if got := x.nearest(kind.Service.Kind, "n", "backend-2x"); got != "backend-2" || x.has(a) || x.elsewhere(kind.Service.Kind, "backend-1") != "far" {
		t.Errorf("after a change nearest is %q, and the objects are %v", got, x.names)
	}
	x.remove(b)
	x.remove(far)
	if len(x.names)+len(x.places) > 0 {
		t.Errorf("something is left of what was removed: %v %v", x.names, x.places)
	}
}

// TestListenerSetsOfListeners: a ListenerSet is named that has a listener, as long as it has it and is the only one.
func TestListenerSetsOfListeners(t *testing.T) {
	set := func(name, listener string) files.Object {
		l := new(gwv1.ListenerSet)
		l.Namespace, l.Name = "n", name
		l.Spec.Listeners = []gwv1.ListenerEntry{{Name: gwv1.SectionName(listener)}}
		return files.Object{ID: kind.ListenerSet.Key("n", name), Object: l}
	}
	s := newSuggestions([]files.Object{set("one", "web"), set("two", "web")}, nil)
	if got := s.ofListenerSet("n", "web"); got != "" {
		t.Errorf("one of two ListenerSets is named: %q", got)
	}
	s.add(set("two", "other"))
	if got := s.ofListenerSet("n", "web"); got != "one" {
		t.Errorf("%q is named, want one", got)
	}
	s.remove(kind.ListenerSet.Key("n", "one"))
	if got := s.ofListenerSet("n", "web") + s.ofListenerSet("elsewhere", "other"); got != "" || len(s.sets) != 1 {
		t.Errorf("%q is named, and the listeners are %v", got, s.sets)
	}
}

// TestSuggestionsOfRefused: of an object that is there and was refused it is not said that it does not exist, until it is valid or gone, and no name is suggested to who has asked for it.
func TestSuggestionsOfRefused(t *testing.T) {
	config := kind.ConfigMap.Key("n", "ca")
	s := newSuggestions([]files.Object{{ID: kind.Service.Key("n", "web")}}, []files.Problem{{Object: kind.Service.Key("n", "cart")}, {Object: config}, {Object: kind.Secret.Key("n", "old"), Warning: true}})
	says := func(object, want string) {
		t.Helper()
		if got := s.rewrite("spec.x.name: "+object+" does not exist; create it or correct the name; see condition ResolvedRefs", "n"); got != "spec.x.name: "+object+" "+want+"; see condition ResolvedRefs" {
			t.Errorf("%s", got)
		}
	}
	const refused, absent = "is not valid; correct what is reported of it", "does not exist; create it or correct the name"
	says("Service n/cart", refused)
	says("ConfigMap n/ca", refused)
	says("Service n/carts", "does not exist; did you mean cart? Else create it")
	says("Service n/web", absent) // a status that comes late
	says("Secret n/old", absent)
	s.add(files.Object{ID: config})
	says("ConfigMap n/ca", absent)
	s.add(files.Object{ID: config, Object: new(kind.Undecoded)})
	says("ConfigMap n/ca", refused)
	s.remove(config)
	says("ConfigMap n/ca", absent)
}
