package upstream

import (
	"context"
	"net/netip"
	"slices"
	"sync/atomic"
	"time"
)

type endpointKey = netip.AddrPort

// sweepBatch bounds the sockets that Sweep looks at while it holds an
// endpoint's lock: about 10 microseconds.
const sweepBatch = 32

// Endpoint is one address of a backend with everything that is known of it.
type Endpoint struct {
	backend *Backend
	address endpointKey
	text    string
	// transport is that of the backend when the endpoint was made, and for as long as it is one of the backend's: see Backend.setTransport.
	transport *transport
	// life ends when the endpoint is no longer in the configuration.
	life context.Context
	end  context.CancelFunc

	terminating atomic.Bool // by the configuration
	sessionID   atomic.Uint64
	zone        atomic.Pointer[string] // never nil once it is in a list

	hash   uint64 // of the address
	born   int64  // when the endpoint came, by the Set's clock; 0 where it was there when the backend came
	report loadReport
	// stopReports ends the stream that asks for reports, nil without one; guarded by Set.mu.
	stopReports context.CancelFunc

	avoidUntil atomic.Int64 // Unix nanoseconds; 0 where the last connect succeeded
	// suspect is whether a connect or connection has failed, so that when avoidUntil is over one request at a time tries the endpoint.
	suspect atomic.Uint32
	// mistrusted is whether that is no cause to move sessions away, see mistrust.
	mistrusted atomic.Bool
	health     *health // its own, or that of the base's endpoint with the same address

	// Requests use own, or where the endpoint is spread the shard of their core; see shard.
	spread atomic.Bool
	shards atomic.Pointer[[]coreShard]
	own    shard
	// inFlight are the requests between Begin and End, but for those that shards have not reported.
	inFlight atomic.Int64
	// met counts since the last Sweep how often two cores wrote to inFlight at the same moment.
	met atomic.Int64

	sharing sharing
	dials   dialQueue

	within within
	inner  *inner // nil where this is not within another

	open, dialled, failures atomic.Int64
	spares                  atomic.Int64 // connections that are being made for preconnect
}

func newEndpoint(b *Backend, address netip.AddrPort) *Endpoint {
	e := &Endpoint{backend: b, address: address, text: address.String(), transport: b.transport.Load(), hash: addressHash(address)}
	e.life, e.end = context.WithCancel(context.Background())
	e.dials.blocked.breaker = &b.root().breaker
	e.sharing.blocked.breaker = e.dials.blocked.breaker
	e.health = b.newHealth(e)
	return e
}

// succeed takes over what is known of another endpoint at the address that is no matter of connections.
func (e *Endpoint) succeed(before *Endpoint) {
	e.zone.Store(before.zone.Load())
	e.born = before.born
	e.report.follow(&before.report)
}

// Zone is which zone the endpoint is in, "" where that is not known.
func (e *Endpoint) Zone() string {
	if z := e.zone.Load(); z != nil {
		return *z
	}
	return ""
}

// Address is where the endpoint is reached.
func (e *Endpoint) Address() netip.AddrPort { return e.address }

// String is the address as text, without allocating.
func (e *Endpoint) String() string { return e.text }

// Backend is whose endpoint this is.
func (e *Endpoint) Backend() *Backend { return e.backend }

// Stats are the endpoint's figures.
func (e *Endpoint) Stats() Stats {
	return Stats{
		Open:     e.open.Load(),
		Idle:     e.idleNow(),
		InFlight: e.inFlightNow(),
		Waiting:  e.waiting(),
		Dialled:  e.dialled.Load(),
		Failures: e.failures.Load(),
	}
}

// waiting is how many requests wait for a connection.
func (e *Endpoint) waiting() int64 {
	return e.dials.hungry.Load() + e.sharing.hungry.Load() + e.innerCount((*Endpoint).waiting)
}

// idleNow is how many connections are idle.
func (e *Endpoint) idleNow() int64 {
	return e.idleCount() + e.idleShared() + e.innerCount((*Endpoint).idleNow)
}

// avoided tells whether a connect failed a moment ago. The clock is read only for
// endpoints with a failure behind them.
func (e *Endpoint) avoided() bool {
	until := e.avoidUntil.Load()
	return until != 0 && time.Now().UnixNano() < until
}

// Failed has the endpoint passed over for a moment where there are others, because it is known not to be there.
func (e *Endpoint) Failed() {
	e = e.whole()
	e.failures.Add(1)
	e.backend.totals().failures.Add(1)
	e.avoidUntil.Store(time.Now().Add(avoidFor).UnixNano())
}

// Gone reports whether the endpoint is no longer in the configuration.
func (e *Endpoint) Gone() bool { return e.life.Err() != nil }

// Usable reports whether it is known how the endpoint is spoken to. If not, nothing may be sent to it; connections are not made then, but datagrams need none.
func (e *Endpoint) Usable() bool { return !e.transport.unknown }

// retire closes the idle connections, lets no other become idle, and gives up those that are being made. Streams
// on shared ones may end.
func (e *Endpoint) retire() {
	e.end()
	e.closeIdle()
	e.dropBlocked()
	e.retireWithin()
}

// closeIdle closes the connections that are not in use, and has others closed when they are released.
func (e *Endpoint) closeIdle() {
	e.everyShard(func(s *shard) {
		for _, c := range s.retire() {
			c.Close()
		}
	})
	e.retireShared()
	for _, in := range e.innerList() {
		in.closeIdle()
	}
}

// sweep closes connections by the limits, and those that are
// no longer alive. Connections released since the last Sweep are not looked at:
// traffic finds out about those.
func (e *Endpoint) sweep(limits sweepLimits) {
	e.sweepWithin(limits)
	e.sweepShared(limits)
	e.sweepLost()
	e.balance()
	e.everyShard(func(s *shard) { s.sweep(limits) })
}

func (s *shard) sweep(limits sweepLimits) {
	if s.count.Load() == 0 {
		return
	}
	var dead [sweepBatch]*Conn
	for at, more := 0, true; more; {
		n := 0
		s.mu.Lock()
		for range sweepBatch {
			if more = at < len(s.idle); !more {
				break
			}
			c := s.idle[at] // which must remain to be had, so mu is held during the look: it waits for nobody
			if c.released > limits.idle && !c.made.Before(limits.made) && (c.released >= limits.last || c.Alive()) {
				at++
				continue
			}
			dead[n] = c
			n++
			s.idle = slices.Delete(s.idle, at, at+1)
		}
		s.count.Store(int64(len(s.idle)))
		s.mu.Unlock()
		for _, c := range dead[:n] {
			c.Close()
		}
	}
}
