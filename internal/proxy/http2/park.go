package http2

import (
	"errors"
	"time"

	"github.com/moongate-dev/moongate/internal/proxy/http2/head"
)

// ErrParked means that Serve has returned because the connection is parked, see Options.ParkAfter. The connection continues when
// Serve is called again, without prior bytes, and does nothing until then. Serve must be called when the client has
// sent something or closed the connection, when IdleLeft has passed, or when Woken returns true.
var ErrParked = errors.New("http2: the connection is parked")

// parkDue returns when to call expirePark; 0 if the connection cannot be parked now.
func (c *Conn) parkDue() int64 {
	if c.o.ParkAfter <= 0 || c.client != nil || len(c.streams) > 0 || c.draining != drainNot || !c.answered || c.unfinished() {
		return 0
	}
	return max(c.readAt, c.idleAt, c.parkFrom) + c.o.ParkAfter.Milliseconds()
}

// expirePark ends Serve, and keeps only the memory that is needed to continue. The last read has found nothing, so no
// data waits within nc.
func (c *Conn) expirePark() (bool, error) {
	if c.writing || c.broken || c.hasOutput() || c.unwritten.memory != nil {
		c.parkFrom = c.now
		return false, nil
	}
	c.workers.stop(c.workers.n)
	c.in.shrink()
	littleBuffers.Put((*[littleBuffer]byte)(c.in.small))
	c.in = readBuffer{}
	if c.decoder != nil {
		c.releaseInput()
	}
	c.closed.shrink()
	c.disarmWrite()
	if c.queue.Empty() { // as it is without streams
		queues.Put(c.queue)
	}
	c.queue, c.streams, c.out, c.block.section, c.block.part = nil, nil, nil, head.Section{}, nil
	return true, ErrParked
}

// begunField is the beginning of a field.
var begunField = []byte{0}

// releaseInput makes the decoder, between blocks, no longer point to its last input, which would keep a whole buffer
// from being collected.
func (c *Conn) releaseInput() {
	c.decoder.Write(begunField) //nolint:errcheck // the field is incomplete
	c.decoder.Close()           //nolint:errcheck // reports that the field is incomplete, and drops it
	c.decoder.Close()           //nolint:errcheck // begins the next block
}

// NeverPark prevents the connection from being parked again, because only Serve can wait for what the client sends.
func (c *Conn) NeverPark() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.o.ParkAfter = 0
}

// Woken reports whether a parked connection has something to do: it was asked to end. It may be called from any
// goroutine.
func (c *Conn) Woken() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.woken
}

// IdleLeft returns how much of Timeouts.Idle is left for a parked connection; 0 if nothing.
func (c *Conn) IdleLeft() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return max(0, c.o.Timeouts.Idle-time.Duration(c.clock()-c.idleAt)*time.Millisecond)
}
