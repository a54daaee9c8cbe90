//go:build !linux

package listen

import "syscall"

// PeerGone is not supported on this system; a vanished client is noticed at the next write.
func PeerGone(syscall.RawConn) bool { return false }

// PeerReset is not supported on this system.
func PeerReset(syscall.RawConn) bool { return false }

// WasReset is not supported on this system.
func WasReset(syscall.RawConn) bool { return false }

// Readable is not supported on this system.
func Readable(syscall.RawConn) bool { return false }

// AwaitWritable is not supported on this system: it does not wait.
func AwaitWritable(syscall.RawConn) error { return nil }

// Unsent is not supported on this system.
func Unsent(syscall.RawConn) int { return 0 }
