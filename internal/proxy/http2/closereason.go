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

// rememberedStreams is how many closed streams are remembered.
const rememberedStreams = 64

type closedStream struct {
	id     uint32
	reason closeReason
}

// closedStreams are those that were closed last. They are kept apart from Streams, whose memory is used again. The zero
// value has none.
type closedStreams struct {
	streams [rememberedStreams]closedStream
	n       int
}

// add remembers a stream.
func (r *closedStreams) add(id uint32, reason closeReason) {
	r.streams[r.n%rememberedStreams] = closedStream{id, reason}
	r.n++
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
