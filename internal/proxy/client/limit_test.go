package client

import (
	"testing"
	"time"

	"github.com/moongate-dev/moongate/internal/observe"
	"github.com/moongate-dev/moongate/internal/proxy/exchange"
)

// TestPanicInExpiredLimit has the timer of a limit panic: the process goes on, and the limit can be used on.
func TestPanicInExpiredLimit(t *testing.T) {
	l := &limit{engine: &exchange.Engine{Observer: &observe.Observer{}}}
	l.by, l.set, l.writing = time.Now().Add(-time.Second), true, true // and no stream: a defect
	func() {
		defer func() {
			if v := recover(); v != nil {
				t.Errorf("passed through: %v", v)
			}
		}()
		l.expired()
	}()
	if !l.mu.TryLock() {
		t.Fatal("the limit is locked for ever")
	}
}
