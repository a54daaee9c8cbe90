package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/moongate-dev/moongate/test/cluster/plane"
)

const (
	serveVerb = "serve-in-namespaces"
	// startGrace is how long everything may take to start, on a slow machine that does much else.
	startGrace = 5 * time.Minute
	endGrace   = 30 * time.Second
)

// settings is what up tells the process that it starts.
type settings struct {
	Dir   string
	Nodes int
	Kube  string
	DNS   string
	Enter string
	// Port is the port on the machine's loopback by which the API server is reached.
	Port int
}

// File descriptors by which up and serve talk.
const (
	settingsFD = 3
	readyFD    = 4 // "ready", or what failed
	listenerFD = 5 // the machine's loopback, which serve itself cannot reach
)

func (c cluster) up(ctx context.Context, args []string) error {
	own, err := os.Executable()
	if err != nil {
		return err
	}
	beside := func(name string) string { return filepath.Join(filepath.Dir(own), name) }
	s := settings{Dir: c.dir}
	flags := flag.NewFlagSet("up", flag.ContinueOnError)
	flags.IntVar(&s.Nodes, "nodes", 1, "number of Node objects, each in a zone of its own")
	flags.StringVar(&s.Kube, "kube", beside("kube"), "the program built from kube/")
	flags.StringVar(&s.DNS, "dns", beside("coredns"), "the program built from dns/")
	flags.StringVar(&s.Enter, "enter", beside("enter"), "the program built from sandbox/enter/")
	if err := flags.Parse(args); err != nil || flags.NArg() > 0 {
		return errUsage
	}
	if err := s.check(); err != nil {
		return err
	}
	if _, err := c.process(); err == nil {
		return fmt.Errorf("cluster %s runs already: `cluster down` ends it", filepath.Base(c.dir))
	} else if !errors.Is(err, errNotRunning) {
		return err
	}
	if err := os.RemoveAll(c.dir); err != nil { // what a crash left
		return err
	}
	for _, dir := range []string{c.dir, c.private(), c.images(), c.logs()} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return err
		}
	}
	begin := time.Now()
	if err := c.start(ctx, own, s); err != nil {
		return err
	}
	fmt.Fprintf(os.Stderr, "up after %.1f s; logs: %s\n", time.Since(begin).Seconds(), c.logs())
	fmt.Printf("export KUBECONFIG=%s\n", c.kubeconfig())
	return nil
}

// check finds everything that is missing before anything is started.
func (s *settings) check() error {
	var errs []error
	if os.Geteuid() != 0 {
		errs = append(errs, errors.New("the cluster needs root, for namespaces and mounts"))
	}
	for _, file := range []*string{&s.Kube, &s.DNS, &s.Enter} {
		var err error
		if *file, err = filepath.Abs(*file); err == nil {
			_, err = os.Stat(*file)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%w: `make cluster` builds it", err))
		}
	}
	if _, err := exec.LookPath("nft"); err != nil {
		errs = append(errs, errors.New("nft is missing, which the service proxy calls: install your system's package nftables"))
	}
	if s.Nodes < 1 || s.Nodes > plane.MaxHosts {
		errs = append(errs, fmt.Errorf("-nodes: 1 to %d", plane.MaxHosts))
	}
	return errors.Join(errs...)
}

// start starts serve in namespaces of its own and waits until it is ready.
func (c cluster) start(ctx context.Context, own string, s settings) error {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	defer listener.Close()
	s.Port = listener.Addr().(*net.TCPAddr).Port
	socket, err := listener.(*net.TCPListener).File()
	if err != nil {
		return err
	}
	defer socket.Close()
	settingsIn, settingsOut, err := os.Pipe()
	if err != nil {
		return err
	}
	defer settingsIn.Close()
	defer settingsOut.Close()
	readyIn, readyOut, err := os.Pipe()
	if err != nil {
		return err
	}
	defer readyIn.Close()
	defer readyOut.Close()
	logPath := filepath.Join(c.logs(), "cluster.log")
	log, err := os.Create(logPath)
	if err != nil {
		return err
	}
	defer log.Close()

	command := exec.Command(own, serveVerb)
	command.Dir, command.Stdout, command.Stderr = "/", log, log
	command.ExtraFiles = []*os.File{settingsIn, readyOut, socket}
	command.SysProcAttr = &syscall.SysProcAttr{
		Setsid: true,
		Cloneflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWPID | syscall.CLONE_NEWNS | syscall.CLONE_NEWIPC |
			syscall.CLONE_NEWUTS,
	}
	if err := command.Start(); err != nil {
		return err
	}
	readyOut.Close()
	err = errors.Join(c.writePID(command.Process.Pid), json.NewEncoder(settingsOut).Encode(s))
	if err == nil {
		err = awaitReady(ctx, readyIn)
	}
	if err != nil {
		command.Process.Kill()
		command.Wait()
		return fmt.Errorf("%w; logs: %s", err, c.logs())
	}
	return command.Process.Release()
}

func awaitReady(ctx context.Context, ready *os.File) error {
	ctx, cancel := context.WithTimeoutCause(ctx, startGrace, fmt.Errorf("not up after %s", startGrace))
	defer cancel()
	stop := context.AfterFunc(ctx, func() { ready.SetReadDeadline(time.Now()) })
	defer stop()
	said, err := io.ReadAll(ready)
	switch {
	case bytes.Equal(said, []byte("ready")):
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil:
		return err
	case len(said) == 0:
		return errors.New("the cluster ended while it started")
	}
	return errors.New(string(said))
}

func (c cluster) down() error {
	p, err := c.process()
	if err == nil {
		err = p.end(endGrace)
	} else if errors.Is(err, errNotRunning) {
		err = nil
	}
	if err != nil {
		return err
	}
	return os.RemoveAll(c.dir)
}
