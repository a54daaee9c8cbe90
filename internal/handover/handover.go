// Package handover replaces a process by another one of the same program, maybe of another version, that takes over its listening sockets, so that no
// connection is refused meanwhile.
//
// The process starts its successor with one end of a socket pair. The successor asks over it for each socket that it is to bind, and is handed the descriptor
// of the one that is open; it does not accept from it yet. When it has everything that it is to serve it says so. The process then stops accepting, and closes
// its end, which is what the successor waits for to begin: exactly one of them accepts at any time, and what clients begin meanwhile waits in the kernel. A
// process that dies closes its end, too, so that the successor serves then, whatever state it is in. A successor that dies or does not become ready is ended,
// and nothing has changed: it is told that it is not wanted before the end is closed, so that it does not take that for its turn.
//
// What the process starts starts the successor and ends, so that the successor becomes a child of what supervises both. systemd sends SIGKILL at once, instead of waiting
// for the end, to a service whose main process was another's child when it became that.
//
// It must never know what the sockets are for.
package handover

import (
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

const (
	// descriptorVariable is the environment variable that holds the number of the descriptor by which a successor talks to its predecessor.
	descriptorVariable = "MOONGATE_HANDOVER_FD"
	// successorVariable is set for the successor, and not for the process that starts it.
	successorVariable = "MOONGATE_HANDOVER_SUCCESSOR"
)

const (
	// defaultTimeout is that of Options.
	defaultTimeout = time.Minute
	// maxMessage bounds a message, maxPart the part of a State in one, four thirds of which it takes there, and maxState a State; all in bytes.
	maxMessage = 32 << 10
	maxPart    = 16 << 10
	maxState   = 256 << 20
	// descriptor is the first that a process gets by exec.Cmd.ExtraFiles.
	descriptor = 3
	// endTimeout is how long a successor that is not wanted may take to end by itself.
	endTimeout = 5 * time.Second
)

// What a request is for. One that is not known is answered by an empty reply where it has an ID, since the two processes may be of different versions.
const (
	askSocket = "socket"
	askSecret = "secret"
	// These have no reply.
	tellState = "state"
	tellPID   = "pid"
)

// Options say how a successor is started, and what it is given.
type Options struct {
	// Path is the program, Args its arguments with its name first.
	Path string
	Args []string
	// Socket returns an open socket, or nil; network and address are what the successor asks for. It is called by another goroutine than Start's.
	Socket func(network, address string) syscall.Conn
	// Sent is called, likewise, with each that the successor has been sent; nil is not called.
	Sent func(syscall.Conn)
	// Secret is what keys are derived from.
	Secret []byte
	// Accept says why a successor that has read all that it is to serve may not take over yet; nil is that it may. It is asked again when the successor serves
	// something else, and each second.
	Accept func(State) error
	// Timeout is how long the successor may take; 0 is a minute.
	Timeout time.Duration
}

// State is what a process serves. Its keys must be those of other versions of the program, its texts need not.
type State struct {
	// Lacks says of each object that is not used why, "" for no text.
	Lacks map[string]string `json:"lacks,omitempty"`
	// Serves has how many routes each listener that serves has, for each of its addresses.
	Serves map[string]int `json:"serves,omitempty"`
}

// request is what a successor sends, as JSON in one message.
type request struct {
	// ID is repeated by the reply; 0 is that none is wanted.
	ID      int    `json:"id,omitempty"`
	Do      string `json:"do"`
	Network string `json:"network,omitempty"`
	Address string `json:"address,omitempty"`
	// State is a part of State as JSON, which does not fit into one message; More is that another one follows.
	State []byte `json:"state,omitempty"`
	More  bool   `json:"more,omitempty"`
	// PID is the successor's, which the process that has started it tells.
	PID int `json:"pid,omitempty"`
}

// reply is what a predecessor sends, as JSON in one message; a socket comes beside it.
type reply struct {
	ID     int    `json:"id,omitempty"`
	Found  bool   `json:"found,omitempty"`
	Secret []byte `json:"secret,omitempty"`
	// End is no reply: the successor is not wanted, and must never take anything from the sockets.
	End bool `json:"end,omitempty"`
}

// Program returns the path by which this program was started, with its symbolic links: whatever is installed there by then is what a successor is to run. Call it at the
// start, since the path may lead to another program later.
func Program() (string, error) {
	running, err := os.Executable()
	if err != nil {
		return "", err
	}
	named, err := exec.LookPath(os.Args[0])
	if err == nil {
		named, err = filepath.Abs(named)
	}
	if err != nil || !sameFile(running, named) { // the first argument may be anything
		return running, nil
	}
	return named, nil
}

func sameFile(a, b string) bool {
	infoA, errA := os.Stat(a)
	infoB, errB := os.Stat(b)
	return errA == nil && errB == nil && os.SameFile(infoA, infoB)
}

// inheritedFrom takes the descriptor's number out of the environment, so that what this process starts does not have it; "" is that there is none. It reports whether
// this process is the successor, and not the one that is to start it.
func inheritedFrom() (text string, successor bool) {
	text, successor = os.Getenv(descriptorVariable), os.Getenv(successorVariable) != ""
	os.Unsetenv(descriptorVariable)
	os.Unsetenv(successorVariable)
	return text, successor
}
