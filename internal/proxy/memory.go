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
	// Percentages of the memory limit. At idleAt, idle connections are closed. At refuseAt, new connections and
	// requests are refused, request bodies are held back by flow control, kept ones are discarded, and stuck tunnels
	// and responses, or unused tunnels, are ended, until less than acceptAt is in use. At cutAt, the connections that
	// hold most are ended, as many as are needed to reach refuseAt.
	idleAt, refuseAt, acceptAt, cutAt = 80, 90, 85, 95
	// From littleAt on, by the last check and what was spent since, no more large buffers are created: little ones are
	// used instead, through which a response passes in more and smaller parts. So many more clients that do not take
	// their responses can be served before new requests are refused.
	littleAt = 70
	// Request bodies that are read completely or kept to be sent again may use 1/keptPart of the limit, or keptWithout
	// bytes if there is no limit.
	keptPart, keptWithout = 4, 1 << 30
	// collectEvery is how often garbage is collected while memory is scarce: only a collection shows what is in use.
	collectEvery = time.Second
	// collectLeast is the least time between two collections that are made because the budget is exhausted.
	collectLeast = 100 * time.Millisecond
	// logEvery is the shortest time between two log lines about that.
	logEvery = 10 * time.Second
	// settleCycles is how many collections must end before the effect of ended connections shows: the first one may
	// begin before they have released their memory, and the contents of pools live for two more.
	settleCycles = 3
)

// memory watches how much memory is in use, and sheds load before none is left. It belongs to the sweeper.
type memory struct {
	limit   uint64 // bytes; 0 means no limit
	used    func() uint64
	samples []metrics.Sample
	cycles  func() uint64  // number of completed collections
	budget  *buffer.Budget // nil if used does not include what is spent of it
	// cycle is the number of collections at the last check, spentAtLook what had been spent of the budget by then, and
	// spentAtCycle what had been spent at the check before the last collection ended: used includes that, but nothing
	// spent since.
	cycle                     uint64
	spentAtLook, spentAtCycle int64
	look                      chan struct{} // requests a check now
	collecting                atomic.Bool
	collected, loggedAt       time.Time
	// heldUpUntil is until when unused tunnels are not ended because clients are slow to take their responses: these
	// connections may soon be ended as stuck. It is zero if memory is not scarce.
	heldUpUntil time.Time
	// heldAt and cutAt are the numbers of cycles from which on stuck tunnels and responses, or the connections that
	// hold most, may be ended again.
	heldAt, cutAt uint64
	// endedAt is how many bytes were in use when unused tunnels were ended whose effect has not shown yet; 0 if there
	// are none. inVain means that no less was in use afterwards; it stays set while memory is scarce.
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

// ask requests a check by the sweeper now.
func (m *memory) ask() {
	select {
	case m.look <- struct{}{}:
	default: // one was already requested
	}
}

// allot sets the budget until the next check, and reports whether nothing is left. cycle is the number of collections
// before used was measured.
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

// mostKept returns the value for exchange.Engine.MaxKept.
func (m *memory) mostKept() int64 {
	if m.limit == 0 {
		return keptWithout
	}
	return int64(m.limit / keptPart)
}

// inUse returns the memory that the runtime has obtained from the system, without garbage and free memory: mostly
// stacks and what was live in the heap at the last collection.
func (m *memory) inUse() uint64 {
	metrics.Read(m.samples)
	at := func(i int) uint64 { return m.samples[i].Value.Uint64() }
	return at(0) - min(at(0), at(1)+at(2)+at(3)+at(4)) + at(5)
}

// watchMemory checks how much memory is in use, and takes the measures for that.
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
	case exhausted && !p.engine.Overloaded.Load(): // apparently by garbage
		if since >= collectLeast {
			p.logExhausted(now, used)
			p.collect(now)
		}
	case used >= m.limit/100*idleAt && since >= collectEvery && !m.collecting.Load():
		p.endForMemory(now, used)
		p.collect(now)
	}
}

// Released returns how many bytes idle connections have released since the start. They are garbage for the next
// collection.
func (p *Proxy) Released() uint64 { return p.clients.Released() }

// logExhausted logs, from time to time, that new connections and requests are refused until garbage was collected.
func (p *Proxy) logExhausted(now time.Time, used uint64) {
	m := p.memory
	if now.Sub(m.loggedAt) < logEvery {
		return
	}
	m.loggedAt = now
	p.logger.Warn("much was allocated at once: new connections and requests are refused until garbage is collected", "reason", observe.ReasonOverloaded.String(),
		"used", used, "limit", m.limit)
}

// collect collects garbage on another goroutine, and makes the sweeper check again.
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

// endForMemory ends connections that are in use, or may be, as far as the memory in use requires it and the effect of
// those ended before has shown.
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
			p.logger.Warn("memory is scarce: connections that hold large request bodies are ended", "reason", observe.ReasonOverloaded.String(),
				"connections", n, "used", used, "limit", m.limit)
		}
	}
}

// holding is a kind of object that holds bytes which a peer does not take. end ends as many as free that number of
// bytes, and returns their number and the least number of bytes they held.
type holding struct {
	what string
	end  func(bytes uint64) (ended int, freed uint64)
}

// endHeldUp ends what holds bytes that a peer does not take, until the memory in use would be acceptable, and reports
// whether it has ended any.
func (p *Proxy) endHeldUp(used uint64) bool {
	limit := p.memory.limit
	return endUntil(used-min(used, limit/100*acceptAt), []holding{
		{"tunnels with data that one side does not take", p.clients.EndStuckTunnels},
		{"responses that bandwidth limits hold up", p.engine.EndPaced},
		{"connections whose clients do not take their responses", p.clients.EndStuckResponses},
		{"HTTP/2 streams whose clients grant their responses no flow-control window", p.clients.EndStarvedStreams},
	}, func(what string, n int) {
		p.logger.Warn("memory is scarce: "+what+" are ended", "reason", observe.ReasonOverloaded.String(), "number", n, "used", used, "limit", limit)
	})
}

// endUntil makes each kind in turn free what the previous ones have not freed of the excess. It reports whether any
// were ended.
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

// endUnusedTunnels ends unused tunnels if nothing else was ended, as long as that has an effect: they hold little, and
// the memory may be used by something else. It reports whether it has ended any.
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

// shed begins or ends refusing new connections and requests.
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
