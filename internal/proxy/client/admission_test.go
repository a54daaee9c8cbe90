package client

import (
	"net/netip"
	"sync"
	"testing"

	"github.com/moongate-dev/moongate/internal/observe"
)

// TestClientKey: which addresses count as one client.
func TestClientKey(t *testing.T) {
	for _, tc := range []struct {
		a, b string
		same bool
	}{
		{"192.0.2.1", "192.0.2.1", true},
		{"192.0.2.1", "::ffff:192.0.2.1", true},
		{"192.0.2.1", "192.0.2.2", false},
		{"2001:db8:1:2::1", "2001:db8:1:2:ffff:ffff:ffff:ffff", true},
		{"2001:db8:1:2::1", "2001:db8:1:3::1", false},
		{"0.0.0.5", "0:0:0:5::", false},
	} {
		if same := keyOf(netip.MustParseAddr(tc.a)) == keyOf(netip.MustParseAddr(tc.b)); same != tc.same {
			t.Errorf("%s and %s are the same client: %v", tc.a, tc.b, same)
		}
	}
}

// TestAdmissionIsExact: however many connections come and go at a time, no limit is exceeded, none is refused while
// there is room, and nothing stays counted.
func TestAdmissionIsExact(t *testing.T) {
	a := &admission{limits: ConnectionLimits{Total: 100, PerClient: 10}}
	key := func(i int) clientKey { return clientKey{uint64(i), true} }
	var all sync.WaitGroup
	var mu sync.Mutex
	in := map[clientKey]int{}
	for i := range 64 {
		all.Go(func() {
			k := key(i % 4)
			for range 1000 {
				mu.Lock()
				if limit, ok := a.enter(k); ok {
					if in[k]++; in[k] > 10 {
						t.Errorf("%d connections of one client", in[k])
					}
				} else if limit != observe.LimitPerClient || in[k] < 10 {
					t.Errorf("refused for %v with %d connections of the client", limit, in[k])
				}
				if in[k] > 5 {
					in[k]--
					a.leave(k)
				}
				mu.Unlock()
			}
		})
	}
	all.Wait()
	for k, n := range in {
		for range n {
			a.leave(k)
		}
	}
	entered := 0
	var concurrent sync.WaitGroup
	for i := range 64 {
		concurrent.Go(func() {
			for j := range 100 {
				if _, ok := a.enter(key(100*i + j)); ok {
					mu.Lock()
					entered++
					mu.Unlock()
				}
			}
		})
	}
	concurrent.Wait()
	if entered > 100 || a.open.Load() != int64(entered) {
		t.Errorf("%d connections entered, %d counted", entered, a.open.Load())
	}
	if limit, ok := a.enter(key(1 << 20)); ok != (entered < 100) || !ok && limit != observe.LimitTotal {
		t.Errorf("with %d connections the next has %v for %v", entered, ok, limit)
	}
}

// TestLevel: those that have most come down first, to what is just enough.
func TestLevel(t *testing.T) {
	for _, tc := range []struct {
		counts []int
		want   int
		level  int
	}{
		{[]int{10}, 3, 7},
		{[]int{10, 10, 1}, 1, 9},
		{[]int{10, 10, 1}, 4, 8},
		{[]int{10, 7, 1}, 3, 7},
		{[]int{10, 7, 1}, 4, 6},
		{[]int{1, 1, 1}, 2, 0},
		{[]int{2, 1}, 100, 0},
		{nil, 1, 0},
	} {
		counts := map[clientKey]int{}
		for i, n := range tc.counts {
			counts[clientKey{uint64(i), true}] = n
		}
		if got := level(counts, tc.want); got != tc.level {
			t.Errorf("%d less of %v: level %d, want %d", tc.want, tc.counts, got, tc.level)
		}
	}
}

func BenchmarkAdmission(b *testing.B) {
	a := &admission{limits: ConnectionLimits{Total: 1 << 20, PerClient: 1 << 19}}
	b.ReportAllocs()
	for i := range b.N {
		k := clientKey{uint64(i % 1000), true}
		a.enter(k)
		a.leave(k)
	}
}
