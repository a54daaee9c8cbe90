package http2

import "sync"

const largeReadBuffer = 32 << 10 // bytes

var (
	largeReadBuffers = sync.Pool{New: func() any { return new([largeReadBuffer]byte) }}
	littleBuffers    = sync.Pool{New: func() any { return new([littleBuffer]byte) }}
)

// readBuffer holds what a connection has read but not consumed. It is small while the connection waits, and large while
// much arrives.
type readBuffer struct {
	in    []byte
	n     int
	small []byte // used as in while little arrives
	large *[largeReadBuffer]byte
}

// newReadBuffer returns a buffer that waits with small, which must be as long as anything that must be complete to be
// consumed.
func newReadBuffer(small []byte) readBuffer { return readBuffer{in: small, small: small} }

// len returns the number of bytes held.
func (b *readBuffer) len() int { return b.n }

// space returns where to read to.
func (b *readBuffer) space() []byte { return b.in[b.n:] }

// held returns the bytes held, after n more were read into space.
func (b *readBuffer) held(n int) []byte {
	b.n += n
	return b.in[:b.n]
}

// used drops the first n bytes held. If the buffer was full, it grows. If more is false, not much is expected, and the
// buffer shrinks again when the rest fits.
func (b *readBuffer) used(n int, more bool) {
	full := b.n == len(b.in)
	b.n = copy(b.in, b.in[n:b.n])
	switch {
	case full && b.large == nil:
		b.large = largeReadBuffers.Get().(*[largeReadBuffer]byte)
		copy(b.large[:], b.in[:b.n])
		b.in = b.large[:]
	case !full && !more && b.n < len(b.small):
		b.shrink()
	}
}

// shrink releases all memory except the small buffer. What does not fit into it is lost.
func (b *readBuffer) shrink() {
	if b.large == nil {
		return
	}
	b.n = copy(b.small, b.large[:b.n])
	b.in = b.small
	largeReadBuffers.Put(b.large)
	b.large = nil
}
