package tunnel

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/moongate-dev/moongate/internal/proxy/splice"
)

// relay moves the messages of a direction between two sockets within one RawConn.Read, during which the poller stays
// armed. A read that has taken everything is not followed by one that finds nothing, which with its system call, its
// wait and the overhead of net.Conn is a third of the cost of a message. Two things could then go unnoticed: bytes that
// a read has left although there was room, as before urgent data, which the kernel reports with TCP_INQ; and the end of
// the stream, which may have arrived together with the last bytes, and which HangUps reports.
type relay struct {
	in, out syscall.RawConn // nil if the system does not support what a relay needs

	step    func(fd uintptr) bool
	put     func(fd uintptr)
	msg     unix.Msghdr
	iov     unix.Iovec
	control struct { // control data of a read
		head unix.Cmsghdr
		left int32
		_    int32
	}

	// The results of messages.
	empty bool   // a read has found nothing, so the poller reports everything that arrives from then on
	rest  []byte // what the sink has not taken at once
	n     int    // the size of a large part
	errno syscall.Errno
}

// startRelay prepares d to relay, with its second message. It returns false if that is not possible.
func (t *Tunnel) startRelay(d *direction) bool {
	if d.relay == nil && t.HangUps != nil {
		d.relay = &relay{}
		t.prepare(d)
	}
	return d.relay != nil && d.relay.in != nil
}

// prepare leaves in nil if the system does not support what a relay needs.
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

// countsUnread makes the kernel report with each read how many bytes it has left. It returns false if the kernel does
// not support that.
func countsUnread(socket syscall.RawConn) (yes bool) {
	err := socket.Control(func(fd uintptr) {
		yes = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_INQ, 1) == nil
	})
	return err == nil && yes
}

// forget ends the notifications of d by HangUps.
func (t *Tunnel) forget(d *direction) {
	if d.id != 0 {
		t.HangUps.forget(d)
	}
}

// messages moves what arrives as long as it arrives in small parts. It returns the size of a large part. The end of the
// stream is left to the next read, except for an error that this read returned. ok is false if the direction has
// failed.
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

// relayStep moves what has arrived. It returns false to wait for more.
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
		_ = r.out.Control(r.put) // what the socket does not take, even because of an error, is written again
		d.sent.Add(int64(n - len(r.rest)))
		if len(r.rest) > 0 {
			return true
		}
		d.sending.Store(false)
		r.rest = nil // it would keep the buffer's memory alive
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

// receive reads without waiting. more means that bytes, or the end of the stream, are left.
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

// left returns how many bytes the last read has left, as the kernel reports it, or 1 if the kernel reports nothing, so
// that another read is made.
func (r *relay) left() int32 {
	c := &r.control
	if r.msg.Controllen < unix.SizeofCmsghdr+4 || c.head.Level != unix.IPPROTO_TCP || c.head.Type != unix.TCP_CM_INQ {
		return 1
	}
	return c.left
}

// send writes what the socket takes at once, and returns the number of bytes.
func send(fd uintptr, b []byte) int {
	n, _, errno := unix.RawSyscall6(unix.SYS_SENDTO, fd, uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)),
		unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL, 0, 0)
	if errno != 0 {
		return 0
	}
	return int(n)
}
