// Package buffer lends the large buffers through which heads and bodies pass. It exists so that
// client connections, exchanges and copies share one pool, and hold memory only while bytes move.
//
// It imports the standard library only.
package buffer

import (
	"sync"
	"sync/atomic"
)

// Sizes in bytes.
const (
	// Headroom is kept free before what is read from a backend, so that the head for
	// the client can be put right before the body: one write, no copy of the body.
	Headroom = 2 << 10
	// Tailroom takes what ends a chunk behind the data.
	Tailroom = 64
	// Size holds a head and 64 KiB of body, so that most responses take one read.
	Size = Headroom + 78<<10 + Tailroom
	// End is where data read from a backend may end.
	End = Size - Tailroom
)

// Buffer is one of them; its bytes are what its last user left.
type Buffer [Size]byte

var pool = sync.Pool{New: func() any { return new(Buffer) }}

// lent counts the buffers that are lent, where a test wants to know.
var lent atomic.Pointer[atomic.Int64]

// Count makes n follow how many buffers are lent from now on; nil ends that. It is for tests which look for buffers that are
// never given back: else nothing is counted.
func Count(n *atomic.Int64) { lent.Store(n) }

// Take lends a buffer until Give.
func Take() *Buffer {
	if n := lent.Load(); n != nil {
		n.Add(1)
	}
	return pool.Get().(*Buffer)
}

// Give takes it back; nothing may point into it.
func Give(b *Buffer) {
	if n := lent.Load(); n != nil {
		n.Add(-1)
	}
	pool.Put(b)
}

// Lender lends one buffer at a time, to be read to when something is there. Its zero value is ready and holds none. It is not safe for
// concurrent use.
type Lender struct{ b *Buffer }

// Take returns the buffer's bytes, the same until Give.
func (l *Lender) Take() []byte {
	if l.b == nil {
		l.b = Take()
	}
	return l.b[:]
}

// Give gives the buffer back, if there is one; nothing may point into it.
func (l *Lender) Give() {
	if l.b != nil {
		Give(l.b)
		l.b = nil
	}
}

// Release returns the buffer, nil if there is none, and leaves it to the caller to give it back.
func (l *Lender) Release() *Buffer {
	b := l.b
	l.b = nil
	return b
}
