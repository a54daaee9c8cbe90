package socket

import (
	"cmp"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Conn is a TCP connection. It is registered with the runtime's poller the first time that a read or a write has to
// wait. One that never waits needs no system calls except those that receive, send and close. One goroutine at a time
// may read, and one may write; all other methods may be called at any time.
type Conn struct {
	peer netip.AddrPort
	// watched owns the descriptor once the poller watches it; nil before.
	watched atomic.Pointer[watched]

	mu sync.Mutex
	fd int32
	// users is how many calls use fd without the poller. After Close the last of them closes it.
	users  int32
	closed bool
	// readBy and writeBy are the deadlines relative to epoch, until the poller has them; 0 means none.
	readBy, writeBy time.Duration

	local atomic.Pointer[netip.AddrPort] // set when it was first needed
}

// epoch is the time to which deadlines are relative, by the monotonic clock.
var epoch = time.Now()

type watched struct {
	file *os.File
	raw  syscall.RawConn
}

// New creates a Conn from a non-blocking descriptor, which belongs to the Conn from then on.
func New(fd int, peer netip.AddrPort) *Conn { return &Conn{fd: int32(fd), peer: peer} }

// FromTCP creates a Conn from a connection of package net, which it closes in any case.
func FromTCP(tcp *net.TCPConn) (*Conn, error) {
	defer tcp.Close()
	raw, err := tcp.SyscallConn()
	if err != nil {
		return nil, err
	}
	var fd int
	var failed error
	err = raw.Control(func(own uintptr) { fd, failed = unix.FcntlInt(own, unix.F_DUPFD_CLOEXEC, 0) })
	if err = errors.Join(err, os.NewSyscallError("fcntl", failed)); err != nil {
		return nil, err
	}
	return New(fd, AddrPortOf(tcp.RemoteAddr())), nil
}

// acquire returns the descriptor, which stays open until release. It fails after Close, and after the deadline *by; by
// may be nil.
func (c *Conn) acquire(by *time.Duration) (fd uintptr, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.closed:
		return 0, net.ErrClosed
	case by != nil && *by != 0 && *by <= time.Since(epoch):
		return 0, os.ErrDeadlineExceeded
	}
	c.users++
	return uintptr(c.fd), nil
}

// release must be called after acquire.
func (c *Conn) release() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.users--; c.users > 0 || !c.closed {
		return
	}
	if w := c.watched.Load(); w != nil {
		go w.file.Close() // it waits for functions of Raw, which may wait for mu
		return
	}
	c.closeFD()
}

// closeFD closes the descriptor, which must not be in use.
func (c *Conn) closeFD() error {
	if _, _, errno := unix.RawSyscall(unix.SYS_CLOSE, uintptr(c.fd), 0, 0); errno != 0 {
		return os.NewSyscallError("close", errno)
	}
	return nil
}

// watch makes the poller watch the descriptor. It fails after Close, and if the system refuses; in that case the Conn
// can only be closed.
func (c *Conn) watch() (*watched, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, net.ErrClosed
	}
	if w := c.watched.Load(); w != nil {
		return w, nil
	}
	file := os.NewFile(uintptr(c.fd), "tcp")
	raw, err := file.SyscallConn()
	w := &watched{file, raw}
	c.watched.Store(w)
	err = errors.Join(err, file.SetReadDeadline(timeOf(c.readBy)), file.SetWriteDeadline(timeOf(c.writeBy)))
	if errors.Is(err, os.ErrNoDeadline) {
		err = errNotWatched
	}
	return w, err
}

var errNotWatched = errors.New("epoll cannot watch another descriptor; raise fs.epoll.max_user_watches")

func timeOf(by time.Duration) time.Time {
	if by == 0 {
		return time.Time{}
	}
	return epoch.Add(by)
}

// do calls step until it returns true: at once, and then whenever wait, which is Read or Write of a RawConn, finds the
// socket ready. by is the deadline of that direction until the poller has it. The first wait calls step twice, since
// the poller may not report what arrived before it watched the descriptor.
func (c *Conn) do(step func(fd uintptr) bool, by *time.Duration, wait func(syscall.RawConn, func(uintptr) bool) error) error {
	w := c.watched.Load()
	if w == nil {
		done, err := c.try(step, by)
		if done || err != nil {
			return err
		}
		if w, err = c.watch(); err != nil {
			return err
		}
	}
	return c.failed(wait(w.raw, step))
}

// try calls step once, without the poller.
func (c *Conn) try(step func(fd uintptr) bool, by *time.Duration) (done bool, err error) {
	fd, err := c.acquire(by)
	if err != nil {
		return false, err
	}
	defer c.release()
	return step(fd), nil
}

func (c *Conn) read(step func(fd uintptr) bool) error {
	return c.do(step, &c.readBy, syscall.RawConn.Read)
}

func (c *Conn) write(step func(fd uintptr) bool) error {
	return c.do(step, &c.writeBy, syscall.RawConn.Write)
}

// failed returns an error of the poller, or net.ErrClosed instead of it after Close.
func (c *Conn) failed(err error) error {
	if err == nil || !c.isClosed() {
		return err
	}
	return net.ErrClosed
}

func (c *Conn) isClosed() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.closed
}

// Raw returns the connection for the caller's own system calls, which must not block. Its functions may use the Conn meanwhile, except to close it or to read from it.
func (c *Conn) Raw() syscall.RawConn { return (*rawConn)(c) }

// rawConn is a Conn as a syscall.RawConn.
type rawConn Conn

func (c *rawConn) Control(f func(fd uintptr)) error           { return (*Conn)(c).control(f) }
func (c *rawConn) Read(f func(fd uintptr) (done bool)) error  { return (*Conn)(c).read(f) }
func (c *rawConn) Write(f func(fd uintptr) (done bool)) error { return (*Conn)(c).write(f) }

// control calls f, but not after Close.
func (c *Conn) control(f func(fd uintptr)) error {
	if w := c.watched.Load(); w != nil {
		if c.isClosed() {
			return net.ErrClosed
		}
		return c.failed(w.raw.Control(f))
	}
	fd, err := c.acquire(nil)
	if err != nil {
		return err
	}
	defer c.release()
	f(fd)
	return nil
}

// Close implements net.Conn: waiting reads and writes fail. It waits for functions of Raw that are running, unless the
// poller did not watch the descriptor when they were called: then the descriptor is closed when they return.
func (c *Conn) Close() error {
	w, err := c.close()
	if w != nil {
		return w.file.Close()
	}
	return err
}

// close implements Close, except for a descriptor that the poller watches and that is not used without the poller,
// which it returns.
func (c *Conn) close() (*watched, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, net.ErrClosed
	}
	c.closed = true
	w := c.watched.Load()
	switch {
	case w == nil && c.users == 0:
		return nil, c.closeFD()
	case w != nil && c.users > 0: // a function that was called before the poller watched the descriptor may wait in its own read or write
		return nil, w.file.SetDeadline(longAgo)
	}
	return w, nil
}

// longAgo is a deadline that ends waits.
var longAgo = time.Unix(1, 0)

// farAway is how far in the future a deadline may be: later ones would overflow.
const farAway = 100 * 365 * 24 * time.Hour

// SetDeadline implements net.Conn.
func (c *Conn) SetDeadline(t time.Time) error {
	return c.setDeadline(t, true, true, (*os.File).SetDeadline)
}

// SetReadDeadline implements net.Conn.
func (c *Conn) SetReadDeadline(t time.Time) error {
	return c.setDeadline(t, true, false, (*os.File).SetReadDeadline)
}

// SetWriteDeadline implements net.Conn.
func (c *Conn) SetWriteDeadline(t time.Time) error {
	return c.setDeadline(t, false, true, (*os.File).SetWriteDeadline)
}

func (c *Conn) setDeadline(t time.Time, read, write bool, set func(*os.File, time.Time) error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return net.ErrClosed
	}
	if w := c.watched.Load(); w != nil {
		return set(w.file, t)
	}
	var by time.Duration
	if !t.IsZero() {
		now := time.Now() // t may lack the monotonic clock
		by = cmp.Or(now.Sub(epoch)+min(t.Sub(now), farAway), -1)
	}
	if read {
		c.readBy = by
	}
	if write {
		c.writeBy = by
	}
	return nil
}

// Read implements net.Conn.
func (c *Conn) Read(b []byte) (int, error) {
	if len(b) == 0 {
		return 0, nil
	}
	t := transfers.Get().(*transfer)
	defer t.done()
	t.b = b
	if err := c.opError("read", c.read(t.receive), "recvfrom", &t.errno); err != nil {
		return 0, err
	}
	if t.n == 0 {
		return 0, io.EOF
	}
	return t.n, nil
}

// Write implements net.Conn.
func (c *Conn) Write(b []byte) (int, error) {
	t := transfers.Get().(*transfer)
	defer t.done()
	t.b = b
	err := c.opError("write", c.write(t.send), "sendto", &t.errno)
	return t.n, err
}

// WriteBoth writes two pieces, with one system call if the socket takes both.
func (c *Conn) WriteBoth(first, second []byte) error {
	t := transfers.Get().(*transfer)
	defer t.done()
	t.b, t.second = first, second
	return c.opError("write", c.write(t.sendBoth), "sendmsg", &t.errno)
}

// opError returns an error in the form of package net: err, or else that of a system call; nil if there is none.
func (c *Conn) opError(op string, err error, call string, errno *syscall.Errno) error {
	if err == nil && *errno != 0 {
		err = os.NewSyscallError(call, *errno)
	}
	if err == nil {
		return nil
	}
	return &net.OpError{Op: op, Net: "tcp", Addr: c.RemoteAddr(), Err: err}
}

// transfer is the state of a Read or a Write.
type transfer struct {
	b, second []byte // b is the rest
	n         int
	errno     syscall.Errno
	parts     [2]unix.Iovec
	message   unix.Msghdr

	receive, send, sendBoth func(fd uintptr) bool // bound once
}

var transfers = sync.Pool{New: func() any {
	t := &transfer{}
	t.receive, t.send, t.sendBoth = t.receiveOnce, t.sendAll, t.sendParts
	return t
}}

// done returns t to transfers.
func (t *transfer) done() {
	*t = transfer{receive: t.receive, send: t.send, sendBoth: t.sendBoth}
	transfers.Put(t)
}

func (t *transfer) receiveOnce(fd uintptr) bool {
	t.n, t.errno = Receive(fd, t.b)
	return t.errno != unix.EAGAIN
}

func (t *transfer) sendAll(fd uintptr) bool {
	for len(t.b) > 0 {
		n, errno := Send(fd, t.b)
		if errno != 0 {
			t.errno = errno
			return errno != unix.EAGAIN
		}
		t.n += n
		t.b = t.b[n:]
	}
	t.errno = 0
	return true
}

func (t *transfer) sendParts(fd uintptr) bool {
	for len(t.b) > 0 && len(t.second) > 0 {
		for i, b := range [...][]byte{t.b, t.second} {
			t.parts[i].Base = unsafe.SliceData(b)
			t.parts[i].SetLen(len(b))
		}
		t.message.Iov = &t.parts[0]
		t.message.SetIovlen(len(t.parts))
		sent, _, errno := unix.RawSyscall(unix.SYS_SENDMSG, fd, uintptr(unsafe.Pointer(&t.message)), unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
		switch errno {
		case 0:
			n := min(int(sent), len(t.b))
			t.b, t.second = t.b[n:], t.second[int(sent)-n:]
		case unix.EINTR:
		default:
			t.errno = errno
			return errno != unix.EAGAIN
		}
	}
	if len(t.b) == 0 {
		t.b, t.second = t.second, nil
	}
	return t.sendAll(fd)
}

// Receive receives what has arrived. EAGAIN means that nothing has.
func Receive(fd uintptr, into []byte) (int, syscall.Errno) {
	for {
		n, _, errno := unix.RawSyscall6(unix.SYS_RECVFROM, fd, uintptr(unsafe.Pointer(unsafe.SliceData(into))), uintptr(len(into)), unix.MSG_DONTWAIT, 0, 0)
		if errno != unix.EINTR {
			return int(n), errno
		}
	}
}

// Send sends what the socket takes. EAGAIN means that it takes nothing.
func Send(fd uintptr, b []byte) (int, syscall.Errno) { return send(fd, b, 0) }

// SendLast is like Send, for the last bytes of a connection. If the socket takes all of them, the FIN is sent in the
// same segment.
func SendLast(fd uintptr, b []byte) (int, syscall.Errno) {
	n, errno := send(fd, b, unix.MSG_MORE)
	if n == len(b) {
		unix.RawSyscall(unix.SYS_SHUTDOWN, fd, unix.SHUT_WR, 0) // fails if the connection was reset meanwhile
	}
	return n, errno
}

func send(fd uintptr, b []byte, flags uintptr) (int, syscall.Errno) {
	for {
		n, _, errno := unix.RawSyscall6(unix.SYS_SENDTO, fd, uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)), unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL|flags, 0, 0)
		if errno != unix.EINTR {
			return int(n), errno
		}
	}
}

// CloseWrite closes the sending side.
func (c *Conn) CloseWrite() error {
	var failed error
	err := c.control(func(fd uintptr) { failed = unix.Shutdown(int(fd), unix.SHUT_WR) })
	return errors.Join(err, os.NewSyscallError("shutdown", failed))
}

// ResetOnClose makes Close reset the connection, and the kernel discard unsent data.
func (c *Conn) ResetOnClose() {
	_ = c.control(func(fd uintptr) { // fails if the Conn was closed
		_ = unix.SetsockoptLinger(int(fd), unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1}) // a broken socket is already reset
	})
}

// Peer returns the remote address; the zero value if it is no longer known.
func (c *Conn) Peer() netip.AddrPort { return c.peer }

// Local returns the local address; the zero value if it is first requested after Close.
func (c *Conn) Local() netip.AddrPort {
	if known := c.local.Load(); known != nil {
		return *known
	}
	return c.askLocal()
}

// askLocal gets the local address from the kernel.
func (c *Conn) askLocal() (a netip.AddrPort) {
	_ = c.control(func(fd uintptr) { // fails if the Conn was closed
		var from unix.RawSockaddrAny
		size := uint32(unsafe.Sizeof(from))
		if _, _, errno := unix.RawSyscall(unix.SYS_GETSOCKNAME, fd, uintptr(unsafe.Pointer(&from)), uintptr(unsafe.Pointer(&size))); errno == 0 {
			a = AddrPort(&from)
			c.local.Store(&a)
		}
	})
	return a
}

// RemoteAddr implements net.Conn.
func (c *Conn) RemoteAddr() net.Addr { return net.TCPAddrFromAddrPort(c.peer) }

// LocalAddr implements net.Conn.
func (c *Conn) LocalAddr() net.Addr { return net.TCPAddrFromAddrPort(c.Local()) }

// AddrPort returns an address in the form used for connections: without a zone, and with IPv4 addresses unmapped.
func AddrPort(a *unix.RawSockaddrAny) netip.AddrPort {
	switch a.Addr.Family {
	case unix.AF_INET:
		in := (*unix.RawSockaddrInet4)(unsafe.Pointer(a))
		return netip.AddrPortFrom(netip.AddrFrom4(in.Addr), port(&in.Port))
	case unix.AF_INET6:
		in := (*unix.RawSockaddrInet6)(unsafe.Pointer(a))
		return netip.AddrPortFrom(netip.AddrFrom16(in.Addr).Unmap(), port(&in.Port))
	}
	return netip.AddrPort{}
}

func port(p *uint16) uint16 {
	b := (*[2]byte)(unsafe.Pointer(p))
	return uint16(b[0])<<8 | uint16(b[1])
}
