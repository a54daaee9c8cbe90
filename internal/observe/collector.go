package observe

import (
	"maps"
	"slices"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// collector converts the counters to series at each scrape. Series of requests and of backends appear with the first request, so
// that 5,000 idle routes cost a scrape nothing.
type collector struct{ m *Metrics }

var (
	routeLabels    = []string{"gateway", "listener", "route"}
	statLabels     = []string{"gateway", "listener", "stat"}
	listenerLabels = []string{"gateway", "listener", "port"}
	socketLabels   = []string{"gateway", "address", "port"}
	backendLabels  = []string{"backend"}
)

// described are the metrics of this package in the order of the code, for docs/metrics.md. It must not be modified after
// initialization.
var described []metricText

// metricText describes a metric.
type metricText struct {
	name, help string
	labels     []string
}

// describe records a metric, and returns its full name.
func describe(name, help string, labels ...string) string {
	name = "moongate_" + name
	described = append(described, metricText{name, help, labels})
	return name
}

// allDescs are the metrics of collector. It must not be modified after initialization.
var allDescs []*prometheus.Desc

// desc describes a metric of collector.
func desc(name, help string, labels ...string) *prometheus.Desc {
	d := prometheus.NewDesc(describe(name, help, labels...), help, labels, nil)
	allDescs = append(allDescs, d)
	return d
}

var (
	descRequests      = desc("requests_total", "Finished requests. code is 0 if no response was sent; reason is the same word as in the access log.", "gateway", "listener", "route", "rule", "backend", "code", "reason")
	descDuration      = desc("request_duration_seconds", "Time from the first byte of the request to the last byte of the response.", routeLabels...)
	descRequestBytes  = desc("request_bytes_total", "Bytes of request bodies received from clients.", routeLabels...)
	descResponseBytes = desc("response_bytes_total", "Bytes of response bodies sent to clients.", routeLabels...)
	descRetries       = desc("request_retries_total", "Attempts of requests at endpoints after the first one.", routeLabels...)

	descStatRequests = desc("route_stat_requests_total", "Finished requests by the routeStatName of a BackendTrafficPolicy; code and reason are as in requests_total. Names over the limit on series are counted under stat=\"(other)\".", "gateway", "listener", "stat", "code", "reason")
	descStatDuration = desc("route_stat_request_duration_seconds", "Time of these requests from the first byte of the request to the last byte of the response.", statLabels...)

	descListenerUp      = desc("listener_up", "Whether all addresses of the listener are bound: 1 or 0. It may be 1 while the listener serves nothing, as without a certificate.", listenerLabels...)
	descConnections     = desc("downstream_connections_active", "Open connections from clients.", socketLabels...)
	descConnectionTotal = desc("downstream_connections_total", "Connections accepted from clients.", socketLabels...)
	descRefused         = desc("downstream_connections_refused_total", "Connections from clients that were closed right after they were accepted because the limit was reached (reason overloaded).", "gateway", "address", "port", "limit")

	descUpEndpoints      = desc("upstream_endpoints", "Endpoints of the backend.", backendLabels...)
	descUpRequests       = desc("upstream_requests_in_flight", "Requests that were sent to the backend and are not finished.", backendLabels...)
	descUpIdle           = desc("upstream_connections_idle", "Idle connections to the backend.", backendLabels...)
	descUpActive         = desc("upstream_connections_active", "Connections to the backend in use by a request.", backendLabels...)
	descUpConnects       = desc("upstream_connects_total", "Connections established to the backend.", backendLabels...)
	descUpConnectErrors  = desc("upstream_connect_errors_total", "Failed attempts to connect to the backend.", backendLabels...)
	descUpWaiting        = desc("upstream_requests_waiting", "Requests waiting for a connection to the backend.", backendLabels...)
	descUpRefused        = desc("upstream_requests_refused_total", "Requests that were not sent to an endpoint of the backend because too many were waiting for a connection to it (reason overloaded if no other endpoint had room).", backendLabels...)
	descUpRetries        = desc("upstream_retries_total", "Attempts of requests after the first one: because no connection could be established, a connection was dead, the backend had not processed the request, or the rule's retry asked for it.", backendLabels...)
	descBreakerOpen      = desc("upstream_circuit_breaker_open", "Whether a limit of the backend's circuit breaker is reached: 1 or 0.", "backend", "limit")
	descBreakerOverflows = desc("upstream_circuit_breaker_overflows_total", "Requests and retries that a limit of the backend's circuit breaker refused, or that had to wait because of its limits on connections.", "backend", "limit")
	descMirrorsDropped   = desc("upstream_mirror_copies_dropped_total", "Copies of requests that the backend did not receive, or not completely; reason is overloaded if too many, or too much of one, were waiting for it, loop_detected if the request's CDN-Loop shows that it passed a Moongate proxy before, else failed.", "backend", "reason")
	descSpansSent        = desc("upstream_spans_sent_total", "Spans of requests that the backend accepted as the collector of an XTelemetryPolicy.", "backend")
	descSpansDropped     = desc("upstream_spans_dropped_total", "Spans of requests that the collector of an XTelemetryPolicy did not accept: it could not be reached in time, refused them, or too many were waiting for it.", "backend")
	descSessions         = desc("upstream_session_requests_total", "Requests of persistent sessions that the backend answered; result is new if the session began, kept if its endpoint answered, and moved if another endpoint answered because the session's own was gone.", "backend", "result")
	descUpUnhealthy      = desc("upstream_endpoints_unhealthy", "Endpoints of the backend that get no requests; health is avoided after a failed attempt to connect a moment ago, ejected by outlier detection, unhealthy by a health check, and unknown before the first check. If too few endpoints are healthy, all get requests.", "backend", "health")
	descUpEjections      = desc("upstream_ejections_total", "Ejections of endpoints of the backend by outlier detection, by reason.", "backend", "reason")
	descUpChecks         = desc("upstream_health_checks_total", "Health checks of endpoints of the backend; result is passed or failed.", "backend", "result")
	descUpChecksDropped  = desc("upstream_health_check_log_dropped_total", "Lines of the health check log that were not written because too many were waiting.", backendLabels...)

	descOverLimit = desc("rate_limit_over_limit_total", "Requests over a rate limit of a BackendTrafficPolicy; mode is enforced if they were refused (reason rate_limited), and shadow if they passed because of shadowMode. Rate limits over the limit on series are counted under rule=\"(other)\".", "rule", "scope", "mode")
	descRedisUp   = desc("rate_limit_redis_up", "Whether the Redis that holds the global rate limits answers: 1 or 0.", "address")
	descUndecided = desc("rate_limit_undecided_total", "Requests for which the Redis of global rate limits gave no decision because it was not available or did not answer in time. They passed, or were refused (reason rate_limit_unavailable), depending on the failure mode.", "address")
	descUncharged = desc("rate_limit_uncharged_total", "Response costs of global rate limits that Redis did not receive.", "address")

	descCompressed        = desc("compression_responses_total", "Responses that were compressed because of a BackendTrafficPolicy.", "encoding")
	descCompressedIn      = desc("compression_uncompressed_bytes_total", "Bytes of the bodies of these responses before compression, counted when a response ends.", "encoding")
	descCompressedOut     = desc("compression_compressed_bytes_total", "Bytes of the bodies of these responses after compression, counted when a response ends.", "encoding")
	descCompressedRefused = desc("compression_refused_total", "Responses that were sent with another encoding, or none, because the limit on encoders was reached.", "encoding")

	descProxies = desc("gateway_proxies", "Proxies of the Gateway, reported by the leading controller; state is current, or lagging if the proxy does not serve the current configuration or cannot apply a part of it. The proxies of merged Gateways have <namespace>/gatewayclass:<class> instead of a Gateway.", "gateway", "state")

	descLeading = desc("controller_leading", "Whether this replica of the controller leads: 1 or 0.")
	descHeld    = desc("controller_statuses_held", "Statuses that the leading controller holds back until proxies serve what they describe.")
	descObjects = desc("controller_objects", "Objects whose status the leading replica writes, by the conditions that the status should have; kind is Listener for the listeners of Gateways and ListenerSets. An object whose parents differ is counted for each status.", "kind", "condition", "status")

	descStatusWrites   = desc("controller_status_writes_total", "Statuses that were written.", "kind")
	descStatusFailures = desc("controller_status_write_failures_total", "Attempts to write a status that failed; reason is that of the API server, Unreachable if it did not answer, or Other, also if its answer cannot be decoded. Conflicts with another writer are not counted.", "kind", "reason")

	descEventsWritten = desc("controller_events_written_total", "Events of objects that were written, including repetitions.")
	descEventsDropped = desc("controller_events_dropped_total", "Events that were not written; reason is queue_full if too many waited, object_limit if one object had too many, and failed if the API server did not accept one. Statuses contain the same information.", "reason")

	descAway             = desc("controller_api_server_away_seconds", "How long the API server has not answered, 0 while it does; operation is read for objects that are read, and write for statuses that are to be written.", "operation")
	descReconcileErrors  = desc("controller_reconcile_errors_total", "Failed attempts to update the objects that run for Gateways (part provision) or the Services of XBackends (part select).", "part")
	descReconcileFailing = desc("controller_reconcile_failing", "Gateways (part provision) or XBackends (part select) whose last such attempt failed, in the leading replica.", "part")

	descScarce     = desc("memory_scarce", "Whether new connections and requests are refused because memory is scarce (reason overloaded): 1 or 0.")
	descLogDropped = desc("access_log_dropped_total", "Access log lines that were not written; reason is buffer_full if the destination did not keep up, write_failed, rejected if the collector refused them, unavailable if it could not be reached or could not accept them, or shutting_down.", "reason")
	descLogErrors  = desc("access_log_write_errors_total", "Failed writes of the access log.")
	descGeneration = desc("config_generation", "Generation of the configuration in force.")
	descLastApply  = desc("config_last_apply_success_timestamp_seconds", "Time at which a generation of the configuration was last applied.")
	descResources  = desc("config_resources", "Configuration resources in force, by kind.", "kind")
	descNotAfter   = desc("certificate_not_after_timestamp_seconds", "Time at which the certificate expires.", "certificate")
	descRuns       = desc("translate_runs_total", "Runs of translate functions.", "function")
	descUnread     = desc("source_unread", "1 for each kind of object that cannot be listed or watched although the API server answers.", "kind")
	descProblems   = desc("source_problems", "Objects that cannot be used: each problem of a manifest file; in a cluster, objects that cannot be decoded, completely or in their status, and Secrets that cannot be read. kind is empty if a manifest has none, and (other) if it is not known.", "kind")
	descFolded     = desc("metrics_folded_rules", `Rules whose requests are counted under route="(other)" because there are too many rules.`)

	descProcessLogDropped = desc("process_log_dropped_total", "Lines of the log of the process that were not written; reason is buffer_full if the reader of standard error did not keep up, or write_failed.", "reason")
)

// Describe implements prometheus.Collector.
func (c collector) Describe(out chan<- *prometheus.Desc) {
	for _, d := range allDescs {
		out <- d
	}
}

// Collect implements prometheus.Collector.
func (c collector) Collect(out chan<- prometheus.Metric) {
	s := c.m.snapshot()
	e := emitter{out}
	p := make(pairs)
	e.requests(s, p)
	e.routes(s, p)
	e.stats(s, p)
	e.connections(s, &c.m.otherSockets)
	if report := c.m.upstreams.Load(); report != nil {
		e.upstreams(*report, s.maxBackends)
	}
	if report := c.m.unreadKinds.Load(); report != nil {
		for _, kind := range (*report)() {
			e.gauge(descUnread, 1, kind)
		}
	}
	if report := c.m.rateLimits.Load(); report != nil {
		e.rateLimits(*report, s.maxBackends)
	}
	if report := c.m.compression.Load(); report != nil {
		(*report)(func(s CompressionStats) {
			if s.Responses+s.Refused > 0 {
				e.counter(descCompressed, s.Responses, s.Encoding)
				e.counter(descCompressedIn, s.In, s.Encoding)
				e.counter(descCompressedOut, s.Out, s.Encoding)
				e.counter(descCompressedRefused, s.Refused, s.Encoding)
			}
		})
	}
	if report := c.m.redises.Load(); report != nil {
		e.redises(*report)
	}
	if report := c.m.proxies.Load(); report != nil {
		(*report)(func(g GatewayProxies) {
			gateway := validLabel(g.Gateway)
			e.gauge(descProxies, float64(g.Current), gateway, "current")
			e.gauge(descProxies, float64(g.Lagging), gateway, "lagging")
		})
	}
	if report := c.m.controller.Load(); report != nil {
		e.controller((*report)())
	}
	if report := c.m.sourceProblems.Load(); report != nil {
		for kind, n := range (*report)() {
			e.gauge(descProblems, float64(n), kind)
		}
	}
	for reason := range dropReasons {
		e.counter(descLogDropped, c.m.log.DroppedBy(reason), reason.String())
	}
	e.counter(descLogErrors, c.m.log.WriteErrors())
	for _, reason := range []DropReason{DropBufferFull, DropWriteFailed} { // those at shutdown are never scraped
		e.counter(descProcessLogDropped, c.m.processLog.DroppedBy(reason), reason.String())
	}
	e.gauge(descGeneration, float64(s.generation))
	e.gauge(descScarce, oneIf(c.m.scarce.Load()))
	e.gauge(descFolded, float64(s.folded))
	if !s.lastApply.IsZero() {
		e.gauge(descLastApply, float64(s.lastApply.UnixNano())/1e9)
	}
	for kind, n := range s.resources {
		e.gauge(descResources, float64(n), kind)
	}
	for key, t := range s.certificates {
		e.gauge(descNotAfter, float64(t.Unix()), key)
	}
	for name, n := range s.runs {
		e.counter(descRuns, n, name)
	}
}

type emitter struct{ out chan<- prometheus.Metric }

// rateLimits returns the limits by name, and adds up those beyond bound; the selection is the same at each scrape.
func (e emitter) rateLimits(report func(func(RateLimitStats)), bound int) {
	sums := make(map[string]*RateLimitStats)
	report(func(l RateLimitStats) {
		l.Rule = validLabel(l.Rule)
		key := l.Scope + " " + l.Rule
		if sum := sums[key]; sum != nil {
			sum.add(l)
		} else {
			sums[key] = &l
		}
	})
	folded := make(map[string]*RateLimitStats) // by scope
	for i, key := range slices.Sorted(maps.Keys(sums)) {
		l := sums[key]
		if i >= bound {
			if sum := folded[l.Scope]; sum != nil {
				sum.add(*l)
			} else {
				l.Rule = other
				folded[l.Scope] = l
			}
			continue
		}
		e.rateLimit(l)
	}
	for _, l := range folded {
		e.rateLimit(l)
	}
}

func (e emitter) rateLimit(l *RateLimitStats) {
	e.counter(descOverLimit, l.OverLimit, l.Rule, l.Scope, "enforced")
	e.counter(descOverLimit, l.Shadowed, l.Rule, l.Scope, "shadow")
}

func (s *RateLimitStats) add(l RateLimitStats) {
	s.OverLimit += l.OverLimit
	s.Shadowed += l.Shadowed
}

// redises adds up servers with the same address: listeners may have different settings for it.
func (e emitter) redises(report func(func(RedisStats))) {
	all := map[string]*RedisStats{}
	report(func(r RedisStats) {
		address := validLabel(r.Address)
		sum := all[address]
		if sum == nil {
			sum = &RedisStats{Up: true}
			all[address] = sum
		}
		sum.Up = sum.Up && r.Up
		sum.Undecided += r.Undecided
		sum.Uncharged += r.Uncharged
	})
	for address, r := range all {
		e.gauge(descRedisUp, oneIf(r.Up), address)
		e.counter(descUndecided, r.Undecided, address)
		e.counter(descUncharged, r.Uncharged, address)
	}
}

func (e emitter) counter(d *prometheus.Desc, v uint64, labels ...string) {
	e.out <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), labels...)
}

func (e emitter) gauge(d *prometheus.Desc, v float64, labels ...string) {
	e.out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
}

func (e emitter) requests(s *snapshot, p pairs) {
	for _, r := range s.rules {
		k := r.key
		for _, o := range r.counts.list() {
			e.out <- counterSample(descRequests, o.count(), []*dto.LabelPair{
				p.get("backend", r.backend), p.get("code", o.codeLabel()), p.get("gateway", k.gateway),
				p.get("listener", k.listener), p.get("reason", o.reason.String()), p.get("route", k.route), p.get("rule", k.rule),
			})
		}
	}
}

func (e emitter) routes(s *snapshot, p pairs) {
	for _, r := range s.routes {
		sum := r.totals()
		h := sum.histogram()
		if h.GetSampleCount() == 0 {
			continue
		}
		labels := []*dto.LabelPair{p.get("gateway", r.key.gateway), p.get("listener", r.key.listener), p.get("route", r.key.route)}
		e.out <- &sample{desc: descDuration, labels: labels, histogram: h}
		e.out <- counterSample(descRequestBytes, sum.requestBytes, labels)
		e.out <- counterSample(descResponseBytes, sum.responseBytes, labels)
		e.out <- counterSample(descRetries, sum.retries, labels)
	}
}

func (e emitter) stats(s *snapshot, p pairs) {
	for _, st := range s.stats {
		labels := func(more ...*dto.LabelPair) []*dto.LabelPair { // sorted by name
			return append(more, p.get("gateway", st.key.gateway), p.get("listener", st.key.listener))
		}
		for _, o := range st.series.list() {
			e.out <- counterSample(descStatRequests, o.count(), append(labels(p.get("code", o.codeLabel())), p.get("reason", o.reason.String()), p.get("stat", st.key.name)))
		}
		sum := st.series.totals()
		if h := sum.histogram(); h.GetSampleCount() > 0 {
			e.out <- &sample{desc: descStatDuration, labels: append(labels(), p.get("stat", st.key.name)), histogram: h}
		}
	}
}

func (e emitter) connections(s *snapshot, others *socketSeries) {
	for _, l := range s.listeners {
		e.gauge(descListenerUp, oneIf(l.value.up.Load()), l.key.Gateway, l.key.Listener, strconv.Itoa(int(l.key.Port)))
	}
	socket := func(series *socketSeries, labels ...string) {
		e.gauge(descConnections, float64(series.open.Load()), labels...)
		e.counter(descConnectionTotal, series.total.Load(), labels...)
		for l := range limitCount {
			e.counter(descRefused, series.refused[l].Load(), append(labels, l.String())...)
		}
	}
	for _, k := range s.sockets {
		socket(&k.value, k.key.Gateway, k.key.Address, strconv.Itoa(int(k.key.Port)))
	}
	if others.total.Load() > 0 {
		socket(others, other, other, other)
	}
}

// upstreams adds up what is reported twice or beyond the bound: a duplicate series would fail the whole scrape.
func (e emitter) upstreams(report func(func(UpstreamStats)), bound int) {
	sums := make(map[string]*UpstreamStats)
	report(func(u UpstreamStats) {
		if u.unused() {
			return
		}
		u.Backend = validLabel(u.Backend)
		sum := sums[u.Backend]
		if sum == nil && len(sums) >= bound {
			u.Backend = other
			sum = sums[other]
		}
		if sum == nil {
			sums[u.Backend] = &u
			return
		}
		sum.add(&u)
	})
	for backend, u := range sums {
		e.upstream(backend, u)
	}
}

// upstream emits the series of one backend, or of the sum of those beyond the bound.
func (e emitter) upstream(backend string, u *UpstreamStats) {
	e.gauge(descUpEndpoints, float64(u.Endpoints), backend)
	e.gauge(descUpRequests, float64(u.RequestsInFlight), backend)
	e.gauge(descUpIdle, float64(u.ConnectionsIdle), backend)
	e.gauge(descUpActive, float64(u.ConnectionsActive), backend)
	e.counter(descUpConnects, u.ConnectsTotal, backend)
	e.counter(descUpConnectErrors, u.ConnectErrors, backend)
	e.gauge(descUpWaiting, float64(u.RequestsWaiting), backend)
	e.counter(descUpRefused, u.RequestsRefused, backend)
	e.counter(descUpRetries, u.Retries, backend)
	for reason, n := range map[string]uint64{ReasonOverloaded.String(): u.MirrorsRefused, "failed": u.MirrorsFailed,
		ReasonLoopDetected.String(): u.MirrorsLooped} {
		if n > 0 { // most backends are not used by mirrors
			e.counter(descMirrorsDropped, n, backend, reason)
		}
	}
	for _, l := range u.BreakerLimits {
		e.gauge(descBreakerOpen, oneIf(l.Open), backend, l.Limit)
		e.counter(descBreakerOverflows, l.Overflows, backend, l.Limit)
	}
	if u.SpansSent+u.SpansDropped > 0 { // it is a collector
		e.counter(descSpansSent, u.SpansSent, backend)
		e.counter(descSpansDropped, u.SpansDropped, backend)
	}
	for health, n := range u.Unhealthy {
		e.gauge(descUpUnhealthy, float64(n), backend, health)
	}
	for reason, n := range u.Ejections {
		e.counter(descUpEjections, n, backend, reason)
	}
	if u.ChecksPassed+u.ChecksFailed > 0 { // it is checked
		e.counter(descUpChecks, u.ChecksPassed, backend, "passed")
		e.counter(descUpChecks, u.ChecksFailed, backend, "failed")
		e.counter(descUpChecksDropped, u.CheckEventsDropped, backend)
	}
	for result, n := range map[Session]uint64{SessionNew: u.SessionsBegun, SessionKept: u.SessionsKept, SessionMoved: u.SessionsMoved} {
		if n > 0 { // most backends have none
			e.counter(descSessions, n, backend, result.String())
		}
	}
}

// oneIf returns 1 for true, else 0.
func oneIf(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
