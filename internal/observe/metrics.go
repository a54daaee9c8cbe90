package observe

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// MetricsOptions configures NewMetrics; the zero value is good for production.
type MetricsOptions struct {
	Version  string // for moongate_build_info; "" is "devel"
	Revision string // commit; may be ""
	// MaxRules bounds how many rules of all listeners are exported one by one; 0 is 20000.
	MaxRules int
	// Grace is how long the series of a released handle stay exported; 0 is 5 minutes,
	// enough for the last scrape to see the last requests.
	Grace time.Duration
	// AccessLog is where the counts of dropped lines come from; may be nil.
	AccessLog *AccessLog
}

// Metrics holds everything that is counted. Methods are safe for concurrent use.
type Metrics struct {
	unattributed *RuleStats
}

// NewMetrics makes an empty set with its own registry.
func NewMetrics(o MetricsOptions) *Metrics { return &Metrics{} }

// Gatherer is what /metrics serves.
func (m *Metrics) Gatherer() prometheus.Gatherer { return prometheus.NewRegistry() }

// Registerer is for collectors of other packages; names begin with moongate_.
func (m *Metrics) Registerer() prometheus.Registerer { return prometheus.NewRegistry() }

// RuleLabels name a rule on one listener.
type RuleLabels struct {
	Gateway  string   // "<namespace>/<name>"
	Listener string   // name within the Gateway
	Route    string   // config.Route.key, such as "HTTPRoute/<namespace>/<name>"
	Rule     string   // name of the rule, else its index in decimal
	Backends []string // config.Backend.key in the order of backendRefs; "" for an invalid one
}

// RuleStats is the pre-resolved handle of a rule on one listener.
type RuleStats struct{}

// Rule returns the handle for a rule, a counter's continuation where the same names were there
// within the grace. Every handle must be released once.
func (m *Metrics) Rule(l RuleLabels) *RuleStats { return &RuleStats{} }

// Release gives the handle back when its rule is gone. Requests in flight may still be
// finished with it. Releasing nil or twice does nothing.
func (s *RuleStats) Release() {}

func (s *RuleStats) count(r *Record) {}

// Unattributed is the handle for what belongs to no listener. Not to be released.
func (m *Metrics) Unattributed() *RuleStats { return m.unattributed }

// ListenerLabels name a listener.
type ListenerLabels struct {
	Gateway  string // "<namespace>/<name>"
	Listener string // name within the Gateway
	Port     uint16
}

// ListenerStats is the handle of one listener.
type ListenerStats struct{}

// Listener returns the handle of a listener; it is to be released once.
func (m *Metrics) Listener(l ListenerLabels) *ListenerStats { return &ListenerStats{} }

// Unrouted counts requests that reached the listener but no rule; released with the listener.
func (s *ListenerStats) Unrouted() *RuleStats { return nil }

// SetUp says whether the listener's socket is bound (moongate_listener_up).
func (s *ListenerStats) SetUp(up bool) {}

// Release gives the handle back. Releasing nil or twice does nothing.
func (s *ListenerStats) Release() {}

// SocketLabels name a bound port, which several listeners may share.
type SocketLabels struct {
	Gateway string // owner "<namespace>/<name>"; "" where several Gateways share it
	Address string // bound IP address; "" for all
	Port    uint16
}

// SocketStats is the handle of one bound port.
type SocketStats struct{}

// Socket returns the handle of a bound port; it is to be released once.
func (m *Metrics) Socket(l SocketLabels) *SocketStats { return &SocketStats{} }

// ConnectionOpened counts an accepted connection; ConnectionClosed must follow once.
func (s *SocketStats) ConnectionOpened() {}

// ConnectionClosed counts the end of a connection.
func (s *SocketStats) ConnectionClosed() {}

// Connections is the number of connections that are open.
func (s *SocketStats) Connections() int64 { return 0 }

// Unrouted counts requests that could not be given to a listener; released with the socket.
func (s *SocketStats) Unrouted() *RuleStats { return nil }

// Release gives the handle back. Releasing nil or twice does nothing.
func (s *SocketStats) Release() {}

// UpstreamStats is the state of the pool of one backend.
type UpstreamStats struct {
	Backend           string // config.Backend.key
	Endpoints         int
	RequestsInFlight  int
	ConnectionsIdle   int
	ConnectionsActive int
	ConnectsTotal     uint64 // connections made since the start
	ConnectErrors     uint64 // attempts that failed
}

// SetUpstreams gives the function that reports every backend's pool; it is called at each
// scrape and must be safe for concurrent use.
func (m *Metrics) SetUpstreams(report func(emit func(UpstreamStats))) {}

// ConfigApply is one generation that the proxy applied or refused.
type ConfigApply struct {
	Generation uint64
	Duration   time.Duration
	At         time.Time
	Err        error // nil is success
}

// ConfigApplied records one applied or refused generation.
func (m *Metrics) ConfigApplied(a ConfigApply) {}

// SetConfigResources sets how many Resources of a kind (config.Kind.String) are in force.
func (m *Metrics) SetConfigResources(kind string, n int) {}

// SetCertificate sets when a certificate (config.Certificate.key) expires.
func (m *Metrics) SetCertificate(key string, notAfter time.Time) {}

// RemoveCertificate ends the series of a certificate.
func (m *Metrics) RemoveCertificate(key string) {}

// Translated adds up how often translate functions ran, by name.
func (m *Metrics) Translated(runsByName map[string]int, d time.Duration) {}
