package http2

// closeReason is how a stream was closed, which determines what may still arrive on it (RFC 9113 section 5.1).
type closeReason uint8

const (
	notClosed     closeReason = iota
	neverOpened               // the idle state
	closedByEnd               // END_STREAM from both sides
	closedByPeer              // RST_STREAM from the peer
	closedLocally             // RST_STREAM from this side, which the peer may not know of yet
	closedLongAgo             // not remembered
)

// The number of closed streams that are remembered: as many as may run, because all of them may be closed at the same
// time while the peer still sends. For a parked connection, few are enough.
const (
	rememberedStreams = 2 * defaultMaxStreams
	fewStreams        = rememberedStreams / 4
)

type closedStream struct {
	id     uint32
	reason closeReason
}

// closedStreams are the streams that were closed last. They are stored separately from Streams, whose memory is reused.
// The zero value has none.
type closedStreams struct {
	streams []closedStream
	oldest  int // index of the oldest stream, once as many streams are stored as are remembered
}

// add remembers a stream.
func (r *closedStreams) add(id uint32, reason closeReason) {
	s := closedStream{id, reason}
	if len(r.streams) == rememberedStreams {
		r.streams[r.oldest] = s
		r.oldest = (r.oldest + 1) % rememberedStreams
		return
	}
	if cap(r.streams) < fewStreams { // few connections have more
		r.streams = append(make([]closedStream, 0, fewStreams), r.streams...)
	}
	r.streams = append(r.streams, s)
}

// shrink keeps only the few that were closed last, and no room for others.
func (r *closedStreams) shrink() {
	n := len(r.streams)
	few := make([]closedStream, 0, min(n, fewStreams))
	for i := n - cap(few); i < n; i++ {
		few = append(few, r.streams[(r.oldest+i)%n])
	}
	*r = closedStreams{streams: few}
}

// forgetEnded forgets the streams that were closed by END_STREAM: what arrives on them is an error of the client anyway,
// only with another code if it is HEADERS.
func (r *closedStreams) forgetEnded() {
	var others []closedStream
	for i := range r.streams {
		if s := r.streams[(r.oldest+i)%len(r.streams)]; s.reason != closedByEnd {
			others = append(others, s)
		}
	}
	*r = closedStreams{streams: others}
}

// reason returns how a stream that is not open was closed. No stream has the number 0.
func (r *closedStreams) reason(id uint32) closeReason {
	for i := range r.streams {
		if r.streams[i].id == id {
			return r.streams[i].reason
		}
	}
	return closedLongAgo
}
