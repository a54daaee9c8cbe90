package http2

import "sync"

const chunkSize = 8 << 10

type chunk struct {
	next *chunk
	r, w int
	b    [chunkSize]byte
}

var chunks = sync.Pool{New: func() any { return new(chunk) }}

// body is what has come of a request body and is not read yet; flow control bounds it.
type body struct {
	first, last *chunk
	size        int
}

func (q *body) write(p []byte) {
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

func (q *body) read(p []byte) (n int) {
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

func (q *body) drop() {
	k := q.first
	if q.first = k.next; q.first == nil {
		q.last = nil
	}
	chunks.Put(k)
}

// clear throws everything away and tells how much that was.
func (q *body) clear() int {
	n := q.size
	for q.first != nil {
		q.drop()
	}
	q.size = 0
	return n
}
