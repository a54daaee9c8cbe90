package exchange

import (
	"sync"

	"github.com/moongate-dev/moongate/internal/proxy/buffer"
	"github.com/moongate-dev/moongate/internal/proxy/http2"
	"github.com/moongate-dev/moongate/internal/proxy/upstream"
)

// replayable is how many bytes of a streamed request body are kept, so that the request can be sent again when a
// backend says that it has not processed it (RFC 9113 section 8.7).
const replayable = 64 << 10

// streamUpload is what an upload by HTTP/2 has besides. Its stream may be replaced by another, to
// which all that was sent before is sent anew.
type streamUpload struct {
	mu   sync.Mutex
	cond sync.Cond // of mu: something of what follows has changed

	stream  *http2.ClientStream // nil while the next is waited for
	turn    int                 // counts the streams
	settled bool                // no other stream will come
	writing bool                // the upload writes to stream
	over    bool                // it has ended
	last    bool                // the body has been read to its end
	lost    bool                // it has outgrown kept

	kept    *buffer.Buffer // kept[:n] is all of the body that was read, unless lost
	n       int
	in      *buffer.Buffer // what the body is read to
	pending []byte         // of in: what was there early and is too much to be kept
}

// early reads what is there of the body, to be sent together with the head. It fails where the client does.
func (l *upload) early() bool {
	s := &l.streamed
	if s.kept != nil {
		return true // this is a replay
	}
	s.kept, s.in = buffer.Take(), buffer.Take()
	s.stream, s.turn, s.n, s.pending = nil, 0, 0, nil
	s.settled, s.over, s.last, s.lost = false, false, false, false
	data, last, err := l.x.Client.Body.Next(s.in[:], false)
	if err != nil {
		l.clientFailed(err)
		return false
	}
	if !l.took(data, last) {
		s.pending = data
	}
	return true
}

// took notes a part of the body, and tells whether it was kept. mu is held.
func (l *upload) took(data []byte, last bool) (kept bool) {
	s := &l.streamed
	s.last = last
	if len(data) > 0 {
		l.received.Add(int64(len(data)))
		l.x.feedMirrors(data)
	}
	if s.lost || s.n+len(data) > replayable {
		s.lost = true
		return false
	}
	s.n += copy(s.kept[s.n:], data)
	return true
}

// open opens a stream for x.out, with all of the body that was kept, and has the upload go on there.
func (l *upload) open(place *upstream.Shared) (*http2.ClientStream, error) {
	s := &l.streamed
	s.mu.Lock()
	defer s.mu.Unlock()
	o := &l.x.out
	o.Body, o.Last = s.kept[:s.n], s.last && !s.lost && !l.hasTrailers()
	stream, err := place.Open(o)
	if err != nil {
		return nil, err
	}
	s.stream = stream
	s.turn++
	s.cond.Broadcast()
	if !l.running && !o.Last {
		l.running = true
		go l.runStream()
	}
	return stream, nil
}

// again readies the upload for another stream, after which nothing is under way on the present one; false
// where the body cannot be sent again.
func (l *upload) again(present *http2.ClientStream) bool {
	if !l.x.Streamed {
		return true
	}
	s := &l.streamed
	s.mu.Lock()
	defer s.mu.Unlock()
	present.Reset(http2.Cancel)
	for s.writing {
		s.cond.Wait()
	}
	if s.lost || l.clientErr != nil {
		return false
	}
	s.stream = nil
	if s.over {
		<-l.done
		l.running, s.over = false, false
	}
	return true
}

// settle says that there will be no other stream.
func (s *streamUpload) settle() {
	s.mu.Lock()
	s.settled = true
	s.cond.Broadcast()
	s.mu.Unlock()
}

// cancel ends an upload that waits for a stream in vain, and tells whether the client is to blame.
func (l *upload) cancel() (blame bool) {
	if l.running {
		l.end(&attempt{}, false)
	}
	l.release()
	return l.clientErr != nil
}

// release gives the memory back. The last stream has been closed.
func (l *upload) release() {
	s := &l.streamed
	if s.kept == nil {
		return
	}
	buffer.Give(s.kept)
	buffer.Give(s.in)
	s.kept, s.in, s.pending, s.stream = nil, nil, nil, nil
}

// runStream is run by HTTP/2, behind what went out with the head.
func (l *upload) runStream() {
	s := &l.streamed
	s.mu.Lock()
	defer func() {
		s.over = true
		s.cond.Broadcast()
		s.mu.Unlock()
		l.done <- struct{}{}
	}()
	if s.pending != nil || s.last {
		if !l.pass(s.pending, false) {
			return
		}
		s.pending = nil
	}
	for !s.last {
		s.mu.Unlock()
		data, last, err := l.x.Client.Body.Next(s.in[:], true)
		s.mu.Lock()
		if err != nil {
			l.clientFailed(err)
			return
		}
		if !l.pass(data, l.took(data, last)) {
			return
		}
	}
}

// pass sends a part of the body, and the end behind the last, on whatever stream there is. mu is held, but
// not while it waits.
func (l *upload) pass(data []byte, kept bool) bool {
	s := &l.streamed
	for turn := s.turn; ; turn = s.turn {
		l.upstreamErr = http2.ErrClosed
		if stream := s.stream; stream != nil {
			s.writing = true
			s.mu.Unlock()
			l.upstreamErr = l.writeTo(stream, data)
			s.mu.Lock()
			s.writing = false
			s.cond.Broadcast()
			if l.upstreamErr == nil {
				return true
			}
		}
		for s.turn == turn && !s.settled {
			s.cond.Wait()
		}
		if s.turn == turn {
			return false
		}
		l.upstreamErr = nil
		if kept { // the new stream was opened with it
			data = nil
			if !s.last || !l.hasTrailers() {
				return true
			}
		}
	}
}

func (l *upload) writeTo(stream *http2.ClientStream, data []byte) error {
	s := &l.streamed
	if !s.last || !l.hasTrailers() {
		return stream.Write(data, s.last)
	}
	if len(data) > 0 {
		if err := stream.Write(data, false); err != nil {
			return err
		}
	}
	return stream.WriteTrailers(l.x.Client.Body.Trailer())
}

// hasTrailers tells whether the body that has ended has a trailer section.
func (l *upload) hasTrailers() bool {
	t := l.x.Client.Body.Trailer()
	return t != nil && t.Len() > 0
}
