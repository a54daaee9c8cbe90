// Package buffer provides the large buffers through which heads and bodies pass. It exists so that client connections,
// exchanges and mirrors share one pool, and hold memory only while bytes move.
//
// It imports the standard library only.
package buffer

import (
	"sync"
	"sync/atomic"
)

// Sizes in bytes.
const (
	// Headroom is kept free before what is read from a backend, so that the head for the client can be put directly
	// before the body: one write, no copy of the body.
	Headroom = 2 << 10
	// Tailroom is for the end of a chunk after the data.
	Tailroom = 64
	// Size holds a head and 64 KiB of body, so that most responses take one read.
	Size = Headroom + 78<<10 + Tailroom
	// LittleSize is the size of the buffers that replace large ones while memory is short.
	LittleSize = Headroom + 6<<10 - Tailroom
)

// Buffer is a pooled buffer. Its contents are those of its last user.
type Buffer struct{ bytes []byte }

// Bytes returns the whole buffer.
func (b *Buffer) Bytes() []byte { return b.bytes }

// End returns where data read from a backend may end.
func (b *Buffer) End() int { return len(b.bytes) - Tailroom }

// IsLittle reports whether it is of LittleSize.
func (b *Buffer) IsLittle() bool { return len(b.bytes) == LittleSize }

var pool, littlePool sync.Pool

// account is the budget for new buffers; nil means none.
var account atomic.Pointer[Budget]

// Account makes Take spend from b for each buffer that it allocates from now on; nil ends that. There is one account
// for the process, since its memory is shared.
func Account(b *Budget) { account.Store(b) }

// Spend spends bytes of the budget that Account has set, for memory that is allocated elsewhere.
func Spend(bytes int64) {
	if budget := account.Load(); budget != nil {
		budget.Spend(bytes)
	}
}

// lent counts the buffers in use, for tests.
var lent atomic.Pointer[atomic.Int64]

// Count makes n count how many buffers are in use from now on; nil ends that. It is for tests that look for buffers
// that are never returned; otherwise nothing is counted.
func Count(n *atomic.Int64) { lent.Store(n) }

// Take returns a buffer of Size, which must be returned with Give.
func Take() *Buffer {
	count(1)
	if b, ok := pool.Get().(*Buffer); ok {
		return b
	}
	Spend(Size)
	return &Buffer{make([]byte, Size)}
}

// TakeWithin is like Take, but returns a little buffer if no large one is free and the budget is short.
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

// Give returns a buffer to its pool. Nothing may point into it.
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

// Lender holds at most one buffer at a time, to read into when something has arrived. The zero value is ready for use
// and holds none. It is not safe for concurrent use.
type Lender struct{ b *Buffer }

// Take returns the buffer's bytes, the same until Give.
func (l *Lender) Take() []byte {
	if l.b == nil {
		l.b = Take()
	}
	return l.b.bytes
}

// Give returns the buffer, if there is one, to its pool. Nothing may point into it.
func (l *Lender) Give() {
	if l.b != nil {
		Give(l.b)
		l.b = nil
	}
}

// Release returns the buffer, nil if there is none. The caller must return it to its pool.
func (l *Lender) Release() *Buffer {
	b := l.b
	l.b = nil
	return b
}
