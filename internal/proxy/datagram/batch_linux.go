package datagram

import (
	"encoding/binary"
	"net/netip"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A batch of 16 holds what arrives while one is sent; more save little.
const (
	batchSize   = 16
	controlSize = 64 // larger than any information on where a datagram has arrived
)

// local is the address to which a client has sent, if the socket has several, and what is needed of the network
// interface to answer.
type local struct {
	addr     [16]byte
	family   uint8 // AF_INET or AF_INET6, 0 if the socket has one address
	ifindex  uint32
	fromZone uint32 // of the client
}

// message is the argument of recvmmsg and sendmmsg (struct mmsghdr).
type message struct {
	header unix.Msghdr
	size   uint32
}

// batch is memory for datagrams that are received and sent with one system call. It belongs to one goroutine at a time.
// Methods that are passed as functions are stored in it, so that nothing is allocated.
type batch struct {
	in, out [batchSize]message
	vectors [batchSize]unix.Iovec
	names   [batchSize]unix.RawSockaddrInet6
	control [batchSize][controlSize]byte
	data    []byte
	named   bool // whether the sender is recorded
	n       int  // number of received datagrams
	err     error

	takeFunc func(fd uintptr) bool
	sendFunc func(fd uintptr)
	// next and end delimit what sendFunc has still to send; bytes is what it has sent.
	next, end int
	bytes     int64

	to      unix.RawSockaddrInet6
	answers [controlSize]byte // the control message of the sent datagrams
}

var batches = sync.Pool{New: func() any { return newBatch(false) }}

func newBatch(named bool) *batch {
	b := &batch{data: make([]byte, batchSize*maxDatagram), named: named}
	b.takeFunc, b.sendFunc = b.take, b.sendNow
	for i := range batchSize {
		b.vectors[i].Base = &b.data[i*maxDatagram]
		for _, m := range []*message{&b.in[i], &b.out[i]} {
			m.header.Iov = &b.vectors[i]
			m.header.SetIovlen(1)
		}
		if named {
			b.in[i].header.Name = (*byte)(unsafe.Pointer(&b.names[i]))
			b.in[i].header.Control = &b.control[i][0]
		}
	}
	return b
}

// receive waits for datagrams and takes those that have arrived.
func (b *batch) receive(raw syscall.RawConn) (int, error) {
	if err := raw.Read(b.takeFunc); err != nil {
		return 0, err
	}
	if b.err != nil {
		time.Sleep(time.Millisecond) // probably out of memory
	}
	return b.n, b.err
}

// take takes the datagrams that have arrived, or the socket's error. It returns false if there is neither.
func (b *batch) take(fd uintptr) bool {
	for i := range b.in {
		b.vectors[i].SetLen(maxDatagram)
		if b.named {
			b.in[i].header.Namelen = uint32(unsafe.Sizeof(b.names[i]))
			b.in[i].header.SetControllen(controlSize)
		}
	}
	b.n, b.err = 0, nil
	for {
		n, errno := call(unix.SYS_RECVMMSG, fd, b.in[:])
		switch errno {
		case 0:
			b.n = n
			return true
		case unix.EINTR:
		case unix.EAGAIN:
			return false
		default:
			b.err = errno
			return true
		}
	}
}

// call does not block, so the runtime's scheduler need not know of it.
func call(number, fd uintptr, m []message) (int, syscall.Errno) {
	n, _, errno := unix.RawSyscall6(number, fd, uintptr(unsafe.Pointer(&m[0])), uintptr(len(m)), unix.MSG_DONTWAIT, 0, 0)
	return int(n), errno
}

// tookAll reports whether no more datagrams were waiting.
func (b *batch) tookAll() bool { return b.err == nil && b.n < batchSize }

// size returns the length of a datagram.
func (b *batch) size(i int) int { return int(b.in[i].size) }

// sizes returns the sum of the lengths of datagrams.
func (b *batch) sizes(begin, end int) (sum int64) {
	for i := begin; i < end; i++ {
		sum += int64(b.size(i))
	}
	return sum
}

// key returns the sender and destination of a datagram. It returns false if it cannot be answered.
func (b *batch) key(i int) (k key, ok bool) {
	name := &b.names[i]
	switch name.Family {
	case unix.AF_INET:
		v4 := (*unix.RawSockaddrInet4)(unsafe.Pointer(name))
		k.client = netip.AddrPortFrom(netip.AddrFrom4(v4.Addr), swapped(v4.Port))
	case unix.AF_INET6:
		k.client = netip.AddrPortFrom(netip.AddrFrom16(name.Addr).Unmap(), swapped(name.Port))
		k.local.fromZone = name.Scope_id
	default:
		return k, false
	}
	k.local.read(b.control[i][:b.in[i].header.Controllen])
	return k, k.client.Port() != 0
}

// swapped converts a port between host and network byte order.
func swapped(port uint16) uint16 {
	var b [2]byte
	binary.BigEndian.PutUint16(b[:], port)
	return binary.NativeEndian.Uint16(b[:])
}

// read reads the address from the kernel's control messages.
func (l *local) read(control []byte) {
	for len(control) >= unix.SizeofCmsghdr {
		h := (*unix.Cmsghdr)(unsafe.Pointer(&control[0]))
		size := int(h.Len)
		if size < unix.SizeofCmsghdr || size > len(control) {
			return
		}
		data := control[unix.CmsgLen(0):size]
		switch {
		case h.Level == unix.IPPROTO_IPV6 && h.Type == unix.IPV6_PKTINFO && len(data) >= unix.SizeofInet6Pktinfo:
			l.family = unix.AF_INET6
			copy(l.addr[:], data)
			if netip.AddrFrom16(l.addr).IsLinkLocalUnicast() {
				l.ifindex = binary.NativeEndian.Uint32(data[16:])
			}
		case h.Level == unix.IPPROTO_IP && h.Type == unix.IP_PKTINFO && len(data) >= unix.SizeofInet4Pktinfo:
			l.family = unix.AF_INET
			copy(l.addr[:4], data[4:8])
		}
		next := unix.CmsgSpace(size - unix.CmsgLen(0))
		if next >= len(control) {
			return
		}
		control = control[next:]
	}
}

// write writes the control message by which an answer is sent from the address, and returns its length.
func (l *local) write(control *[controlSize]byte) int {
	h := (*unix.Cmsghdr)(unsafe.Pointer(&control[0]))
	data := control[unix.CmsgLen(0):]
	switch l.family {
	case unix.AF_INET6:
		h.Level, h.Type = unix.IPPROTO_IPV6, unix.IPV6_PKTINFO
		h.SetLen(unix.CmsgLen(unix.SizeofInet6Pktinfo))
		copy(data, l.addr[:])
		binary.NativeEndian.PutUint32(data[16:], l.ifindex)
		return unix.CmsgSpace(unix.SizeofInet6Pktinfo)
	case unix.AF_INET:
		h.Level, h.Type = unix.IPPROTO_IP, unix.IP_PKTINFO
		h.SetLen(unix.CmsgLen(unix.SizeofInet4Pktinfo))
		clear(data[:unix.SizeofInet4Pktinfo])
		copy(data[4:], l.addr[:4])
		return unix.CmsgSpace(unix.SizeofInet4Pktinfo)
	}
	return 0
}

// send sends datagrams on a connected socket, and returns the index of the first one that it has neither sent nor lost.
// Datagrams that the socket does not take are lost, unless the endpoint is unreachable, which is usually reported for
// an earlier datagram.
func (b *batch) send(raw syscall.RawConn, begin, end int) (next int, bytes int64, err error) {
	for i := begin; i < end; i++ {
		b.vectors[i].SetLen(b.size(i))
		b.out[i].header.Name, b.out[i].header.Namelen = nil, 0
		b.out[i].header.Control = nil
		b.out[i].header.SetControllen(0)
	}
	return b.sendAll(raw, begin, end)
}

// reply sends all datagrams to a client, from the address to which it has sent, and returns how many bytes were sent.
func (b *batch) reply(raw syscall.RawConn, to *key, v6 bool) int64 {
	size := b.setName(to, v6)
	control := to.local.write(&b.answers)
	for i := range b.n {
		b.vectors[i].SetLen(b.size(i))
		h := &b.out[i].header
		h.Name, h.Namelen = (*byte)(unsafe.Pointer(&b.to)), size
		if h.Control = nil; control > 0 {
			h.Control = &b.answers[0]
		}
		h.SetControllen(control)
	}
	_, bytes, _ := b.sendAll(raw, 0, b.n)
	return bytes
}

// setName stores the client's address for the kernel, and returns its length.
func (b *batch) setName(to *key, v6 bool) uint32 {
	port := swapped(to.client.Port())
	if v6 {
		b.to = unix.RawSockaddrInet6{Family: unix.AF_INET6, Port: port, Addr: to.client.Addr().As16(), Scope_id: to.local.fromZone}
		return unix.SizeofSockaddrInet6
	}
	*(*unix.RawSockaddrInet4)(unsafe.Pointer(&b.to)) = unix.RawSockaddrInet4{Family: unix.AF_INET, Port: port, Addr: to.client.Addr().As4()}
	return unix.SizeofSockaddrInet4
}

func (b *batch) sendAll(raw syscall.RawConn, begin, end int) (int, int64, error) {
	b.next, b.end, b.bytes, b.err = begin, end, 0, nil
	if err := raw.Control(b.sendFunc); err != nil {
		return begin, 0, err
	}
	return b.next, b.bytes, b.err
}

// sendNow sends what the socket takes without waiting.
func (b *batch) sendNow(fd uintptr) {
	for b.next < b.end {
		n, errno := call(unix.SYS_SENDMMSG, fd, b.out[b.next:b.end])
		switch {
		case errno == 0:
			for i := b.next; i < b.next+n; i++ {
				b.bytes += int64(b.size(i))
			}
			b.next += n
		case errno == unix.EINTR:
		case errno == unix.EAGAIN || unreachable(errno):
			b.err = errno
			return
		default:
			b.err = errno
			b.next++ // this one cannot be sent, for example because it is too long for the path
		}
	}
}
