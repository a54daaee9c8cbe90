package exchange

import (
	"testing"
	"time"
)

// TestMirrorEndsInTime: a copy does not wait longer for a body than a copy may take.
func TestMirrorEndsInTime(t *testing.T) {
	m := &mirrored{parts: make(chan []byte)} // nothing comes
	if m.write(nil, time.Now()) {
		t.Error("a copy is whole of which nothing has come")
	}
}
