package cli

import (
	"context"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

const (
	// lookAround is how often somebody looks for memory that can be given back; proxyLookAround is how often for
	// a proxy, whose clients come and go in crowds.
	lookAround      = 5 * time.Second
	proxyLookAround = 500 * time.Millisecond
	// calm is how long there must have been little to do.
	calm = time.Second
	// startGarbage is how long a process that has had no rest since its start keeps the garbage of reading everything.
	startGarbage = 10 * time.Second
	// busy is from which share of one core on there is more than a little to do.
	busy = 0.05
	// worth bounds the time that is spent on giving memory back: the next time is not before so many times
	// what the last one took.
	worth = 50
	// leastReturn is how much it must be, in bytes.
	leastReturn = 2 << 20
	// headroom is how far a proxy's heap may outgrow what lives in it between two collections, in bytes; a
	// heap of less may double, as Go does it. A proxy allocates next to nothing for a request, so collections are rare.
	headroom = 12 << 20
	// leastGrowth bounds what that costs, in percent: a large heap is not collected all the time.
	leastGrowth = 25
)

// scavenger gives memory back to the system while there is little to do. A first list or a mass of new routes leaves a heap
// twice as large as what stays; a program that then rests collects it after minutes, and keeps
// the room for the next time. While there is much to do the collector is left alone.
type scavenger struct {
	kept      uint64        // bytes of the heap after it was last given back
	allocated uint64        // since the start, at the last look
	cpu       time.Duration // that the process had used at the last look
	calm      time.Duration // for how long there has been little to do
	pause     time.Duration // until memory may be given back again
	growth    int           // GOGC in force; 0 leaves it as it is
	every     time.Duration // time between looks
	begun     atomic.Bool   // started was called
	unrested  time.Duration // since then, until memory was given back
	released  uint64        // what releases had said when it was last given back
	give      func()
	read      func() (resident, allocated uint64)
	releases  func() uint64        // bytes known to have become garbage since the start; nil where nobody counts them
	used      func() time.Duration // cpuTime
}

func newScavenger() *scavenger {
	return &scavenger{every: lookAround, read: readHeap, used: cpuTime, give: func() {
		runtime.GC() // pools let go of what two collections in a row find unused
		debug.FreeOSMemory()
		releaseProgram()
	}}
}

// often looks as a proxy needs it.
func (s *scavenger) often() *scavenger {
	s.every = proxyLookAround
	return s
}

// started follows the start: what that leaves, far more garbage than any later change will, is given back once even if there is no rest. It may be called
// while the scavenger runs.
func (s *scavenger) started() { s.begun.Store(true) }

// bound keeps the heap's growth within headroom too, unless who started the process chose one.
func (s *scavenger) bound() *scavenger {
	if os.Getenv("GOGC") == "" {
		s.growth = 100
	}
	return s
}

// growthFor is the GOGC for a heap of which so much lives.
func growthFor(live uint64) int { return int(min(100, max(leastGrowth, headroom*100/max(live, 1)))) }

// run looks until ctx ends.
func (s *scavenger) run(ctx context.Context) {
	tick := time.NewTicker(s.every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			s.look()
		}
	}
}

// look gives back where that is worth a collection, an eighth of the heap or what is known to be garbage, and there has been little to do for a
// while: no more than a twentieth of it was allocated since the last look, and the processors rested. A
// proxy at work need not allocate.
func (s *scavenger) look() {
	s.tune()
	resident, allocated := s.read()
	cpu := s.used()
	since, used := allocated-s.allocated, cpu-s.cpu
	s.allocated, s.cpu, s.kept = allocated, cpu, min(s.kept, resident)
	var released uint64
	if s.releases != nil {
		released = s.releases()
	}
	s.pause -= min(s.pause, s.every)
	s.calm += s.every
	if since > resident/20 || used.Seconds() > busy*s.every.Seconds() {
		s.calm = 0
	}
	rested := s.calm >= calm
	begun, due := s.begun.Load(), false
	if begun && s.unrested < startGarbage {
		s.unrested += s.every
		due = s.unrested >= startGarbage
	}
	if !rested && !due || s.pause > 0 || resident < s.kept+max(s.kept/8, leastReturn) && released < s.released+leastReturn {
		return
	}
	if begun {
		s.unrested = startGarbage
	}
	begin := time.Now()
	s.give()
	s.released = released
	s.kept, s.allocated = s.read()
	s.cpu = s.used()
	if s.pause = worth * (s.cpu - cpu); due { // without rest, the CPU time is that of requests, too
		s.pause = min(s.pause, worth*time.Since(begin))
	}
}

// tune sets how far the heap may grow.
func (s *scavenger) tune() {
	if s.growth == 0 {
		return
	}
	live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(live)
	// Setting it stops the world for a moment, so small differences are let be.
	if g := growthFor(live[0].Value.Uint64()); max(g, s.growth)-min(g, s.growth) >= 5 {
		debug.SetGCPercent(g)
		s.growth = g
	}
}

// readHeap is how much of the heap is not given back, and what was ever allocated, in bytes.
func readHeap() (resident, allocated uint64) {
	samples := []metrics.Sample{
		{Name: "/memory/classes/heap/objects:bytes"},
		{Name: "/memory/classes/heap/unused:bytes"},
		{Name: "/memory/classes/heap/free:bytes"},
		{Name: "/gc/heap/allocs:bytes"},
	}
	metrics.Read(samples)
	return samples[0].Value.Uint64() + samples[1].Value.Uint64() + samples[2].Value.Uint64(), samples[3].Value.Uint64()
}

// ofContainer is the part of a container's memory, in percent, that the program takes for its own; the rest is for what the
// kernel counts beside, such as the buffers of sockets.
const ofContainer = 90

// memoryLimit returns how many bytes the program may use, 0 where nobody says: GOMEMLIMIT, or else most of what its
// container may have, which is then in force as if GOMEMLIMIT had said so.
func memoryLimit() int64 {
	if limit := debug.SetMemoryLimit(-1); limit < math.MaxInt64 {
		return limit
	}
	limit := containerLimit("/sys/fs/cgroup")
	if limit > 0 {
		limit = limit / 100 * ofContainer
		debug.SetMemoryLimit(limit)
	}
	return limit
}

// containerLimit reads what the control group mounted at root allows; 0 is no limit.
func containerLimit(root string) int64 {
	for _, name := range []string{"memory.max", "memory/memory.limit_in_bytes"} { // version 2, and 1
		text, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			continue
		}
		// Version 2 says max where there is no limit, version 1 nearly 2^63.
		if n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64); err == nil && 0 < n && n < 1<<60 {
			return n
		}
	}
	return 0
}
