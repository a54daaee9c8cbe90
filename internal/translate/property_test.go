package translate_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"
	apisx "sigs.k8s.io/gateway-api/apisx/v1alpha1"

	gwx "github.com/moongate-dev/moongate/api/gatewayx/v1alpha1"
	"github.com/moongate-dev/moongate/api/v1alpha1"
	"github.com/moongate-dev/moongate/internal/kind"
	"github.com/moongate-dev/moongate/internal/translate"
)

// TestIncrementalEqualsScratch applies random sequences of changes to the objects of
// all golden cases at once, which share names and so refer to each other, and compares
// with a Translator that sees the final objects only.
func TestIncrementalEqualsScratch(t *testing.T) {
	var pool []input
	for _, path := range goldenFiles(t) {
		pool = append(pool, readGolden(t, path).inputs...)
	}
	for seed := range uint64(8) {
		r := rand.New(rand.NewPCG(seed, 7))
		o := options
		if seed%2 == 1 {
			o = clusterOptions
		}
		w := newWorldWith(o)
		current := map[string]input{}
		for step := range 120 {
			for range 1 + r.IntN(6) {
				change(r, w, current, pool)
			}
			w.commit(t)
			if step%10 != 9 {
				continue
			}
			for len(w.answerAbsent(current)) > 0 {
				w.commit(t)
			}
			w.commit(t)
			if again := w.Commit(); again.Stats.Runs != 0 || !again.Config.Empty() || len(again.Statuses)+len(again.ProxySpecs)+len(again.Selectors)+len(again.SecretRequests) != 0 {
				t.Fatalf("seed %d step %d: a commit without changes does %v", seed, step, again)
			}
			w.checkStatuses(t)
			var inputs []input
			for _, i := range current {
				inputs = append(inputs, i)
			}
			if want, got := scratch(t, o, inputs), w.print(t); got != want {
				t.Fatalf("seed %d step %d: incremental differs from scratch:\n%s", seed, step, firstDifference(want, got))
			}
		}
	}
}

// checkStatuses compares all present statuses with those that were reported as changes. The Gateways of a status are as of the commit
// that reported it.
func (w *world) checkStatuses(t *testing.T) {
	t.Helper()
	all := w.Statuses()
	if len(all) != len(w.statuses) {
		t.Errorf("%d statuses, want %d", len(all), len(w.statuses))
	}
	for _, got := range all {
		if want := w.statuses[got.Object]; got.Generation != want.Generation || got.UID != want.UID || !reflect.DeepEqual(got.Status, want.Status) {
			t.Errorf("the status is %+v, want %+v", got, want)
		}
	}
}

// answerAbsent answers the SecretRequests of Secrets that are not there, as far as it has not done so, and returns them.
func (w *world) answerAbsent(current map[string]input) (answered []kind.ObjectKey) {
	for key := range w.needed {
		if _, there := current[fmt.Sprintf("%T/%s/%s", &corev1.Secret{}, key.Namespace, key.Name)]; !there && !w.absent[key] {
			w.Fetched(key, nil)
			w.absent[key] = true
			answered = append(answered, key)
		}
	}
	maps.DeleteFunc(w.absent, func(key kind.ObjectKey, _ bool) bool { return !w.needed[key] })
	return answered
}

// change does one random thing: an upsert, a delete, or an echo of what is there.
func change(r *rand.Rand, w *world, current map[string]input, pool []input) {
	i := pool[r.IntN(len(pool))]
	key := identify(i)
	known, exists := current[key]
	switch n := r.IntN(10); {
	case n < 3 && exists && known.installed == nil: // which cannot be taken back
		withdraw(w, known)
		delete(current, key)
	case n < 5 && exists && known.object != nil:
		w.Upsert(echo(known.object, r))
	default:
		w.upsert(i)
		current[key] = i
	}
}

func identify(i input) string {
	switch {
	case i.installed != nil:
		return "Installed"
	case i.tickets != nil:
		return "Tickets"
	case i.infrastructure != nil:
		return "Infrastructure/" + i.gateway
	case i.object == nil:
		return "Fault/" + i.listener + i.gateway + "/" + i.address + i.route
	}
	return fmt.Sprintf("%s/%s/%s", typeOf(i.object), i.object.GetNamespace(), i.object.GetName())
}

// typeOf is the type of an object, or of the one whose place it takes.
func typeOf(o metav1.Object) string {
	if u, undecoded := o.(*kind.Undecoded); undecoded {
		o = kinds[u.Kind]()
	}
	return fmt.Sprintf("%T", o)
}

func withdraw(w *world, i input) {
	switch {
	case i.listener != "":
		w.setListenerFault(i.listener, nil)
	case i.tickets != nil:
		w.SetTickets(translate.Tickets{})
	case i.infrastructure != nil:
		namespace, name, _ := strings.Cut(i.gateway, "/")
		w.SetInfrastructure(namespace, name, nil)
	case i.route != "":
		namespace, name, _ := strings.Cut(i.gateway, "/")
		w.SetRouteFault(i.route, namespace, name, nil)
	case i.gateway != "":
		namespace, name, _ := strings.Cut(i.gateway, "/")
		w.SetAddressFault(namespace, name, i.address, nil)
	default:
		w.Delete(kindOf(i.object), i.object.GetNamespace(), i.object.GetName())
	}
}

func kindOf(o metav1.Object) translate.Kind {
	for kind, fresh := range kinds {
		if typeOf(fresh()) == typeOf(o) {
			return translate.Kind(kind)
		}
	}
	panic(typeOf(o))
}

// echo is the object as it comes back after somebody wrote its status.
func echo(o metav1.Object, r *rand.Rand) metav1.Object {
	condition := []metav1.Condition{{Type: "Accepted", Status: "True", Reason: "Echo", LastTransitionTime: metav1.NewTime(time.Unix(r.Int64N(1e9), 0))}}
	var out metav1.Object
	switch o := o.(type) {
	case *gwv1.Gateway:
		c := o.DeepCopy()
		c.Status.Conditions = condition
		out = c
	case *gwv1.GatewayClass:
		c := o.DeepCopy()
		c.Status.Conditions = condition
		out = c
	case *gwv1.HTTPRoute:
		c := o.DeepCopy()
		c.Status.Parents = []gwv1.RouteParentStatus{{Conditions: condition}}
		out = c
	case *gwv1.BackendTLSPolicy:
		c := o.DeepCopy()
		c.Status.Ancestors = []gwv1.PolicyAncestorStatus{{Conditions: condition}}
		out = c
	case *gwv1.ListenerSet:
		c := o.DeepCopy()
		c.Status.Conditions = condition
		out = c
	case *corev1.Service:
		c := o.DeepCopy()
		c.Status.Conditions = condition
		out = c
	case *gwv1.GRPCRoute:
		c := o.DeepCopy()
		c.Status.Parents = []gwv1.RouteParentStatus{{Conditions: condition}}
		out = c
	case *gwv1.TLSRoute:
		c := o.DeepCopy()
		c.Status.Parents = []gwv1.RouteParentStatus{{Conditions: condition}}
		out = c
	case *gwv1.TCPRoute:
		c := o.DeepCopy()
		c.Status.Parents = []gwv1.RouteParentStatus{{Conditions: condition}}
		out = c
	case *apisx.XBackend:
		c := o.DeepCopy()
		c.Status.Ancestors = []apisx.BackendAncestorStatus{{Conditions: condition}}
		out = c
	case *v1alpha1.GatewayParameters:
		c := o.DeepCopy()
		c.Status.Conditions = condition
		out = c
	case *corev1.Namespace:
		c := o.DeepCopy()
		c.Status.Phase = corev1.NamespaceActive
		out = c
	default:
		return o
	}
	out.SetResourceVersion(fmt.Sprint(r.Int64()))
	out.SetManagedFields([]metav1.ManagedFieldsEntry{{Manager: "somebody"}})
	return out
}

// TestStatusEchoWakesNothing is about every kind that has a status.
func TestStatusEchoWakesNothing(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	echoed := map[string]bool{}
	for _, path := range goldenFiles(t) {
		w := newWorldWith(optionsOf(path))
		inputs := readGolden(t, path).inputs
		for _, i := range inputs {
			w.upsert(i)
		}
		w.commit(t)
		w.commit(t) // takes in what listeners are served with
		for _, i := range inputs {
			if i.object == nil {
				continue
			}
			if e := echo(i.object, r); e != i.object {
				w.Upsert(e)
				echoed[fmt.Sprintf("%T", e)] = true
			}
		}
		if res := w.Commit(); res.Stats.Runs != 0 || len(res.Statuses) != 0 || !res.Config.Empty() {
			t.Errorf("%s: an echo of the status runs %v", path, res.Stats.RunsByName)
		}
	}
	if len(echoed) != 12 {
		t.Errorf("echoes of %v, want 12 kinds", echoed)
	}
}

// TestUpsertKeepsTheObject checks that the caller's object is not stripped.
func TestUpsertKeepsTheObject(t *testing.T) {
	gw := &gwv1.Gateway{Status: gwv1.GatewayStatus{Conditions: []metav1.Condition{{Type: "Kept"}}}}
	gw.ResourceVersion = "5"
	w := newWorld()
	if !w.Upsert(gw) {
		t.Error("Gateway is not taken")
	}
	if gw.ResourceVersion != "5" || len(gw.Status.Conditions) != 1 {
		t.Errorf("Upsert changed the object: %v", gw)
	}
	if w.Upsert(&corev1.Pod{}) {
		t.Error("Pod is taken, but nobody reads it")
	}
}

const many = 5000

// crowd is one Gateway with many routes to many Services, all up to date.
func crowd(t testing.TB) *world {
	t.Helper()
	w := newWorld()
	gc := &gwv1.GatewayClass{Spec: gwv1.GatewayClassSpec{ControllerName: controllerName}}
	gc.Name = "moongate"
	w.Upsert(gc)
	w.Upsert(crowdGateway(1))
	for i := range many {
		w.Upsert(crowdRoute(i, "/"))
		w.Upsert(crowdService(i))
		w.Upsert(crowdSlice(i, "10.0.0.1"))
	}
	if r := w.Commit(); len(r.Config.Upserts) != 3*many+2 {
		t.Fatalf("%d upserts, want %d", len(r.Config.Upserts), 3*many+2)
	}
	return w
}

func crowdGateway(generation int64) *gwv1.Gateway {
	gw := &gwv1.Gateway{Spec: gwv1.GatewaySpec{GatewayClassName: "moongate", Listeners: []gwv1.Listener{
		{Name: "http", Port: 80, Protocol: gwv1.HTTPProtocolType}, {Name: "alt", Port: 8080, Protocol: gwv1.HTTPProtocolType}}}}
	gw.Namespace, gw.Name, gw.Generation = "default", "gw", generation
	return gw
}

func crowdRoute(i int, path string) *gwv1.HTTPRoute {
	port := gwv1.PortNumber(80)
	r := &gwv1.HTTPRoute{Spec: gwv1.HTTPRouteSpec{
		CommonRouteSpec: gwv1.CommonRouteSpec{ParentRefs: []gwv1.ParentReference{{Name: "gw"}}},
		Hostnames:       []gwv1.Hostname{gwv1.Hostname(fmt.Sprintf("h%d.example.com", i))},
		Rules: []gwv1.HTTPRouteRule{{
			Matches: []gwv1.HTTPRouteMatch{{Path: &gwv1.HTTPPathMatch{Value: &path}}},
			BackendRefs: []gwv1.HTTPBackendRef{{BackendRef: gwv1.BackendRef{BackendObjectReference: gwv1.BackendObjectReference{
				Name: gwv1.ObjectName(fmt.Sprintf("s%d", i)), Port: &port}}}},
		}},
	}}
	r.Namespace, r.Name, r.Generation = "default", fmt.Sprintf("r%d", i), 1
	return r
}

func crowdService(i int) *corev1.Service {
	s := &corev1.Service{Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}}}
	s.Namespace, s.Name = "default", fmt.Sprintf("s%d", i)
	return s
}

func crowdSlice(i int, address string) *discoveryv1.EndpointSlice {
	port := int32(8080)
	s := &discoveryv1.EndpointSlice{Ports: []discoveryv1.EndpointPort{{Port: &port}}, Endpoints: []discoveryv1.Endpoint{{Addresses: []string{address}}}}
	s.Namespace, s.Name = "default", fmt.Sprintf("s%d-1", i)
	s.Labels = map[string]string{discoveryv1.LabelServiceName: fmt.Sprintf("s%d", i)}
	return s
}

// TestFirstPolicyAmongMany: the first policy for a backend, and its end, wake few of the routes and backends that could have one.
func TestFirstPolicyAmongMany(t *testing.T) {
	w := crowd(t)
	tls := &gwv1.BackendTLSPolicy{Spec: gwv1.BackendTLSPolicySpec{
		TargetRefs: []gwv1.LocalPolicyTargetReferenceWithSectionName{{LocalPolicyTargetReference: gwv1.LocalPolicyTargetReference{Kind: "Service", Name: "s7"}}},
		Validation: gwv1.BackendTLSPolicyValidation{Hostname: "a.test", WellKnownCACertificates: new(gwv1.WellKnownCACertificatesSystem)},
	}}
	traffic := &gwx.XBackendTrafficPolicy{Spec: gwx.BackendTrafficPolicySpec{
		TargetRefs:      []gwv1.LocalPolicyTargetReference{{Kind: "Service", Name: "s7"}},
		RetryConstraint: &gwx.RetryConstraint{},
	}}
	tls.Namespace, tls.Name, traffic.Namespace, traffic.Name = "default", "p", "default", "p"
	const most = many / 20
	for _, p := range []metav1.Object{tls, traffic} {
		w.Upsert(p)
		if r := w.Commit(); len(r.Config.Upserts) == 0 || r.Stats.Runs > most {
			t.Errorf("%T: %d upserts, %d runs %v, want some and at most %d", p, len(r.Config.Upserts), r.Stats.Runs, r.Stats.RunsByName, most)
		}
		w.Delete(translate.Kind(kind.Of(p).Name), "default", "p")
		if r := w.Commit(); len(r.Config.Upserts) == 0 || r.Stats.Runs > most {
			t.Errorf("%T gone: %d upserts, %d runs %v, want some and at most %d", p, len(r.Config.Upserts), r.Stats.Runs, r.Stats.RunsByName, most)
		}
	}
}

// TestFirstRefusedAddressAmongMany: the first refused address of a Service, and its end, wake few of the routes and backends of others.
func TestFirstRefusedAddressAmongMany(t *testing.T) {
	w := crowd(t)
	const most = many / 20
	for _, address := range []string{"169.254.169.254", "10.0.0.1"} {
		w.Upsert(crowdSlice(7, address))
		if r := w.Commit(); len(r.Config.Upserts) != 1 || len(r.Statuses) == 0 || r.Stats.Runs > most {
			t.Errorf("%s: %d upserts, %d statuses, %d runs %v, want 1, some and at most %d", address, len(r.Config.Upserts), len(r.Statuses), r.Stats.Runs, r.Stats.RunsByName, most)
		}
	}
}

// TestOneChangeAmongMany counts what one change costs beside 5,000 routes.
func TestOneChangeAmongMany(t *testing.T) {
	w := crowd(t)
	changed := func(i int) *gwv1.HTTPRoute {
		r := crowdRoute(i, "/new")
		r.Generation = 2
		return r
	}
	for _, c := range []struct {
		what     string
		do       func()
		runs     int
		upserts  []string
		removals []string
		statuses []string
	}{
		{"a route's path", func() { w.Upsert(changed(7)) }, 6,
			[]string{"Route HTTPRoute/default/r7"}, nil, []string{"HTTPRoute r7"}},
		{"an endpoint", func() { w.Upsert(crowdSlice(7, "10.0.0.2")) }, 2,
			[]string{"Endpoints Service/default/s7/80"}, nil, nil},
		{"an EndpointSlice that says the same", func() { w.Upsert(crowdSlice(8, "10.0.0.1")) }, 0, nil, nil, nil},
		{"the Gateway, but nothing that a route depends on", func() { w.Upsert(crowdGateway(2)) }, 8, nil, nil, []string{"Gateway gw"}},
		{"a new route", func() { w.Upsert(crowdRoute(many, "/")) }, 8,
			[]string{"Route HTTPRoute/default/r5000"}, nil, []string{"Gateway gw", "HTTPRoute r5000"}},
		{"its Service", func() { w.Upsert(crowdService(many)) }, 8,
			[]string{"Backend Service/default/s5000/80", "Endpoints Service/default/s5000/80", "Route HTTPRoute/default/r5000"}, nil, []string{"HTTPRoute r5000"}},
		{"a route that goes", func() { w.Delete(translate.KindHTTPRoute, "default", "r5000") }, 3,
			nil, []string{"Backend Service/default/s5000/80", "Endpoints Service/default/s5000/80", "Route HTTPRoute/default/r5000"}, []string{"Gateway gw", "HTTPRoute r5000"}},
	} {
		c.do()
		r := w.Commit()
		if r.Stats.Runs > c.runs || c.runs > 10 {
			t.Errorf("%s: %d functions ran, want at most %d: %v", c.what, r.Stats.Runs, c.runs, r.Stats.RunsByName)
		}
		var upserts, removals, statuses []string
		for _, u := range r.Config.Upserts {
			upserts = append(upserts, u.ID().String())
		}
		for _, id := range r.Config.Removals {
			removals = append(removals, id.String())
		}
		for _, s := range r.Statuses {
			statuses = append(statuses, s.Object.Kind+" "+s.Object.Name)
		}
		if !slices.Equal(upserts, c.upserts) || !slices.Equal(removals, c.removals) || !slices.Equal(statuses, c.statuses) {
			t.Errorf("%s: upserts %v, removals %v, statuses %v\nwant %v, %v, %v", c.what, upserts, removals, statuses, c.upserts, c.removals, c.statuses)
		}
	}
}

// TestGatewayReadsNoRoute checks that the Gateway's status follows the number of
// routes and nothing else of them.
func TestGatewayReadsNoRoute(t *testing.T) {
	w := crowd(t)
	for i := range 100 {
		r := crowdRoute(i, "/changed")
		r.Generation = 2
		w.Upsert(r)
	}
	if r := w.Commit(); r.Stats.RunsByName["Gateway status"] != 0 || r.Stats.RunsByName["route"] != 100 {
		t.Errorf("100 changed routes ran %v", r.Stats.RunsByName)
	}
}

// TestGeneration checks that the update's generation grows with config only.
func TestGeneration(t *testing.T) {
	w := crowd(t)
	if r := w.Commit(); r.Config.Generation != 1 {
		t.Errorf("generation %d after a commit without changes, want 1", r.Config.Generation)
	}
	w.Upsert(crowdSlice(1, "10.0.0.9"))
	if r := w.Commit(); r.Config.Generation != 2 {
		t.Errorf("generation %d after a change, want 2", r.Config.Generation)
	}
}

func BenchmarkFull5000Routes(b *testing.B) {
	for b.Loop() {
		crowd(b)
	}
}

func BenchmarkOneRouteOf5000(b *testing.B) {
	w := crowd(b)
	i := 0
	b.ReportAllocs()
	for b.Loop() {
		i++
		w.Upsert(crowdRoute(7, fmt.Sprintf("/p%d", i)))
		if r := w.Commit(); len(r.Config.Upserts) != 1 {
			b.Fatal(r.Config.Upserts)
		}
	}
}

func BenchmarkOneEndpointSliceOf5000(b *testing.B) {
	w := crowd(b)
	i := 1 // 10.0.0.1 is what it has
	b.ReportAllocs()
	for b.Loop() {
		i++
		w.Upsert(crowdSlice(7, fmt.Sprintf("10.0.%d.%d", i>>8&255, i&255)))
		if r := w.Commit(); len(r.Config.Upserts) != 1 {
			b.Fatal(r.Config.Upserts)
		}
	}
}
