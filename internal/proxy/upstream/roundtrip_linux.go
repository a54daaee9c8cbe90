package upstream

import (
	"io"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/moongate-dev/moongate/internal/proxy/socket"
)

// roundTrip sends a request and waits for its response within one RawConn.Read: the poller is armed before the request
// is sent, so that no read is needed only to learn that nothing has arrived yet (net.Conn makes one for each wait). The
// calls are raw: the socket does not block, so the scheduler need not know of them.
type roundTrip struct {
	step    func(fd uintptr) bool
	wait    func(fd uintptr) bool
	look    func(fd uintptr)
	parts   [2]unix.Iovec
	msg     unix.Msghdr
	size    int // bytes in parts
	written int
	sent    bool
	stale   bool
	buffer  Buffer
	into    []byte // only for ReadMore
	n       int
	errno   syscall.Errno
	peek    [1]byte
}

func (t *roundTrip) init() {
	t.step = func(fd uintptr) bool {
		if !t.sent {
			t.sent = true
			reused := t.stale
			if reused && !quiet(fd, &t.peek) {
				return true
			}
			t.stale = false
			n, errno := send(fd, &t.msg)
			if errno == 0 {
				t.written = n
			}
			if t.written < t.size {
				return true // a short write is completed outside
			}
			if reused {
				return false
			}
			// On a new connection the backend may have sent data before the poller was armed.
		}
		return t.take(fd)
	}
	t.wait = t.take
	t.look = func(fd uintptr) {
		t.n, t.errno = read(fd, t.into)
	}
}

// take reads into the buffer. It returns false if nothing has arrived; then it gives the buffer back for the wait.
func (t *roundTrip) take(fd uintptr) bool {
	into := t.buffer.Take()
	t.n, t.errno = read(fd, into)
	if t.errno == unix.EAGAIN {
		t.buffer.Give()
		return false
	}
	return true
}

// result returns the result of a wait for the backend.
func (t *roundTrip) result() (int, error) {
	switch {
	case t.errno != 0:
		return 0, t.errno
	case t.n == 0:
		return 0, io.EOF
	}
	return t.n, nil
}

// ReadInto waits for more of a response.
func (c *Conn) ReadInto(b Buffer) (int, error) {
	if c.secure != nil && c.secure.trip != nil {
		return c.secure.trip.read(b)
	}
	if c.plain {
		return c.Conn.Read(b.Take())
	}
	t := &c.roundTrip
	if t.wait == nil {
		t.init()
	}
	t.buffer, t.n, t.errno = b, 0, 0
	err := c.probe.raw.Read(t.wait)
	t.buffer = nil
	if err != nil {
		return 0, err
	}
	return t.result()
}

// WriteRead writes head and body, which may be nil, and reads the first bytes of the response. An error of the write is
// not returned: if the response cannot be read either, that error is. If a reused connection is not Alive, it returns
// ErrStale and writes nothing.
func (c *Conn) WriteRead(head, body []byte, b Buffer) (int, error) {
	if c.secure != nil && c.secure.trip != nil {
		return c.secure.trip.writeRead(head, body, b)
	}
	if c.plain {
		return c.writeReadPlain(head, body, b)
	}
	t := &c.roundTrip
	if t.step == nil {
		t.init()
	}
	t.parts[0].Base = unsafe.SliceData(head)
	t.parts[0].SetLen(len(head))
	t.msg.Iov, t.size, t.written, t.sent = &t.parts[0], len(head)+len(body), 0, false
	t.msg.SetIovlen(1)
	if len(body) > 0 {
		t.parts[1].Base = unsafe.SliceData(body)
		t.parts[1].SetLen(len(body))
		t.msg.SetIovlen(2)
	}
	t.buffer, t.n, t.errno, t.stale = b, 0, 0, c.Reused
	err := c.probe.raw.Read(t.step)
	written := t.written
	t.parts, t.buffer = [2]unix.Iovec{}, nil
	switch {
	case err != nil:
		return 0, err
	case t.stale:
		return 0, ErrStale
	case written < len(head)+len(body):
		if written < len(head) {
			c.Conn.Write(head[written:]) //nolint:errcheck // an error occurs again when the response is read
			written = len(head)
		}
		if rest := body[written-len(head):]; len(rest) > 0 {
			c.Conn.Write(rest) //nolint:errcheck // as above
		}
		return c.ReadInto(b)
	}
	return t.result()
}

// ReadMore reads what has already arrived, without waiting. It returns 0 if nothing has.
func (c *Conn) ReadMore(into []byte) int {
	if c.plain {
		return 0
	}
	n, _ := c.readNow(into) // an error occurs again with the next read
	return n
}

// readsNow reports that readNow works on this system.
const readsNow = true

// readNow reads what has already arrived at the socket. It returns socket.ErrNothingYet if nothing has.
func (c *Conn) readNow(into []byte) (int, error) {
	t := &c.roundTrip
	if t.look == nil {
		t.init()
	}
	t.into = into
	err := c.probe.raw.Control(t.look)
	t.into = nil
	switch {
	case err != nil:
		return 0, err
	case t.errno == unix.EAGAIN:
		return 0, socket.ErrNothingYet
	}
	return t.result()
}

// writeNow writes what the socket takes at once, and returns the number of bytes.
func (c *Conn) writeNow(b []byte) (n int) {
	raw := c.probe.rawConn()
	if raw == nil {
		return 0
	}
	part := unix.Iovec{Base: unsafe.SliceData(b)}
	part.SetLen(len(b))
	msg := unix.Msghdr{Iov: &part}
	msg.SetIovlen(1)
	raw.Control(func(fd uintptr) { //nolint:errcheck // on an error nothing is written
		if sent, errno := send(fd, &msg); errno == 0 {
			n = sent
		}
	})
	return n
}

// send and read use system calls for sockets only: these run through less of the kernel than write, writev and read,
// which took 8 % of a small request's CPU time.
func send(fd uintptr, msg *unix.Msghdr) (int, syscall.Errno) {
	for {
		var n uintptr
		var errno syscall.Errno
		if msg.Iovlen == 1 { // cheaper than sendmsg
			n, _, errno = unix.RawSyscall6(unix.SYS_SENDTO, fd, uintptr(unsafe.Pointer(msg.Iov.Base)), uintptr(msg.Iov.Len),
				unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL, 0, 0)
		} else {
			n, _, errno = unix.RawSyscall(unix.SYS_SENDMSG, fd, uintptr(unsafe.Pointer(msg)), unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
		}
		if errno != unix.EINTR {
			return int(n), errno
		}
	}
}

func read(fd uintptr, into []byte) (int, syscall.Errno) {
	for {
		n, _, errno := unix.RawSyscall6(unix.SYS_RECVFROM, fd, uintptr(unsafe.Pointer(unsafe.SliceData(into))), uintptr(len(into)),
			unix.MSG_DONTWAIT, 0, 0)
		if errno != unix.EINTR {
			return int(n), errno
		}
	}
}
