package handover

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Successor is a process that is ready to take over.
type Successor struct {
	PID     int
	process *os.Process     // nil while it is not known
	gone    <-chan struct{} // closed when it has exited
	conn    *net.UnixConn
}

// Start starts a successor and returns when it is ready. If it does not become ready, or ctx ends, the successor has exited, and the
// error is why.
func Start(ctx context.Context, o Options) (*Successor, error) {
	own, theirs, err := pair()
	if err != nil {
		return nil, err
	}
	cmd := command(o.Path, o.Args, theirs)
	err = cmd.Start()
	theirs.Close()
	if err != nil {
		own.Close()
		return nil, fmt.Errorf("it cannot be started: %w", err)
	}
	o.Timeout = cmp.Or(o.Timeout, defaultTimeout)
	limit := time.NewTimer(o.Timeout)
	defer limit.Stop()
	w := &waiter{messages: make(chan message), gone: make(chan struct{}), stop: make(chan struct{})}
	go w.serve(own, o)
	starter := make(chan error, 1)
	go func() { starter <- cmd.Wait() }()
	s := &Successor{gone: w.gone, conn: own}
	if err := s.await(ctx, o, w, starter, limit.C); err != nil {
		if s.process == nil { // the intermediate process has reported no PID, and must not start a successor any longer
			_ = cmd.Process.Kill() // it may have exited already
		}
		close(w.stop)
		s.End()
		return nil, err
	}
	close(w.stop)
	return s, nil
}

// await returns when the successor is ready, or why it will not be. In the latter case it waits a little longer for the PID of the
// successor, so that End can end it.
func (s *Successor) await(ctx context.Context, o Options, w *waiter, starter <-chan error, limit <-chan time.Time) error {
	why := errors.New("it has not read its configuration")
	var state *State
	var failed error
	again := time.NewTicker(time.Second)
	defer again.Stop()
	for {
		select {
		case r := <-w.messages:
			if r.state != nil {
				state = r.state
			} else {
				s.PID = r.pid
				s.process, _ = os.FindProcess(r.pid) // it never fails on Linux
			}
		case <-again.C: // what the process itself serves may have changed
		case err := <-starter:
			if err != nil {
				return fmt.Errorf("it ended: %w", err)
			}
			starter = nil
		case <-w.gone:
			if starter != nil {
				if err := <-starter; err != nil {
					return fmt.Errorf("it ended: %w", err)
				}
			}
			return errors.New("it ended; its log may explain why")
		case <-ctx.Done():
			failed, ctx = ctx.Err(), context.WithoutCancel(ctx) // ctx is handled only once
			limit = time.After(endTimeout)
		case <-limit:
			if failed == nil {
				failed = fmt.Errorf("it was not ready within %v: %w", o.Timeout, why)
				limit = time.After(endTimeout)
				break
			}
			return failed
		}
		switch {
		case s.process == nil:
		case failed != nil:
			return failed
		case state != nil && starter == nil: // before the intermediate process has exited, the successor is not a child of the supervisor
			if why = o.Accept(*state); why == nil {
				return nil
			}
		}
	}
}

// command returns the command for a program with one end of the socket pair.
func command(path string, args []string, end *os.File) *exec.Cmd {
	return &exec.Cmd{Path: path, Args: args, Env: append(os.Environ(), fmt.Sprintf("%s=%d", descriptorVariable, descriptor)), Stdout: os.Stdout, Stderr: os.Stderr, ExtraFiles: []*os.File{end}}
}

// Alive reports whether it has not exited.
func (s *Successor) Alive() bool {
	select {
	case <-s.gone:
		return false
	default:
		return true
	}
}

// Begin makes the successor accept on the sockets; this process must not accept on them any longer.
func (s *Successor) Begin() { s.conn.Close() }

// Signal sends it a signal; the error is that it has exited.
func (s *Successor) Signal(sig syscall.Signal) error { return s.process.Signal(sig) }

// End ends the successor, instead of Begin, and returns when it has exited.
func (s *Successor) End() {
	never := s.refuse() // first: it must not serve when the connection is closed, even if it cannot be killed
	if s.process != nil {
		_ = s.process.Signal(syscall.SIGTERM) // it may have exited already
		select {
		case <-s.gone:
		case <-time.After(endTimeout):
			never = s.process.Kill() == nil || never // after SIGKILL it does nothing more, even if it has not exited yet
		}
	}
	select {
	case <-s.gone:
		never = true
	case <-time.After(endTimeout): // another process has inherited the socket pair
	}
	if never { // otherwise it would serve
		s.conn.Close()
	}
}

// refuse notifies the successor that it must not serve, and reports whether that is certain: it was notified, or there is none.
func (s *Successor) refuse() bool {
	_ = s.conn.SetWriteDeadline(time.Now().Add(endTimeout)) // it may not read
	err := send(s.conn, reply{End: true}, nil)
	return err == nil || errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET)
}

// pair returns the two ends of a socket pair that preserves message boundaries.
func pair() (own *net.UnixConn, theirs *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, nil, os.NewSyscallError("socketpair", err)
	}
	theirs = os.NewFile(uintptr(fds[1]), "handover")
	file := os.NewFile(uintptr(fds[0]), "handover")
	defer file.Close()
	c, err := net.FileConn(file)
	if err != nil {
		theirs.Close()
		return nil, nil, err
	}
	return c.(*net.UnixConn), theirs, nil
}

// waiter passes messages of a successor on, until stop is closed.
type waiter struct {
	messages chan message
	gone     chan struct{} // closed when the successor has exited
	stop     chan struct{}
}

// message is such a message: a state, or the successor's PID.
type message struct {
	state *State
	pid   int
}

// pass passes a message on, unless stop is closed.
func (w *waiter) pass(t message) {
	select {
	case w.messages <- t:
	case <-w.stop:
	}
}

// serve answers the requests of the successor until it has exited, or conn is closed. If a reply cannot be sent, for example because
// too many descriptors are in flight, the successor may still be running: only a failed read shows that it has exited.
func (w *waiter) serve(conn *net.UnixConn, o Options) {
	defer close(w.gone)
	text := make([]byte, maxMessage)
	var state []byte // the parts received so far
	for {
		n, err := conn.Read(text)
		if err != nil || n == 0 {
			return
		}
		var r request
		if json.Unmarshal(text[:n], &r) != nil {
			r = request{}
		}
		switch r.Do {
		case typePID:
			w.pass(message{pid: r.PID})
		case typeState:
			if state = append(state, r.State...); len(state) > maxState {
				return // no process of this program sends that
			}
			if r.More {
				break
			}
			var s State
			if json.Unmarshal(state, &s) == nil {
				w.pass(message{state: &s})
			}
			state = nil
		case typeSocket:
			if socket := o.Socket(r.Network, r.Address); sendSocket(conn, r.ID, socket) && o.Sent != nil {
				o.Sent(socket)
			}
		case typeSecret:
			_ = send(conn, reply{ID: r.ID, Found: true, Secret: o.Secret}, nil)
		default:
			if r.ID != 0 { // without an ID it expects no reply
				_ = send(conn, reply{ID: r.ID}, nil)
			}
		}
	}
}

// sendSocket sends a socket, and reports whether that succeeded. If not, the successor receives an empty reply, and asks again.
func sendSocket(conn *net.UnixConn, id int, s syscall.Conn) bool {
	if s != nil {
		if rc, err := s.SyscallConn(); err == nil {
			var sent error
			err = rc.Control(func(fd uintptr) { sent = send(conn, reply{ID: id, Found: true}, unix.UnixRights(int(fd))) })
			if err == nil && sent == nil {
				return true
			}
		}
	}
	_ = send(conn, reply{ID: id}, nil)
	return false
}

func send(conn *net.UnixConn, r reply, rights []byte) error {
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	_, _, err = conn.WriteMsgUnix(text, rights, nil)
	return err
}
