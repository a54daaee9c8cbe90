package http2

import (
	"sync/atomic"
	"testing"
	"time"

	xhttp2 "golang.org/x/net/http2"

	"github.com/moongate-dev/moongate/internal/testkit"
)

// limited knows whether there is a write limit, and how many there were.
type limited struct {
	*fragile
	limit atomic.Bool
	set   atomic.Int64
}

func (l *limited) SetWriteDeadline(t time.Time) error {
	l.limit.Store(!t.IsZero())
	if !t.IsZero() {
		l.set.Add(1)
	}
	return l.fragile.SetWriteDeadline(t)
}

// TestWriteLimitEnds: where nothing is written no limit of an earlier write is left behind, by which crypto/tls would fail to answer a KeyUpdate while it reads.
func TestWriteLimitEnds(t *testing.T) {
	for name, parkAfter := range map[string]time.Duration{"busy": 0, "parked": time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			plain, peer := pair(t)
			nc := &limited{fragile: plain}
			goOn := make(chan struct{})
			var asked atomic.Bool
			c := New(nc, Options{ParkAfter: parkAfter, Timeouts: Timeouts{Write: 500 * time.Millisecond}}, func(s *Stream) {
				asked.Store(true)
				s.WriteHead(200, nil, -1, false)
				s.Flush()
				if parkAfter == 0 {
					<-goOn
				}
				s.Write([]byte("more"), true)
			})
			done := make(chan error, 1)
			go func() {
				err := c.Serve(nil)
				for err == ErrParked && !asked.Load() { // the request took its time
					err = c.Serve(nil)
				}
				done <- err
			}()
			r := greet(t, peer)
			r.headers(1, true, get("/")...)
			r.until("the head", func(f xhttp2.Frame) bool { return f.Header().Type == xhttp2.FrameHeaders })
			testkit.Eventually(t, "no limit is left", func() bool { return !nc.limit.Load() })
			if parkAfter > 0 {
				if err := <-done; err != ErrParked {
					t.Fatal(err)
				}
				return
			}
			before := nc.set.Load()
			close(goOn) // writes have one again
			r.until("the end", func(f xhttp2.Frame) bool { return f.Header().Flags.Has(xhttp2.FlagDataEndStream) })
			if nc.set.Load() == before {
				t.Error("a write has no limit")
			}
		})
	}
}
