package http2

import (
	"errors"
	"testing"
	"time"

	xhttp2 "golang.org/x/net/http2"

	"github.com/moongate-dev/moongate/internal/testkit"
)

// TestEndStarved: a stream ends whose response has got no room for so long, and the others go on: one that gets some now and then, one that has none to write, and its connection.
func TestEndStarved(t *testing.T) {
	started, gone := make(chan *Stream, 3), make(chan error, 3)
	failed := make(chan error, 3)
	s := serve(t, Options{}, func(s *Stream) {
		s.OnGone(func(cause error) { gone <- cause })
		s.WriteHead(200, nil, -1, false)
		started <- s
		size := 100
		if s.ID() == 5 {
			size = 0
		}
		failed <- s.Write(make([]byte, size), true)
		s.OnGone(nil)
	})
	r := s.raw(t)
	r.WriteSettings(xhttp2.Setting{ID: xhttp2.SettingInitialWindowSize, Val: 0})
	for _, id := range []uint32{1, 3} {
		r.headers(id, true, get("/")...)
	}
	first := <-started
	c := first.c
	<-started
	pending := func() (n int) {
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, s := range c.streams {
			if s.pending && len(s.head) == 0 {
				n++
			}
		}
		return n
	}
	testkit.Eventually(t, "both wait", func() bool { return pending() == 2 })
	if n := c.EndStarved(time.Hour, 9); n != 0 || !c.Starves(time.Hour) {
		t.Errorf("%d have ended at the first look; starving: %v", n, c.Starves(time.Hour))
	}
	r.WriteWindowUpdate(3, 1)
	testkit.Eventually(t, "one gets some", func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return len(c.streams[3].data) == 99
	})
	time.Sleep(2 * time.Millisecond)
	if n := c.EndStarved(time.Millisecond, 0); n != 0 {
		t.Errorf("%d have ended of none", n)
	}
	c.EndStarved(time.Hour, 9)
	if n := c.EndStarved(2*time.Millisecond, 1); n != 1 {
		t.Errorf("%d have ended, want that which got nothing", n)
	}
	if err := <-gone; err != ErrStarved {
		t.Errorf("gone for %v", err)
	}
	if err := <-failed; !errors.Is(err, ErrStarved) {
		t.Errorf("the write has failed for %v", err)
	}
	// As much is left as at the look before, of another part: it got some.
	c.mu.Lock()
	c.starving[3] = starving{since: c.clock() - time.Hour.Milliseconds(), sent: c.streams[3].dataSent - 99}
	c.mu.Unlock()
	if n := c.EndStarved(time.Minute, 9); n != 0 {
		t.Errorf("%d have ended that got some", n)
	}
	r.headers(5, true, get("/")...)
	if err := <-failed; err != nil {
		t.Errorf("a stream without data: %v", err)
	}
	r.WriteWindowUpdate(3, 99)
	if err := <-failed; err != nil {
		t.Errorf("the stream that got some: %v", err)
	}
}
