package http2

import (
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"time"

	"github.com/moongate-dev/moongate/internal/proxy/http2/frame"
	"github.com/moongate-dev/moongate/internal/proxy/http2/writesched"
)

const (
	littleBuffer = 512     // bytes; larger than anything that must be complete
	answerBuffer = 4 << 10 // for connections to backends, which are few: a small response fits
)

// gRPC servers end a connection after a third PING within 5 minutes, unless they have sent something on a stream
// meanwhile.
const quickPings, slowPing = 2, 5*60_000 + 15_000 // ms

// draining is the progress of Drain.
type draining uint8

const (
	drainNot       draining = iota
	drainAnnounced          // the first GOAWAY was sent
	drainRefuse             // the second GOAWAY was sent
)

// watch is what the reader waits for and since when; times are by Conn.clock.
type watch struct {
	now       int64 // when the reader last returned from reading
	armed     int64 // the read deadline of nc; -1 if unknown
	woken     bool  // wakeReader was called
	brokenAt  int64 // when a write to a backend failed
	busyAt    int64 // when this side opened a stream while there was no other
	pinged    bool  // a PING waits for its answer, or for anything else
	pingAt    int64
	suspendAt int64 // when expireSuspend is due; 0 means never
	parkFrom  int64 // when Serve was called, or when the connection could not be parked
	pings     int   // number of PINGs sent since the peer last began a message or part of one
	beginAt   int64 // since when the current frame or block is incomplete
	beginOf   int64 // which frame or block that is, by input.frames

	greeted  bool // the peer's SETTINGS have arrived
	answered bool // the peer has acknowledged the SETTINGS of this side

	draining draining
	drainAt  int64
	// refusedAbove is the last stream of the client that is processed according to the second GOAWAY; later ones are
	// ignored. It has no meaning before that.
	refusedAbove uint32
}

// errEnd is the end of a connection that affects no request.
var errEnd = errors.New("http2: end")

var longAgo = time.Unix(1, 0)

// read reads and processes frames. The error is nil if the client is to be sent a regular end.
func (c *Conn) read(prior []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.clock()
	c.parkFrom = c.now
	if c.in.small == nil {
		c.in = newReadBuffer(littleBuffers.Get().(*[littleBuffer]byte)[:])
	}
	if c.queue == nil {
		c.queue = queues.Get().(*writesched.Scheduler[Stream])
	}
	n, err := c.consume(prior)
	if err != nil {
		return err
	}
	c.in.held(copy(c.in.space(), prior[n:]))
	for {
		c.woken = false
		if c.ended {
			return c.cause
		}
		if c.draining == drainRefuse && len(c.streams) == 0 && !(c.client == nil && c.block.open && c.block.kind == blockHeader) { // GOAWAY promises that the request which has begun is processed
			return nil
		}
		if len(c.out) > maxControl {
			return connError(EnhanceYourCalm, "answers are not read")
		}
		if c.client != nil {
			c.client.notifyFreed()
		}
		c.pushAside()
		if c.woken { // while mu was released
			continue
		}
		due, expire := c.due()
		if due <= c.now {
			if end, err := expire(c); end || err != nil {
				return err
			}
			continue
		}
		if err := c.fetch(due); err != nil {
			return err
		}
	}
}

// fetch reads once and processes what arrived.
func (c *Conn) fetch(due int64) error {
	if due < c.armed || c.armed <= c.now {
		c.armed = due
		c.nc.SetReadDeadline(c.start.Add(time.Duration(due) * time.Millisecond))
	}
	n, err := c.readUnlocked()
	c.now = c.clock()
	if n > 0 {
		c.readAt, c.pinged = c.now, false
		n, failed := c.consume(c.in.held(n))
		if failed != nil {
			return failed
		}
		c.in.used(n, c.open > 0 && c.head.Type == frame.Data)
	}
	switch {
	case err == nil || errors.Is(err, os.ErrDeadlineExceeded):
		return nil
	case c.ended:
		return c.cause
	case c.open == 0: // also for a reset: clients close with unread bytes
		return errEnd
	case err == io.EOF:
		return io.ErrUnexpectedEOF
	}
	return err
}

// wakeReader makes the reader check what has changed.
func (c *Conn) wakeReader() {
	c.armed, c.woken = -1, true
	c.nc.SetReadDeadline(longAgo)
}

// due returns when a timeout expires next, and the function to call then, which reports whether the connection ends,
// and with which error.
func (c *Conn) due() (int64, func(*Conn) (bool, error)) {
	t := &c.o.Timeouts
	due, expire := c.idleAt+t.Idle.Milliseconds(), (*Conn).expireIdle
	if c.client != nil { // to check whether streams were opened meanwhile, which does not wake the reader
		due = c.now + t.Ping.Milliseconds()
	}
	switch {
	case c.client != nil && c.client.o.Keepalive.Interval > 0 && !c.pinged:
		due, expire = c.client.nextPing(c.now), (*Conn).expirePing
	case len(c.streams) == 0 && !c.keptAlive():
	case c.pinged:
		due, expire = c.pingAt+t.Pong.Milliseconds(), (*Conn).expirePing
	default:
		due, expire = max(c.readAt, c.busyAt)+t.Ping.Milliseconds(), (*Conn).expirePing
		if c.client != nil && c.pings >= quickPings {
			due = max(due, c.pingAt+slowPing)
		}
	}
	if c.unfinished() {
		if c.beginAt == 0 || c.beginOf != c.frames {
			c.beginAt, c.beginOf = max(c.now, 1), c.frames
		}
		if at := c.beginAt + t.Head.Milliseconds(); at < due {
			due, expire = at, (*Conn).expireHead
		}
	} else {
		c.beginAt = 0
	}
	if at := c.brokenAt + t.Linger.Milliseconds(); c.broken && at < due {
		due, expire = at, (*Conn).expireBroken
	}
	if at := t.SettingsAck.Milliseconds(); !c.answered && at < due {
		due, expire = at, (*Conn).expireSettings
	}
	if at := c.workers.trimDue(c.now, len(c.streams) > 0); at != 0 && at < due && c.client == nil {
		due, expire = at, (*Conn).expireTrim
	}
	if at := c.suspendDue(); at != 0 && at < due {
		due, expire = at, (*Conn).expireSuspend
	}
	if at := c.parkDue(); at != 0 && at < due {
		due, expire = at, (*Conn).expirePark
	}
	if !c.writing && !c.ended && !c.writeLimit.IsZero() {
		if at := c.writeLimit.Sub(c.start).Milliseconds() - t.Write.Milliseconds()/10; at < due { // before the write deadline passes
			due, expire = at, (*Conn).expireWriteLimit
		}
	}
	if at := c.drainAt + t.Drain.Milliseconds(); c.draining == drainAnnounced && at < due {
		due, expire = at, (*Conn).expireDrain
	}
	return due, expire
}

// unfinished reports whether a frame other than DATA, or a header block, is incomplete.
func (c *Conn) unfinished() bool {
	return !c.greeted || c.block.open || c.in.len() > 0 || c.inFrame && c.head.Type != frame.Data
}

func (c *Conn) expireIdle() (bool, error) { return true, nil }

func (c *Conn) expirePing() (bool, error) {
	if c.pinged {
		return true, os.ErrDeadlineExceeded
	}
	c.pinged, c.pingAt = true, c.now
	c.pings++
	if c.client != nil {
		c.client.pingDue = 0
	}
	c.out = frame.AppendPing(c.out, 0, pingOfWatch)
	return false, nil
}

// keptAlive reports whether the answer to a PING is awaited although there is no stream.
func (c *Conn) keptAlive() bool {
	return c.pinged && c.client != nil && c.client.o.Keepalive.Interval > 0
}

// nextPing returns when the next PING of Keepalive is due.
func (cl *Client) nextPing(now int64) int64 {
	if cl.pingDue == 0 {
		k := &cl.o.Keepalive
		jitter := k.Interval / 100 * time.Duration(k.JitterPercent)
		cl.pingDue = now + (k.Interval + rand.N(jitter+1)).Milliseconds()
	}
	return cl.pingDue
}

func (c *Conn) expireHead() (bool, error) {
	return true, connError(ProtocolError, "a frame or header block took too long")
}

func (c *Conn) expireSettings() (bool, error) {
	return true, connError(SettingsTimeout, "SETTINGS are not acknowledged")
}

func (c *Conn) expireWriteLimit() (bool, error) {
	c.disarmWrite()
	return false, nil
}

func (c *Conn) expireBroken() (bool, error) { return true, c.cause }

func (c *Conn) expireTrim() (bool, error) {
	c.workers.trim()
	return false, nil
}

func (c *Conn) expireDrain() (bool, error) {
	c.refuseMore()
	return false, nil
}

// refuseMore is the second step of draining.
func (c *Conn) refuseMore() {
	c.draining, c.refusedAbove = drainRefuse, c.lastID
	c.out = frame.AppendGoAway(c.out, c.lastPeer(), NoError, "")
}
