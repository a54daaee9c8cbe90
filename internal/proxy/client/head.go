package client

import (
	"errors"

	"github.com/moongate-dev/moongate/internal/proxy/http1"
	"github.com/moongate-dev/moongate/internal/proxy/listen"
)

var (
	errHeadTimeout = errors.New("the request head did not arrive in time")
	errHeadEOF     = errors.New("the client closed within a request head")
)

// ended, in place of a head's length, means that the last request was carried out and that the connection takes no
// other.
const ended = -1

// nextHead reads until a request head is at in[r:] and parsed into the exchange. It returns the head's length, or ended
// or parked, or 0 if the connection is to be closed silently, or the error in the head. Requests that never need to
// read from the client again may have been carried out meanwhile.
func (c *Conn) nextHead() (int, error) {
	if c.set.plainIO || !rawIO {
		return c.readHead()
	}
	return c.runRaw()
}

// readHead is nextHead through net.Conn: for systems other than Linux, and for diagnosis.
func (c *Conn) readHead() (int, error) {
	c.beginHead()
	for {
		if n, err := c.parseHead(); err != http1.ErrIncomplete {
			return n, err
		}
		c.makeRoom()
		c.waitForHead()
		n, err := c.nc.Read(c.in[c.w:])
		if !c.leave(&c.wait) {
			if goOn, head, err := c.headExpired(n); !goOn {
				return head, err
			}
		}
		if n > 0 {
			c.arrived(n)
		} else if err != nil && !isTimeout(err) {
			return 0, c.headEnded()
		}
	}
}

// beginHead starts the wait for a request, part of which may have arrived already.
func (c *Conn) beginHead() {
	c.headDeadline, c.fresh = 0, true
	if isEmptyLine(c.in[c.r:c.w]) {
		c.r = c.w
	}
	if c.w > c.r {
		c.headDeadline = c.set.engine.Now() + c.timeouts.Head.Milliseconds()
	}
}

// isEmptyLine reports whether b is exactly one empty line, which does not begin a request: a server ignores it before a
// request line (RFC 9112 section 2.2).
func isEmptyLine(b []byte) bool { return string(b) == "\r\n" }

// parseHead parses the unread bytes. It returns http1.ErrIncomplete if they are not a whole head.
func (c *Conn) parseHead() (int, error) {
	if c.w == c.r || !c.fresh {
		return 0, http1.ErrIncomplete
	}
	c.fresh, c.parsed = false, c.w-c.r
	st := c.http1State()
	return http1.ParseRequest(c.in[c.r:c.w], &st.ex.Request.Request, &st.head, &c.set.engine.Limits)
}

// waitForHead sets the deadline of the next read.
func (c *Conn) waitForHead() {
	if c.headDeadline == 0 {
		if c.until == 0 {
			c.until = c.set.engine.Now() + c.timeouts.Idle.Milliseconds()
		}
		c.wait.set(waitIdle, c.until)
	} else {
		c.wait.set(waitHead, c.headDeadline)
	}
}

// arrived accounts for n bytes read at in[w].
func (c *Conn) arrived(n int) {
	if c.headDeadline == 0 && isEmptyLine(c.in[c.r:c.w+n]) {
		c.w += n
		c.r = c.w
		return // still idle, for no longer than before
	}
	if c.headDeadline == 0 {
		c.until, c.disordered = 0, false
		c.headDeadline = c.set.engine.Now() + c.timeouts.Head.Milliseconds()
		c.http1State().ex.Begin()
		c.fresh = true
	} else if http1.WorthParsing(c.in[c.r:c.w+n], c.parsed, n, &c.set.engine.Limits) {
		c.fresh = true
	}
	if c.w+n == len(c.in) && c.small != nil {
		c.eager = true
	}
	c.w += n
}

// headEnded returns the error for the end of the stream at this point: nil between requests, errHeadEOF within a head.
func (c *Conn) headEnded() error {
	if c.headDeadline == 0 {
		return nil
	}
	return errHeadEOF
}

// headExpired decides what follows a wait that the sweeper has interrupted, when n bytes had arrived: to park the
// connection, to continue because a request arrived just then, or to end the connection. Unless goOn is true, head and
// err are what nextHead must return.
func (c *Conn) headExpired(n int) (goOn bool, head int, err error) {
	if c.headDeadline != 0 {
		return false, 0, errHeadTimeout
	}
	c.mu.Lock()
	idled := c.idled
	c.idled = false
	c.mu.Unlock()
	if n == 0 && !idled && !listen.Readable(c.raw) {
		return false, 0, nil
	}
	c.nc.SetReadDeadline(never)
	c.set.readmit(&c.counted)
	if n == 0 && idled {
		c.releaseAll()
		return false, parked, nil
	}
	return true, 0, nil
}
