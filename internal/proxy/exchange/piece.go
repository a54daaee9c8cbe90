package exchange

import (
	"sync"

	"github.com/moongate-dev/moongate/internal/proxy/buffer"
)

// piece holds bytes of a request body, in memory of about their size.
type piece struct {
	next  *piece
	at    int64 // offset in the body at which it begins
	bytes []byte
	class int
	large *buffer.Buffer // the buffer that contains bytes, in the largest class
}

// classes are the capacities of pieces; larger ones are in a buffer.Buffer.
var classes = [...]int{512, 4 << 10, 16 << 10, 32 << 10, 64 << 10}

const largest = len(classes)

var pieces [largest + 1]sync.Pool

// takePiece returns an empty piece with room for n bytes, at most buffer.Size.
func takePiece(n int) *piece {
	class := 0
	for class < largest && classes[class] < n {
		class++
	}
	if class == largest {
		return largePiece(buffer.Take(), 0, 0)
	}
	p, _ := pieces[class].Get().(*piece)
	if p == nil {
		p = &piece{class: class, bytes: make([]byte, 0, classes[class])}
	}
	return p
}

// largePiece returns a piece with the contents b[from:to].
func largePiece(b *buffer.Buffer, from, to int) *piece {
	p, _ := pieces[largest].Get().(*piece)
	if p == nil {
		p = &piece{class: largest}
	}
	p.large, p.bytes = b, b.Bytes()[from:to]
	return p
}

// free releases the memory. Nothing may point into it.
func (p *piece) free() {
	p.next, p.at, p.bytes = nil, 0, p.bytes[:0]
	if p.large != nil {
		buffer.Give(p.large)
		p.large, p.bytes = nil, nil
	}
	pieces[p.class].Put(p)
}

// end returns the offset in the body at which the piece ends.
func (p *piece) end() int64 { return p.at + int64(len(p.bytes)) }
