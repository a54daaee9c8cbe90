package plane

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"
)

// stopGrace is how long a part may take to end by itself.
const stopGrace = 10 * time.Second

// Part is one program of the control plane.
type Part struct {
	Name string
	args []string
	kube string
	log  string
	died func(error)

	mu      sync.Mutex
	command *exec.Cmd
	ended   chan struct{}
	wanted  bool
}

// Start starts the part, unless it runs.
func (p *Part) Start() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.command != nil {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(p.log), 0o755); err != nil {
		return err
	}
	log, err := os.OpenFile(p.log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	command := exec.Command(p.kube, append([]string{p.Name}, p.args...)...)
	command.Stdout, command.Stderr = log, log
	if err := command.Start(); err != nil {
		return fmt.Errorf("start %s: %w", p.Name, err)
	}
	p.command, p.wanted, p.ended = command, true, make(chan struct{})
	go p.wait(command, p.ended)
	return nil
}

func (p *Part) wait(command *exec.Cmd, ended chan struct{}) {
	err := command.Wait()
	p.mu.Lock()
	p.command = nil
	wanted := p.wanted
	p.mu.Unlock()
	close(ended)
	if wanted {
		p.died(fmt.Errorf("%s ended by itself (%w); its log is %s", p.Name, errors.Join(err, errEnded), p.log))
	}
}

var errEnded = errors.New("nobody asked it to")

// Stop ends the part: with SIGTERM and a grace, or as a crash would with SIGKILL.
func (p *Part) Stop(signal syscall.Signal) {
	p.mu.Lock()
	command, ended := p.command, p.ended
	p.wanted = false
	p.mu.Unlock()
	if command == nil {
		return
	}
	command.Process.Signal(signal)
	select {
	case <-ended:
	case <-time.After(stopGrace):
		command.Process.Kill()
		<-ended
	}
}

// Running says whether the part runs.
func (p *Part) Running() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.command != nil
}
