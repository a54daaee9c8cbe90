package client

import (
	"errors"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// TestPauses checks that controllers which do not lead yet are asked each second, and who refuses us less often.
func TestPauses(t *testing.T) {
	for _, test := range []struct {
		err  error
		last time.Duration
	}{
		{status.Error(codes.Unavailable, "this controller does not lead"), time.Second},
		{status.Error(codes.PermissionDenied, "no"), 5 * time.Second},
		{errors.New("no such host"), 5 * time.Second},
	} {
		pause := minPause
		for range 20 {
			next := longer(pause, test.err)
			if next < pause {
				t.Errorf("%v: %v after %v", test.err, next, pause)
			}
			pause = next
		}
		if pause != test.last {
			t.Errorf("%v: %v at last, want %v", test.err, pause, test.last)
		}
	}
	if got := longer(maxPause, status.Error(codes.Unavailable, "")); got != time.Second {
		t.Errorf("%v after a refusal, want a second", got)
	}
}
