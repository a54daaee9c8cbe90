package exchange

import (
	"testing"
	"time"

	"github.com/moongate-dev/moongate/internal/observe"
)

// TestDelayIsNoWaitForBackend: a wait for a backend behind an injected delay begins when it begins: nobody looks after it sooner because of the delay.
func TestDelayIsNoWaitForBackend(t *testing.T) {
	x := withBody(&fakeBody{})
	e, w := x.Client.Engine, x.Client.Watch
	e.Clock.Store(1000)
	if reason := x.await(time.Millisecond); reason != observe.ReasonOK {
		t.Fatalf("the delay ends by %v", reason)
	}
	for _, c := range []struct{ now, since int64 }{{5000, 5000}, {7000, 5000}} { // waits before a response are one
		w.waits(c.now)
		if since := w.Since(); since != c.since {
			t.Errorf("a wait at %d counts from %d, want %d", c.now, since, c.since)
		}
		w.waited()
	}
}
