package upstream

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/proxy/orca"
)

// Balancing is a compiled config.LoadBalancer; immutable.
type Balancing struct {
	source *config.LoadBalancer
	kind   config.LoadBalancing
	// Hash is what the hash of a request is made of, nil where the load balancer uses none.
	Hash *config.ConsistentHash
	// Cookie is how a client is given the cookie of Hash, nil where that is no cookie.
	Cookie *HashCookie
	// OverrideHeaders are fields, in lower case, that may name the endpoint.
	OverrideHeaders []string
	// KeepReports has clients get the load reports of endpoints.
	KeepReports bool

	slowStart   time.Duration
	local       *config.PreferLocalZone
	zoneWeights map[string]uint32 // nil: shares of zones do not count
	utilization *config.BackendUtilization
	metrics     orca.Metrics
}

// HashCookie is Set-Cookie without the value of the cookie.
type HashCookie struct {
	Opening    []byte // "<name>="
	Attributes []byte
}

const (
	minTable = 2
	maxTable = 5000011
	// minWeightUpdate bounds how often weights are computed.
	minWeightUpdate = 100 * time.Millisecond
)

// newBalancing checks what a Backend says; nil where that is the same as without a load balancer.
func newBalancing(b *config.Backend) (*Balancing, error) {
	c := b.GetTraffic().GetLoadBalancer()
	if c == nil {
		return nil, nil
	}
	l := &Balancing{source: c, kind: c.Type, OverrideHeaders: c.EndpointOverrideHeaders, slowStart: time.Duration(c.SlowStartWindowNanos)}
	switch c.Type {
	case config.LoadBalancing_LOAD_BALANCING_LEAST_REQUEST, config.LoadBalancing_LOAD_BALANCING_ROUND_ROBIN:
	case config.LoadBalancing_LOAD_BALANCING_RANDOM:
		l.slowStart = 0
	case config.LoadBalancing_LOAD_BALANCING_CONSISTENT_HASH:
		l.slowStart = 0
		if err := l.setHash(c.ConsistentHash); err != nil {
			return nil, fmt.Errorf("upstream: Backend %s: load_balancer: %w", b.Key, err)
		}
	case config.LoadBalancing_LOAD_BALANCING_BACKEND_UTILIZATION:
		if l.utilization = c.BackendUtilization; l.utilization == nil {
			return nil, fmt.Errorf("upstream: Backend %s: load_balancer: backend_utilization is missing", b.Key)
		}
		if at := l.utilization.GetOutOfBand(); at != nil && (at.Port > 65535 || at.ReportingPeriodNanos < 0) {
			return nil, fmt.Errorf("upstream: Backend %s: load_balancer: out_of_band is out of bounds: %v", b.Key, at)
		}
		l.metrics, l.KeepReports = l.utilization.MetricNames, l.utilization.KeepResponseHeaders
	default:
		return nil, fmt.Errorf("upstream: Backend %s: load_balancer: type %d is unknown to this proxy: run the version of the controller", b.Key, c.Type)
	}
	if c.PreferLocalZone != nil && len(c.ZoneWeights) > 0 {
		return nil, fmt.Errorf("upstream: Backend %s: load_balancer has prefer_local_zone and zone_weights: give one of both", b.Key)
	}
	if c.Type != config.LoadBalancing_LOAD_BALANCING_CONSISTENT_HASH { // which has requests go where equal ones go, whatever the zone
		l.local = c.PreferLocalZone
	}
	if len(c.ZoneWeights) > 0 {
		l.zoneWeights = map[string]uint32{}
		for _, z := range c.ZoneWeights {
			l.zoneWeights[z.Zone] = z.Weight
		}
	}
	if l.kind == config.LoadBalancing_LOAD_BALANCING_LEAST_REQUEST && len(l.OverrideHeaders) == 0 && l.slowStart <= 0 && !l.zoned() {
		return nil, nil
	}
	return l, nil
}

func (l *Balancing) setHash(h *config.ConsistentHash) error {
	if h == nil || h.TableSize < minTable || h.TableSize > maxTable || !isPrime(h.TableSize) {
		return fmt.Errorf("consistent_hash.table_size %d is no prime from %d to %d", h.GetTableSize(), minTable, maxTable)
	}
	l.Hash = h
	c := h.Cookie
	if c == nil {
		return nil
	}
	if !config.IsToken(c.Name) || c.TtlNanos < 0 {
		return fmt.Errorf("consistent_hash.cookie has no name, or a ttl_nanos below 0: %v", c)
	}
	attributes := ""
	given := map[string]bool{}
	for _, a := range c.Attributes {
		if !config.IsToken(a.Name) || strings.ContainsFunc(a.Value, func(r rune) bool { return r == ';' || config.IsControl(r) }) {
			return fmt.Errorf("consistent_hash.cookie.attributes has %q=%q, which is no attribute of a cookie", a.Name, a.Value)
		}
		given[strings.ToLower(a.Name)] = true
		if attributes += "; " + a.Name; a.Value != "" {
			attributes += "=" + a.Value
		}
	}
	for _, own := range []struct{ name, value string }{{"Path", "/"}, {"SameSite", "Strict"}, {"Max-Age", maxAge(c.TtlNanos)}} {
		if own.value != "" && !given[strings.ToLower(own.name)] {
			attributes = "; " + own.name + "=" + own.value + attributes
		}
	}
	l.Cookie = &HashCookie{Opening: []byte(c.Name + "="), Attributes: []byte(attributes)}
	return nil
}

// maxAge is a time in whole seconds, rounded up; "" for 0.
func maxAge(nanos int64) string {
	if nanos == 0 {
		return ""
	}
	return fmt.Sprint((nanos + int64(time.Second) - 1) / int64(time.Second))
}

func isPrime(n uint32) bool {
	if n < 2 {
		return false
	}
	for d := uint32(2); d*d <= n; d++ {
		if n%d == 0 {
			return false
		}
	}
	return true
}

// zoned reports whether zones count.
func (l *Balancing) zoned() bool { return l.local != nil || l.zoneWeights != nil }

// weighted reports whether endpoints have weights.
func (l *Balancing) weighted() bool { return l.slowStart > 0 || l.utilization != nil }

// outOfBand is how reports are asked for, nil where they are not.
func (l *Balancing) outOfBand() *config.OutOfBandReports {
	if l == nil {
		return nil
	}
	return l.utilization.GetOutOfBand()
}

// ByReports reports whether load reports of endpoints count.
func (l *Balancing) ByReports() bool { return l.utilization != nil }

// InBand reports whether those in responses do, and not those of streams: what both say need not be the same.
func (l *Balancing) InBand() bool { return l.utilization != nil && l.outOfBand() == nil }

// Metrics are those that load reports are read for.
func (l *Balancing) Metrics() orca.Metrics { return l.metrics }

func (l *Balancing) same(o *Balancing) bool {
	if l == nil || o == nil {
		return l == o
	}
	return proto.Equal(l.source, o.source)
}

// Balancing says how an endpoint is chosen, nil where that is by two random ones.
func (b *Backend) Balancing() *Balancing { return b.balancing.Load() }

// setBalancing puts next in force; Set.mu is held.
func (b *Backend) setBalancing(next *Balancing) {
	if b.balancing.Load().same(next) {
		return
	}
	if next == nil || next.Hash == nil {
		b.dropTable()
	}
	for _, each := range append([]*Backend{b}, b.variantList()...) {
		each.balancing.Store(next)
		old := each.list.Load()
		each.publish(old.all, old.usable)
		for _, e := range old.all {
			e.askForReports(next)
		}
	}
	b.set.listBalanced()
}

// listBalanced notes which backends UpdateWeights looks at; mu is held.
func (s *Set) listBalanced() {
	var list []*Backend
	for _, b := range s.backends {
		if l := b.balancing.Load(); l != nil && (l.zoned() || l.weighted()) {
			list = append(list, b)
		}
	}
	slices.SortFunc(list, func(a, b *Backend) int { return strings.Compare(a.key, b.key) })
	s.balanced.Store(&list)
}

// UpdateWeights has load balancers see which endpoints are there, how new they are and what they have reported. Call it a few times a second; its argument
// is the clock of slow start and of load reports.
func (s *Set) UpdateWeights(now time.Time) {
	s.tick.Store(now.UnixNano())
	if list := s.balanced.Load(); list != nil {
		for _, b := range *list {
			b.refresh(now.UnixNano())
		}
	}
}

// refresh is balancer.refresh, of variants too.
func (b *Backend) refresh(now int64) {
	if l := b.list.Load().balancer; l != nil {
		l.refresh(now)
	}
	for _, v := range b.variantList() {
		v.refresh(now)
	}
}

// SetZone says which zone the proxy is in; "" is that it is not known, and then none is preferred. It may be called at any time.
func (s *Set) SetZone(zone string) {
	s.zone.Store(&zone)
	if list := s.balanced.Load(); list != nil {
		for _, b := range *list {
			b.refresh(s.tick.Load())
		}
	}
}

// Zone is what SetZone was told.
func (s *Set) Zone() string {
	if z := s.zone.Load(); z != nil {
		return *z
	}
	return ""
}
