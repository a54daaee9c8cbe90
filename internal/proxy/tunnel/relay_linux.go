package tunnel

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/moongate-dev/moongate/internal/proxy/splice"
)

// relay is how a direction between two sockets moves messages: inside one RawConn.Read, in which the poller stays armed. A read that has
// left nothing is not followed by one that finds nothing, which with its system call, its wait and what net.Conn does around it is a
// third of what a message costs. Two things could then stay unnoticed. Bytes that a read has left though there was room, as it does before urgent
// data: the kernel tells of them with TCP_INQ. And the end of the stream, which may have come together with the last bytes: HangUps tells of it.
type relay struct {
	in, out syscall.RawConn // nil where the system does not do what a relay needs

	step    func(fd uintptr) bool
	put     func(fd uintptr)
	msg     unix.Msghdr
	iov     unix.Iovec
	control struct { // what a read tells beside the bytes
		head unix.Cmsghdr
		left int32
		_    int32
	}

	// The outcome of messages.
	empty bool   // a read has found nothing, so that the poller tells of all that comes from then on
	rest  []byte // what the sink has not taken at once
	n     int    // the size of a part that was large
	errno syscall.Errno
}

// startRelay makes d ready to relay, with its second message; false is that it cannot.
func (t *Tunnel) startRelay(d *direction) bool {
	if d.relay == nil && t.HangUps != nil {
		d.relay = &relay{}
		t.prepare(d)
	}
	return d.relay != nil && d.relay.in != nil
}

// prepare leaves in at nil where the system refuses what a relay needs.
func (t *Tunnel) prepare(d *direction) {
	r, in, out := d.relay, socketOf(d.from), socketOf(d.to)
	if !countsUnread(in) || t.HangUps.watch(t, d) != nil {
		return
	}
	r.in, r.out = in, out
	r.step = func(fd uintptr) bool { return t.relayStep(d, fd) }
	r.put = func(fd uintptr) { r.rest = r.rest[send(fd, r.rest):] }
	r.msg.Iov = &r.iov
	r.msg.SetIovlen(1)
	r.msg.Control = (*byte)(unsafe.Pointer(&r.control))
}

// countsUnread has the kernel tell with each read how many bytes it has left; false is that it does not.
func countsUnread(socket syscall.RawConn) (yes bool) {
	err := socket.Control(func(fd uintptr) {
		yes = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_INQ, 1) == nil
	})
	return err == nil && yes
}

// forget has HangUps tell nothing of d any more.
func (t *Tunnel) forget(d *direction) {
	if d.id != 0 {
		t.HangUps.forget(d)
	}
}

// messages moves what comes as long as it comes in small parts; the size of a large one is returned. What ends the stream is left to the next read,
// but for an error that this one took. False is that the direction has failed.
func (t *Tunnel) messages(d *direction) (n int, ok bool) {
	if !t.startRelay(d) {
		return 0, true
	}
	r := d.relay
	r.empty, r.rest, r.n, r.errno = false, nil, 0, 0
	d.begin()
	err := r.in.Read(r.step)
	woken := t.leave(d, err != nil)
	switch {
	case len(r.rest) > 0:
		ok = t.write(d, r.rest)
		r.rest = nil
		d.buf.Give()
		return 0, ok
	case err != nil && !woken:
		t.fail(d.source, err)
		return 0, false
	case r.errno != 0:
		t.fail(d.source, r.errno)
		return 0, false
	}
	d.buf.Give()
	return r.n, true
}

// relayStep moves what has come; false waits for more.
func (t *Tunnel) relayStep(d *direction, fd uintptr) bool {
	r := d.relay
	for {
		b := d.buf.Take()
		n, more, errno := r.receive(fd, b)
		switch {
		case errno == unix.EAGAIN:
			r.empty = true
			d.buf.Give()
			return false
		case errno != 0, n == 0:
			r.n, r.errno = 0, errno
			return true
		}
		r.rest = b[:n]
		d.sending.Store(true)
		_ = r.out.Control(r.put) // what it does not take, be it for an error, is written once more
		d.sent.Add(int64(n - len(r.rest)))
		if len(r.rest) > 0 {
			return true
		}
		d.sending.Store(false)
		r.rest = nil // which would keep the buffer's memory
		t.Moved(d.sink, false)
		if n >= splice.Worth {
			r.n = n
			return true
		}
		if r.empty && !more {
			d.buf.Give()
			return false
		}
	}
}

// receive reads without waiting. more tells that bytes were left, or the end of the stream.
func (r *relay) receive(fd uintptr, into []byte) (n int, more bool, errno syscall.Errno) {
	r.iov.Base = unsafe.SliceData(into)
	r.iov.SetLen(len(into))
	for {
		r.msg.SetControllen(int(unsafe.Sizeof(r.control)))
		got, _, errno := unix.RawSyscall(unix.SYS_RECVMSG, fd, uintptr(unsafe.Pointer(&r.msg)), unix.MSG_DONTWAIT)
		switch errno {
		case unix.EINTR:
			continue
		case 0:
			r.iov.Base = nil
			return int(got), r.left() != 0, 0
		}
		r.iov.Base = nil
		return 0, false, errno
	}
}

// left is how many bytes the last read has left by what the kernel says: 1 where it says nothing, so that they are read for.
func (r *relay) left() int32 {
	c := &r.control
	if r.msg.Controllen < unix.SizeofCmsghdr+4 || c.head.Level != unix.IPPROTO_TCP || c.head.Type != unix.TCP_CM_INQ {
		return 1
	}
	return c.left
}

// send writes what the socket takes at once.
func send(fd uintptr, b []byte) int {
	n, _, errno := unix.RawSyscall6(unix.SYS_SENDTO, fd, uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)),
		unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL, 0, 0)
	if errno != 0 {
		return 0
	}
	return int(n)
}
