package upstream

import (
	"context"
	"net/netip"
	"slices"
	"sync"
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
	// life ends when the endpoint is no longer in the configuration.
	life context.Context
	end  context.CancelFunc

	inFlight   atomic.Int64
	avoidUntil atomic.Int64 // Unix nanoseconds; 0 where the last connect succeeded

	mu      sync.Mutex // guards idle and retired
	idle    []*Conn    // a stack: the last released is the next taken, so a quiet pool shrinks
	retired bool       // no longer in the configuration

	sharing sharing

	idleCount               atomic.Int64 // len(idle), to be read without mu
	open, dialled, failures atomic.Int64
}

func newEndpoint(b *Backend, address netip.AddrPort) *Endpoint {
	e := &Endpoint{backend: b, address: address, text: address.String()}
	e.life, e.end = context.WithCancel(context.Background())
	return e
}

// Address is where the endpoint is reached.
func (e *Endpoint) Address() netip.AddrPort { return e.address }

// String is the address as text, without allocating.
func (e *Endpoint) String() string { return e.text }

// Backend is whose endpoint this is.
func (e *Endpoint) Backend() *Backend { return e.backend }

// Begin counts a request as in flight; End ends that. Call Begin right after
// Pick, before a connection is asked for, so that a slow connect counts too.
func (e *Endpoint) Begin() { e.inFlight.Add(1) }

// End is the counterpart of Begin.
func (e *Endpoint) End() { e.inFlight.Add(-1) }

// Stats are the endpoint's figures.
func (e *Endpoint) Stats() Stats {
	return Stats{
		Open:     e.open.Load(),
		Idle:     e.idleCount.Load() + e.idleShared(),
		InFlight: e.inFlight.Load(),
		Dialled:  e.dialled.Load(),
		Failures: e.failures.Load(),
	}
}

// avoided tells whether a connect failed a moment ago. The clock is read only for
// endpoints with a failure behind them.
func (e *Endpoint) avoided() bool {
	until := e.avoidUntil.Load()
	return until != 0 && time.Now().UnixNano() < until
}

// Idle takes the connection that was released last, or returns nil. It may have
// died since; see Conn.Alive.
func (e *Endpoint) Idle() *Conn {
	if e.idleCount.Load() == 0 {
		return nil
	}
	e.mu.Lock()
	n := len(e.idle)
	if n == 0 {
		e.mu.Unlock()
		return nil
	}
	c := e.idle[n-1]
	e.idle[n-1] = nil
	e.idle = e.idle[:n-1]
	e.idleCount.Store(int64(n - 1))
	e.mu.Unlock()
	c.Reused = true
	return c
}

// keep puts c on the stack; false if it must be closed instead.
func (e *Endpoint) keep(c *Conn) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.retired || len(e.idle) >= e.backend.set.options.MaxIdle {
		return false
	}
	e.idle = append(e.idle, c)
	e.idleCount.Store(int64(len(e.idle)))
	return true
}

// retire closes the idle connections, lets no other become idle, and gives up those that are being made. Streams
// on shared ones may end.
func (e *Endpoint) retire() {
	e.end()
	e.mu.Lock()
	e.retired = true
	idle := e.idle
	e.idle = nil
	e.idleCount.Store(0)
	e.mu.Unlock()
	for _, c := range idle {
		c.Close()
	}
	e.retireShared()
}

// sweep closes connections released at or before expired, and those that are
// no longer alive. Connections released since the last Sweep are not looked at:
// traffic finds out about those.
func (e *Endpoint) sweep(expired, last int64) {
	e.sweepShared(expired)
	if e.idleCount.Load() == 0 {
		return
	}
	var dead [sweepBatch]*Conn
	for at, more := 0, true; more; {
		n := 0
		e.mu.Lock()
		for range sweepBatch {
			if more = at < len(e.idle); !more {
				break
			}
			c := e.idle[at]
			if c.released > expired && (c.released >= last || c.Alive()) {
				at++
				continue
			}
			dead[n] = c
			n++
			e.idle = slices.Delete(e.idle, at, at+1)
		}
		e.idleCount.Store(int64(len(e.idle)))
		e.mu.Unlock()
		for _, c := range dead[:n] {
			c.Close()
		}
	}
}
