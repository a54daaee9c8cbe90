package http2

import (
	"errors"
	"net"
	"time"

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
	// 15 s. PingTimeout is how long it may be silent after that before the connection is taken for dead; 15 s.
	PingAfter, PingTimeout time.Duration
	// Freed is called when a stream was given back or the backend allows more of them, so that Available
	// may have risen. Gone is called once when no stream can be opened any more: after GOAWAY or Drain,
	// when the stream numbers are used up, or at the end. Both are called without a lock, must not
	// block, and may be nil. They may call Available, and Drain and Close.
	Freed, Gone func()
}

// Client is our side of a connection to a backend. All methods may be called from any goroutine.
type Client struct{}

// NewClient makes a connection of nc, which must have been agreed on to speak HTTP/2. Nothing happens on it
// before Serve or Open.
func NewClient(nc net.Conn, o ClientOptions) *Client { return &Client{} }

// Serve runs the connection to its end, when nc is closed and all streams have failed that were not
// complete. The error is nil after Drain, after GOAWAY(NO_ERROR) and Close while no stream was open.
func (c *Client) Serve() error { return ErrClosed }

// Close ends the connection and all of its streams at once.
func (c *Client) Close() {}

// Drain takes no new streams, and ends the connection when those that are open have been closed. It
// returns at once.
func (c *Client) Drain() {}

// Done is closed when Serve is about to return.
func (c *Client) Done() <-chan struct{} { return nil }

// Available is how many more streams can be opened now. Before the backend's SETTINGS have come it is
// assumed to allow 100.
func (c *Client) Available() int { return 0 }

// MaxStreams is how many streams may be open at once by the limits of both sides. known tells that the
// backend's SETTINGS have come.
func (c *Client) MaxStreams() (n int, known bool) { return 0, false }

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
func (c *Client) Open(r *ClientRequest) (*ClientStream, error) { return nil, ErrUnavailable }
