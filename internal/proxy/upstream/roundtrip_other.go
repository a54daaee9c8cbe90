//go:build !linux

package upstream

// roundTrip has no state on this system.
type roundTrip struct{}

// WriteRead writes head and body, which may be nil, and reads the first bytes of what comes back.
// An error of the write is not reported: if the response cannot be read either, that is. A
// reused connection that is not Alive gives ErrStale, and nothing is written.
func (c *Conn) WriteRead(head, body []byte, b Buffer) (int, error) {
	return c.writeReadPlain(head, body, b)
}

// ReadMore reads what has come already, without waiting; here nothing ever has.
func (c *Conn) ReadMore([]byte) int { return 0 }

// ReadInto waits for more of a response.
func (c *Conn) ReadInto(b Buffer) (int, error) { return c.Conn.Read(b.Take()) }

// readsNow tells that readNow knows whether anything has come.
const readsNow = false

// readNow never knows that anything has come.
func (c *Conn) readNow([]byte) (int, error) { return 0, errNothingYet }

// writeNow writes nothing: the system cannot be asked not to wait.
func (c *Conn) writeNow([]byte) int { return 0 }
