package reconcile

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/moongate-dev/moongate/internal/translate"
)

// TestTicketsRun follows a clock and a secret: what is given is what is true, each thing once.
func TestTicketsRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		now, secret, fails := time.Unix(100*12*3600, 0), []byte{1}, error(nil)
		k := &Tickets{
			Secret: func() ([]byte, error) { mu.Lock(); defer mu.Unlock(); return secret, fails },
			Now:    func() time.Time { mu.Lock(); defer mu.Unlock(); return now },
			Logger: slog.New(slog.DiscardHandler), every: time.Millisecond,
		}
		ctx, cancel := context.WithCancel(context.Background())
		updates, ended := make(chan struct{}, 100), make(chan struct{})
		go func() {
			defer close(ended)
			k.Run(ctx, func(edit func(*translate.Translator)) Outcome {
				edit(translate.New(translate.Options{}))
				updates <- struct{}{}
				return Outcome{}
			})
		}()
		for what, c := range []struct {
			change func()
			period int64
			secret []byte
		}{
			{func() {}, 100, []byte{1}},
			{func() { now = now.Add(12 * time.Hour) }, 101, []byte{1}},
			{func() { secret = []byte{2} }, 101, []byte{2}},
			{func() { now = now.Add(-time.Second) }, 100, []byte{2}}, // a clock was set back
			{func() { fails = errors.New("no") }, 0, nil},
			{func() { fails = nil }, 100, []byte{2}},
		} {
			mu.Lock()
			c.change()
			mu.Unlock()
			select {
			case <-updates:
			case <-time.After(10 * time.Second):
				t.Fatalf("step %d is not given", what)
			}
			if got := k.Current(); got.Period != c.period || !bytes.Equal(got.Secret, c.secret) {
				t.Errorf("step %d: period %d, secret %v; want %d, %v", what, got.Period, got.Secret, c.period, c.secret)
			}
		}
		mu.Lock()
		now = now.Add(-time.Hour) // the same period still
		mu.Unlock()
		time.Sleep(20 * time.Millisecond) // enough looks to give again what has not changed, if that were wrong
		cancel()
		<-ended
		if n := len(updates); n != 0 {
			t.Errorf("%d more updates than changes", n)
		}
	})
}
