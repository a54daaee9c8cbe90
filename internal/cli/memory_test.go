package cli

import (
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"testing"
	"time"
)

func TestSpareGivesBackWhenThereIsLittleToDo(t *testing.T) {
	const mib = 1 << 20
	var resident, allocated uint64
	given := 0
	s := &scavenger{
		interval: checkInterval,
		readHeap: func() (uint64, uint64) { return resident, allocated },
		cpuTime:  func() time.Duration { return 0 },
		release:  func() { given++; resident = 40 * mib },
	}
	for i, step := range []struct {
		resident, more uint64
		given          int
	}{
		{60 * mib, 50 * mib, 0}, // the first list
		{80 * mib, 50 * mib, 0},
		{80 * mib, mib, 1},     // it rests: 40 MiB stay
		{44 * mib, mib, 1},     // too little
		{46 * mib, mib, 2},     // an eighth more
		{90 * mib, 9 * mib, 2}, // at work again
		{90 * mib, 0, 3},
	} {
		resident, allocated = step.resident, allocated+step.more
		s.check()
		if given != step.given {
			t.Fatalf("step %d: given back %d times, not %d", i, given, step.given)
		}
	}
	resident, allocated, given = 3*mib, 0, 0
	s.afterRelease, s.lastAllocated = 2*mib, 0
	if s.check(); given != 0 {
		t.Error("a small heap is not worth it")
	}
}

// TestProgramIsReleased: an idle process releases the program's pages once a minute if there are many, without a collection.
func TestProgramIsReleased(t *testing.T) {
	var program uint64 = maxProgram + 1
	var used time.Duration
	released := 0
	s := (&scavenger{
		readHeap:       func() (uint64, uint64) { return 1 << 20, 0 },
		cpuTime:        func() time.Duration { return used },
		release:        func() { t.Error("the heap was released") },
		program:        func() uint64 { return program },
		releaseProgram: func() { released++ },
	}).forProxy()
	for i, step := range []struct {
		program  uint64
		busy     time.Duration // CPU time in each interval
		released int
	}{
		{maxProgram + 1, 0, 1},
		{maxProgram, 0, 1},               // few
		{maxProgram + 1, time.Second, 1}, // not idle
		{maxProgram + 1, 0, 2},
	} {
		program = step.program
		for range programInterval / proxyCheckInterval {
			used += step.busy
			s.check()
		}
		if s.check(); released != step.released {
			t.Fatalf("step %d: released %d times, want %d", i, released, step.released)
		}
		s.sinceProgram = 0
	}
}

// TestSpareWaitsForCalm: memory is given back when there has been little to do for a second, whatever was
// allocated; and not for longer than a fiftieth of the time.
func TestSpareWaitsForCalm(t *testing.T) {
	var resident uint64 = 80 << 20
	var used time.Duration
	given := 0
	s := (&scavenger{
		readHeap: func() (uint64, uint64) { return resident, 0 },
		cpuTime:  func() time.Duration { return used },
		release:  func() { given++; used += 20 * time.Millisecond },
	}).forProxy()
	for i, step := range []struct {
		used  time.Duration
		given int
	}{
		{time.Second, 0}, // the start
		{0, 0},
		{100 * time.Millisecond, 0}, // at work
		{20 * time.Millisecond, 0},
		{20 * time.Millisecond, 1},
		{0, 1}, // it has just been done
	} {
		used += step.used
		s.check()
		if given != step.given {
			t.Fatalf("step %d: given back %d times, not %d", i, given, step.given)
		}
		resident += 8 << 20
	}
	if s.check(); given != 2 {
		t.Error("not given back again")
	}
}

// TestSpareOfReleased: what is known to be garbage counts as well as what was allocated since.
func TestSpareOfReleased(t *testing.T) {
	given, released := 0, uint64(0)
	s := &scavenger{
		readHeap: func() (uint64, uint64) { return 80 << 20, 0 },
		cpuTime:  func() time.Duration { return 0 },
		release:  func() { given++ },
		garbage:  func() uint64 { return released },
		interval: minIdle,
	}
	for i, step := range []struct {
		released uint64
		given    int
	}{
		{0, 1}, // the start
		{1 << 20, 1},
		{2 << 20, 2},
		{3 << 20, 2},
		{4 << 20, 3},
	} {
		released = step.released
		if s.check(); given != step.given {
			t.Fatalf("step %d: given back %d times, not %d", i, given, step.given)
		}
	}
}

// TestSpareAfterStart: what the start has left is given back also where there is no rest, once.
func TestSpareAfterStart(t *testing.T) {
	var used time.Duration
	given := 0
	s := (&scavenger{
		readHeap: func() (uint64, uint64) { return 80<<20 + uint64(given)<<30, 0 }, // there is always more
		cpuTime:  func() time.Duration { used += time.Second; return used },
		release:  func() { given++ },
	}).forProxy()
	s.started()
	for i := range 100 {
		want := 0
		if time.Duration(i+1)*proxyCheckInterval >= maxStartGarbage {
			want = 1
		}
		if s.check(); given != want {
			t.Fatalf("look %d: given back %d times, want %d", i, given, want)
		}
	}
}

// TestSpareOfARealHeap: what is garbage by now is given back.
func TestSpareOfARealHeap(t *testing.T) {
	held := make([][]byte, 64)
	for i := range held {
		held[i] = make([]byte, 1<<20)
	}
	s := newScavenger()
	s.cpuTime = func() time.Duration { return 0 } // other tests may be at work
	before, _ := s.readHeap()
	runtime.KeepAlive(held)
	held = nil
	s.check() // much was allocated before
	s.check()
	if after, _ := s.readHeap(); s.afterRelease == 0 || after > before-32<<20 {
		t.Errorf("%d bytes before, %d after", before, after)
	}
}

// TestGrowth: a small heap may double, a large one grows by the headroom, a huge one by a quarter.
func TestGrowth(t *testing.T) {
	for live, want := range map[uint64]int{0: 100, 4 << 20: 100, 12 << 20: 100, 24 << 20: 50, 34 << 20: 35, 48 << 20: 25, 1 << 30: 25} {
		if got := gogcFor(live); got != want {
			t.Errorf("%d MiB live: %d %%, want %d", live>>20, got, want)
		}
	}
}

// TestGrowthIsSet: a heap that lives is not allowed to double.
func TestGrowthIsSet(t *testing.T) {
	t.Setenv("GOGC", "")
	before := debug.SetGCPercent(100)
	t.Cleanup(func() { debug.SetGCPercent(before) })
	held := make([]byte, 64<<20)
	runtime.GC()
	s := newScavenger().limitGrowth()
	s.release = func() {}
	s.check()
	if got := debug.SetGCPercent(100); got != minGOGC {
		t.Errorf("GOGC is %d with %d MiB that live, want %d", got, len(held)>>20, minGOGC)
	}
	runtime.KeepAlive(held)
}

// TestGrowthOfController: a controller's heap is collected often from the start, unless GOGC says otherwise.
func TestGrowthOfController(t *testing.T) {
	before := debug.SetGCPercent(100)
	t.Cleanup(func() { debug.SetGCPercent(before) })
	for value, want := range map[string]int{"": minGOGC, "80": 100} { // the runtime reads the variable itself, at the start
		debug.SetGCPercent(100)
		t.Setenv("GOGC", value)
		newScavenger().forController()
		if got := debug.SetGCPercent(100); got != want {
			t.Errorf("GOGC %q: %d, want %d", value, got, want)
		}
	}
}

// TestContainerLimit: both versions of control groups are understood, and what says that there is no limit.
func TestContainerLimit(t *testing.T) {
	for _, tc := range []struct {
		file, text string
		want       int64
	}{
		{"memory.max", "134217728\n", 128 << 20},
		{"memory.max", "max\n", 0},
		{"memory/memory.limit_in_bytes", "268435456\n", 256 << 20},
		{"memory/memory.limit_in_bytes", "9223372036854771712\n", 0},
		{"other", "1", 0},
	} {
		root := t.TempDir()
		name := filepath.Join(root, tc.file)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(tc.text), 0o644); err != nil {
			t.Fatal(err)
		}
		if got := containerLimit(root); got != tc.want {
			t.Errorf("%s with %q: %d, want %d", tc.file, tc.text, got, tc.want)
		}
	}
}
