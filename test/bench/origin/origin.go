//go:build linux

// Package origin is the backend of the benchmark: an HTTP/1.1 server that does as
// little as a server can, so that the proxy in front of it is the busy one. It
// parses just enough to frame requests that the proxies made themselves, and
// must not be used for anything else. It imports epoll and the standard library.
//
// The answers, all with the same fields: a path with "/big" gets 64 KiB, a path with
// "/inspect" gets the request head as the origin received it, any other 1 KiB; the
// body of a POST is read and dropped first.
package origin

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"syscall"

	"github.com/moongate-dev/moongate/test/bench/epoll"
)

// Sizes of the two fixed bodies in bytes.
const (
	SmallBody = 1 << 10
	BigBody   = 64 << 10
)

const maxHead = 8 << 10

// Server answers on connections of one listening socket.
type Server struct {
	poller     *epoll.Poller
	listener   int
	small, big []byte
	conns      []*conn // by descriptor
}

// conn is one connection from a proxy.
type conn struct {
	fd      int
	head    [maxHead]byte
	n       int    // bytes of head in use
	body    int    // bytes of the request body still to come
	pending []byte // the answer to send when the body is in
	unsent  []byte // what the socket did not take yet
}

// New makes a server for the listening socket.
func New(listener int) (*Server, error) {
	poller, err := epoll.NewPoller()
	if err != nil {
		return nil, err
	}
	if err := poller.Add(listener, listener); err != nil {
		return nil, err
	}
	return &Server{
		poller: poller, listener: listener,
		small: response(filler(SmallBody)), big: response(filler(BigBody)),
	}, nil
}

// Serve answers until the poller fails; the process ends by a signal.
func (s *Server) Serve() error {
	for {
		events, err := s.poller.Wait(-1)
		if err != nil {
			return err
		}
		for i := range events {
			fd := int(events[i].Fd)
			if fd == s.listener {
				if err := s.accept(); err != nil {
					return err
				}
				continue
			}
			if c := s.conns[fd]; c != nil && !s.serve(c, &events[i]) {
				s.conns[fd] = nil
				syscall.Close(fd)
			}
		}
	}
}

func (s *Server) accept() error {
	for {
		fd, ok := epoll.Accept(s.listener)
		if !ok {
			return nil
		}
		if err := epoll.NoDelay(fd); err != nil {
			return fmt.Errorf("TCP_NODELAY: %w", err)
		}
		if err := epoll.SendBuffer(fd, 4*BigBody); err != nil {
			return fmt.Errorf("SO_SNDBUF: %w", err)
		}
		for len(s.conns) <= fd {
			s.conns = append(s.conns, nil)
		}
		s.conns[fd] = &conn{fd: fd}
		if err := s.poller.Add(fd, fd); err != nil {
			return fmt.Errorf("epoll_ctl: %w", err)
		}
	}
}

// serve moves c as far as it goes; false means that the connection is over.
func (s *Server) serve(c *conn, ev *syscall.EpollEvent) bool {
	if len(c.unsent) > 0 && !c.flush() {
		return false
	}
	for epoll.Readable(ev) {
		n, want, errno := c.receive()
		if errno == syscall.EAGAIN {
			return true
		}
		if errno != 0 || n == 0 || !s.advance(c) {
			return false
		}
		if n < want && !epoll.Ended(ev) {
			return true
		}
	}
	return true
}

// receive takes in a part of the body (without copying it) or of a head.
func (c *conn) receive() (n, want int, errno syscall.Errno) {
	if c.body > 0 {
		want = c.body
		if n, errno = epoll.Discard(c.fd, want); errno == 0 {
			c.body -= n
		}
		return n, want, errno
	}
	want = len(c.head) - c.n
	if n, errno = epoll.Recv(c.fd, c.head[c.n:]); errno == 0 {
		c.n += n
	}
	return n, want, errno
}

// advance answers every request that is complete.
func (s *Server) advance(c *conn) bool {
	for {
		if c.pending == nil {
			end := bytes.Index(c.head[:c.n], []byte("\r\n\r\n"))
			if end < 0 {
				return c.n < len(c.head)
			}
			if !s.begin(c, end+4) {
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

// begin chooses the answer to the head of n bytes and takes it off the buffer,
// with what is there of its body.
func (s *Server) begin(c *conn, n int) bool {
	head := c.head[:n]
	target, _, _ := bytes.Cut(head, []byte("\r\n"))
	switch {
	case bytes.Contains(target, []byte("/big")):
		c.pending = s.big
	case bytes.Contains(target, []byte("/inspect")):
		c.pending = response(head)
	default:
		c.pending = s.small
	}
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
	return true
}

// flush sends what is unsent; false on a broken connection.
func (c *conn) flush() bool {
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
	return true
}

// contentLength finds the field, whose name a proxy may have written in lower case.
func contentLength(head []byte) (int, bool) {
	const name = "content-length:"
	for {
		end := bytes.IndexByte(head, '\n')
		if end < 0 {
			return 0, false
		}
		line := head[:end]
		head = head[end+1:]
		if len(line) > len(name) && line[0]|0x20 == 'c' && bytes.EqualFold(line[:len(name)], []byte(name)) {
			n, err := strconv.Atoi(string(bytes.TrimSpace(line[len(name):])))
			return n, err == nil && n >= 0
		}
	}
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
