// Package body keeps what has come of a message body and was not read yet. It exists so that a connection's memory
// for bodies is pooled, and taken by bytes that have come rather than by windows.
//
// It is pure, not safe for concurrent use, and imports sync only; how much there may be is the connection's to bound.
package body

import "sync"

const chunkSize = 8 << 10 // bytes

type chunk struct {
	next *chunk
	r, w int
	b    [chunkSize]byte
}

var chunks = sync.Pool{New: func() any { return new(chunk) }}

// Queue is a queue of bytes. The zero value is empty and holds no memory.
type Queue struct {
	first, last *chunk
	size        int
}

// Len is how many bytes there are.
func (q *Queue) Len() int { return q.size }

// Write appends a copy of p.
func (q *Queue) Write(p []byte) {
	q.size += len(p)
	for len(p) > 0 {
		if q.last == nil || q.last.w == chunkSize {
			k := chunks.Get().(*chunk)
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

// Read moves bytes to p, and tells how many.
func (q *Queue) Read(p []byte) (n int) {
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

func (q *Queue) drop() {
	k := q.first
	if q.first = k.next; q.first == nil {
		q.last = nil
	}
	chunks.Put(k)
}

// Clear throws everything away, and tells how much that was.
func (q *Queue) Clear() int {
	n := q.size
	for q.first != nil {
		q.drop()
	}
	q.size = 0
	return n
}
