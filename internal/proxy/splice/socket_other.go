//go:build !linux

package splice

import (
	"errors"
	"syscall"
)

// Reader has no state on this system, as there are no pipes.
type Reader struct{}

// Init does nothing.
func (*Reader) Init(syscall.RawConn) {}

// FillNow is never called.
func (*Reader) FillNow(*Pipe, int64) (int, bool) { return 0, false }

// Writer has no state on this system, as there are no pipes.
type Writer struct{}

// Init does nothing.
func (*Writer) Init(syscall.RawConn) {}

// Drain is never called.
func (*Writer) Drain(*Pipe) error { return errors.ErrUnsupported }
