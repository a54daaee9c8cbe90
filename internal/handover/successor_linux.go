package handover

import (
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

// Options say how a successor is started, and what it is given.
type Options struct {
	// Path is the program, Args its arguments with its name first.
	Path string
	Args []string
	// Socket returns an open socket, or nil; network and address are what the successor asks for.
	Socket func(network, address string) syscall.Conn
	// Secret returns what keys are derived from.
	Secret []byte
	// Accept reports whether a successor may take over that has all that it is to serve but for what why says.
	Accept func(why string) bool
	// Timeout is how long it may take; 0 is the constant Timeout.
	Timeout time.Duration
}

// Successor is a process that is ready to take over.
type Successor struct {
	PID     int
	process *os.Process
	ended   <-chan error
	conn    *net.UnixConn
}

// Start starts a successor and returns when it is ready. Where that does not come about, or ctx ends, the successor has ended, and the error says why.
func Start(ctx context.Context, o Options) (*Successor, error) {
	ours, theirs, err := pair()
	if err != nil {
		return nil, err
	}
	cmd := &exec.Cmd{Path: o.Path, Args: o.Args, Env: append(os.Environ(), fmt.Sprintf("%s=%d", Variable, descriptor)),
		Stdout: os.Stdout, Stderr: os.Stderr, ExtraFiles: []*os.File{theirs}}
	err = cmd.Start()
	theirs.Close()
	if err != nil {
		ours.Close()
		return nil, fmt.Errorf("it cannot be started: %w", err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	states := make(chan string)
	stop := make(chan struct{})
	defer close(stop)
	go serve(ours, o, states, stop)

	err = await(ctx, o, states, ended)
	if err == nil {
		return &Successor{PID: cmd.Process.Pid, process: cmd.Process, ended: ended, conn: ours}, nil
	}
	var gone *goneError
	if !errors.As(err, &gone) {
		end(cmd.Process, ended)
	}
	ours.Close() // not before it has ended: it would serve
	return nil, err
}

// goneError is that the successor has ended.
type goneError struct{ error }

// await returns when a successor is ready, or why it will not be.
func await(ctx context.Context, o Options, states <-chan string, ended <-chan error) error {
	timeout := o.Timeout
	if timeout == 0 {
		timeout = Timeout
	}
	limit := time.NewTimer(timeout)
	defer limit.Stop()
	why := "it has not read its configuration"
	for {
		select {
		case why = <-states:
			if why == "" || o.Accept(why) {
				return nil
			}
		case err := <-ended:
			if err == nil {
				err = errors.New("exit status 0")
			}
			return &goneError{fmt.Errorf("it ended: %w", err)}
		case <-ctx.Done():
			return ctx.Err()
		case <-limit.C:
			return fmt.Errorf("it was not ready within %v: %s", timeout, why)
		}
	}
}

// end ends a process that is not wanted.
func end(p *os.Process, ended <-chan error) {
	_ = p.Signal(syscall.SIGTERM) // one that has ended is what is wanted
	select {
	case <-ended:
	case <-time.After(endTimeout):
		_ = p.Kill()
		<-ended
	}
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

// serve answers what the successor asks until either has ended.
func serve(conn *net.UnixConn, o Options, states chan<- string, stop <-chan struct{}) {
	text := make([]byte, maxMessage)
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
		case tellState:
			if !r.Ready {
				continue
			}
			select {
			case states <- r.Why:
			case <-stop: // it has been decided
			}
			continue
		case askSocket:
			err = sendSocket(conn, o.Socket(r.Network, r.Address))
		case askSecret:
			err = send(conn, reply{Found: true, Secret: o.Secret}, nil)
		default:
			err = send(conn, reply{}, nil)
		}
		if err != nil {
			return
		}
	}
}

func sendSocket(conn *net.UnixConn, s syscall.Conn) error {
	if s == nil {
		return send(conn, reply{}, nil)
	}
	rc, err := s.SyscallConn()
	var sent error
	if err == nil {
		err = rc.Control(func(fd uintptr) { sent = send(conn, reply{Found: true}, unix.UnixRights(int(fd))) })
	}
	if err != nil { // it was closed this moment
		return send(conn, reply{}, nil)
	}
	return sent
}

func send(conn *net.UnixConn, r reply, rights []byte) error {
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	_, _, err = conn.WriteMsgUnix(text, rights, nil)
	return err
}

// Begin has the successor take what comes in on the sockets from now on: nothing must be taken from them here any more.
func (s *Successor) Begin() { s.conn.Close() }

// End ends the successor, in the place of Begin.
func (s *Successor) End() {
	end(s.process, s.ended)
	s.conn.Close() // not before it has ended: it would serve
}
