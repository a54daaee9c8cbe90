//go:build !linux

package upstream

import (
	"net"
	"syscall"
)

// probe knows nothing on this system: a dead connection shows when it is used.
type probe struct{}

func (*probe) init(*net.TCPConn, bool) {}

func (*probe) alive() bool { return true }

func (*probe) reset() bool { return false }

// await is never called.
func (*probe) await() error { return nil }

// rawConn is the socket for raw calls, nil where there are none.
func (*probe) rawConn() syscall.RawConn { return nil }

func (*probe) lost() bool { return false }
