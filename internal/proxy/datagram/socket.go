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

// maxDatagram is more than a datagram of UDP can have.
const maxDatagram = 65535

// key tells sessions apart: who sends, and to which of our addresses where the socket has several.
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
	v6       bool // addresses of clients are given to the kernel as those of IPv6
	listener atomic.Pointer[snapshot.Listener]
	seed     uint64 // the reader's random numbers
	// loggedAt is when a datagram that was dropped was last logged, by the coarse clock; the reader's.
	loggedAt map[observe.Reason]int64

	mu       sync.Mutex // guards what follows, and what of a session it says
	sessions map[key]*session
	closed   bool
}

// SetListener puts a listener and its route in force. Sessions whose backend it still has go on.
func (s *Socket) SetListener(l *snapshot.Listener) { s.listener.Store(l) }

// Listener returns the one in force, nil before SetListener.
func (s *Socket) Listener() *snapshot.Listener { return s.listener.Load() }

// Serve starts to receive. There must be a listener.
func (s *Socket) Serve() {
	s.seed = uint64(time.Now().UnixNano())
	s.set.running.Go(s.receive)
}

// SyscallConn is for handing the socket to another process.
func (s *Socket) SyscallConn() (syscall.RawConn, error) { return s.conn.SyscallConn() }

// Release leaves what clients send to another process that has the socket; what was received by then is forwarded when it returns. It must follow Serve. What endpoints answer in the sessions that there are is sent on.
func (s *Socket) Release() {
	_ = s.conn.SetReadDeadline(time.Unix(1, 0)) // a closed one receives nothing
	<-s.received
}

// Close ends the socket. The sessions on it end after that, since there may be thousands.
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

// moments are since when, by the coarse clock, something must have passed in a session that is to last, and in one whose client has sent one datagram; and since when
// that one must have come.
type moments struct{ idle, once, answered int64 }

// sweep ends the sessions that have had their time, and those that cannot go on.
func (s *Socket) sweep(since moments) {
	idle, others := s.ending(since)
	s.endAll(idle, observe.ReasonSessionIdle)
	s.endAll(others, observe.ReasonSessionEnded)
}

// ending returns what sweep ends.
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

// idles reports whether the session has had its time.
func (ses *session) idles(since moments) bool {
	active := ses.active.Load()
	return active <= since.idle || !ses.again.Load() && (active <= since.once || ses.begun <= since.answered)
}

// receive forwards what clients send until the socket is closed or released.
func (s *Socket) receive() {
	defer close(s.received)
	if s.turn.Wait(); !s.turn.Ours() {
		return // what comes in is the predecessor's, also while the socket is being closed
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

// deliver forwards a batch; of a panic only its datagrams are lost.
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

// forward sends datagrams of one client to its endpoint. Where that turns out not to be there, what has not been sent goes to another.
func (s *Socket) forward(from key, in *batch, begin, end int) {
	for range 2 {
		ses, known := s.session(from, in, begin, end)
		switch {
		case ses == nil:
			return
		case ses.conn == nil:
			for i := begin; known && i < end; i++ { // else it has begun with them, and counted them
				ses.drop(ses.dropping, in.size(i))
			}
			return
		}
		ses.active.Store(s.set.options.Clock.Load())
		if known || end-begin > 1 {
			ses.again.Store(true)
		}
		next, bytes, err := in.send(ses.raw, begin, end)
		ses.received.Add(bytes)
		begin = next
		if !unreachable(err) {
			return // a datagram that was not taken is lost
		}
		ses.refused()
	}
}

// dropLogEvery is how often a datagram that was dropped for a reason is logged. Anybody can send any number of them, from forged addresses, and their lines must not
// crowd out those of requests.
const dropLogEvery = time.Second

// logs reports whether a datagram that is dropped is to be logged.
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

// session returns a client's session, a new one if need be; nil is that its datagrams are dropped. known is that there was one.
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

// find returns a client's session, nil without one, and whether it goes on.
func (s *Socket) find(from key, l *snapshot.Listener) (ses *session, goesOn bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	ses = s.sessions[from]
	return ses, ses != nil && ses.follows(l)
}
