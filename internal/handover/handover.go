// Package handover replaces a process by another one of the same program, possibly of another version, that takes over its listening
// sockets, so that no connection is refused.
//
// The process starts its successor with one end of a socket pair. The successor requests each socket that it needs to bind, and
// receives the descriptor of the open one; it does not accept on it yet. When it has everything that it will serve, it reports that.
// The process then stops accepting, and closes its end, which is the signal for the successor to begin: exactly one of them accepts
// at any time, and new connections in between wait in the kernel. If the process crashes, its end is closed too, so that the
// successor serves then, whatever its state. A successor that crashes or does not become ready is ended, and nothing has changed: it
// is notified that it must not serve before the end is closed, so that it does not mistake that for the signal.
//
// The process starts an intermediate process that starts the successor and exits, so that the successor becomes a child of the
// supervisor of both. If the main process of a service was a child of another process when it became that, systemd kills it with
// SIGKILL instead of waiting for its end.
//
// It must never depend on the purpose of the sockets.
package handover

import (
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

const (
	// descriptorVariable is the environment variable with the number of the descriptor by which a successor communicates with its
	// predecessor.
	descriptorVariable = "MOONGATE_HANDOVER_FD"
	// successorVariable is set for the successor, and not for the intermediate process.
	successorVariable = "MOONGATE_HANDOVER_SUCCESSOR"
)

const (
	// defaultTimeout is the default of Options.Timeout.
	defaultTimeout = time.Minute
	// maxMessage is the maximum size of a message, maxPart that of a part of a State in one (which base64 increases by a third), and
	// maxState that of a State; all in bytes.
	maxMessage = 32 << 10
	maxPart    = 16 << 10
	maxState   = 256 << 20
	// descriptor is the first number that exec.Cmd.ExtraFiles assigns.
	descriptor = 3
	// endTimeout is how long a successor that must not serve may take to exit by itself.
	endTimeout = 5 * time.Second
)

// Types of requests. An unknown one with an ID is answered by an empty reply, because the two processes may have different versions.
const (
	typeSocket = "socket"
	typeSecret = "secret"
	// These have no reply.
	typeState = "state"
	typePID   = "pid"
)

// Options define how a successor is started, and what it receives.
type Options struct {
	// Path is the path of the program, Args are its arguments, beginning with its name.
	Path string
	Args []string
	// Socket returns an open socket, or nil, for a network and address that the successor requests. Another goroutine than that of
	// Start calls it.
	Socket func(network, address string) syscall.Conn
	// Sent is called, by the same goroutine, with each socket that was sent to the successor; may be nil.
	Sent func(syscall.Conn)
	// Secret is the secret from which keys are derived.
	Secret []byte
	// Accept returns why a successor that has read everything may not take over yet, or nil if it may. It is called again when the
	// state of the successor changes, and every second.
	Accept func(State) error
	// Timeout is how long the successor may take; 0 means one minute.
	Timeout time.Duration
}

// State is what a process serves. Keys must be the same in all versions of the program, texts may differ.
type State struct {
	// Lacks contains why objects are not used, "" for no text.
	Lacks map[string]string `json:"lacks,omitempty"`
	// Serves contains the number of routes of each listener that serves, for each of its addresses.
	Serves map[string]int `json:"serves,omitempty"`
}

// request is a message of a successor, as JSON.
type request struct {
	// ID is repeated in the reply; 0 means that none is expected.
	ID      int    `json:"id,omitempty"`
	Do      string `json:"do"`
	Network string `json:"network,omitempty"`
	Address string `json:"address,omitempty"`
	// State is a part of a State as JSON, which may not fit into one message; More means that another part follows.
	State []byte `json:"state,omitempty"`
	More  bool   `json:"more,omitempty"`
	// PID is that of the successor, reported by the process that has started it.
	PID int `json:"pid,omitempty"`
}

// reply is a message of a predecessor, as JSON; a socket is sent with it.
type reply struct {
	ID     int    `json:"id,omitempty"`
	Found  bool   `json:"found,omitempty"`
	Secret []byte `json:"secret,omitempty"`
	// End is not a reply: the successor must exit, and must never accept on the sockets.
	End bool `json:"end,omitempty"`
}

// Program returns the path by which this program was started, with its symbolic links: a successor runs the program that is
// installed there then. It must be called at the start, because the path may lead to another program later.
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

// inheritedFrom removes the descriptor's number from the environment, so that child processes do not inherit it, and returns it; ""
// if there is none. It reports whether this process is the successor, and not the intermediate process.
func inheritedFrom() (text string, successor bool) {
	text, successor = os.Getenv(descriptorVariable), os.Getenv(successorVariable) != ""
	os.Unsetenv(descriptorVariable)
	os.Unsetenv(successorVariable)
	return text, successor
}
