package http2

import (
	"sync"

	"github.com/moongate-dev/moongate/internal/proxy/buffer"
)

const bodyChunkSize = 8 << 10 // bytes

type bodyChunk struct {
	next *bodyChunk
	r, w int
	b    [bodyChunkSize]byte
}

var bodyChunks = sync.Pool{New: func() any {
	buffer.Spend(bodyChunkSize) // what peers send is stored whether memory is short or not
	return new(bodyChunk)
}}

// bodyQueue is a queue of bytes. The zero value is empty and holds no memory.
type bodyQueue struct {
	first, last *bodyChunk
	size        int
}

// len returns the number of bytes.
func (q *bodyQueue) len() int { return q.size }

// write appends a copy of p.
func (q *bodyQueue) write(p []byte) {
	q.size += len(p)
	for len(p) > 0 {
		if q.last == nil || q.last.w == bodyChunkSize {
			k := bodyChunks.Get().(*bodyChunk)
			k.next, k.r, k.w = nil, 0, 0
			if q.last == nil {
				q.first = k
			} else {
				q.last.next = k
			}
			q.last = k
		}
		n := copy(q.last.b[q.last.w:], p)
		q.last.w += n
		p = p[n:]
	}
}

// read moves bytes to p and returns their number.
func (q *bodyQueue) read(p []byte) (n int) {
	for q.first != nil && n < len(p) {
		k := q.first
		m := copy(p[n:], k.b[k.r:k.w])
		n += m
		if k.r += m; k.r == k.w {
			q.drop()
		}
	}
	q.size -= n
	return n
}

func (q *bodyQueue) drop() {
	k := q.first
	if q.first = k.next; q.first == nil {
		q.last = nil
	}
	bodyChunks.Put(k)
}

// clear discards all bytes and returns their number.
func (q *bodyQueue) clear() int {
	n := q.size
	for q.first != nil {
		q.drop()
	}
	q.size = 0
	return n
}
