package upstream

import (
	"net/netip"
	"slices"
	"sync/atomic"
	"time"
)

type endpointKey = netip.AddrPort

// sweepBatch is the largest number of sockets that Sweep checks while it holds an endpoint's lock: about 10
// microseconds.
const sweepBatch = 32

// Endpoint is one address of a backend, with its state.
type Endpoint struct {
	backend *Backend
	address endpointKey
	// transport is the backend's transport. If that changes, the endpoint is replaced, see Backend.setTransport.
	transport *transport

	terminating atomic.Bool // in the configuration
	sessionID   atomic.Uint64
	zone        atomic.Pointer[string] // nil if unknown

	hash uint64 // of the address
	born int64  // when the endpoint was added, by the Set's clock; 0 if it was there when the backend was added

	avoidUntil atomic.Int64 // Unix nanoseconds; 0 if the last connect succeeded
	// suspect is set if a connect or connection has failed, so that after avoidUntil one request at a time tries the
	// endpoint.
	suspect atomic.Uint32
	// mistrusted means that the failure is no reason to move sessions away, see mistrust.
	mistrusted atomic.Bool
	health     *health // its own, or in a variant that of the base's endpoint with the same address

	inner *inner                      // nil if this is not within another Endpoint
	used  atomic.Pointer[endpointUse] // nil before the first use
}

func newEndpoint(b *Backend, address netip.AddrPort) *Endpoint {
	e := &Endpoint{backend: b, address: address, transport: b.transport.Load(), hash: addressHash(address)}
	e.health = b.newHealth(e)
	return e
}

// succeed takes over the state of an earlier endpoint at the address that does not concern connections.
func (e *Endpoint) succeed(before *Endpoint) {
	e.zone.Store(before.zone.Load())
	e.born = before.born
	if u := before.used.Load(); u != nil {
		e.use().report.follow(&u.report)
	}
}

func (e *Endpoint) setZone(zone string) {
	if zone == e.Zone() {
		return
	}
	var p *string
	if zone != "" {
		p = new(zone)
	}
	e.zone.Store(p)
}

// Zone returns the zone of the endpoint, "" if unknown.
func (e *Endpoint) Zone() string {
	if z := e.zone.Load(); z != nil {
		return *z
	}
	return ""
}

// Address returns the address of the endpoint.
func (e *Endpoint) Address() netip.AddrPort { return e.address }

// String returns the address as text.
func (e *Endpoint) String() string { return e.address.String() }

// Backend returns the Backend of the endpoint.
func (e *Endpoint) Backend() *Backend { return e.backend }

// Stats returns the endpoint's statistics.
func (e *Endpoint) Stats() Stats {
	u := e.soFar()
	return Stats{
		Open:     u.open.Load(),
		Idle:     e.idleNow(),
		InFlight: e.inFlightNow(),
		Waiting:  e.waiting(),
		Dialled:  u.dialled.Load(),
		Failures: u.failures.Load(),
	}
}

// waiting returns how many requests wait for a connection.
func (e *Endpoint) waiting() int64 {
	u := e.soFar()
	return u.dials.numWaiting.Load() + u.sharing.numWaiting.Load() + e.innerCount((*Endpoint).waiting)
}

// idleNow returns how many connections are idle.
func (e *Endpoint) idleNow() int64 {
	return e.idleCount() + e.idleShared() + e.innerCount((*Endpoint).idleNow)
}

// avoided reports whether a connect failed a moment ago. It reads the clock only for endpoints that have failed.
func (e *Endpoint) avoided() bool {
	until := e.avoidUntil.Load()
	return until != 0 && time.Now().UnixNano() < until
}

// Failed makes requests avoid the endpoint for a moment if there are others, because it is known to be unreachable.
func (e *Endpoint) Failed() {
	e = e.whole()
	e.use().failures.Add(1)
	e.backend.totals().failures.Add(1)
	e.avoidUntil.Store(time.Now().Add(avoidFor).UnixNano())
}

// Gone reports whether the endpoint was removed from the configuration.
func (e *Endpoint) Gone() bool {
	u := e.whole().used.Load()
	return u != nil && u.life.Err() != nil
}

// Usable reports whether the protocol and TLS settings of the endpoint are known. If not, nothing may be sent to it: no
// connections are made, but datagrams need none.
func (e *Endpoint) Usable() bool { return !e.transport.unknown }

// retire closes the idle connections, lets no more become idle, and gives up those that are being made. Streams on
// shared connections may continue to their end.
func (e *Endpoint) retire() {
	e.use().end()
	e.closeIdle()
	e.dropBlocked()
	e.retireWithin()
}

// closeIdle closes the connections that are not in use, and makes others be closed when they are released.
func (e *Endpoint) closeIdle() {
	e.use().everyShard(func(s *shard) {
		for _, c := range s.retire() {
			c.Close()
		}
	})
	e.retireShared()
	for _, in := range e.innerList() {
		in.closeIdle()
	}
}

// sweep closes connections by the limits, and those that are no longer alive. It does not check connections released
// since the last Sweep: traffic detects the closed ones among these.
func (e *Endpoint) sweep(limits sweepLimits) {
	if e.used.Load() == nil {
		return
	}
	e.sweepWithin(limits)
	e.sweepShared(limits)
	e.sweepLost()
	e.balance()
	e.use().everyShard(func(s *shard) { s.sweep(limits) })
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
			c := s.idle[at] // it must remain available, so mu is held during the check, which does not wait
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
