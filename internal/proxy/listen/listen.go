// Package listen owns the listening TCP sockets: it binds them, accepts connections and handles errors of accept. It
// exists so that the rest of the proxy only sees accepted connections.
//
// It must never import a package that knows the protocol of a connection.
package listen

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/moongate-dev/moongate/internal/proxy/socket"
)

// Addr is the address to which a socket is bound.
type Addr struct {
	// IP is the address to bind; the zero value means every address, IPv4 and IPv6. 0.0.0.0 and :: mean every address
	// of their family.
	IP   netip.Addr
	Port uint16
}

// String returns the form that net.Listen takes, for example ":80" or "[::1]:80".
func (a Addr) String() string {
	if !a.IP.IsValid() {
		return fmt.Sprintf(":%d", a.Port)
	}
	return netip.AddrPortFrom(a.IP, a.Port).String()
}

// network returns protocol, "tcp" or "udp", for the family of the address: without the family package net makes 0.0.0.0
// one socket for both.
func (a Addr) network(protocol string) string {
	switch {
	case !a.IP.IsValid():
		return protocol
	case a.IP.Unmap().Is4():
		return protocol + "4"
	}
	return protocol + "6"
}

// Covers reports whether connections to a local address arrive at a socket that is bound to a.
func (a Addr) Covers(local netip.Addr) bool {
	local = local.Unmap()
	switch ip := a.IP.Unmap(); {
	case !ip.IsValid():
		return true
	case ip.IsUnspecified():
		return local.Is4() == ip.Is4()
	default:
		return ip == local
	}
}

// Overlaps reports whether two sockets cannot be bound to a and b at the same time, because there are connections that
// would arrive at both.
func (a Addr) Overlaps(b Addr) bool {
	return a.Port == b.Port && (!a.IP.IsValid() || !b.IP.IsValid() || a.Covers(b.IP) || b.Covers(a.IP))
}

// single reports whether a is one address.
func (a Addr) single() bool { return a.IP.IsValid() && !a.IP.Unmap().IsUnspecified() }

// CompareScope orders the addresses of one port such that one address precedes all of a family, which precede all of both.
func CompareScope(a, b Addr) int {
	scope := func(x Addr) int {
		switch {
		case x.single():
			return 0
		case x.IP.IsValid():
			return 1
		}
		return 2
	}
	return cmp.Or(cmp.Compare(scope(a), scope(b)), a.Compare(b))
}

// Compare orders by address, then by port; every address comes first.
func (a Addr) Compare(b Addr) int { return cmp.Or(a.IP.Compare(b.IP), cmp.Compare(a.Port, b.Port)) }

// Predecessor is another process whose sockets this one takes over.
type Predecessor interface {
	// Socket returns a socket that the process has open, to be closed by the caller, or nil. network is "tcp" or "udp",
	// address as returned by Addr.String.
	Socket(network, address string) *os.File
	// Done returns a channel that is closed when the process takes nothing from its sockets any more.
	Done() <-chan struct{}
}

// Turn is whether this process may already take what arrives on a socket while there is a Predecessor. The zero value
// means that it may.
type Turn struct {
	begun  <-chan struct{} // nil if there is no other process
	closed chan struct{}
}

// TurnAfter returns a Turn that begins when the predecessor is done.
func TurnAfter(p Predecessor) Turn { return Turn{begun: p.Done(), closed: make(chan struct{})} }

// Wait waits until it is this process's turn, or until Close.
func (t Turn) Wait() {
	if t.begun == nil {
		return
	}
	select {
	case <-t.begun:
	case <-t.closed:
	}
}

// Begun reports whether it is this process's turn.
func (t Turn) Begun() bool {
	if t.begun == nil {
		return true
	}
	select {
	case <-t.begun:
		return true
	default:
		return false
	}
}

// Close ends Wait. It must be called at most once.
func (t Turn) Close() {
	if t.closed != nil {
		close(t.closed)
	}
}

// Socket is one listening socket.
type Socket struct {
	Addr Addr
	// ID is a small number, unique among the open sockets; the owner sets it.
	ID     int
	ln     *listener
	turn   Turn
	closed atomic.Bool
	done   chan struct{}
	raw    rawAccept
}

// Raw is an accepted connection that only its owner knows: a non-blocking socket.
type Raw struct {
	FD   int
	Peer netip.AddrPort // the zero value if it is no longer known
}

// rawAccept is for connections that are passed on as Raw.
type rawAccept struct {
	wanted func() bool // nil means none
	handle func(Raw)
	more   sync.Once
}

// ServeRaw makes Serve pass connections to handle as Raw, as long as wanted returns true, if the system supports it.
// handle is as in Serve. It must be called before Serve.
func (s *Socket) ServeRaw(wanted func() bool, handle func(Raw)) {
	s.raw.wanted, s.raw.handle = wanted, handle
}

// mostRawAcceptors is the largest number of goroutines that accept connections passed on as Raw: these goroutines also
// do what follows the accept.
const mostRawAcceptors = 16

// keepAlivePeriod is how soon the kernel checks whether a silent peer is still there. It is set on the listening
// socket, from which Linux copies it to each connection, so that an accept needs no further system call.
const (
	keepAlivePeriod   = 60 * time.Second
	keepAliveInterval = 15 * time.Second
	keepAliveCount    = 4
)

// Open binds addr, or takes the socket over from a process that has it open. In either case Serve accepts nothing until
// that process is done: it may continue, and this one must then leave the socket to it. from may be nil. The error is
// the system's, for example EADDRINUSE.
func Open(addr Addr, from Predecessor) (*Socket, error) {
	var turn Turn
	if from != nil {
		turn = TurnAfter(from)
		if tcp := inherit(addr, from); tcp != nil {
			return newSocket(addr, tcp, turn)
		}
	}
	lc := net.ListenConfig{KeepAlive: -1, Control: inheritOptions}
	lc.SetMultipathTCP(false) // Linux has no filters for such sockets, see Retire
	ln, err := lc.Listen(context.Background(), addr.network("tcp"), addr.String())
	if err != nil {
		return nil, err
	}
	return newSocket(addr, ln.(*net.TCPListener), turn)
}

// newSocket creates a Socket from tcp, which it closes if that fails.
func newSocket(addr Addr, tcp *net.TCPListener, turn Turn) (*Socket, error) {
	ln, err := listenerOf(tcp)
	if err != nil {
		return nil, err
	}
	return &Socket{Addr: addr, ln: ln, turn: turn, done: make(chan struct{})}, nil
}

// inherit returns the socket of another process; nil if it has none that can be used.
func inherit(addr Addr, from Predecessor) *net.TCPListener {
	file := from.Socket("tcp", addr.String())
	if file == nil {
		return nil
	}
	defer file.Close()
	ln, err := net.FileListener(file)
	if err != nil {
		return nil // binding the address returns the error
	}
	tcp, ok := ln.(*net.TCPListener)
	if !ok {
		ln.Close()
		return nil
	}
	if rc, err := tcp.SyscallConn(); err == nil { // another version may have set fewer
		inheritOptions("", "", rc)
	}
	return tcp
}

// SyscallConn is for passing the socket to another process.
func (s *Socket) SyscallConn() (syscall.RawConn, error) { return s.ln.SyscallConn() }

// Serve accepts connections and passes each to handle, which owns it, until Close. handle must not block, and must be
// safe for concurrent use. report is called with errors of accept except those caused by Close; Serve waits a little
// after each, because most of them (no more descriptors) pass.
func (s *Socket) Serve(handle func(*socket.Conn), report func(error)) {
	s.serve(acceptors(runtime.GOMAXPROCS(0)), handle, report)
}

// acceptors returns how many goroutines accept. Only one at a time can take a connection from the socket, but that is a
// third of the cost to start one; several share the rest if there are enough cores to need more than 100,000 new
// connections a second.
func acceptors(cores int) int { return 1 + min(cores/16, 3) }

func (s *Socket) serve(acceptors int, handle func(*socket.Conn), report func(error)) {
	defer close(s.done)
	if s.turn.Wait(); !s.turn.Begun() {
		return // what arrives belongs to the predecessor, also while the socket is being closed
	}
	var all sync.WaitGroup
	more := func() { // called once connections are Raw
		for range min(runtime.GOMAXPROCS(0), mostRawAcceptors) - acceptors {
			all.Go(func() { s.accept(handle, report, nil) })
		}
	}
	for range acceptors - 1 {
		all.Go(func() { s.accept(handle, report, more) })
	}
	s.accept(handle, report, more)
	all.Wait()
}

func (s *Socket) accept(handle func(*socket.Conn), report func(error), more func()) {
	var pause time.Duration
	a := newAccepted()
	failures := 0 // during Retire
	for n := 1; ; n++ {
		if n%acceptsInTurn == 0 {
			runtime.Gosched()
		}
		err := s.acceptOne(a, handle, more)
		if err == nil {
			pause = 0
			continue
		}
		if s.closed.Load() || errors.Is(err, net.ErrClosed) {
			var call *os.SyscallError
			switch {
			case errors.Is(err, os.ErrDeadlineExceeded) && waiting(s.ln) && s.ln.setDeadline(time.Now().Add(acceptRest)) == nil:
				continue
			case errors.As(err, &call) && failures < mostFailures: // for example that there are no descriptors
				failures++
				report(err)
				time.Sleep(acceptRest)
				continue
			}
			return
		}
		report(err)
		pause = min(max(2*pause, 5*time.Millisecond), time.Second)
		time.Sleep(pause)
	}
}

// Close stops accepting and waits for Serve to return. It must be called once, after Serve was started.
func (s *Socket) Close() {
	s.closed.Store(true)
	s.turn.Close()
	s.ln.close()
	<-s.done
}

// acceptRest is how long each accept may take of the connections that still wait when the grace of Retire is over, and
// the pause after an accept that fails during Retire; mostFailures is how many may fail.
const (
	acceptRest   = 10 * time.Millisecond
	mostFailures = 100
)

// acceptsInTurn is the number of accepts after which a goroutine lets others run: the scheduler does not know of the
// system calls.
const acceptsInTurn = 64

// Retire is Close for a socket whose clients must not lose connections. If the system supports it, attempts to connect
// remain unanswered for grace, so that clients repeat them by themselves, and every connection that was begun before is
// passed on; closing a socket resets those that wait to be accepted. A socket that a Predecessor still serves is only
// closed.
func (s *Socket) Retire(grace time.Duration) {
	if s.turn.Begun() && ignoreAttempts(s.ln) == nil {
		s.closed.Store(true)
		if s.ln.setDeadline(time.Now().Add(grace)) == nil {
			<-s.done
		}
	}
	s.Close()
}

// Abandon closes a socket on which Serve was never started.
func (s *Socket) Abandon() { s.ln.close() }
