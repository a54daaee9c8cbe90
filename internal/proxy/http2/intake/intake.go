// Package intake is the memory that a connection reads into. It exists so that one which waits holds little of
// it, and one to which much comes reads much at once.
//
// It imports sync only, and is not safe for concurrent use.
package intake

import "sync"

const large = 32 << 10 // bytes

var pool = sync.Pool{New: func() any { return new([large]byte) }}

// Buffer holds what was read and not used yet. Make makes one.
type Buffer struct {
	in     []byte
	n      int
	parked []byte // what in is while little comes
	big    *[large]byte
}

// Make makes a buffer that waits with parked, which must be as long as what must be whole to be used.
func Make(parked []byte) Buffer { return Buffer{in: parked, parked: parked} }

// Len is how many bytes are held.
func (b *Buffer) Len() int { return b.n }

// Space is where to read to.
func (b *Buffer) Space() []byte { return b.in[b.n:] }

// Held are the bytes that are held, after n more have come into Space.
func (b *Buffer) Held(n int) []byte {
	b.n += n
	return b.in[:b.n]
}

// Used drops the first n bytes of those held. Where there was no more space it gets more; more tells that much is
// still to come, else it gets less again when what is left fits.
func (b *Buffer) Used(n int, more bool) {
	full := b.n == len(b.in)
	b.n = copy(b.in, b.in[n:b.n])
	switch {
	case full && b.big == nil:
		b.big = pool.Get().(*[large]byte)
		copy(b.big[:], b.in[:b.n])
		b.in = b.big[:]
	case !full && !more && b.n < len(b.parked):
		b.Park()
	}
}

// Park gives back all memory but that to wait with; what does not fit is lost.
func (b *Buffer) Park() {
	if b.big == nil {
		return
	}
	b.n = copy(b.parked, b.big[:b.n])
	b.in = b.parked
	pool.Put(b.big)
	b.big = nil
}
