//go:build !linux

package splice

import (
	"errors"
	"syscall"
)

// ErrRefused says that nothing was moved and nothing ever will be: read instead.
var ErrRefused = errors.New("splice: the system does not splice")

// Reader has no state on this system, as there are no pipes.
type Reader struct{}

// Init does nothing.
func (*Reader) Init(syscall.RawConn) {}

// Fill is never called.
func (*Reader) Fill(*Pipe, int64) (int, error) { return 0, ErrRefused }

// FillNow is never called.
func (*Reader) FillNow(*Pipe, int64) (int, bool) { return 0, false }

// Writer has no state on this system, as there are no pipes.
type Writer struct{}

// Init does nothing.
func (*Writer) Init(syscall.RawConn) {}

// Drain is never called.
func (*Writer) Drain(*Pipe) error { return ErrRefused }
