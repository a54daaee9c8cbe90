//go:build linux

package origin

import (
	"bytes"
	"crypto/sha1"
	"crypto/tls"
	"encoding/base64"
	"fmt"
	"io"
	"slices"
	"strconv"
	"syscall"

	"github.com/moongate-dev/moongate/test/bench/epoll"
)

const maxHead = 8 << 10

// conn is one connection of HTTP/1.1 from a proxy.
type conn struct {
	s       *Server
	fd      int
	tls     *tls.Conn // nil on plain connections
	head    [maxHead]byte
	n       int    // bytes of head in use
	body    int    // bytes of the request body still to come
	pending []byte // the answer to send when the body is in
	unsent  []byte // what the socket did not take yet
	echo    bool   // a WebSocket: what comes in goes back
	closing bool   // closed when the answer is sent, as the client has asked; only through layer 4 is it the client that asks
}

func (c *conn) serve(ev *syscall.EpollEvent) bool {
	if len(c.unsent) > 0 && !c.flush() {
		return false
	}
	for epoll.Readable(ev) {
		n, want, again, err := c.receive()
		if again {
			return true
		}
		if err != nil || n == 0 || !c.advance() {
			return false
		}
		if n < want && c.tls == nil && !epoll.Ended(ev) {
			return true
		}
	}
	return true
}

// receive takes in a part of the body (without keeping it) or of a head.
func (c *conn) receive() (n, want int, again bool, err error) {
	if c.body > 0 {
		want = c.body
		n, again, err = c.discard(want)
		c.body -= n
		return n, want, again, err
	}
	want = len(c.head) - c.n
	n, again, err = c.recv(c.head[c.n:])
	c.n += n
	return n, want, again, err
}

// recv reads what is there; again where that is nothing.
func (c *conn) recv(b []byte) (n int, again bool, err error) {
	if c.tls == nil {
		return outcome(epoll.Recv(c.fd, b))
	}
	n, err = c.tls.Read(b)
	switch err {
	case epoll.ErrSocketEmpty:
		return n, true, nil
	case io.EOF:
		return n, false, nil
	}
	return n, false, err
}

// dropped takes what discard reads from TLS connections; its content is never read.
var dropped [32 << 10]byte

func (c *conn) discard(n int) (int, bool, error) {
	if c.tls == nil {
		return outcome(epoll.Discard(c.fd, n))
	}
	return c.recv(dropped[:min(n, len(dropped))])
}

func outcome(n int, errno syscall.Errno) (int, bool, error) {
	switch errno {
	case 0:
		return n, false, nil
	case syscall.EAGAIN:
		return 0, true, nil
	}
	return 0, false, errno
}

// advance answers every request that is complete.
func (c *conn) advance() bool {
	for {
		if c.echo {
			return c.sendBack()
		}
		if c.pending == nil {
			end := bytes.Index(c.head[:c.n], []byte("\r\n\r\n"))
			if end < 0 {
				return c.n < len(c.head)
			}
			if !c.begin(end + 4) {
				return false
			}
		}
		if c.body > 0 {
			return true
		}
		if len(c.unsent) == 0 {
			c.unsent = c.pending
		} else { // pipelined; a fresh array, for unsent may be one of the shared answers
			c.unsent = slices.Concat(c.unsent, c.pending)
		}
		c.pending = nil
		if !c.flush() {
			return false
		}
	}
}

// sendBack is what a WebSocket does with all that came in.
func (c *conn) sendBack() bool {
	b := c.head[:c.n]
	c.n = 0
	if len(c.unsent) > 0 {
		c.unsent = slices.Concat(c.unsent, b)
		return c.flush()
	}
	c.unsent = b
	ok := c.flush()
	c.unsent = slices.Clone(c.unsent) // head takes in the next; nil where all is sent
	return ok
}

// begin chooses the answer to the head of n bytes and takes it off the buffer,
// with what is there of its body.
func (c *conn) begin(n int) bool {
	head := c.head[:n]
	target, _, _ := bytes.Cut(head, []byte("\r\n"))
	switch {
	case bytes.Contains(target, []byte("/big")):
		c.pending = c.s.big
	case bytes.Contains(target, []byte("/huge")):
		c.pending = c.s.huge
	case bytes.Contains(target, []byte("/inspect")):
		c.pending = response(head)
	case bytes.Contains(target, []byte("/socket")):
		c.pending, c.echo = switching(head), true
	default:
		c.pending = c.s.small
	}
	c.closing = bytes.EqualFold(value(head, "connection:"), []byte("close"))
	body := 0
	if head[0] == 'P' {
		var ok bool
		if body, ok = contentLength(head); !ok {
			return false
		}
	}
	here := min(body, c.n-n)
	c.n = copy(c.head[:], c.head[n+here:c.n])
	c.body = body - here
	if c.echo {
		c.unsent, c.pending = slices.Concat(c.unsent, c.pending), nil
	}
	return true
}

// flush sends what is unsent; false on a connection that is broken, or whose last answer is sent.
func (c *conn) flush() bool {
	if c.tls != nil && len(c.unsent) > 0 {
		_, err := c.tls.Write(c.unsent) // waits for room
		c.unsent = nil
		return err == nil && !c.ended()
	}
	for len(c.unsent) > 0 {
		n, errno := epoll.Send(c.fd, c.unsent)
		if errno == syscall.EAGAIN {
			return true
		}
		if errno != 0 {
			return false
		}
		c.unsent = c.unsent[n:]
	}
	c.unsent = nil
	return !c.ended()
}

// ended reports whether no answer is to follow those that are sent.
func (c *conn) ended() bool { return c.closing && c.pending == nil }

// contentLength finds the length of a request's body.
func contentLength(head []byte) (int, bool) {
	n, err := strconv.Atoi(string(value(head, "content-length:")))
	return n, err == nil && n >= 0
}

// value finds a field, whose name, here with its colon, a proxy may have written in lower case; nil without one.
func value(head []byte, name string) []byte {
	for {
		end := bytes.IndexByte(head, '\n')
		if end < 0 {
			return nil
		}
		line := head[:end]
		head = head[end+1:]
		if len(line) > len(name) && line[0]|0x20 == name[0] && bytes.EqualFold(line[:len(name)], []byte(name)) {
			return bytes.TrimSpace(line[len(name):])
		}
	}
}

// switching is the answer to a request for a WebSocket (RFC 6455 section 4.2.2).
func switching(head []byte) []byte {
	sum := sha1.Sum(append(bytes.Clone(value(head, "sec-websocket-key:")), "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"...))
	return fmt.Appendf(nil, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: %s\r\n\r\n",
		base64.StdEncoding.EncodeToString(sum[:]))
}

// response is a whole response with a body, with the fields of an ordinary JSON service.
func response(body []byte) []byte {
	return append(fmt.Appendf(nil, "HTTP/1.1 200 OK\r\n"+
		"Server: origin/1.0\r\n"+
		"Date: Mon, 05 Jan 2026 10:00:00 GMT\r\n"+
		"Content-Type: application/json; charset=utf-8\r\n"+
		"Content-Length: %d\r\n"+
		"Cache-Control: private, max-age=0\r\n"+
		"ETag: \"5f2c-1b2a9c\"\r\n"+
		"Vary: Accept-Encoding\r\n"+
		"X-Request-Id: 7d4f1c52-77aa-4f6b-9df0-1a2b3c4d5e6f\r\n\r\n", len(body)), body...)
}

// filler is text in which a misplaced or missing byte shows.
func filler(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = 'a' + byte((i*7+i/13)%26)
	}
	return b
}
