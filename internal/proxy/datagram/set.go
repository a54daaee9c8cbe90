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
	// DefaultIdle is long enough for the pauses of games and calls, and for the interval in which most clients repeat
	// themselves to keep the state of a firewall.
	DefaultIdle = 60 * time.Second
	// DefaultMaxSessions uses 256 MiB of memory when all are in use, and the kernel's memory for their sockets.
	DefaultMaxSessions = 65536
	// DefaultOnce is enough for the answers to one request, which is all that most DNS clients need of a session.
	DefaultOnce = 15 * time.Second
	// DefaultAnswered is twice the recommended time for which NATs keep the mapping of a client that sends nothing (RFC
	// 4787 section 4.3).
	DefaultAnswered = 10 * time.Minute
	// DefaultDrainIdle is the time within which most answers arrive.
	DefaultDrainIdle = 5 * time.Second
)

// Options configures a Set. The zero value means the defaults.
type Options struct {
	// Idle is how long a session on which nothing passes lasts, to the precision of the interval between two Sweeps.
	// DrainIdle replaces it during Shutdown.
	Idle, DrainIdle time.Duration
	// Once replaces Idle while the client has sent only one datagram; at most Idle.
	Once time.Duration
	// Answered is how long a session lasts at most while the client has sent only one datagram, even if it is answered:
	// the client's address may be forged, and an endpoint could keep the session open indefinitely.
	Answered time.Duration
	// MaxSessions bounds the sessions of all sockets together. Beyond it new ones are refused, and old ones are not
	// ended: forged addresses can begin any number of sessions, and must not end those of others. Listeners share them,
	// see admit.
	MaxSessions int
	// Predecessor is a process whose sockets are taken over; nil means none.
	Predecessor listen.Predecessor
	// Clock is the coarse clock in Unix milliseconds.
	Clock *atomic.Int64
	// Scarce means that memory is scarce, so that no session is begun; nil means never.
	Scarce *atomic.Bool
	// Observer gets each session when it ends, and each datagram that is dropped because it has none.
	Observer *observe.Observer
}

// Set holds the sockets of UDP and the sessions on them.
type Set struct {
	options  Options
	dropped  observe.Observer // counts, but logs nothing
	sessions atomic.Int64
	draining atomic.Bool
	// scarceUntil is until when no session is begun, because the system had no resources for the last one; by Clock.
	scarceUntil atomic.Int64
	running     sync.WaitGroup // goroutines of sockets and sessions
	sweeping    sync.Mutex     // held during a sweep

	mu      sync.Mutex
	sockets map[*Socket]struct{}
	// locals are the sessions by their address as seen by the endpoint, to recognize datagrams that come back to this
	// process.
	locals map[netip.AddrPort]*session
	of     map[string]int // number of sessions, by listener
}

// NewSet returns an empty Set.
func NewSet(o Options) *Set {
	o.Idle, o.DrainIdle = cmp.Or(o.Idle, DefaultIdle), cmp.Or(o.DrainIdle, DefaultDrainIdle)
	o.Once, o.Answered = min(cmp.Or(o.Once, DefaultOnce), o.Idle), cmp.Or(o.Answered, DefaultAnswered)
	o.MaxSessions = cmp.Or(o.MaxSessions, DefaultMaxSessions)
	s := &Set{options: o, sockets: map[*Socket]struct{}{}, locals: map[netip.AddrPort]*session{}, of: map[string]int{}}
	if o.Observer != nil {
		s.dropped = observe.Observer{Metrics: o.Observer.Metrics, Core: o.Observer.Core}
	}
	return s
}

// Sessions returns the number of sessions.
func (set *Set) Sessions() int { return int(set.sessions.Load()) }

// forwarding returns the number of sessions with an endpoint.
func (set *Set) forwarding() int {
	set.mu.Lock()
	defer set.mu.Unlock()
	return len(set.locals)
}

// Open binds a socket; Serve starts it. It returns the system's error.
func (set *Set) Open(addr listen.Addr) (*Socket, error) {
	conn, turn, err := listen.OpenUDP(addr, set.options.Predecessor)
	if err != nil {
		return nil, err
	}
	s := &Socket{Addr: addr, set: set, conn: conn, turn: turn, received: make(chan struct{}), sessions: map[key]*session{}}
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

// Sweep ends the sessions that were idle too long, that were only answered for too long, or whose endpoint or route was
// removed. It must be called about once a second. It does not wait for that, since thousands may end together, and does
// nothing while an earlier one is still running.
func (set *Set) Sweep() {
	if !set.sweeping.TryLock() {
		return
	}
	go func() {
		defer set.sweeping.Unlock()
		defer set.recovered()
		set.sweep()
	}()
}

// recovered is deferred where a panic must not end the process.
func (set *Set) recovered() {
	if v := recover(); v != nil {
		set.options.Observer.Panicked("datagrams", v)
	}
}

func (set *Set) sweep() {
	idle := set.options.Idle
	if set.draining.Load() {
		idle = min(idle, set.options.DrainIdle)
	}
	now := set.options.Clock.Load()
	for _, s := range set.all() {
		s.sweep(moments{now - idle.Milliseconds(), now - min(idle, set.options.Once).Milliseconds(), now - set.options.Answered.Milliseconds()})
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

// Shutdown returns when all sessions with an endpoint have ended: by themselves, as soon as nothing has passed for
// Options.DrainIdle, or when ctx ends, whose error it returns then. Sessions are still begun meanwhile: clients see no
// end, and devices in front of the proxy, such as the connection tracking of kube-proxy, keep sending known clients to
// it as long as it exists. Sweep must be called meanwhile.
func (set *Set) Shutdown(ctx context.Context) (err error) {
	set.draining.Store(true)
	wait := time.NewTicker(10 * time.Millisecond)
	defer wait.Stop()
	for set.forwarding() > 0 && err == nil {
		select {
		case <-ctx.Done():
			err = ctx.Err()
		case <-wait.C:
		}
	}
	for _, s := range set.all() {
		s.close(observe.ReasonShuttingDown)
	}
	set.sweeping.Lock() // the sessions that it ends are logged by then
	defer set.sweeping.Unlock()
	set.running.Wait()
	return err
}

// admit takes a place for a session of a listener, which leave returns. If there are several listeners, one may have
// three times as many sessions as there are free places, so at most three quarters of all, and further listeners share
// the rest in the same way: a listener that is flooded, or whose sessions last long, leaves places to the others.
func (set *Set) admit(listener string) observe.Reason {
	if set.options.Scarce != nil && set.options.Scarce.Load() || set.options.Clock.Load() < set.scarceUntil.Load() {
		return observe.ReasonOverloaded
	}
	set.mu.Lock()
	defer set.mu.Unlock()
	free := set.options.MaxSessions - set.Sessions()
	if free <= 0 || set.of[listener] >= 3*free && set.shared(listener) {
		return observe.ReasonOverloaded
	}
	set.sessions.Add(1)
	set.of[listener]++
	return observe.ReasonOK
}

// leave must be called after admit.
func (set *Set) leave(listener string) {
	set.mu.Lock()
	defer set.mu.Unlock()
	set.sessions.Add(-1)
	if set.of[listener]--; set.of[listener] == 0 {
		delete(set.of, listener)
	}
}

// shared reports whether there are other listeners. mu must be held.
func (set *Set) shared(listener string) bool {
	for s := range set.sockets {
		if l := s.Listener(); l != nil && l.Config.Key != listener {
			return true
		}
	}
	return false
}

// parentOf returns the session whose socket has sent what arrives from an address, or nil.
func (set *Set) parentOf(from netip.AddrPort) *session {
	set.mu.Lock()
	defer set.mu.Unlock()
	return set.locals[from]
}
