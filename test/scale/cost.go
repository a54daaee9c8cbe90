package main

import (
	"context"
	"errors"
	"time"
)

// cost is what one process used over a window, and held in it.
type cost struct {
	process
	cores          float64
	resident, most int64 // at the end, and the highest of a look each second
	anon, peak     int64 // peak since the process began
	inUse, objects float64
	received       float64 // bytes a second
	busy           float64 // share of the machine's time, of all programs
}

// watchCost measures all processes over a window, without asking them anything in it.
func (w *world) watchCost(ctx context.Context, window time.Duration) ([]cost, error) {
	processes, err := w.processes(ctx)
	if err != nil {
		return nil, err
	}
	before := make([]usage, len(processes))
	costs := make([]cost, len(processes))
	for i, p := range processes {
		costs[i].process = p
		if before[i], err = p.usage(); err != nil {
			return nil, err
		}
	}
	worked, all := busy()
	begin := time.Now()
	for until := begin.Add(window); time.Now().Before(until); {
		if err := pause(ctx, min(time.Second, time.Until(until))); err != nil {
			return nil, err
		}
		for i, p := range processes {
			now, err := p.usage()
			if err != nil {
				return nil, err
			}
			costs[i].add(before[i], now, time.Since(begin))
		}
	}
	workedNow, allNow := busy()
	var errs []error
	for i := range costs {
		c := &costs[i]
		c.inUse, c.objects, err = c.heap(ctx)
		errs = append(errs, err)
		c.busy = float64(workedNow-worked) / float64(max(1, allNow-all))
	}
	return costs, errors.Join(errs...)
}

// add takes a look at a process so long after the first one.
func (c *cost) add(before, now usage, after time.Duration) {
	c.cores = float64(now.cpu-before.cpu) / float64(after)
	c.received = float64(now.received-before.received) / after.Seconds()
	c.resident, c.anon, c.peak = now.resident, now.anon, now.peak
	c.most = max(c.most, now.resident)
}
