// Package closed remembers for a while how streams were closed, which decides what may still come on them (RFC 9113
// section 5.1). It exists to keep that apart from streams, whose memory is used again.
//
// It is pure, imports nothing, and is not safe for concurrent use.
package closed

// How a stream was closed.
type How uint8

const (
	Not     How = iota
	Idle        // it was never open
	Ended       // by END_STREAM of both sides
	ByPeer      // by its RST_STREAM
	ByUs        // by ours, which the peer may not know of yet
	LongAgo     // not remembered
)

// Remembered is how many streams are remembered.
const Remembered = 64

type stream struct {
	id  uint32
	how How
}

// Recent are the streams that were closed last. The zero value has none.
type Recent struct {
	streams [Remembered]stream
	n       int
}

// Add adds a stream.
func (r *Recent) Add(id uint32, how How) {
	r.streams[r.n%Remembered] = stream{id, how}
	r.n++
}

// How is how a stream was closed that is not open; 0 is no stream.
func (r *Recent) How(id uint32) How {
	for i := range r.streams {
		if r.streams[i].id == id {
			return r.streams[i].how
		}
	}
	return LongAgo
}
