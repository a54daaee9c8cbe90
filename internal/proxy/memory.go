package proxy

import (
	"runtime"
	"runtime/metrics"
	"sync/atomic"
	"time"

	"github.com/moongate-dev/moongate/internal/observe"
	"github.com/moongate-dev/moongate/internal/proxy/buffer"
	"github.com/moongate-dev/moongate/internal/proxy/client"
)

const (
	// At idleAt of the limit, in percent, connections that idle are closed; at refuseAt new connections and requests are
	// refused, request bodies held back by flow control, those forgotten that were kept, and tunnels and responses ended that are stuck, or tunnels that are unused,
	// until less than acceptAt is in use. At cutAt connections that hold most are ended, so many that refuseAt is reached.
	idleAt, refuseAt, acceptAt, cutAt = 80, 90, 85, 95
	// From littleAt on, by the last look and what was spent since, no more large buffers are made: little ones are lent instead, through which a response passes in
	// more and smaller parts. So many more clients that do not take their responses fit in before new requests are refused.
	littleAt = 70
	// keptPart is which part of the limit request bodies may have that are read whole or kept to be sent again, and keptWithout how many bytes where there is no limit.
	keptPart, keptWithout = 4, 1 << 30
	// collectEvery is how often garbage is collected while memory is scarce: what is in use is known by that only.
	collectEvery = time.Second
	// collectLeast is the least time between two collections that are made because the budget is exhausted.
	collectLeast = 100 * time.Millisecond
	// tellEvery is how often that is logged at most.
	tellEvery = 10 * time.Second
	// settleCycles is how many collections must end before it shows what came of ended connections: the first may begin before they have
	// let go of what they hold, and what went into pools lives for two more.
	settleCycles = 3
)

// memory watches how much memory is in use, and sheds load before there is none left. It is the sweeper's.
type memory struct {
	limit   uint64 // bytes; 0 is none
	used    func() uint64
	samples []metrics.Sample
	cycles  func() uint64  // collections that have ended
	budget  *buffer.Budget // nil where used does not tell of what is spent of it
	// cycle is the number of collections at the last look, spentAtLook what had been spent of the budget then, and spentAtCycle what was at the look before
	// the last collection ended: used knows that, and nothing of what was spent since.
	cycle                     uint64
	spentAtLook, spentAtCycle int64
	look                      chan struct{} // asks for a look now
	collecting                atomic.Bool
	collected, told           time.Time
	// heldUpUntil is until when clients that are slow to take their responses keep unused tunnels from being ended: they may come to be ended as stuck. It is
	// zero where memory is not scarce.
	heldUpUntil time.Time
	// heldAt and cutAt are the number of cycles from which on tunnels and responses, and connections that hold most, may be ended again.
	heldAt, cutAt uint64
	// endedAt is how many bytes were in use when unused tunnels were ended of which has not shown yet what came of it; 0 where there are none. inVain is that
	// no less was in use after that; it holds while memory is scarce.
	endedAt uint64
	inVain  bool
}

func newMemory(limit int64, used func() uint64, budget *buffer.Budget) *memory {
	m := &memory{limit: uint64(max(limit, 0)), used: used, look: make(chan struct{}, 1), samples: []metrics.Sample{
		{Name: "/memory/classes/total:bytes"},
		{Name: "/memory/classes/heap/objects:bytes"},
		{Name: "/memory/classes/heap/free:bytes"},
		{Name: "/memory/classes/heap/released:bytes"},
		{Name: "/memory/classes/heap/unused:bytes"},
		{Name: "/gc/heap/live:bytes"},
	}}
	if used == nil {
		if m.used, m.budget = m.inUse, budget; limit > 0 {
			buffer.Account(budget)
		}
	}
	budget.Exhaust = m.ask
	collections := []metrics.Sample{{Name: "/gc/cycles/total:gc-cycles"}}
	m.cycles = func() uint64 {
		metrics.Read(collections)
		return collections[0].Value.Uint64()
	}
	return m
}

// ask asks the sweeper for a look now.
func (m *memory) ask() {
	select {
	case m.look <- struct{}{}:
	default: // it was asked for already
	}
}

// allot sets the budget until the next look, and reports whether nothing is left. cycle is the number of collections before used was asked.
func (m *memory) allot(used, cycle uint64) (exhausted bool) {
	spent := m.budget.Spent()
	if cycle != m.cycle {
		m.cycle, m.spentAtCycle = cycle, m.spentAtLook
	}
	m.spentAtLook = spent
	limit := int64(m.limit)
	m.budget.Set(limit/100*refuseAt-int64(used)-(spent-m.spentAtCycle), limit/100*(refuseAt-littleAt))
	return m.budget.Exhausted()
}

// mostKept is exchange.Engine.MaxKept.
func (m *memory) mostKept() int64 {
	if m.limit == 0 {
		return keptWithout
	}
	return int64(m.limit / keptPart)
}

// inUse is what the runtime has of the system, without garbage and what is free: stacks and what lived in the heap at the
// last collection, for the most part.
func (m *memory) inUse() uint64 {
	metrics.Read(m.samples)
	at := func(i int) uint64 { return m.samples[i].Value.Uint64() }
	return at(0) - min(at(0), at(1)+at(2)+at(3)+at(4)) + at(5)
}

// watchMemory looks how much is in use, and does what that asks for.
func (p *Proxy) watchMemory(now time.Time) {
	m := p.memory
	if m.limit == 0 {
		return
	}
	cycle := m.cycles()
	used := m.used()
	exhausted := m.budget != nil && m.allot(used, cycle)
	switch {
	case used >= m.limit/100*refuseAt:
		p.shed(true, used)
	case used < m.limit/100*acceptAt:
		p.shed(false, used)
	}
	if used >= m.limit/100*idleAt {
		p.clients.CloseIdle()
	}
	since := now.Sub(m.collected)
	switch {
	case exhausted && !p.engine.Overloaded.Load(): // by garbage, it seems
		if since >= collectLeast {
			p.tellExhausted(now, used)
			p.collect(now)
		}
	case used >= m.limit/100*idleAt && since >= collectEvery && !m.collecting.Load():
		p.endForMemory(now, used)
		p.collect(now)
	}
}

// Released is how many bytes connections have released since the start after they were idle for a while: garbage for the next collection.
func (p *Proxy) Released() uint64 { return p.clients.Released() }

// tellExhausted logs, now and then, that what is new is refused until garbage was collected.
func (p *Proxy) tellExhausted(now time.Time, used uint64) {
	m := p.memory
	if now.Sub(m.told) < tellEvery {
		return
	}
	m.told = now
	p.logger.Warn("much was allocated at once: new connections and requests are refused until garbage is collected", "reason", observe.ReasonOverloaded.String(),
		"used", used, "limit", m.limit)
}

// collect collects garbage, beside the sweeper, and has it look again.
func (p *Proxy) collect(now time.Time) {
	m := p.memory
	if !m.collecting.CompareAndSwap(false, true) {
		return
	}
	m.collected = now
	go func() {
		defer m.ask()
		defer m.collecting.Store(false)
		runtime.GC()
	}()
}

// endForMemory ends connections that are in use, or of which nobody knows whether they are, so far as what is in use asks for that, and
// what became of those ended before has shown.
func (p *Proxy) endForMemory(now time.Time, used uint64) {
	m := p.memory
	cycle := m.cycles()
	if p.engine.Overloaded.Load() && cycle >= m.heldAt {
		ended := p.endHeldUp(used)
		if ended || m.heldUpUntil.IsZero() {
			m.heldUpUntil = now.Add(client.JudgedFor)
		}
		if p.endUnusedTunnels(used, ended || now.Before(m.heldUpUntil) && p.clients.HeldUp()) || ended {
			m.heldAt = cycle + settleCycles
		}
	}
	if used >= m.limit/100*cutAt && cycle >= m.cutAt {
		if n := p.clients.CutLargest(used - m.limit/100*refuseAt); n > 0 {
			m.cutAt = cycle + settleCycles
			p.logger.Warn("memory is scarce: connections that hold much of request bodies are ended", "reason", observe.ReasonOverloaded.String(),
				"connections", n, "used", used, "limit", m.limit)
		}
	}
}

// holding is a kind of what holds bytes that somebody does not take, and ends so much of it that these bytes are free; it returns how many it has ended, and
// how many bytes they have had at least.
type holding struct {
	what string
	end  func(bytes uint64) (ended int, freed uint64)
}

// endHeldUp ends what holds bytes that somebody does not take, until what is in use would be acceptable, and reports whether it has ended any.
func (p *Proxy) endHeldUp(used uint64) bool {
	limit := p.memory.limit
	return endUntil(used-min(used, limit/100*acceptAt), []holding{
		{"tunnels that hold what is not taken", p.clients.EndStuckTunnels},
		{"responses that bandwidth limits hold up", p.engine.EndPaced},
		{"connections whose clients do not take their responses", p.clients.EndStuckResponses},
		{"HTTP/2 streams whose clients grant their responses no room", p.clients.EndStarvedStreams},
	}, func(what string, n int) {
		p.logger.Warn("memory is scarce: "+what+" are ended", "reason", observe.ReasonOverloaded.String(), "number", n, "used", used, "limit", limit)
	})
}

// endUntil has each kind in turn free what of the excess those before have not. It reports whether any was ended.
func endUntil(excess uint64, kinds []holding, report func(what string, n int)) (ended bool) {
	for _, kind := range kinds {
		n, freed := kind.end(excess)
		if n == 0 {
			continue
		}
		ended = true
		report(kind.what, n)
		if freed >= excess {
			break
		}
		excess -= freed
	}
	return ended
}

// endUnusedTunnels ends tunnels that are unused where nothing else was to be ended, as long as that is seen to help: they hold little, and it may be others who have
// the memory. It reports whether it has ended any.
func (p *Proxy) endUnusedTunnels(used uint64, others bool) bool {
	m := p.memory
	m.inVain = m.inVain || m.endedAt > 0 && used >= m.endedAt
	m.endedAt = 0
	if others || m.inVain {
		return false
	}
	n := p.clients.EndUnusedTunnels()
	if n == 0 {
		return false
	}
	m.endedAt = used
	p.logger.Warn("memory is scarce: tunnels that were unused for longest are ended", "reason", observe.ReasonOverloaded.String(),
		"number", n, "used", used, "limit", m.limit)
	return true
}

// shed begins or ends the refusal of what is new.
func (p *Proxy) shed(on bool, used uint64) {
	if p.engine.Overloaded.Swap(on) == on {
		return
	}
	p.metrics.SetMemoryScarce(on)
	if on {
		p.engine.ForgetBodies()
		p.logger.Warn("memory is scarce: new connections and requests are refused", "reason", observe.ReasonOverloaded.String(),
			"used", used, "limit", p.memory.limit)
	} else {
		p.memory.endedAt, p.memory.inVain, p.memory.heldUpUntil = 0, false, time.Time{}
		p.clients.Resume()
		p.logger.Info("memory is not scarce any more", "used", used, "limit", p.memory.limit)
	}
}
