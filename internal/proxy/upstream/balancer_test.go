package upstream

import (
	"fmt"
	"maps"
	"math"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/testkit"
)

// balanced is a Set with one backend that has a load balancer and these endpoints.
func balanced(t testing.TB, l *config.LoadBalancer, list ...*config.Endpoint) (*Set, *Backend) {
	t.Helper()
	s := NewSet(Options{})
	t.Cleanup(s.Close)
	apply(t, s, balancedResource(l), endpointsResource(key, list...))
	return s, s.Get(key)
}

func balancedResource(l *config.LoadBalancer) *config.Resource {
	r := backendResource(key)
	r.GetBackend().Traffic = &config.BackendTraffic{LoadBalancer: l}
	return r
}

func numbered(n int) (list []*config.Endpoint) {
	for i := range n {
		list = append(list, endpoint(address(i)))
	}
	return list
}

// inZones has so many endpoints in each zone.
func inZones(counts map[string]int) (list []*config.Endpoint) {
	for _, zone := range []string{"", "a", "b", "c"} {
		for range counts[zone] {
			e := endpoint(address(len(list)))
			e.Zone = zone
			list = append(list, e)
		}
	}
	return list
}

func hashed(size uint32) *config.LoadBalancer {
	return &config.LoadBalancer{Type: config.LoadBalancing_LOAD_BALANCING_CONSISTENT_HASH, ConsistentHash: &config.ConsistentHash{SourceIp: true, TableSize: size}}
}

func utilized() *config.LoadBalancer {
	return &config.LoadBalancer{Type: config.LoadBalancing_LOAD_BALANCING_BACKEND_UTILIZATION, BackendUtilization: &config.BackendUtilization{
		BlackoutPeriodNanos: int64(10 * time.Second), WeightExpirationPeriodNanos: int64(3 * time.Minute), WeightUpdatePeriodNanos: int64(time.Second)}}
}

// everyBalancer has one of each kind.
func everyBalancer() map[string]*config.LoadBalancer {
	override := []string{"x-endpoint"}
	all := map[string]*config.LoadBalancer{
		"least request": {Type: config.LoadBalancing_LOAD_BALANCING_LEAST_REQUEST, EndpointOverrideHeaders: override},
		"slow start":    {Type: config.LoadBalancing_LOAD_BALANCING_LEAST_REQUEST, SlowStartWindowNanos: int64(time.Minute), EndpointOverrideHeaders: override},
		"round robin":   {Type: config.LoadBalancing_LOAD_BALANCING_ROUND_ROBIN, EndpointOverrideHeaders: override},
		"random":        {Type: config.LoadBalancing_LOAD_BALANCING_RANDOM, EndpointOverrideHeaders: override},
		"hash":          hashed(65537),
		"utilization":   utilized(),
		"local zone":    {Type: config.LoadBalancing_LOAD_BALANCING_ROUND_ROBIN, PreferLocalZone: &config.PreferLocalZone{Percentage: 100, MinEndpoints: 1}},
		"zone weights":  {Type: config.LoadBalancing_LOAD_BALANCING_RANDOM, ZoneWeights: []*config.ZoneWeight{{Zone: "a", Weight: 3}}},
	}
	all["hash"].EndpointOverrideHeaders, all["utilization"].EndpointOverrideHeaders = override, override
	return all
}

// avoid has endpoints passed over for the rest of a test, or none any more.
func avoid(on bool, list ...*Endpoint) {
	for _, e := range list {
		e.avoidUntil.Store(0)
		if on {
			e.avoidUntil.Store(time.Now().Add(time.Hour).UnixNano())
		}
	}
}

// shareOf is which share of n requests with random hashes each endpoint gets.
func shareOf(b *Backend, n int) map[*Endpoint]float64 {
	of, seed := map[*Endpoint]float64{}, uint64(1)
	for range n {
		of[b.PickFor(&seed, &Tried{}, &PickInfo{Hash: Random(&seed), Hashed: true})] += 1 / float64(n)
	}
	return of
}

// near reports whether a share of n is what is wanted, within 5 standard deviations of one that is left to chance, and what a Maglev table adds to that.
func near(got, want float64, n int) bool {
	return math.Abs(got-want) <= 5*math.Sqrt(max(want*(1-want), 1e-4)/float64(n))+0.02*want
}

func TestBalancersAreEven(t *testing.T) {
	const n = 40_000
	for name, l := range everyBalancer() {
		for _, count := range []int{1, 2, 3, 7, 20} {
			_, b := balanced(t, l, numbered(count)...)
			of := shareOf(b, n)
			for _, e := range b.Endpoints() {
				if !near(of[e], 1/float64(count), n) {
					t.Errorf("%s: %v of %d has a share of %.4f", name, e, count, of[e])
				}
			}
		}
	}
}

// TestRoundRobinTakesTurns: n requests in a row go to n endpoints, and those that are not fit lose nothing to a neighbour.
func TestRoundRobinTakesTurns(t *testing.T) {
	_, b := balanced(t, &config.LoadBalancer{Type: config.LoadBalancing_LOAD_BALANCING_ROUND_ROBIN}, numbered(5)...)
	var seed uint64
	for range 20 {
		seen := map[*Endpoint]bool{}
		for range 5 {
			seen[b.Pick(&seed, &Tried{})] = true
		}
		if len(seen) != 5 {
			t.Fatalf("5 requests went to %d endpoints", len(seen))
		}
	}
	avoid(true, b.Endpoints()[1:3]...)
	for range 20 {
		seen := map[*Endpoint]bool{}
		for range 3 {
			seen[b.Pick(&seed, &Tried{})] = true
		}
		if len(seen) != 3 || seen[b.Endpoints()[1]] || seen[b.Endpoints()[2]] {
			t.Fatalf("3 requests went to %d of 3 fit endpoints", len(seen))
		}
	}
}

func TestLeastRequestEvensOutLoad(t *testing.T) {
	l := everyBalancer()["least request"]
	_, b := balanced(t, l, numbered(10)...)
	seed := uint64(1)
	for range 50 {
		b.Endpoints()[3].Begin()
	}
	for range 400 {
		b.Pick(&seed, &Tried{}).Begin()
	}
	for _, e := range b.Endpoints() {
		if n := e.Stats().InFlight; n < 40 || n > 52 {
			t.Errorf("%v has %d in flight of 450 over 10", e, n)
		}
	}
}

// TestBalancersPassOver: what a request has tried, what fails and what terminates is chosen where there is nothing else, by each of them.
func TestBalancersPassOver(t *testing.T) {
	for name, l := range everyBalancer() {
		for _, n := range []int{1, 2, 3, maxTried} {
			_, b := balanced(t, l, append(inZones(map[string]int{"a": n / 2, "b": n - n/2}), terminating(address(200)))...)
			b.set.SetZone("a")
			list := b.Endpoints()[:n]
			for seed := range uint64(50) {
				var tried Tried
				info := &PickInfo{Hash: seed * 0x9e3779b97f4a7c15, Hashed: true}
				for i := range n {
					e := b.PickFor(&seed, &tried, info)
					if tried.Has(e) || e.terminating.Load() {
						t.Fatalf("%s: attempt %d of %d goes to %v", name, i+1, n, e)
					}
					tried.Add(e)
				}
				if e := b.PickFor(&seed, &tried, info); e == nil || e.terminating.Load() {
					t.Fatalf("%s: all of %d are tried, and %v is chosen", name, n, e)
				}
			}
			if n == 1 {
				continue
			}
			avoid(true, list[1:]...)
			for seed := range uint64(200) {
				if e := b.PickFor(&seed, &Tried{}, &PickInfo{Hash: seed << 40, Hashed: true}); e != list[0] {
					t.Fatalf("%s: %v fails, and is chosen", name, e)
				}
				if e := b.PickFor(&seed, triedOf(list[0]), &PickInfo{Hash: seed << 40, Hashed: true}); e == list[0] || e == nil {
					t.Fatalf("%s: %v is tried, and is chosen before those that were not", name, e)
				}
			}
			avoid(true, list[0])
			if seed := uint64(1); b.PickFor(&seed, &Tried{}, nil) == nil {
				t.Errorf("%s: none is chosen where all fail", name)
			}
		}
		_, b := balanced(t, l, terminating(address(1)), terminating(address(2)))
		seen, seed := map[*Endpoint]bool{}, uint64(1)
		for range 200 {
			seen[b.PickFor(&seed, &Tried{}, &PickInfo{Hash: Random(&seed), Hashed: true})] = true
		}
		if len(seen) != 2 || seen[nil] {
			t.Errorf("%s: %d of 2 terminating endpoints are chosen where none is ready", name, len(seen))
		}
		_, b = balanced(t, l)
		if b.Pick(&seed, &Tried{}) != nil {
			t.Errorf("%s: one of none is chosen", name)
		}
	}
}

// TestFailuresAreShared: random gives what failing endpoints would have got to all others alike.
func TestFailuresAreShared(t *testing.T) {
	const n = 40_000
	for _, name := range []string{"random", "round robin", "least request"} {
		_, b := balanced(t, everyBalancer()[name], numbered(10)...)
		avoid(true, b.Endpoints()[2:6]...)
		for e, share := range shareOf(b, n) {
			if name != "least request" && !near(share, 1.0/6, n) || share > 0.2 {
				t.Errorf("%s: %v has a share of %.4f", name, e, share)
			}
		}
	}
}

// TestConsistentHash: where one of 20 endpoints goes, or comes, little more than its share goes elsewhere, also while the table is made anew. Where one takes the
// place of another both is the case: proxies know nothing of each other, so that a new endpoint cannot inherit the slots of the old one.
func TestConsistentHash(t *testing.T) {
	const keys = 10_000
	for _, size := range []uint32{65537, 5003} {
		s, b := balanced(t, hashed(size), numbered(20)...)
		places := func() (of []netip.AddrPort) {
			var seed uint64
			for i := range keys {
				h := Hash(0).Add(fmt.Appendf(nil, "client %d", i)).Sum()
				of = append(of, b.PickFor(&seed, &Tried{}, &PickInfo{Hash: h, Hashed: true}).Address())
			}
			return of
		}
		original := places()
		for _, step := range []struct {
			what  string
			list  []*config.Endpoint
			least float64
			most  float64
		}{
			{"one goes", numbered(20)[1:], .03, .07},
			{"one comes", numbered(20), .03, .07},
			{"one takes the place of another", append(numbered(20)[1:], endpoint(address(77))), .06, .12},
			{"the first is back", numbered(20), .06, .12},
		} {
			before := places()
			apply(t, s, endpointsResource(key, step.list...))
			places() // whatever table is used
			awaitTable(t, b)
			there := map[netip.AddrPort]bool{}
			for _, e := range b.Endpoints() {
				there[e.Address()] = true
			}
			differ := 0
			for i, at := range places() {
				if at != before[i] {
					differ++
				}
				if !there[at] {
					t.Fatalf("%s: a request goes to the endpoint that is gone", step.what)
				}
			}
			if share := float64(differ) / keys; share < step.least || share > step.most {
				t.Errorf("table of %d, %s: %.1f %% of the keys have moved", size, step.what, share*100)
			}
		}
		for i, at := range places() {
			if at != original[i] {
				t.Fatalf("key %d is at %v, and was at %v with the same endpoints", i, at, original[i])
			}
		}
		failing := b.Endpoints()[5]
		avoid(true, failing)
		differ := 0
		for i, at := range places() {
			if at != original[i] {
				if differ++; original[i] != failing.Address() {
					t.Fatal("a key of another endpoint has moved")
				}
			}
		}
		if differ == 0 {
			t.Error("no key has moved from an endpoint that fails")
		}
	}
}

// awaitTable waits for the table of the present endpoints.
func awaitTable(t testing.TB, b *Backend) {
	t.Helper()
	testkit.Eventually(t, "the table is made", func() bool {
		b.set.mu.Lock()
		defer b.set.mu.Unlock()
		return b.tables.made.same(b.tables.wanted)
	})
}

// TestLargeTable: the first table of a large size is made in the background. Until then requests are spread too, and equal ones go to the same endpoint.
func TestLargeTable(t *testing.T) {
	const size = 131101 // the first prime above smallTable
	s, b := balanced(t, hashed(size), numbered(5)...)
	seen := map[*Endpoint]bool{}
	var seed uint64
	s.mu.Lock() // so that it is not made meanwhile
	b.list.Load().balancer.lookup.Store(nil)
	for i := range uint64(1000) {
		info := &PickInfo{Hash: mix(i), Hashed: true}
		e := b.PickFor(&seed, &Tried{}, info)
		seen[e] = true
		if again := b.PickFor(&seed, &Tried{}, info); again != e {
			t.Errorf("%v and %v for one hash", e, again)
		}
	}
	s.mu.Unlock()
	if len(seen) != 5 {
		t.Errorf("%d of 5 endpoints were chosen", len(seen))
	}
	awaitTable(t, b)
	apply(t, s, endpointsResource(key, numbered(6)...))
	awaitTable(t, b)
	if l := b.list.Load().balancer.lookup.Load(); len(l.slots) != size || len(l.addresses) != 6 {
		t.Errorf("the table has %d slots and %d endpoints", len(l.slots), len(l.addresses))
	}
}

// TestCloseWhileTablesAreMade: the rest of the queue is not worked off, and what was begun ends.
func TestCloseWhileTablesAreMade(t *testing.T) {
	s := NewSet(Options{})
	var up []*config.Resource
	for i := range 20 {
		r := hashedResource(maxTable)
		r.GetBackend().Key = fmt.Sprint(i)
		up = append(up, r, endpointsResource(fmt.Sprint(i), numbered(10)...))
	}
	apply(t, s, up...)
	s.Close()
	testkit.Eventually(t, "no table is made any more", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return !s.makingTables && len(s.tableQueue) == 0
	})
}

// TestTables: each slot has an endpoint, each endpoint as many as its weight says, and the order of endpoints does not matter.
func TestTables(t *testing.T) {
	for _, n := range []int{1, 2, 3, 50, 1000} {
		for _, size := range []int{2, 3, 1009, 65537} {
			in := &tableInput{size: size}
			for i := range n {
				in.addresses = append(in.addresses, address(i))
			}
			count := make([]int, n)
			for _, i := range newTable(in).slots {
				count[i]++
			}
			for i, got := range count {
				if low, high := size/n, (size+n-1)/n; got < low || got > high {
					t.Fatalf("%d endpoints, %d slots: endpoint %d has %d", n, size, i, got)
				}
			}
		}
	}
	in := &tableInput{size: 65537, weights: []float64{4, 2, 1, 0}, addresses: []netip.AddrPort{address(0), address(1), address(2), address(3)}}
	count := make([]float64, 4)
	for _, i := range newTable(in).slots {
		count[i] += 1.0 / 65537
	}
	for i, w := range in.weights {
		if math.Abs(count[i]-w/7) > 0.001 {
			t.Errorf("weight %v: a share of %.4f", w, count[i])
		}
	}
}

// TestWeightedTableIsExact: the turns by weights are those of rounds in which all endpoints are looked at, also where weights are far apart.
func TestWeightedTableIsExact(t *testing.T) {
	for _, weights := range [][]float64{{4, 2, 1, 0}, {1, 1, 1}, {1, 1.0 / 3, 2.0 / 7}, {4294967295, 1, 1, 1, 1}, {0.1, 0.3, 0.2}, {0, 0, 5}} {
		in := &tableInput{size: 1009, weights: weights}
		for i := range weights {
			in.addresses = append(in.addresses, address(i))
		}
		want := make([]uint16, in.size)
		for i := range want {
			want[i] = math.MaxUint16
		}
		greatest, taken, steps := slices.Max(weights), make([]float64, len(weights)), make([]uint64, len(weights))
		for round, filled := 1.0, 0; filled < in.size; round++ {
			for i, w := range weights {
				if w == 0 || round*w < taken[i] || filled == in.size {
					continue
				}
				taken[i] += greatest
				h, size := addressHash(in.addresses[i]), uint64(in.size)
				at := func() uint64 { return (h%size + steps[i]*(mix(h+1)%(size-1)+1)) % size }
				for want[at()] != math.MaxUint16 {
					steps[i]++
				}
				want[at()] = uint16(i)
				filled++
			}
		}
		if got := newTable(in).slots; !slices.Equal(got, want) {
			t.Errorf("weights %v make another table", weights)
		}
	}
}

// TestTablesAreBounded: tables together have no more slots than allowed, whatever policies ask for, and those that go make room.
func TestTablesAreBounded(t *testing.T) {
	s := NewSet(Options{})
	defer s.Close()
	resources := func(n int, size uint32) (up []*config.Resource) {
		for i := range n {
			r := hashedResource(size)
			r.GetBackend().Key = fmt.Sprint("Service/default/", i, "/80")
			up = append(up, r, endpointsResource(r.GetBackend().Key, numbered(2)...))
		}
		return up
	}
	sizes := func() (of map[int]int, sum int) {
		s.mu.Lock()
		defer s.mu.Unlock()
		of = map[int]int{}
		for _, b := range s.backends {
			of[b.tables.size]++
			sum += b.tables.size
		}
		if sum != s.tableSlots {
			t.Errorf("%d slots, and %d are counted", sum, s.tableSlots)
		}
		return of, sum
	}
	const n = 600
	apply(t, s, resources(n, maxTable)...)
	of, sum := sizes()
	large := maxTableSlots / 2 / maxTable
	if of[maxTable] != large || of[fallbackTable] != (maxTableSlots-large*maxTable)/fallbackTable || of[0] != n-of[maxTable]-of[fallbackTable] || sum > maxTableSlots {
		t.Errorf("the tables are of sizes %v, %d slots together", of, sum)
	}
	var seed uint64
	for _, b := range s.Backends() { // also of those without a table
		info := &PickInfo{Hash: 7, Hashed: true}
		if e := b.PickFor(&seed, &Tried{}, info); e == nil || e != b.PickFor(&seed, &Tried{}, info) {
			t.Fatalf("%s has no endpoint for a hash, or several", b.Key())
		}
	}
	apply(t, s, resources(n, 1009)...)
	if of, _ := sizes(); of[1009] != n {
		t.Errorf("after an edit the tables are of sizes %v", of)
	}
	for _, r := range resources(n, 1009) {
		if r.GetBackend() != nil {
			apply(t, s, backendResource(r.GetBackend().Key))
		}
	}
	if _, sum := sizes(); sum != 0 {
		t.Errorf("%d slots are left of tables that nobody asks for", sum)
	}
}

// TestTablesOfOneUpdate: of many new backends some have their tables with the update, and the others soon after it.
func TestTablesOfOneUpdate(t *testing.T) {
	s := NewSet(Options{})
	defer s.Close()
	var up []*config.Resource
	const n = 100
	for i := range n {
		r := hashedResource(65537)
		r.GetBackend().Key = fmt.Sprint("Service/default/", i, "/80")
		up = append(up, r, endpointsResource(r.GetBackend().Key, numbered(2)...))
	}
	apply(t, s, up...)
	s.mu.Lock()
	if s.slotsMade > atOnce || s.slotsMade+65537 <= atOnce {
		t.Errorf("tables of %d slots were made for the update", s.slotsMade)
	}
	s.mu.Unlock()
	for _, b := range s.Backends() {
		awaitTable(t, b)
	}
}

// TestEditKeepsTheTable: what else a policy says of the load balancer is changed without a new table.
func TestEditKeepsTheTable(t *testing.T) {
	s, b := balanced(t, hashed(65537), numbered(5)...)
	awaitTable(t, b)
	before := b.list.Load().balancer.lookup.Load().table
	edited := hashed(65537)
	edited.ConsistentHash.Cookie = &config.HashCookie{Name: "affinity"}
	apply(t, s, balancedResource(edited))
	if b.list.Load().balancer.lookup.Load().table != before {
		t.Error("there is another table")
	}
}

func TestVariantsUseTheTable(t *testing.T) {
	s, b := balanced(t, hashed(65537), numbered(7)...)
	s.mu.Lock()
	v := &Backend{key: b.key, set: s, base: b, sessionID: b.sessionID}
	v.list.Store(&endpointList{})
	v.transport.Store(b.transport.Load())
	v.balancing.Store(b.balancing.Load())
	v.replace([]parsedEndpoint{{address: address(1)}, {address: address(2)}, {address: address(6)}})
	s.mu.Unlock()
	var seed uint64
	for i := range uint64(1000) {
		info := &PickInfo{Hash: mix(i), Hashed: true}
		own, other := v.PickFor(&seed, &Tried{}, info), b.PickFor(&seed, &Tried{}, info)
		if own.backend != v {
			t.Fatalf("%v is not the variant's", own)
		}
		if a := other.address; (a == address(1) || a == address(2) || a == address(6)) && own.address != a {
			t.Fatalf("a variant has %v for what the backend has %v", own, other)
		}
	}
	if a, b := v.list.Load().balancer.lookup.Load().table, b.list.Load().balancer.lookup.Load().table; a != b {
		t.Error("the variant has a table of its own")
	}
}

// TestSlowStart: the share of a new endpoint grows from a tenth to its own in the time of the window, and not before the clock moves.
func TestSlowStart(t *testing.T) {
	const n, window = 20_000, 100 * time.Second
	for _, kind := range []config.LoadBalancing{config.LoadBalancing_LOAD_BALANCING_LEAST_REQUEST, config.LoadBalancing_LOAD_BALANCING_ROUND_ROBIN,
		config.LoadBalancing_LOAD_BALANCING_BACKEND_UTILIZATION} {
		l := utilized()
		if l.Type = kind; kind != config.LoadBalancing_LOAD_BALANCING_BACKEND_UTILIZATION {
			l.BackendUtilization = nil
		}
		l.SlowStartWindowNanos = int64(window)
		s, b := balanced(t, l, numbered(3)...)
		for e, share := range shareOf(b, n) {
			if !near(share, 1.0/3, n) {
				t.Errorf("%v: %v, which was there at first, has a share of %.3f", kind, e, share)
			}
		}
		start := time.Unix(0, s.tick.Load()) // when the first ones came: they are not new
		apply(t, s, endpointsResource(key, numbered(4)...))
		fresh := b.Endpoints()[3]
		for _, step := range []struct {
			after  time.Duration
			weight float64
		}{{0, .1}, {5 * time.Second, .1}, {20 * time.Second, .2}, {50 * time.Second, .5}, {90 * time.Second, .9}, {window, 1}, {window * 2, 1}} {
			s.UpdateWeights(start.Add(step.after))
			if got, want := shareOf(b, n)[fresh], step.weight/(3+step.weight); !near(got, want, n) {
				t.Errorf("%v: after %s its share is %.4f, want %.4f", kind, step.after, got, want)
			}
		}
		if w := b.list.Load().balancer.all.weights.Load(); w != nil {
			t.Errorf("%v: the weights are equal, and used", kind)
		}
		s.UpdateWeights(start.Add(3 * window))
		apply(t, s, endpointsResource(key, numbered(5)...))
		other := backendResource(key)
		other.GetBackend().Traffic, other.GetBackend().Protocol = &config.BackendTraffic{LoadBalancer: l}, config.BackendProtocol_BACKEND_PROTOCOL_H2C
		apply(t, s, other) // which begins all endpoints anew
		if got := shareOf(b, n)[b.Endpoints()[4]]; !near(got, .1/4.1, n) {
			t.Errorf("%v: after its protocol has changed the share of a new endpoint is %.4f", kind, got)
		}
	}
}

// TestSlowStartOfAnotherPod: a pod that has the address of one that is gone is new.
func TestSlowStartOfAnotherPod(t *testing.T) {
	const n = 20_000
	l := &config.LoadBalancer{Type: config.LoadBalancing_LOAD_BALANCING_ROUND_ROBIN, SlowStartWindowNanos: int64(time.Minute)}
	pods := func(ids ...uint64) *config.Resource {
		list := numbered(len(ids))
		for i, id := range ids {
			list[i].Identity = id
		}
		return endpointsResource(key, list...)
	}
	s, b := balanced(t, l)
	apply(t, s, pods(1, 2))
	start := time.Unix(0, s.tick.Load())
	s.UpdateWeights(start.Add(time.Hour))
	before := b.Endpoints()
	apply(t, s, pods(1, 3))
	if now := b.Endpoints(); now[0] != before[0] || now[1] == before[1] {
		t.Fatal("the wrong endpoint is new")
	}
	s.UpdateWeights(start.Add(time.Hour + time.Second))
	if got := shareOf(b, n)[b.Endpoints()[1]]; !near(got, .1/1.1, n) {
		t.Errorf("the new pod's share is %.4f, want %.4f", got, .1/1.1)
	}
}

// TestSlowStartUnderLoad: least request has the requests in flight follow the weights, too.
func TestSlowStartUnderLoad(t *testing.T) {
	s, b := balanced(t, everyBalancer()["slow start"], numbered(3)...)
	s.UpdateWeights(time.Now().Add(time.Hour))
	apply(t, s, endpointsResource(key, numbered(4)...))
	seed := uint64(1)
	for range 3100 {
		b.Pick(&seed, &Tried{}).Begin()
	}
	if n := b.Endpoints()[3].Stats().InFlight; n < 80 || n > 120 {
		t.Errorf("a new endpoint has %d of 3100 requests in flight, which are about 100 for a tenth of the weight", n)
	}
}

func TestOverrides(t *testing.T) {
	v6 := netip.MustParseAddrPort("[2001:db8::7]:8080")
	for name, l := range everyBalancer() {
		if len(l.EndpointOverrideHeaders) == 0 {
			continue
		}
		s, b := balanced(t, l, append(numbered(10), endpoint(v6), terminating(address(50)))...)
		apply(t, s, &config.Resource{Kind: &config.Resource_Backend{Backend: &config.Backend{Key: "other"}}}, endpointsResource("other", endpoint(address(60))))
		avoid(true, b.Endpoints()[9])
		for value, want := range map[string]netip.AddrPort{
			address(3).String():                                address(3),
			" 10.9.9.9:1 , " + address(4).String() + " ":       address(4),
			"[2001:db8::7]:8080":                               v6,
			"[::ffff:" + address(2).Addr().String() + "]:8080": address(2),
			"a,,b," + address(5).String():                      address(5),
			address(9).String() + "," + address(6).String():    address(6), // the former fails
			address(50).String():                               {},         // it terminates
			address(60).String():                               {},         // it is another backend's
			"169.254.169.254:80":                               {},
			address(3).Addr().String():                         {},
			"localhost:80":                                     {},
			"[2001:db8::7%eth0]:8080":                          {},
			"":                                                 {},
			"x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x," + address(3).String(): {}, // too many are named before
		} {
			seen, seed := map[netip.AddrPort]bool{}, uint64(1)
			for range 300 {
				info := &PickInfo{Hash: Random(&seed), Hashed: true}
				info.AddOverrides([]byte(value))
				seen[b.PickFor(&seed, &Tried{}, info).Address()] = true
			}
			switch {
			case want.IsValid() && (len(seen) != 1 || !seen[want]):
				t.Errorf("%s: %q: it goes to %v", name, value, seen)
			case !want.IsValid() && (len(seen) != 10 || seen[address(50)] || seen[address(60)]):
				t.Errorf("%s: %q: it goes to %d of the 10 fit endpoints", name, value, len(seen))
			}
		}
		info, seed := &PickInfo{}, uint64(1)
		info.AddOverrides([]byte(address(1).String() + "," + address(2).String()))
		tried := triedOf(b.Endpoints()[1])
		if e := b.PickFor(&seed, tried, info); e.Address() != address(2) {
			t.Errorf("%s: a retry goes to %v, not to the next one that is named", name, e)
		}
	}
}

func TestZoneShares(t *testing.T) {
	const n = 40_000
	local := func(p *config.PreferLocalZone) *config.LoadBalancer {
		if p.Percentage == 0 {
			p.Percentage = 100
		}
		return &config.LoadBalancer{Type: config.LoadBalancing_LOAD_BALANCING_RANDOM, PreferLocalZone: p}
	}
	weights := func(kind config.LoadBalancing, w ...*config.ZoneWeight) *config.LoadBalancer {
		l := &config.LoadBalancer{Type: kind, ZoneWeights: w}
		if kind == config.LoadBalancing_LOAD_BALANCING_CONSISTENT_HASH {
			l.ConsistentHash = hashed(65537).ConsistentHash
		}
		return l
	}
	random, hash := config.LoadBalancing_LOAD_BALANCING_RANDOM, config.LoadBalancing_LOAD_BALANCING_CONSISTENT_HASH
	for name, tc := range map[string]struct {
		l      *config.LoadBalancer
		own    string
		counts map[string]int
		fail   string // a zone of which all endpoints fail
		want   map[string]float64
	}{
		"more than enough":     {local(&config.PreferLocalZone{}), "a", map[string]int{"a": 4, "b": 4, "c": 1}, "", map[string]float64{"a": 1}},
		"just enough":          {local(&config.PreferLocalZone{}), "a", map[string]int{"a": 3, "b": 3}, "", map[string]float64{"a": 1}},
		"not enough":           {local(&config.PreferLocalZone{}), "a", map[string]int{"a": 1, "b": 3}, "", map[string]float64{"a": .5, "b": .5}},
		"others in proportion": {local(&config.PreferLocalZone{}), "a", map[string]int{"a": 1, "b": 5, "c": 6}, "", map[string]float64{"a": .25, "b": .25, "c": .5}},
		"none to a zone that has not enough either": {local(&config.PreferLocalZone{}), "a", map[string]int{"a": 1, "b": 1, "c": 10}, "", map[string]float64{"a": .25, "c": .75}},
		"too few":                  {local(&config.PreferLocalZone{MinEndpoints: 9}), "a", map[string]int{"a": 4, "b": 4}, "", map[string]float64{"a": .5, "b": .5}},
		"too few that are fit":     {local(&config.PreferLocalZone{MinEndpoints: 6}), "a", map[string]int{"a": 2, "b": 2, "c": 2}, "c", map[string]float64{"a": .5, "b": .5}},
		"percentage":               {local(&config.PreferLocalZone{Percentage: 40}), "a", map[string]int{"a": 2, "b": 2}, "", map[string]float64{"a": .7, "b": .3}},
		"no zone of its own":       {local(&config.PreferLocalZone{}), "", map[string]int{"a": 1, "b": 3}, "", map[string]float64{"a": .25, "b": .75}},
		"nothing in its own zone":  {local(&config.PreferLocalZone{}), "c", map[string]int{"a": 1, "b": 3}, "", map[string]float64{"a": .25, "b": .75}},
		"own zone fails":           {local(&config.PreferLocalZone{}), "a", map[string]int{"a": 3, "b": 2, "c": 1}, "a", map[string]float64{"b": 2.0 / 3, "c": 1.0 / 3}},
		"another fails":            {local(&config.PreferLocalZone{}), "a", map[string]int{"a": 2, "b": 2, "c": 4}, "c", map[string]float64{"a": 1}},
		"forced":                   {local(&config.PreferLocalZone{Force: true, MinEndpointsInZone: 1}), "a", map[string]int{"a": 1, "b": 9}, "", map[string]float64{"a": 1}},
		"forced, too few":          {local(&config.PreferLocalZone{Force: true, MinEndpointsInZone: 2}), "a", map[string]int{"a": 1, "b": 3}, "", map[string]float64{"a": .5, "b": .5}},
		"weights":                  {weights(random, &config.ZoneWeight{Zone: "a", Weight: 3}), "", map[string]int{"a": 1, "b": 5}, "", map[string]float64{"a": .75, "b": .25}},
		"a zone that is unknown":   {weights(random, &config.ZoneWeight{Zone: "a", Weight: 3}), "", map[string]int{"": 2, "a": 1}, "", map[string]float64{"": .25, "a": .75}},
		"weight 0":                 {weights(random, &config.ZoneWeight{Zone: "a"}), "", map[string]int{"a": 5, "b": 1}, "", map[string]float64{"b": 1}},
		"weight 0 is what is left": {weights(random, &config.ZoneWeight{Zone: "a"}), "", map[string]int{"a": 5, "b": 1}, "b", map[string]float64{"a": 1}},
		"a zone of weight fails":   {weights(random, &config.ZoneWeight{Zone: "a", Weight: 8}), "", map[string]int{"a": 3, "b": 2, "c": 1}, "a", map[string]float64{"b": .5, "c": .5}},
		"weights of a hash":        {weights(hash, &config.ZoneWeight{Zone: "a", Weight: 3}), "", map[string]int{"a": 2, "b": 6}, "", map[string]float64{"a": .75, "b": .25}},
		"one zone":                 {weights(random, &config.ZoneWeight{Zone: "a", Weight: 3}), "", map[string]int{"a": 2}, "", map[string]float64{"a": 1}},
	} {
		s, b := balanced(t, tc.l, inZones(tc.counts)...)
		s.SetZone(tc.own)
		for _, e := range b.Endpoints() {
			avoid(tc.fail != "" && e.Zone() == tc.fail, e)
		}
		for _, refreshed := range []bool{false, true} {
			if refreshed {
				s.UpdateWeights(time.Now())
			}
			got := map[string]float64{}
			for e, share := range shareOf(b, n) {
				got[e.Zone()] += share
			}
			if tc.fail != "" && !refreshed { // what is not known yet is at least not used
				if got[tc.fail] > 0 {
					t.Errorf("%s: the zone that fails has a share of %.3f", name, got[tc.fail])
				}
				continue
			}
			for _, zone := range []string{"", "a", "b", "c"} {
				if !near(got[zone], tc.want[zone], n) {
					t.Errorf("%s: zone %q has a share of %.3f, want %.3f", name, zone, got[zone], tc.want[zone])
				}
			}
		}
	}
}

// TestZonesOfNoWeight: an endpoint of a zone of weight 0 gets no request while another one is fit, even if it was tried.
func TestZonesOfNoWeight(t *testing.T) {
	for name, l := range everyBalancer() {
		if l.PreferLocalZone != nil {
			continue
		}
		l.ZoneWeights = []*config.ZoneWeight{{Zone: "a"}, {Zone: "b", Weight: 2}}
		for _, table := range []bool{true, false} {
			s, b := balanced(t, l, inZones(map[string]int{"a": 3, "b": 2, "c": 2})...)
			of := map[string][]*Endpoint{}
			for _, e := range b.Endpoints() {
				of[e.Zone()] = append(of[e.Zone()], e)
			}
			others := slices.Concat(of["b"], of["c"])
			zones := func(tried ...*Endpoint) string {
				if !table {
					b.list.Load().balancer.lookup.Store(nil)
				}
				seed, seen := uint64(1), map[string]bool{}
				for range 2000 {
					seen[b.PickFor(&seed, triedOf(tried...), &PickInfo{Hash: Random(&seed), Hashed: true}).Zone()] = true
				}
				return strings.Join(slices.Sorted(maps.Keys(seen)), " ")
			}
			check := func(what, want string, tried ...*Endpoint) {
				t.Helper()
				for range 2 { // before and after the shares of zones are computed
					if got := zones(tried...); got != want {
						t.Errorf("%s, table %v, %s: zones %s, want %s", name, table, what, got, want)
					}
					s.UpdateWeights(time.Now())
				}
			}
			check("all are fit", "b c")
			check("zone b was tried", "c", of["b"]...)
			check("all others were tried", "b c", others...)
			avoid(true, of["b"]...)
			check("zone b fails", "c")
			check("zone b fails, and zone c was tried", "b", of["c"]...)
			avoid(true, others...)
			check("all others fail", "a")
			check("all others fail, and one was tried", "a", of["b"][0], of["a"][0])
			avoid(true, of["a"]...)
			check("all fail", "b c")
			avoid(false, b.Endpoints()...)
			check("all are fit again", "b c")
		}
	}
}

// TestZoneChanges: an endpoint is known to be in another zone while it stays the same.
func TestZoneChanges(t *testing.T) {
	l := &config.LoadBalancer{ZoneWeights: []*config.ZoneWeight{{Zone: "a", Weight: 0}}}
	s, b := balanced(t, l, inZones(map[string]int{"a": 1, "b": 1})...)
	before := b.Endpoints()[0]
	moved := inZones(map[string]int{"b": 2})
	moved[1].Zone = "a"
	apply(t, s, endpointsResource(key, moved...))
	var seed uint64
	for range 100 {
		if e := b.Pick(&seed, &Tried{}); e != before || e.Zone() != "b" {
			t.Fatalf("%v in zone %q is chosen", e, e.Zone())
		}
	}
}

// TestSettingsChange: another load balancer is in force at once, and the endpoints stay.
func TestSettingsChange(t *testing.T) {
	s, b := balanced(t, hashed(65537), numbered(5)...)
	list := b.Endpoints()
	var seed uint64
	for name, l := range everyBalancer() {
		apply(t, s, balancedResource(l))
		if b.Pick(&seed, &Tried{}) == nil || b.Endpoints()[2] != list[2] {
			t.Errorf("%s: an endpoint is gone", name)
		}
	}
	apply(t, s, hashedResource(5003))
	awaitTable(t, b)
	if n := len(b.list.Load().balancer.lookup.Load().slots); n != 5003 {
		t.Errorf("the table has %d slots", n)
	}
	apply(t, s, backendResource(key))
	if b.list.Load().balancer != nil || b.Balancing() != nil {
		t.Error("there is a balancer, and no load balancer")
	}
}

func hashedResource(size uint32) *config.Resource { return balancedResource(hashed(size)) }

func TestRefusedBalancers(t *testing.T) {
	cookie := func(c *config.HashCookie) *config.LoadBalancer {
		l := hashed(65537)
		l.ConsistentHash.SourceIp, l.ConsistentHash.Cookie = false, c
		return l
	}
	for name, l := range map[string]*config.LoadBalancer{
		"no prime":        hashed(65536),
		"square of prime": hashed(25),
		"too large":       hashed(5000077),
		"too small":       hashed(1),
		"no hash":         {Type: config.LoadBalancing_LOAD_BALANCING_CONSISTENT_HASH},
		"no utilization":  {Type: config.LoadBalancing_LOAD_BALANCING_BACKEND_UTILIZATION},
		"unknown":         {Type: 99},
		"two ways":        {PreferLocalZone: &config.PreferLocalZone{}, ZoneWeights: []*config.ZoneWeight{{Zone: "a"}}},
		"cookie":          cookie(&config.HashCookie{Name: "a b"}),
		"attribute":       cookie(&config.HashCookie{Name: "a", Attributes: []*config.CookieAttribute{{Name: "x", Value: "y; Domain=example.com"}}}),
		"line":            cookie(&config.HashCookie{Name: "a", Attributes: []*config.CookieAttribute{{Name: "x", Value: "y\r\nz"}}}),
	} {
		s := NewSet(Options{})
		if s.Apply([]*config.Resource{balancedResource(l)}, nil) == nil {
			t.Errorf("%s: it is in force", name)
		}
		s.Close()
	}
}

func TestHashCookieAttributes(t *testing.T) {
	for want, c := range map[string]*config.HashCookie{
		"; SameSite=Strict; Path=/":                      {Name: "a"},
		"; Max-Age=2; SameSite=Strict; Path=/; HttpOnly": {Name: "a", TtlNanos: 1_000_000_001, Attributes: []*config.CookieAttribute{{Name: "HttpOnly"}}},
		"; path=/x; SameSite=Lax; Secure":                {Name: "a", Attributes: []*config.CookieAttribute{{Name: "path", Value: "/x"}, {Name: "SameSite", Value: "Lax"}, {Name: "Secure"}}},
	} {
		l := hashed(65537)
		l.ConsistentHash.SourceIp, l.ConsistentHash.Cookie = false, c
		_, b := balanced(t, l)
		if got := string(b.Balancing().Cookie.Attributes); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// TestPicksWhileEndpointsChange is for the race detector.
func TestPicksWhileEndpointsChange(t *testing.T) {
	for name, l := range everyBalancer() {
		s, b := balanced(t, l, inZones(map[string]int{"a": 5, "b": 5})...)
		var wg sync.WaitGroup
		for g := range uint64(3) {
			wg.Go(func() {
				seed := g
				for i := range 5000 {
					e := b.PickFor(&seed, &Tried{}, &PickInfo{Hash: seed, Hashed: true})
					if e == nil {
						t.Errorf("%s: none is chosen", name)
						return
					}
					e.Begin()
					if i%7 == 0 {
						e.Failed()
					}
					e.End()
				}
			})
		}
		for i := range 60 {
			apply(t, s, endpointsResource(key, inZones(map[string]int{"a": 1 + i%7, "b": 1 + i%3, "c": i % 4})...))
			s.SetZone([]string{"a", "b", ""}[i%3])
			s.UpdateWeights(time.Unix(0, s.tick.Load()).Add(time.Second))
		}
		wg.Wait()
	}
}

func TestPicksAllocateNothing(t *testing.T) {
	named := []byte("10.9.9.9:80, [2001:db8::7]:80")
	for name, l := range everyBalancer() {
		s, b := balanced(t, l, inZones(map[string]int{"a": 5, "b": 7})...)
		s.SetZone("a")
		info, seed := &PickInfo{}, uint64(1)
		if n := testing.AllocsPerRun(1000, func() {
			*info = PickInfo{Hash: Random(&seed), Hashed: true}
			info.AddOverrides(named)
			e := b.PickFor(&seed, &Tried{}, info)
			e.Begin()
			e.End()
		}); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

func BenchmarkBalancers(b *testing.B) {
	for name, l := range everyBalancer() {
		b.Run(name, func(b *testing.B) {
			s, backend := balanced(b, l, inZones(map[string]int{"a": 5, "b": 5})...)
			s.SetZone("a")
			var seed uint64
			info := &PickInfo{Hashed: true}
			b.ReportAllocs()
			for b.Loop() {
				info.Hash = Random(&seed)
				e := backend.PickFor(&seed, &Tried{}, info)
				e.Begin()
				e.End()
			}
		})
	}
}

func BenchmarkTable(b *testing.B) {
	for _, size := range []int{65537, maxTable} {
		for _, n := range []int{10, 1000} {
			b.Run(fmt.Sprintf("%d endpoints in %d slots", n, size), func(b *testing.B) {
				in := &tableInput{size: size}
				for i := range n {
					in.addresses = append(in.addresses, address(i))
				}
				b.ReportAllocs()
				for b.Loop() {
					newTable(in)
				}
			})
		}
	}
}
