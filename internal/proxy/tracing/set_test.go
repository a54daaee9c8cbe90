package tracing

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/observe"
	"github.com/moongate-dev/moongate/internal/proxy/filter"
	"github.com/moongate-dev/moongate/internal/proxy/message"
	"github.com/moongate-dev/moongate/internal/proxy/upstream"
)

// TestWait: what has ended is given up in time where the collector does not answer, and a request that has not ended holds nothing up.
func TestWait(t *testing.T) {
	backends := upstream.NewSet(upstream.Options{})
	defer backends.Close()
	if err := backends.Apply([]*config.Resource{{Kind: &config.Resource_Backend{Backend: &config.Backend{Key: "b"}}}}, nil); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		calls := 0
		s := NewSet(func(ctx context.Context, _ *upstream.Identity, _ *filter.Call) error {
			calls++
			<-ctx.Done()
			return ctx.Err()
		})
		tracer := s.Get(&config.Tracing{Backend: "b", Authority: "b", ServiceName: "s"}, "default/gw", backends.Get("b"), nil)
		if tracer == nil || tracer != s.Get(&config.Tracing{Backend: "b", Authority: "b", ServiceName: "s"}, "default/gw", tracer.backend, nil) {
			t.Fatal("the tracer of a configuration is not the same")
		}
		seed := uint64(1)
		begin := func() (x Span) {
			x.Begin(tracer, &message.Request{Method: []byte("GET"), Path: []byte("/")}, &seed, time.Now(), 80)
			return x
		}
		ended, open := begin(), begin()
		ended.End(&observe.Record{Method: []byte("GET"), Status: 200})
		begun := time.Now()
		s.Retire()
		s.Wait(2 * time.Second)
		if d := time.Since(begun); d != 4*time.Second {
			t.Errorf("with a request under way it took %v", d)
		}
		open.End(&observe.Record{Method: []byte("GET"), Status: 200})
		synctest.Wait()
		if s.Get(&config.Tracing{}, "default/gw", tracer.backend, nil) != nil {
			t.Error("there is another tracer after the end")
		}
		if n := tracer.backend.Stats().SpansDropped; n != 2 {
			t.Errorf("%d spans are counted as dropped after %d calls, want 2", n, calls)
		}
	})
}
