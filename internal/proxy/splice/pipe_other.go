//go:build !linux

package splice

import "syscall"

// Pipe does not exist on this system.
type Pipe struct{}

// Limit does nothing.
func Limit(int) {}

// Take returns nil: bytes are copied.
func Take() *Pipe { return nil }

// Give is never called.
func Give(*Pipe) {}

// Held is never called.
func (*Pipe) Held() int { return 0 }

// Fill is never called.
func (*Pipe) Fill(uintptr, int64) (int, syscall.Errno) { return 0, syscall.EINVAL }

// Drain is never called.
func (*Pipe) Drain(uintptr) syscall.Errno { return syscall.EINVAL }
