//go:build linux

// Package origin is the backend of the benchmark: a server that does as
// little as a server can, so that the proxy in front of it is the busy one. It
// parses just enough to frame requests that the proxies made themselves, and
// must not be used for anything else. UDP datagrams go back as they came. It imports epoll, frame, HPACK and the standard library.
//
// In HTTP/1.1, with TLS or without, a path with "/big" gets 64 KiB, one with "/huge" 1 MiB, a path with
// "/inspect" gets the request head as the origin received it, one with "/socket" a WebSocket
// that sends back what it gets, any other 1 KiB; the
// body of a POST is read and dropped first. All answers have the same fields.
//
// In HTTP/2 every request is a call of gRPC, and says by the first byte of its first message how it goes on: see Unary, Watch and Echo.
package origin

import (
	"crypto/tls"
	"errors"
	"fmt"
	"syscall"

	"github.com/moongate-dev/moongate/test/bench/epoll"
)

// Sizes of the fixed bodies in bytes.
const (
	SmallBody = 1 << 10
	BigBody   = 64 << 10
	HugeBody  = 1 << 20
)

// Server answers on connections of its listening sockets.
type Server struct {
	poller    *epoll.Poller
	listeners map[int]func(fd int) (handler, error) // by descriptor
	handlers  []handler                             // by descriptor

	small, big, huge []byte
}

// handler is one connection from a proxy, or a socket for all its datagrams.
type handler interface {
	// serve moves it on after an event; false means that it is over.
	serve(ev *syscall.EpollEvent) bool
}

// New makes a server without a listening socket.
func New() (*Server, error) {
	poller, err := epoll.NewPoller()
	if err != nil {
		return nil, err
	}
	return &Server{
		poller: poller, listeners: map[int]func(int) (handler, error){},
		small: response(filler(SmallBody)), big: response(filler(BigBody)), huge: response(filler(HugeBody)),
	}, nil
}

// HTTP1 answers in HTTP/1.1 on a listening socket.
func (s *Server) HTTP1(listener int) error {
	return s.listen(listener, func(fd int) (handler, error) { return &conn{s: s, fd: fd}, nil })
}

// TLS answers in HTTP/1.1 over TLS on a listening socket.
func (s *Server) TLS(listener int, config *tls.Config) error {
	return s.listen(listener, func(fd int) (handler, error) {
		socket := &epoll.Socket{FD: fd, Block: true}
		c := &conn{s: s, fd: fd, tls: tls.Server(socket, config)}
		if err := c.tls.Handshake(); err != nil { // everything waits for it; the connections are few
			return nil, err
		}
		socket.Block = false
		// The first request may have come with the handshake's end, and then no event tells of it.
		if !c.serve(&syscall.EpollEvent{Events: syscall.EPOLLIN}) {
			return nil, errors.New("closed after the handshake")
		}
		return c, nil
	})
}

// HTTP2 answers calls of gRPC in HTTP/2 without TLS on a listening socket.
func (s *Server) HTTP2(listener int) error {
	return s.listen(listener, func(fd int) (handler, error) { return newSession(fd), nil })
}

func (s *Server) listen(listener int, open func(int) (handler, error)) error {
	s.listeners[listener] = open
	return s.poller.Add(listener, listener)
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
			if open := s.listeners[fd]; open != nil {
				if err := s.accept(fd, open); err != nil {
					return err
				}
				continue
			}
			if h := s.handlers[fd]; h != nil && !h.serve(&events[i]) {
				s.handlers[fd] = nil
				syscall.Close(fd)
			}
		}
	}
}

// handle has the events of fd go to h.
func (s *Server) handle(fd int, h handler) {
	for len(s.handlers) <= fd {
		s.handlers = append(s.handlers, nil)
	}
	s.handlers[fd] = h
}

func (s *Server) accept(listener int, open func(int) (handler, error)) error {
	for {
		fd, ok := epoll.Accept(listener)
		if !ok {
			return nil
		}
		if err := epoll.NoDelay(fd); err != nil {
			return fmt.Errorf("TCP_NODELAY: %w", err)
		}
		if err := epoll.SendBuffer(fd, 4*BigBody); err != nil {
			return fmt.Errorf("SO_SNDBUF: %w", err)
		}
		h, err := open(fd)
		if err != nil { // the proxy did not go through with it
			syscall.Close(fd)
			continue
		}
		s.handle(fd, h)
		if err := s.poller.Add(fd, fd); err != nil {
			return fmt.Errorf("epoll_ctl: %w", err)
		}
	}
}
