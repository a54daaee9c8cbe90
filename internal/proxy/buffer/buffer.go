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
	// LittleSize is that of buffers which are lent in place of large ones while memory is short.
	LittleSize = Headroom + 6<<10 - Tailroom
)

// Buffer is one of them; its bytes are what its last user left.
type Buffer struct{ bytes []byte }

// Bytes is all of the buffer.
func (b *Buffer) Bytes() []byte { return b.bytes }

// End is where data read from a backend may end.
func (b *Buffer) End() int { return len(b.bytes) - Tailroom }

// IsLittle reports whether it is of LittleSize.
func (b *Buffer) IsLittle() bool { return len(b.bytes) == LittleSize }

var pool, littlePool sync.Pool

// account is the budget of what Take makes; nil is none.
var account atomic.Pointer[Budget]

// Account has Take spend from b for each buffer that it makes from now on; nil ends that. There is one for the process, as there is one memory.
func Account(b *Budget) { account.Store(b) }

// Spend spends so many bytes of the budget that Account has set, for memory that is made elsewhere.
func Spend(bytes int64) {
	if budget := account.Load(); budget != nil {
		budget.Spend(bytes)
	}
}

// lent counts the buffers that are lent, where a test wants to know.
var lent atomic.Pointer[atomic.Int64]

// Count makes n follow how many buffers are lent from now on; nil ends that. It is for tests which look for buffers that are
// never given back: else nothing is counted.
func Count(n *atomic.Int64) { lent.Store(n) }

// Take lends a buffer of Size until Give.
func Take() *Buffer {
	count(1)
	if b, ok := pool.Get().(*Buffer); ok {
		return b
	}
	Spend(Size)
	return &Buffer{make([]byte, Size)}
}

// TakeWithin is Take, but lends a little buffer where there is no large one and the budget is short.
func TakeWithin(budget *Budget) *Buffer {
	count(1)
	if b, ok := pool.Get().(*Buffer); ok {
		return b
	}
	if !budget.Short() {
		budget.Spend(Size)
		return &Buffer{make([]byte, Size)}
	}
	if b, ok := littlePool.Get().(*Buffer); ok {
		return b
	}
	budget.Spend(LittleSize)
	return &Buffer{make([]byte, LittleSize)}
}

// Give takes a buffer back; nothing may point into it.
func Give(b *Buffer) {
	count(-1)
	if b.IsLittle() {
		littlePool.Put(b)
	} else {
		pool.Put(b)
	}
}

func count(d int64) {
	if n := lent.Load(); n != nil {
		n.Add(d)
	}
}

// Lender lends one buffer at a time, to be read to when something is there. Its zero value is ready and holds none. It is not safe for
// concurrent use.
type Lender struct{ b *Buffer }

// Take returns the buffer's bytes, the same until Give.
func (l *Lender) Take() []byte {
	if l.b == nil {
		l.b = Take()
	}
	return l.b.bytes
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
