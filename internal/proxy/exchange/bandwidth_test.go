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
	waiting := func(since time.Duration, holds bool) *pacing {
		p := &pacing{woken: make(chan struct{}, 1), counted: true}
		p.holds.Store(holds)
		if e.paced.since == nil {
			e.paced.since = map[*pacing]time.Duration{}
		}
		e.paced.since[p] = now - since
		return p
	}
	none, long := waiting(3*time.Hour, false), waiting(2*time.Hour, true)
	longest, recent := waiting(4*time.Hour, true), waiting(time.Second, true)
	ended := func() (all []bool) {
		for _, p := range []*pacing{none, long, longest, recent} {
			all = append(all, p.ended.Load())
		}
		return all
	}
	for _, c := range []struct {
		bytes uint64
		n     int
		ended [4]bool
	}{
		{0, 0, [4]bool{}},
		{1, 1, [4]bool{2: true}},
		{3 * buffer.Size, 1, [4]bool{1: true, 2: true}},
	} {
		if n := e.EndPaced(c.bytes); n != c.n || [4]bool(ended()) != c.ended {
			t.Errorf("for %d bytes: %d responses, %v, want %d, %v", c.bytes, n, ended(), c.n, c.ended)
		}
	}
	none.holds.Store(true)
	if n := e.EndPaced(1); n != 1 || !none.ended.Load() {
		t.Errorf("%d responses end, the one that holds a buffer now among them: %v", n, none.ended.Load())
	}
}
