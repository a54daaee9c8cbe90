package exchange

import (
	"testing"
	"unsafe"
)

// TestSizes bounds what each idle response holds. The allocator has no sizes between the one here and the next.
func TestSizes(t *testing.T) {
	if n := unsafe.Sizeof(Exchange{}); n > 1536 {
		t.Errorf("an Exchange has %d bytes, for which 1792 are taken", n)
	}
}
