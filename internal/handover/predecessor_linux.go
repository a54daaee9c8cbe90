package handover

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// Predecessor is the process that this one will replace. It implements listen.Predecessor, and is safe for concurrent use.
type Predecessor struct {
	conn     *net.UnixConn
	done     chan struct{}
	unwanted chan struct{}
	replies  chan answer
	awaited  atomic.Int64 // request.ID of the awaited reply, 0 if none

	mu   sync.Mutex // held while a reply is awaited
	sent []byte     // the last State that was sent, nil if none
	last int        // the last request.ID
}

type answer struct {
	reply
	file *os.File // nil if none
}

// FromEnvironment returns the process whose successor this one is, or nil if it was not started as one. In the intermediate process
// it starts the successor, and exits. It must be called once, before other goroutines start processes.
func FromEnvironment() (*Predecessor, error) {
	text, successor := inheritedFrom()
	if text == "" {
		return nil, nil
	}
	fd, err := strconv.Atoi(text)
	if err != nil || fd != descriptor {
		return nil, fmt.Errorf("%s=%q is not a descriptor of this process; only a process that is being replaced sets it, so unset it", descriptorVariable, text)
	}
	unix.CloseOnExec(fd)
	file := os.NewFile(uintptr(fd), "handover")
	defer file.Close()
	c, err := net.FileConn(file)
	if err != nil {
		return nil, fmt.Errorf("%s: descriptor %d: %w; only a process that is being replaced sets it, so unset it", descriptorVariable, fd, err)
	}
	conn, ok := c.(*net.UnixConn)
	if !ok {
		c.Close()
		return nil, fmt.Errorf("%s: descriptor %d is not the socket of a process that is being replaced; unset it", descriptorVariable, fd)
	}
	if !successor {
		if err := startSuccessor(conn, file); err != nil {
			return nil, err
		}
		os.Exit(0)
	}
	p := newPredecessor(conn)
	go p.leave()
	return p, nil
}

// startSuccessor starts this program again, with the end of the socket pair, and reports its PID.
func startSuccessor(conn *net.UnixConn, file *os.File) error {
	path, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := command(path, os.Args, file)
	cmd.Env = append(cmd.Env, successorVariable+"=1")
	if err := cmd.Start(); err != nil {
		return err
	}
	text, err := json.Marshal(request{Do: typePID, PID: cmd.Process.Pid})
	if err == nil {
		_, err = conn.Write(text)
	}
	if err != nil { // there is no predecessor any longer
		_ = cmd.Process.Kill()
	}
	return err
}

func newPredecessor(conn *net.UnixConn) *Predecessor {
	p := &Predecessor{conn: conn, done: make(chan struct{}), unwanted: make(chan struct{}), replies: make(chan answer, 1)}
	go p.read()
	return p
}

// Done is closed when the predecessor accepts no more on its sockets, or has exited; never after Unwanted.
func (p *Predecessor) Done() <-chan struct{} { return p.done }

// Unwanted is closed when the predecessor continues to serve: then this process must exit.
func (p *Predecessor) Unwanted() <-chan struct{} { return p.unwanted }

// leave exits if this process must not serve and does not exit by itself: the predecessor may not know its PID.
func (p *Predecessor) leave() {
	select {
	case <-p.unwanted:
		time.Sleep(endTimeout)
		os.Exit(1)
	case <-p.done:
	}
}

func (p *Predecessor) read() {
	text, rights := make([]byte, maxMessage), make([]byte, unix.CmsgSpace(4))
	for {
		n, rightsN, _, _, err := p.conn.ReadMsgUnix(text, rights)
		if err != nil || n == 0 {
			p.conn.Close()
			close(p.done)
			return
		}
		a := answer{file: fileOf(rights[:rightsN])}
		if json.Unmarshal(text[:n], &a.reply) != nil {
			a.reply = reply{ID: a.ID}
		}
		if a.End {
			a.close()
			close(p.unwanted)
			return // the connection exists as long as this process
		}
		if a.ID == 0 || !p.awaited.CompareAndSwap(int64(a.ID), 0) {
			a.close() // it is not the awaited reply
			continue
		}
		p.replies <- a // never blocks: it is the only reply to its request
	}
}

// fileOf returns the descriptor in a control message; nil if there is none.
func fileOf(rights []byte) *os.File {
	messages, err := unix.ParseSocketControlMessage(rights)
	if err != nil || len(messages) == 0 {
		return nil
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil || len(fds) == 0 {
		return nil
	}
	return os.NewFile(uintptr(fds[0]), "socket")
}

func (a *answer) close() {
	if a.file != nil {
		a.file.Close()
	}
}

// call sends a request and returns its reply, or an empty one if there is none.
func (p *Predecessor) call(r request) answer {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.last++
	r.ID = p.last
	p.awaited.Store(int64(r.ID))
	if !p.send(r) {
		return answer{}
	}
	select {
	case a := <-p.replies:
		return a
	case <-p.unwanted:
		return answer{}
	case <-p.done:
	}
	select {
	case a := <-p.replies: // it came before the end
		return a
	default:
		return answer{}
	}
}

func (p *Predecessor) send(r request) bool {
	text, err := json.Marshal(r)
	if err != nil {
		return false
	}
	_, err = p.conn.Write(text)
	return err == nil
}

// Socket returns a socket that the predecessor has open, which the caller must close, or nil.
func (p *Predecessor) Socket(network, address string) *os.File {
	a := p.call(request{Do: typeSocket, Network: network, Address: address})
	return a.file
}

// Secret returns the secret from which the predecessor derives keys; nil if it sends none.
func (p *Predecessor) Secret() []byte {
	a := p.call(request{Do: typeSecret})
	a.close()
	return a.reply.Secret
}

// Ready reports to the predecessor that this process has read everything that it will serve, and what that is.
func (p *Predecessor) Ready(s State) {
	text, err := json.Marshal(s)
	if err != nil {
		return // a State can always be encoded
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if bytes.Equal(p.sent, text) {
		return
	}
	for rest := text; len(rest) > 0; {
		part := rest[:min(len(rest), maxPart)]
		rest = rest[len(part):]
		if !p.send(request{Do: typeState, State: part, More: len(rest) > 0}) {
			return
		}
	}
	p.sent = text
}
