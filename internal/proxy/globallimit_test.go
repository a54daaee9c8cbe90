package proxy

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/proxy/ratelimit"
	"github.com/moongate-dev/moongate/internal/testkit"
)

// countsIn has the Gateway of serve count global limits in a Redis, and waits until that is there.
func (g *gateway) countsIn(c *config.RateLimitService) {
	g.t.Helper()
	c.Key = "default/gw"
	g.apply([]*config.Resource{{Kind: &config.Resource_RateLimitService{RateLimitService: c}}})
	g.eventually("Redis is there", func() bool { return g.counted("moongate_rate_limit_redis_up", "address", c.Address) == 1 })
}

// TestRedisBeforeItsLimits: a generation that brings a Redis is not in force before it is known whether that is there, and one that is there answers the first request.
// An edit of it, such as another password, fails no request that is under way.
func TestRedisBeforeItsLimits(t *testing.T) {
	t.Parallel()
	checkLeaks(t)
	server := testkit.StartRedis(t)
	g := startGateway(t, Timeouts{})
	g.redisWait = testkit.Patience
	var before *ratelimit.Redis
	for n := range 5 {
		c := &config.RateLimitService{Key: "default/gw", Address: server.Address, FailClosed: true, TimeoutNanos: int64(testkit.Patience), KeyPrefix: fmt.Sprint(n, ":")}
		limit := &config.RateLimit{Name: "default/p/rule/0", Requests: 1 << 20, PeriodSeconds: 1, RequestCost: 1}
		g.apply([]*config.Resource{{Kind: &config.Resource_RateLimitService{RateLimitService: c}}, g.httpListener("http", ""),
			routeOf("r", "default/gw/http", "", &config.Rule{Traffic: &config.RuleTraffic{RateLimits: &config.RateLimits{Global: []*config.RateLimit{limit}}}})})
		now := g.state.redises["default/gw"]
		if now == before {
			t.Fatal("another prefix has the same connection")
		}
		select {
		case <-now.Tried():
		default:
			t.Error("the generation is in force, and nobody knows whether Redis is there")
		}
		g.eventually("Redis is there", func() bool { up, _, _ := now.Report(); return up })
		if before != nil {
			if up, _, _ := before.Report(); !up {
				t.Error("requests that began before the edit have no Redis any more")
			}
		}
		before = now
	}
	r := g.Apply(&config.Update{Generation: 99, Upserts: []*config.Resource{{Kind: &config.Resource_RateLimitService{RateLimitService: &config.RateLimitService{
		Key: "default/gw", Address: "redis://user:secret word@"}}}}})
	if err := r.Rejected[config.ID{Kind: config.KindRateLimitService, Key: "default/gw"}]; err == nil || strings.Contains(err.Error(), "secret") {
		t.Errorf("an address that is none is refused with: %v", err)
	}
	if g.state.redises["default/gw"] != before {
		t.Error("the Redis before is not in force any more")
	}
}

// limitedGlobally gives a rule global limits, of a year where they say nothing else.
func limitedGlobally(limits ...*config.RateLimit) func(*config.Rule) {
	for i, l := range limits {
		l.Name = fmt.Sprintf("default/p/rule/%d", i)
		if l.PeriodSeconds == 0 {
			l.PeriodSeconds = 365 * 24 * 3600
		}
	}
	return func(r *config.Rule) { r.Traffic = &config.RuleTraffic{RateLimits: &config.RateLimits{Global: limits}} }
}

// TestGlobalLimitOfTwoProxies: of requests that come to two proxies, 1000 a second, no more pass than the limit says and at least 98 % of that.
func TestGlobalLimitOfTwoProxies(t *testing.T) {
	t.Parallel()
	checkLeaks(t)
	server := testkit.StartRedis(t)
	for _, gcra := range []bool{false, true} {
		const limit, offered, clients = 1000, 2000, 8
		addr := httpBackend(t, func(http.ResponseWriter, *http.Request) {})
		var passed, refused atomic.Int64
		var all sync.WaitGroup
		begin := time.Now()
		for range 2 {
			g := startGateway(t, Timeouts{})
			g.serve(addr, limitedGlobally(&config.RateLimit{Requests: limit, RequestCost: 1, Headers: true}))
			g.countsIn(&config.RateLimitService{Address: server.Address, Gcra: gcra, TimeoutNanos: int64(testkit.Patience)})
			for range clients / 2 {
				c := g.dial()
				all.Go(func() {
					for n := range offered / clients {
						time.Sleep(time.Until(begin.Add(time.Duration(n) * clients * time.Millisecond)))
						switch status, err := get(c); {
						case err != nil:
							t.Error(err)
							return
						case status == 200:
							passed.Add(1)
						case status == 429:
							refused.Add(1)
						default:
							t.Errorf("answered %d", status)
						}
					}
				})
			}
		}
		all.Wait()
		if n := passed.Load(); n > limit || n < limit*98/100 || n+refused.Load() != offered {
			t.Errorf("GCRA %v: %d of %d requests pass a limit of %d, and %d are refused", gcra, n, offered, limit, refused.Load())
		}
	}
}

// TestRedisAwayUnderLoad: while Redis is killed and comes back no request fails where the failure mode is Open.
func TestRedisAwayUnderLoad(t *testing.T) {
	t.Parallel()
	checkLeaks(t)
	server := testkit.StartRedis(t)
	g := startGateway(t, Timeouts{})
	g.serve(httpBackend(t, func(http.ResponseWriter, *http.Request) {}), limitedGlobally(&config.RateLimit{Requests: 1 << 31, RequestCost: 1, ResponseCost: 1}))
	g.countsIn(&config.RateLimitService{Address: server.Address})
	var answered atomic.Int64
	stop := make(chan struct{})
	var clients sync.WaitGroup
	for range 8 {
		c := g.dial()
		clients.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				c.SetDeadline(time.Now().Add(testkit.Patience))
				if status, err := get(c); status != 200 || err != nil {
					t.Errorf("answered %d, %v", status, err)
					return
				}
				answered.Add(1)
			}
		})
	}
	more := func() {
		t.Helper()
		n := answered.Load()
		g.eventually("more is answered", func() bool { return answered.Load() > n+200 })
	}
	for range 3 {
		more()
		server.Kill()
		g.eventually("it is missed", func() bool { return g.counted("moongate_rate_limit_redis_up") == 0 })
		more()
		server.Start(t)
		g.eventually("it is back", func() bool { return g.counted("moongate_rate_limit_redis_up") == 1 })
	}
	more()
	close(stop)
	clients.Wait()
	if n := g.counted("moongate_rate_limit_undecided_total"); n == 0 {
		t.Error("no request is counted as undecided")
	}
}

// TestRedisAwayClosed: where the failure mode is Closed requests are refused while Redis is away, and whatever the mode where the proxy has none, as it could not use that which is configured.
func TestRedisAwayClosed(t *testing.T) {
	t.Parallel()
	checkLeaks(t)
	server := testkit.StartRedis(t)
	g := startGateway(t, Timeouts{})
	g.serve(httpBackend(t, func(http.ResponseWriter, *http.Request) {}), limitedGlobally(&config.RateLimit{Requests: 1, RequestCost: 1}))
	status := func(want int) {
		t.Helper()
		c := g.dial()
		io.WriteString(c, "GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Fatal(err)
		}
		if resp.StatusCode != want {
			t.Errorf("answered %d, want %d", resp.StatusCode, want)
		}
	}
	status(503) // translation has a Redis beside each limit: this proxy could not use it
	g.countsIn(&config.RateLimitService{Address: server.Address, FailClosed: true, TimeoutNanos: int64(testkit.Patience)})
	status(200)
	status(429)
	server.Kill()
	g.eventually("it is missed", func() bool {
		get(g.dial())
		return g.counted("moongate_rate_limit_redis_up") == 0
	})
	status(503)
	words := g.reasonsLogged(4)
	if last := words[len(words)-1]; last != "rate_limit_unavailable" {
		t.Errorf("logged %q", words)
	}
	g.apply(nil, config.ID{Kind: config.KindRateLimitService, Key: "default/gw"})
	status(503)
}
