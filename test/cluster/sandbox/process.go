package sandbox

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"syscall"
)

// Process is a running container.
type Process struct {
	command *exec.Cmd
	enter   string
	spec    Spec
}

// Start starts a container by the program at enter (package sandbox/enter).
// network is nil exactly if spec.HostNetwork. Standard output and error go to
// output, whose Write is called from one goroutine.
func Start(enter string, spec Spec, network *Network, output io.Writer) (*Process, error) {
	command := exec.Command(enter)
	command.Env = []string{}
	command.Stdout, command.Stderr = output, output
	command.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWPID | syscall.CLONE_NEWIPC | syscall.CLONE_NEWUTS,
		Setsid:     true,
	}
	if spec.HostNetwork {
		command.SysProcAttr.Cloneflags &^= syscall.CLONE_NEWUTS
	}
	specIn, specOut, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer specIn.Close()
	defer specOut.Close()
	resultIn, resultOut, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer resultIn.Close()
	defer resultOut.Close()
	command.ExtraFiles = []*os.File{specIn, resultOut}
	if network != nil {
		command.ExtraFiles = append(command.ExtraFiles, network.namespace)
	}
	if err := command.Start(); err != nil {
		return nil, err
	}
	specIn.Close()
	resultOut.Close()
	encodeErr := json.NewEncoder(specOut).Encode(spec)
	specOut.Close()
	failure, readErr := io.ReadAll(resultIn)
	if err := errors.Join(encodeErr, readErr); err != nil || len(failure) > 0 {
		command.Process.Kill()
		command.Wait()
		if len(failure) > 0 {
			return nil, errors.New(string(failure))
		}
		return nil, err
	}
	return &Process{command: command, enter: enter, spec: spec}, nil
}

// PID is the container's first process, in the node's numbers.
func (p *Process) PID() int { return p.command.Process.Pid }

// Wait returns when the container has ended and everything it wrote is in
// output: its exit code, and the signal that ended it or 0.
func (p *Process) Wait() (code int, signal syscall.Signal) {
	p.command.Wait()
	status := p.command.ProcessState.Sys().(syscall.WaitStatus)
	if status.Signaled() {
		return 128 + int(status.Signal()), status.Signal()
	}
	return status.ExitStatus(), 0
}

// Signal reaches the container's first process, whose end is the end of all of them.
func (p *Process) Signal(signal syscall.Signal) { p.command.Process.Signal(signal) }

// Command prepares argv to run in the container with the container's credentials.
// The caller sets its output, starts it and waits for it; it leads a process group
// of its own, by which it can be killed.
func (p *Process) Command(argv []string) (*exec.Cmd, error) {
	spec := p.spec
	spec.Mounts, spec.Argv = nil, argv
	encoded, err := json.Marshal(spec)
	if err != nil {
		return nil, err
	}
	// A pipe holds 64 KiB, more than a Spec without mounts.
	in, out, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer out.Close()
	if len(encoded) > 60<<10 {
		return nil, fmt.Errorf("the command's environment is too long (%d bytes)", len(encoded))
	}
	if _, err := out.Write(encoded); err != nil {
		return nil, err
	}
	command := exec.Command(p.enter, "join", strconv.Itoa(p.PID()))
	command.Env = []string{}
	command.ExtraFiles = []*os.File{in}
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return command, nil
}
