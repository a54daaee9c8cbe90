package datagram

import (
	"errors"
	"net"
	"net/netip"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/moongate-dev/moongate/internal/observe"
	"github.com/moongate-dev/moongate/internal/proxy/snapshot"
	"github.com/moongate-dev/moongate/internal/proxy/upstream"
)

// session forwards the datagrams between a client and an endpoint. A session of a backendRef that does not resolve, or
// whose Service has no endpoints, has no connection and drops the client's datagrams: if each of them were assigned to
// a backend again, the share of that backendRef would reach the others. Dropped datagrams do not prolong it.
type session struct {
	socket *Socket
	key    key
	// parent is the session that sent the client's datagrams, if the client is this process.
	parent   *session
	start    int64          // Unix nanoseconds
	begun    int64          // by the coarse clock
	rule     *snapshot.Rule // guarded by socket.mu
	listener *snapshot.Listener
	ref      int // index in the rule with which it began
	stats    *observe.RuleStats
	backend  *upstream.Backend  // guarded by socket.mu
	endpoint *upstream.Endpoint // guarded by socket.mu
	attempts int32              // to get a socket to an endpoint
	conn     *net.UDPConn       // to the endpoint; nil if the session drops the datagrams
	dropping observe.Reason     // why it drops them
	raw      syscall.RawConn
	local    netip.AddrPort
	failed   error // error of receiving
	ended    bool  // guarded by socket.mu

	active         atomic.Int64 // Unix milliseconds of the last datagram
	again          atomic.Bool  // the client has sent more than one
	received, sent atomic.Int64 // bytes of payload
}

// begin creates a session for datagrams of a client that has none. It returns nil if that is not possible; the
// datagrams are counted as dropped then.
func (s *Socket) begin(l *snapshot.Listener, from key, in *batch, begin, end int) *session {
	ses := &session{socket: s, key: from, start: time.Now().UnixNano(), listener: l, stats: l.Stats.Unrouted(), ref: -1}
	reason, kept := ses.choose(l), false
	if reason == observe.ReasonOK || reason == observe.ReasonBackendInvalid {
		if full := s.set.admit(l.Config.Key); full != observe.ReasonOK {
			reason = full
		} else {
			defer func() { // after a panic too
				if !kept {
					s.set.leave(l.Config.Key)
				}
			}()
		}
	}
	if reason == observe.ReasonOK {
		reason = ses.connect()
	}
	if reason != observe.ReasonOK {
		for i := begin; i < end; i++ {
			ses.drop(reason, in.size(i))
		}
		if reason != observe.ReasonBackendInvalid && reason != observe.ReasonNoEndpoints {
			return nil
		}
		ses.dropping = reason
	}
	ses.begun = s.set.options.Clock.Load()
	ses.active.Store(ses.begun)
	kept = true
	return s.add(ses)
}

// add adds a session, and starts to forward the answers of its endpoint.
func (s *Socket) add(ses *session) *session {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		s.release(ses)
		return nil
	}
	s.sessions[ses.key] = ses
	if ses.conn != nil {
		s.set.mu.Lock()
		s.set.locals[ses.local] = ses
		s.set.mu.Unlock()
		s.set.running.Go(ses.answer)
	}
	return ses
}

// ruleOf returns the rule of the listener's route for datagrams, nil if there is none.
func ruleOf(l *snapshot.Listener) *snapshot.Rule {
	route, ok := l.L4.Find(nil)
	if !ok {
		return nil
	}
	return route.RuleFor(snapshot.UDP)
}

// choose chooses a backend.
func (ses *session) choose(l *snapshot.Listener) observe.Reason {
	rule := ruleOf(l)
	if rule == nil {
		return observe.ReasonRouteNotFound
	}
	for p := ses.socket.set.parentOf(ses.key.client); p != nil; p = p.parent {
		if ses.parent == nil {
			ses.parent = p
		}
		if p.socket == ses.socket {
			return observe.ReasonLoopDetected
		}
	}
	ses.rule = rule
	if stats := ses.rule.StatsFor(l); stats != nil {
		ses.stats = stats
	}
	ref, reason := ses.rule.Choose(&ses.socket.seed)
	if reason != observe.ReasonOK {
		return reason
	}
	ses.ref = ref
	b := &ses.rule.Backends[ref]
	if b.Failure != nil {
		return b.Failure.Reason
	}
	ses.backend = b.Backend
	return observe.ReasonOK
}

// maxAttempts is how many endpoints a session tries to get a socket to.
const maxAttempts = 3

// connect chooses an endpoint and creates the socket to it, which sends nothing. It fails at once if there is no route;
// then another endpoint is chosen.
func (ses *session) connect() (reason observe.Reason) {
	var info *upstream.PickInfo
	if b := ses.backend.Balancing(); b != nil && b.Hash.GetSourceIp() {
		ip := ses.key.client.Addr().As16()
		info = &upstream.PickInfo{Hash: upstream.Hash(0).Add(ip[:]).Sum(), Hashed: true}
	}
	for tried := (upstream.Tried{}); ; tried.Add(ses.endpoint) {
		e := ses.backend.PickFor(&ses.socket.seed, &tried, info)
		switch {
		case e == nil && ses.attempts == 0:
			return observe.ReasonNoEndpoints
		case e == nil, tried.Has(e):
			return reason
		}
		ses.endpoint = e
		ses.attempts++
		if reason = ses.connectTo(e); reason != observe.ReasonConnectFailed || ses.attempts == maxAttempts {
			return reason
		}
	}
}

func (ses *session) connectTo(e *upstream.Endpoint) observe.Reason {
	if !e.Usable() {
		return observe.ReasonConnectFailed
	}
	conn, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(e.Address()))
	switch {
	case err != nil && exhausted(err):
		// Each further attempt would make the kernel search all ports again, while the datagrams of others wait.
		set := ses.socket.set
		set.scarceUntil.Store(set.options.Clock.Load() + scarcePause.Milliseconds())
		return observe.ReasonOverloaded
	case err != nil:
		e.Failed()
		return observe.ReasonConnectFailed
	}
	if ses.raw, err = conn.SyscallConn(); err != nil {
		conn.Close()
		return observe.ReasonInternal
	}
	local := unmapped(conn.LocalAddr().(*net.UDPAddr).AddrPort())
	if local == unmapped(e.Address()) { // the system has connected the socket to itself, since nothing listens there
		conn.Close()
		e.Failed()
		return observe.ReasonConnectFailed
	}
	ses.conn, ses.local = conn, local
	e.Begin()
	return observe.ReasonOK
}

// scarcePause is how long no session is begun after the system had no resources for one.
const scarcePause = 200 * time.Millisecond

// exhausted reports whether err means that the system has no more ports, descriptors or memory, for which the endpoint
// is not to blame.
func exhausted(err error) bool {
	for _, e := range []syscall.Errno{syscall.EAGAIN, syscall.EADDRNOTAVAIL, syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// unreachable reports whether an error of a connected socket means that what it sends does not arrive: the kernel has
// no route to the endpoint, or an earlier datagram was answered by ICMP.
func unreachable(err error) bool {
	switch err {
	case syscall.ECONNREFUSED, syscall.EHOSTUNREACH, syscall.ENETUNREACH, syscall.ENOPROTOOPT, syscall.EHOSTDOWN, syscall.ENETDOWN,
		syscall.EACCES: // ICMPv6: administratively prohibited
		return true
	}
	return false
}

// follows reports whether the session may continue under the listener's route. One that drops datagrams because its
// backend has no endpoints ends as soon as there is one. socket.mu must be held.
func (ses *session) follows(l *snapshot.Listener) bool {
	rule := ruleOf(l)
	if rule == nil {
		return false
	}
	if ses.dropping == observe.ReasonNoEndpoints && ses.backend.HasOther(new(upstream.Tried)) {
		return false
	}
	gone := ses.endpoint != nil && ses.endpoint.Gone()
	switch {
	case !gone && ses.rule == rule:
		return true
	case ses.backend == nil:
		return false
	case (gone || !rule.Chooses(ses.backend)) && !ses.move(rule):
		return false
	}
	ses.rule = rule
	return true
}

// move continues the session at the same endpoint of another backend of the rule, and reports whether there is one: a
// Service is another backend when a policy begins or ceases to apply to it. socket.mu must be held.
func (ses *session) move(rule *snapshot.Rule) bool {
	if ses.conn == nil {
		return false
	}
	e := rule.Counterpart(ses.endpoint)
	if e == nil || !e.Usable() {
		return false
	}
	ses.endpoint.End()
	e.Begin()
	ses.backend, ses.endpoint = e.Backend(), e
	return true
}

// refused ends the session because its endpoint is unreachable, and makes others avoid the endpoint for a moment.
func (ses *session) refused() {
	ses.socket.mu.Lock()
	e := ses.endpoint
	ses.socket.mu.Unlock()
	e.Failed()
	ses.socket.end(ses, observe.ReasonConnectFailed)
}

// end removes a session, and logs and counts it. Thousands may end together: s.mu is not held while the socket of one
// is closed and its log line written, so that other datagrams need not wait.
func (s *Socket) end(ses *session, why observe.Reason) {
	if !s.take(ses) {
		return
	}
	s.release(ses)
	if ses.conn != nil {
		ses.record(s.set.options.Observer, why, ses.received.Load(), ses.start, time.Now().UnixNano()-ses.start)
	}
}

// take removes a session, and reports whether it had not been removed before.
func (s *Socket) take(ses *session) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if ses.ended {
		return false
	}
	ses.ended = true
	delete(s.sessions, ses.key)
	return true
}

// release releases the resources of a session.
func (s *Socket) release(ses *session) {
	s.set.leave(ses.listener.Config.Key)
	if ses.conn == nil {
		return
	}
	s.set.mu.Lock()
	if s.set.locals[ses.local] == ses {
		delete(s.set.locals, ses.local)
	}
	s.set.mu.Unlock()
	ses.conn.Close()
	ses.endpoint.End()
}

// drop counts a dropped datagram, and logs it unless it is one of a flood. It belongs to the reader.
func (ses *session) drop(why observe.Reason, size int) {
	o := ses.socket.set.options.Observer
	if !ses.socket.logs(why) {
		o = &ses.socket.set.dropped
	}
	ses.record(o, why, int64(size), time.Now().UnixNano(), 0)
}

func (ses *session) record(o *observe.Observer, why observe.Reason, received, start, took int64) {
	r := observe.Record{
		StartUnixNano: start, DurationNano: took, ClientAddr: ses.key.client, Scheme: "udp", Protocol: "UDP", Reason: why,
		BytesReceived: received, BytesSent: ses.sent.Load(), Stats: ses.stats, Backend: int32(ses.ref + 1), Shard: uint32(ses.key.client.Port()),
	}
	if ses.endpoint != nil {
		r.Upstream, r.Attempts = ses.endpoint.Address(), ses.attempts
	}
	o.Finish(&r)
}

// answer sends the client what the endpoint sends, until the session ends. It holds no buffers while it waits.
func (ses *session) answer() {
	defer func() {
		if v := recover(); v != nil {
			ses.socket.set.options.Observer.Panicked("datagrams", v)
			ses.refused()
		}
	}()
	wait := ses.forwardAnswers
	for ses.raw.Read(wait) == nil { // otherwise it is closed
		if unreachable(ses.failed) {
			ses.refused()
			return
		}
	}
}

// forwardAnswers forwards what has arrived. It returns false if nothing has, or nothing is left. It is called within
// the wait, in which the poller stays armed: a read that has taken everything need not be followed by one that finds
// nothing, which would be a quarter of the system calls. Closing the session waits for it, so it must not take a lock.
func (ses *session) forwardAnswers(fd uintptr) bool {
	b := batches.Get().(*batch)
	defer batches.Put(b)
	if !b.take(fd) {
		return false
	}
	if ses.failed = b.err; b.err != nil {
		return true
	}
	all := b.tookAll() // before reply, which may fail
	ses.active.Store(ses.socket.set.options.Clock.Load())
	ses.sent.Add(b.reply(ses.socket.raw, &ses.key, ses.socket.v6))
	return !all
}

func unmapped(a netip.AddrPort) netip.AddrPort { return netip.AddrPortFrom(a.Addr().Unmap(), a.Port()) }
