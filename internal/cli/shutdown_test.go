package cli

import (
	"context"
	"io"
	"net"
	"path/filepath"
	"testing"
	"time"
)

// TestSystemdWaits checks that systemd is told how long shutdown may take by the flags, whatever the limit of the unit is.
func TestSystemdWaits(t *testing.T) {
	path := filepath.Join(t.TempDir(), "notify")
	socket, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	if err := socket.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	t.Setenv("NOTIFY_SOCKET", path)
	folder := t.TempDir()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	done := make(chan error, 1)
	go func() {
		done <- Run(ctx, RunOptions{Files: []string{folder}, AdminAddress: "127.0.0.1:0", Stderr: io.Discard, EngineFlags: EngineFlags{AccessLog: "off", Stdout: io.Discard, ShutdownDelay: 10 * time.Millisecond, DrainTimeout: 2 * time.Minute}})
	}()
	for _, want := range []string{"READY=1", "STOPPING=1\nEXTEND_TIMEOUT_USEC=125010000"} {
		message := make([]byte, 1<<10)
		n, err := socket.Read(message)
		if got := string(message[:n]); err != nil || got != want {
			t.Errorf("systemd is sent %q, %v; want %q", got, err, want)
		}
		stop()
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}
