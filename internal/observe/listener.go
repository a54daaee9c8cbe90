package observe

import (
	"sync/atomic"
)

// maxListeners is the maximum number of listeners, and separately of sockets, that are exported separately.
const maxListeners = 4096

// ListenerLabels name a listener.
type ListenerLabels struct {
	Gateway  string // "<namespace>/<name>"
	Listener string // name within the Gateway
	Port     uint16
}

// ListenerStats is the handle of one listener.
type ListenerStats struct {
	metrics  *Metrics
	entry    *listenerEntry // nil if there is no room
	unrouted *RuleStats
	released atomic.Bool
}

type listenerEntry = tableEntry[ListenerLabels, listenerSeries]

type listenerSeries struct{ up atomic.Bool }

// Listener returns the handle of a listener; it must be released once.
func (m *Metrics) Listener(l ListenerLabels) *ListenerStats {
	l.Gateway, l.Listener = validLabel(l.Gateway), validLabel(l.Listener)
	s := &ListenerStats{metrics: m, unrouted: m.Rule(RuleLabels{Gateway: l.Gateway, Listener: l.Listener})}
	m.mu.Lock()
	defer m.mu.Unlock()
	s.entry = m.listeners.acquire(l, m.now(), func(*listenerSeries) {})
	return s
}

// Unrouted returns the handle that counts requests that reached the listener but no rule; it is released with the listener.
func (s *ListenerStats) Unrouted() *RuleStats { return s.unrouted }

// SetUp sets whether all addresses of the listener are bound (moongate_listener_up). It does nothing if s is nil.
func (s *ListenerStats) SetUp(up bool) {
	if s != nil && s.entry != nil {
		s.entry.value.up.Store(up)
	}
}

// Release releases the handle; moongate_listener_up of the listener ends at once. Releasing nil or twice does nothing.
func (s *ListenerStats) Release() {
	if s == nil || s.released.Swap(true) {
		return
	}
	s.unrouted.Release()
	if s.entry == nil {
		return
	}
	s.metrics.mu.Lock()
	defer s.metrics.mu.Unlock()
	s.metrics.listeners.release(s.entry, s.metrics.now())
}

// SocketLabels identify a bound port, which several listeners may share.
type SocketLabels struct {
	Gateway string // owner "<namespace>/<name>"; "" if several Gateways share it
	Address string // bound IP address; "" for all
	Port    uint16
}

// SocketStats is the handle of one bound port.
type SocketStats struct {
	metrics  *Metrics
	entry    *socketEntry // nil if it is folded
	series   *socketSeries
	unrouted *RuleStats
	released atomic.Bool
}

type socketEntry = tableEntry[SocketLabels, socketSeries]

type socketSeries struct {
	open    atomic.Int64
	total   atomic.Uint64
	refused [limitCount]atomic.Uint64
}

// ConnectionLimit is a limit because of which a connection was refused with the reason overloaded.
type ConnectionLimit uint8

// The limits.
const (
	LimitPerClient ConnectionLimit = iota // connections of one client address
	LimitTotal                            // connections of all clients
	LimitMemory                           // memory, see SetMemoryScarce
	LimitPort                             // connections to one port
	limitCount
)

// String returns the value of the label limit.
func (l ConnectionLimit) String() string {
	return [limitCount]string{"connections_per_client", "connections", "memory", "connections_per_port"}[l]
}

// Socket returns the handle of a bound port; it must be released once.
func (m *Metrics) Socket(l SocketLabels) *SocketStats {
	l.Gateway, l.Address = validLabel(l.Gateway), validLabel(l.Address)
	s := &SocketStats{metrics: m, unrouted: m.Rule(RuleLabels{Gateway: l.Gateway})}
	m.mu.Lock()
	defer m.mu.Unlock()
	if s.entry = m.sockets.acquire(l, m.now(), func(*socketSeries) {}); s.entry != nil {
		s.series = &s.entry.value
	} else {
		s.series = &m.otherSockets
	}
	return s
}

// ConnectionOpened counts an accepted connection; ConnectionClosed must be called once afterwards.
func (s *SocketStats) ConnectionOpened() {
	s.series.open.Add(1)
	s.series.total.Add(1)
}

// ConnectionClosed counts the end of a connection, also after Release.
func (s *SocketStats) ConnectionClosed() { s.series.open.Add(-1) }

// ConnectionRefused counts a connection that was closed right after it was accepted. ConnectionOpened must not be called for it.
func (s *SocketStats) ConnectionRefused(l ConnectionLimit) { s.series.refused[l].Add(1) }

// Connections returns the number of open connections.
func (s *SocketStats) Connections() int64 { return s.series.open.Load() }

// Unrouted returns the handle that counts requests without a listener; it is released with the socket.
func (s *SocketStats) Unrouted() *RuleStats { return s.unrouted }

// Release releases the handle. Releasing nil or twice does nothing.
func (s *SocketStats) Release() {
	if s == nil || s.released.Swap(true) {
		return
	}
	s.unrouted.Release()
	if s.entry == nil {
		return
	}
	s.metrics.mu.Lock()
	defer s.metrics.mu.Unlock()
	s.metrics.sockets.release(s.entry, s.metrics.now())
}
