//go:build linux

package main

import (
	"fmt"
	"time"

	"github.com/moongate-dev/moongate/test/bench/load"
	"github.com/moongate-dev/moongate/test/bench/origin"
	"github.com/moongate-dev/moongate/test/bench/proc"
)

const (
	// baseConnections are open already when the growth is measured, so that what a proxy
	// sets up once is not divided among the connections.
	baseConnections = 200
	// idleRounds, each with a fresh process: a second measurement in one process would find the memory of the first.
	idleRounds = 3
	settle     = 15 * time.Second // from the last request to the reading
)

// held is what is opened and then left idle.
type held struct {
	title, unit string
	traffic     traffic
	// count is how many are measured, per how many a connection has: its streams, or 1.
	count, per int
}

// idleConnections are connections after one request.
func (b *bench) idleConnections(secure bool) *held {
	h := &held{"idle connection", "connection", traffic{request: getSmall, bodySize: origin.SmallBody, secure: secure}, b.idle, 1}
	if secure {
		h.title = "idle TLS connection"
	}
	return h
}

// tunnels are connections that are forwarded by layer 4, each after one exchange.
func (b *bench) tunnels() *held {
	return &held{"idle TCP tunnel", "tunnel", traffic{request: getSmall, bodySize: origin.SmallBody, variant: variant{Layer4: true}}, b.idle, 1}
}

// watches are calls of gRPC that have had their first message.
func (b *bench) watches() *held {
	return &held{"idle gRPC watch", "watch", traffic{request: callWatch, bodySize: messageSize, http2: true, exchange: load.Watch}, b.settings.watches, maxStreams}
}

// runIdle measures anonymous resident memory of what is idle.
func (b *bench) runIdle(h *held) error {
	var all []*series
	for _, name := range b.contenders {
		if name != floor && !h.traffic.without(name) {
			all = append(all, &series{label: name})
		}
	}
	for round := range min(idleRounds, b.rounds) {
		for _, i := range order(len(all), round) {
			kib, err := b.idleMemory(all[i].label, h)
			if err != nil {
				return fmt.Errorf("%s: %w", all[i].label, err)
			}
			all[i].values = append(all[i].values, kib)
		}
	}
	b.printIdle(h, all)
	b.summarize(h.title, "KiB", all)
	return nil
}

// idleMemory is the growth in KiB for each of one fresh process.
func (b *bench) idleMemory(name string, h *held) (kib float64, err error) {
	c, err := b.start(name, h.traffic.variant)
	if err != nil {
		return 0, err
	}
	if err := h.traffic.verify(b, []*contender{c}); err != nil {
		return 0, err
	}
	base, err := b.openIdle(c, h, baseConnections)
	if err != nil {
		return 0, err
	}
	before, err := b.settled(c, proc.Anonymous)
	if err != nil {
		return 0, err
	}
	idle, err := b.openIdle(c, h, h.count)
	if err != nil {
		return 0, err
	}
	after, err := b.settled(c, proc.Anonymous)
	if err != nil {
		return 0, err
	}
	// The holders end with an error when a connection did not stay open.
	for _, t := range []*roleProcess{base, idle} {
		if err := t.finish(); err != nil {
			return 0, err
		}
	}
	return float64(after-before) / 1024 / float64(h.count), c.stop()
}

// openIdle opens count of what h says and leaves them idle.
func (b *bench) openIdle(c *contender, h *held, count int) (*roleProcess, error) {
	spec := h.traffic.spec(b, c)
	spec.Connections = count / h.per
	if h.traffic.http2 {
		spec.Streams = h.per
	}
	role, err := b.startRole("role-hold", b.loadCPU, spec)
	if err != nil {
		return nil, err
	}
	var opened int
	return role, role.answer(&opened)
}

// settled is what memory says of the contender after a time of rest.
func (b *bench) settled(c *contender, memory func([]int) (int64, error)) (int64, error) {
	select {
	case <-time.After(settle):
	case <-b.ctx.Done():
		return 0, b.ctx.Err()
	}
	return memory(c.pids)
}
