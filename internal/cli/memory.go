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
	// lookAround is the interval of checks whether memory can be released; proxyLookAround is the interval for a proxy, whose load
	// changes faster.
	lookAround      = 5 * time.Second
	proxyLookAround = 500 * time.Millisecond
	// calm is how long the process must have been idle before memory is released.
	calm = time.Second
	// startGarbage is how long after its start a process that was never idle keeps the garbage of reading everything.
	startGarbage = 10 * time.Second
	// busy is the share of one core above which the process is not idle.
	busy = 0.05
	// worth limits the time spent on releasing memory: the pause after a release is this many times its duration.
	worth = 50
	// leastReturn is the minimum that a release must be expected to free, in bytes.
	leastReturn = 2 << 20
	// headroom is how far a proxy's heap may grow beyond its live part between two collections, in bytes; a smaller heap may double,
	// as is the default in Go. A proxy allocates almost nothing for a request, so collections are rare.
	headroom = 12 << 20
	// leastGrowth is the lowest GOGC, in percent, so that a large heap is not collected all the time.
	leastGrowth = 25
)

// scavenger releases memory to the system while the process is idle. A first list or many new routes leave a heap twice as large as
// its live part; the Go runtime would collect it only after minutes, and would keep the memory. While the process is busy, the
// scavenger leaves the collector alone.
type scavenger struct {
	kept      uint64        // bytes of the heap after the last release
	allocated uint64        // bytes since the start, as of the last check
	cpu       time.Duration // used by the process, as of the last check
	calm      time.Duration // how long the process has been idle
	pause     time.Duration // until memory may be released again
	growth    int           // GOGC in force; 0 leaves the default
	every     time.Duration // interval of checks
	begun     atomic.Bool   // started was called
	unrested  time.Duration // since started, until memory was first released
	released  uint64        // the result of releases at the last release
	give      func()
	read      func() (resident, allocated uint64)
	releases  func() uint64        // bytes known to have become garbage since the start; may be nil
	used      func() time.Duration // cpuTime
}

func newScavenger() *scavenger {
	return &scavenger{every: lookAround, read: readHeap, used: cpuTime, give: func() {
		runtime.GC() // pools drop what was unused during two collections
		debug.FreeOSMemory()
		releaseProgram()
	}}
}

// often sets the interval of checks for a proxy.
func (s *scavenger) often() *scavenger {
	s.every = proxyLookAround
	return s
}

// started must be called after the start, which leaves far more garbage than any later change: this is released once even if the
// process is never idle. It may be called while the scavenger runs.
func (s *scavenger) started() { s.begun.Store(true) }

// bound also keeps the heap's growth within headroom, unless GOGC is set.
func (s *scavenger) bound() *scavenger {
	if os.Getenv("GOGC") == "" {
		s.growth = 100
	}
	return s
}

// growthFor returns the GOGC for a heap with that many live bytes.
func growthFor(live uint64) int { return int(min(100, max(leastGrowth, headroom*100/max(live, 1)))) }

// run checks until ctx ends.
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

// look releases memory if it is worth a collection, because an eighth of the heap or enough known garbage can be freed, and if the
// process has been idle for a while: at most a twentieth of the heap was allocated since the last check, and little CPU time was
// used. CPU time counts too because a busy proxy need not allocate.
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
	if s.pause = worth * (s.cpu - cpu); due { // if the process was not idle, the CPU time includes that of requests
		s.pause = min(s.pause, worth*time.Since(begin))
	}
}

// tune sets GOGC for the present size of the heap.
func (s *scavenger) tune() {
	if s.growth == 0 {
		return
	}
	live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(live)
	// Setting it stops the world for a moment, so small differences are ignored.
	if g := growthFor(live[0].Value.Uint64()); max(g, s.growth)-min(g, s.growth) >= 5 {
		debug.SetGCPercent(g)
		s.growth = g
	}
}

// readHeap returns how much of the heap is not released, and how much was allocated since the start, in bytes.
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

// ofContainer is the share of a container's memory, in percent, that the program uses itself; the rest is for memory that the kernel
// counts too, such as socket buffers.
const ofContainer = 90

// memoryLimit returns how many bytes the program may use, 0 if there is no limit: GOMEMLIMIT, or else most of the container's limit,
// which it then sets as if GOMEMLIMIT were set.
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

// containerLimit reads the limit of the control group mounted at root; 0 if there is none.
func containerLimit(root string) int64 {
	for _, name := range []string{"memory.max", "memory/memory.limit_in_bytes"} { // version 2, and 1
		text, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			continue
		}
		// Version 2 contains max if there is no limit, version 1 nearly 2^63.
		if n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64); err == nil && 0 < n && n < 1<<60 {
			return n
		}
	}
	return 0
}
