package datagram

import (
	"cmp"
	"context"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/moongate-dev/moongate/internal/observe"
	"github.com/moongate-dev/moongate/internal/proxy/listen"
)

// Defaults of Options.
const (
	// DefaultIdle is long enough for the pauses of games and calls, and what most clients repeat themselves within to keep the state of a firewall.
	DefaultIdle = 60 * time.Second
	// DefaultMaxSessions is 256 MiB of memory when all are in use, and what the kernel has for their sockets.
	DefaultMaxSessions = 65536
	// DefaultOnce is enough for the answers to a request, which is all that most clients of DNS want of a session.
	DefaultOnce = 15 * time.Second
	// DefaultDrainIdle is the time in which most answers come.
	DefaultDrainIdle = 5 * time.Second
)

// Options of a Set; the zero value means the defaults.
type Options struct {
	// Idle is how long a session lasts on which nothing passes, to the precision of the interval between two Sweeps; DrainIdle is that of Shutdown.
	Idle, DrainIdle time.Duration
	// Once is Idle while the client has sent one datagram, at most Idle.
	Once time.Duration
	// MaxSessions bounds the sessions of all sockets together. Beyond it new ones are refused, not old ones ended: forged addresses can begin as many as
	// they like, and must not end those of others.
	MaxSessions int
	// Clock is the coarse time in Unix milliseconds.
	Clock *atomic.Int64
	// Scarce says that memory is, so that no session is begun; nil is never.
	Scarce *atomic.Bool
	// Observer is told of each session when it ends, and of each datagram that is dropped because it has none.
	Observer *observe.Observer
}

// Set holds the sockets of UDP and the sessions on them.
type Set struct {
	options  Options
	dropped  observe.Observer // counts, and logs nothing
	sessions atomic.Int64
	draining atomic.Bool
	// scarceUntil is until when no session is begun, because the system had nothing left for the last one; of Clock.
	scarceUntil atomic.Int64
	running     sync.WaitGroup // the goroutines of sockets and sessions

	mu      sync.Mutex
	sockets map[*Socket]struct{}
	// locals are the sessions by the address that their endpoint sees, to know those that come back.
	locals map[netip.AddrPort]*session
}

// NewSet returns an empty Set.
func NewSet(o Options) *Set {
	o.Idle, o.DrainIdle = cmp.Or(o.Idle, DefaultIdle), cmp.Or(o.DrainIdle, DefaultDrainIdle)
	o.Once = min(cmp.Or(o.Once, DefaultOnce), o.Idle)
	o.MaxSessions = cmp.Or(o.MaxSessions, DefaultMaxSessions)
	s := &Set{options: o, sockets: map[*Socket]struct{}{}, locals: map[netip.AddrPort]*session{}}
	if o.Observer != nil {
		s.dropped = observe.Observer{Metrics: o.Observer.Metrics, Core: o.Observer.Core}
	}
	return s
}

// Sessions is how many there are.
func (set *Set) Sessions() int { return int(set.sessions.Load()) }

// Open binds a socket; Serve starts it. The error is the system's.
func (set *Set) Open(addr listen.Addr) (*Socket, error) {
	conn, err := listen.OpenUDP(addr)
	if err != nil {
		return nil, err
	}
	s := &Socket{Addr: addr, set: set, conn: conn, sessions: map[key]*session{}}
	s.v6 = conn.LocalAddr().(*net.UDPAddr).IP.To4() == nil
	if s.raw, err = conn.SyscallConn(); err != nil {
		conn.Close()
		return nil, err
	}
	set.mu.Lock()
	set.sockets[s] = struct{}{}
	set.mu.Unlock()
	return s, nil
}

// Sweep ends the sessions that idled too long, or whose endpoint or route has gone. Call it about once a second.
func (set *Set) Sweep() {
	idle := set.options.Idle
	if set.draining.Load() {
		idle = min(idle, set.options.DrainIdle)
	}
	now := set.options.Clock.Load()
	for _, s := range set.all() {
		s.sweep(now-idle.Milliseconds(), now-min(idle, set.options.Once).Milliseconds())
	}
}

func (set *Set) all() []*Socket {
	set.mu.Lock()
	defer set.mu.Unlock()
	list := make([]*Socket, 0, len(set.sockets))
	for s := range set.sockets {
		list = append(list, s)
	}
	return list
}

// Shutdown begins no more sessions, and returns when all have ended: by themselves, or as soon as nothing has passed for Options.DrainIdle, or when ctx ends,
// whose error it returns then. Somebody must Sweep meanwhile.
func (set *Set) Shutdown(ctx context.Context) (err error) {
	set.draining.Store(true)
	wait := time.NewTicker(10 * time.Millisecond)
	defer wait.Stop()
	for set.Sessions() > 0 && err == nil {
		select {
		case <-ctx.Done():
			err = ctx.Err()
		case <-wait.C:
		}
	}
	for _, s := range set.all() {
		s.close(observe.ReasonShuttingDown)
	}
	set.running.Wait()
	return err
}

// admit takes a place for a session; release gives it back.
func (set *Set) admit() observe.Reason {
	switch {
	case set.draining.Load():
		return observe.ReasonShuttingDown
	case set.options.Scarce != nil && set.options.Scarce.Load(), set.options.Clock.Load() < set.scarceUntil.Load():
		return observe.ReasonOverloaded
	case set.sessions.Add(1) > int64(set.options.MaxSessions):
		set.sessions.Add(-1)
		return observe.ReasonOverloaded
	}
	return observe.ReasonOK
}

// parentOf is the session whose socket has sent what comes from an address, or nil.
func (set *Set) parentOf(from netip.AddrPort) *session {
	set.mu.Lock()
	defer set.mu.Unlock()
	return set.locals[from]
}
