// Package listen owns the listening TCP sockets: it binds them, accepts
// connections and survives what accept can throw at it. It exists so that the
// rest of the proxy sees accepted connections only.
//
// It must never import a package that knows what is spoken on a connection.
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

// Addr is where a socket is bound.
type Addr struct {
	// IP is the address to bind; the zero value is every address, IPv4 and IPv6. 0.0.0.0 and :: are every one of their family.
	IP   netip.Addr
	Port uint16
}

// String is the form that net.Listen takes, for example ":80" or "[::1]:80".
func (a Addr) String() string {
	if !a.IP.IsValid() {
		return fmt.Sprintf(":%d", a.Port)
	}
	return netip.AddrPortFrom(a.IP, a.Port).String()
}

// network is protocol, "tcp" or "udp", for the family of the address: without it package net makes 0.0.0.0 one socket of both.
func (a Addr) network(protocol string) string {
	switch {
	case !a.IP.IsValid():
		return protocol
	case a.IP.Unmap().Is4():
		return protocol + "4"
	}
	return protocol + "6"
}

// Compare orders by address, and then by port; every address comes first.
func (a Addr) Compare(b Addr) int { return cmp.Or(a.IP.Compare(b.IP), cmp.Compare(a.Port, b.Port)) }

// Predecessor is another process, whose sockets this one takes over.
type Predecessor interface {
	// Socket returns a socket that the process has open, to be closed by the caller, or nil. network is "tcp" or "udp", address as Addr.String has it.
	Socket(network, address string) *os.File
	// Done is closed when the process takes nothing from its sockets any more.
	Done() <-chan struct{}
}

// Turn is whose turn it is to take what comes in on a socket while there is a Predecessor. The zero value is ours.
type Turn struct {
	ours   <-chan struct{} // nil where there is no other process
	closed chan struct{}
}

// TurnAfter is ours when the predecessor is done.
func TurnAfter(p Predecessor) Turn { return Turn{ours: p.Done(), closed: make(chan struct{})} }

// Wait returns when it is our turn, or after Close.
func (t Turn) Wait() {
	if t.ours == nil {
		return
	}
	select {
	case <-t.ours:
	case <-t.closed:
	}
}

// Ours reports whether it is our turn.
func (t Turn) Ours() bool {
	if t.ours == nil {
		return true
	}
	select {
	case <-t.ours:
		return true
	default:
		return false
	}
}

// Close ends Wait. It must be called once at most.
func (t Turn) Close() {
	if t.closed != nil {
		close(t.closed)
	}
}

// Socket is one listening socket.
type Socket struct {
	Addr Addr
	// ID is a small number, unique among the sockets that are open; the owner gives it.
	ID     int
	ln     *listener
	turn   Turn
	closed atomic.Bool
	done   chan struct{}
	raw    rawAccept
}

// Raw is a connection that was accepted and that nobody but its owner knows of: a socket that does not block.
type Raw struct {
	FD   int
	Peer netip.AddrPort // the zero value where that is not known any more
}

// rawAccept is for connections that are handed on as Raw.
type rawAccept struct {
	wanted func() bool // nil: none
	handle func(Raw)
	more   sync.Once
}

// ServeRaw has Serve hand connections on to handle as Raw, as long as wanted returns true, where the system can; handle is as that of Serve. It must be
// called before Serve.
func (s *Socket) ServeRaw(wanted func() bool, handle func(Raw)) {
	s.raw.wanted, s.raw.handle = wanted, handle
}

// mostRawAcceptors is how many goroutines accept connections that are handed on as Raw, at most: what follows the accept is done on them.
const mostRawAcceptors = 16

// keepAlivePeriod is how soon the kernel asks a silent peer whether it still lives.
// It is set on the listening socket, from which Linux copies it to each connection,
// so that an accept costs no further system call.
const (
	keepAlivePeriod   = 60 * time.Second
	keepAliveInterval = 15 * time.Second
	keepAliveCount    = 4
)

// Open binds addr, or takes the socket over from a process that has it open. Serve accepts nothing in either case until that process is done: it may go on, and this one
// must then leave what it has bound to it. from may be nil. The error is the system's, for example EADDRINUSE.
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

// newSocket makes a Socket of tcp, which it closes if that fails.
func newSocket(addr Addr, tcp *net.TCPListener, turn Turn) (*Socket, error) {
	ln, err := listenerOf(tcp)
	if err != nil {
		return nil, err
	}
	return &Socket{Addr: addr, ln: ln, turn: turn, done: make(chan struct{})}, nil
}

// inherit returns the socket of another process; nil where it has none that can be used.
func inherit(addr Addr, from Predecessor) *net.TCPListener {
	file := from.Socket("tcp", addr.String())
	if file == nil {
		return nil
	}
	defer file.Close()
	ln, err := net.FileListener(file)
	if err != nil {
		return nil // binding the address tells what is wrong
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

// SyscallConn is for handing the socket to another process.
func (s *Socket) SyscallConn() (syscall.RawConn, error) { return s.ln.SyscallConn() }

// Serve accepts connections and hands each to handle, which owns it, until Close; it returns then.
// handle must not block, and be safe for concurrent use. report is told of failures of accept that are not Close;
// Serve waits a little after each, because most of them (no more descriptors) pass.
func (s *Socket) Serve(handle func(*socket.Conn), report func(error)) {
	s.serve(acceptors(runtime.GOMAXPROCS(0)), handle, report)
}

// acceptors is how many goroutines accept. Only one at a time can take a connection from the socket, but
// that is a third of what it costs to get one going; several share the rest where there are enough cores
// to need more than 100,000 new connections a second.
func acceptors(cores int) int { return 1 + min(cores/16, 3) }

func (s *Socket) serve(acceptors int, handle func(*socket.Conn), report func(error)) {
	defer close(s.done)
	if s.turn.Wait(); !s.turn.Ours() {
		return // what comes in is the predecessor's, also while the socket is being closed
	}
	var all sync.WaitGroup
	more := func() { // once connections are Raw
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
			case errors.As(err, &call) && failures < mostFailures: // such as that there are no descriptors
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

// Close stops accepting and waits for Serve to return. It must be called once,
// after Serve was started.
func (s *Socket) Close() {
	s.closed.Store(true)
	s.turn.Close()
	s.ln.close()
	<-s.done
}

// acceptRest is for accepting what waits when the grace of Retire is over, one connection each time, and the pause after an accept that fails during Retire;
// mostFailures is how many may fail.
const (
	acceptRest   = 10 * time.Millisecond
	mostFailures = 100
)

// acceptsInTurn is after how many accepts a goroutine lets others run: the scheduler is not told of the system calls.
const acceptsInTurn = 64

// Retire is Close for a socket whose clients shall lose nothing. Where the system can, attempts to
// connect remain unanswered for grace, so that clients repeat them by themselves, and every connection
// that was begun before is handed on; a closed socket resets those that wait to be accepted. A socket that a Predecessor still serves is only closed.
func (s *Socket) Retire(grace time.Duration) {
	if s.turn.Ours() && ignoreAttempts(s.ln) == nil {
		s.closed.Store(true)
		if s.ln.setDeadline(time.Now().Add(grace)) == nil {
			<-s.done
		}
	}
	s.Close()
}

// Abandon closes a socket on which Serve was never started.
func (s *Socket) Abandon() { s.ln.close() }
