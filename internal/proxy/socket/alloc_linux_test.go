//go:build !race

package socket

import (
	"io"
	"net"
	"testing"

	"golang.org/x/sys/unix"
)

// TestAllocations: neither what is done at once nor what waits allocates, except that the poller comes to know the descriptor once.
func TestAllocations(t *testing.T) {
	each(t, func(t *testing.T, c *Conn, peer *net.TCPConn) {
		question, answer := []byte("question"), make([]byte, 8)
		if n := testing.AllocsPerRun(100, func() {
			peer.Write(question)
			arrive := [1]unix.PollFd{{Fd: c.fd, Events: unix.POLLIN}}
			unix.Poll(arrive[:], -1)
			c.Read(answer)
			c.Write(answer)
			c.Local()
			c.WriteBoth(answer, question)
			io.ReadFull(peer, answer)
			io.ReadFull(peer, answer)
			io.ReadFull(peer, answer)
		}); n > 0 {
			t.Errorf("%v allocations", n)
		}
	})
}
