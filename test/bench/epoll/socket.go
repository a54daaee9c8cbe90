//go:build linux

package epoll

import (
	"io"
	"net"
	"net/netip"
	"syscall"
	"time"
)

// Patience is how long a handshake or a write over TLS may stand still.
const Patience = 10 * time.Second

// Socket is the net.Conn beneath a tls.Conn: reads of an empty socket return
// ErrSocketEmpty instead of waiting, which crypto/tls hands on and survives, since it
// says of itself to be temporary. It reads ahead, to make one receive of a message.
type Socket struct {
	FD    int
	Block bool // wait for input: during the handshake
	// Batches: who reads goes on until the socket is empty, and Drained: the last receive was short, so it is.
	Batches, Drained bool
	ahead            []byte
	storage          [32 << 10]byte
}

type emptyError struct{}

func (emptyError) Error() string   { return "socket is empty" }
func (emptyError) Timeout() bool   { return true }
func (emptyError) Temporary() bool { return true }

// ErrSocketEmpty: nothing to read now.
var ErrSocketEmpty net.Error = emptyError{}

func (s *Socket) Read(b []byte) (int, error) {
	for len(s.ahead) == 0 {
		if s.Batches && s.Drained {
			s.Drained = false
			return 0, ErrSocketEmpty
		}
		n, errno := Recv(s.FD, s.storage[:])
		s.Drained = n < len(s.storage)
		switch {
		case errno == syscall.EAGAIN && s.Block:
			if err := Block(s.FD, In, Patience); err != nil {
				return 0, err
			}
			continue
		case errno == syscall.EAGAIN:
			return 0, ErrSocketEmpty
		case errno != 0:
			return 0, errno
		case n == 0:
			return 0, io.EOF
		}
		s.ahead = s.storage[:n]
	}
	n := copy(b, s.ahead)
	s.ahead = s.ahead[n:]
	return n, nil
}

func (s *Socket) Write(b []byte) (int, error) {
	written := 0
	for written < len(b) {
		n, errno := Send(s.FD, b[written:])
		if errno == syscall.EAGAIN {
			if err := Block(s.FD, Out, Patience); err != nil {
				return written, err
			}
			continue
		}
		if errno != 0 {
			return written, errno
		}
		written += n
	}
	return written, nil
}

// The rest of net.Conn; crypto/tls calls none of it here.
func (s *Socket) Close() error                     { return syscall.Close(s.FD) }
func (s *Socket) LocalAddr() net.Addr              { return net.TCPAddrFromAddrPort(netip.AddrPort{}) }
func (s *Socket) RemoteAddr() net.Addr             { return net.TCPAddrFromAddrPort(netip.AddrPort{}) }
func (s *Socket) SetDeadline(time.Time) error      { return nil }
func (s *Socket) SetReadDeadline(time.Time) error  { return nil }
func (s *Socket) SetWriteDeadline(time.Time) error { return nil }
