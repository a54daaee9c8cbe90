package observe

import (
	"slices"
	"strings"
	"sync/atomic"
)

// other is the label of series that are added up because a limit is reached.
const other = "(other)"

// maxBackends is the maximum number of backends counted for one rule, including those within the grace period; a rule has at most 16
// at a time.
const maxBackends = 48

// RuleLabels identify a rule on one listener.
type RuleLabels struct {
	Gateway  string   // "<namespace>/<name>"
	Listener string   // name within the Gateway
	Route    string   // config.Route.key, such as "HTTPRoute/<namespace>/<name>"
	Rule     string   // name of the rule, else its index in decimal
	Backends []string // config.Backend.key in the order of backendRefs; "" for an invalid one
	StatName string   // an additional name that its requests are counted by, for all rules of the listener that share it; "" means none
}

// RuleStats is the handle of a rule on one listener. Finishing a request with it is a few atomic additions, except for the first
// one: of thousands of rules most never see a request, and have no counters.
type RuleStats struct {
	labels   RuleLabels
	plain    bool // no label needs escaping in JSON
	metrics  *Metrics
	counters atomic.Pointer[ruleCounters] // nil before the first request; stored once, see resolve
	released bool                         // guarded by the lock of Metrics
}

// ruleCounters are the counters of the requests of a handle.
type ruleCounters struct {
	none   *outcomes                  // requests without a backend
	chosen []atomic.Pointer[outcomes] // by position in RuleLabels.Backends; nil before the first request, see choose
	total  *traffic
	stat   *statSeries // nil without a StatName

	// What must be released, guarded by the lock of Metrics:
	entry    *ruleEntry // nil if folded
	named    *statEntry // of stat; nil if there was no room
	backends []*backendEntry
}

type (
	ruleEntry    = tableEntry[ruleKey, ruleSeries]
	backendEntry = tableEntry[string, outcomes]
	statEntry    = tableEntry[statKey, statSeries]
)

type routeKey struct{ gateway, listener, route string }

type ruleKey struct {
	routeKey
	rule string
}

// ruleSeries is what all handles of one rule share.
type ruleSeries struct {
	none     outcomes
	backends *table[string, outcomes]
	route    *routeSeries
}

type statKey struct{ gateway, listener, name string }

// statSeries is what all rules of one listener with one StatName share.
type statSeries struct {
	outcomes
	traffic
}

// routeSeries is what all rules of one route on one listener share.
type routeSeries struct {
	key   routeKey // never written, and placed before the counters so that they do not share a cache line with those of another route
	rules int      // number of ruleSeries that point here
	traffic
}

// Rule returns the handle for a rule. Its counters continue if the same names existed within the grace period. Every handle must be
// released once.
func (m *Metrics) Rule(l RuleLabels) *RuleStats {
	l.Backends = slices.Clone(l.Backends)
	for _, s := range []*string{&l.Gateway, &l.Listener, &l.Route, &l.Rule, &l.StatName} {
		*s = validLabel(*s)
	}
	for i, b := range l.Backends {
		l.Backends[i] = validLabel(b)
	}
	s := &RuleStats{labels: l, metrics: m, plain: l.plain()}
	m.mu.Lock()
	defer m.mu.Unlock()
	// Requests without a rule have counters regardless of the number of rules, and those of a StatName stay while any rule has it.
	// Existing counters must not expire while the handle exists.
	if l.Route == "" || l.StatName != "" || m.rules.entries[l.ruleKey()] != nil {
		s.resolve()
	}
	return s
}

func (l *RuleLabels) ruleKey() ruleKey {
	return ruleKey{routeKey{l.Gateway, l.Listener, l.Route}, l.Rule}
}

func (l *RuleLabels) statKey() statKey { return statKey{l.Gateway, l.Listener, l.StatName} }

// first returns the counters when a request needs them for the first time.
func (s *RuleStats) first() *ruleCounters {
	s.metrics.mu.Lock()
	defer s.metrics.mu.Unlock()
	if c := s.counters.Load(); c != nil {
		return c
	}
	return s.resolve()
}

// resolve creates the counters. It is called once, with the lock of Metrics held.
func (s *RuleStats) resolve() *ruleCounters {
	m, l, now := s.metrics, &s.labels, s.metrics.now()
	c := &ruleCounters{}
	if l.StatName != "" {
		if c.named = m.stats.acquire(l.statKey(), now, func(*statSeries) {}); c.named != nil {
			c.stat = &c.named.value
		} else {
			c.stat = &m.otherStats
		}
	}
	if c.entry = m.rules.acquire(l.ruleKey(), now, m.initRule(l.ruleKey())); c.entry == nil {
		m.folded++
		c.none, c.total = m.other(l)
	} else {
		series := &c.entry.value
		c.none, c.total = &series.none, &series.route.traffic
		if len(l.Backends) > 0 {
			c.chosen = make([]atomic.Pointer[outcomes], len(l.Backends))
		}
		for i, name := range l.Backends {
			// As in Rule.
			if name == "" || series.backends != nil && series.backends.entries[name] != nil {
				s.resolveBackend(c, i)
			}
		}
	}
	if s.released { // the request was in flight when its rule was removed
		c.release(m)
	}
	s.counters.Store(c)
	return c
}

// choose returns the counters of a backend when a request needs them for the first time.
func (s *RuleStats) choose(c *ruleCounters, i int) *outcomes {
	s.metrics.mu.Lock()
	defer s.metrics.mu.Unlock()
	if c.chosen[i].Load() == nil {
		s.resolveBackend(c, i)
	}
	return c.chosen[i].Load()
}

// resolveBackend stores the counters of a backend, with the lock of Metrics held. It stores them once: others read without the lock.
func (s *RuleStats) resolveBackend(c *ruleCounters, i int) {
	c.chosen[i].Store(s.backendCounters(c, s.labels.Backends[i]))
}

func (s *RuleStats) backendCounters(c *ruleCounters, name string) *outcomes {
	m, series := s.metrics, &c.entry.value
	if name == "" {
		return c.none
	}
	if series.backends == nil {
		series.backends = newTable[string, outcomes](maxBackends, m.rules.grace)
	}
	now := m.now()
	e := series.backends.acquire(name, now, func(*outcomes) {})
	if e == nil {
		return c.none
	}
	if c.backends = append(c.backends, e); s.released {
		c.backends = nil
		series.backends.release(e, now)
	}
	return &e.value
}

// other returns the counters of all rules for which there is no room.
func (m *Metrics) other(l *RuleLabels) (*outcomes, *traffic) {
	k := routeKey{l.Gateway, l.Listener, other}
	if m.others[k] == nil && len(m.others) >= maxListeners {
		k = routeKey{other, other, other}
	}
	series := m.others[k]
	if series == nil {
		series = &ruleSeries{route: &routeSeries{key: k}}
		m.others[k] = series
	}
	return &series.none, &series.route.traffic
}

func (m *Metrics) initRule(key ruleKey) func(*ruleSeries) {
	return func(s *ruleSeries) {
		r := m.routes[key.routeKey]
		if r == nil {
			r = &routeSeries{key: key.routeKey}
			m.routes[key.routeKey] = r
		}
		r.rules++
		s.route = r
	}
}

func (m *Metrics) removeRule(s *ruleSeries) {
	if s.route.rules--; s.route.rules == 0 {
		delete(m.routes, s.route.key)
	}
}

// Release releases the handle when its rule is removed. Requests in flight may still be finished with it. Releasing nil or twice
// does nothing.
func (s *RuleStats) Release() {
	if s == nil || s.metrics == nil {
		return
	}
	s.metrics.mu.Lock()
	defer s.metrics.mu.Unlock()
	if s.released {
		return
	}
	s.released = true
	if c := s.counters.Load(); c != nil {
		c.release(s.metrics)
	}
}

// release is called once, with the lock of m held. The counters remain usable.
func (c *ruleCounters) release(m *Metrics) {
	now := m.now()
	if c.named != nil {
		m.stats.release(c.named, now)
	}
	if c.entry == nil {
		m.folded--
		return
	}
	for _, e := range c.backends {
		c.entry.value.backends.release(e, now)
	}
	c.backends = nil
	m.rules.release(c.entry, now)
}

// Labels returns the names of the handle, which must not be modified.
func (s *RuleStats) Labels() *RuleLabels { return &s.labels }

// spread reports whether cores have copies of the counters, judged by those of the route, which all requests of the rule write to.
func (s *RuleStats) spread() bool {
	c := s.counters.Load()
	return c != nil && c.total.cores.copies.Load() != nil
}

func (s *RuleStats) count(r *Record) {
	c := s.counters.Load()
	if c == nil {
		c = s.first()
	}
	o := c.none
	if i := int(r.Backend) - 1; 0 <= i && i < len(c.chosen) {
		if o = c.chosen[i].Load(); o == nil {
			o = s.choose(c, i)
		}
	}
	o.add(r)
	if r.Cause == "" {
		c.total.add(r)
	}
	if c.stat != nil { // it counts requests only
		c.stat.outcomes.add(r)
		c.stat.traffic.add(r)
	}
}

// logBound returns the maximum length of what appendLabels appends, without keys.
func (s *RuleStats) logBound() int {
	if s == nil {
		return 0
	}
	if s.plain {
		return 5 * maxLabel
	}
	return 5 * maxLabel * maxEscape
}

// appendLabels appends the names for the access log; these are exact even if the counters are folded.
func (s *RuleStats) appendLabels(b []byte, backend int) []byte {
	if s == nil {
		return append(b, `,"gateway":null,"listener":null,"route":null,"rule":null,"backend":null`...)
	}
	l := &s.labels
	b = s.appendLabel(append(b, `,"gateway":`...), l.Gateway)
	b = s.appendLabel(append(b, `,"listener":`...), l.Listener)
	b = s.appendLabel(append(b, `,"route":`...), l.Route)
	b = s.appendLabel(append(b, `,"rule":`...), l.Rule)
	b = append(b, `,"backend":`...)
	if backend < 1 || backend > len(l.Backends) {
		return append(b, "null"...)
	}
	return s.appendLabel(b, l.Backends[backend-1])
}

func (s *RuleStats) appendLabel(b []byte, v string) []byte {
	if v == "" {
		return append(b, "null"...)
	}
	b = append(b, '"')
	if s.plain {
		b = append(b, v...)
	} else {
		b = appendEscaped(b, []byte(v))
	}
	return append(b, '"')
}

func (l *RuleLabels) plain() bool {
	for _, s := range append([]string{l.Gateway, l.Listener, l.Route, l.Rule}, l.Backends...) {
		if plainPrefix([]byte(s)) < len(s) {
			return false
		}
	}
	return true
}

// validLabel makes a text valid as a label: UTF-8 and not longer than a log line allows.
func validLabel(s string) string {
	if len(s) > maxLabel {
		s = string(cut([]byte(s), maxLabel))
	}
	return strings.ToValidUTF8(s, "\ufffd")
}
