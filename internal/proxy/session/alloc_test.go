//go:build !race

package session

import (
	"testing"
	"time"

	"github.com/moongate-dev/moongate/internal/config"
)

// TestAllocations is not run under the race detector, where sync.Pool drops some of what it is given.
func TestAllocations(t *testing.T) {
	k, s := keysOf(t, 1), settingsOf(t, &config.SessionPersistence{IdleTimeoutNanos: int64(time.Hour)})
	in, out := request("Cookie", "a=b; s="+issue(s, k, 7, 9, noon)), request()
	token, scratch := &Token{}, make([]byte, 0, 1024)
	if n := testing.AllocsPerRun(100, func() {
		s.Read(k, in, token)
		token.Keep(s, 7, 9, noon.Add(time.Second))
		out.Reset()
		s.Write(k, out, token, scratch[:0], true, noon)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
