package ratelimit

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"math"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/proxy/match"
	"github.com/moongate-dev/moongate/internal/testkit"
)

// command has Redis carry out a command beside the proxy.
func command(t testing.TB, server *testkit.Redis, words ...string) rueidis.RedisResult {
	t.Helper()
	c, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{server.Address}, DisableCache: true, ForceSingleClient: true})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	r := c.Do(t.Context(), c.B().Arbitrary(words...).Build())
	if err := r.Error(); err != nil && !rueidis.IsRedisNil(err) {
		t.Fatalf("%v: %v", words, err)
	}
	return r
}

// TestCostsBeyondAllNumbers: the largest costs of the longest period are taken, and the limit holds then; nothing else is lost.
func TestCostsBeyondAllNumbers(t *testing.T) {
	server := testkit.StartRedis(t)
	for _, gcra := range []bool{false, true} {
		redis := connected(t, patient(server.Address, gcra))
		r := compileGlobal(t, &Store{}, &config.RateLimit{Name: "costly", Requests: 1, ResponseCost: math.MaxUint32, HeaderFields: []*config.RateLimitValue{each("a")}},
			&config.RateLimit{Name: "other", Requests: 1, ResponseCost: 1, HeaderFields: []*config.RateLimitValue{each("b")}})
		costly, other := request(t, "GET /", "192.0.2.1", "A: x"), request(t, "GET /", "192.0.2.1", "B: x")
		var d, o Decision
		if r.Check(costly, redis, &d); d.Limited || d.Undecided {
			t.Fatalf("GCRA %v: %+v", gcra, d)
		}
		if r.Check(other, redis, &o); o.Limited || o.Undecided {
			t.Fatalf("GCRA %v: %+v", gcra, o)
		}
		charges := d.charges
		for range 3 {
			d.charges = charges
			d.Charge()
		}
		o.Charge()
		for _, req := range []*Request{costly, other} {
			testkit.Eventually(t, "the cost is taken", func() bool { r.Check(req, redis, &d); return d.Limited })
		}
		if up, undecided, uncharged := redis.Report(); !up || undecided != 0 || uncharged != 0 {
			t.Errorf("GCRA %v: up %v, %d undecided, %d uncharged", gcra, up, undecided, uncharged)
		}
	}
}

// TestErrorOfOneLimit: where Redis answers with an error about one limit it is not away for the others, and of charges that are sent together only those are lost that are at fault.
func TestErrorOfOneLimit(t *testing.T) {
	server := testkit.StartRedis(t)
	command(t, server, "ACL", "SETUSER", "default", "resetkeys", "~moongate:w:probe", "~moongate:w:good*")
	redis := connected(t, patient(server.Address, false))
	r := compileGlobal(t, &Store{}, &config.RateLimit{Name: "bad", Requests: 2, RequestCost: 1, Methods: []*config.RateLimitMethods{{AnyOf: []*config.RateLimitMethod{{Value: "PUT"}}}}},
		&config.RateLimit{Name: "good", Requests: 1, ResponseCost: 1, Methods: []*config.RateLimitMethods{{AnyOf: []*config.RateLimitMethod{{Value: "GET"}}}}})
	var d Decision
	for range 2 * maxTimeouts {
		if r.Check(request(t, "PUT /", "192.0.2.1"), redis, &d); d.Limited || !d.Undecided {
			t.Errorf("the limit that Redis refuses: %+v", d)
		}
		if r.Check(request(t, "GET /", "192.0.2.1"), redis, &d); d.Limited || d.Undecided {
			t.Errorf("another limit: %+v", d)
		}
	}
	all := []charge{{redis.keyPrefix + "bad", [4]string{"1", "1", "60", takeAnyway}}, d.charges[0]}
	for _, c := range all { // most likely in one batch
		redis.charge(c)
	}
	testkit.Eventually(t, "the good charge is taken", func() bool { r.Check(request(t, "GET /", "192.0.2.1"), redis, &d); return d.Limited })
	testkit.Eventually(t, "the bad one is counted", func() bool { _, _, uncharged := redis.Report(); return uncharged == 1 })
}

// TestProbe: Redis counts as away for as long as it does not decide, though it answers other commands, and the log says when it leaves and when it comes back.
func TestProbe(t *testing.T) {
	server := testkit.StartRedis(t)
	log := &testkit.Log{}
	s := &Redises{Logger: slog.New(slog.NewTextHandler(log, nil))}
	t.Cleanup(s.Close)
	redis, err := s.Get(patient(server.Address, true))
	if err != nil {
		t.Fatal(err)
	}
	up := func(want bool) {
		t.Helper()
		testkit.Eventually(t, fmt.Sprint("up ", want), func() bool { up, _, _ := redis.Report(); return up == want })
	}
	up(true)
	r := compileGlobal(t, &Store{}, &config.RateLimit{Requests: 1, RequestCost: 1, HeaderFields: []*config.RateLimitValue{each("a")}})
	for range 2 {
		before := log.String()
		command(t, server, "CONFIG", "SET", "maxmemory", "1")
		var d Decision
		r.Check(request(t, "GET /", "192.0.2.1", "A: x"), redis, &d)
		up(false)
		probes := probesOf(t, server)
		testkit.Eventually(t, "it is asked again", func() bool { return probesOf(t, server) > probes+2 })
		if isUp, _, _ := redis.Report(); isUp {
			t.Error("it counts as there, and does not decide")
		}
		command(t, server, "CONFIG", "SET", "maxmemory", "0")
		up(true)
		said := strings.TrimPrefix(log.String(), before)
		if strings.Count(said, "rate limits is unreachable") != 1 || strings.Count(said, "rate limits is reachable again") != 1 || !strings.Contains(said, "OOM") {
			t.Errorf("the log says\n%s", said)
		}
		if r.Check(request(t, "GET /", "192.0.2.1", "A: y"), redis, &d); d.Undecided {
			t.Errorf("it has not decided: %+v", d)
		}
	}
}

// probesOf is how many scripts a server has been asked to run.
func probesOf(t testing.TB, server *testkit.Redis) (calls int) {
	t.Helper()
	text, err := command(t, server, "INFO", "commandstats").ToString()
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(text) {
		var n, failed, rejected int
		if name, rest, ok := strings.Cut(line, ":calls="); ok && (name == "cmdstat_evalsha" || name == "cmdstat_eval") {
			fmt.Sscanf(rest, "%d", &n)
			if _, rest, ok = strings.Cut(line, "rejected_calls="); ok {
				fmt.Sscanf(rest, "%d,failed_calls=%d", &rejected, &failed)
			}
			calls += n + rejected
		}
	}
	return calls
}

// TestDistinctKeysAreBounded: where too many values have come, new ones share few keys, and those that were there before keep their own; in another period they may have them again.
func TestDistinctKeysAreBounded(t *testing.T) {
	server := testkit.StartRedis(t)
	for _, gcra := range []bool{false, true} {
		command(t, server, "FLUSHALL")
		s := &Store{}
		redis := connected(t, patient(server.Address, gcra))
		r := compileGlobal(t, s, &config.RateLimit{Requests: 10000, RequestCost: 1, HeaderFields: []*config.RateLimitValue{each("user")}})
		for i := range 10 {
			passesGlobal(r, redis, request(t, "GET /", "192.0.2.1", fmt.Sprint("User: early-", i)), 1)
		}
		r.global[0].values.kept.add(maxValuesOfAll)
		for i := range 2000 {
			passesGlobal(r, redis, request(t, "GET /", "192.0.2.1", fmt.Sprint("User: ", i)), 1)
		}
		if n, err := command(t, server, "DBSIZE").AsInt64(); err != nil || n < 200 || n > 256+10+1 { // and that of the probe
			t.Errorf("GCRA %v: %d keys, %v", gcra, n, err)
		}
		var d Decision
		if r.Check(request(t, "GET /", "192.0.2.1", "User: early-3"), redis, &d); d.Undecided || d.Limited {
			t.Errorf("%+v", d)
		}
		if key := redis.keyPrefix + r.global[0].redisKey + r.global[0].valueKey(request(t, "GET /", "192.0.2.1", "User: early-3"), gcra); strings.Contains(key, "other") {
			t.Errorf("GCRA %v: an early value has the key %s", gcra, key)
		} else if n, _ := command(t, server, "EXISTS", key).AsInt64(); n != 1 {
			t.Errorf("GCRA %v: there is no key %s", gcra, key)
		}
	}
}

// TestLeastValues: whatever values other limits have, each may have some, and their number is bounded.
func TestLeastValues(t *testing.T) {
	s := &Store{}
	count := func(v *values) (all int) {
		for i := range uint64(3 * leastValues) {
			if v.own((i+1)*0x9e3779b97f4a7c15, 7, false) {
				all++
			}
		}
		return all
	}
	flood, other := s.newValues(1), s.newValues(1)
	flood.kept.add(maxValuesOfAll)
	if n := count(flood); n != 0 {
		t.Errorf("the limit that has used up all values has got %d more", n)
	}
	if n := count(other); n != leastValues {
		t.Errorf("another has got %d, want %d", n, leastValues)
	}
	s.keeping.Add(maxValuesOfAll/16 - 3) // so many limits that each has 16 at least
	if n := count(s.newValues(1)); n != 16 {
		t.Errorf("one of many has got %d, want 16", n)
	}
	runtime.KeepAlive(flood)
	runtime.KeepAlive(other)
}

// TestValues: so many values have keys of their own as the bound says, for as long as their keys may live, and what is kept of them is counted.
func TestValues(t *testing.T) {
	for _, gcra := range []bool{false, true} {
		s := &Store{}
		v := s.newValues(1)
		own := func(from, n uint64, period int64) (all int) {
			for i := range n {
				if v.own((from+i)*0x9e3779b97f4a7c15, period, gcra) {
					all++
				}
			}
			return all
		}
		if n := own(0, 2*maxValues, 7); n < maxValues*99/100 || n > maxValues {
			t.Errorf("GCRA %v: %d values have keys of their own, want %d", gcra, n, maxValues)
		}
		if n := own(0, 1000, 7); n < 990 {
			t.Errorf("GCRA %v: %d of the first 1000 have theirs still", gcra, n)
		}
		if n := own(3*maxValues, 1000, 7); n > 10 {
			t.Errorf("GCRA %v: %d more have got some", gcra, n)
		}
		if n := own(3*maxValues, 2*maxValues, 8); n < maxValues*99/100 || n > maxValues {
			t.Errorf("GCRA %v: in the next period %d have, want %d", gcra, n, maxValues)
		}
		n := own(0, 1000, 8)
		if want := map[bool]int{false: 0, true: 1000}[gcra]; n < want-10 || n > want+10 {
			t.Errorf("GCRA %v: of those of the period before %d have them, want about %d", gcra, n, want)
		}
		for _, period := range []int64{9, 10} {
			own(0, 1000, period) // of all shards
		}
		kept := int64(0)
		for i := range v.shards {
			kept += int64(v.shards[i].now.n + v.shards[i].before.n)
		}
		if kept > 2*1000 || v.kept.own.Load() != kept || s.kept.Load() != kept {
			t.Errorf("GCRA %v: %d are kept, and counted are %d and %d", gcra, kept, v.kept.own.Load(), s.kept.Load())
		}
	}
}

// TestIdleValuesAreSwept: values of a limit that nobody asks any more do not keep other limits from having values of their own, once their period is over.
func TestIdleValuesAreSwept(t *testing.T) {
	for _, gcra := range []bool{false, true} {
		s := &Store{}
		idle, done := s.values.Take("idle", func() *values { return s.newValues(1) })
		defer done()
		now := time.Now().Unix()
		for i := range uint64(1000) {
			idle.own((i+1)*0x9e3779b97f4a7c15, now, gcra)
		}
		idle.shards[0].now.n += maxValuesOfAll
		idle.kept.add(maxValuesOfAll)
		other := s.newValues(3600)
		next := uint64(0)
		testkit.Eventually(t, "another limit has as many as it asks for", func() bool {
			for range 2 * leastValues {
				next++
				if !other.own(next*0x9e3779b97f4a7c15, now, gcra) {
					return false
				}
			}
			return true
		})
		if n := idle.kept.own.Load(); n != 0 {
			t.Errorf("GCRA %v: %d are kept of the idle one", gcra, n)
		}
	}
}

// TestFloodOfOneLimit: clients that send ever new values to one limit do not make those of another share what they may.
func TestFloodOfOneLimit(t *testing.T) {
	server := testkit.StartRedis(t)
	for _, gcra := range []bool{false, true} {
		s := &Store{}
		redis := connected(t, patient(server.Address, gcra))
		redis.keyPrefix += fmt.Sprint(gcra, ":")
		flooded := compileGlobal(t, s, &config.RateLimit{Name: "a", Requests: 10, RequestCost: 1, PeriodSeconds: 3600, HeaderFields: []*config.RateLimitValue{each("any")}})
		other := compileGlobal(t, s, &config.RateLimit{Name: "b", Requests: 2, RequestCost: 1, PeriodSeconds: 3600, HeaderFields: []*config.RateLimitValue{each("user")}})
		flooded.global[0].values.kept.add(maxValuesOfAll) // as if they had come
		for i := range 500 {
			passesGlobal(flooded, redis, request(t, "GET /", "192.0.2.1", fmt.Sprint("Any: ", i)), 1)
			if n := passesGlobal(other, redis, request(t, "GET /", "192.0.2.1", fmt.Sprint("User: ", i)), 4); n != 2 {
				t.Fatalf("GCRA %v: of user %d %d requests pass, want 2", gcra, i, n)
			}
		}
	}
}

// TestKeysAreShort: names and values of any length have keys of a bounded one.
func TestKeysAreShort(t *testing.T) {
	long := strings.Repeat("x", 60000)
	var names []*config.RateLimitValue
	for i := range 128 {
		names = append(names, each(fmt.Sprint(strings.Repeat("n", 250), i)))
	}
	r := compileGlobal(t, &Store{}, &config.RateLimit{Requests: 1, HeaderFields: names})
	req := request(t, "GET /", "192.0.2.1")
	for _, n := range names {
		req.Header.Add([]byte(n.Name), []byte(long))
	}
	if l := r.global[0]; len(l.redisKey)+len(l.valueKey(req, true)) > 100 {
		t.Errorf("the key is %s%s", l.redisKey, l.valueKey(req, true))
	}
}

// silent is a client whose server does not answer.
type silent struct {
	rueidis.Client
	asked  atomic.Int32
	answer chan struct{} // closed at the end
}

func (s *silent) Do(ctx context.Context, c rueidis.Completed) rueidis.RedisResult {
	s.asked.Add(1)
	<-s.answer
	return s.Client.Do(ctx, c)
}

// TestWaitIsBounded: however many ask and whatever Redis does, a request waits no longer than its deadline, the flag's timeout and its client.
func TestWaitIsBounded(t *testing.T) {
	server := testkit.StartRedis(t)
	const requests = 3000
	for _, c := range []struct {
		name    string
		timeout time.Duration
		bound   func(*Request)
	}{
		{"deadline", time.Hour, func(r *Request) { r.Until = time.Now().Add(20 * time.Millisecond) }},
		{"client", time.Hour, func(r *Request) {
			done := make(chan struct{})
			r.Done = done
			time.AfterFunc(20*time.Millisecond, func() { close(done) })
		}},
		{"timeout", 20 * time.Millisecond, func(*Request) {}},
	} {
		t.Run(c.name, func(t *testing.T) {
			redis := connected(t, patient(server.Address, false))
			redis.timeout = c.timeout
			s := &silent{Client: *redis.client.Load(), answer: make(chan struct{})}
			client := rueidis.Client(s)
			redis.client.Store(&client)
			r := compileGlobal(t, &Store{}, &config.RateLimit{Requests: 1, RequestCost: 1})
			var waiting sync.WaitGroup
			var decided atomic.Int32
			for range requests {
				waiting.Go(func() {
					req := request(t, "GET /", "192.0.2.1")
					c.bound(req)
					var d Decision
					if r.Check(req, redis, &d); !d.Undecided {
						decided.Add(1)
					}
				})
			}
			all := make(chan struct{})
			go func() { waiting.Wait(); close(all) }()
			select {
			case <-all:
			case <-time.After(testkit.Patience):
				t.Fatal("some wait still")
			}
			if n := s.asked.Load(); n > maxAsked || decided.Load() != 0 {
				t.Errorf("Redis was asked %d times, and %d are decided", n, decided.Load())
			}
			if away := redis.client.Load() != &client; away && c.timeout == time.Hour {
				t.Error("Redis counts as away, because requests had no time")
			}
			close(s.answer)
			testkit.Eventually(t, "all have been asked", func() bool { return len(redis.asked) == 0 })
		})
	}
}

// TestClockIsSetBack: what was counted at a time that is to come again does not stand in the way.
func TestClockIsSetBack(t *testing.T) {
	server := testkit.StartRedis(t)
	for _, gcra := range []bool{false, true} {
		redis := connected(t, patient(server.Address, gcra))
		r := compileGlobal(t, &Store{}, &config.RateLimit{Requests: 3, RequestCost: 1, PeriodSeconds: 1})
		in := time.Now().Add(365 * 24 * time.Hour)
		value := fmt.Sprintf("%d 3", in.Unix())
		if gcra {
			value = fmt.Sprintf("3 %d", in.UnixMicro())
		}
		command(t, server, "SET", redis.keyPrefix+r.global[0].redisKey, value, "PX", "31536000000")
		testkit.Eventually(t, "a request passes", func() bool { return passesGlobal(r, redis, request(t, "GET /", "192.0.2.1"), 1) == 1 })
	}
}

// TestForeignValue: whatever somebody has put at a key counts as nothing.
func TestForeignValue(t *testing.T) {
	server := testkit.StartRedis(t)
	for _, gcra := range []bool{false, true} {
		redis := connected(t, patient(server.Address, gcra))
		r := compileGlobal(t, &Store{}, &config.RateLimit{Requests: 2, RequestCost: 1})
		key := redis.keyPrefix + r.global[0].redisKey
		for _, words := range [][]string{{"SET", key, "x y"}, {"SET", key, ""}, {"SET", key, "7"}, {"RPUSH", key, "a"}, {"SET", key, "\x00\xff \n"}} {
			command(t, server, "DEL", key)
			command(t, server, words...)
			if n := passesGlobal(r, redis, request(t, "GET /", "192.0.2.1"), 5); n != 2 {
				t.Errorf("GCRA %v: after %q %d requests pass, want 2", gcra, words, n)
			}
		}
	}
}

// TestKeyPrefix: installations with prefixes of their own do not count together.
func TestKeyPrefix(t *testing.T) {
	server := testkit.StartRedis(t)
	for i, prefix := range []string{"", "one:", "two:"} {
		c := patient(server.Address, true)
		c.KeyPrefix = prefix
		redis := connected(t, c)
		r := compileGlobal(t, &Store{}, &config.RateLimit{Requests: 2, RequestCost: 1})
		if n := passesGlobal(r, redis, request(t, "GET /", "192.0.2.1"), 5); n != 2 {
			t.Errorf("%d: with the prefix %q %d requests pass, want 2", i, prefix, n)
		}
		keys, err := command(t, server, "KEYS", prefix+"moongate:*").AsStrSlice()
		keys = slices.DeleteFunc(keys, func(k string) bool { return strings.HasSuffix(k, ":probe") }) // it lives for a millisecond
		if err != nil || len(keys) != 1 {
			t.Errorf("with the prefix %q the keys are %q, %v", prefix, keys, err)
		}
	}
}

// TestRedisOptions: addresses in all their forms.
func TestRedisOptions(t *testing.T) {
	for address, want := range map[string]string{"127.0.0.1:6379": "127.0.0.1:6379", "[::1]:6379": "[::1]:6379", "redis.example:1": "redis.example:1", "redis://u:p@[::1]:6380/3": "[::1]:6380"} {
		if o, err := RedisOptions(address); err != nil || o.InitAddress[0] != want {
			t.Errorf("%s: %v, %v", address, o.InitAddress, err)
		}
	}
}

// FuzzDistinct: two requests count together exactly where their values are the same, whatever bytes these have, and never with those of another limit.
func FuzzDistinct(f *testing.F) {
	f.Add("a", "b", "c", "ab", "", "c", false, true)
	f.Add("", "s", "m", "s", "", "m", true, false)
	f.Add("one", "two", "a=1&a=2", "one", "two", "a=2", false, false)
	f.Add("\x01s", "", "x", "", "s\x01", "x", false, false)
	s := &Store{}
	of := func(name string) *limit {
		r, _, err := s.Compile(&config.RateLimits{Global: []*config.RateLimit{{Name: name, Requests: 1, PeriodSeconds: 3600,
			HeaderFields: []*config.RateLimitValue{each("a"), each("b")}, QueryParams: []*config.RateLimitValue{each("q")}}}}, "HTTPRoute/n/r")
		if err != nil {
			f.Fatal(err)
		}
		return r.global[0]
	}
	l, other := of("n/p/rule/0"), of("n/p/rule/1")
	f.Fuzz(func(t *testing.T, a1, b1, q1, a2, b2, q2 string, more1, more2 bool) {
		req := func(a, b, q string, more bool) *Request {
			r := request(t, "GET /", "192.0.2.1")
			r.Header.Add([]byte("A"), []byte(a))
			r.Header.Add([]byte("b"), []byte(b))
			if more {
				r.Header.Add([]byte("B"), []byte(a))
			}
			var encoded bytes.Buffer
			for _, c := range []byte(q) {
				fmt.Fprintf(&encoded, "%%%02x", c)
			}
			r.Query = append([]byte("q="), encoded.Bytes()...)
			return r
		}
		one, two := req(a1, b1, q1, more1), req(a2, b2, q2, more2)
		same := a1 == a2 && q1 == q2 && more1 == more2 && (more1 || b1 == b2)
		if bytes.Equal(l.appendDistinct(nil, one), l.appendDistinct(nil, two)) != same {
			t.Errorf("%q and %q", l.appendDistinct(nil, one), l.appendDistinct(nil, two))
		}
		key1, key2 := l.redisKey+l.valueKey(one, false), l.redisKey+l.valueKey(two, false)
		if (key1 == key2) != same && !strings.Contains(key1, "other-") {
			t.Errorf("the keys are %s and %s", key1, key2)
		}
		if foreign := other.redisKey + other.valueKey(two, false); foreign == key1 || len(key1) > 100 {
			t.Errorf("two limits have the keys %s and %s", key1, foreign)
		}
		steps := match.NewSteps()
		h1, ok1 := l.hold(one, &steps)
		h2, ok2 := l.hold(two, &steps)
		if !ok1 || !ok2 || (h1 == h2) != same {
			t.Errorf("the hashes are %x and %x, and the conditions hold: %v, %v", h1, h2, ok1, ok2)
		}
	})
}

// TestRepeatedHeader: a request that repeats a header, and so meets limits which exclude each other, is refused before Redis is asked for more than a
// request may meet.
func TestRepeatedHeader(t *testing.T) {
	server := testkit.StartRedis(t)
	redis := connected(t, patient(server.Address, false))
	var limits []*config.RateLimit
	var lines []string
	for i := range config.MaxGlobalRateLimitsMet + 1 {
		tenant := fmt.Sprint("t", i)
		limits = append(limits, &config.RateLimit{Requests: 10, RequestCost: 1, HeaderFields: []*config.RateLimitValue{
			{Name: "tenant", Type: config.RateLimitMatch_RATE_LIMIT_MATCH_EXACT, Value: tenant},
		}})
		lines = append(lines, "Tenant: "+tenant)
	}
	r := compileGlobal(t, &Store{}, limits...)
	var d Decision
	if r.Check(request(t, "GET /", "192.0.2.1", lines[:config.MaxGlobalRateLimitsMet]...), redis, &d); d.Exceeded || d.Limited || d.Undecided {
		t.Errorf("with %d lines: %+v", config.MaxGlobalRateLimitsMet, d)
	}
	if r.Check(request(t, "GET /", "192.0.2.1", lines...), redis, &d); !d.Exceeded {
		t.Errorf("with %d lines: %+v", len(lines), d)
	}
}
