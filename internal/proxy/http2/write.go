package http2

import (
	"errors"
	"math"
	"os"
	"runtime"
	"sync"
	"time"

	"github.com/moongate-dev/moongate/internal/proxy/http2/encode"
	"github.com/moongate-dev/moongate/internal/proxy/http2/frame"
	"github.com/moongate-dev/moongate/internal/proxy/message"
)

// batchSize is the largest size of one write, except for larger heads. A frame of the largest size and the largest part
// read from a backend fit.
const (
	batchSize = 80 << 10
	fullBatch = batchSize - 2*frame.HeaderLen // a batch of this size takes no further frame
)

var batches = sync.Pool{New: func() any { return new([batchSize]byte) }}

var errOrder = errors.New("http2: response written out of order")

// WriteInformational sends a 1xx head at once.
func (s *Stream) WriteInformational(status int, fields *message.Fields) error {
	if s.headSet {
		return errOrder
	}
	s.head = encode.AppendSection(s.head, s.id, status, fields, -1, false, !s.c.tableSizeSent.Load())
	return s.Flush()
}

// WriteHead sets the final response head, with Content-Length unless it is -1. Names are sent in lower case;
// connection-specific fields are left out. With end there is no body, and the head is sent at once; otherwise it waits
// for Write or Flush, to be sent together with the data. fields may be changed after it returns.
func (s *Stream) WriteHead(status int, fields *message.Fields, contentLength int64, end bool) error {
	if s.headSet {
		return errOrder
	}
	s.headSet = true
	s.head = encode.AppendSection(s.head, s.id, status, fields, contentLength, end, !s.c.tableSizeSent.Load())
	s.headEnds = end
	if end {
		return s.Flush()
	}
	return nil
}

// Write sends a part of the body, which may be empty. end means that it is the last one. When it returns, p is not used
// any more: flow control has let all of it through, and it is written or is part of the next write of the connection,
// of at most 80 KiB. If part of it was not sent, it returns an error: os.ErrDeadlineExceeded after Timeouts.Write or
// the timeout of SetWriteTimeout, *ResetError, or ErrClosed.
func (s *Stream) Write(p []byte, end bool) error {
	if !s.headSet || s.headEnds || s.end {
		return errOrder
	}
	s.end = end
	return s.send(p)
}

// WriteTrailers ends the response with trailer fields. If there are none, it is like Write(nil, true).
func (s *Stream) WriteTrailers(fields *message.Fields) error {
	if fields == nil || fields.Len() == 0 {
		return s.Write(nil, true)
	}
	if !s.headSet || s.headEnds || s.end {
		return errOrder
	}
	s.tail = encode.AppendSection(s.tail, s.id, 0, fields, -1, true, !s.c.tableSizeSent.Load())
	s.end = true
	return s.send(nil)
}

// Flush sends a waiting head.
func (s *Stream) Flush() error { return s.send(nil) }

// send puts all of the stream's data into a batch, and waits until that is done. If another goroutine is the writer, it
// sends the data with the next write.
func (s *Stream) send(p []byte) error {
	c := s.c
	c.mu.Lock()
	defer c.unlock()
	if s.err != nil {
		return s.err
	}
	if s.isInterrupted(interruptedWrites) {
		return os.ErrDeadlineExceeded
	}
	s.data, s.pending, s.answered = p, true, s.headSet
	c.queue.Add(&s.entry, s.short())
	if c.writing {
		c.gather()
	} else {
		c.writing = true
		c.write(s, writesOfStream)
	}
	return s.flushed()
}

// flushed waits until the connection's writer has taken all of the stream's data, or becomes the writer.
func (s *Stream) flushed() error {
	c := s.c
	var deadline time.Time // the clock is only read to wait
	for s.pending && s.unwritable() == nil {
		if s.of != nil {
			deadline = s.readDeadline
		} else if deadline.IsZero() {
			deadline = time.Now().Add(s.writeTimeout)
		}
		s.waiting = true
		ok := s.writable.wait(&c.mu, deadline)
		s.waiting = false
		if s.lead {
			s.lead = false
			c.write(s, writesOfStream)
		} else if !ok {
			break
		}
	}
	if !s.pending {
		return nil
	}
	s.entry.Leave()
	s.data, s.pending = nil, false
	if err := s.unwritable(); err != nil {
		return err
	}
	return os.ErrDeadlineExceeded
}

// short reports whether one frame ends the stream.
func (s *Stream) short() bool {
	return (s.end || s.headEnds) && len(s.data) <= frame.MaxPayload
}

// unwritable returns why nothing more is written, nil if writing is possible.
func (s *Stream) unwritable() error {
	switch {
	case s.err != nil:
		return s.err
	case s.isInterrupted(interruptedWrites):
		return os.ErrDeadlineExceeded
	}
	return s.stopped
}

func (c *Conn) hasOutput() bool {
	return len(c.out) > 0 || len(c.gathered) > 0 || c.queue.Front() != nil
}

// push writes what waits, on a goroutine that may wait for the client to take it.
func (c *Conn) push() {
	if !c.writing && c.hasOutput() {
		c.writing = true
		c.write(nil, writesOfStream)
	}
}

// pushAside is like push, for the reader and other goroutines that must never wait for the client.
func (c *Conn) pushAside() {
	if c.writing || c.ended || !c.hasOutput() {
		return
	}
	c.writing = true
	if c.direct != nil {
		c.writeDirect()
		return
	}
	if s := c.queue.Front(); s != nil && c.client == nil {
		s.lead = true
		s.writable.send()
		return
	}
	c.asides.Add(1)
	go c.aside()
}

func (c *Conn) writeAside() {
	defer c.asides.Done()
	defer func() {
		if v := recover(); v != nil {
			c.report(v)
		}
	}()
	c.mu.Lock()
	defer c.unlock()
	if c.unwritten.memory != nil {
		c.writeUnwritten()
	}
	c.write(nil, math.MaxInt)
}

// writesOfStream is how many writes a stream's goroutine makes when it has no more data of its own.
const writesOfStream = 1

// write makes this goroutine the connection's writer until all data of own is taken, or there is nothing to write. Then
// a waiting stream's goroutine takes over, or another goroutine after the given number of writes. mu must be held; it
// is released during writes.
func (c *Conn) write(own *Stream, writes int) {
	written := false
	defer c.endWriting(&written)
	for !c.broken && c.hasOutput() {
		if own == nil || !own.entry.Waits() || c.queue.Starved(&own.entry) {
			if c.handOver(writes) {
				written = true
				return
			}
			writes--
		}
		c.yield()
		c.gather()
		batch, memory := c.gathered, c.gathering
		c.gathered, c.gathering = nil, nil
		c.armWrite()
		n, err := c.writeUnlocked(batch)
		batches.Put(memory)
		c.written(n, err)
	}
	if c.gathering != nil { // the connection is broken
		batches.Put(c.gathering)
		c.gathered, c.gathering = nil, nil
	}
	written, c.writing = true, false
	c.idle.Broadcast()
}

// handOver makes another goroutine the writer: that of a stream that waits for its turn or, if the writes are used up,
// one that does nothing else.
func (c *Conn) handOver(writes int) bool {
	if next := c.queue.Front(); next != nil && c.client == nil {
		next.lead = true
		next.writable.send()
		return true
	}
	if writes > 0 {
		return false
	}
	c.asides.Add(1)
	go c.aside()
	return true
}

// yield lets other runnable streams add their data to the next write: one record and one system call for all of them
// cost little more than for one. If there are none, it returns at once.
func (c *Conn) yield() {
	if len(c.streams) > 1 && len(c.gathered) < batchSize/2 {
		c.mu.Unlock()
		runtime.Gosched()
		c.mu.Lock()
	}
}

// gather moves what can be written now into the next write, as far as there is room.
func (c *Conn) gather() {
	if c.gathering == nil {
		c.gathering = batches.Get().(*[batchSize]byte)
		c.gathered = c.gathering[:0]
	}
	if len(c.gathered) < fullBatch { // otherwise control frames would make it grow
		c.gathered = c.fill(c.gathered)
	}
}

// unwritten is what a direct write has left of a batch.
type unwritten struct {
	b      []byte
	memory *[batchSize]byte // the array of the batch; nil if nothing is left
}

// directWrites is how many writes a goroutine makes that must not wait.
const directWrites = 4

// writeDirect is like write, but never waits for the peer: a goroutine writes what the socket does not take. mu must be
// held; it is released during writes.
func (c *Conn) writeDirect() {
	written := false
	defer c.endWriting(&written)
	for writes := directWrites; !c.broken && c.hasOutput(); writes-- {
		if writes == 0 { // other streams keep adding data, and this goroutine has something else to do
			c.asides.Add(1)
			go c.aside()
			written = true
			return
		}
		c.yield()
		memory := batches.Get().(*[batchSize]byte)
		batch := c.fill(memory[:0])
		n, err := c.directUnlocked(batch)
		if err == nil && n < len(batch) {
			c.wrote += int64(n)
			c.unwritten = unwritten{batch[n:], memory}
			c.asides.Add(1)
			go c.aside()
			written = true
			return
		}
		batches.Put(memory)
		c.written(n, err)
	}
	written, c.writing = true, false
	c.idle.Broadcast()
}

func (c *Conn) writeUnwritten() {
	written := false
	defer c.endWriting(&written)
	r := c.unwritten
	c.unwritten = unwritten{}
	c.armWrite()
	n, err := c.writeUnlocked(r.b)
	batches.Put(r.memory)
	c.written(n, err)
	written = true
}

// written records the result of a write.
func (c *Conn) written(n int, err error) {
	c.wrote += int64(n)
	c.writeBegan = 0
	if err == nil {
		return
	}
	c.broken = true
	if c.client != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		c.client.cannotWrite(err)
	} else {
		c.endAllStreams(err)
	}
	c.wakeReader()
}

// armWrite sets the time by which the client must have taken a batch. Moving the deadline is expensive, so it is only
// done when a tenth of it has passed.
func (c *Conn) armWrite() {
	limit := c.o.Timeouts.Write
	if c.ended {
		limit = c.o.Timeouts.Linger
	}
	now := time.Now()
	c.writeBegan = now.UnixMilli()
	if c.ended || c.writeLimit.Sub(now) < limit-limit/10 {
		c.writeLimit = now.Add(limit)
		c.nc.SetWriteDeadline(c.writeLimit)
	}
}

// disarmWrite removes the deadline of the last write, unless something is being written. crypto/tls writes while it
// reads, to answer a KeyUpdate (RFC 8446 section 4.6.3), and would fail with a deadline that has passed.
func (c *Conn) disarmWrite() {
	if !c.writing && !c.ended && !c.writeLimit.IsZero() {
		c.writeLimit = time.Time{}
		c.nc.SetWriteDeadline(c.writeLimit)
	}
}

// fill appends control frames, and then a frame from each ready stream in turn.
func (c *Conn) fill(b []byte) []byte {
	c.filled -= int64(len(b)) // they were counted when they were added
	b = append(b, c.out...)
	c.out = c.out[:0]
	for len(b) < fullBatch {
		s := c.queue.Front()
		if s == nil {
			break
		}
		c.queue.Serve(&s.entry)
		b = c.take(s, b)
	}
	c.filled += int64(len(b))
	return b
}

// take appends what the stream may send in its turn, and determines its next place.
func (c *Conn) take(s *Stream, b []byte) []byte {
	if len(s.head) > 0 {
		b = append(b, s.head...)
		s.head, s.unsent, s.headEnd = s.head[:0], false, c.filled+int64(len(b))
		c.tableSizeSent.Store(true)
		if s.headEnds {
			c.endLocal(s)
		}
	}
	n := min(len(s.data), frame.MaxPayload, s.sendWindow, c.sendWindow, batchSize-frame.HeaderLen-len(b))
	n = max(n, 0)
	rest := len(s.data) - n
	last := s.end && rest == 0 && len(s.tail) == 0 && !s.localEnded
	if n > 0 || last {
		var flags uint8
		if last {
			flags = frame.FlagEndStream
		}
		b = frame.AppendHeader(b, n, frame.Data, flags, s.id)
		b = append(b, s.data[:n]...)
		s.data = s.data[n:]
		s.sendWindow -= n
		c.sendWindow -= n
		s.dataSent += int64(n)
		// Peers may return window for each frame, or for each small read of it, so data that is sent in small frames
		// leads to small updates. But a tiny window must not lead to a trickle of frames.
		if rest == 0 || n >= earningData {
			c.controls.earn(3 + int64(n)/bytesPerControl)
		}
	}
	if rest == 0 && len(s.tail) > 0 {
		b = append(b, s.tail...)
		s.tail = s.tail[:0]
		last = true
	}
	if last {
		c.endLocal(s)
	}
	switch {
	case rest == 0:
		s.data, s.pending = nil, false
		if s.waiting {
			s.writable.send()
		}
	case s.sendWindow <= 0:
	case c.sendWindow <= 0:
		c.queue.Starve(&s.entry, s.short())
	default:
		c.queue.Again(&s.entry)
	}
	return b
}
