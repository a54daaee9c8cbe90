package upstream

import (
	"runtime"
	"testing"
	"time"
	"unsafe"

	"github.com/moongate-dev/moongate/internal/proxy/cores"
)

func TestSharesAddUp(t *testing.T) {
	if size := unsafe.Sizeof(coreShard{}); size != 128 {
		t.Errorf("a shard has %d bytes, want 128", size)
	}
	for _, n := range []int{1, 2, 8, 64} {
		for most := range 300 {
			sum := 0
			for i := range n {
				sum += share(most, n, i)
			}
			if sum != most {
				t.Fatalf("%d shards share %d of %d", n, sum, most)
			}
		}
	}
}

// manyCores makes the test see four of them.
func manyCores(t testing.TB) {
	t.Helper()
	before := runtime.GOMAXPROCS(4)
	t.Cleanup(func() { runtime.GOMAXPROCS(before) })
}

// An endpoint keeps what it has, and finds all of it, while it is spread and gathered.
func TestSpreadLosesNothing(t *testing.T) {
	manyCores(t)
	srv := listen(t)
	s, b := newSet(t, Options{MaxIdle: 6}, endpoint(srv.addrPort()))
	e := b.Endpoints()[0]
	var conns []*Conn
	for range 10 {
		conns = append(conns, dial(t, e))
	}
	for _, c := range conns[:5] {
		c.Release()
	}
	e.Begin()
	check := func(what string, spread bool, idle, open, inFlight int64) {
		t.Helper()
		got := e.Stats()
		if e.use().spread.Load() != spread || got.Idle != idle || got.Open != open || got.InFlight != inFlight {
			t.Errorf("%s: spread %v, %+v, want %v, idle %d, open %d, in flight %d", what, e.use().spread.Load(), got, spread, idle, open, inFlight)
		}
		if sum := b.Stats(); sum.Idle != idle || sum.InFlight != inFlight {
			t.Errorf("%s: the backend says %+v", what, sum)
		}
	}
	check("at first", false, 5, 10, 1)
	e.use().met.Store(spreadAt)
	s.Sweep(time.Now())
	check("spread", true, 5, 10, 1)
	e.Begin()
	e.Begin()
	e.End()
	for _, c := range conns[5:] {
		c.Release()
	}
	check("full", true, 6, 6, 2)
	seen := map[*Conn]bool{}
	for range 6 {
		seen[e.Idle()] = true
	}
	if len(seen) != 6 || seen[nil] || e.Idle() != nil {
		t.Errorf("found %d connections, want 6", len(seen))
	}
	for c := range seen {
		c.Release()
	}
	s.Sweep(time.Now()) // 6 requests are few
	check("gathered", false, 6, 6, 2)
	e.End()
	e.End()
	check("at rest", false, 6, 6, 0)
	e.spreadTo(4)
	apply(t, s, endpointsResource(key))
	if got := e.Stats(); got.Idle != 0 || got.Open != 0 {
		t.Errorf("after it left: %+v", got)
	}
	e.gather()
	e.spreadTo(4)
	if c := e.Idle(); c != nil || e.use().spread.Load() {
		t.Errorf("an endpoint that left is spread, with %v", c)
	}
}

// A connection that comes back to an endpoint that left is closed, whatever the shard.
func TestRetiredWhileSpread(t *testing.T) {
	manyCores(t)
	srv := listen(t)
	s, b := newSet(t, Options{}, endpoint(srv.addrPort()))
	e := b.Endpoints()[0]
	c := dial(t, e)
	e.spreadTo(4)
	apply(t, s, endpointsResource(key))
	c.Release()
	if got := e.Stats(); got.Idle != 0 || got.Open != 0 {
		t.Errorf("after it left: %+v", got)
	}
}

// What has piled up at an endpoint is seen by all cores, wherever it began.
func TestPickSeesWhatIsSpread(t *testing.T) {
	b := made(t, 2)
	busy, free := b.Endpoints()[0], b.Endpoints()[1]
	for _, e := range b.Endpoints() {
		e.spreadTo(4)
	}
	for i := range 4 * unreported {
		shards := busy.use().coreShards()
		shards[i%len(shards)].busy.Add(1)
	}
	for range 4 * unreported { // and these by way of this core's shard
		busy.Begin()
	}
	seed := uint64(1)
	for range 100 {
		if got := b.Pick(&seed, new(Tried)); got != free {
			t.Fatalf("picked %v with %d requests in flight", got, got.inFlightNow())
		}
	}
	if got := busy.Stats().InFlight; got != 8*unreported {
		t.Errorf("%d in flight, want %d", got, 8*unreported)
	}
}

// pooled is a backend of two endpoints, each with idle connections.
func pooled(t testing.TB, idle int) *Backend {
	t.Helper()
	_, b := newSet(t, Options{}, endpoint(listen(t).addrPort()), endpoint(listen(t).addrPort()))
	for _, e := range b.Endpoints() {
		var conns []*Conn
		for range idle {
			conns = append(conns, dial(t, e))
		}
		for _, c := range conns {
			c.Release()
		}
	}
	return b
}

// useEndpoint is what a request does to an endpoint but for its I/O.
func useEndpoint(b *Backend, seed *uint64) {
	e := b.Pick(seed, new(Tried))
	e.Begin()
	if c := e.Idle(); c != nil {
		c.Release()
	}
	e.End()
}

// All cores use two endpoints, as they do where a Service has few pods.
func BenchmarkUseEndpointParallel(b *testing.B) {
	for _, spread := range []bool{false, true} {
		name := "one shard"
		if spread {
			name = "a shard for each core"
		}
		b.Run(name, func(b *testing.B) {
			backend := pooled(b, 64)
			for _, e := range backend.Endpoints() {
				if spread {
					e.spreadTo(cores.Most)
				}
			}
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				seed := uint64(time.Now().UnixNano())
				for pb.Next() {
					useEndpoint(backend, &seed)
				}
			})
		})
	}
}
