package http2

import (
	"net"
	"time"

	"github.com/moongate-dev/moongate/internal/proxy/http2/encode"
	"github.com/moongate-dev/moongate/internal/proxy/http2/frame"
	"github.com/moongate-dev/moongate/internal/proxy/http2/writesched"
)

// Client is the client's side of a connection to a backend. All methods may be called from any goroutine.
type Client struct {
	c    *Conn
	o    ClientOptions
	done chan struct{}

	// The fields below are guarded by c.mu.

	allowed      uint32 // concurrent streams that the backend allows
	headers      uint32 // largest header section of a request that the backend accepts, in bytes
	gone         bool   // no more streams can be opened
	goneNotified bool
	rose         bool // allowed has risen, and Freed was not called yet

	pingDue int64 // when the next PING of Keepalive is due; 0 before the first check
	idleAt  int64 // since when there is no stream; 0 before the first one
}

// NewClient creates a connection over nc, for which HTTP/2 must have been agreed on. Nothing happens on it before Serve
// or Open.
func NewClient(nc net.Conn, o ClientOptions) *Client {
	c := newConn(nc, o.connOptions())
	cl := &Client{c: c, o: o, done: make(chan struct{}), allowed: assumedStreams, headers: unlimited}
	c.client = cl
	c.streams, c.queue = map[uint32]*Stream{}, queues.Get().(*writesched.Scheduler[Stream])
	c.in = newReadBuffer(make([]byte, answerBuffer))
	c.prefaced = len(Preface) // servers do not send one
	c.out = appendPreface([]byte(Preface), &c.o, true)
	if o.Raw != nil {
		c.direct = tryWriter(o.Raw)
	}
	return cl
}

// Serve runs the connection to its end, when nc is closed and all incomplete streams have failed. The error is nil
// after Drain, after GOAWAY, and if the connection ended while no stream was open.
func (cl *Client) Serve() error {
	defer close(cl.done)
	err := cl.c.serve(nil)
	cl.c.mu.Lock()
	defer cl.c.mu.Unlock()
	cl.gone = true
	cl.notifyFreed()
	return err
}

// Close ends the connection and all of its streams at once.
func (cl *Client) Close() { cl.c.Close() }

// Drain takes no new streams, and ends the connection when the open ones have been closed. It returns at once.
func (cl *Client) Drain() {
	c := cl.c
	c.mu.Lock()
	defer c.unlock()
	if c.ended || c.draining == drainRefuse {
		return
	}
	cl.gone, c.draining = true, drainRefuse
	c.wakeReader()
}

// Done returns a channel that is closed when Serve is about to return.
func (cl *Client) Done() <-chan struct{} { return cl.done }

// Available returns how many more streams can be opened now. Before the backend's SETTINGS have arrived it is assumed
// to allow 100.
func (cl *Client) Available() int {
	cl.c.mu.Lock()
	defer cl.c.unlock()
	return cl.room()
}

// MaxStreams returns how many streams may be open at once by the limits of both sides. known reports whether the
// backend's SETTINGS have arrived.
func (cl *Client) MaxStreams() (n int, known bool) {
	cl.c.mu.Lock()
	defer cl.c.unlock()
	return min(cl.c.o.MaxStreams, int(cl.allowed)), cl.c.greeted
}

// room implements Available. mu must be held.
func (cl *Client) room() int {
	c := cl.c
	if c.ended || cl.gone {
		return 0
	}
	return max(0, min(c.o.MaxStreams, int(cl.allowed))-len(c.streams))
}

// RequestHead is the head of a request to be sent.
type RequestHead = encode.Request

// ClientRequest is a request to be sent.
type ClientRequest struct {
	RequestHead
	// Body is the available part of the body, which is sent together with the head as far as flow control allows it. It
	// must not be changed until the stream is closed. Last means that it is the whole body, and that there are no
	// trailers.
	Body []byte
	Last bool
	// Deadline is the deadline of the stream, see ClientStream.SetDeadline.
	Deadline time.Time
	// Suspends allows WaitAwhile to return ErrSuspend, and Notify.
	Suspends bool
}

// Open begins a stream and sends the request. It does not wait for the backend, not even for Body to be sent. The error
// is ErrUnavailable, ErrEnds or ErrHeadTooLarge.
func (cl *Client) Open(r *ClientRequest) (*ClientStream, error) {
	c := cl.c
	cs := takeStream(cl)
	s := &cs.s
	s.headEnds = r.Last && len(r.Body) == 0
	s.head = encode.AppendRequest(s.head, 0, &r.RequestHead, s.headEnds, !c.tableSizeSent.Load())
	cs.toHead, cs.toConnect, cs.suspends = string(r.Method) == "HEAD", len(r.Path) == 0, r.Suspends
	s.data, s.end, s.readDeadline = r.Body, r.Last, r.Deadline
	s.length = -1
	s.pending, s.unsent, s.headSet = true, true, true

	c.mu.Lock()
	defer c.unlock()
	if err := cl.refuses(&r.RequestHead, len(s.head)); err != nil {
		cs.recycle()
		return nil, err
	}
	if c.lastID == 0 {
		c.lastID = 1
	} else {
		c.lastID += 2
	}
	if c.lastID >= frame.MaxStreamID {
		cl.gone, c.draining = true, drainRefuse
		c.wakeReader()
	}
	s.id = c.lastID
	frame.SetStream(s.head, s.id)
	s.window = c.firstWindow()
	s.recvWindow, s.sendWindow = s.window, c.initialWindow
	if len(c.streams) == 0 {
		c.busyAt = c.clock()
		if idle := cl.o.Keepalive.Idle; idle > 0 && !c.pinged && c.busyAt-cl.idleAt >= idle.Milliseconds() {
			c.pinged, c.pingAt = true, c.busyAt
			c.out = frame.AppendPing(c.out, 0, pingOfWatch)
			c.wakeReader() // so that it considers the deadline for the response
		}
	}
	c.streams[s.id] = s
	c.open++
	if r.Suspends {
		c.suspendable++
	}
	c.queue.Open(&s.entry)
	c.pushAside()
	return cs, nil
}

// refuses returns why no stream can be opened for a request whose encoded head has that many bytes, nil if one can. mu
// must be held.
func (cl *Client) refuses(r *RequestHead, encoded int) error {
	switch {
	case cl.c.ended || cl.gone:
		return ErrEnds
	case cl.room() == 0:
		return ErrUnavailable
	case cl.headers != unlimited && int64(encoded)+encode.MostOverhead(r) > int64(cl.headers) && encode.ListSize(r) > int64(cl.headers):
		return ErrHeadTooLarge
	}
	return nil
}

// allow records how many streams the backend allows. first means that its limit was unknown before. Once the limit is
// acknowledged, opening more streams would be a protocol error of this side (RFC 9113 section 5.1.2).
func (cl *Client) allow(n uint32, first bool) {
	cl.rose = cl.rose || first || n > cl.allowed
	cl.allowed = n
	excess := len(cl.c.streams) - int(n)
	cl.giveUp(func(s *Stream) bool {
		if s.unsent {
			excess--
		}
		return s.unsent && excess >= 0
	})
}

// goAway handles GOAWAY: streams above last were not processed and will not be (RFC 9113 section 6.8).
func (cl *Client) goAway(last uint32) {
	cl.gone, cl.c.draining = true, drainRefuse
	cl.giveUp(func(s *Stream) bool { return s.id > last || s.unsent })
}

// giveUp fails the selected streams, which were not processed and will not be.
func (cl *Client) giveUp(which func(*Stream) bool) {
	for _, s := range cl.c.streams {
		if s.err == nil && !s.remoteEnded && which(s) {
			s.err = ErrUnprocessed
			if s.unsent {
				s.err = ErrUnsent
			}
			cl.c.drop(s)
		}
	}
}

// notifyFreed makes the pending calls of Freed and Gone. mu must be held; it is released during the calls.
func (cl *Client) notifyFreed() {
	gone, rose := cl.gone && !cl.goneNotified, cl.rose
	if !gone && !rose {
		return
	}
	cl.goneNotified, cl.rose = cl.gone, false
	cl.c.mu.Unlock()
	defer cl.c.mu.Lock()
	if gone && cl.o.Gone != nil {
		cl.o.Gone()
	}
	if rose && cl.o.Freed != nil {
		cl.o.Freed()
	}
}
