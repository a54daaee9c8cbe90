package ratelimit

import (
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/proxy/ratelimit/resp"
	"github.com/moongate-dev/moongate/internal/testkit"
)

// patient is a service that a busy machine does not keep from answering.
func patient(address string, gcra bool) *config.RateLimitService {
	return &config.RateLimitService{Address: address, Gcra: gcra, TimeoutNanos: int64(testkit.Patience)}
}

// connected returns a server to which there is a connection.
func connected(t testing.TB, c *config.RateLimitService) *Redis {
	t.Helper()
	s := &Redises{Logger: slog.New(slog.DiscardHandler)}
	t.Cleanup(s.Close)
	r, err := s.Get(c)
	if err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, "Redis is there", func() bool { up, _, _ := r.Report(); return up })
	return r
}

func compileGlobal(t testing.TB, s *Store, limits ...*config.RateLimit) *Rules {
	t.Helper()
	for i, l := range limits {
		if l.Name == "" {
			l.Name = fmt.Sprintf("default/p/rule/%d", i)
		}
		if l.PeriodSeconds == 0 {
			l.PeriodSeconds = 365 * 24 * 3600
		}
	}
	r, release, err := s.Compile(&config.RateLimits{Global: limits}, "HTTPRoute/default/r")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(release)
	return r
}

func passesGlobal(r *Rules, redis *Redis, req *Request, n int) (passed int) {
	var d Decision
	for range n {
		if r.Check(req, redis, &d); !d.Limited && !d.Exceeded && !d.Undecided {
			passed++
		}
	}
	return passed
}

// TestGlobalBurst: of a burst at several proxies as many pass as the limit says, all together, by both algorithms.
func TestGlobalBurst(t *testing.T) {
	server := testkit.StartRedis(t)
	for _, gcra := range []bool{false, true} {
		var passed atomic.Int64
		var all sync.WaitGroup
		for range 2 {
			redis := connected(t, patient(server.Address, gcra))
			r := compileGlobal(t, &Store{}, &config.RateLimit{Requests: 100, RequestCost: 1, HeaderFields: []*config.RateLimitValue{each("user")}})
			for range 8 {
				all.Go(func() {
					for _, user := range []string{"a", "b"} {
						passed.Add(int64(passesGlobal(r, redis, request(t, "GET /", "192.0.2.1", "User: "+user), 20)))
					}
				})
			}
		}
		all.Wait()
		if passed.Load() != 200 {
			t.Errorf("GCRA %v: %d of 640 requests pass, want 100 of each value", gcra, passed.Load())
		}
	}
}

// TestGlobalRules: all limits that match are asked; where one refuses nothing is taken from any, and it is told; one in shadow mode counts alone.
func TestGlobalRules(t *testing.T) {
	server := testkit.StartRedis(t)
	for _, gcra := range []bool{false, true} {
		redis, s := connected(t, patient(server.Address, gcra)), &Store{}
		get := []*config.RateLimitMethods{{AnyOf: []*config.RateLimitMethod{{Value: "GET"}}}}
		r := compileGlobal(t, s, &config.RateLimit{Name: "all", Requests: 5, RequestCost: 1, Headers: true}, &config.RateLimit{Name: "get", Requests: 6, RequestCost: 2, Headers: true, Methods: get},
			&config.RateLimit{Name: "shadow", Requests: 1, RequestCost: 1, Headers: true, Shadow: true}, &config.RateLimit{Name: "asked", Requests: 1, RequestCost: 0})
		var d Decision
		for i, want := range []struct {
			method      string
			limited     bool
			limit, left uint32
		}{{"GET", false, 5, 4}, {"GET", false, 6, 2}, {"GET", false, 6, 0}, {"GET", true, 6, 0}, {"PUT", false, 5, 1}, {"PUT", false, 5, 0}, {"PUT", true, 5, 0}} {
			r.Check(request(t, want.method+" /", "192.0.2.1"), redis, &d)
			if d.Limited != want.limited || !d.Reported || d.Limit != want.limit || d.Left != want.left || d.Window != 365*24*3600 || d.Reset == 0 || d.Undecided {
				t.Errorf("GCRA %v, request %d: %+v", gcra, i, d)
			}
		}
		counted := map[string]OverLimit{}
		s.Report(func(o OverLimit) { counted[o.Rule] = o })
		if counted["get"].Enforced != 1 || counted["all"].Enforced != 1 || counted["shadow"] != (OverLimit{"shadow", Global, 0, 6}) || counted["asked"].Enforced != 0 {
			t.Errorf("GCRA %v: counted %v", gcra, counted)
		}
	}
}

// TestResponseCost: a response is charged behind its end, beyond what is left, too.
func TestResponseCost(t *testing.T) {
	server := testkit.StartRedis(t)
	for _, gcra := range []bool{false, true} {
		redis := connected(t, patient(server.Address, gcra))
		r := compileGlobal(t, &Store{}, &config.RateLimit{Requests: 10, RequestCost: 0, ResponseCost: 4})
		req := request(t, "GET /", "192.0.2.1")
		for i := range 3 {
			var d Decision
			if r.Check(req, redis, &d); d.Limited || d.Undecided {
				t.Errorf("GCRA %v: request %d does not pass", gcra, i)
			}
			if i == 0 {
				if n := passesGlobal(r, redis, req, 5); n != 5 {
					t.Errorf("GCRA %v: %d requests pass before a response has ended", gcra, n)
				}
			}
			d.Charge()
			d.Charge()
			testkit.Eventually(t, "the charge is there", func() bool { return len(redis.charges) == 0 })
			if i < 2 {
				r.Check(req, redis, &d) // by the connection of the charge, behind it
			}
		}
		testkit.Eventually(t, "nothing passes", func() bool { return passesGlobal(r, redis, req, 1) == 0 })
	}
}

// TestFixedWindow: in the next window there is a new count.
func TestFixedWindow(t *testing.T) {
	server := testkit.StartRedis(t)
	for _, gcra := range []bool{false, true} {
		redis := connected(t, patient(server.Address, gcra))
		r := compileGlobal(t, &Store{}, &config.RateLimit{Requests: 3, RequestCost: 1, PeriodSeconds: 1})
		req := request(t, "GET /", "192.0.2.1")
		if n := passesGlobal(r, redis, req, 3); n < 3 {
			t.Errorf("GCRA %v: %d of 3 requests pass", gcra, n)
		}
		testkit.Eventually(t, "one is refused", func() bool { return passesGlobal(r, redis, req, 1) == 0 })
		testkit.Eventually(t, "another passes", func() bool { return passesGlobal(r, redis, req, 1) == 1 })
	}
}

// TestRedisAway: without Redis requests pass, or are refused, at once; when it is back it decides again.
func TestRedisAway(t *testing.T) {
	server := testkit.StartRedis(t)
	for _, closed := range []bool{false, true} {
		c := patient(server.Address, false)
		c.FailClosed = closed
		redis := connected(t, c)
		r := compileGlobal(t, &Store{}, &config.RateLimit{Requests: 0, RequestCost: 1})
		req := request(t, "GET /", "192.0.2.1")
		var d Decision
		if r.Check(req, redis, &d); !d.Limited || d.Undecided {
			t.Errorf("before: %+v", d)
		}
		server.Kill()
		testkit.Eventually(t, "it is missed", func() bool {
			r.Check(req, redis, &d)
			up, _, _ := redis.Report()
			return !up
		})
		if r.Check(req, redis, &d); d.Limited || !d.Undecided || d.FailClosed != closed {
			t.Errorf("without it: %+v", d)
		}
		shadow := compileGlobal(t, &Store{}, &config.RateLimit{Requests: 0, RequestCost: 1, Shadow: true})
		if shadow.Check(req, redis, &d); d.Limited || !d.Undecided || d.FailClosed {
			t.Errorf("without it, of a limit that nothing is refused for: %+v", d)
		}
		if _, undecided, _ := redis.Report(); undecided == 0 {
			t.Error("nothing is counted as undecided")
		}
		begin := time.Now()
		passesGlobal(r, redis, req, 1000)
		if spent := time.Since(begin); spent > testkit.Patience {
			t.Errorf("1000 requests have waited for %v", spent)
		}
		server.Start(t)
		testkit.Eventually(t, "it decides again", func() bool { r.Check(req, redis, &d); return d.Limited })
	}
	if r := compileGlobal(t, &Store{}, &config.RateLimit{Requests: 0, RequestCost: 1}); passesGlobal(r, nil, request(t, "GET /", "192.0.2.1"), 1) != 0 {
		t.Error("a limit that counts nowhere has decided")
	}
	for name, shadows := range map[string][]bool{"enforced": {false}, "shadow": {true}, "both": {true, false}} {
		var limits []*config.RateLimit
		for _, shadow := range shadows {
			limits = append(limits, &config.RateLimit{Requests: 1, RequestCost: 1, Shadow: shadow})
		}
		var d Decision
		if compileGlobal(t, &Store{}, limits...).Check(request(t, "GET /", "192.0.2.1"), nil, &d); !d.Undecided || d.FailClosed != (name != "shadow") {
			t.Errorf("without a Redis, %s: %+v", name, d)
		}
	}
}

// TestRedisWithoutAddress: while the controller cannot read the address, requests pass or are refused as where Redis is away.
func TestRedisWithoutAddress(t *testing.T) {
	for _, closed := range []bool{false, true} {
		s := &Redises{Logger: slog.New(slog.DiscardHandler)}
		t.Cleanup(s.Close)
		redis, err := s.Get(&config.RateLimitService{Key: "n/gw", FailClosed: closed})
		if err != nil {
			t.Fatal(err)
		}
		<-redis.Tried()
		var d Decision
		if compileGlobal(t, &Store{}, &config.RateLimit{Requests: 1, RequestCost: 1}).Check(request(t, "GET /", "192.0.2.1"), redis, &d); !d.Undecided || d.FailClosed != closed {
			t.Errorf("failure mode closed %v: %+v", closed, d)
		}
		if why := redis.availability.say(time.Now().Add(awayAfter)); !strings.Contains(why, "the controller cannot read the Secret that has it") {
			t.Errorf("it says %q", why)
		}
	}
}

// BenchmarkGlobal is a decision by a Redis on this machine, of one goroutine, and of 64 at a time.
func BenchmarkGlobal(b *testing.B) {
	server := testkit.StartRedis(b)
	redis := connected(b, patient(server.Address, false))
	r := compileGlobal(b, &Store{}, &config.RateLimit{Requests: 1 << 31, RequestCost: 1})
	b.Run("one", func(b *testing.B) {
		var d Decision
		for b.Loop() {
			r.Check(request(b, "GET /", "192.0.2.1"), redis, &d)
		}
	})
	b.Run("64", func(b *testing.B) {
		b.SetParallelism(32)
		b.RunParallel(func(pb *testing.PB) {
			var d Decision
			for pb.Next() {
				r.Check(request(b, "GET /", "192.0.2.1"), redis, &d)
			}
		})
	})
}

// TestRetiredGetsItsCosts: a server that no configuration has any more still gets the costs of responses that end long after that, and is let go then.
func TestRetiredGetsItsCosts(t *testing.T) {
	server := testkit.StartRedis(t)
	s := &Redises{Logger: slog.New(slog.DiscardHandler), retireAfter: 20 * time.Millisecond}
	t.Cleanup(s.Close)
	redis, err := s.Get(patient(server.Address, false))
	if err != nil {
		t.Fatal(err)
	}
	r := compileGlobal(t, &Store{}, &config.RateLimit{Requests: 5, ResponseCost: 5})
	req := request(t, "GET /", "192.0.2.1")
	var d, other Decision
	if r.Check(req, redis, &d); d.Limited || d.Undecided {
		t.Fatalf("%+v", d)
	}
	if r.Check(req, redis, &other); other.Limited || other.Undecided {
		t.Fatalf("%+v", other)
	}
	s.Keep(func(func(*Redis) bool) {})
	other.Charge()
	time.Sleep(20 * s.retireAfter) // the other response goes on
	if up, _, _ := redis.Report(); !up {
		t.Fatal("the server is let go while a response owes it a cost")
	}
	d.Charge()
	testkit.Eventually(t, "the server is let go", func() bool { up, _, _ := redis.Report(); return !up })
	if _, _, uncharged := redis.Report(); uncharged > 0 {
		t.Errorf("%d costs are lost", uncharged)
	}
	again := connected(t, patient(server.Address, false))
	if r.Check(req, again, &d); !d.Limited {
		t.Errorf("the costs did not arrive: %+v", d)
	}
}

// TestRetiredAreBounded: responses without end keep a few servers only that no configuration has any more, and the costs that the others do not get are counted.
func TestRetiredAreBounded(t *testing.T) {
	server := testkit.StartRedis(t)
	s := &Redises{Logger: slog.New(slog.DiscardHandler), retireAfter: 20 * time.Millisecond}
	t.Cleanup(s.Close)
	r := compileGlobal(t, &Store{}, &config.RateLimit{Requests: 1000, ResponseCost: 1})
	req := request(t, "GET /", "192.0.2.1")
	redises, decisions := make([]*Redis, maxRetired+4), make([]Decision, maxRetired+4)
	for i := range redises {
		c := patient(server.Address, false)
		c.KeyPrefix = fmt.Sprint(i, ":")
		var err error
		if redises[i], err = s.Get(c); err != nil {
			t.Fatal(err)
		}
		if r.Check(req, redises[i], &decisions[i]); decisions[i].Undecided || decisions[i].Limited {
			t.Fatalf("%+v", decisions[i])
		}
	}
	s.Keep(func(func(*Redis) bool) {})
	ended := func() (n int) {
		for _, r := range redises {
			if r.ended.Load() {
				n++
			}
		}
		return n
	}
	testkit.Eventually(t, "some are let go", func() bool { return ended() == 4 })
	time.Sleep(5 * s.retireAfter)
	if n := ended(); n != 4 {
		t.Errorf("%d of %d are let go, want 4", n, len(redises))
	}
	for i := range decisions {
		decisions[i].Charge()
	}
	lost := uint64(0)
	s.Report(func(_ string, _ bool, _, uncharged uint64) { lost += uncharged })
	if lost != 4 {
		t.Errorf("%d costs are counted as lost, want 4", lost)
	}
	testkit.Eventually(t, "the others are let go, too", func() bool { return ended() == len(redises) })
	testkit.Eventually(t, "and so is what was counted", func() bool {
		n := 0
		s.Report(func(string, bool, uint64, uint64) { n++ })
		return n == 0
	})
}

// TestSocketOfRedis: a URL may name a socket of this machine, whose answers are vetted as well.
func TestSocketOfRedis(t *testing.T) {
	r := &Redis{service: &config.RateLimitService{Address: "unix://" + filepath.Join(t.TempDir(), "redis.sock")}}
	o, err := r.options()
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", o.InitAddress[0])
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, err := o.DialCtxFn(t.Context(), o.InitAddress[0], &o.Dialer, o.TLSConfig)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, vetted := c.(*resp.Conn); !vetted || c.RemoteAddr().Network() != "unix" {
		t.Errorf("connected by %T to %v", c, c.RemoteAddr())
	}
}
