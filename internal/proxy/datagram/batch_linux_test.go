package datagram

import (
	"net"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/moongate-dev/moongate/internal/testkit"
)

// refusing is a socket that is connected to where nobody listens, and knows it.
func refusing(t *testing.T) syscall.RawConn {
	t.Helper()
	server := silent(t)
	c, err := net.DialUDP("udp", nil, server.LocalAddr().(*net.UDPAddr))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	server.Close()
	if _, err := c.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	return failing(t, c)
}

// failing waits for the error of what a socket has sent.
func failing(t *testing.T, c *net.UDPConn) (raw syscall.RawConn) {
	t.Helper()
	raw, err := c.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, "the error of what was sent", func() (has bool) {
		raw.Control(func(fd uintptr) {
			p := []unix.PollFd{{Fd: int32(fd)}}
			unix.Poll(p, 0)
			has = p[0].Revents&unix.POLLERR != 0
		})
		return has
	})
	return raw
}

// TestSendGoesOn: what follows where an endpoint refuses begins with the datagram that was not sent, behind one that cannot be.
func TestSendGoesOn(t *testing.T) {
	raw, b := refusing(t), newBatch(true)
	b.in[1].size, b.in[2].size, b.in[3].size = maxDatagram, 1, 1
	if next, bytes, err := b.send(raw, 1, 4); next != 2 || bytes != 0 || err != syscall.ECONNREFUSED {
		t.Errorf("what is next is datagram %d, %d bytes were sent, %v; want 2, 0 and %v", next, bytes, err, syscall.ECONNREFUSED)
	}
	if next, bytes, _ := b.send(raw, 2, 4); next < 3 || bytes == 0 {
		t.Errorf("then what is next is datagram %d, and %d bytes were sent", next, bytes)
	}
}
