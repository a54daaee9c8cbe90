package cores

import (
	"runtime"
	"testing"
)

// many makes the test see several cores.
func many(t testing.TB, n int) {
	t.Helper()
	procs, one := runtime.GOMAXPROCS(n), alone
	alone = n == 1
	t.Cleanup(func() { runtime.GOMAXPROCS(procs); alone = one })
}

func TestHereAllocatesNothing(t *testing.T) {
	for _, n := range []int{1, 4} {
		many(t, n)
		Here()
		if got := testing.AllocsPerRun(1000, func() { Here() }); got != 0 {
			t.Errorf("%d cores: %v allocations, want 0", n, got)
		}
	}
}

// On one core the number hardly ever changes, or what is kept by it would wander about.
func TestHereStays(t *testing.T) {
	many(t, 4)
	const calls = 10000
	changes, last := 0, Here()
	for range calls {
		if n := Here(); n != last {
			changes, last = changes+1, n
		}
	}
	// The goroutine may be moved. Under the race detector a sync.Pool forgets every fourth thing.
	if changes > calls/3 {
		t.Errorf("the number changed %d times in %d", changes, calls)
	}
	many(t, 1)
	if n := Here(); n != 0 {
		t.Errorf("on one core: %d, want 0", n)
	}
}

func TestCount(t *testing.T) {
	for procs, want := range map[int]int{1: 1, 2: 2, 3: 4, 4: 4, 48: 64, 64: 64, 200: Most} {
		many(t, procs)
		if got := Count(); got != want {
			t.Errorf("%d cores: %d, want %d", procs, got, want)
		}
	}
}

func BenchmarkHere(b *testing.B) {
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			Here()
		}
	})
}
