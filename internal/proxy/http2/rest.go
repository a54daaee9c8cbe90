package http2

import (
	"errors"
	"time"

	"github.com/moongate-dev/moongate/internal/proxy/http2/head"
)

// ErrRests is that Serve has returned because the connection rests, see Options.Rest. It goes on when Serve is called again, without anything read before, and does nothing
// until then: that is to be when the client has sent something or closed the connection, when IdleLeft is over, or when Woken reports true.
var ErrRests = errors.New("http2: the connection rests")

// restDue returns when to call expireRest; 0 while that is out of the question.
func (c *Conn) restDue() int64 {
	if c.o.Rest <= 0 || c.client != nil || len(c.streams) > 0 || c.draining != drainNot || !c.answered || c.unfinished() {
		return 0
	}
	return max(c.readAt, c.idleAt, c.restFrom) + c.o.Rest.Milliseconds()
}

// expireRest ends Serve, with no more memory than is needed to go on. The last read has found nothing, so nothing waits within nc.
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

// releaseInput has the decoder not point any more to what it was given last, between blocks: that would keep a whole buffer from being
// collected.
func (c *Conn) releaseInput() {
	c.decoder.Write(begunField) //nolint:errcheck // more is to come
	c.decoder.Close()           //nolint:errcheck // it tells that no more has come, and drops the field
	c.decoder.Close()           //nolint:errcheck // the next block begins
}

// StayAwake has the connection rest no more: nobody can wait for what the client sends but Serve.
func (c *Conn) StayAwake() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.o.Rest = 0
}

// Woken reports whether a connection that rests has something to do: it was told to end. It may be called from any goroutine.
func (c *Conn) Woken() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.woken
}

// IdleLeft is how much is left of Timeouts.Idle of a connection that rests, 0 for nothing.
func (c *Conn) IdleLeft() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return max(0, c.o.Timeouts.Idle-time.Duration(c.clock()-c.idleAt)*time.Millisecond)
}
