// Package handover replaces a process by another one of the same program, maybe of another version, that takes over its listening sockets, so that no
// connection is refused meanwhile.
//
// The process starts its successor with one end of a socket pair. The successor asks over it for each socket that it is to bind, and is handed the descriptor
// of the one that is open; it does not accept from it yet. When it has everything that it is to serve it says so. The process then stops accepting, and closes
// its end, which is what the successor waits for to begin: exactly one of them accepts at any time, and what clients begin meanwhile waits in the kernel. A
// process that dies closes its end, too, so that the successor serves then, whatever state it is in. A successor that dies or does not become ready is ended,
// and nothing has changed.
//
// The process that is started starts the successor and ends, so that the successor is a child of what supervises both, such as systemd: that does not wait for a
// service to end which was another's child when it became the service's main process.
//
// It must never know what the sockets are for.
package handover

import (
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// Variable is the environment variable that holds the number of the descriptor by which a successor talks to its predecessor.
const Variable = "MOONGATE_HANDOVER_FD"

// stageVariable is set for the successor, and not for the process that starts it.
const stageVariable = "MOONGATE_HANDOVER_SUCCESSOR"

// Timeout is how long a successor may take to be ready.
const Timeout = time.Minute

const (
	// maxMessage bounds a message, in bytes, and maxReason what is said of why a successor is not ready, each byte of which may be six of JSON.
	maxMessage = 32 << 10
	maxReason  = 4 << 10
	// descriptor is the first that a process gets by exec.Cmd.ExtraFiles.
	descriptor = 3
	// endTimeout is how long a successor that is not wanted may take to end by itself.
	endTimeout = 5 * time.Second
)

// What a successor asks for; a request that is not known is answered by an empty reply, since the two may be of different versions.
const (
	askSocket = "socket"
	askSecret = "secret"
	tellState = "state" // which has no reply, as tellPID
	tellPID   = "pid"
)

// State is what a process serves.
type State struct {
	// Lacks says what is not served of what there is, by Reason; "" is nothing.
	Lacks string `json:"lacks,omitempty"`
	// Listeners tells sets of listeners that serve apart.
	Listeners string `json:"listeners,omitempty"`
	// Routes is how many routes these have.
	Routes int `json:"routes,omitempty"`
}

// request is what a successor sends, as JSON in one message.
type request struct {
	// ID is repeated by the reply.
	ID      int    `json:"id,omitempty"`
	Do      string `json:"do"`
	Network string `json:"network,omitempty"`
	Address string `json:"address,omitempty"`
	State   *State `json:"state,omitempty"`
	// PID is the successor's, which the process that has started it tells.
	PID int `json:"pid,omitempty"`
}

// reply is what a predecessor sends, as JSON in one message; a socket comes beside it.
type reply struct {
	ID     int    `json:"id,omitempty"`
	Found  bool   `json:"found,omitempty"`
	Secret []byte `json:"secret,omitempty"`
}

// Reason is what State.Lacks says of a text: itself, or where that is too long a part by which it differs from others. "" is "".
func Reason(text string) string {
	if len(text) <= maxReason {
		return text
	}
	tail := fmt.Sprintf("... (SHA-256 of all %x)", sha256.Sum256([]byte(text)))
	return text[:maxReason-len(tail)] + tail
}

// Program returns the path of this program as it was started by: what is installed there later is what a successor is to be, also where symbolic links lead to it. Call it
// at the start.
func Program() (string, error) {
	running, err := os.Executable()
	if err != nil {
		return "", err
	}
	named, err := exec.LookPath(os.Args[0])
	if err != nil {
		return running, nil
	}
	if named, err = filepath.Abs(named); err != nil {
		return running, nil
	}
	a, errA := os.Stat(running)
	b, errB := os.Stat(named)
	if errA != nil || errB != nil || !os.SameFile(a, b) { // the name is not what it was started by
		return running, nil
	}
	return named, nil
}

// inheritedFrom takes the descriptor's number out of the environment, so that what this process starts does not have it; "" is that there is none. It reports whether
// this process is the successor, and not the one that is to start it.
func inheritedFrom() (text string, successor bool) {
	text, successor = os.Getenv(Variable), os.Getenv(stageVariable) != ""
	os.Unsetenv(Variable)
	os.Unsetenv(stageVariable)
	return text, successor
}
