// Package tunnel moves bytes between a client and a backend in both directions, once the gateway does not process their
// protocol any more: after an HTTP/1.1 Upgrade or an extended CONNECT of HTTP/2, and for TCP. It exists so that there
// is one implementation, whatever the two ends are.
//
// It only knows bytes and sockets. It must never import a package that knows protocols, nor one that owns connections.
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

// Duplex is one end of a tunnel. One goroutine reads while another one writes; Interrupt may be called by any. These
// are the methods that a TLS connection, a connection without TLS and a stream have in common; all are needed.
type Duplex interface {
	// ReadInto waits for bytes and reads them into b, from which it holds no memory while it waits. io.EOF means that
	// the peer sends no more, unless WasReset returns true.
	ReadInto(b Buffer) (int, error)
	// WasReset reports, after io.EOF, whether the peer has reset the stream, and a write or a splice has returned that
	// error.
	WasReset() bool
	Write(b []byte) (int, error)
	// CloseWrite ends the stream to the peer. It may wait for the peer to take what it was sent.
	CloseWrite() error
	// Interrupt makes current and later calls fail with os.ErrDeadlineExceeded.
	Interrupt()
}

// Buffer is memory to read into. It is taken when there is something to read.
type Buffer interface {
	Take() []byte // the same memory until Give
	Give()
}

// Socket is a Duplex whose bytes are those of a socket. What it has read before must fit into the Buffer of the first
// ReadInto, since the bytes after that may be read directly from the socket.
type Socket interface {
	// Raw returns the socket; nil if it must not be read from or written to directly.
	Raw() syscall.RawConn
	SetReadDeadline(t time.Time) error
}

// Tunnel is two ends that are to be joined. Its fields must be set before Run.
type Tunnel struct {
	Client, Backend Duplex
	// Moved is called when bytes, or the end of a stream, have moved: either they have arrived for an end and are now
	// being written to it (writing), or they have been written. It is called by two goroutines, one for each end.
	Moved func(to Side, writing bool)
	// Panicked is called by the deferred function after a panic of the goroutine that Run starts.
	Panicked func(v any)
	// HangUps saves system calls if both ends are sockets. It may be nil.
	HangUps *HangUps
	// Suspends allows Run to return with End.Suspended.
	Suspends bool

	toBackend, toClient direction
	begun               bool
	interrupted         atomic.Bool

	mu      sync.Mutex
	end     End      // except for the counts
	barrier *barrier // nil unless the tunnel is to be suspended
	wake    func()   // set by Await; nil while the tunnel is not awaited
}

// Side is one of the two ends.
type Side uint8

// The sides.
const (
	Neither Side = iota
	Client
	Backend
)

// End is how a tunnel has ended.
type End struct {
	// Failed is the end that failed first; Neither if both have ended their streams normally.
	Failed Side
	Err    error
	// ToBackend and ToClient are how many bytes were sent.
	ToBackend, ToClient int64
	// Suspended means that the tunnel has not ended, and that the fields above are not valid. Await, and then Run
	// again, must be called.
	Suspended bool
}

// Interrupt ends the tunnel. It may be called by any goroutine while Run is running, and while the tunnel is suspended.
func (t *Tunnel) Interrupt() {
	t.interrupted.Store(true) // before the deadlines, see leave
	t.Client.Interrupt()
	t.Backend.Interrupt()
	t.resume()
}

var errPanicked = errors.New("tunnel: a panic")

// Run moves bytes until both ends have ended their streams, one has failed, or the tunnel is suspended. An end that
// sends no more may still receive. The other end is not notified of a failure: the caller must close it.
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
			if !finished { // it panics
				t.fail(Neither, errPanicked)
			}
		}()
		t.run(&t.toClient)
		finished = true
	}()
	if t.toBackend.suspended && t.toClient.suspended {
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
	// sending means that a write or splice to the sink is in progress, or that the last one has failed. It may take the
	// error by which the sink's peer resets the connection; the other direction then reads the end of the stream
	// instead.
	sending      atomic.Bool
	failedToFill bool        // a splice from the source has failed, and may have taken that error
	ended        atomic.Bool // the source has ended its stream
	first        bool        // the first small part was passed
	relay        *relay      // nil before the second part
	suspended    bool        // it has stopped because the tunnel is suspended

	id uint64 // of its entry in HangUps; 0 if there is none
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
	d.suspended = false
	defer func() {
		if d.suspended {
			d.relay = nil // it is larger than the rest of a tunnel's memory
		} else {
			t.forget(d)
		}
	}()
	defer d.buf.Give()
	for !d.suspended {
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
				return // the caller's close also ends the stream to the sink, without another system call
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

// opposite returns the other direction.
func (t *Tunnel) opposite(d *direction) *direction {
	if d == &t.toBackend {
		return &t.toClient
	}
	return &t.toBackend
}

// mayBeReset reports whether the end of a source's stream may have been a reset. Between two sockets it is known to be
// a normal end if nothing else could have taken the error.
func (t *Tunnel) mayBeReset(d *direction) bool {
	return !d.spliced || d.failedToFill || t.opposite(d).sending.Load()
}

// read waits for bytes. woken means that the wait was ended before any arrived, for no reason of the connection's.
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

// pass writes n bytes that were read and, if more may follow, moves the following ones as long as that is cheaper with
// relay or splice than with reads and writes. It returns false if the tunnel has failed.
func (t *Tunnel) pass(d *direction, n int, more bool) (ok bool) {
	ok = t.write(d, d.buf.Take()[:n])
	d.buf.Give()
	if !ok || !more || !d.spliced {
		return ok
	}
	if n < splice.Worth {
		if !d.first { // often there is only one request and one response: setting up a relay would cost more than it saves
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

// write writes all of b. It returns false if the tunnel has failed.
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

// splice moves what has arrived without copying it, as long as much arrives. It returns the sink's error; the source's
// error is returned by the next read.
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
