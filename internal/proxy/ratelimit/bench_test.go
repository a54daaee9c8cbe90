package ratelimit

import (
	"encoding/binary"
	"fmt"
	"math"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/testkit"
)

// benchLimits are limits as users have them.
func benchLimits() map[string][]*config.RateLimit {
	limit := func(l *config.RateLimit) *config.RateLimit {
		l.Requests, l.PeriodSeconds, l.RequestCost, l.Headers = math.MaxUint32, 3600, 1, true
		return l
	}
	return map[string][]*config.RateLimit{
		"all":           {limit(&config.RateLimit{})},
		"header":        {limit(&config.RateLimit{HeaderFields: []*config.RateLimitValue{exact("x-user", "one", false)}}), limit(&config.RateLimit{Name: "all"})},
		"each address":  {limit(&config.RateLimit{Sources: []*config.RateLimitSource{{Cidr: "0.0.0.0/0", Distinct: true}}})},
		"each value":    {limit(&config.RateLimit{HeaderFields: []*config.RateLimitValue{each("x-user")}})},
		"each of query": {limit(&config.RateLimit{QueryParams: []*config.RateLimitValue{each("id")}})},
	}
}

func benchRequest(t testing.TB) *Request {
	return request(t, "GET /orders/7?id=a%20b", "192.0.2.7", "User-Agent: curl/8.5.0", "Accept: */*", "X-User: one", "X-Forwarded-For: 192.0.2.7", "X-Forwarded-Proto: http")
}

// BenchmarkCheck is what a request is charged for local limits; 300 ns are the bound.
func BenchmarkCheck(b *testing.B) {
	for name, limits := range benchLimits() {
		b.Run(name, func(b *testing.B) {
			r, req := compile(b, &Store{}, limits...), benchRequest(b)
			var d Decision
			b.ReportAllocs()
			for b.Loop() {
				r.Check(req, nil, &d)
			}
			if d.Limited || !d.Reported {
				b.Fatalf("decided %+v", d)
			}
		})
	}
}

// BenchmarkCheckParallel is BenchmarkCheck for all cores at a time.
func BenchmarkCheckParallel(b *testing.B) {
	for name, limits := range benchLimits() {
		b.Run(name, func(b *testing.B) {
			r := compile(b, &Store{}, limits...)
			b.RunParallel(func(pb *testing.PB) {
				req := benchRequest(b)
				var d Decision
				for pb.Next() {
					r.Check(req, nil, &d)
				}
			})
		})
	}
}

// BenchmarkCheckRandom has each request bring another value, with a table at its bound.
func BenchmarkCheckRandom(b *testing.B) {
	r, req := compile(b, &Store{}, benchLimits()["each value"]...), benchRequest(b)
	value := make([]byte, 8)
	req.Header.Set([]byte("X-User"), value)
	var d Decision
	var n uint64
	b.ReportAllocs()
	for b.Loop() {
		n++
		binary.LittleEndian.PutUint64(value, n)
		r.Check(req, nil, &d)
	}
}

// BenchmarkCheckGlobal is what Redis' answers cost this process, in CPU time, by how many requests ask at a time.
func BenchmarkCheckGlobal(b *testing.B) {
	server := testkit.StartRedis(b)
	for _, at := range []int{1, 16, 128} {
		b.Run(fmt.Sprintf("%d at a time", at), func(b *testing.B) {
			redis := connected(b, patient(server.Address, false))
			r := compileGlobal(b, &Store{}, benchLimits()["all"]...)
			b.SetParallelism(max(1, at/runtime.GOMAXPROCS(0)))
			if at == 1 {
				defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
			}
			b.ReportAllocs()
			before := cpuTime(b)
			b.RunParallel(func(pb *testing.PB) {
				req := benchRequest(b)
				var d Decision
				for pb.Next() {
					if r.Check(req, redis, &d); d.Limited || d.Undecided {
						b.Errorf("decided %+v", d)
					}
				}
			})
			b.ReportMetric(float64((cpuTime(b)-before).Nanoseconds())/float64(b.N), "cpu-ns/op")
		})
	}
}

// cpuTime is what this process has used.
func cpuTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// TestCheckAllocatesNothing: to count a request costs no memory.
func TestCheckAllocatesNothing(t *testing.T) {
	for name, limits := range benchLimits() {
		r, req := compile(t, &Store{}, limits...), benchRequest(t)
		var d Decision
		r.Check(req, nil, &d)
		if n := testing.AllocsPerRun(1000, func() { r.Check(req, nil, &d) }); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}
