package cli

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"

	"github.com/moongate-dev/moongate/internal/handover"
)

// adminSocket is used instead of a network if a successor asks for the socket of an admin server.
const adminSocket = "admin"

// replaceOnSignal starts a successor at each SIGUSR2, until one has taken over; then it closes done. It forwards later signals to
// the successor until ctx ends: they may be intended for it, and a program that was installed since then must run.
func (g *gateway) replaceOnSignal(ctx context.Context, done chan<- struct{}) {
	for g.awaitReplace(ctx) {
		s, err := g.startSuccessor(ctx)
		if err == nil {
			err = g.handOver(ctx, s)
		}
		switch {
		case err == nil:
			close(done)
			for g.awaitReplace(ctx) {
				g.log.Info("forwarding SIGUSR2 to the process that has taken over", "pid", s.PID)
				if err := s.Signal(syscall.SIGUSR2); err != nil {
					g.log.Error("SIGUSR2 cannot be forwarded: send it to the process that serves", "pid", s.PID, "error", err)
				}
			}
			return
		case ctx.Err() == nil:
			g.log.Error("the replacement failed; this process continues to serve", "error", oneLine(err.Error()))
		}
	}
}

// awaitReplace waits for a signal, and for the predecessor to end. It returns true if this process must be replaced, false if ctx
// ends.
func (g *gateway) awaitReplace(ctx context.Context) bool {
	select {
	case <-ctx.Done():
		return false
	case <-g.o.Replace:
	}
	if g.o.Predecessor == nil {
		return true
	}
	select {
	case <-ctx.Done():
		return false
	case <-g.o.Predecessor.Done():
		return true
	}
}

// startSuccessor starts the program, in the version that is installed now, with the arguments of this process, and returns when it
// serves everything that this process serves.
func (g *gateway) startSuccessor(ctx context.Context) (*handover.Successor, error) {
	if err := g.replaceable(); err != nil {
		return nil, err
	}
	g.log.Info("starting a process to take over", "program", g.o.Program)
	g.handedSockets.Clear()
	return handover.Start(ctx, handover.Options{Path: g.o.Program, Args: os.Args, Socket: g.socket, Sent: func(s syscall.Conn) { g.handedSockets.Store(s, nil) }, Secret: g.secret, Accept: g.acceptable})
}

// replaceable returns why no other process can take over, or nil.
func (g *gateway) replaceable() error {
	if os.Getpid() == 1 {
		return errors.New("it is the first process of its container or host, which ends with it; replace the container")
	}
	if g.o.ProgramError != nil {
		return fmt.Errorf("the path of its program is not known: %w; mount /proc, and restart it", g.o.ProgramError)
	}
	if !g.begun.Load() {
		return errors.New("it has not read all of its manifests yet; try again once it is ready")
	}
	if g.source.Streams() {
		return errors.New("manifests that it has read from standard input or a pipe cannot be read again; put them into a file")
	}
	for _, p := range g.objects.status().Problems {
		if p.Kept {
			return fmt.Errorf("an earlier version of %s is served, which another process could not read; correct %s:%d first: %s", p.Object, p.File, p.Line, p.Message)
		}
	}
	return nil
}

// succeeds reports whether this process is a successor whose predecessor still serves.
func (g *gateway) succeeds() bool {
	if g.o.Predecessor == nil {
		return false
	}
	select {
	case <-g.o.Predecessor.Done():
		return false
	default:
		return true
	}
}

// unwanted returns a channel that is closed when the predecessor decides to continue.
func (g *gateway) unwanted() <-chan struct{} {
	if g.o.Predecessor == nil {
		return nil
	}
	return g.o.Predecessor.Unwanted()
}

// acceptable returns what this process serves and a successor does not, or nil.
func (g *gateway) acceptable(s handover.State) error {
	if err := g.replaceable(); err != nil {
		return err
	}
	if err := coveredBy(g.serves(), s); err != nil {
		return err
	}
	if !g.proxy.AllSockets(g.handed) {
		return errors.New("it has not received every socket")
	}
	return nil
}

// coveredBy returns what a process with the state theirs lacks of ours, or nil. It may serve more, and may give other reasons why an
// object is not used, as new versions do.
func coveredBy(ours, theirs handover.State) error {
	var lost []string
	for key, why := range theirs.Lacks {
		if _, ok := ours.Lacks[key]; !ok {
			lost = append(lost, "it does not use "+strings.TrimSuffix(key+": "+why, ": "))
		}
	}
	for key, routes := range ours.Serves {
		switch n, ok := theirs.Serves[key]; {
		case !ok:
			lost = append(lost, "it does not serve listener "+key)
		case n < routes:
			lost = append(lost, fmt.Sprintf("its listener %s has %d routes, that of this process %d", key, n, routes))
		}
	}
	if len(lost) == 0 {
		return nil
	}
	slices.Sort(lost)
	more := ""
	if n := len(lost) - maxLost; n > 0 {
		lost, more = lost[:maxLost], fmt.Sprintf("; and %d more", n)
	}
	return fmt.Errorf("%s%s; moongate check may report why", strings.Join(lost, "; "), more)
}

// maxLost is the maximum number of reasons against a successor that are logged.
const maxLost = 5

// maxLackTexts is the maximum total length of the reasons in a State, in bytes; they are only for the log.
const maxLackTexts = 64 << 10

// serves returns what this process serves.
func (g *gateway) serves() handover.State {
	s := handover.State{Lacks: g.objects.lacks(), Serves: map[string]int{}}
	size := 0
	for _, key := range slices.Sorted(maps.Keys(s.Lacks)) {
		size += len(s.Lacks[key])
		if size > maxLackTexts {
			s.Lacks[key] = ""
		}
	}
	for _, l := range g.proxy.Bound() {
		for _, address := range l.Addresses {
			s.Serves[l.Key+" at "+address] = l.Routes
		}
	}
	return s
}

// handed reports whether a socket was passed to a successor; another socket that is bound to the same address later was not.
func (g *gateway) handed(s syscall.Conn) bool {
	_, ok := g.handedSockets.Load(s)
	return ok
}

// socket returns the socket that a successor asks for, or nil.
func (g *gateway) socket(network, address string) syscall.Conn {
	if network == adminSocket {
		for _, s := range g.servers {
			if s.Address() == address {
				return s
			}
		}
		return nil
	}
	return g.proxy.Socket(network, address)
}

// handOver hands the sockets over to a successor; the caller must drain afterwards. If the successor can no longer take over,
// handOver ends it, and nothing has changed.
func (g *gateway) handOver(ctx context.Context, s *handover.Successor) error {
	err := ctx.Err() // shutdown was requested instead
	if err == nil {
		err = g.release(s)
	}
	if err != nil {
		s.End()
		return err
	}
	for _, server := range g.servers {
		server.Release()
	}
	s.Begin()
	// This must come after Begin, because until then no process accepts connections, and notifying may block. It must come after
	// everything that can fail, because a process that is no longer the main process cannot become it again.
	if _, err := daemon.SdNotify(false, fmt.Sprintf("MAINPID=%d", s.PID)); err != nil {
		g.log.Error("systemd cannot be notified of the new main process, and will end it", "pid", s.PID, "error", err)
	}
	g.log.Info("another process has taken over; finishing requests in flight", "pid", s.PID, "drain-timeout", g.o.DrainTimeout)
	return nil
}

// release makes this process stop accepting connections.
func (g *gateway) release(s *handover.Successor) error {
	// There may be no sockets, so Alive is checked separately.
	if !s.Alive() || !g.proxy.Release(func(socket syscall.Conn) bool { return s.Alive() && g.handed(socket) }) {
		return errors.New("the process that was to take over has ended, or does not have every socket; try again")
	}
	return nil
}

// reportToPredecessor reports to the predecessor, if there is one, what this process serves.
func (g *gateway) reportToPredecessor() {
	g.reporting.Lock()
	defer g.reporting.Unlock()
	if g.checked.Load() && g.succeeds() {
		g.o.Predecessor.Ready(g.serves())
	}
}

const (
	// checksWait is how long a successor waits for the first health checks of all endpoints, checksLook the interval in which it
	// checks.
	checksWait = 5 * time.Second
	checksLook = 20 * time.Millisecond
)

// awaitChecks reports to the predecessor what is served once everything was read and the health of all endpoints is known, or after
// checksWait: otherwise requests would go to endpoints that the predecessor knows to be unhealthy.
func (g *gateway) awaitChecks(ctx context.Context) {
	look := time.NewTicker(checksLook)
	defer look.Stop()
	var limit time.Time // zero until everything was read
	for {
		var now time.Time
		select {
		case <-ctx.Done():
			return
		case now = <-look.C:
		}
		if !g.begun.Load() {
			continue
		}
		if limit.IsZero() {
			limit = now.Add(checksWait)
		}
		if now.After(limit) || !g.proxy.Unchecked() {
			g.checked.Store(true)
			g.reportToPredecessor()
			return
		}
	}
}

// inheritAdmin returns the socket of the predecessor's admin server; nil if there is none.
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
		return nil // binding the address will report the error
	}
	return l
}

// notifySystemd notifies systemd of a state, if systemd has started this process with Type=notify; see sd_notify(3).
func notifySystemd(state string) {
	_, _ = daemon.SdNotify(false, state) // systemd itself ends a service that does not notify it
}
