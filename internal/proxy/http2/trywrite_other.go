//go:build !linux

package http2

import "syscall"

// tryWriter returns nil: direct writes are for Linux only.
func tryWriter(syscall.RawConn) func([]byte) (int, error) { return nil }
