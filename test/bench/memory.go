//go:build linux

package main

import (
	"fmt"
	"time"

	"github.com/moongate-dev/moongate/test/bench/origin"
	"github.com/moongate-dev/moongate/test/bench/proc"
)

const (
	// baseConnections are open already when the growth is measured, so that what a proxy
	// sets up once is not divided among the connections.
	baseConnections = 200
	// idleRounds, each with a fresh process: a second measurement in one process would find the memory of the first.
	idleRounds = 3
	settle     = 3 * time.Second // from the last request to the reading
)

// runIdle measures resident memory per idle connection.
func (b *bench) runIdle(secure bool) error {
	var all []*series
	for _, name := range b.contenders {
		all = append(all, &series{label: name})
	}
	for round := range min(idleRounds, b.settings.rounds) {
		for _, i := range order(len(all), round) {
			kib, err := b.idleMemory(all[i].label, secure)
			if err != nil {
				return fmt.Errorf("%s: %w", all[i].label, err)
			}
			all[i].values = append(all[i].values, kib)
		}
	}
	title := "idle connection"
	if secure {
		title = "idle TLS connection"
	}
	b.printIdle(title, all)
	b.summarize(title, "KiB", all)
	return nil
}

// idleMemory is the growth in KiB per connection of one fresh process.
func (b *bench) idleMemory(name string, secure bool) (kib float64, err error) {
	c, err := b.start(name, variant{})
	if err != nil {
		return 0, err
	}
	if err := b.verify([]*contender{c}); err != nil {
		return 0, err
	}
	base, err := b.openIdle(c, secure, baseConnections)
	if err != nil {
		return 0, err
	}
	before, err := b.settled(c)
	if err != nil {
		return 0, err
	}
	idle, err := b.openIdle(c, secure, b.idle)
	if err != nil {
		return 0, err
	}
	after, err := b.settled(c)
	if err != nil {
		return 0, err
	}
	// The holders end with an error when a connection did not stay open.
	for _, t := range []*roleProcess{base, idle} {
		if err := t.finish(); err != nil {
			return 0, err
		}
	}
	return float64(after-before) / 1024 / float64(b.idle), c.stop()
}

// openIdle opens connections, each after one request, and leaves them idle.
func (b *bench) openIdle(c *contender, secure bool, connections int) (*roleProcess, error) {
	t := traffic{request: getSmall, bodySize: origin.SmallBody, secure: secure}
	spec := t.spec(b, c)
	spec.Connections = connections
	role, err := b.startRole("role-hold", spec)
	if err != nil {
		return nil, err
	}
	var opened int
	return role, role.answer(&opened)
}

// settled is the resident memory after a time of rest.
func (b *bench) settled(c *contender) (int64, error) {
	select {
	case <-time.After(settle):
	case <-b.ctx.Done():
		return 0, b.ctx.Err()
	}
	return proc.Resident(c.pids)
}
