// Package tunnel moves bytes between a client and a backend in both directions, when what they say to each other is not the gateway's
// business any more: after an Upgrade of HTTP/1.1 or an extended CONNECT of HTTP/2, and for TCP. It exists so that there is one pump, whatever both ends are.
//
// It knows of bytes and sockets only. It must never import a package that knows of protocols, nor one that owns connections.
package tunnel

import (
	"errors"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/moongate-dev/moongate/internal/proxy/buffer"
	"github.com/moongate-dev/moongate/internal/proxy/splice"
)

// Duplex is one end of a tunnel. One goroutine reads while another writes; Interrupt may be called by any. These are the methods that a
// connection over TLS, one in cleartext and a stream have in common, and none can be missed.
type Duplex interface {
	// ReadInto waits for bytes and reads them into b, which it holds no memory of while it waits. io.EOF is that the peer sends no more, unless
	// WasReset.
	ReadInto(b Buffer) (int, error)
	// WasReset reports, after io.EOF, whether the peer has broken off, and a write or a splice has taken that error.
	WasReset() bool
	Write(b []byte) (int, error)
	// CloseWrite tells the peer that nothing more comes. It may wait for the peer to take what it was sent.
	CloseWrite() error
	// Interrupt makes calls fail with os.ErrDeadlineExceeded, those under way and later ones.
	Interrupt()
}

// Buffer is memory to read to. It is taken when something is there to be read.
type Buffer interface {
	Take() []byte // the same until Give
	Give()
}

// Socket is a Duplex whose bytes are those of a socket. What it has read before must fit into the Buffer of the first ReadInto, since what follows that may be taken
// from the socket directly.
type Socket interface {
	// Raw is the socket; nil where it must not be read from or written to directly.
	Raw() syscall.RawConn
	SetReadDeadline(t time.Time) error
}

// Tunnel is two ends that are to be joined. Its fields are set before Run.
type Tunnel struct {
	Client, Backend Duplex
	// Moved is called when bytes, or the end of the stream, have moved: have come for an end, and are being written to it from now on, or were written.
	// It is called by two goroutines, one for each end.
	Moved func(to Side, writing bool)
	// Panicked is told of a panic of the goroutine that Run starts, by the deferred function.
	Panicked func(v any)
	// HangUps spares system calls where both ends are sockets; it may be nil.
	HangUps *HangUps
	// Suspends allows Run to return with End.Suspended.
	Suspends bool

	toBackend, toClient direction
	begun               bool
	interrupted         atomic.Bool

	mu      sync.Mutex
	end     End      // but for the counts
	barrier *barrier // nil while nobody wants the tunnel to be suspended
	wake    func()   // of Await; nil while the tunnel is not awaited
}

// Side is one of both ends.
type Side uint8

// The sides.
const (
	Neither Side = iota
	Client
	Backend
)

// End is how a tunnel has ended.
type End struct {
	// Failed is the end that failed first; Neither is that both have sent all that they wanted.
	Failed Side
	Err    error
	// ToBackend and ToClient are how many bytes were sent.
	ToBackend, ToClient int64
	// Suspended: the tunnel has not ended, and the above is not known. What follows is Await, and then Run again.
	Suspended bool
}

// Interrupt ends the tunnel. It may be called by any goroutine from the beginning of Run until its end, and while the tunnel is suspended.
func (t *Tunnel) Interrupt() {
	t.interrupted.Store(true) // before the deadlines, see leave
	t.Client.Interrupt()
	t.Backend.Interrupt()
	t.resume()
}

var errPanicked = errors.New("tunnel: a panic")

// Run moves bytes until both ends have sent their last, or one has failed, or the tunnel is suspended. An end that sends no more may still receive. Of what
// has failed the other end is not told: closing it is the caller's.
func (t *Tunnel) Run() End {
	if !t.begun {
		t.begun = true
		t.toBackend.init(t.Client, t.Backend, Client, Backend)
		t.toClient.init(t.Backend, t.Client, Backend, Client)
	} else {
		t.stopAwaiting()
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() {
			if v := recover(); v != nil {
				t.Panicked(v)
				t.fail(Neither, errPanicked)
			}
		}()
		t.run(&t.toBackend)
	}()
	func() {
		defer func() { <-done }()
		finished := false
		defer func() {
			if !finished { // a panic passes through
				t.fail(Neither, errPanicked)
			}
		}()
		t.run(&t.toClient)
		finished = true
	}()
	if t.toBackend.rests && t.toClient.rests {
		return End{Suspended: true}
	}
	t.end.ToBackend, t.end.ToClient = t.toBackend.sent.Load(), t.toClient.sent.Load()
	return t.end
}

func (t *Tunnel) fail(side Side, err error) {
	t.mu.Lock()
	first := t.end.Err == nil
	if first {
		t.end.Failed, t.end.Err = side, err
	}
	t.cancelBarrier()
	t.mu.Unlock()
	if first {
		t.Interrupt()
	}
}

// direction moves bytes one way.
type direction struct {
	from, to     Duplex
	source, sink Side
	sent         atomic.Int64
	buf          buffer.Lender
	reader       splice.Reader
	writer       splice.Writer
	spliced      bool // both ends are sockets
	// sending: a write or splice to the sink is under way, or the last one has failed. It may take the error by which the sink's peer breaks off, and the
	// other direction then reads the end of the stream in its place.
	sending      atomic.Bool
	failedToFill bool        // a splice from the source has failed, and may have taken that error
	ended        atomic.Bool // the source has sent its last
	first        bool        // the first small part has passed
	relay        *relay      // nil before the second
	rests        bool        // it has stopped because the tunnel is suspended

	id uint64 // of the entry in HangUps; 0 before there is one
	wait
}

func (d *direction) init(from, to Duplex, source, sink Side) {
	d.from, d.to, d.source, d.sink = from, to, source, sink
	in, out := socketOf(from), socketOf(to)
	if d.spliced = in != nil && out != nil; d.spliced {
		d.reader.Init(in)
		d.writer.Init(out)
	}
}

func socketOf(d Duplex) syscall.RawConn {
	if s, ok := d.(Socket); ok {
		return s.Raw()
	}
	return nil
}

func (t *Tunnel) run(d *direction) {
	d.rests = false
	defer func() {
		if d.rests {
			d.relay = nil // more than the rest of what a tunnel holds
		} else {
			t.forget(d)
		}
	}()
	defer d.buf.Give()
	for !d.rests {
		n, woken, err := t.read(d)
		if n > 0 && !t.pass(d, n, err == nil) {
			return
		}
		switch {
		case woken:
		case err == io.EOF && t.mayBeReset(d) && d.from.WasReset():
			t.fail(d.source, syscall.ECONNRESET)
			return
		case err == io.EOF:
			d.ended.Store(true)
			if d.spliced && t.opposite(d).ended.Load() {
				return // the caller's close tells the sink as well, and costs no system call more
			}
			t.Moved(d.sink, true)
			if err := d.to.CloseWrite(); err != nil {
				t.fail(d.sink, err)
				return
			}
			t.Moved(d.sink, false)
			return
		case err != nil:
			t.fail(d.source, err)
			return
		}
	}
}

// opposite is the other direction.
func (t *Tunnel) opposite(d *direction) *direction {
	if d == &t.toBackend {
		return &t.toClient
	}
	return &t.toBackend
}

// mayBeReset reports, of a direction whose source has ended its stream, whether that may have been by a reset. Between two sockets it is known to be in order
// where nothing else could have taken the error.
func (t *Tunnel) mayBeReset(d *direction) bool {
	return !d.spliced || d.failedToFill || t.opposite(d).sending.Load()
}

// read waits for bytes. woken is that the wait was ended before any came, for no reason of the connection's.
func (t *Tunnel) read(d *direction) (n int, woken bool, err error) {
	if !d.spliced {
		n, err = d.from.ReadInto(&d.buf)
		return n, false, err
	}
	d.begin()
	n, err = d.from.ReadInto(&d.buf)
	woken = t.leave(d, n == 0 && errors.Is(err, os.ErrDeadlineExceeded))
	return n, woken, err
}

// pass writes n bytes that were read, and, unless they were the last, what follows them as far as sockets allow a cheaper way than to read and to
// write. False is that the tunnel has failed.
func (t *Tunnel) pass(d *direction, n int, more bool) (ok bool) {
	ok = t.write(d, d.buf.Take()[:n])
	d.buf.Give()
	if !ok || !more || !d.spliced {
		return ok
	}
	if n < splice.Worth {
		if !d.first { // a question or an answer is often all: a relay would cost more to set up than it saves
			d.first = true
			return true
		}
		if n, ok = t.messages(d); !ok {
			return false
		}
	}
	if n < splice.Worth {
		return true
	}
	if err := t.splice(d); err != nil {
		t.fail(d.sink, err)
		return false
	}
	return true
}

// write writes all of b; false is that the tunnel has failed.
func (t *Tunnel) write(d *direction, b []byte) bool {
	t.Moved(d.sink, true)
	d.sending.Store(true)
	n, err := d.to.Write(b)
	d.sent.Add(int64(n))
	if err != nil {
		t.fail(d.sink, err)
		return false
	}
	d.sending.Store(false)
	t.Moved(d.sink, false)
	return true
}

// splice moves what has come, without copying it, as long as much comes. An error is the sink's; one of the source is that of the next read.
func (t *Tunnel) splice(d *direction) error {
	p := splice.Take()
	if p == nil {
		return nil
	}
	defer splice.Give(p)
	for {
		n, failed := d.reader.FillNow(p, splice.Most)
		if n == 0 {
			d.failedToFill = d.failedToFill || failed
			return nil
		}
		t.Moved(d.sink, true)
		d.sending.Store(true)
		err := d.writer.Drain(p)
		d.sent.Add(int64(n - p.Held()))
		if err != nil {
			return err
		}
		d.sending.Store(false)
		t.Moved(d.sink, false)
		if n < splice.Worth {
			return nil
		}
	}
}
