package buffer

import (
	"sync/atomic"
	"testing"
	"unsafe"
)

// TestLender: one buffer at a time, the same until it is given back, and given back once.
func TestLender(t *testing.T) {
	var lent atomic.Int64
	Count(&lent)
	defer Count(nil)
	var l Lender
	l.Give() // there is none
	first := l.Take()
	if len(first) != Size || unsafe.SliceData(l.Take()) != unsafe.SliceData(first) || lent.Load() != 1 {
		t.Errorf("%d bytes, %d buffers lent", len(first), lent.Load())
	}
	l.Give()
	l.Give()
	if lent.Load() != 0 || l.Release() != nil {
		t.Errorf("%d buffers lent after Give", lent.Load())
	}
	memory := l.Take()
	b := l.Release()
	if unsafe.SliceData(b.Bytes()) != unsafe.SliceData(memory) || lent.Load() != 1 {
		t.Errorf("Release returned another buffer, or gave it back: %d lent", lent.Load())
	}
	l.Give() // it is the caller's
	if lent.Load() != 1 {
		t.Error("a released buffer was given back")
	}
	Give(b)
}
