//go:build !linux

package listen

import "syscall"

// PeerGone cannot be told here; a vanished client is noticed at the next write.
func PeerGone(syscall.RawConn) bool { return false }

// PeerReset cannot be told here, as PeerGone.
func PeerReset(syscall.RawConn) bool { return false }

// WasReset cannot be told here.
func WasReset(syscall.RawConn) bool { return false }

// Readable cannot be told here.
func Readable(syscall.RawConn) bool { return false }

// AwaitWritable cannot be told here: it does not wait.
func AwaitWritable(syscall.RawConn) error { return nil }

// Unsent cannot be told here.
func Unsent(syscall.RawConn) int { return 0 }
