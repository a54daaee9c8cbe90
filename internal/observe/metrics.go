package observe

import (
	"maps"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
)

const (
	defaultMaxRules = 20000
	defaultGrace    = 5 * time.Minute
	// maxCertificates is the maximum number of certificates whose expiry is exported.
	maxCertificates = 20000
)

// MetricsOptions configures NewMetrics; the zero value is suitable for production.
type MetricsOptions struct {
	Version  string // for moongate_build_info; "" means "devel"
	Revision string // commit; may be ""
	// MaxRules is the maximum number of rules of all listeners that are exported separately; 0 means 20000.
	MaxRules int
	// Grace is how long the series of a released handle are still exported; 0 means 5 minutes, enough for the last scrape to include
	// the last requests.
	Grace time.Duration
	// AccessLog provides the counts of dropped lines; may be nil.
	AccessLog *AccessLog
	// ProcessLog provides those of the log of the process; may be nil.
	ProcessLog *ProcessLog
}

// Metrics contains everything that is counted. Methods are safe for concurrent use.
type Metrics struct {
	registry     *prometheus.Registry
	log          *AccessLog
	processLog   *ProcessLog
	now          func() time.Time
	unattributed *RuleStats
	upstreams    atomic.Pointer[func(func(UpstreamStats))]
	unreadKinds  atomic.Pointer[func() []string]
	rateLimits   atomic.Pointer[func(func(RateLimitStats))]
	compression  atomic.Pointer[func(func(CompressionStats))]
	redises      atomic.Pointer[func(func(RedisStats))]
	proxies      atomic.Pointer[func(func(GatewayProxies))]
	controller   atomic.Pointer[func() ControllerStats]

	sourceProblems atomic.Pointer[func() map[string]int]

	scarce atomic.Bool // see SetMemoryScarce

	mu           sync.Mutex // guards the fields below; never held while a scrape is written
	rules        *table[ruleKey, ruleSeries]
	routes       map[routeKey]*routeSeries
	others       map[routeKey]*ruleSeries // sums of rules for which there is no room
	stats        *table[statKey, statSeries]
	otherStats   statSeries // sum of StatNames for which there is no room
	folded       int        // handles that share counters in others
	listeners    *table[ListenerLabels, listenerSeries]
	sockets      *table[SocketLabels, socketSeries]
	otherSockets socketSeries
	certificates map[string]time.Time
	resources    map[string]int
	runs         map[string]uint64
	generation   uint64
	lastApply    time.Time

	applyDuration     prometheus.Histogram
	applyErrors       prometheus.Counter
	panics            *prometheus.CounterVec
	translateDuration prometheus.Histogram
}

// NewMetrics returns an empty set with its own registry.
func NewMetrics(o MetricsOptions) *Metrics {
	if o.MaxRules <= 0 {
		o.MaxRules = defaultMaxRules
	}
	if o.Grace <= 0 {
		o.Grace = defaultGrace
	}
	if o.Version == "" {
		o.Version = "devel"
	}
	m := &Metrics{
		registry:     prometheus.NewRegistry(),
		log:          o.AccessLog,
		processLog:   o.ProcessLog,
		now:          time.Now,
		rules:        newTable[ruleKey, ruleSeries](o.MaxRules, o.Grace),
		routes:       make(map[routeKey]*routeSeries),
		others:       make(map[routeKey]*ruleSeries),
		stats:        newTable[statKey, statSeries](o.MaxRules, o.Grace),
		listeners:    newTable[ListenerLabels, listenerSeries](maxListeners, 0),
		sockets:      newTable[SocketLabels, socketSeries](maxListeners, o.Grace),
		certificates: make(map[string]time.Time),
		resources:    make(map[string]int),
		runs:         make(map[string]uint64),
	}
	m.rules.removed = m.removeRule
	m.unattributed = m.Rule(RuleLabels{})
	m.applyDuration = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name:    nameApplyDuration,
		Help:    helpApplyDuration,
		Buckets: []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 5},
	})
	m.applyErrors = prometheus.NewCounter(prometheus.CounterOpts{
		Name: nameApplyErrors,
		Help: helpApplyErrors,
	})
	m.translateDuration = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name:    nameTranslateDuration,
		Help:    helpTranslateDuration,
		Buckets: []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 5},
	})
	m.panics = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: namePanics,
		Help: helpPanics,
	}, []string{"where"})
	for _, where := range panicPlaces {
		m.panics.WithLabelValues(where)
	}
	build := prometheus.NewGauge(prometheus.GaugeOpts{
		Name:        nameBuild,
		Help:        helpBuild,
		ConstLabels: prometheus.Labels{"version": o.Version, "revision": o.Revision, "go_version": runtime.Version()},
	})
	build.Set(1)
	m.registry.MustRegister(build, m.panics, m.applyDuration, m.applyErrors, m.translateDuration, collector{m},
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// Names and help texts of the metrics that are not in collector.
var (
	helpApplyDuration     = "Time taken to apply a generation of the configuration."
	nameApplyDuration     = describe("config_apply_duration_seconds", helpApplyDuration)
	helpApplyErrors       = "Generations of the configuration that were refused."
	nameApplyErrors       = describe("config_apply_errors_total", helpApplyErrors)
	helpTranslateDuration = "Time taken to translate a change of objects."
	nameTranslateDuration = describe("translate_duration_seconds", helpTranslateDuration)
	helpPanics            = "Panics, each of which ended one connection, request, copy or translated object. Each is a bug: the log has the stack trace."
	namePanics            = describe("panics_total", helpPanics, "where")
	helpBuild             = "Always 1; the labels describe the build."
	nameBuild             = describe("build_info", helpBuild, "version", "revision", "go_version")
)

// Gatherer returns the metrics for /metrics.
func (m *Metrics) Gatherer() prometheus.Gatherer { return m.registry }

// Registerer is for collectors of other packages; names must begin with moongate_.
func (m *Metrics) Registerer() prometheus.Registerer { return m.registry }

// UpstreamStats is the state of the connection pool of one backend.
type UpstreamStats struct {
	Backend           string // config.Backend.key
	Endpoints         int
	RequestsInFlight  int
	ConnectionsIdle   int
	ConnectionsActive int
	ConnectsTotal     uint64 // connections made since the start
	ConnectErrors     uint64 // attempts that failed
	RequestsWaiting   int    // requests that wait for a connection
	RequestsRefused   uint64 // requests refused because too many waited
	Retries           uint64 // attempts of requests after the first
	MirrorsRefused    uint64 // mirrored requests dropped because too many, or too much data of one, were waiting
	MirrorsFailed     uint64 // mirrored requests that failed
	SpansSent         uint64 // spans that the backend, a collector, has accepted
	SpansDropped      uint64 // spans that it has not accepted
	MirrorsLooped     uint64 // requests not mirrored because they had passed a Moongate proxy before, or claimed so
	SessionsBegun     uint64 // requests that began a persistent session
	SessionsKept      uint64 // requests that the endpoint of their session has answered
	SessionsMoved     uint64 // requests that another endpoint has answered, because that of the session was not available
	// BreakerLimits are the limits of its circuit breaker.
	BreakerLimits []BreakerLimitStats
	// Unhealthy is the number of unhealthy endpoints by reason; nil if all have always been healthy, and no policy configures health
	// checks.
	Unhealthy    map[string]int
	Ejections    map[string]uint64 // of endpoints by reason; nil if none
	ChecksPassed uint64            // successful health checks of endpoints
	ChecksFailed uint64            // failed health checks of endpoints
	// CheckEventsDropped is the number of lines dropped from the log of health checks.
	CheckEventsDropped uint64
}

// BreakerLimitStats is one limit of a circuit breaker.
type BreakerLimitStats struct {
	Limit     string // such as "connections"
	Open      bool   // it is reached
	Overflows uint64 // since the start
}

// add adds the numbers of another backend, or of the same one reported again. It may modify the maps and slices of u.
func (u *UpstreamStats) add(o *UpstreamStats) {
	u.Endpoints += o.Endpoints
	u.RequestsInFlight += o.RequestsInFlight
	u.ConnectionsIdle += o.ConnectionsIdle
	u.ConnectionsActive += o.ConnectionsActive
	u.ConnectsTotal += o.ConnectsTotal
	u.ConnectErrors += o.ConnectErrors
	u.RequestsWaiting += o.RequestsWaiting
	u.RequestsRefused += o.RequestsRefused
	u.Retries += o.Retries
	u.MirrorsRefused += o.MirrorsRefused
	u.MirrorsFailed += o.MirrorsFailed
	u.MirrorsLooped += o.MirrorsLooped
	u.SessionsBegun += o.SessionsBegun
	u.SessionsKept += o.SessionsKept
	u.SessionsMoved += o.SessionsMoved
	u.SpansSent += o.SpansSent
	u.SpansDropped += o.SpansDropped
	u.BreakerLimits = addBreakerLimits(u.BreakerLimits, o.BreakerLimits)
	u.Unhealthy = addTo(u.Unhealthy, o.Unhealthy)
	u.Ejections = addTo(u.Ejections, o.Ejections)
	u.ChecksPassed += o.ChecksPassed
	u.ChecksFailed += o.ChecksFailed
	u.CheckEventsDropped += o.CheckEventsDropped
}

// addTo adds the numbers of from to those of to and returns the result; either may be nil, and to may be modified.
func addTo[N int | uint64](to, from map[string]N) map[string]N {
	if to == nil {
		return maps.Clone(from)
	}
	for name, n := range from {
		to[name] += n
	}
	return to
}

// addBreakerLimits adds the limits of one backend to those of others.
func addBreakerLimits(sum, more []BreakerLimitStats) []BreakerLimitStats {
	for _, l := range more {
		i := slices.IndexFunc(sum, func(s BreakerLimitStats) bool { return s.Limit == l.Limit })
		if i < 0 {
			sum = append(sum, l)
			continue
		}
		sum[i].Open = sum[i].Open || l.Open
		sum[i].Overflows += l.Overflows
	}
	return sum
}

// unused reports whether no request, mirrored request or span has ever needed the backend.
func (u *UpstreamStats) unused() bool {
	return u.ConnectsTotal == 0 && u.ConnectErrors == 0 && u.RequestsInFlight == 0 && u.ChecksPassed+u.ChecksFailed == 0 &&
		u.MirrorsRefused+u.MirrorsFailed+u.MirrorsLooped == 0 && u.SpansSent+u.SpansDropped == 0 && len(u.BreakerLimits) == 0
}

// SetUpstreams sets the function that reports every backend's pool; it is called at each scrape and must be safe for concurrent use.
// Backends that were never used have no series. Backends beyond the limit are added up.
func (m *Metrics) SetUpstreams(report func(emit func(UpstreamStats))) { m.upstreams.Store(&report) }

// RateLimitStats is what a rate limit of a policy has counted.
type RateLimitStats struct {
	Rule  string // "<namespace>/<policy>/rule/<index>"
	Scope string // "local" or "global"
	// OverLimit and Shadowed are requests over the limit: those that were refused, and those that passed because of shadowMode.
	OverLimit, Shadowed uint64
}

// SetRateLimits sets the function that reports every rate limit in force; it is called at each scrape and must be safe for
// concurrent use.
func (m *Metrics) SetRateLimits(report func(emit func(RateLimitStats))) { m.rateLimits.Store(&report) }

// CompressionStats is what the gateway has compressed with one encoding.
type CompressionStats struct {
	Encoding  string // as in Content-Encoding
	Responses uint64
	Refused   uint64 // responses that were not compressed because too many encoders were in use
	In, Out   uint64 // bytes of bodies before and after compression, of responses that have ended
}

// SetCompression sets the function that reports every encoding; it is called at each scrape and must be safe for concurrent use. An
// encoding without responses has no series.
func (m *Metrics) SetCompression(report func(emit func(CompressionStats))) {
	m.compression.Store(&report)
}

// RedisStats is the state of a Redis server for global rate limits.
type RedisStats struct {
	Address   string // host:port
	Up        bool
	Undecided uint64 // requests for which it did not answer
	Uncharged uint64 // response costs that did not reach it
}

// SetRedises sets the function that reports every Redis server in use; it is called at each scrape and must be safe for concurrent
// use.
func (m *Metrics) SetRedises(report func(emit func(RedisStats))) { m.redises.Store(&report) }

// SetUnreadKinds sets the function that returns the kinds of objects that cannot be read; it is called at each scrape and must be
// safe for concurrent use.
func (m *Metrics) SetUnreadKinds(report func() []string) { m.unreadKinds.Store(&report) }

// SetMemoryScarce sets whether connections and requests are refused because memory is scarce.
func (m *Metrics) SetMemoryScarce(scarce bool) { m.scarce.Store(scarce) }

// ConfigApply is one generation that the proxy applied or refused.
type ConfigApply struct {
	Generation uint64
	Duration   time.Duration
	At         time.Time
	Err        error // nil means success
}

// ConfigApplied records one applied or refused generation.
func (m *Metrics) ConfigApplied(a ConfigApply) {
	m.applyDuration.Observe(a.Duration.Seconds())
	if a.Err != nil {
		m.applyErrors.Inc()
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.generation, m.lastApply = a.Generation, a.At
}

// SetConfigResources sets how many Resources of a kind (config.Kind.String) are in force.
func (m *Metrics) SetConfigResources(kind string, n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.resources[validLabel(kind)] = n
}

// SetCertificate sets when a certificate (config.Certificate.key) expires.
func (m *Metrics) SetCertificate(key string, notAfter time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	key = validLabel(key)
	if _, ok := m.certificates[key]; ok || len(m.certificates) < maxCertificates {
		m.certificates[key] = notAfter
	}
}

// RemoveCertificate removes the series of a certificate.
func (m *Metrics) RemoveCertificate(key string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.certificates, validLabel(key))
}

// GatewayProxies counts the proxies of a Gateway, as known by the leader.
type GatewayProxies struct {
	Gateway          string // "<namespace>/<name>"
	Current, Lagging int
}

// SetProxies sets the function that reports the proxies of Gateways; it is called at each scrape and must be safe for concurrent
// use.
func (m *Metrics) SetProxies(report func(emit func(GatewayProxies))) { m.proxies.Store(&report) }

// Translated adds how often translate functions ran, by name, and how long they took.
func (m *Metrics) Translated(runsByName map[string]int, d time.Duration) {
	m.translateDuration.Observe(d.Seconds())
	m.mu.Lock()
	defer m.mu.Unlock()
	for name, n := range runsByName {
		m.runs[validLabel(name)] += uint64(max(n, 0))
	}
}

// snapshot is what a scrape writes after it has released the lock.
type snapshot struct {
	rules        []ruleSnapshot
	routes       []*routeSeries
	stats        []statSnapshot
	listeners    []*listenerEntry
	sockets      []*socketEntry
	certificates map[string]time.Time
	resources    map[string]int
	runs         map[string]uint64
	folded       int
	generation   uint64
	lastApply    time.Time
	maxBackends  int
}

type ruleSnapshot struct {
	key     ruleKey
	backend string
	counts  *outcomes
}

type statSnapshot struct {
	key    statKey
	series *statSeries
}

func (m *Metrics) snapshot() *snapshot {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.now()
	m.rules.expire(now)
	m.stats.expire(now)
	m.sockets.expire(now)
	s := &snapshot{
		certificates: maps.Clone(m.certificates), resources: maps.Clone(m.resources), runs: maps.Clone(m.runs),
		folded: m.folded, generation: m.generation, lastApply: m.lastApply, maxBackends: m.rules.max,
		rules: make([]ruleSnapshot, 0, 2*len(m.rules.entries)),
	}
	for key, e := range m.rules.entries {
		s.rules = append(s.rules, ruleSnapshot{key, "", &e.value.none})
		if e.value.backends == nil {
			continue
		}
		e.value.backends.expire(now)
		for name, b := range e.value.backends.entries {
			s.rules = append(s.rules, ruleSnapshot{key, name, &b.value})
		}
	}
	for key, series := range m.others {
		s.rules = append(s.rules, ruleSnapshot{ruleKey{routeKey: key}, "", &series.none})
		s.routes = append(s.routes, series.route)
	}
	for _, r := range m.routes {
		s.routes = append(s.routes, r)
	}
	for key, e := range m.stats.entries {
		s.stats = append(s.stats, statSnapshot{key, &e.value})
	}
	s.stats = append(s.stats, statSnapshot{statKey{other, other, other}, &m.otherStats})
	for _, e := range m.listeners.entries {
		s.listeners = append(s.listeners, e)
	}
	for _, e := range m.sockets.entries {
		s.sockets = append(s.sockets, e)
	}
	return s
}
