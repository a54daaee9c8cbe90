//go:build !linux

package listen

import (
	"errors"
	"net"
	"syscall"
)

func inheritKeepAlive(_, _ string, _ syscall.RawConn) error { return nil }

func ignoreAttempts(*net.TCPListener) error { return errors.ErrUnsupported }

func waiting(*net.TCPListener) bool { return false }
