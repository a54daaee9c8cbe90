package http2

import "testing"

// TestResetsBesideEnds: streams that end by themselves, which may be such as cost nothing, do not let a client reset others without end, while clients that give up
// some of their requests are not cut off.
func TestResetsBesideEnds(t *testing.T) {
	const enough = 20 * resetBurst
	for name, c := range map[string]struct {
		ended, reset int   // of each round
		perSecond    int64 // resets; 0 is all at once
		least, most  int   // resets until the client is cut off
	}{
		"as many at once":                   {ended: 1, reset: 1, least: resetBurst, most: 2 * resetBurst},
		"as many in bursts":                 {ended: 100, reset: 100, least: resetBurst, most: 2 * resetBurst},
		"one of five at once":               {ended: 4, reset: 1, least: enough, most: enough},
		"one of three at once":              {ended: 2, reset: 1, least: 2 * resetBurst, most: 3 * resetBurst},
		"one of three, 120 each second":     {ended: 2, reset: 1, perSecond: 120, least: enough, most: enough},
		"all, 60 each second":               {ended: 0, reset: 1, perSecond: 60, least: enough, most: enough},
		"as many, 1000 of each in a second": {ended: 1, reset: 1, perSecond: 1000, least: resetBurst, most: 2 * resetBurst},
	} {
		conn := newConn(nil, Options{})
		resets := 0
		for cut := false; !cut && resets < enough; {
			for range c.ended {
				conn.retire(&Stream{localEnded: true, remoteEnded: true}, InternalError, NoError)
			}
			for i := 0; i < c.reset && !cut; i++ {
				resets++
				if c.perSecond > 0 {
					conn.now = int64(resets) * 1000 / c.perSecond
				}
				cut = conn.provoked() != nil
			}
		}
		if resets < c.least || resets > c.most {
			t.Errorf("%s: cut off after %d resets, want %d to %d", name, resets, c.least, c.most)
		}
	}
}
