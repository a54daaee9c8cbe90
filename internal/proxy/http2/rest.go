package http2

import (
	"errors"
	"time"

	"github.com/moongate-dev/moongate/internal/proxy/http2/head"
)

// ErrRests means that Serve has returned because the connection rests, see Options.Rest. The connection continues when
// Serve is called again, without prior bytes, and does nothing until then. Serve must be called when the client has
// sent something or closed the connection, when IdleLeft has passed, or when Woken returns true.
var ErrRests = errors.New("http2: the connection rests")

// restDue returns when to call expireRest; 0 if the connection cannot rest now.
func (c *Conn) restDue() int64 {
	if c.o.Rest <= 0 || c.client != nil || len(c.streams) > 0 || c.draining != drainNot || !c.answered || c.unfinished() {
		return 0
	}
	return max(c.readAt, c.idleAt, c.restFrom) + c.o.Rest.Milliseconds()
}

// expireRest ends Serve, and keeps only the memory that is needed to continue. The last read has found nothing, so no
// data waits within nc.
func (c *Conn) expireRest() (bool, error) {
	if c.writing || c.broken || c.hasOutput() || c.rest.memory != nil {
		c.restFrom = c.now
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
	c.streams, c.out, c.block.section, c.block.part = nil, nil, head.Section{}, nil
	return true, ErrRests
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

// StayAwake prevents the connection from resting again, because only Serve can wait for what the client sends.
func (c *Conn) StayAwake() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.o.Rest = 0
}

// Woken reports whether a resting connection has something to do: it was asked to end. It may be called from any
// goroutine.
func (c *Conn) Woken() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.woken
}

// IdleLeft returns how much of Timeouts.Idle is left for a resting connection; 0 if nothing.
func (c *Conn) IdleLeft() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return max(0, c.o.Timeouts.Idle-time.Duration(c.clock()-c.idleAt)*time.Millisecond)
}
