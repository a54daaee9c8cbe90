//go:build !race

package upstream

import "testing"

func TestTurnAllocatesNothing(t *testing.T) {
	b, seed := pooled(t, 1), uint64(1)
	for _, spread := range []bool{false, true} {
		if spread {
			for _, e := range b.Endpoints() {
				e.spreadTo(4)
				for range e.use().coreShards() { // let all stacks grow
					for i := range e.use().coreShards() {
						c := e.Idle()
						e.use().coreShards()[i].keep(c, 1)
					}
				}
			}
		}
		if got := testing.AllocsPerRun(1000, func() { useEndpoint(b, &seed) }); got != 0 {
			t.Errorf("spread %v: %v allocations, want 0", spread, got)
		}
	}
}
