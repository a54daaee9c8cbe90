package http2

import (
	"testing"

	"github.com/moongate-dev/moongate/internal/proxy/buffer"
)

// TestBodiesAreAccounted: what is held of bodies counts towards the memory that may be allocated.
func TestBodiesAreAccounted(t *testing.T) {
	var budget buffer.Budget
	buffer.Account(&budget)
	defer buffer.Account(nil)
	var q bodyQueue
	const size = 32 << 20 // more than other tests may have left in the pool
	q.write(make([]byte, size))
	if got := budget.Spent(); got < size/2 || got > 2*size {
		t.Errorf("%d bytes are accounted of %d", got, size)
	}
	q.clear()
}
