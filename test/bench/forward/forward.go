//go:build linux

// Package forward is about the least that a proxy for HTTP/1.1 can cost: it receives what the client has sent, sends it to an idle connection of
// the origin, and does the same with the response. It has no timeouts, log or metrics, and adds no field. All that it looks at is the end of a request, from
// which it takes "Connection: close", and the length of a response. So it costs what the kernel does in one receive and one send for each message,
// and little more. Accepting a connection is not as cheap as it could be: each batch ends with a call that finds none, and each connection gets
// TCP_NODELAY.
//
// It must not be used for anything but the benchmark.
package forward

import (
	"bytes"
	"errors"
	"net/netip"
	"slices"
	"strconv"
	"syscall"

	"github.com/moongate-dev/moongate/test/bench/epoll"
)

// Server forwards requests to one origin.
type Server struct {
	poller   *epoll.Poller
	listener int
	origin   netip.AddrPort
	ends     []*end // by descriptor
	idle     []*end // connections to the origin that no request uses
	buffer   [256 << 10]byte
}

// end is a connection to a client or to the origin.
type end struct {
	fd        int
	client    bool
	peer      *end   // nil while there is no request on its way
	unsent    []byte // what the socket did not take; meanwhile nothing is received from the peer
	remaining int    // bytes of the response that the origin has still to send
	unbounded bool   // no response of a known length, but a WebSocket
	closing   bool   // the client wants the connection to be closed after the response
}

// New makes a server for a listening socket.
func New(listener int, origin netip.AddrPort) (*Server, error) {
	poller, err := epoll.NewPoller()
	if err != nil {
		return nil, err
	}
	return &Server{poller: poller, listener: listener, origin: origin}, poller.Add(listener, listener)
}

// Serve forwards until the poller fails; the process ends by a signal.
func (s *Server) Serve() error {
	for {
		events, err := s.poller.WaitRaw()
		if err != nil {
			return err
		}
		for i := range events {
			ev := &events[i]
			fd := int(ev.Fd)
			if fd == s.listener {
				if err := s.accept(); err != nil {
					return err
				}
				continue
			}
			if e := s.ends[fd]; e != nil {
				s.serve(e, ev)
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
		if _, err := s.add(fd, true); err != nil {
			return err
		}
	}
}

func (s *Server) add(fd int, client bool) (*end, error) {
	for len(s.ends) <= fd {
		s.ends = append(s.ends, nil)
	}
	e := &end{fd: fd, client: client}
	s.ends[fd] = e
	return e, errors.Join(epoll.NoDelay(fd), s.poller.Add(fd, fd))
}

// serve moves an end on after an event.
func (s *Server) serve(e *end, ev *syscall.EpollEvent) {
	if len(e.unsent) > 0 {
		unsent := e.unsent
		e.unsent = nil
		if !e.send(unsent) {
			s.close(e)
			return
		}
		if len(e.unsent) == 0 && e.peer != nil {
			s.pump(e.peer, true) // its events are over
		}
	}
	if s.ends[e.fd] == e && epoll.Readable(ev) {
		s.pump(e, epoll.Ended(ev))
	}
}

// pump receives until nothing is left, or the peer takes no more; a short receive is the last one unless more is to be expected.
func (s *Server) pump(e *end, toTheEnd bool) {
	for e.peer == nil || len(e.peer.unsent) == 0 {
		n, errno := epoll.Recv(e.fd, s.buffer[:])
		if errno == syscall.EAGAIN {
			return
		}
		if errno != 0 || n == 0 || !s.forward(e, s.buffer[:n]) {
			s.close(e)
			return
		}
		if s.ends[e.fd] != e || n < len(s.buffer) && !toTheEnd {
			return
		}
	}
}

// forward sends what an end has received to its peer; false on a connection that is broken.
func (s *Server) forward(e *end, data []byte) bool {
	if e.client {
		return s.request(e, data)
	}
	client := e.peer
	if client == nil {
		return false // unasked
	}
	if e.remaining == 0 && !e.unbounded {
		e.remaining, e.unbounded = length(data)
	}
	if !e.unbounded {
		e.remaining -= len(data)
	}
	if !client.send(data) {
		return false
	}
	if e.remaining == 0 && !e.unbounded {
		s.finish(client, e)
	}
	return true
}

var closing = []byte("\r\nConnection: close\r\n\r\n")

func (s *Server) request(e *end, data []byte) bool {
	if e.peer == nil {
		origin, err := s.take()
		if err != nil {
			return false
		}
		e.peer, origin.peer = origin, e
	}
	if bytes.HasSuffix(data, closing) {
		e.closing = true
		data = append(data[:len(data)-len(closing)], "\r\n\r\n"...)
	}
	return e.peer.send(data)
}

// take is a connection to the origin.
func (s *Server) take() (*end, error) {
	if n := len(s.idle); n > 0 {
		e := s.idle[n-1]
		s.idle = s.idle[:n-1]
		return e, nil
	}
	fd, err := epoll.Dial(s.origin)
	if err != nil {
		return nil, err
	}
	return s.add(fd, false)
}

// finish ends an exchange. A response that the client has not taken in yet keeps its connection, and the client's is not closed.
func (s *Server) finish(client, origin *end) {
	origin.peer, client.peer = nil, nil
	s.idle = append(s.idle, origin)
	if client.closing && len(client.unsent) == 0 {
		s.close(client)
	}
}

// close closes an end, and the other end of its exchange.
func (s *Server) close(e *end) {
	for _, each := range []*end{e, e.peer} {
		if each == nil {
			continue
		}
		each.peer = nil
		s.ends[each.fd] = nil
		syscall.Close(each.fd)
	}
	if e.client {
		return
	}
	if i := slices.Index(s.idle, e); i >= 0 {
		s.idle = slices.Delete(s.idle, i, i+1)
	}
}

// send sends to an end, and keeps what the socket does not take.
func (e *end) send(data []byte) bool {
	for len(data) > 0 {
		if len(e.unsent) > 0 {
			e.unsent = append(e.unsent, data...)
			return true
		}
		n, errno := epoll.Send(e.fd, data)
		if errno == syscall.EAGAIN {
			e.unsent = bytes.Clone(data)
			return true
		}
		if errno != 0 {
			return false
		}
		data = data[n:]
	}
	return true
}

// length is that of the response that begins with data, with its head; unbounded if none is given.
func length(data []byte) (n int, unbounded bool) {
	head, _, _ := bytes.Cut(data, []byte("\r\n\r\n"))
	_, rest, ok := bytes.Cut(head, []byte("\r\nContent-Length: "))
	digits, _, _ := bytes.Cut(rest, []byte("\r\n"))
	body, err := strconv.Atoi(string(digits))
	if !ok || err != nil {
		return 0, true
	}
	return len(head) + 4 + body, false
}
