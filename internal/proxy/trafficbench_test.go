package proxy

import (
	"math"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/testkit"
)

// BenchmarkTraffic measures what each thing that a BackendTrafficPolicy may ask for adds to a GET of 1 KiB: no limit is reached, and nothing
// fails. The cases take turns, and each reports the CPU time of its cheapest turn in ns per request, client and backend included, so that what else the machine
// does matters little; for example -benchtime 200x for 200 turns.
func BenchmarkTraffic(b *testing.B) {
	balance := func(l *config.LoadBalancer) *config.BackendTraffic { return &config.BackendTraffic{LoadBalancer: l} }
	hash := func(h *config.ConsistentHash) *config.BackendTraffic {
		h.TableSize = 65537
		return balance(&config.LoadBalancer{Type: config.LoadBalancing_LOAD_BALANCING_CONSISTENT_HASH, ConsistentHash: h})
	}
	traffic := func(t *config.RuleTraffic) func(*config.Rule) { return func(r *config.Rule) { r.Traffic = t } }
	cases := []*trafficCase{
		{name: "none"},
		{name: "RoundRobin", backend: balance(&config.LoadBalancer{Type: config.LoadBalancing_LOAD_BALANCING_ROUND_ROBIN})},
		{name: "slowStart", backend: balance(&config.LoadBalancer{SlowStartWindowNanos: int64(time.Minute)})},
		{name: "ConsistentHash:header", backend: hash(&config.ConsistentHash{Headers: []string{"host"}})},
		{name: "ConsistentHash:source", backend: hash(&config.ConsistentHash{SourceIp: true})},
		{name: "endpointOverride", backend: balance(&config.LoadBalancer{EndpointOverrideHeaders: []string{"x-endpoint"}})},
		{name: "circuitBreaker", backend: &config.BackendTraffic{CircuitBreaker: &config.CircuitBreaker{MaxParallelRequests: new(uint32(4096)), MaxConnections: new(uint32(4096)), MaxPendingRequests: new(uint32(4096))}}},
		{name: "healthCheck.passive", backend: &config.BackendTraffic{HealthCheck: &config.HealthCheck{Passive: &config.PassiveHealthCheck{IntervalNanos: int64(time.Second), BaseEjectionTimeNanos: int64(time.Second), MaxEjectionPercent: 10}}}},
		{name: "retry", rule: func(r *config.Rule) {
			r.Retry = &config.Retry{Attempts: 2, Triggers: []config.RetryTrigger{config.RetryTrigger_RETRY_TRIGGER_5XX}}
		}},
		{name: "requestTimeout", rule: func(r *config.Rule) { r.RequestTimeoutNanos = int64(time.Minute) }},
		{name: "streamIdleTimeout", rule: traffic(&config.RuleTraffic{StreamIdleTimeoutNanos: int64(time.Minute)})},
		{name: "rateLimit.local", rule: limited(&config.RateLimit{Requests: math.MaxUint32})},
		{name: "faultInjection", rule: withFault(&config.FaultInjection{Delay: &config.FaultDelay{DelayNanos: 1}, Abort: &config.FaultAbort{HttpStatus: 503}})},
		{name: "admissionControl", rule: withAdmission(nil)},
		{name: "requestBuffer", rule: withBuffer(1 << 20)},
		{name: "bandwidthLimit", rule: withBandwidth(&config.BandwidthLimit{RequestBytesPerSecond: 1 << 40, ResponseBytesPerSecond: 1 << 40})},
		{name: "compressor:br", rule: withCompression("br", "zstd")}, // which the client does not accept
		{name: "compressor:gzip", rule: withCompression("gzip")},     // which it does
		{name: "responseOverride", rule: overriding(&config.ResponseOverride{Statuses: statuses(500, 599), StatusCode: 200})},
		{name: "httpUpgrade", rule: traffic(&config.RuleTraffic{UpgradesSet: true, Upgrades: []*config.Upgrade{{Type: "websocket"}}})},
	}
	redis := testkit.StartRedis(b).Address
	cases = append(cases, &trafficCase{name: "rateLimit.global", redis: redis, rule: limitedGlobally(&config.RateLimit{Name: "bench", Requests: math.MaxUint32, PeriodSeconds: 3600})})
	_, collector := serveCollector(b)
	tagged := &config.RuleTracing{Tags: []*config.TraceTag{{Name: "host", Value: []*config.TraceText{{Part: &config.TraceText_RequestHeader{RequestHeader: ":authority"}}}}}}
	never := &config.RuleTracing{Sampling: &config.Share{Denominator: 1}}
	none, all := &config.Tracing{Sampling: &config.Share{Denominator: 1}}, &config.Tracing{}
	cases = append(cases,
		&trafficCase{name: "routeStatName", rule: traffic(&config.RuleTraffic{RouteStatName: "name"})},
		&trafficCase{name: "tracing:unsampled", listener: none}, // what those of rules are beside
		&trafficCase{name: "tracing.samplingFraction:unsampled", listener: none, rule: withTracing(never)},
		&trafficCase{name: "tracing:sampled", listener: all},
		&trafficCase{name: "tracing.tags:sampled", listener: all, rule: withTracing(tagged)},
		&trafficCase{name: "tracing.samplingFraction:dropped", listener: all, rule: withTracing(never)},
	)
	for _, c := range cases {
		c.collector = collector
		c.start(b)
	}
	const requests = 200
	for b.Loop() {
		for _, c := range cases {
			before := cpuTime(b)
			for range requests {
				roundTrip(b, c.conn, c.request, c.buf, c.size)
			}
			c.least = min(c.least, cpuTime(b)-before)
		}
	}
	for _, c := range cases {
		b.ReportMetric(float64(c.least.Nanoseconds())/requests, c.name+"-ns")
	}
}

// trafficCase is a proxy with a policy, and a client of it.
type trafficCase struct {
	name     string
	rule     func(*config.Rule)
	backend  *config.BackendTraffic
	listener *config.Tracing // nil: it traces nothing
	redis    string          // "" for none

	collector string // address of that

	conn         net.Conn
	request, buf []byte
	size         int
	least        time.Duration
}

func (c *trafficCase) start(b *testing.B) {
	g := startGateway(b, Timeouts{})
	g.serve(cannedBackend(b, cannedResponse(1<<10), 0), c.rule)
	if c.redis != "" {
		g.countsIn(&config.RateLimitService{Address: c.redis, FailClosed: true, TimeoutNanos: int64(testkit.Patience)})
	}
	if c.listener != nil {
		g.traced(c.collector, c.listener)
	}
	if c.backend != nil {
		g.apply([]*config.Resource{{Kind: &config.Resource_Backend{Backend: &config.Backend{Key: "Service/default/b/80", Traffic: c.backend}}}})
	}
	var err error
	if c.conn, err = net.Dial("tcp", g.addr()); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { c.conn.Close() })
	c.conn.SetDeadline(time.Now().Add(10 * time.Minute))
	c.request, c.buf, c.least = cannedRequest("GET", 0), make([]byte, 64<<10), time.Hour
	c.size = encodedSize(b, c.conn, c.request, c.buf)
	for range 100 {
		roundTrip(b, c.conn, c.request, c.buf, c.size)
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
