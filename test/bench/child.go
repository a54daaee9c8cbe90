//go:build linux

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/moongate-dev/moongate/test/bench/proc"
)

// child is a process that this one started and has to end.
type child struct {
	name string
	cmd  *exec.Cmd
	log  string        // file with its output
	done chan struct{} // closed when it has ended
}

// spawn starts cmd pinned to a CPU, its output going to a file. The kernel ends it
// when this process dies in whatever way; a group of its own keeps a Ctrl-C in
// the terminal from it, so that we end children in order.
func (b *bench) spawn(name string, cpu int, cmd *exec.Cmd) (*child, error) {
	b.spawned++
	c := &child{
		name: name, cmd: cmd, done: make(chan struct{}),
		log: filepath.Join(b.dir, fmt.Sprintf("%s-%d.log", name, b.spawned)),
	}
	out, err := os.Create(c.log)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	if cmd.Stdout == nil {
		cmd.Stdout = out
	}
	cmd.Stderr = out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	if err := proc.OnCPU(cpu, cmd.Start); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	go func() {
		cmd.Wait()
		close(c.done)
	}()
	b.children = append(b.children, c)
	return c, nil
}

// stop ends the process and its descendants, gently at first.
func (c *child) stop() error {
	select {
	case <-c.done:
		return nil
	default:
	}
	pids, err := proc.Tree(c.cmd.Process.Pid)
	if err != nil {
		return err
	}
	c.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-c.done:
		return nil
	case <-time.After(5 * time.Second):
	}
	for _, pid := range pids {
		syscall.Kill(pid, syscall.SIGKILL)
	}
	<-c.done
	return fmt.Errorf("%s did not end within 5 s of SIGTERM and was killed", c.name)
}

// output is the end of what the process wrote, for error messages.
func (c *child) output() string {
	data, err := os.ReadFile(c.log)
	if err != nil {
		return err.Error()
	}
	lines := bytes.Split(bytes.TrimSpace(data), []byte("\n"))
	return strings.TrimSpace(string(bytes.Join(lines[max(0, len(lines)-10):], []byte("\n"))))
}

// self is a command that runs this program in a role.
func self(role string) (*exec.Cmd, error) {
	path, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(path, role)
	// The loops block in epoll_wait for as long as they like; no preemption signal should end the wait.
	cmd.Env = append(os.Environ(), "GODEBUG=asyncpreemptoff=1")
	return cmd, nil
}

// roleProcess is a child in a role: JSON in, JSON out.
type roleProcess struct {
	*child
	in    io.WriteCloser
	out   io.ReadCloser
	abort func() bool // undoes the kill at the end of the context
}

// startRole starts a role on a CPU and sends it a value, or nothing for nil.
func (b *bench) startRole(role string, cpu int, value any) (*roleProcess, error) {
	cmd, err := self(role)
	if err != nil {
		return nil, err
	}
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, write, err := os.Pipe() // StdoutPipe would be closed before its end is read
	if err != nil {
		return nil, err
	}
	cmd.Stdout = write
	c, err := b.spawn(role, cpu, cmd)
	write.Close()
	if err != nil {
		out.Close()
		return nil, err
	}
	t := &roleProcess{child: c, in: in, out: out}
	t.abort = context.AfterFunc(b.ctx, func() { cmd.Process.Kill() })
	if value == nil {
		return t, nil
	}
	return t, json.NewEncoder(in).Encode(value)
}

// answer waits for the role's value; without one the error is what the role wrote to stderr.
func (t *roleProcess) answer(value any) error {
	if err := json.NewDecoder(t.out).Decode(value); err != nil {
		t.in.Close()
		<-t.done
		return fmt.Errorf("%s: %s", t.name, t.output())
	}
	return nil
}

// finish ends stdin, which every role takes as its end at the latest, and waits.
func (t *roleProcess) finish() error {
	t.in.Close()
	<-t.done
	t.abort()
	t.out.Close()
	if !t.cmd.ProcessState.Success() {
		return fmt.Errorf("%s: %s %s", t.name, t.cmd.ProcessState, t.output())
	}
	return nil
}
