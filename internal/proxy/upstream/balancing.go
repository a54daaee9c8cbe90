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

// Balancing is a compiled config.LoadBalancer. It is immutable.
type Balancing struct {
	source *config.LoadBalancer
	kind   config.LoadBalancing
	// Hash is what requests are hashed by, nil if the load balancer uses no hash.
	Hash *config.ConsistentHash
	// Cookie is the cookie of Hash, nil if it uses none.
	Cookie *HashCookie
	// OverrideHeaders are the fields, in lower case, that may name the endpoint.
	OverrideHeaders []string
	// KeepReports means that clients receive the load reports of endpoints.
	KeepReports bool

	slowStart   time.Duration
	local       *config.PreferLocalZone
	zoneWeights map[string]uint32 // nil if zones have no weights
	utilization *config.BackendUtilization
	metrics     orca.Metrics
}

// HashCookie is the Set-Cookie field without the value of the cookie.
type HashCookie struct {
	Opening    []byte // "<name>="
	Attributes []byte
}

const (
	minTable = 2
	maxTable = 5000011
	// minWeightUpdate is the shortest time between two computations of weights.
	minWeightUpdate = 100 * time.Millisecond
)

// newBalancing compiles and validates the load balancer of a Backend. It returns nil if there is none.
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
	if c.Type != config.LoadBalancing_LOAD_BALANCING_CONSISTENT_HASH { // consistent hashing chooses by the hash, whatever the zone
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
		return fmt.Errorf("consistent_hash.table_size %d is not a prime from %d to %d", h.GetTableSize(), minTable, maxTable)
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
			return fmt.Errorf("consistent_hash.cookie.attributes has %q=%q, which is not a cookie attribute", a.Name, a.Value)
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

// maxAge returns a time in whole seconds, rounded up; "" for 0.
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

// zoned reports whether zones are considered.
func (l *Balancing) zoned() bool { return l.local != nil || l.zoneWeights != nil }

// weighted reports whether endpoints have weights.
func (l *Balancing) weighted() bool { return l.slowStart > 0 || l.utilization != nil }

// outOfBand returns how reports are requested, nil if they are not.
func (l *Balancing) outOfBand() *config.OutOfBandReports {
	if l == nil {
		return nil
	}
	return l.utilization.GetOutOfBand()
}

// ByReports reports whether load reports of endpoints are used.
func (l *Balancing) ByReports() bool { return l.utilization != nil }

// InBand reports whether the reports in responses are used, and not those of streams, which may differ from them.
func (l *Balancing) InBand() bool { return l.utilization != nil && l.outOfBand() == nil }

// Metrics are the metrics that are read from load reports.
func (l *Balancing) Metrics() orca.Metrics { return l.metrics }

func (l *Balancing) same(o *Balancing) bool {
	if l == nil || o == nil {
		return l == o
	}
	return proto.Equal(l.source, o.source)
}

// Balancing returns how an endpoint is chosen; nil means the better one of two random ones.
func (b *Backend) Balancing() *Balancing { return b.balancing.Load() }

// setBalancing publishes next. Set.mu must be held.
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

// listBalanced updates the list of backends that UpdateWeights uses. mu must be held.
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

// UpdateWeights updates the load balancers' view of the endpoints: which exist, how new they are and what they have
// reported. It must be called a few times a second. now is the clock of slow start and of load reports.
func (s *Set) UpdateWeights(now time.Time) {
	s.tick.Store(now.UnixNano())
	if list := s.balanced.Load(); list != nil {
		for _, b := range *list {
			b.refresh(now.UnixNano())
		}
	}
}

// refresh calls balancer.refresh, also for the variants.
func (b *Backend) refresh(now int64) {
	if l := b.list.Load().balancer; l != nil {
		l.refresh(now)
	}
	for _, v := range b.variantList() {
		v.refresh(now)
	}
}

// SetZone sets the zone of the proxy. "" means unknown; then no zone is preferred. It may be called at any time.
func (s *Set) SetZone(zone string) {
	s.zone.Store(&zone)
	if list := s.balanced.Load(); list != nil {
		for _, b := range *list {
			b.refresh(s.tick.Load())
		}
	}
}

// Zone returns the zone set by SetZone.
func (s *Set) Zone() string {
	if z := s.zone.Load(); z != nil {
		return *z
	}
	return ""
}
