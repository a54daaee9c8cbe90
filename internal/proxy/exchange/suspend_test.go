package exchange

import (
	"testing"
	"unsafe"
)

// TestSizes bounds what each idle response holds: the allocator, which adds 8 bytes, has no sizes between 1536 and 1792.
func TestSizes(t *testing.T) {
	if n := unsafe.Sizeof(Exchange{}); n > 1536-8 {
		t.Errorf("an Exchange has %d bytes", n)
	}
}
