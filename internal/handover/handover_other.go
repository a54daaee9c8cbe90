//go:build !linux

package handover

import (
	"context"
	"errors"
	"os"
	"syscall"
)

// Predecessor is unused: a process cannot be replaced on this system.
type Predecessor struct{}

// FromEnvironment returns nil.
func FromEnvironment() (*Predecessor, error) { return nil, nil }

// Done is never called.
func (p *Predecessor) Done() <-chan struct{} { return nil }

// Unwanted is never called.
func (p *Predecessor) Unwanted() <-chan struct{} { return nil }

// Socket is never called.
func (p *Predecessor) Socket(string, string) *os.File { return nil }

// Secret is never called.
func (p *Predecessor) Secret() []byte { return nil }

// Ready is never called.
func (p *Predecessor) Ready(State) {}

// Successor is a process that is ready to take over.
type Successor struct{ PID int }

// Start returns an error.
func Start(context.Context, Options) (*Successor, error) {
	return nil, errors.New("replacing a process needs Linux")
}

// Alive is never called.
func (s *Successor) Alive() bool { return false }

// Begin is never called.
func (s *Successor) Begin() {}

// Signal is never called.
func (s *Successor) Signal(syscall.Signal) error { return nil }

// End is never called.
func (s *Successor) End() {}
