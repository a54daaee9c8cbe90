//go:build !linux

package upstream

import "github.com/moongate-dev/moongate/internal/proxy/socket"

// roundTrip has no state on this system.
type roundTrip struct{}

// WriteRead writes head and body, which may be nil, and reads the first bytes of the response. An error of the write is
// not returned: if the response cannot be read either, that error is. If a reused connection is not Alive, it returns
// ErrStale and writes nothing.
func (c *Conn) WriteRead(head, body []byte, b Buffer) (int, error) {
	return c.writeReadPlain(head, body, b)
}

// ReadMore reads what has already arrived, without waiting. On this system it always returns 0.
func (c *Conn) ReadMore([]byte) int { return 0 }

// ReadInto waits for more of a response.
func (c *Conn) ReadInto(b Buffer) (int, error) { return c.Conn.Read(b.Take()) }

// readsNow reports that readNow works on this system.
const readsNow = false

// readNow always returns socket.ErrNothingYet.
func (c *Conn) readNow([]byte) (int, error) { return 0, socket.ErrNothingYet }

// writeNow writes nothing, because there are no writes without waiting.
func (c *Conn) writeNow([]byte) int { return 0 }
