//go:build !linux

package listen

import "syscall"

func inheritKeepAlive(_, _ string, _ syscall.RawConn) error { return nil }
