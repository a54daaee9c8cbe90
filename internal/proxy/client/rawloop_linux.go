package client

import (
	"io"
	"net"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/moongate-dev/moongate/internal/proxy/exchange"
	"github.com/moongate-dev/moongate/internal/proxy/http1"
	"github.com/moongate-dev/moongate/internal/proxy/socket"
	"github.com/moongate-dev/moongate/internal/proxy/tls"
)

// rawIO reports that connections can be run by runRaw on this system.
const rawIO = true

// methods holds methods of a Conn as functions, each of which is an allocation.
type methods struct {
	start func()
	step  func(fd uintptr) bool // rawStep
}

func (c *Conn) bind() methods { return methods{c.start, c.rawStep} }

// rawLoop is the state of runRaw.
type rawLoop struct {
	waiting bool // the last step ended with a wait
	expired bool // the sweeper has interrupted the wait
	inside  bool // a step is running, on fd
	fd      uintptr
	drained bool // wire.Read took all that had arrived since the step began
	short   bool // drained is known from a short read, after which the end of the stream may still follow
	records records
	ended   bool // wire.Read has reached the end of the client's stream
	apart   bool // TLS writes only outside of steps, see writingApart
	head    int  // result of runRaw
	err     error
	upload  upload
}

// upload is the state of readSocket and readRecords. It belongs to the uploading goroutine.
type upload struct {
	step, ofTunnel func(fd uintptr) bool // of readSocket and readRecords, bound once per connection: it may have uploads and then become a tunnel
	into           exchange.Buffer
	n              int
	err            error         // result of readSocket
	errno          syscall.Errno // result of readRecords
	// looking shows wire.Read that a step is running, on fd.
	looking bool
	fd      uintptr
}

// readSocket reads more of a body, outside of a step of runRaw. It holds no buffer while it waits, with or without TLS.
func (c *Conn) readSocket(b exchange.Buffer) (int, error) {
	u := &c.loop.upload
	if u.step == nil {
		u.step = func(fd uintptr) bool {
			u.n, u.err = c.readUpload(fd, u.into.Take())
			if u.n == 0 && u.err == socket.ErrNothingYet {
				u.into.Give()
				return false
			}
			return true
		}
	}
	u.into = b
	err := c.raw.Read(u.step)
	u.into = nil
	if err != nil {
		return 0, err
	}
	return u.n, u.err
}

// readUpload reads what has already arrived, or returns socket.ErrNothingYet.
func (c *Conn) readUpload(fd uintptr, into []byte) (int, error) {
	if c.nc == net.Conn(c.tcp) {
		return receive(fd, into)
	}
	u := &c.loop.upload
	u.looking, u.fd = true, fd
	defer func() { u.looking = false }()
	return c.nc.Read(into)
}

// runRaw is nextHead without net.Conn: one RawConn.Read lasts until a request needs to be run outside of it. Within it
// the poller stays armed, so that a read that took everything need not be repeated before the wait, and the system
// calls are raw because the socket does not block. Within a step nothing may read from or close the connection through
// net.Conn, because the poller's lock is held. So a request whose body has not arrived completely is returned to be run
// outside.
func (c *Conn) runRaw() (int, error) {
	l := &c.loop
	c.beginHead()
	for {
		l.waiting, l.expired, l.head, l.err = false, false, 0, nil
		err := c.raw.Read(c.methods.step)
		if l.waiting { // the wait failed: a deadline passed, or the connection was cut
			l.expired = !c.leave(&c.wait)
		}
		switch {
		case l.expired:
			if goOn, head, err := c.headExpired(0); !goOn {
				return head, err
			}
			continue
		case err != nil:
			return 0, c.headEnded()
		}
		return l.head, l.err
	}
}

// rawStep runs requests until there is nothing to read. It returns false to wait for more.
func (c *Conn) rawStep(fd uintptr) bool {
	l := &c.loop
	l.inside, l.fd, l.drained = true, fd, false
	defer func() { l.inside = false }()
	if l.waiting {
		l.waiting = false
		if !c.leave(&c.wait) {
			l.expired = true
			return true
		}
	}
	for {
		if c.runBuffered() {
			return true
		}
		c.makeRoom()
		room := c.in[c.w:]
		first := !c.served
		n, errno := c.readStep(room)
		switch {
		case errno == unix.EAGAIN:
			n = 0
		case errno != 0, n == 0:
			l.err = c.headEnded()
			return true
		default:
			c.arrived(n)
			if c.runBuffered() {
				return true
			}
		}
		// A short read took everything, and the poller reports what arrives next. It may already have reported the end
		// of the stream. So within a head, and after the first request, whose client may have no other, another read
		// looks for the end; later the idle poller finds it.
		again := c.headDeadline != 0 || first
		if errno == 0 && (again || n == len(room) || c.nc != net.Conn(c.tcp) && !(l.drained && l.records.usedUp())) {
			l.drained = l.drained && !again // TLS itself may hold more
			continue
		}
		if c.r == c.w {
			c.releaseMemory()
		} else {
			c.makeRoom()
		}
		c.waitForHead()
		l.waiting = true
		return false
	}
}

// runBuffered runs the requests that have arrived completely. It returns true to end the step, with the reason in l.
func (c *Conn) runBuffered() bool {
	l := &c.loop
	for {
		n, err := c.parseHead()
		if err == http1.ErrIncomplete {
			return false
		}
		l.head, l.err = n, err
		if err != nil || !c.isWhole(n) {
			return true
		}
		if keep, _ := c.run(n); !keep { // it is no tunnel, see isWhole
			l.head = ended
			return true
		}
		l.head = 0
		c.beginHead()
	}
}

// readStep reads within a step, from TLS or the socket. EAGAIN means that nothing has arrived.
func (c *Conn) readStep(into []byte) (int, syscall.Errno) {
	if c.nc == net.Conn(c.tcp) {
		return socket.Receive(c.loop.fd, into)
	}
	n, err := c.nc.Read(into)
	switch {
	case n > 0 || err == io.EOF:
		if n < len(into) {
			c.loop.records.took()
		}
		return n, 0
	case err == socket.ErrNothingYet:
		c.loop.records.drained()
		return 0, unix.EAGAIN
	}
	return 0, unix.EIO
}

// wire is the connection below TLS: the socket itself, or within a step the socket without waiting.
type wire struct {
	*socket.Conn
	c        *Conn
	demanded *tls.Clients // client certificate settings of the listener that the handshake chose
}

// Demand implements tls.Demander.
func (w *wire) Demand(clients *tls.Clients) { w.demanded = clients }

func (w *wire) Read(b []byte) (int, error) {
	l := &w.c.loop
	switch {
	case l.inside:
	case l.upload.looking:
		return w.look(b)
	default:
		n, err := w.Conn.Read(b)
		l.records.feed(b[:n])
		l.ended = err == io.EOF
		return n, err
	}
	if l.drained {
		return 0, socket.ErrNothingYet
	}
	n, errno := socket.Receive(l.fd, b)
	switch {
	case errno == unix.EAGAIN:
		l.drained, l.short = true, false
		return 0, socket.ErrNothingYet
	case errno != 0:
		return 0, errno
	case n == 0:
		l.ended = true
		return 0, io.EOF
	}
	l.drained = n < len(b)
	l.short = l.drained
	l.records.feed(b[:n])
	return n, nil
}

// look is Read within a step of readSocket.
func (w *wire) look(b []byte) (int, error) {
	l := &w.c.loop
	n, err := receive(l.upload.fd, b)
	l.ended = l.ended || err == io.EOF
	l.records.feed(b[:n])
	return n, err
}

// receive reads what has already arrived, or returns socket.ErrNothingYet.
func receive(fd uintptr, into []byte) (int, error) {
	switch n, errno := socket.Receive(fd, into); {
	case errno == unix.EAGAIN:
		return 0, socket.ErrNothingYet
	case errno != 0:
		return 0, errno
	case n == 0:
		return 0, io.EOF
	default:
		return n, nil
	}
}

// wireEnded reports whether TLS has reached the end of the client's stream.
func (c *Conn) wireEnded() bool { return c.loop.ended }

// fed records that crypto/tls was given bytes that had been read before.
func (c *Conn) fed(b []byte) { c.loop.records.feed(b) }

// writingApart makes TLS write outside of steps from now on, and returns the connection to use. It is for HTTP/2 and
// tunnels, where other goroutines than the reading one write.
func (c *Conn) writingApart() net.Conn {
	c.loop.apart = true
	return c.nc
}

func (w *wire) Write(b []byte) (int, error) {
	if w.c.loop.apart {
		return w.c.writeWire(w.Conn, b)
	}
	rest := w.c.writeRaw(b, false)
	if len(rest) == 0 {
		return len(b), nil
	}
	n, err := w.c.writeWire(w.Conn, rest)
	return len(b) - len(rest) + n, err
}

// writeRaw writes what the socket takes at once, within a step, and returns the rest. last means that the end of the
// stream is sent with b. An error is returned again by the next write.
func (c *Conn) writeRaw(b []byte, last bool) []byte {
	l := &c.loop
	if !l.inside {
		return b
	}
	send := socket.Send
	if last {
		send = socket.SendLast
	}
	n, errno := send(l.fd, b)
	if errno != 0 {
		return b
	}
	return b[n:]
}
