package backendtraffic

import (
	"fmt"
	"math"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"
	"k8s.io/utils/ptr"

	eg "github.com/moongate-dev/moongate/api/envoygateway/v1alpha1"
	"github.com/moongate-dev/moongate/internal/config"
)

// maxRetries is the maximum number of retries of one request, as in a rule's own retry.
const maxRetries = 16

const (
	defaultRetries     = 2
	defaultRetryStatus = 503
)

var triggers = map[eg.TriggerEnum]config.RetryTrigger{
	eg.Error5XX:             config.RetryTrigger_RETRY_TRIGGER_5XX,
	eg.GatewayError:         config.RetryTrigger_RETRY_TRIGGER_GATEWAY_ERROR,
	eg.Reset:                config.RetryTrigger_RETRY_TRIGGER_RESET,
	eg.ResetBeforeRequest:   config.RetryTrigger_RETRY_TRIGGER_RESET_BEFORE_REQUEST,
	eg.ConnectFailure:       config.RetryTrigger_RETRY_TRIGGER_CONNECT_FAILURE,
	eg.Retriable4XX:         config.RetryTrigger_RETRY_TRIGGER_RETRIABLE_4XX,
	eg.RefusedStream:        config.RetryTrigger_RETRY_TRIGGER_REFUSED_STREAM,
	eg.RetriableStatusCodes: config.RetryTrigger_RETRY_TRIGGER_RETRIABLE_STATUS_CODES,
	eg.Cancelled:            config.RetryTrigger_RETRY_TRIGGER_GRPC_CANCELLED,
	eg.DeadlineExceeded:     config.RetryTrigger_RETRY_TRIGGER_GRPC_DEADLINE_EXCEEDED,
	eg.Internal:             config.RetryTrigger_RETRY_TRIGGER_GRPC_INTERNAL,
	eg.ResourceExhausted:    config.RetryTrigger_RETRY_TRIGGER_GRPC_RESOURCE_EXHAUSTED,
	eg.Unavailable:          config.RetryTrigger_RETRY_TRIGGER_GRPC_UNAVAILABLE,
}

// defaultTriggers are used if retryOn lists none.
var defaultTriggers = []eg.TriggerEnum{eg.ConnectFailure, eg.RefusedStream, eg.Unavailable, eg.Cancelled, eg.RetriableStatusCodes}

func (r *reader) rule(s *eg.Settings) (out Rule) {
	out.Retry = r.retry(s.Retry)
	t := &config.RuleTraffic{}
	if s.Timeout != nil && s.Timeout.HTTP != nil {
		h := s.Timeout.HTTP
		out.RequestTimeout = r.duration(h.RequestTimeout, 0, "timeout.http.requestTimeout")
		t.MaxStreamDurationNanos = r.duration(h.MaxStreamDuration, 0, "timeout.http.maxStreamDuration")
		t.StreamIdleTimeoutNanos = r.duration(h.StreamIdleTimeout, 0, "timeout.http.streamIdleTimeout")
	}
	if s.Connection != nil {
		t.BufferLimitBytes = r.size(s.Connection.BufferLimit, math.MaxUint32, "connection.bufferLimit")
	}
	if s.RequestBuffer != nil {
		t.RequestBufferBytes = r.size(&s.RequestBuffer.Limit, math.MaxUint32, "requestBuffer.limit")
	}
	t.Upgrades, t.UpgradesSet = r.httpUpgrade(s), len(s.HTTPUpgrade) > 0
	t.FaultInjection = r.faultInjection(s.FaultInjection)
	t.AdmissionControl = r.admissionControl(s.AdmissionControl)
	t.BandwidthLimit = r.bandwidthLimit(s.BandwidthLimit)
	t.Compression = r.compression(s)
	r.telemetry(t, s.Telemetry)
	out.Traffic = t
	return out
}

func (r *reader) retry(spec *eg.Retry) *config.Retry {
	if spec == nil {
		return nil
	}
	n := ptr.Deref(spec.NumRetries, defaultRetries)
	if n < 0 {
		r.invalid("retry.numRetries", "use 0 or more", "%d is negative", n)
		n = 0
	}
	if n > maxRetries {
		r.note("retry.numRetries", "more than %d retries are not made", maxRetries)
		n = maxRetries
	}
	if ptr.Deref(spec.NumAttemptsPerPriority, 0) > 0 {
		r.note("retry.numAttemptsPerPriority", "it changes nothing: all endpoints of a backend have one priority")
	}
	out := &config.Retry{Attempts: uint32(n)}
	on, codes := defaultTriggers, []eg.HTTPStatus{defaultRetryStatus}
	if spec.RetryOn != nil {
		if len(spec.RetryOn.Triggers) > 0 {
			on = spec.RetryOn.Triggers
		}
		if len(spec.RetryOn.HTTPStatusCodes) > 0 {
			codes = spec.RetryOn.HTTPStatusCodes
		}
	}
	for i, t := range on {
		trigger, known := triggers[t]
		if !known {
			r.invalid(fmt.Sprintf("retry.retryOn.triggers[%d]", i), "correct it", "%q is not known", t)
		}
		out.Triggers = append(out.Triggers, trigger)
	}
	slices.Sort(out.Triggers)
	out.Triggers = slices.Compact(out.Triggers)
	if slices.Contains(out.Triggers, config.RetryTrigger_RETRY_TRIGGER_RETRIABLE_STATUS_CODES) {
		for i, code := range codes {
			if code < 100 || code > 599 {
				r.invalid(fmt.Sprintf("retry.retryOn.httpStatusCodes[%d]", i), "use codes from 100 to 599", "%d is not a status code", code)
			}
			out.Codes = append(out.Codes, uint32(code))
		}
		slices.Sort(out.Codes)
		out.Codes = slices.Compact(out.Codes)
	} else if spec.RetryOn != nil && len(spec.RetryOn.HTTPStatusCodes) > 0 {
		r.note("retry.retryOn.httpStatusCodes", "they change nothing: triggers does not have retriable-status-codes")
	}
	if p := spec.PerRetry; p != nil {
		out.PerTryTimeoutNanos = r.duration(p.Timeout, 0, "retry.perRetry.timeout")
		if b := p.BackOff; b != nil {
			out.BackoffNanos = r.duration(b.BaseInterval, time.Millisecond, "retry.perRetry.backOff.baseInterval")
			out.MaxBackoffNanos = r.duration(b.MaxInterval, time.Millisecond, "retry.perRetry.backOff.maxInterval")
			if base := max(out.BackoffNanos, 0); out.MaxBackoffNanos != 0 && out.MaxBackoffNanos < base {
				r.invalid("retry.perRetry.backOff.maxInterval", "make it at least baseInterval", "%s is shorter than baseInterval %s", *b.MaxInterval, *b.BaseInterval)
			}
		}
	}
	return out
}

// defaultCircuit is the default of each limit.
const defaultCircuit = 1024

const (
	defaultMinRetryConcurrency = 3
	defaultDenominator         = 100
)

func (r *reader) circuitBreaker(cb *eg.CircuitBreaker) *config.CircuitBreaker {
	if cb == nil {
		return nil
	}
	limit := func(n *int64, field string) *uint32 {
		if n == nil {
			return new(uint32(defaultCircuit))
		}
		return r.count(n, "circuitBreaker."+field)
	}
	out := &config.CircuitBreaker{
		MaxConnections:      limit(cb.MaxConnections, "maxConnections"),
		MaxPendingRequests:  limit(cb.MaxPendingRequests, "maxPendingRequests"),
		MaxParallelRequests: limit(cb.MaxParallelRequests, "maxParallelRequests"),
		MaxParallelRetries:  limit(cb.MaxParallelRetries, "maxParallelRetries"),
	}
	if n := r.count(cb.MaxRequestsPerConnection, "circuitBreaker.maxRequestsPerConnection"); n != nil {
		out.MaxRequestsPerConnection = *n
	}
	if cb.PerEndpoint != nil {
		out.MaxConnectionsPerEndpoint = limit(cb.PerEndpoint.MaxConnections, "perEndpoint.maxConnections")
	}
	if b := cb.RetryBudget; b != nil {
		numerator, denominator := b.Percent.Numerator, ptr.Deref(b.Percent.Denominator, defaultDenominator)
		if denominator < 1 || numerator < 0 || numerator > denominator {
			r.invalid("circuitBreaker.retryBudget.percent", "use a fraction from 0 to 1", "%d/%d is not a share", numerator, denominator)
		}
		out.RetryBudget = &config.ParallelRetryBudget{Numerator: uint32(numerator), Denominator: uint32(max(denominator, 1)),
			MinRetryConcurrency: r.positive(b.MinRetryConcurrency, defaultMinRetryConcurrency, "circuitBreaker.retryBudget.minRetryConcurrency")}
		out.MaxParallelRetries = nil
	}
	return out
}

var lookupFamilies = map[string]config.LookupFamily{
	"IPv4":          config.LookupFamily_LOOKUP_FAMILY_IPV4,
	"IPv6":          config.LookupFamily_LOOKUP_FAMILY_IPV6,
	"IPv4Preferred": config.LookupFamily_LOOKUP_FAMILY_IPV4_PREFERRED,
	"IPv6Preferred": config.LookupFamily_LOOKUP_FAMILY_IPV6_PREFERRED,
	"IPv4AndIPv6":   config.LookupFamily_LOOKUP_FAMILY_IPV4_AND_IPV6,
}

const defaultIntervalJitter = 15 // percent

func (r *reader) connections(s *eg.Settings, protocols *eg.Protocols) *config.BackendConnections {
	out := &config.BackendConnections{ClientProtocol: ptr.Deref(s.UseClientProtocol, false)}
	if t := s.Timeout; t != nil {
		if t.TCP != nil {
			out.ConnectTimeoutNanos = r.duration(t.TCP.ConnectTimeout, time.Millisecond, "timeout.tcp.connectTimeout")
		}
		if t.HTTP != nil {
			out.IdleTimeoutNanos = r.limit(t.HTTP.ConnectionIdleTimeout, "timeout.http.connectionIdleTimeout")
			out.MaxDurationNanos = r.duration(t.HTTP.MaxConnectionDuration, 0, "timeout.http.maxConnectionDuration")
		}
	}
	if k := s.TCPKeepalive; k != nil {
		probes := r.positive(k.Probes, 0, "tcpKeepalive.probes")
		if probes > math.MaxInt8 {
			r.invalid("tcpKeepalive.probes", "use at most 127", "%d probes are too many", probes)
		}
		out.Keepalive = &config.Keepalive{Probes: probes, IdleSeconds: r.seconds(k.IdleTime, "tcpKeepalive.idleTime"), IntervalSeconds: r.seconds(k.Interval, "tcpKeepalive.interval")}
	}
	if p := s.ProxyProtocol; p != nil {
		switch p.Version {
		case "V1":
			out.ProxyHeader = config.ProxyHeader_PROXY_HEADER_V1
		case "V2":
			out.ProxyHeader = config.ProxyHeader_PROXY_HEADER_V2
		default:
			r.invalid("proxyProtocol.version", "use V1 or V2", "%q is not known", p.Version)
		}
	}
	if c := s.Connection; c != nil {
		out.SocketBufferBytes = r.size(c.SocketBufferLimit, math.MaxInt32, "connection.socketBufferLimit")
		if p := c.Preconnect; p != nil && p.PerEndpointPercent != nil {
			if out.PreconnectPerEndpointPercent = uint32(*p.PerEndpointPercent); *p.PerEndpointPercent < 100 || *p.PerEndpointPercent > 300 {
				r.invalid("connection.preconnect.perEndpointPercent", "use a number from 100 to 300", "%d is not in that range", *p.PerEndpointPercent)
			}
		}
	}
	r.http2(out, s.HTTP2)
	r.dns(out, s.DNS, protocols)
	if proto.Equal(out, &config.BackendConnections{}) {
		return nil
	}
	return out
}

func (r *reader) http2(out *config.BackendConnections, h *eg.HTTP2Settings) {
	if h == nil {
		return
	}
	// RFC 9113 section 6.9.1.
	out.Http2InitialStreamWindow = r.size(h.InitialStreamWindowSize, math.MaxInt32, "http2.initialStreamWindowSize")
	out.Http2InitialConnectionWindow = r.size(h.InitialConnectionWindowSize, math.MaxInt32, "http2.initialConnectionWindowSize")
	if n := h.MaxConcurrentStreams; n != nil {
		if *n < 1 || *n > math.MaxInt32 {
			r.invalid("http2.maxConcurrentStreams", "use a number from 1 to 2147483647", "%d is not in that range", *n)
		}
		out.Http2MaxConcurrentStreams = uint32(*n)
	}
	if k := h.ConnectionKeepalive; k != nil {
		const at = "http2.connectionKeepalive"
		out.Http2Keepalive = &config.HTTP2Keepalive{
			IntervalNanos:         r.duration(k.Interval, time.Millisecond, at+".interval"),
			TimeoutNanos:          r.duration(k.Timeout, time.Millisecond, at+".timeout"),
			IntervalJitterPercent: r.percentage(k.IntervalJitter, defaultIntervalJitter, at+".intervalJitter"),
			IdleIntervalNanos:     r.duration(k.IdleInterval, time.Millisecond, at+".idleInterval"),
		}
		if ka := out.Http2Keepalive; ka.IntervalNanos != 0 && ka.TimeoutNanos >= ka.IntervalNanos {
			r.invalid(at+".timeout", "make it less than interval", "%s is not less than interval %s", *k.Timeout, *k.Interval)
		}
	}
}

func (r *reader) dns(out *config.BackendConnections, d *eg.DNS, protocols *eg.Protocols) {
	if protocols != nil && protocols.EnableIPv6 != nil {
		out.DnsFamily = config.LookupFamily_LOOKUP_FAMILY_IPV4_AND_IPV6
		if !*protocols.EnableIPv6 {
			out.DnsFamily, r.out.IPv4Only = config.LookupFamily_LOOKUP_FAMILY_IPV4, true
		}
	}
	if d == nil {
		return
	}
	out.DnsRefreshNanos = r.duration(d.DNSRefreshRate, time.Second, "dns.dnsRefreshRate")
	out.DnsIgnoreTtl = !ptr.Deref(d.RespectDNSTTL, true)
	if d.LookupFamily != nil {
		family, known := lookupFamilies[*d.LookupFamily]
		if !known {
			r.invalid("dns.lookupFamily", "use IPv4, IPv6, IPv4Preferred, IPv6Preferred or IPv4AndIPv6", "%q is not known", *d.LookupFamily)
		}
		out.DnsFamily = family
	}
}
