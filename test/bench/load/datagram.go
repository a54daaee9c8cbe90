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

// nextDatagram sends Message with the number of the connection and that of the datagram at its beginning, so that an answer which is
// another's, or comes twice, does not count.
func (c *conn) nextDatagram(l *loop, now time.Time) error {
	if c.datagram == nil {
		c.datagram = bytes.Clone(l.spec.Message)
		binary.BigEndian.PutUint32(c.datagram, uint32(c.id))
	}
	c.number++
	binary.BigEndian.PutUint32(c.datagram[4:], c.number)
	return c.startAt(c.datagram, now)
}

// serveDatagram takes in the answer and sends the next. No more than one is in flight, so that nothing else can be there.
func (l *loop) serveDatagram(c *conn) error {
	n, errno := epoll.Recv(c.fd, c.buf[:])
	switch _, err := result(n, errno); {
	case err == errAgain:
		return nil
	case err != nil:
		return l.restart(c, err)
	case !bytes.Equal(c.buf[:n], c.datagram):
		return l.restart(c, fmt.Errorf("datagram of %d bytes that is not the answer to the last one", n))
	}
	now := time.Now()
	l.requests++
	l.latency.Add(now.Sub(c.sent))
	if err := c.nextDatagram(l, now); err != nil {
		return l.restart(c, err)
	}
	return nil
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
