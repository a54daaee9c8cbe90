package partition

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/moongate-dev/moongate/internal/config"
)

// world is a random configuration and the next Update of it.
type world struct {
	r          *rand.Rand
	generation uint64
	resources  map[config.ID]*config.Resource
	update     map[config.ID]*config.Resource // nil removes
}

var gateways = []string{"n/a", "n/b", "n/c"}

// together are the proxies that may serve Gateways beside, or in the place of, those of their own.
var together = []string{"n/gatewayclass:x", "n/gatewayclass:y"}

func (w *world) merged() string {
	return append([]string{""}, together...)[w.r.IntN(3)]
}

func (w *world) listener() *config.Resource {
	key := fmt.Sprintf("listener-%d", w.r.IntN(6))
	l := &config.Listener{Key: key, Gateway: gateways[w.r.IntN(3)], Merged: w.merged(), Port: uint32(w.r.IntN(3))}
	for range w.r.IntN(3) {
		l.Certificates = append(l.Certificates, fmt.Sprintf("certificate-%d", w.r.IntN(4)))
	}
	return &config.Resource{Kind: &config.Resource_Listener{Listener: l}}
}

func (w *world) route() *config.Resource {
	route := &config.Route{Key: fmt.Sprintf("route-%d", w.r.IntN(8))}
	for _, l := range w.r.Perm(7)[:w.r.IntN(4)] { // the seventh listener is never there
		route.Attachments = append(route.Attachments, &config.Attachment{Listener: fmt.Sprintf("listener-%d", l)})
	}
	for range w.r.IntN(3) {
		mirror, err := anypb.New(&config.RequestMirror{Backend: w.backendKey(), Denominator: 1})
		if err != nil {
			panic(err)
		}
		route.Rules = append(route.Rules, &config.Rule{
			Filters: []*anypb.Any{mirror},
			BackendRefs: []*config.BackendRef{
				{Backend: w.backendKey()}, {}, {Backend: w.backendKey(), Filters: []*anypb.Any{mirror}}}})
	}
	return &config.Resource{Kind: &config.Resource_Route{Route: route}}
}

func (w *world) l4Route() *config.Resource {
	route := &config.L4Route{Key: fmt.Sprintf("route-%d", w.r.IntN(8))} // as one of requests may be named
	for _, l := range w.r.Perm(7)[:w.r.IntN(4)] {
		route.Attachments = append(route.Attachments, &config.Attachment{Listener: fmt.Sprintf("listener-%d", l)})
	}
	for range w.r.IntN(3) {
		route.BackendRefs = append(route.BackendRefs, &config.BackendRef{Backend: w.backendKey()})
	}
	return &config.Resource{Kind: &config.Resource_L4Route{L4Route: route}}
}

func (w *world) authoritiesKey() string { return fmt.Sprintf("authorities-%d", w.r.IntN(4)) }

func (w *world) backendKey() string { return fmt.Sprintf("backend-%d", w.r.IntN(8)) }

func (w *world) leaf() *config.Resource {
	switch key := w.backendKey(); w.r.IntN(4) {
	case 0:
		b := &config.Backend{Key: key, Port: uint32(w.r.IntN(3))}
		for range w.r.IntN(3) {
			b.Tls = &config.BackendTLS{Authorities: append(b.Tls.GetAuthorities(), w.authoritiesKey())}
		}
		return &config.Resource{Kind: &config.Resource_Backend{Backend: b}}
	case 2:
		return &config.Resource{Kind: &config.Resource_Authorities{Authorities: &config.Authorities{Key: w.authoritiesKey()}}}
	case 1:
		return &config.Resource{Kind: &config.Resource_Endpoints{Endpoints: &config.Endpoints{Key: key,
			Endpoints: []*config.Endpoint{{Address: "192.0.2.1", Port: uint32(w.r.IntN(3))}}}}}
	}
	return &config.Resource{Kind: &config.Resource_Certificate{Certificate: &config.Certificate{
		Key: fmt.Sprintf("certificate-%d", w.r.IntN(4)), KeyPem: []byte{byte(w.r.IntN(3))}}}}
}

func (w *world) ticketKeys() *config.Resource {
	return &config.Resource{Kind: &config.Resource_TicketKeys{TicketKeys: &config.TicketKeys{
		Key: gateways[w.r.IntN(3)], Merged: w.merged(), Keys: [][]byte{{byte(w.r.IntN(3))}}}}}
}

func (w *world) rateLimitService() *config.Resource {
	return &config.Resource{Kind: &config.Resource_RateLimitService{RateLimitService: &config.RateLimitService{
		Key: gateways[w.r.IntN(3)], Merged: w.merged(), KeyPrefix: fmt.Sprint(w.r.IntN(3))}}}
}

func (w *world) step() *config.Update {
	w.update = map[config.ID]*config.Resource{}
	for range 1 + w.r.IntN(5) {
		if w.r.IntN(3) == 0 && len(w.resources) > 0 {
			ids := slices.SortedFunc(maps.Keys(w.resources), config.CompareID)
			w.update[ids[w.r.IntN(len(ids))]] = nil
			continue
		}
		r := []func() *config.Resource{w.listener, w.route, w.route, w.l4Route, w.leaf, w.leaf, w.ticketKeys, w.rateLimitService}[w.r.IntN(8)]()
		w.update[r.ID()] = r
	}
	w.generation++
	u := &config.Update{Generation: w.generation}
	for _, id := range slices.SortedFunc(maps.Keys(w.update), config.CompareID) {
		if r := w.update[id]; r != nil {
			u.Upserts = append(u.Upserts, r)
			w.resources[id] = r
		} else {
			u.Removals = append(u.Removals, id)
			delete(w.resources, id)
		}
	}
	return u
}

// naive is the part of a Gateway, or of several together, by the words of the package comment, without anything kept.
func (w *world) naive(gateway string) map[config.ID]*config.Resource {
	out := map[config.ID]*config.Resource{}
	add := func(kind config.Kind, key string) {
		if r := w.resources[config.ID{Kind: kind, Key: key}]; r != nil {
			out[r.ID()] = r
		}
	}
	backend := func(key string) {
		add(config.KindBackend, key)
		add(config.KindEndpoints, key)
		for _, authorities := range w.resources[config.ID{Kind: config.KindBackend, Key: key}].GetBackend().GetTls().GetAuthorities() {
			add(config.KindAuthorities, authorities)
		}
	}
	filters := func(list []*anypb.Any) {
		for _, f := range list {
			m := &config.RequestMirror{}
			if err := f.UnmarshalTo(m); err != nil {
				panic(err)
			}
			backend(m.Backend)
		}
	}
	for id, r := range w.resources {
		if l := r.GetListener(); l != nil && (l.Gateway == gateway || l.Merged == gateway) {
			out[id] = r
			for _, c := range l.Certificates {
				add(config.KindCertificate, c)
			}
		}
		if k := r.GetTicketKeys(); k != nil && (k.Key == gateway || k.Merged == gateway) {
			out[id] = r
		}
		if s := r.GetRateLimitService(); s != nil && (s.Key == gateway || s.Merged == gateway) {
			out[id] = r
		}
		elsewhere := func(a *config.Attachment) bool {
			l := w.resources[config.ID{Kind: config.KindListener, Key: a.Listener}]
			return l == nil || l.GetListener().Gateway != gateway && l.GetListener().Merged != gateway
		}
		if l4 := proto.CloneOf(r.GetL4Route()); l4 != nil {
			if l4.Attachments = slices.DeleteFunc(l4.Attachments, elsewhere); len(l4.Attachments) == 0 {
				continue
			}
			out[id] = &config.Resource{Kind: &config.Resource_L4Route{L4Route: l4}}
			for _, ref := range l4.BackendRefs {
				backend(ref.Backend)
			}
		}
		route := proto.CloneOf(r.GetRoute())
		if route == nil {
			continue
		}
		if route.Attachments = slices.DeleteFunc(route.Attachments, elsewhere); len(route.Attachments) == 0 {
			continue
		}
		out[id] = &config.Resource{Kind: &config.Resource_Route{Route: route}}
		for _, rule := range route.Rules {
			filters(rule.Filters)
			for _, ref := range rule.BackendRefs {
				filters(ref.Filters)
				backend(ref.Backend)
			}
		}
	}
	return out
}

// follower is a proxy that asks now and then.
type follower struct {
	generation uint64
	held       map[config.ID]*config.Resource
	full       int
}

func (f *follower) follow(p *Part) {
	d := p.Since(f.generation)
	if d.Full {
		f.held = map[config.ID]*config.Resource{}
		f.full++
	}
	for _, r := range d.Upserts {
		f.held[r.ID()] = r
	}
	for _, id := range d.Removals {
		delete(f.held, id)
	}
	f.generation = d.Generation
}

func (f *follower) difference(want map[config.ID]*config.Resource) string {
	for id, r := range want {
		if !proto.Equal(f.held[id], r) {
			return fmt.Sprintf("%s is %v, want %v", id, f.held[id], r)
		}
	}
	for id := range f.held {
		if want[id] == nil {
			return fmt.Sprintf("%s is there and should not be", id)
		}
	}
	return ""
}

// TestPartsEqualScratch: after random Updates each part is what the words say, for those who ask always,
// for those who ask rarely, and for those who missed more than is remembered.
func TestPartsEqualScratch(t *testing.T) {
	fulls, all := 0, slices.Concat(gateways, together)
	for seed := range uint64(8) {
		w := &world{r: rand.New(rand.NewPCG(seed, 3)), resources: map[config.ID]*config.Resource{}}
		p := New()
		p.tombstones = 5
		always, rarely := map[string]*follower{}, map[string]*follower{}
		for _, g := range all {
			always[g], rarely[g] = &follower{held: map[config.ID]*config.Resource{}}, &follower{held: map[config.ID]*config.Resource{}}
		}
		for step := range 200 {
			before := map[string]uint64{}
			for _, g := range all {
				before[g] = p.Part(g).Generation()
			}
			touched := p.Apply(w.step())
			for _, g := range all {
				part, want := p.Part(g), w.naive(g)
				if (part.Generation() != before[g]) != slices.Contains(touched, g) {
					t.Fatalf("seed %d step %d: %s changed from generation %d to %d, reported: %v", seed, step, g, before[g], part.Generation(), touched)
				}
				always[g].follow(part)
				if d := always[g].difference(want); d != "" {
					t.Fatalf("seed %d step %d: %s: %s", seed, step, g, d)
				}
				if w.r.IntN(8) == 0 {
					rarely[g].follow(part)
					if d := rarely[g].difference(want); d != "" {
						t.Fatalf("seed %d step %d: %s, asked rarely: %s", seed, step, g, d)
					}
				}
				if len(part.dead) > p.tombstones || part.Len() != len(want) {
					t.Fatalf("seed %d step %d: %d tombstones, %d resources, want %d", seed, step, len(part.dead), part.Len(), len(want))
				}
				fulls += rarely[g].full
			}
		}
		for id, r := range w.resources { // nothing may be remembered of what is gone
			w.generation++
			p.Apply(&config.Update{Generation: w.generation, Removals: []config.ID{r.ID()}})
			delete(w.resources, id)
		}
		if len(p.users) > 0 || len(p.attached) > 0 || len(p.homes) > 0 || len(p.resources) > 0 {
			t.Fatalf("seed %d: left behind: %v %v %v", seed, p.users, p.attached, p.homes)
		}
		for _, g := range all {
			if p.Forget(g); p.parts[g] != nil {
				t.Fatalf("seed %d: %s is remembered", seed, g)
			}
		}
	}
	if fulls == 0 {
		t.Error("nobody ever missed more than is remembered")
	}
}

// TestEqualChangesNothing: a Gateway whose view of a route stays the same hears nothing.
func TestEqualChangesNothing(t *testing.T) {
	p := New()
	listener := func(gateway string) *config.Resource {
		return &config.Resource{Kind: &config.Resource_Listener{Listener: &config.Listener{Key: gateway + "/l", Gateway: gateway}}}
	}
	route := func(hostB string) *config.Resource {
		return &config.Resource{Kind: &config.Resource_Route{Route: &config.Route{Key: "r", Attachments: []*config.Attachment{
			{Listener: "n/a/l", Hostnames: []*config.Hostname{{Effective: "same"}}},
			{Listener: "n/b/l", Hostnames: []*config.Hostname{{Effective: hostB}}}}}}}
	}
	p.Apply(&config.Update{Generation: 1, Upserts: []*config.Resource{listener("n/a"), listener("n/b"), route("one")}})
	if touched := p.Apply(&config.Update{Generation: 2, Upserts: []*config.Resource{listener("n/a"), route("two")}}); !slices.Equal(touched, []string{"n/b"}) {
		t.Errorf("touched %v, want n/b alone", touched)
	}
	if d := p.Part("n/b").Since(1); d.Full || len(d.Upserts) != 1 || d.Generation != 2 {
		t.Errorf("since 1: %+v, want the route alone", d)
	}
	if d := p.Part("n/a").Since(1); d.Full || len(d.Upserts) != 0 || d.Generation != 1 {
		t.Errorf("since 1: %+v, want nothing", d)
	}
}

// TestRebornGateway: a proxy of a Gateway that went and came back under its name gets everything.
func TestRebornGateway(t *testing.T) {
	p := New()
	l := &config.Resource{Kind: &config.Resource_Listener{Listener: &config.Listener{Key: "n/a/l", Gateway: "n/a"}}}
	other := &config.Resource{Kind: &config.Resource_Listener{Listener: &config.Listener{Key: "n/a/other", Gateway: "n/a"}}}
	p.Apply(&config.Update{Generation: 1, Upserts: []*config.Resource{l}})
	p.Apply(&config.Update{Generation: 2, Removals: []config.ID{l.ID()}})
	p.Forget("n/a")
	p.Apply(&config.Update{Generation: 3, Upserts: []*config.Resource{other}})
	if d := p.Part("n/a").Since(1); !d.Full || len(d.Upserts) != 1 {
		t.Errorf("since a generation of the former: %+v", d)
	}
	if d := p.Part("n/a").Since(9); !d.Full {
		t.Errorf("since a generation to come: %+v", d)
	}
}

// crowd has many routes on each of two Gateways.
func crowd(routes int) *Partition {
	p := New()
	u := &config.Update{Generation: 1}
	for _, g := range gateways[:2] {
		u.Upserts = append(u.Upserts, &config.Resource{Kind: &config.Resource_Listener{Listener: &config.Listener{Key: g + "/l", Gateway: g}}})
	}
	for i := range routes {
		u.Upserts = append(u.Upserts, crowdRoute(i, 0), &config.Resource{Kind: &config.Resource_Backend{Backend: &config.Backend{Key: fmt.Sprintf("b%d", i)}}})
	}
	p.Apply(u)
	return p
}

func crowdRoute(i int, edit int64) *config.Resource {
	return &config.Resource{Kind: &config.Resource_Route{Route: &config.Route{Key: fmt.Sprintf("r%d", i), CreatedUnixNano: edit,
		Attachments: []*config.Attachment{{Listener: "n/a/l"}, {Listener: "n/b/l"}},
		Rules:       []*config.Rule{{BackendRefs: []*config.BackendRef{{Backend: fmt.Sprintf("b%d", i)}}}}}}}
}

// TestCostFollowsTheChange: an edit of one route allocates the same beside 10 and beside 5,000.
func TestCostFollowsTheChange(t *testing.T) {
	cost := func(routes int) float64 {
		p := crowd(routes)
		generation := uint64(1)
		return testing.AllocsPerRun(100, func() {
			generation++
			p.Apply(&config.Update{Generation: generation, Upserts: []*config.Resource{crowdRoute(7, int64(generation))}})
			if d := p.Part("n/a").Since(generation - 1); len(d.Upserts) != 1 {
				t.Fatalf("%+v", d)
			}
		})
	}
	if few, many := cost(10), cost(5000); many > few*1.2+5 {
		t.Errorf("%v allocations beside 10 routes, %v beside 5,000", few, many)
	}
}

func BenchmarkOneRouteOf5000(b *testing.B) {
	p := crowd(5000)
	generation := uint64(1)
	b.ReportAllocs()
	for b.Loop() {
		generation++
		p.Apply(&config.Update{Generation: generation, Upserts: []*config.Resource{crowdRoute(7, int64(generation))}})
	}
}

func BenchmarkFull5000Routes(b *testing.B) {
	for b.Loop() {
		crowd(5000)
	}
}
