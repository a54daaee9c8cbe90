package cli

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"syscall"

	"github.com/coreos/go-systemd/v22/daemon"

	"github.com/moongate-dev/moongate/internal/handover"
)

// adminSocket is the network by which a successor asks for the socket of an admin server.
const adminSocket = "admin"

// replaceOnSignal starts a successor at each SIGUSR2, until one is ready to take over or ctx ends.
func (g *gateway) replaceOnSignal(ctx context.Context, ready chan<- *handover.Successor) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-g.o.Replace:
		}
		s, err := g.startSuccessor(ctx)
		switch {
		case err == nil:
			select {
			case ready <- s:
			case <-ctx.Done(): // an end was asked for, not another process
				s.End()
			}
			return
		case ctx.Err() == nil:
			g.log.Error("this process goes on: it cannot be replaced", "error", oneLine(err.Error()))
		}
	}
}

// startSuccessor starts the program anew, as it lies there now, with the arguments of this process, and returns when it serves all that this one does.
func (g *gateway) startSuccessor(ctx context.Context) (*handover.Successor, error) {
	if err := g.replaceable(); err != nil {
		return nil, err
	}
	path, err := os.Executable()
	if err != nil {
		return nil, err
	}
	g.log.Info("starting a process to take over", "program", path)
	return handover.Start(ctx, handover.Options{Path: path, Args: os.Args, Socket: g.socket, Secret: g.secret, Accept: g.acceptable})
}

// replaceable says what another process could not take over.
func (g *gateway) replaceable() error {
	if os.Getpid() == 1 {
		return errors.New("it is the first of its container or machine, which ends with it; replace the container")
	}
	if !g.begun.Load() {
		return errors.New("it has not read all of its manifests yet; try again once it is ready")
	}
	if slices.Contains(g.o.Files, "-") {
		return errors.New("standard input, which it has read manifests from, cannot be read again; put them into a file")
	}
	for _, p := range g.objects.status().Problems {
		if p.Kept {
			return fmt.Errorf("an earlier version of %s is served, which another process could not read; mend %s:%d first: %s", p.Object, p.File, p.Line, p.Message)
		}
	}
	return nil
}

// acceptable reports whether a successor may take over that serves all but what why says: where this process does not serve that either, and nothing else.
func (g *gateway) acceptable(why string) bool {
	return g.replaceable() == nil && (why == "" || why == g.lacks())
}

// lacks says what is not served of what there is, and which objects cannot be used; "" for none.
func (g *gateway) lacks() string {
	var lines []string
	if err := g.unserved(); err != nil {
		lines = append(lines, err.Error())
	}
	for _, p := range g.objects.status().Problems {
		if !p.Ignored {
			lines = append(lines, problemLine(p))
		}
	}
	return handover.Reason(strings.Join(lines, "\n"))
}

// socket returns what a successor asks for, or nil.
func (g *gateway) socket(network, address string) syscall.Conn {
	if network != adminSocket {
		return g.proxy.Socket(network, address)
	}
	for _, s := range g.servers {
		if s.Address() == address {
			return s
		}
	}
	return nil
}

// handOver leaves the sockets to a successor, and finishes what is in flight.
func (g *gateway) handOver(s *handover.Successor) {
	g.log.Info("another process has taken over; finishing what is in flight", "pid", s.PID, "drain-timeout", g.o.DrainTimeout)
	g.handedOver.Store(true)
	notifySystemd(fmt.Sprintf("MAINPID=%d", s.PID))
	for _, server := range g.servers {
		server.Release()
	}
	g.proxy.Release()
	s.Begin()
	g.drain()
}

// tellPredecessor tells the process that this one replaces, if any, what is not served of what there is.
func (g *gateway) tellPredecessor() {
	if g.o.Predecessor == nil || !g.begun.Load() {
		return
	}
	select {
	case <-g.o.Predecessor.Done(): // it has left
	default:
		g.o.Predecessor.Ready(g.lacks())
	}
}

// inheritAdmin returns the socket of the admin server of the process that this one replaces; nil where there is none.
func (e *engine) inheritAdmin(address string) net.Listener {
	if e.o.Predecessor == nil {
		return nil
	}
	file := e.o.Predecessor.Socket(adminSocket, address)
	if file == nil {
		return nil
	}
	defer file.Close()
	l, err := net.FileListener(file)
	if err != nil {
		return nil // listening says why it cannot
	}
	return l
}

// notifySystemd tells systemd, where it has started this process with Type=notify, what the process is doing.
func notifySystemd(state string) {
	_, _ = daemon.SdNotify(false, state) // it is told at the next occasion, and nothing depends on it here
}
