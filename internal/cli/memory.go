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
	// checkInterval is the interval of checks whether memory can be released; proxyCheckInterval is the interval for a proxy, whose load
	// changes faster.
	checkInterval      = 5 * time.Second
	proxyCheckInterval = 500 * time.Millisecond
	// minIdle is how long the process must have been idle before memory is released.
	minIdle = time.Second
	// maxStartGarbage is how long after its start a process that was never idle keeps the garbage of reading everything.
	maxStartGarbage = 10 * time.Second
	// busyShare is the share of one core above which the process is not idle.
	busyShare = 0.05
	// pauseFactor limits the time spent on releasing memory: the pause after a release is this many times its duration.
	pauseFactor = 50
	// minRelease is the minimum that a release must be expected to free, in bytes.
	minRelease = 2 << 20
	// headroom is how far a proxy's heap may grow beyond its live part between two collections, in bytes; a smaller heap may double,
	// as is the default in Go. A proxy allocates almost nothing for a request, so collections are rare.
	headroom = 12 << 20
	// maxProgram is how many bytes of mapped files may be resident in an idle process, and programInterval is the interval of checks.
	// The kernel maps 64 KiB around each page that is touched once, so rare work leaves many; about 5 MB are in use all the time.
	maxProgram      = 8 << 20
	programInterval = time.Minute
	// minGOGC is the lowest GOGC, in percent, so that a large heap is not collected all the time.
	minGOGC = 25
)

// scavenger releases memory to the system while the process is idle. A first list or many new routes leave a heap twice as large as
// its live part; the Go runtime would collect it only after minutes, and would keep the memory. While the process is busy, the
// scavenger leaves the collector alone.
type scavenger struct {
	afterRelease     uint64        // bytes of the heap after the last release
	lastAllocated    uint64        // bytes since the start, as of the last check
	lastCPU          time.Duration // used by the process, as of the last check
	idleTime         time.Duration // how long the process has been idle
	pause            time.Duration // until memory may be released again
	gogc             int           // GOGC in force; 0 leaves the default
	interval         time.Duration // interval of checks
	startDone        atomic.Bool   // started was called
	sinceStart       time.Duration // since started, until memory was first released
	garbageAtRelease uint64        // the result of garbage at the last release
	sinceProgram     time.Duration // since the last check or release of the program's pages
	release          func()
	releaseProgram   func()
	program          func() uint64 // bytes of mapped files that are resident; may be nil
	readHeap         func() (resident, allocated uint64)
	garbage          func() uint64        // bytes known to have become garbage since the start; may be nil
	cpuTime          func() time.Duration // CPU time of the process
}

func newScavenger() *scavenger {
	return &scavenger{interval: checkInterval, readHeap: readHeap, cpuTime: cpuTime, program: residentFiles, releaseProgram: releaseProgram,
		release: func() {
			runtime.GC() // pools drop what was unused during two collections
			debug.FreeOSMemory()
			releaseProgram()
		}}
}

// forProxy sets the interval of checks for a proxy.
func (s *scavenger) forProxy() *scavenger {
	s.interval = proxyCheckInterval
	return s
}

// started must be called after the start, which leaves far more garbage than any later change: this is released once even if the
// process is never idle. It may be called while the scavenger runs.
func (s *scavenger) started() { s.startDone.Store(true) }

// limitGrowth also keeps the heap's growth within headroom, unless GOGC is set.
func (s *scavenger) limitGrowth() *scavenger {
	if os.Getenv("GOGC") == "" {
		s.gogc = 100
	}
	return s
}

// forController has the heap collected often, unless GOGC is set. What a controller keeps is allocated among the garbage of decoding and
// translation, so the heap remains nearly as large as it was before a collection; a change allocates so little that collections are
// rare all the same.
func (s *scavenger) forController() *scavenger {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(minGOGC)
	}
	return s
}

// gogcFor returns the GOGC for a heap with that many live bytes.
func gogcFor(live uint64) int { return int(min(100, max(minGOGC, headroom*100/max(live, 1)))) }

// run checks until ctx ends.
func (s *scavenger) run(ctx context.Context) {
	tick := time.NewTicker(s.interval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			s.check()
		}
	}
}

// check releases memory if it is worth a collection, because an eighth of the heap or enough known garbage can be freed, and if the
// process has been idle for a while: at most a twentieth of the heap was allocated since the last check, and little CPU time was
// used. CPU time counts too because a busy proxy need not allocate.
func (s *scavenger) check() {
	s.tune()
	resident, allocated := s.readHeap()
	cpu := s.cpuTime()
	since, used := allocated-s.lastAllocated, cpu-s.lastCPU
	s.lastAllocated, s.lastCPU, s.afterRelease = allocated, cpu, min(s.afterRelease, resident)
	var released uint64
	if s.garbage != nil {
		released = s.garbage()
	}
	s.pause -= min(s.pause, s.interval)
	s.idleTime += s.interval
	if since > resident/20 || used.Seconds() > busyShare*s.interval.Seconds() {
		s.idleTime = 0
	}
	idle := s.idleTime >= minIdle
	started, due := s.startDone.Load(), false
	if started && s.sinceStart < maxStartGarbage {
		s.sinceStart += s.interval
		due = s.sinceStart >= maxStartGarbage
	}
	if s.sinceProgram += s.interval; idle && s.program != nil && s.sinceProgram >= programInterval {
		if s.sinceProgram = 0; s.program() > maxProgram {
			s.releaseProgram()
		}
	}
	if !idle && !due || s.pause > 0 || resident < s.afterRelease+max(s.afterRelease/8, minRelease) && released < s.garbageAtRelease+minRelease {
		return
	}
	if started {
		s.sinceStart = maxStartGarbage
	}
	begin := time.Now()
	s.release()
	s.sinceProgram = 0
	s.garbageAtRelease = released
	s.afterRelease, s.lastAllocated = s.readHeap()
	s.lastCPU = s.cpuTime()
	if s.pause = pauseFactor * (s.lastCPU - cpu); due { // if the process was not idle, the CPU time includes that of requests
		s.pause = min(s.pause, pauseFactor*time.Since(begin))
	}
}

// tune sets GOGC for the present size of the heap.
func (s *scavenger) tune() {
	if s.gogc == 0 {
		return
	}
	live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(live)
	// Setting it stops the world for a moment, so small differences are ignored.
	if g := gogcFor(live[0].Value.Uint64()); max(g, s.gogc)-min(g, s.gogc) >= 5 {
		debug.SetGCPercent(g)
		s.gogc = g
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

// containerPercent is the share of a container's memory, in percent, that the program uses itself; the rest is for memory that the kernel
// counts too, such as socket buffers.
const containerPercent = 90

// memoryLimit returns how many bytes the program may use, 0 if there is no limit: GOMEMLIMIT, or else most of the container's limit,
// which it then sets as if GOMEMLIMIT were set.
func memoryLimit() int64 {
	if limit := debug.SetMemoryLimit(-1); limit < math.MaxInt64 {
		return limit
	}
	limit := containerLimit("/sys/fs/cgroup")
	if limit > 0 {
		limit = limit / 100 * containerPercent
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
