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
	gone    <-chan struct{} // closed when it has ended
	conn    *net.UnixConn
}

// Start starts a successor and returns when it is ready. Where that does not come about, or ctx ends, the successor has ended, and the error says why.
func Start(ctx context.Context, o Options) (*Successor, error) {
	ours, theirs, err := pair()
	if err != nil {
		return nil, err
	}
	cmd := command(o.Path, o.Args, theirs)
	err = cmd.Start()
	theirs.Close()
	if err != nil {
		ours.Close()
		return nil, fmt.Errorf("it cannot be started: %w", err)
	}
	o.Timeout = cmp.Or(o.Timeout, defaultTimeout)
	limit := time.NewTimer(o.Timeout)
	defer limit.Stop()
	w := &waiter{said: make(chan told), gone: make(chan struct{}), stop: make(chan struct{})}
	go w.serve(ours, o)
	starter := make(chan error, 1)
	go func() { starter <- cmd.Wait() }()
	s := &Successor{gone: w.gone, conn: ours}
	if err := s.await(ctx, o, w, starter, limit.C); err != nil {
		if s.process == nil { // the starter has told nothing, and starts nothing any more
			_ = cmd.Process.Kill() // one that has ended is what is wanted
		}
		close(w.stop)
		s.End()
		return nil, err
	}
	close(w.stop)
	return s, nil
}

// await returns when the successor is ready, or why it will not be. Where that comes before it is known which process the successor is, it waits for that a little longer, so
// that End can end it.
func (s *Successor) await(ctx context.Context, o Options, w *waiter, starter <-chan error, limit <-chan time.Time) error {
	why := errors.New("it has not read its configuration")
	var state *State
	var failed error
	again := time.NewTicker(time.Second)
	defer again.Stop()
	for {
		select {
		case r := <-w.said:
			if r.state != nil {
				state = r.state
			} else {
				s.PID = r.pid
				s.process, _ = os.FindProcess(r.pid) // which does not fail on Linux
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
			return errors.New("it ended; what it has logged may say why")
		case <-ctx.Done():
			failed, ctx = ctx.Err(), context.WithoutCancel(ctx) // once is enough
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
		case state != nil && starter == nil: // before the starter has ended, the successor is no child of what supervises this process
			if why = o.Accept(*state); why == nil {
				return nil
			}
		}
	}
}

// command is a program with one end of the socket pair.
func command(path string, args []string, end *os.File) *exec.Cmd {
	return &exec.Cmd{Path: path, Args: args, Env: append(os.Environ(), fmt.Sprintf("%s=%d", descriptorVariable, descriptor)), Stdout: os.Stdout, Stderr: os.Stderr, ExtraFiles: []*os.File{end}}
}

// Alive reports whether it has not ended.
func (s *Successor) Alive() bool {
	select {
	case <-s.gone:
		return false
	default:
		return true
	}
}

// Begin has the successor take what comes in on the sockets from now on: nothing must be taken from them here any more.
func (s *Successor) Begin() { s.conn.Close() }

// Signal sends it a signal; the error is that it has ended.
func (s *Successor) Signal(sig syscall.Signal) error { return s.process.Signal(sig) }

// End ends the successor, in the place of Begin, and returns when it has ended.
func (s *Successor) End() {
	never := s.refuse() // first: it must not serve when the connection is closed, though it be alive
	if s.process != nil {
		_ = s.process.Signal(syscall.SIGTERM) // one that has ended is what is wanted
		select {
		case <-s.gone:
		case <-time.After(endTimeout):
			never = s.process.Kill() == nil || never // it does nothing more, even where it cannot end yet
		}
	}
	select {
	case <-s.gone:
		never = true
	case <-time.After(endTimeout): // something else has the socket pair
	}
	if never { // else it would serve
		s.conn.Close()
	}
}

// refuse tells the successor that it is not wanted, and reports whether that is sure: it was told, or nobody can be.
func (s *Successor) refuse() bool {
	_ = s.conn.SetWriteDeadline(time.Now().Add(endTimeout)) // it may read nothing
	err := send(s.conn, reply{End: true}, nil)
	return err == nil || errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET)
}

// pair returns two ends of which messages keep their boundaries.
func pair() (ours *net.UnixConn, theirs *os.File, err error) {
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

// waiter is told what a successor says, until stop is closed.
type waiter struct {
	said chan told
	gone chan struct{} // closed when the successor has ended
	stop chan struct{}
}

// told is what is told: a state, or the successor's PID.
type told struct {
	state *State
	pid   int
}

// tell passes something on, unless it has been decided.
func (w *waiter) tell(t told) {
	select {
	case w.said <- t:
	case <-w.stop:
	}
}

// serve answers what the successor asks until it has ended, or conn is closed. An answer that cannot be sent, as where too many descriptors are under way, says nothing about
// whether the successor has ended: that is what Read tells.
func (w *waiter) serve(conn *net.UnixConn, o Options) {
	defer close(w.gone)
	text := make([]byte, maxMessage)
	var state []byte // what has come of it
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
		case tellPID:
			w.tell(told{pid: r.PID})
		case tellState:
			if state = append(state, r.State...); len(state) > maxState {
				return // it says what no process of this program does
			}
			if r.More {
				break
			}
			var s State
			if json.Unmarshal(state, &s) == nil {
				w.tell(told{state: &s})
			}
			state = nil
		case askSocket:
			if socket := o.Socket(r.Network, r.Address); sendSocket(conn, r.ID, socket) && o.Sent != nil {
				o.Sent(socket)
			}
		case askSecret:
			_ = send(conn, reply{ID: r.ID, Found: true, Secret: o.Secret}, nil)
		default:
			if r.ID != 0 { // else it asks nothing
				_ = send(conn, reply{ID: r.ID}, nil)
			}
		}
	}
}

// sendSocket hands a socket over, and reports whether it has. Where not the successor is told that there is none, and asks again.
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
