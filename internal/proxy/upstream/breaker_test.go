package upstream

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/testkit"
)

// broken has the backend of newSet, or one by HTTP/2, be bounded from now on; nil is not.
func broken(t testing.TB, s *Set, c *config.CircuitBreaker) {
	t.Helper()
	old := s.Get(key).Config()
	r := backendResource(key)
	r.GetBackend().Protocol = old.Protocol
	if c != nil {
		r.GetBackend().Traffic = &config.BackendTraffic{CircuitBreaker: c}
	}
	apply(t, s, r)
}

// zero waits until nothing is counted any more.
func zero(t testing.TB, b *Backend) {
	t.Helper()
	k := &b.use().breaker
	counts := func() string {
		k.mu.Lock()
		defer k.mu.Unlock()
		return fmt.Sprint(k.requests.Load(), k.pending.Load(), k.retries.Load(), k.blocked.Load(), k.starved.Load(), k.serving.Load(), k.making)
	}
	testkit.Eventually(t, "nothing is counted", func() bool { return counts() == "0 0 0 0 0 0 0" })
}

// connecting calls Connect on another goroutine.
func connecting(ctx context.Context, e *Endpoint, repeatable bool) <-chan connected {
	got := make(chan connected, 1)
	go func() {
		c, s, err := e.Connect(ctx, time.Time{}, repeatable)
		got <- connected{c, s, err}
	}()
	return got
}

func (b *Backend) waitsFor(t testing.TB, queues int64) {
	t.Helper()
	testkit.Eventually(t, "requests wait for the limit", func() bool { return b.use().breaker.blocked.Load() == queues })
}

func wantBreaker(t testing.TB, err error) {
	t.Helper()
	var failure *DialError
	if !errors.As(err, &failure) || failure.Reason != ReasonBreaker || failure.Retryable {
		t.Errorf("got %v, want a limit of the breaker", err)
	}
}

// TestBreakerConnections: beyond the limit a request waits for a connection that is given back, as many as may wait.
func TestBreakerConnections(t *testing.T) {
	srv := listen(t)
	s, b := newSet(t, Options{ConnectTimeout: time.Minute}, endpoint(srv.addrPort()))
	broken(t, s, &config.CircuitBreaker{MaxConnections: proto.Uint32(1), MaxPendingRequests: proto.Uint32(1)})
	e := b.Endpoints()[0]
	c := wait(t, connecting(t.Context(), e, true)).conn
	waiting := connecting(t.Context(), e, true)
	b.waitsFor(t, 1)
	_, _, err := e.Connect(t.Context(), time.Time{}, true)
	wantBreaker(t, err)
	_, err = e.ConnectTunnel(t.Context(), nil)
	wantBreaker(t, err)
	c.Release()
	got := wait(t, waiting)
	if got.conn != c || got.err != nil {
		t.Fatalf("%+v", got)
	}
	got.conn.Close()
	zero(t, b)
	for _, st := range b.BreakerStats() {
		want := map[BreakerLimit]int64{LimitConnections: 1, LimitPending: 2}[st.Limit]
		if st.Overflows != want || st.Open {
			t.Errorf("%v: %+v, want %d overflows", st.Limit, st, want)
		}
	}
}

// TestBreakerRefusesTunnels: a tunnel beyond a limit of connections is refused immediately, because those before it may stay open for hours, whether or not a request waits.
func TestBreakerRefusesTunnels(t *testing.T) {
	for name, c := range map[string]*config.CircuitBreaker{"connections": {MaxConnections: proto.Uint32(1)}, "endpoint": {MaxConnectionsPerEndpoint: proto.Uint32(1)}} {
		t.Run(name, func(t *testing.T) {
			s, b := newSet(t, Options{ConnectTimeout: time.Minute}, endpoint(listen(t).addrPort()))
			broken(t, s, c)
			e := b.Endpoints()[0]
			held, err := e.ConnectTunnel(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), testkit.Patience)
			defer cancel()
			_, err = e.ConnectTunnel(ctx, nil)
			wantBreaker(t, err)
			request := connecting(t.Context(), e, true)
			b.waitsFor(t, 1)
			_, err = e.ConnectTunnel(ctx, nil)
			wantBreaker(t, err)
			held.Close()
			got := wait(t, request)
			if got.err != nil {
				t.Fatal(got.err)
			}
			got.conn.Release()
			held, err = e.ConnectTunnel(ctx, nil) // the idle connection makes room
			if err != nil {
				t.Fatal(err)
			}
			held.Close()
			zero(t, b)
		})
	}
}

// TestBreakerClosesWhatIdles: a request that can use none of the connections that idle, at its endpoint or another, has one closed.
func TestBreakerClosesWhatIdles(t *testing.T) {
	one, other := listen(t), listen(t)
	s, b := newSet(t, Options{ConnectTimeout: time.Minute}, endpoint(one.addrPort()), endpoint(other.addrPort()))
	broken(t, s, &config.CircuitBreaker{MaxConnections: proto.Uint32(1)})
	first, second := b.Endpoints()[0], b.Endpoints()[1]
	c := wait(t, connecting(t.Context(), first, true)).conn
	c.Release()
	d := wait(t, connecting(t.Context(), second, true)) // it idles before the other one waits
	if d.err != nil {
		t.Fatal(d.err)
	}
	waiting := connecting(t.Context(), first, true)
	b.waitsFor(t, 1)
	d.conn.Release() // it would idle behind it
	got := wait(t, waiting)
	if got.err != nil || got.conn.Endpoint() != first {
		t.Fatalf("%+v", got)
	}
	got.conn.Release()
	tunnel, err := first.ConnectTunnel(t.Context(), nil) // which needs a new one
	if err != nil {
		t.Fatal(err)
	}
	if n := b.Stats().Open; n != 1 {
		t.Errorf("%d connections are open", n)
	}
	tunnel.Close()
	zero(t, b)
}

// TestBreakerPerEndpoint: the limit of each endpoint leaves the others alone.
func TestBreakerPerEndpoint(t *testing.T) {
	one, other := listen(t), listen(t)
	s, b := newSet(t, Options{ConnectTimeout: time.Minute}, endpoint(one.addrPort()), endpoint(other.addrPort()))
	broken(t, s, &config.CircuitBreaker{MaxConnectionsPerEndpoint: proto.Uint32(1)})
	first, second := b.Endpoints()[0], b.Endpoints()[1]
	c := wait(t, connecting(t.Context(), first, true)).conn
	waiting := connecting(t.Context(), first, true)
	b.waitsFor(t, 1)
	d := wait(t, connecting(t.Context(), second, true))
	if d.err != nil {
		t.Fatal(d.err)
	}
	d.conn.Release()
	if second.Idle() != d.conn {
		t.Error("a connection was closed for a request that has no use of that")
	}
	c.Close()
	if got := wait(t, waiting); got.err != nil || got.conn.Endpoint() != first {
		t.Fatalf("%+v", got)
	}
}

// TestBreakerClosesForWhoNeedsIt: for a request that waits for the limit on all connections one that idles is closed, and none for a request that waits for its endpoint's.
func TestBreakerClosesForWhoNeedsIt(t *testing.T) {
	for range 20 { // who comes first is left to chance
		var addresses []*config.Endpoint
		for range 4 {
			addresses = append(addresses, endpoint(listen(t).addrPort()))
		}
		s, b := newSet(t, Options{ConnectTimeout: time.Minute}, addresses...)
		broken(t, s, &config.CircuitBreaker{MaxConnections: proto.Uint32(3), MaxConnectionsPerEndpoint: proto.Uint32(1)})
		all := b.Endpoints()
		held := wait(t, connecting(t.Context(), all[0], true)).conn
		forEndpoint := connecting(t.Context(), all[0], true)
		b.waitsFor(t, 1)
		for _, e := range all[1:3] {
			wait(t, connecting(t.Context(), e, true)).conn.Release()
		}
		got := wait(t, connecting(t.Context(), all[3], true))
		if got.err != nil {
			t.Fatal(got.err)
		}
		if n := all[1].idleNow() + all[2].idleNow(); n != 1 {
			t.Fatalf("%d of two connections idle on, want 1", n)
		}
		held.Close()
		if got := wait(t, forEndpoint); got.err != nil {
			t.Fatal(got.err)
		}
	}
}

// TestPreconnectLetsOthersFirst: no spare connection is made while a request waits for the limit on all connections.
func TestPreconnectLetsOthersFirst(t *testing.T) {
	srv := listen(t)
	s, b := newSet(t, Options{}, endpoint(srv.addrPort()))
	r := backendResource(key)
	r.GetBackend().Traffic = &config.BackendTraffic{Connections: &config.BackendConnections{PreconnectPerEndpointPercent: 200}}
	apply(t, s, r)
	e := b.Endpoints()[0]
	e.Begin()
	defer e.End()
	b.use().breaker.starved.Add(1)
	e.preconnect()
	if n := e.use().spares.Load(); n != 0 {
		t.Errorf("%d spare connections are being made", n)
	}
	b.use().breaker.starved.Add(-1)
	e.preconnect()
	testkit.Eventually(t, "spare connections", func() bool { return e.Stats().Open > 0 })
}

// TestBreakerWaitEnds: a wait for the limit ends with an edit that raises it or takes it away, when the endpoint goes, when the client does, and when the time is
// over; by both protocols.
func TestBreakerWaitEnds(t *testing.T) {
	one := func(n uint32) *config.CircuitBreaker { return &config.CircuitBreaker{MaxConnections: &n} }
	for name, c := range map[string]struct {
		event  func(*testing.T, *Set, context.CancelFunc)
		reason Reason // "" is that a connection is made
	}{
		"limit raised":  {func(t *testing.T, s *Set, _ context.CancelFunc) { broken(t, s, one(2)) }, ""},
		"limit removed": {func(t *testing.T, s *Set, _ context.CancelFunc) { broken(t, s, nil) }, ""},
		"endpoint gone": {func(t *testing.T, s *Set, _ context.CancelFunc) { apply(t, s, endpointsResource(key)) }, ReasonGone},
		"client gone":   {func(_ *testing.T, _ *Set, cancel context.CancelFunc) { cancel() }, ReasonCanceled},
		"time over":     {func(*testing.T, *Set, context.CancelFunc) {}, ReasonBreaker},
	} {
		for _, h2 := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/HTTP2 %v", name, h2), func(t *testing.T) {
				srv := silent(t)
				o := Options{ConnectTimeout: time.Minute}
				if name == "time over" {
					o.ConnectTimeout = 50 * time.Millisecond
				}
				s, b := newSet(t, o, endpoint(srv.addrPort()))
				if h2 {
					r := backendResource(key)
					r.GetBackend().Protocol = config.BackendProtocol_BACKEND_PROTOCOL_H2C
					apply(t, s, r)
				}
				e := b.Endpoints()[0]
				held, err := e.ConnectTunnel(t.Context(), nil)
				if err != nil {
					t.Fatal(err)
				}
				broken(t, s, one(1))
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				waiting := connecting(ctx, e, true)
				if name != "time over" {
					b.waitsFor(t, 1)
				}
				c.event(t, s, cancel)
				got := wait(t, waiting)
				var failure *DialError
				switch errors.As(got.err, &failure); {
				case c.reason == "" && got.err != nil, c.reason != "" && (failure == nil || failure.Reason != c.reason):
					t.Errorf("got %+v, want %q", got, c.reason)
				case got.conn != nil:
					got.conn.Close()
				case got.place != nil:
					got.place.Leave(false)
				}
				held.Close()
				zero(t, b)
			})
		}
	}
}

// TestBreakerOfNothing: a limit of 0 lets nothing through, at once.
func TestBreakerOfNothing(t *testing.T) {
	srv := listen(t)
	for name, c := range map[string]*config.CircuitBreaker{
		"connections": {MaxConnections: proto.Uint32(0)}, "endpoint": {MaxConnectionsPerEndpoint: proto.Uint32(0)}, "pending": {MaxPendingRequests: proto.Uint32(0)},
	} {
		s, b := newSet(t, Options{ConnectTimeout: time.Hour}, endpoint(srv.addrPort()))
		broken(t, s, c)
		_, _, err := b.Endpoints()[0].Connect(t.Context(), time.Time{}, true)
		wantBreaker(t, err)
		if stats := b.BreakerStats(); len(stats) != 1 || !stats[0].Open || stats[0].Overflows != 1 {
			t.Errorf("%s: %+v", name, stats)
		}
		zero(t, b)
	}
	s, b := newSet(t, Options{})
	broken(t, s, &config.CircuitBreaker{MaxParallelRequests: proto.Uint32(0), MaxParallelRetries: proto.Uint32(0)})
	if _, ok := b.Admit(); ok {
		t.Error("a request is admitted")
	}
	if _, ok := b.AdmitRetry(); ok {
		t.Error("a retry is admitted")
	}
}

// TestBreakerAdmits: requests and retries pass up to their limits, of which variants have no others, and those that began before a breaker are not counted.
func TestBreakerAdmits(t *testing.T) {
	s, b := newSet(t, Options{})
	if k, ok := b.Admit(); k != nil || !ok {
		t.Errorf("without a breaker: %v, %v", k, ok)
	}
	broken(t, s, &config.CircuitBreaker{MaxParallelRequests: proto.Uint32(2), RetryBudget: &config.ParallelRetryBudget{Numerator: 1, Denominator: 2}})
	v := &Backend{key: key, set: s, base: b}
	if _, ok := b.AdmitRetry(); ok {
		t.Error("a retry is admitted though there is no request")
	}
	one, ok1 := b.Admit()
	two, ok2 := v.Admit()
	if _, ok := b.Admit(); ok || !ok1 || !ok2 || one != two {
		t.Error("not two of three requests are admitted")
	}
	retry, ok := v.AdmitRetry()
	if _, again := b.AdmitRetry(); !ok || again {
		t.Error("not one of two retries is admitted, where half of two requests are allowed")
	}
	broken(t, s, nil) // what was begun ends nevertheless
	one.Done()
	two.Done()
	retry.RetryDone()
	zero(t, b)
	for requests, want := range map[int64]int64{0: 3, 10: 3, 20: 4, 1000: 200} {
		l := &breakerLimits{retries: 1, budget: &parallelRetryBudget{20, 100, 3}}
		if n := l.mostRetries(requests); n != want {
			t.Errorf("%d retries for %d requests, want %d", n, requests, want)
		}
	}
	r := backendResource(key)
	r.GetBackend().Traffic = &config.BackendTraffic{CircuitBreaker: &config.CircuitBreaker{RetryBudget: &config.ParallelRetryBudget{Numerator: 1}}}
	if err := s.Apply([]*config.Resource{r}, nil); err == nil {
		t.Error("a fraction without a denominator is taken")
	}
}

// TestRequestsPerConnection: a connection by HTTP/1.1 is closed when it has carried as many requests as it may; an edit concerns those that are open.
func TestRequestsPerConnection(t *testing.T) {
	srv := listen(t)
	s, b := newSet(t, Options{}, endpoint(srv.addrPort()))
	e := b.Endpoints()[0]
	c := dial(t, e)
	for range 2 {
		c.Release()
		if e.Idle() != c {
			t.Fatal("the connection is not used again")
		}
	}
	broken(t, s, &config.CircuitBreaker{MaxRequestsPerConnection: 4})
	c.Release()
	if e.Idle() != c {
		t.Fatal("the connection is not used for its fourth request")
	}
	c.Release()
	if e.Idle() != nil || b.Stats().Open != 0 {
		t.Error("the connection is used for a fifth request")
	}
}

// TestBreakerStress: however requests, tunnels, edits and comings and goings of endpoints meet, no more connections are open than allowed, and in the end nothing is counted.
func TestBreakerStress(t *testing.T) {
	servers := []*server{listen(t), listen(t), listen(t)}
	var all []*config.Endpoint
	for _, srv := range servers {
		all = append(all, endpoint(srv.addrPort()))
	}
	s, b := newSet(t, Options{ConnectTimeout: time.Second}, all...)
	const most = 4
	limits := &config.CircuitBreaker{MaxConnections: proto.Uint32(most), MaxPendingRequests: proto.Uint32(20), MaxConnectionsPerEndpoint: proto.Uint32(2),
		MaxParallelRequests: proto.Uint32(30), MaxRequestsPerConnection: 7}
	broken(t, s, limits)
	var users sync.WaitGroup
	var served, refused, open atomic.Int64
	use := func(seed uint64) {
		tried := new(Tried)
		admitted, ok := b.Admit()
		if !ok {
			refused.Add(1)
			return
		}
		defer admitted.Done()
		e := b.Pick(&seed, tried)
		if e == nil {
			return
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(1+seed%50)*time.Millisecond)
		defer cancel()
		var c *Conn
		var err error
		switch seed % 4 {
		case 0:
			c, err = e.ConnectTunnel(ctx, nil)
		case 1:
			c, _, err = e.Connect(ctx, time.Time{}, false)
		default:
			if c = e.Idle(); c == nil {
				c, _, err = e.Connect(ctx, time.Time{}, true)
			}
		}
		if err != nil {
			refused.Add(1)
			return
		}
		if n := open.Add(1); n > most {
			t.Errorf("%d connections are in use", n)
		}
		err = echo(c)
		served.Add(1)
		open.Add(-1)
		if err != nil || seed%8 == 0 || seed%4 == 0 {
			c.Close()
		} else {
			c.Release()
		}
	}
	for i := range 40 {
		users.Go(func() {
			r := rand.New(rand.NewPCG(1, uint64(i)))
			for range 50 {
				use(r.Uint64())
			}
		})
	}
	done := make(chan struct{})
	go func() {
		users.Wait()
		close(done)
	}()
	for i := 0; ; i++ {
		select {
		case <-done:
		default:
			switch i % 3 {
			case 0:
				apply(t, s, endpointsResource(key, all[i%2:]...))
			case 1:
				apply(t, s, endpointsResource(key, all...))
			case 2:
				limits.MaxConnectionsPerEndpoint = proto.Uint32(uint32(1 + i%4))
				broken(t, s, proto.Clone(limits).(*config.CircuitBreaker))
				s.Sweep(time.Now())
			}
			time.Sleep(time.Millisecond)
			continue
		}
		break
	}
	if served.Load() < 40 {
		t.Errorf("%d of 2000 were served, %d refused", served.Load(), refused.Load())
	}
	apply(t, s, endpointsResource(key))
	zero(t, b)
	testkit.Eventually(t, "no connection is open", func() bool { return b.Stats().Open == 0 })
}

func BenchmarkAdmit(b *testing.B) {
	for name, c := range map[string]*config.CircuitBreaker{
		"none": nil, "requests": {MaxParallelRequests: proto.Uint32(1 << 30)}, "connections": {MaxConnections: proto.Uint32(1 << 30)},
		"pending": {MaxPendingRequests: proto.Uint32(1 << 30)}, "budget": {RetryBudget: &config.ParallelRetryBudget{Numerator: 1, Denominator: 5}},
		"all": {MaxConnections: proto.Uint32(1 << 30), MaxPendingRequests: proto.Uint32(1 << 30), MaxParallelRequests: proto.Uint32(1 << 30),
			MaxParallelRetries: proto.Uint32(1 << 30), MaxConnectionsPerEndpoint: proto.Uint32(1 << 30), MaxRequestsPerConnection: 1 << 30},
	} {
		b.Run(name, func(b *testing.B) {
			srv := listen(b)
			s, backend := newSet(b, Options{}, endpoint(srv.addrPort()))
			broken(b, s, c)
			e := backend.Endpoints()[0]
			dial(b, e).Release()
			b.ReportAllocs()
			for b.Loop() {
				k, ok := backend.Admit()
				c := e.Idle()
				if !ok || c == nil {
					b.Fatal("refused")
				}
				c.Release()
				if k != nil {
					k.Done()
				}
			}
		})
	}
}
