package http2

import (
	"bytes"
	"net"
	"slices"
	"time"
	"unsafe"

	"golang.org/x/net/http2/hpack"

	"github.com/moongate-dev/moongate/internal/proxy/http2/encode"
)

// Dormant is what remains of a parked connection whose Conn and network connection have been released, until Wake.
type Dormant struct {
	enduring
	tableSizeSent bool   // see Conn.tableSizeSent
	table         []byte // a header block that gives a new decoder the dynamic table
}

// enduring is what a connection must not forget while it is dormant. Times are by Conn.clock.
type enduring struct {
	start  time.Time
	readAt int64 // when bytes last arrived
	idleAt int64 // when the last handler returned

	lastID    uint32 // the highest number that the client, whichever side it is, has used
	tableSize uint32 // of the dynamic table for what the peer sends, by its last update, in bytes
	closed    closedStreams

	controls, resets floodLimiter

	recvWindow int // what the peer may still send
	consumed   int // bytes processed but not yet returned by WINDOW_UPDATE
	// initialWindow is what may be sent on new streams.
	initialWindow, sendWindow int
}

// CanBeDormant reports whether a parked connection can become dormant unless it is woken: it is not within a frame, and
// waits for no answer to a PING.
func (c *Conn) CanBeDormant() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.canBeDormant()
}

func (c *Conn) canBeDormant() bool { return !c.inFrame && !c.pinged }

// GoDormant releases a parked connection: c must not be used afterwards, and the returned record continues it. It
// returns nil if the connection is woken or cannot be dormant; then it remains parked.
func (c *Conn) GoDormant() *Dormant {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.woken || c.ended || !c.canBeDormant() {
		return nil
	}
	c.ended = true // so that Drain and EndIfIdle have no effect if another goroutine still calls them
	c.closed.forgetEnded()
	return &Dormant{c.enduring, c.tableSizeSent.Load(), c.dynamicTable()}
}

// Held returns how many bytes the record holds besides itself. The client determines it, by what it puts into the dynamic
// table and how many streams it has reset.
func (d *Dormant) Held() int {
	return cap(d.table) + cap(d.closed.streams)*int(unsafe.Sizeof(closedStream{}))
}

// Wake returns a parked connection that continues a dormant one over nc. o and handle are as in New.
func (d *Dormant) Wake(nc net.Conn, o Options, handle func(*Stream)) *Conn {
	c := newServer(nc, o, handle)
	c.prefaced, c.greeted, c.answered = len(Preface), true, true
	c.enduring = d.enduring
	c.tableSizeSent.Store(d.tableSizeSent)
	if len(d.table) > 0 {
		c.decoder = c.newDecoder()
		c.decoder.SetEmitEnabled(false)
		if _, err := c.decoder.Write(d.table); err != nil || c.decoder.Close() != nil {
			panic("http2: the dynamic table of a dormant connection cannot be restored")
		}
		c.decoder.SetEmitEnabled(true)
	}
	return c
}

// dynamicTable returns a header block that gives a new decoder the same dynamic table, which package hpack shows only by
// decoding indexes. The decoder must not be used afterwards.
func (c *Conn) dynamicTable() (block []byte) {
	if c.decoder == nil {
		return nil
	}
	var fields []hpack.HeaderField // from the newest on
	c.decoder.SetEmitFunc(func(f hpack.HeaderField) { fields = append(fields, f) })
	var b [8]byte
	for i := encode.FirstDynamic; ; i++ {
		if _, err := c.decoder.Write(encode.AppendIndexed(b[:0], i)); err != nil {
			break // there is no such field
		}
	}
	if c.tableSize != headerTable {
		block = encode.AppendTableSize(block, int(c.tableSize))
	}
	for _, f := range slices.Backward(fields) {
		block = encode.AppendInserted(block, f.Name, f.Value)
	}
	return bytes.Clone(block) // without room for more
}
