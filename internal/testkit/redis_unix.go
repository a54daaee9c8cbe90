//go:build unix

package testkit

import (
	"syscall"
	"testing"
)

// Pause makes the server stop answering, with its connections kept open, until Kill.
func (r *Redis) Pause(t testing.TB) {
	t.Helper()
	if err := r.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
}
