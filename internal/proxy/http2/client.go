package http2

import (
	"errors"
	"math"
	"net"
	"syscall"
	"time"

	"github.com/moongate-dev/moongate/internal/proxy/http2/direct"
	"github.com/moongate-dev/moongate/internal/proxy/http2/encode"
	"github.com/moongate-dev/moongate/internal/proxy/http2/frame"
	"github.com/moongate-dev/moongate/internal/proxy/http2/intake"
	"github.com/moongate-dev/moongate/internal/proxy/http2/settings"
	"github.com/moongate-dev/moongate/internal/proxy/message"
)

// ErrUnavailable tells that a connection to a backend takes no new stream at the moment, or not any more.
// Nothing was sent.
var ErrUnavailable = errors.New("http2: no stream can be opened")

// ClientOptions configures a connection to a backend; the zero value is ready for production.
type ClientOptions struct {
	// MaxStreams is how many streams there are at once at most, whatever the backend allows; 128.
	MaxStreams int
	// MaxHeaderBytes and MaxFields bound a header or trailer section as in Options; 32 KiB and 128. Above
	// them a response is malformed.
	MaxHeaderBytes, MaxFields int
	// StreamWindow is how many bytes of a response body a backend may send ahead of who reads it; 256 KiB,
	// at least 64 KiB.
	StreamWindow int
	// PingAfter is how long the backend may be silent while streams are open before it is sent a PING;
	// 15 s, but twice in a row at most; then every 5 minutes until it says something on a stream, because servers
	// of gRPC take more for a flood. PingTimeout is how long it may be silent after that before the connection is taken for dead; 15 s.
	PingAfter, PingTimeout time.Duration
	// Raw is the socket under nc, where nc sends bytes as they are. Writes to it never wait, so that a stream need
	// not wait because of others. With nil all bytes go through methods of nc, on another goroutine.
	Raw syscall.RawConn
	// Freed is called when a stream was given back or the backend allows more of them, so that Available
	// may have risen. Gone is called once when no stream can be opened any more: after GOAWAY or Drain,
	// when the stream numbers are used up, or at the end. Both are called without a lock, must not
	// block, and may be nil. They may call Available, and Drain and Close.
	Freed, Gone func()
}

const (
	// backendWindow is the connection's window. It bounds nothing but what is under way in the
	// network, since all that comes is credited at once.
	backendWindow = 4 << 20
	// unlimited is how many streams a backend allows that says nothing of it, and assumed how many one does
	// that has said nothing yet.
	unlimited, assumed = math.MaxUint32, 100
)

// Client is our side of a connection to a backend. All methods may be called from any goroutine.
type Client struct {
	c    *Conn
	o    ClientOptions
	done chan struct{}

	// From here on guarded by c.mu.

	allowed  uint32 // streams at once, by the backend
	gone     bool   // no stream can be opened any more
	goneTold bool
	rose     bool // allowed has risen, which was not told yet
}

// NewClient makes a connection of nc, which must have been agreed on to speak HTTP/2. Nothing happens on it
// before Serve or Open.
func NewClient(nc net.Conn, o ClientOptions) *Client {
	window := max(settings.Positive(o.StreamWindow, 256<<10), settings.MinWindow)
	ping := settings.Positive(o.PingAfter, 15*time.Second)
	c := newConn(nc, Options{
		MaxStreams: o.MaxStreams, MaxHeaderBytes: o.MaxHeaderBytes, MaxFields: o.MaxFields,
		StreamWindow: window, ConnWindow: max(backendWindow, window),
		Timeouts: Timeouts{Ping: ping, Pong: settings.Positive(o.PingTimeout, 15*time.Second)},
	})
	cl := &Client{c: c, o: o, done: make(chan struct{}), allowed: assumed}
	c.client = cl
	c.in = intake.Make(make([]byte, answerBuffer))
	c.prefaced = len(Preface) // which servers do not send
	c.out = settings.AppendGreeting([]byte(Preface), &c.o, true)
	if o.Raw != nil {
		c.direct = direct.Write(o.Raw)
	}
	return cl
}

// Serve runs the connection to its end, when nc is closed and all streams have failed that were not
// complete. The error is nil after Drain, after GOAWAY and where it ended while no stream was open.
func (cl *Client) Serve() error {
	err := cl.c.serve(nil)
	cl.c.mu.Lock()
	cl.gone = true
	cl.tell()
	cl.c.mu.Unlock()
	close(cl.done)
	return err
}

// Close ends the connection and all of its streams at once.
func (cl *Client) Close() { cl.c.Close() }

// Drain takes no new streams, and ends the connection when those that are open have been closed. It
// returns at once.
func (cl *Client) Drain() {
	c := cl.c
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over || c.draining == drainRefuse {
		return
	}
	cl.gone, c.draining = true, drainRefuse
	c.wakeReader()
}

// Done is closed when Serve is about to return.
func (cl *Client) Done() <-chan struct{} { return cl.done }

// Available is how many more streams can be opened now. Before the backend's SETTINGS have come it is
// assumed to allow 100.
func (cl *Client) Available() int {
	cl.c.mu.Lock()
	defer cl.c.mu.Unlock()
	return cl.room()
}

// MaxStreams is how many streams may be open at once by the limits of both sides. known tells that the
// backend's SETTINGS have come.
func (cl *Client) MaxStreams() (n int, known bool) {
	cl.c.mu.Lock()
	defer cl.c.mu.Unlock()
	return min(cl.c.o.MaxStreams, int(cl.allowed)), cl.c.greeted
}

// room is Available; mu is held.
func (cl *Client) room() int {
	c := cl.c
	if c.over || cl.gone {
		return 0
	}
	return max(0, min(c.o.MaxStreams, int(cl.allowed))-len(c.streams))
}

// ClientRequest is a request to be sent.
type ClientRequest struct {
	// Request is the head. Connection-specific fields, TE, Host, Content-Length and Expect are left out of its
	// Header; Host is sent as :authority unless it is empty.
	*message.Request
	Scheme string // "http" or "https"
	// Length is sent as Content-Length, unless it is -1.
	Length         int64
	TETrailers     bool // send TE: trailers
	ExpectContinue bool // send Expect: 100-continue
	// Body is what is at hand of the body, and is sent together with the head as far as flow control lets it. It must
	// stay as it is until the stream is closed. Last tells that it is all of it, and that there are
	// no trailers.
	Body []byte
	Last bool
	// Deadline is as of ClientStream.SetDeadline.
	Deadline time.Time
}

// Open begins a stream and sends the request. It does not wait for the backend, not even to take Body. The error is
// ErrUnavailable.
func (cl *Client) Open(r *ClientRequest) (*ClientStream, error) {
	c := cl.c
	cs := takeStream(cl)
	s := &cs.s
	head := encode.Request{Request: r.Request, Scheme: r.Scheme, Length: r.Length, TETrailers: r.TETrailers, ExpectContinue: r.ExpectContinue}
	s.headEnds = r.Last && len(r.Body) == 0
	s.head = encode.AppendRequest(s.head, 0, &head, s.headEnds, !c.sizeSaid.Load())
	cs.toHead = string(r.Method) == "HEAD"
	s.data, s.end, s.readDeadline = r.Body, r.Last, r.Deadline
	s.length = -1
	s.pending, s.unsent, s.headSaid = true, true, true

	c.mu.Lock()
	defer c.mu.Unlock()
	if cl.room() == 0 {
		cs.recycle()
		return nil, ErrUnavailable
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
	s.recvWindow, s.sendWindow = c.o.StreamWindow, c.initialWindow
	if len(c.streams) == 0 {
		c.busyAt = c.clock()
	}
	c.streams[s.id] = s
	c.open++
	c.queue.Open(&s.turn)
	c.pushAside()
	return cs, nil
}

// allow takes in how many streams the backend allows.
func (cl *Client) allow(n uint32) {
	cl.rose = cl.rose || n > cl.allowed
	cl.allowed = n
}

// goAway takes in GOAWAY: streams above last were not processed and will not be (RFC 9113 section 6.8).
func (cl *Client) goAway(last uint32) {
	c := cl.c
	cl.gone, c.draining = true, drainRefuse
	for id, s := range c.streams {
		if (id > last || s.unsent) && s.err == nil && !s.remoteEnded {
			s.err = errUnprocessed
			c.drop(s)
		}
	}
}

// tell calls back what is due. mu is held, but not during the calls.
func (cl *Client) tell() {
	gone, rose := cl.gone && !cl.goneTold, cl.rose
	if !gone && !rose {
		return
	}
	cl.goneTold, cl.rose = cl.gone, false
	cl.c.mu.Unlock()
	defer cl.c.mu.Lock()
	if gone && cl.o.Gone != nil {
		cl.o.Gone()
	}
	if rose && cl.o.Freed != nil {
		cl.o.Freed()
	}
}
