package backendtraffic

import (
	"fmt"
	"maps"
	"math"
	"math/big"
	"slices"
	"strings"
	"time"

	"k8s.io/utils/ptr"

	eg "github.com/moongate-dev/moongate/api/envoygateway/v1alpha1"
	"github.com/moongate-dev/moongate/internal/config"
)

var loadBalancing = map[eg.LoadBalancerType]config.LoadBalancing{
	eg.LeastRequestLoadBalancer:       config.LoadBalancing_LOAD_BALANCING_LEAST_REQUEST,
	eg.RoundRobinLoadBalancer:         config.LoadBalancing_LOAD_BALANCING_ROUND_ROBIN,
	eg.RandomLoadBalancer:             config.LoadBalancing_LOAD_BALANCING_RANDOM,
	eg.ConsistentHashLoadBalancer:     config.LoadBalancing_LOAD_BALANCING_CONSISTENT_HASH,
	eg.BackendUtilizationLoadBalancer: config.LoadBalancing_LOAD_BALANCING_BACKEND_UTILIZATION,
}

func (r *reader) loadBalancer(lb *eg.LoadBalancer) *config.LoadBalancer {
	if lb == nil {
		return nil
	}
	kind, known := loadBalancing[lb.Type]
	if !known {
		r.invalid("loadBalancer.type", "use RoundRobin, LeastRequest, Random, ConsistentHash or BackendUtilization", "%q is not supported", lb.Type)
		return nil
	}
	out := &config.LoadBalancer{Type: kind}
	switch kind {
	case config.LoadBalancing_LOAD_BALANCING_CONSISTENT_HASH:
		out.ConsistentHash = r.consistentHash(lb.ConsistentHash)
	case config.LoadBalancing_LOAD_BALANCING_BACKEND_UTILIZATION:
		out.BackendUtilization = r.backendUtilization(lb.BackendUtilization)
	}
	if lb.EndpointOverride != nil {
		for i, from := range lb.EndpointOverride.ExtractFrom {
			out.EndpointOverrideHeaders = append(out.EndpointOverrideHeaders, r.header(ptr.Deref(from.Header, ""), fmt.Sprintf("loadBalancer.endpointOverride.extractFrom[%d].header", i)))
		}
	}
	if lb.SlowStart != nil {
		if out.SlowStartWindowNanos = r.duration(lb.SlowStart.Window, time.Millisecond, "loadBalancer.slowStart.window"); lb.SlowStart.Window == nil {
			r.invalid("loadBalancer.slowStart.window", "set it", "it is missing")
		}
		if !startsSlowly(lb.Type) {
			r.invalid("loadBalancer.slowStart", "remove it, or use another type", "type %s has no slow start", lb.Type)
		}
	}
	r.zones(out, lb)
	return out
}

// startsSlowly reports whether a type has slow start.
func startsSlowly(t eg.LoadBalancerType) bool {
	return t != eg.RandomLoadBalancer && t != eg.ConsistentHashLoadBalancer
}

// prefersZones reports whether a type can prefer the proxy's zone.
func prefersZones(t eg.LoadBalancerType) bool {
	return t != eg.ConsistentHashLoadBalancer && t != eg.BackendUtilizationLoadBalancer
}

func (r *reader) zones(out *config.LoadBalancer, lb *eg.LoadBalancer) {
	if lb.ZoneAware == nil {
		return
	}
	const at = "loadBalancer.zoneAware"
	if p := lb.ZoneAware.PreferLocal; p != nil {
		if !prefersZones(lb.Type) {
			r.invalid(at+".preferLocal", "remove it, or use another type", "type %s does not prefer zones", lb.Type)
		}
		least := ptr.Deref(p.MinEndpointsThreshold, defaultMinEndpoints)
		if least < 0 || least > math.MaxUint32 {
			r.invalid(at+".preferLocal.minEndpointsThreshold", "use a number from 0 to 4294967295", "%d is not a number that can be used", least)
		}
		out.PreferLocalZone = &config.PreferLocalZone{
			MinEndpoints: uint32(least),
			Percentage:   r.percentage(p.PercentageEnabled, 100, at+".preferLocal.percentageEnabled"),
		}
		if p.Force != nil {
			out.PreferLocalZone.Force = true
			out.PreferLocalZone.MinEndpointsInZone = r.positive(p.Force.MinEndpointsInZoneThreshold, 1, at+".preferLocal.force.minEndpointsInZoneThreshold")
		}
	}
	zones := map[string]bool{}
	for i, z := range lb.ZoneAware.WeightedZones {
		field := fmt.Sprintf("%s.weightedZones[%d]", at, i)
		if zones[z.Zone] {
			r.invalid(field+".zone", "name each zone once", "zone %q is there twice", z.Zone)
		}
		zones[z.Zone] = true
		out.ZoneWeights = append(out.ZoneWeights, &config.ZoneWeight{Zone: z.Zone, Weight: r.positive(&z.Weight, 0, field+".weight")})
	}
	slices.SortFunc(out.ZoneWeights, func(a, b *config.ZoneWeight) int { return strings.Compare(a.Zone, b.Zone) })
	if out.PreferLocalZone != nil && out.ZoneWeights != nil {
		r.invalid(at, "remove preferLocal or weightedZones", "both are set")
	}
}

// Defaults of Envoy for fields without a default in the API.
const (
	defaultMinEndpoints     = 6
	defaultTableSize        = 65537
	defaultBlackout         = 10 * time.Second
	defaultWeightExpiration = 3 * time.Minute
	defaultWeightUpdate     = time.Second
	leastWeightUpdate       = 100 * time.Millisecond
	defaultReporting        = 10 * time.Second
)

func (r *reader) consistentHash(ch *eg.ConsistentHash) *config.ConsistentHash {
	const at = "loadBalancer.consistentHash"
	if ch == nil {
		r.invalid(at, "set it, or use another type", "it is missing")
		return nil
	}
	size := ptr.Deref(ch.TableSize, defaultTableSize)
	if size < 2 || size > 5000011 || !big.NewInt(size).ProbablyPrime(0) { // exact for 64 bits
		r.invalid(at+".tableSize", "use a prime from 2 to 5000011, such as 65537", "%d is not a prime in that range", size)
	}
	out := &config.ConsistentHash{TableSize: uint32(size)}
	switch {
	case ch.Type == "SourceIP":
		out.SourceIp = true
	case ch.Type == "Header" && ch.Header != nil:
		out.Headers = []string{r.header(ch.Header.Name, at+".header.name")}
	case ch.Type == "Headers" && len(ch.Headers) > 0:
		for i, h := range ch.Headers {
			out.Headers = append(out.Headers, r.header(h.Name, fmt.Sprintf("%s.headers[%d].name", at, i)))
		}
	case ch.Type == "QueryParams" && len(ch.QueryParams) > 0:
		for i, q := range ch.QueryParams {
			if q.Name == "" {
				r.invalid(fmt.Sprintf("%s.queryParams[%d].name", at, i), "name the parameter", "it is empty")
			}
			out.QueryParams = append(out.QueryParams, q.Name)
		}
	case ch.Type == "Cookie" && ch.Cookie != nil:
		out.Cookie = r.cookie(ch.Cookie, at+".cookie")
	default:
		r.invalid(at+".type", "use SourceIP, Headers, Cookie or QueryParams, and set the field of that name", "there is nothing to hash for %q", ch.Type)
	}
	return out
}

func (r *reader) cookie(c *eg.Cookie, at string) *config.HashCookie {
	if !config.IsToken(c.Name) {
		r.invalid(at+".name", "correct it", "%q is not the name of a cookie", c.Name)
	}
	out := &config.HashCookie{Name: c.Name, TtlNanos: r.duration(c.TTL, 0, at+".ttl")}
	for _, name := range slices.Sorted(maps.Keys(c.Attributes)) {
		v := c.Attributes[name]
		if !config.IsToken(name) || strings.ContainsFunc(v, func(c rune) bool { return c < ' ' || c == ';' || c >= 0x7f }) {
			r.invalid(at+".attributes", "correct it", "%q cannot be an attribute of a cookie", name)
		}
		out.Attributes = append(out.Attributes, &config.CookieAttribute{Name: name, Value: v})
	}
	return out
}

func (r *reader) header(name, field string) string {
	name = strings.ToLower(name)
	if !config.IsToken(name) {
		r.invalid(field, "correct it", "%q is not the name of a header", name)
	}
	return name
}

func (r *reader) backendUtilization(bu *eg.BackendUtilization) *config.BackendUtilization {
	const at = "loadBalancer.backendUtilization"
	if bu == nil {
		r.invalid(at, "set it, or use another type", "it is missing")
		return nil
	}
	out := &config.BackendUtilization{
		BlackoutPeriodNanos:            r.or(bu.BlackoutPeriod, defaultBlackout, 0, at+".blackoutPeriod"),
		WeightExpirationPeriodNanos:    r.or(bu.WeightExpirationPeriod, defaultWeightExpiration, 0, at+".weightExpirationPeriod"),
		WeightUpdatePeriodNanos:        r.or(bu.WeightUpdatePeriod, defaultWeightUpdate, leastWeightUpdate, at+".weightUpdatePeriod"),
		ErrorUtilizationPenaltyPercent: r.positive(bu.ErrorUtilizationPenaltyPercent, 0, at+".errorUtilizationPenaltyPercent"),
		MetricNames:                    bu.MetricNamesForComputingUtilization,
		KeepResponseHeaders:            ptr.Deref(bu.KeepResponseHeaders, false),
	}
	if o := bu.OutOfBand; o != nil {
		out.OutOfBand = &config.OutOfBandReports{
			ReportingPeriodNanos: r.or(o.ReportingPeriod, defaultReporting, time.Millisecond, at+".outOfBand.reportingPeriod"),
			Port:                 uint32(ptr.Deref(o.Port, 0)),
			Authority:            ptr.Deref(o.Authority, ""),
		}
	}
	return out
}
