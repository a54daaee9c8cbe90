package e2e

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/moongate-dev/moongate/internal/testkit"
)

// unread is a pipe that is full and that nobody reads.
func unread(t *testing.T) (reader, writer *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close(); w.Close() })
	filler := []byte(strings.Repeat("x", 1023) + "\n")
	for err == nil {
		if err = w.SetWriteDeadline(time.Now().Add(100 * time.Millisecond)); err == nil {
			_, err = w.Write(filler)
		}
		filler = filler[len(filler)-1:]
	}
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatal(err)
	}
	return r, w
}

// startInto starts moongate run with a pipe as both its standard output and its standard error, and returns when it is ready.
func startInto(t *testing.T, pipe *os.File, dir string, args ...string) (p *process, ready func() int) {
	t.Helper()
	admin := freePort(t)
	args = append([]string{"run", "-f", dir, "--bind", "127.0.0.1", "--admin-address", fmt.Sprintf("127.0.0.1:%d", admin)}, args...)
	p = &process{Cmd: command(args...), t: t, stdout: &testkit.Log{}, stderr: &testkit.Log{}, exit: make(chan error, 1)}
	p.Stdout, p.Stderr = pipe, pipe
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { p.exit <- p.Wait() }()
	t.Cleanup(func() { p.Process.Kill() }) // fails where it has ended
	ready = func() int {
		got, err := ask{url: local(admin, "/readyz")}.try()
		if err != nil {
			return 0
		}
		return got.StatusCode
	}
	testkit.Eventually(t, "moongate is ready", func() bool { return ready() == 200 })
	return p, ready
}

// followsEdits checks that a document that is wrong, which is logged, keeps no later edit from being put in force.
func followsEdits(t *testing.T, dir string, port int) {
	t.Helper()
	for i := range 3 {
		write := func(name, text string) {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		write(fmt.Sprintf("wrong%d.yaml", i), "kind: [\n")
		path := fmt.Sprintf("/edit%d", i)
		write(fmt.Sprintf("edit%d.yaml", i), route(path[1:], "  rules: [{matches: [{path: {value: "+path+"}}], filters: [{type: RequestRedirect, requestRedirect: {statusCode: 302}}]}]"))
		testkit.Eventually(t, "the edit is in force", func() bool {
			got, err := ask{url: local(port, path)}.try()
			return err == nil && got.StatusCode == 302
		})
	}
}

// TestUnreadLogs has standard output and standard error on one pipe that nobody reads, as where the collector of logs hangs: edits are put in force, and a signal ends the
// process.
func TestUnreadLogs(t *testing.T) {
	t.Parallel()
	dir, port, _ := site(t)
	_, pipe := unread(t)
	p, _ := startInto(t, pipe, dir)
	followsEdits(t, dir, port)
	p.signal(syscall.SIGTERM)
	p.waitExit(patience, 0)
}

// TestSecondSignalWithUnreadLogs checks that a second signal ends the process at once whatever its logs do.
func TestSecondSignalWithUnreadLogs(t *testing.T) {
	t.Parallel()
	dir, port, slow := site(t)
	_, pipe := unread(t)
	p, ready := startInto(t, pipe, dir, "--drain-timeout", "1h")
	slow.send(t, port)
	p.signal(syscall.SIGTERM)
	testkit.Eventually(t, "shutting down", func() bool { return ready() == 503 })
	p.signal(syscall.SIGTERM)
	p.waitExit(patience, 1)
}

// TestStartFailsWithUnreadLogs checks that a gateway that cannot start ends although nobody reads why.
func TestStartFailsWithUnreadLogs(t *testing.T) {
	t.Parallel()
	dir, _, _ := site(t)
	_, pipe := unread(t)
	p := &process{Cmd: command("run", "-f", dir, "--admin-address", "192.0.2.1:1"), t: t, exit: make(chan error, 1)}
	p.Stdout, p.Stderr = pipe, pipe
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { p.exit <- p.Wait() }()
	t.Cleanup(func() { p.Process.Kill() }) // fails where it has ended
	p.waitExit(patience, 1)
}

// TestClosedLogs has standard output and standard error on a pipe whose reader has ended, as in moongate run ... | head -1.
func TestClosedLogs(t *testing.T) {
	t.Parallel()
	dir, port, _ := site(t)
	r, pipe := unread(t)
	r.Close()
	p, _ := startInto(t, pipe, dir)
	for range 3 {
		if got := (ask{url: local(port, "/")}).do(t); got.StatusCode != 200 {
			t.Errorf("a request: %s", got.Status)
		}
		time.Sleep(100 * time.Millisecond) // so that its line is written
	}
	followsEdits(t, dir, port)
	p.signal(syscall.SIGTERM)
	p.waitExit(patience, 0)
}

// TestClosedOutput checks that a verb that only prints ends by SIGPIPE as other programs in a pipe do.
func TestClosedOutput(t *testing.T) {
	t.Parallel()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	r.Close()
	defer w.Close()
	cmd := command("version")
	cmd.Stdout = w
	cmd.Run() //nolint:errcheck // checked below
	if status := cmd.ProcessState.Sys().(syscall.WaitStatus); !status.Signaled() || status.Signal() != syscall.SIGPIPE {
		t.Errorf("moongate version: %s, want an end by SIGPIPE", cmd.ProcessState)
	}
}
