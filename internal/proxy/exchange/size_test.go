package exchange

import (
	"testing"
	"unsafe"
)

// TestExchangeSize bounds what each exchange holds: the allocator, which adds 8 bytes, has no sizes between 1536 and 1792.
func TestExchangeSize(t *testing.T) {
	if n := unsafe.Sizeof(Exchange{}); n > 1536-8 {
		t.Errorf("an exchange has %d bytes", n)
	}
}
