//go:build linux

package main

import (
	"fmt"
	"slices"
)

// reference is the contender whose rate in a closed loop sets the rate of the open one.
const reference = "nginx"

// runOpen measures latency in an open loop, at half of the rate that nginx reaches in a closed one, or without nginx who comes first.
func (b *bench) runOpen(t *traffic) error {
	contenders, err := b.startAll(t)
	if err != nil {
		return err
	}
	if err := b.verify(contenders); err != nil {
		return err
	}
	first := max(slices.IndexFunc(contenders, func(c *contender) bool { return c.name == reference }), 0)
	highest, err := b.measure(t.spec(b, contenders[first]))
	if err != nil {
		return err
	}
	open := *t
	open.rate = float64(highest.Requests) / highest.Window.Seconds() / 2
	open.title = fmt.Sprintf("%s, open loop at %.0f requests/s, half of what %s reaches", t.title, open.rate, contenders[first].name)
	all, err := b.measureInTurns(open.against(contenders))
	if err != nil {
		return err
	}
	b.printTraffic(&open, all, 0)
	for i, s := range all {
		if got := median(s.rate); got < 0.98*open.rate {
			fmt.Fprintf(b.out, "\n%s answered %.0f requests/s of those %.0f.\n", s.label, got, open.rate)
		}
		late := *s
		late.values = s.p99
		all[i] = &late
	}
	b.summarize("p99 at half of "+contenders[first].name+"'s rate, open loop", "ms", all)
	return stopAll(contenders)
}
