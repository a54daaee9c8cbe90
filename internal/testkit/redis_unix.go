//go:build unix

package testkit

import (
	"syscall"
	"testing"
)

// Pause has the server answer nothing any more, while its connections stay open, until Kill.
func (r *Redis) Pause(t testing.TB) {
	t.Helper()
	if err := r.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
}
