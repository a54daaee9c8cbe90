package http2

import "sync"

const largeReadBuffer = 32 << 10 // bytes

var (
	largeReadBuffers = sync.Pool{New: func() any { return new([largeReadBuffer]byte) }}
	littleBuffers    = sync.Pool{New: func() any { return new([littleBuffer]byte) }}
)

// readBuffer holds what a connection has read and not used yet. One that waits holds little memory, and one to which much comes
// reads much at once.
type readBuffer struct {
	in    []byte
	n     int
	small []byte // what in is while little comes
	large *[largeReadBuffer]byte
}

// newReadBuffer returns a buffer that waits with small, which must be as long as what must be whole to be used.
func newReadBuffer(small []byte) readBuffer { return readBuffer{in: small, small: small} }

// len returns how many bytes are held.
func (b *readBuffer) len() int { return b.n }

// space is where to read to.
func (b *readBuffer) space() []byte { return b.in[b.n:] }

// held returns the bytes that are held, after n more have come into space.
func (b *readBuffer) held(n int) []byte {
	b.n += n
	return b.in[:b.n]
}

// used drops the first n bytes of those held. Where there was no more space it gets more; more reports whether much is
// still to come, else it gets less again when what is left fits.
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

// shrink gives back all memory but that to wait with; what does not fit is lost.
func (b *readBuffer) shrink() {
	if b.large == nil {
		return
	}
	b.n = copy(b.small, b.large[:b.n])
	b.in = b.small
	largeReadBuffers.Put(b.large)
	b.large = nil
}
