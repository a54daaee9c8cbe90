package bandwidth

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"
)

// stream is a stream of a test that always has more to send.
type stream struct {
	Waiter
	asks   time.Duration // when it asks next, Forever while it waits to be woken
	passed int64
}

// run has streams send from a moment on until another, by a clock of the test's, and calls each with what passes. late is how late one is that asks again.
func run(l *Limiter, streams []*stream, from, until time.Duration, late func() time.Duration, each func(now time.Duration, n int)) {
	now := from
	for _, s := range streams {
		s.asks, s.Wake = from, func() { s.asks = min(s.asks, now+late()) }
	}
	for {
		next := slices.MinFunc(streams, func(a, b *stream) int { return cmp.Compare(a.asks, b.asks) })
		if next.asks >= until {
			break
		}
		now = max(now, next.asks)
		wait, n := time.Duration(0), l.Part()
		for wait = l.Take(now, &next.Waiter, n); wait == 0; wait = l.Take(now, &next.Waiter, n) {
			next.passed += int64(n)
			each(now, n)
		}
		next.asks = Forever
		if wait != Forever {
			next.asks = now + wait + late()
		}
	}
	for _, s := range streams {
		l.Leave(&s.Waiter)
	}
}

func newStreams(n int) (all []*stream) {
	for range n {
		all = append(all, &stream{})
	}
	return all
}

func inTime() time.Duration { return 0 }

// TestRate: by a clock of the test's, what passes within some seconds is the rate within 5 %, at all rates and for any number of streams, and each of them has its share.
func TestRate(t *testing.T) {
	const seconds = 20
	for _, rate := range []int64{1 << 10, 10_000, 1 << 20, 1 << 30} {
		for _, n := range []int{1, 7} {
			l, streams, sum := New(rate, 0), newStreams(n), int64(0)
			run(l, streams, 0, seconds*time.Second, inTime, func(_ time.Duration, n int) { sum += int64(n) })
			atOnce := int64(l.Part()) + rate*int64(leastWait)/int64(time.Second)
			for i, s := range streams {
				if share := rate * seconds / int64(n); s.passed < share*9/10 || s.passed > share*11/10+atOnce {
					t.Errorf("%d bytes a second: stream %d of %d has %d bytes, want %d", rate, i, n, s.passed, share)
				}
			}
			if want := rate * seconds; sum < want*95/100 || sum > want*105/100 {
				t.Errorf("%d bytes a second, %d streams: %d bytes, want %d", rate, n, sum, want)
			}
		}
	}
}

// TestRateOfLateStreams: who is woken late makes up for it, as far as catchUp, and no window of two seconds has more than 5 % too much, or what catchUp allows once.
func TestRateOfLateStreams(t *testing.T) {
	const rate = 1 << 20
	random := rand.New(rand.NewPCG(3, 4))
	for _, most := range []time.Duration{0, 5 * time.Millisecond, 40 * time.Millisecond} {
		late := inTime
		if most > 0 {
			late = func() time.Duration { return time.Duration(random.Int64N(int64(most))) }
		}
		type pass struct {
			at time.Duration
			n  int
		}
		var all []pass
		sum := 0
		run(New(rate, 0), newStreams(1), 0, 10*time.Second, late, func(now time.Duration, n int) {
			all = append(all, pass{now, n})
			sum += n
		})
		if sum < rate*10*95/100 || sum > rate*10*105/100 {
			t.Errorf("late by up to %v: %d bytes, want %d", most, sum, rate*10)
		}
		from, window := 0, 0
		for _, p := range all {
			for all[from].at <= p.at-2*time.Second {
				window -= all[from].n
				from++
			}
			if window += p.n; window > rate*2*105/100 {
				t.Fatalf("late by up to %v: %d bytes in two seconds to %v", most, window, p.at)
			}
		}
	}
}

// TestPause: what was not used before is lost, but for catchUp.
func TestPause(t *testing.T) {
	l, w := New(1000, 0), &Waiter{Wake: func() {}}
	for i, want := range []time.Duration{0, 0, 50 * time.Millisecond} {
		if wait := l.Take(time.Hour, w, 50); wait != want {
			t.Errorf("take %d waits for %v, want %v", i, wait, want)
		}
	}
	if wait := l.Take(time.Hour+50*time.Millisecond, w, 50); wait != 0 {
		t.Errorf("when its time has come it waits for %v", wait)
	}
}

// TestSetRate: what has passed already is made up for at a new rate, and who waits first is woken for it.
func TestSetRate(t *testing.T) {
	for _, c := range []struct {
		rate int64
		want time.Duration
	}{{10, 6400 * time.Millisecond}, {1000, 64 * time.Millisecond}, {100_000, 0}} {
		l, w, woken := New(1000, 0), &Waiter{}, 0
		w.Wake = func() { woken++ }
		l.Take(0, w, 64)
		if wait := l.Take(0, w, 64); wait != 64*time.Millisecond {
			t.Fatalf("the second waits for %v", wait)
		}
		l.SetRate(c.rate, 0)
		if woken != 1 {
			t.Errorf("at %d bytes a second it was woken %d times", c.rate, woken)
		}
		if wait := l.Take(0, w, 64); wait != c.want {
			t.Errorf("at %d bytes a second it waits for %v, want %v", c.rate, wait, c.want)
		}
	}
}

// TestLeave: a thousand that have waited and left, in any order, delay neither who waits behind them nor who comes next.
func TestLeave(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 6))
	l := New(1<<10, 0)
	l.Take(0, &Waiter{}, 64)
	waiters := make([]*Waiter, 1000)
	for i := range waiters {
		waiters[i] = &Waiter{Wake: func() {}}
		if l.Take(0, waiters[i], 64) == 0 {
			t.Fatal("one passes at once")
		}
	}
	woken := false
	behind := &Waiter{Wake: func() { woken = true }}
	if wait := l.Take(0, behind, 64); wait != Forever {
		t.Fatalf("who waits behind them is to wait for %v", wait)
	}
	random.Shuffle(len(waiters), func(i, j int) { waiters[i], waiters[j] = waiters[j], waiters[i] })
	for _, w := range waiters {
		l.Leave(w)
		l.Leave(w) // which does nothing
	}
	const part = 62500 * time.Microsecond
	if wait := l.Take(0, behind, 64); wait != part || !woken {
		t.Errorf("who has waited behind them waits for %v, want %v; woken: %v", wait, part, woken)
	}
	if wait := l.Take(part, behind, 64); wait != 0 {
		t.Errorf("in its time it waits for %v", wait)
	}
	if wait := l.Take(part, &Waiter{}, 64); wait != part {
		t.Errorf("the next waits for %v, want %v", wait, part)
	}
}

// TestOrder: who waits passes in order, and nobody who comes later before them.
func TestOrder(t *testing.T) {
	l := New(1000, 0)
	l.Take(0, &Waiter{}, 64)
	var woken []int
	waiters := make([]*Waiter, 5)
	for i := range waiters {
		waiters[i] = &Waiter{Wake: func() { woken = append(woken, i) }}
		l.Take(0, waiters[i], 64)
	}
	l.Leave(waiters[2])
	for i, w := range waiters {
		now := time.Hour * time.Duration(i+1)
		if i == 2 {
			continue
		}
		if wait := l.Take(now, &Waiter{Wake: func() {}}, 64); wait != Forever {
			t.Errorf("before %d one comes later that waits for %v", i, wait)
		}
		if wait := l.Take(now, w, 64); wait != 0 {
			t.Errorf("%d waits for %v", i, wait)
		}
	}
	if want := []int{1, 3, 4}; !slices.Equal(woken, want) {
		t.Errorf("woken are %v, want %v", woken, want)
	}
}

// TestConcurrently: what many goroutines take at one moment is all counted, and whoever waits is woken in its turn.
func TestConcurrently(t *testing.T) {
	const each, n = 1000, 200 // bytes, and how often each goroutine takes them
	l := New(1<<30, 0)
	var mu sync.Mutex
	now := time.Duration(0) // advanced by who waits first
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			woken := make(chan struct{}, 1)
			w := &Waiter{Wake: func() {
				select {
				case woken <- struct{}{}:
				default:
				}
			}}
			for k := range n {
				for {
					mu.Lock()
					at := now
					mu.Unlock()
					wait := l.Take(at, w, each)
					if wait == 0 {
						break
					}
					if wait == Forever && (i+k)%10 == 0 { // some leave, and come back as the last
						l.Leave(w)
						continue
					}
					if wait == Forever {
						<-woken
						continue
					}
					mu.Lock()
					now = max(now, at+wait)
					mu.Unlock()
				}
			}
		})
	}
	wg.Wait()
	took := time.Duration(8*n*each) * time.Second / (1 << 30)
	if l.first != nil || l.last != nil || l.next < took-catchUp || l.next > took+time.Millisecond+8*n {
		t.Errorf("the next may pass at %v, want about %v; first %v, last %v", l.next, took, l.first, l.last)
	}
}

func BenchmarkTake(b *testing.B) {
	l, w := New(1<<30, 0), &Waiter{}
	b.ReportAllocs()
	for now := time.Duration(0); b.Loop(); now += time.Second {
		l.Take(now, w, 1)
	}
}
