package datagram

import (
	"errors"
	"maps"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/moongate-dev/moongate/internal/observe"
	"github.com/moongate-dev/moongate/internal/proxy/listen"
	"github.com/moongate-dev/moongate/internal/proxy/snapshot"
)

// maxDatagram is larger than any UDP datagram.
const maxDatagram = 65535

// key identifies sessions: the sender, and the local address if the socket has several.
type key struct {
	client netip.AddrPort
	local  local
}

// Socket is one bound port.
type Socket struct {
	Addr     listen.Addr
	set      *Set
	conn     *net.UDPConn
	turn     listen.Turn
	received chan struct{} // closed when nothing is received any more
	raw      syscall.RawConn
	v6       bool // clients' addresses are passed to the kernel as IPv6
	listener atomic.Pointer[snapshot.Listener]
	seed     uint64 // the reader's random numbers
	// loggedAt is when a datagram dropped for a reason was last logged, by the coarse clock; belongs to the reader.
	loggedAt map[observe.Reason]int64

	mu       sync.Mutex // guards the fields below, and those of a session where noted
	sessions map[key]*session
	closed   bool
}

// SetListener publishes a listener and its route. Sessions whose backend it still has continue.
func (s *Socket) SetListener(l *snapshot.Listener) { s.listener.Store(l) }

// Listener returns the current listener, nil before SetListener.
func (s *Socket) Listener() *snapshot.Listener { return s.listener.Load() }

// Serve starts to receive. SetListener must have been called.
func (s *Socket) Serve() {
	s.seed = uint64(time.Now().UnixNano())
	s.set.running.Go(s.receive)
}

// SyscallConn is for passing the socket to another process.
func (s *Socket) SyscallConn() (syscall.RawConn, error) { return s.conn.SyscallConn() }

// Release leaves what clients send to another process that has the socket. When it returns, everything received by then
// was forwarded. It must be called after Serve. Answers of endpoints in existing sessions are still sent on.
func (s *Socket) Release() {
	_ = s.conn.SetReadDeadline(time.Unix(1, 0)) // a closed socket receives nothing
	<-s.received
}

// Close closes the socket. Its sessions end later, since there may be thousands.
func (s *Socket) Close() { s.close(observe.ReasonSessionEnded) }

func (s *Socket) close(why observe.Reason) {
	s.mu.Lock()
	if !s.closed {
		s.closed = true
		all := slices.Collect(maps.Values(s.sessions))
		s.set.running.Go(func() { s.endAll(all, why) })
		s.turn.Close()
		s.conn.Close()
	}
	s.mu.Unlock()
	s.set.mu.Lock()
	delete(s.set.sockets, s)
	s.set.mu.Unlock()
}

func (s *Socket) endAll(all []*session, why observe.Reason) {
	for _, ses := range all {
		func() {
			defer s.set.recovered()
			s.end(ses, why)
		}()
	}
}

// moments are times of the coarse clock: a session ends if nothing has passed since idle; one whose client has sent
// only one datagram ends if nothing has passed since once, or if it began at or before answered.
type moments struct{ idle, once, answered int64 }

// sweep ends the sessions whose time is over, and those that cannot continue.
func (s *Socket) sweep(since moments) {
	idle, others := s.ending(since)
	s.endAll(idle, observe.ReasonSessionIdle)
	s.endAll(others, observe.ReasonSessionEnded)
}

// ending returns the sessions that sweep ends.
func (s *Socket) ending(since moments) (idle, others []*session) {
	l := s.listener.Load()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, ses := range s.sessions {
		if ses.idles(since) {
			idle = append(idle, ses)
		} else if !ses.follows(l) {
			others = append(others, ses)
		}
	}
	return idle, others
}

// idles reports whether the time of the session is over.
func (ses *session) idles(since moments) bool {
	active := ses.active.Load()
	return active <= since.idle || !ses.again.Load() && (active <= since.once || ses.begun <= since.answered)
}

// receive forwards what clients send until the socket is closed or released.
func (s *Socket) receive() {
	defer close(s.received)
	if s.turn.Wait(); !s.turn.Begun() {
		return // what arrives belongs to the predecessor, also while the socket is being closed
	}
	in := newBatch(true)
	for {
		n, err := in.receive(s.raw)
		if errors.Is(err, net.ErrClosed) || errors.Is(err, os.ErrDeadlineExceeded) {
			return
		}
		s.deliver(in, n)
	}
}

// deliver forwards a batch. After a panic only its datagrams are lost.
func (s *Socket) deliver(in *batch, n int) {
	defer s.set.recovered()
	for i := 0; i < n; {
		from, ok := in.key(i)
		if !ok {
			i++
			continue
		}
		end := i + 1
		for end < n {
			if next, ok := in.key(end); !ok || next != from {
				break
			}
			end++
		}
		s.forward(from, in, i, end)
		i = end
	}
}

// forward sends datagrams of one client to its endpoint. If that turns out to be unreachable, what has not been sent
// goes to another one.
func (s *Socket) forward(from key, in *batch, begin, end int) {
	for range 2 {
		ses, known := s.session(from, in, begin, end)
		switch {
		case ses == nil:
			return
		case ses.conn == nil:
			for i := begin; known && i < end; i++ { // otherwise the session has begun with them, and has counted them
				ses.drop(ses.dropping, in.size(i))
			}
			return
		}
		ses.active.Store(s.set.options.Clock.Load())
		if known || end-begin > 1 {
			ses.again.Store(true)
		}
		all := in.sizes(begin, end)
		ses.received.Add(all) // before they are sent, because the session may be ended and logged as soon as the answer arrives
		next, bytes, err := in.send(ses.raw, begin, end)
		if bytes < all {
			ses.received.Add(bytes - all)
		}
		begin = next
		if !unreachable(err) {
			return // a datagram that was not taken is lost
		}
		ses.refused()
	}
}

// dropLogEvery is how often a datagram dropped for a reason is logged. Attackers can send any number of them from
// forged addresses, and their lines must not displace those of requests.
const dropLogEvery = time.Second

// logs reports whether a dropped datagram is to be logged.
func (s *Socket) logs(why observe.Reason) bool {
	if why == observe.ReasonOverloaded || why == observe.ReasonShuttingDown {
		return false
	}
	now := s.set.options.Clock.Load()
	if at, ok := s.loggedAt[why]; ok && now < at+dropLogEvery.Milliseconds() {
		return false
	}
	if s.loggedAt == nil {
		s.loggedAt = map[observe.Reason]int64{}
	}
	s.loggedAt[why] = now
	return true
}

// session returns a client's session, a new one if necessary. It returns nil if its datagrams are dropped. known means
// that the session existed before.
func (s *Socket) session(from key, in *batch, begin, end int) (ses *session, known bool) {
	l := s.listener.Load()
	ses, goesOn := s.find(from, l)
	if goesOn {
		return ses, true
	}
	if ses != nil {
		s.end(ses, observe.ReasonSessionEnded)
	}
	return s.begin(l, from, in, begin, end), false
}

// find returns a client's session, nil if there is none, and whether it continues.
func (s *Socket) find(from key, l *snapshot.Listener) (ses *session, goesOn bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	ses = s.sessions[from]
	return ses, ses != nil && ses.follows(l)
}
