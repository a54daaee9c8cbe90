package exchange

import (
	"testing"
	"time"

	"github.com/moongate-dev/moongate/internal/proxy/buffer"
	"github.com/moongate-dev/moongate/internal/proxy/snapshot"
)

// TestEndPaced: responses that hold a buffer end for it, those first that are held up for longest, and neither those that hold nothing nor those that have
// just begun to wait.
func TestEndPaced(t *testing.T) {
	e := &Engine{}
	now := snapshot.BandwidthNow()
	const little, large = buffer.LittleSize + Cost, buffer.Size
	waiting := func(since time.Duration, holds uint64) *pacing {
		p := &pacing{woken: make(chan struct{}, 1), counted: true}
		p.holds.Store(holds)
		if e.paced.since == nil {
			e.paced.since = map[*pacing]time.Duration{}
		}
		e.paced.since[p] = now - since
		return p
	}
	none, long := waiting(3*time.Hour, 0), waiting(2*time.Hour, large)
	longest, recent := waiting(4*time.Hour, little), waiting(time.Second, large)
	ended := func() (all []bool) {
		for _, p := range []*pacing{none, long, longest, recent} {
			all = append(all, p.ended.Load())
		}
		return all
	}
	for _, c := range []struct {
		bytes uint64
		n     int
		freed uint64
		ended [4]bool
	}{
		{0, 0, 0, [4]bool{}},
		{little, 1, little, [4]bool{2: true}},
		{3 * large, 1, large, [4]bool{1: true, 2: true}},
	} {
		if n, freed := e.EndPaced(c.bytes); n != c.n || freed != c.freed || [4]bool(ended()) != c.ended {
			t.Errorf("for %d bytes: %d responses of %d bytes, %v, want %d of %d, %v", c.bytes, n, freed, ended(), c.n, c.freed, c.ended)
		}
	}
	none.holds.Store(large)
	if n, _ := e.EndPaced(1); n != 1 || !none.ended.Load() {
		t.Errorf("%d responses end, the one that holds a buffer now among them: %v", n, none.ended.Load())
	}
}
