package buffer

import (
	"sync/atomic"
	"testing"
)

// TestCount follows the buffers that are lent.
func TestCount(t *testing.T) {
	var n atomic.Int64
	Count(&n)
	a, b := Take(), Take()
	if n.Load() != 2 {
		t.Errorf("%d buffers are lent, want 2", n.Load())
	}
	Give(a)
	Give(b)
	if n.Load() != 0 {
		t.Errorf("%d buffers are lent, want 0", n.Load())
	}
	Count(nil)
	Give(Take())
	if n.Load() != 0 {
		t.Errorf("%d buffers are lent, though nobody counts", n.Load())
	}
}

func BenchmarkTakeGive(b *testing.B) {
	for b.Loop() {
		Give(Take())
	}
}
