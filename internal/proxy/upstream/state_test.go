package upstream

import (
	"testing"
	"time"
)

// TestState: an endpoint that is ejected, or avoided, shows as such with the time, and the others as healthy.
func TestState(t *testing.T) {
	b := made(t, 4)
	failUntilCompared(b, b.Endpoints()[0])
	b.Endpoints()[1].suspectFor(time.Hour)
	s := b.State(time.Now())
	for i, want := range []Health{Ejected, Avoided, Healthy, Healthy} {
		e := s.Endpoints[i]
		if e.Health != want || e.Until.IsZero() != (want == Healthy) || e.Weight != 1 || e.Address != b.Endpoints()[i].String() {
			t.Errorf("endpoint %d: %+v, want %v", i, e, want)
		}
	}
}
