package exchange

import (
	"errors"
	"io"
	"net"
	"testing"

	"github.com/moongate-dev/moongate/internal/proxy/buffer"
	"github.com/moongate-dev/moongate/internal/proxy/http1"
	"github.com/moongate-dev/moongate/internal/proxy/message"
	"github.com/moongate-dev/moongate/internal/proxy/upstream"
)

// trickle is a backend of which one byte comes at a time. It counts how many bytes of a head are parsed in all.
type trickle struct {
	net.Conn
	left   string
	resp   *message.Response
	came   int
	parsed int
}

// unparsed is a status that no parser leaves there.
const unparsed = -1

func (c *trickle) Read(b []byte) (int, error) {
	if c.resp.Status != unparsed {
		c.parsed += c.came
		c.resp.Status = unparsed
	}
	if c.left == "" {
		return 0, io.EOF
	}
	b[0], c.left = c.left[0], c.left[1:]
	c.came++
	return 1, nil
}

// readTrickle reads the head of a response of which head is the beginning, byte by byte.
func readTrickle(head string) (*trickle, error) {
	var resp message.Response
	c := &trickle{left: head[1:], resp: &resp, came: 1}
	a := &attempt{engine: &Engine{}}
	defer a.Give()
	a.Take()[0] = head[0]
	a.useHTTP1(&upstream.Conn{Conn: c})
	t := a.http1
	t.sent, t.at, t.limit = true, buffer.Headroom, buffer.Headroom+1
	return c, t.readHead([]byte("GET"), &resp)
}

// TestHeadByteByByte: a backend whose head comes byte by byte, as it can have it with TLS records, does not have it parsed from its beginning for each of them. What is
// wrong at its end is found nevertheless.
func TestHeadByteByByte(t *testing.T) {
	const start = "HTTP/1.1 200 OK\r\na: "
	long := make([]byte, 40<<10)
	for i := range long {
		long[i] = 'b'
	}
	c, err := readTrickle(start + string(long))
	var malformed *http1.Error
	if !errors.As(err, &malformed) || c.came != 32<<10 {
		t.Errorf("too long: after %d bytes %v", c.came, err)
	}
	if c.parsed > 6*c.came {
		t.Errorf("too long: %d bytes are parsed of %d", c.parsed, c.came)
	}
	if _, err := readTrickle(start + string(long[:1000])); err != io.EOF {
		t.Errorf("incomplete: %v", err)
	}
	if _, err := readTrickle(start + string(long[:1000]) + "\x01"); !errors.As(err, &malformed) {
		t.Errorf("malformed at the end: %v", err)
	}
	if _, err := readTrickle(start + string(long[:1000]) + "\r\n\r\n"); err != nil {
		t.Errorf("complete: %v", err)
	}
}
