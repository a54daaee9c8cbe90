package exchange

import (
	"io"
	"sync/atomic"
	"time"

	"github.com/moongate-dev/moongate/internal/proxy/buffer"
	"github.com/moongate-dev/moongate/internal/proxy/http1"
	"github.com/moongate-dev/moongate/internal/proxy/upstream"
)

// uploadGrace is how long an upload may go on after its response is complete.
const uploadGrace = time.Second

// upload sends a request body that did not come whole with its head, on a goroutine of its own,
// so that a response which starts meanwhile is relayed (full duplex). It owns Client.Body
// while it runs.
type upload struct {
	x    *Exchange
	done chan struct{} // receives once for each start
	// clientErr is what was wrong with the client: a timeout, an *http1.Error or the end of the
	// stream; upstreamErr that the backend took no more. Valid when done was received.
	clientErr, upstreamErr error
	// received counts payload bytes.
	received atomic.Int64
	// continued tells that a 100 was relayed; main goroutine only.
	continued bool
	// running tells that done has still to be received from; main goroutine only.
	running bool

	streamed streamUpload // by HTTP/2
}

// start begins the upload: the head in x.up first, then the body.
func (l *upload) start(u *upstream.Conn) {
	l.running = true
	go l.run(u)
}

func (l *upload) begin() {
	l.clientErr, l.upstreamErr = nil, nil
	l.received.Store(0)
	l.continued = false
}

// neverComes tells that the client was promised a 100 that did not come: it will not send its body.
func (l *upload) neverComes() bool {
	return l.x.Streamed && l.x.ExpectContinue && !l.continued && l.received.Load() == 0
}

func (l *upload) run(u *upstream.Conn) {
	buf := buffer.Take()
	defer func() {
		buffer.Give(buf)
		l.done <- struct{}{}
	}()
	for first := true; ; first = false { // the head does not wait for the body
		data, last, err := l.x.Client.Body.Next(buf[:], !first)
		if err != nil {
			l.clientFailed(err)
			return
		}
		if len(data) > 0 {
			l.received.Add(int64(len(data)))
			l.x.feedMirrors(data)
		}
		if l.upstreamErr = l.write(u, data, first, last); l.upstreamErr != nil {
			return
		}
		if last {
			return
		}
	}
}

// clientFailed ends the exchange for a fault of the client's.
func (l *upload) clientFailed(err error) {
	if err == nil {
		err = io.ErrUnexpectedEOF
	}
	l.clientErr = err
	l.x.Client.Watch.Interrupt()
}

// write sends a part of the body, behind the head if it is the first, and its end behind the last.
func (l *upload) write(u *upstream.Conn, data []byte, first, last bool) error {
	x := l.x
	if !first {
		x.up = x.up[:0]
	}
	chunked := x.Framing == http1.Chunked
	if chunked && len(data) > 0 {
		x.up = http1.AppendChunkHead(x.up, len(data))
	}
	if len(data) > copyLimit {
		x.parts = [2][]byte{x.up, data}
		x.buffers = x.parts[:]
		if _, err := x.buffers.WriteTo(u.Conn); err != nil {
			return err
		}
		x.up = x.up[:0]
	} else {
		x.up = append(x.up, data...)
	}
	if chunked {
		if len(data) > 0 {
			x.up = append(x.up, http1.ChunkEnd...)
		}
		if last {
			x.up = http1.AppendLastChunk(x.up, x.Client.Body.Trailer())
		}
	}
	if len(x.up) == 0 {
		return nil
	}
	_, err := u.Write(x.up)
	return err
}

// end waits for the upload, if there is one, and tells whether all of the body was sent. Where
// the response is complete the upload gets a moment to end by itself; else it is interrupted.
func (l *upload) end(a *attempt, responseComplete bool) (clean bool) {
	x := l.x
	if !x.Streamed {
		return true
	}
	l.streamed.settle()
	defer func() {
		l.running = false
		x.rec.BytesReceived = l.received.Load()
	}()
	if l.running && !l.wait(responseComplete && !l.neverComes()) {
		a.abort()
		x.Client.Body.Stop()
		<-l.done
		l.clientErr = nil // what it ended with is our own doing
		l.endMirrors(false)
		return false
	}
	clean = l.clientErr == nil && l.upstreamErr == nil
	l.endMirrors(clean)
	return clean
}

// wait waits for the end of the upload, for a moment or not at all.
func (l *upload) wait(grace bool) bool {
	select {
	case <-l.done:
		return true
	default:
	}
	if !grace {
		// What broke the response may be the client's fault: its end is near then.
		if !l.x.Client.Watch.goneNow() {
			return false
		}
		<-l.done
		return true
	}
	t := time.NewTimer(uploadGrace)
	defer t.Stop()
	select {
	case <-l.done:
		return true
	case <-t.C:
		return false
	}
}
