package upstream

import (
	"context"
	"testing"
	"time"
)

// TestOldFailureIsNotTold: why a dial failed long ago is not why the present one does, to which nobody answers.
func TestOldFailureIsNotTold(t *testing.T) {
	_, e := sharedEndpoint(t, Options{ConnectTimeout: 100 * time.Millisecond}, full(t))
	e.sharing.failure.Store(e.dialError(ReasonResources, false, errCrowded))
	_, _, err := e.Connect(context.Background(), time.Time{}, true)
	wantDialError(t, err, ReasonTimeout, true)
}
