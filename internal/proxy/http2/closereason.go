package http2

// closeReason is how a stream was closed, which decides what may still come on it (RFC 9113 section 5.1).
type closeReason uint8

const (
	notClosed     closeReason = iota
	neverOpened               // the idle state
	closedByEnd               // END_STREAM of both sides
	closedByPeer              // RST_STREAM of the peer
	closedByUs                // our RST_STREAM, which the peer may not know of yet
	closedLongAgo             // not remembered
)

// How many closed streams are remembered. As many as may run: we may close all of them at a time while the peer still sends. Of a connection that rests a few are enough.
const (
	rememberedStreams = 2 * defaultMaxStreams
	fewStreams        = rememberedStreams / 4
)

type closedStream struct {
	id     uint32
	reason closeReason
}

// closedStreams are those that were closed last. They are kept apart from Streams, whose memory is used again. The zero
// value has none.
type closedStreams struct {
	streams []closedStream
	oldest  int // of streams, where these are as many as are remembered
}

// add remembers a stream.
func (r *closedStreams) add(id uint32, reason closeReason) {
	s := closedStream{id, reason}
	if len(r.streams) == rememberedStreams {
		r.streams[r.oldest] = s
		r.oldest = (r.oldest + 1) % rememberedStreams
		return
	}
	if r.streams == nil {
		r.streams = make([]closedStream, 0, fewStreams) // few connections have more
	}
	r.streams = append(r.streams, s)
}

// shrink keeps those few that were closed last.
func (r *closedStreams) shrink() {
	n := len(r.streams)
	if n <= fewStreams {
		return
	}
	few := make([]closedStream, 0, fewStreams)
	for i := n - fewStreams; i < n; i++ {
		few = append(few, r.streams[(r.oldest+i)%n])
	}
	*r = closedStreams{streams: few}
}

// reason returns how a stream was closed that is not open; no stream has the number 0.
func (r *closedStreams) reason(id uint32) closeReason {
	for i := range r.streams {
		if r.streams[i].id == id {
			return r.streams[i].reason
		}
	}
	return closedLongAgo
}
