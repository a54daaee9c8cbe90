package observe

import (
	"sync/atomic"
)

// maxListeners bounds the listeners, and separately the sockets, that are exported one by one.
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
	entry    *listenerEntry // nil where there is no room
	unrouted *RuleStats
	released atomic.Bool
}

type listenerEntry = tableEntry[ListenerLabels, listenerSeries]

type listenerSeries struct{ up atomic.Bool }

// Listener returns the handle of a listener; it is to be released once.
func (m *Metrics) Listener(l ListenerLabels) *ListenerStats {
	l.Gateway, l.Listener = validLabel(l.Gateway), validLabel(l.Listener)
	s := &ListenerStats{metrics: m, unrouted: m.Rule(RuleLabels{Gateway: l.Gateway, Listener: l.Listener})}
	m.mu.Lock()
	defer m.mu.Unlock()
	s.entry = m.listeners.acquire(l, m.now(), func(*listenerSeries) {})
	return s
}

// Unrouted counts requests that reached the listener but no rule; released with the listener.
func (s *ListenerStats) Unrouted() *RuleStats { return s.unrouted }

// SetUp says whether all addresses of the listener are bound (moongate_listener_up). On nil it does nothing.
func (s *ListenerStats) SetUp(up bool) {
	if s != nil && s.entry != nil {
		s.entry.value.up.Store(up)
	}
}

// Release gives the handle back; moongate_listener_up of the listener ends at once. Releasing nil
// or twice does nothing.
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

// SocketLabels name a bound port, which several listeners may share.
type SocketLabels struct {
	Gateway string // owner "<namespace>/<name>"; "" where several Gateways share it
	Address string // bound IP address; "" for all
	Port    uint16
}

// SocketStats is the handle of one bound port.
type SocketStats struct {
	metrics  *Metrics
	entry    *socketEntry // nil where it is folded
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

// ConnectionLimit is a limit that a connection was refused for, which is the reason overloaded.
type ConnectionLimit uint8

// The limits.
const (
	LimitPerClient ConnectionLimit = iota // connections of one client address
	LimitTotal                            // connections of all clients
	LimitMemory                           // memory, see SetMemoryScarce
	LimitPort                             // connections to one port
	limitCount
)

// String is the value of the label limit.
func (l ConnectionLimit) String() string {
	return [limitCount]string{"connections_per_client", "connections", "memory", "connections_per_port"}[l]
}

// Socket returns the handle of a bound port; it is to be released once.
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

// ConnectionOpened counts an accepted connection; ConnectionClosed must follow once.
func (s *SocketStats) ConnectionOpened() {
	s.series.open.Add(1)
	s.series.total.Add(1)
}

// ConnectionClosed counts the end of a connection, also after Release.
func (s *SocketStats) ConnectionClosed() { s.series.open.Add(-1) }

// ConnectionRefused counts a connection that was closed as soon as it was accepted. ConnectionOpened is not called for it.
func (s *SocketStats) ConnectionRefused(l ConnectionLimit) { s.series.refused[l].Add(1) }

// Connections is the number of connections that are open.
func (s *SocketStats) Connections() int64 { return s.series.open.Load() }

// Unrouted counts requests that could not be given to a listener; released with the socket.
func (s *SocketStats) Unrouted() *RuleStats { return s.unrouted }

// Release gives the handle back. Releasing nil or twice does nothing.
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
