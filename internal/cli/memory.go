package cli

import (
	"context"
	"runtime/debug"
	"sync/atomic"
	"time"
)

const (
	// burst is how many changes leave enough garbage to be worth a collection of its own.
	burst = 1000
	// lookAround is how often somebody looks whether a burst is over.
	lookAround = 5 * time.Second
)

// spare gives memory back to the system after many changes. A first list or a mass of new routes
// leaves a heap that is twice as large as what stays, and a program that then has little to do
// would not collect it for minutes, nor ever make its heap smaller. The zero value is ready.
type spare struct {
	changes atomic.Int64
	free    func() // nil is debug.FreeOSMemory
}

// changed counts.
func (s *spare) changed(n int) { s.changes.Add(int64(n)) }

// run gives back until ctx ends.
func (s *spare) run(ctx context.Context) {
	tick := time.NewTicker(lookAround)
	defer tick.Stop()
	var pending int64
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			pending = s.look(pending)
		}
	}
}

// look answers how many changes wait for a collection. It comes when there were many and now are few: in
// the middle of a burst it would be the first of several.
func (s *spare) look(pending int64) int64 {
	now := s.changes.Swap(0)
	pending += now
	if pending < burst || 10*now > pending {
		return pending
	}
	if s.free != nil {
		s.free()
	} else {
		debug.FreeOSMemory()
		releaseProgram()
	}
	return 0
}
