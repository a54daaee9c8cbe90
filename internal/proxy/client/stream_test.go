package client

import (
	"testing"
	"unsafe"
)

// TestStreamSize bounds what each idle stream holds: the allocator, which adds 8 bytes, has no sizes between 640 and 704.
func TestStreamSize(t *testing.T) {
	if n := unsafe.Sizeof(stream{}); n > 640-8 {
		t.Errorf("a stream has %d bytes", n)
	}
}
