package cli

import "testing"

func TestSpareWaitsForTheEndOfABurst(t *testing.T) {
	freed := 0
	s := &spare{free: func() { freed++ }}
	var pending int64
	for i, step := range []struct{ changes, freed int }{
		{0, 0}, {burst - 1, 0}, {0, 0}, // too few
		{5 * burst, 0}, {5 * burst, 0}, // still going on
		{10, 1},         // steady changes after it
		{0, 1}, {10, 1}, // no garbage
		{2 * burst, 1}, {0, 2}, // another one
	} {
		s.changed(step.changes)
		pending = s.look(pending)
		if freed != step.freed {
			t.Fatalf("step %d: freed %d times, not %d", i, freed, step.freed)
		}
	}
	for range burst / 10 { // ten at a time
		s.changed(10)
		pending = s.look(pending)
	}
	if freed != 3 {
		t.Errorf("many small changes: freed %d times", freed-2)
	}
}
