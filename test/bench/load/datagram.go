//go:build linux

package load

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/moongate-dev/moongate/test/bench/epoll"
)

// maxLost is how long an answer to a datagram is awaited. It is lost then, which on loopback is an error.
const maxLost = time.Second

// nextDatagrams sends Message as often as Burst says, each with the number of the connection and its own at the beginning, so that an answer which is
// another's, or comes twice, does not count.
func (c *conn) nextDatagrams(l *loop, now time.Time) error {
	if c.datagram == nil {
		c.datagram = bytes.Clone(l.spec.Message)
		binary.BigEndian.PutUint32(c.datagram, uint32(c.id))
	}
	c.first, c.awaited = c.first+maxBurst, 1<<l.spec.burst()-1
	for i := range l.spec.burst() {
		binary.BigEndian.PutUint32(c.datagram[4:], c.first+uint32(i))
		if err := c.startAt(c.datagram, now); err != nil {
			return err
		}
	}
	return nil
}

// maxBurst bounds Spec.Burst.
const maxBurst = 32

// burst is how many datagrams of a socket are on their way together.
func (s *Spec) burst() int { return max(s.Burst, 1) }

// serveDatagrams takes in the answers, and sends the next datagrams when all are there.
func (l *loop) serveDatagrams(c *conn) error {
	for {
		n, errno := epoll.Recv(c.fd, c.buf[:])
		switch _, err := result(n, errno); {
		case err == errAgain:
			return nil
		case err != nil:
			return l.restart(c, err)
		case !c.answered(c.buf[:n]):
			return l.restart(c, fmt.Errorf("datagram of %d bytes that is not the answer to one of the last", n))
		}
		now := time.Now()
		l.requests++
		l.latency.Add(now.Sub(c.sent))
		if c.awaited != 0 {
			continue
		}
		if err := c.nextDatagrams(l, now); err != nil {
			return l.restart(c, err)
		}
		if l.spec.burst() == 1 {
			return nil // nothing else can be there
		}
	}
}

// answered reports whether a datagram is the answer to one that has none yet, and notes that.
func (c *conn) answered(b []byte) bool {
	if len(b) != len(c.datagram) || !bytes.Equal(b[:4], c.datagram[:4]) || !bytes.Equal(b[8:], c.datagram[8:]) {
		return false
	}
	i := binary.BigEndian.Uint32(b[4:]) - c.first
	if i >= maxBurst || c.awaited>>i&1 == 0 {
		return false
	}
	c.awaited &^= 1 << i
	return true
}

// missed counts datagrams without an answer as errors, and begins anew on other sockets.
func (l *loop) missed(now time.Time) error {
	for _, c := range l.conns {
		if now.Sub(c.sent) < maxLost {
			continue
		}
		if err := l.restart(c, fmt.Errorf("no answer to a datagram within %v", maxLost)); err != nil {
			return err
		}
	}
	return nil
}
