//go:build !race

package tunnel

import (
	"io"
	"testing"
)

// TestMessagesDoNotAllocate: a message costs no memory that is not given back.
func TestMessagesDoNotAllocate(t *testing.T) {
	client, backend, _, end := joined(t, true)
	quiet(t, client, backend)
	message, got := []byte("message"), make([]byte, len("message"))
	if n := testing.AllocsPerRun(200, func() {
		client.Write(message)
		io.ReadFull(backend, got)
		backend.Write(message)
		io.ReadFull(client, got)
	}); n > 0 {
		t.Errorf("%v allocations for a message and its answer", n)
	}
	client.Close()
	backend.Close()
	<-end
}
