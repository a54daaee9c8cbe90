package tracing

import (
	"context"
	"sync"
	"time"

	"go.opentelemetry.io/otel"
	"google.golang.org/protobuf/proto"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/proxy/upstream"
)

// Set holds the tracers of a proxy, one for each Gateway and configuration. Listeners share them.
type Set struct {
	send Send
	// panicked is called by the deferred function that has recovered a panic.
	panicked func(where string, v any)
	tracers  map[key]*Tracer // belongs to the goroutine that applies configurations
	leaving  sync.WaitGroup
	closed   bool
	// ctx ends the calls of all tracers.
	ctx    context.Context
	cancel context.CancelFunc
}

// key identifies a tracer.
type key struct {
	gateway, config string
	backend         *upstream.Backend
	identity        *upstream.Identity
}

// NewSet creates a Set whose calls are made by send. panicked is called by the deferred function that has recovered a
// panic; it may be nil.
func NewSet(send Send, panicked func(where string, v any)) *Set {
	if panicked == nil {
		panicked = func(string, any) {}
	}
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(error) {})) // errors are counted, and would otherwise be printed for each batch
	s := &Set{send: send, panicked: panicked, tracers: map[key]*Tracer{}}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s
}

// Get returns the tracer of a Gateway, the same as long as its configuration stays; nil if there is none. Calls of Get
// and Keep must not overlap.
func (s *Set) Get(c *config.Tracing, gateway string, backend *upstream.Backend, identity *upstream.Identity) *Tracer {
	if c == nil || backend == nil || s.closed {
		return nil
	}
	text, err := proto.MarshalOptions{Deterministic: true}.Marshal(c)
	if err != nil {
		return nil
	}
	k := key{gateway, string(text), backend, identity}
	t := s.tracers[k]
	if t == nil {
		t = newTracer(s.ctx, c, gateway, backend, identity, s.send)
		t.panicked = s.panicked
		s.tracers[k] = t
	}
	return t
}

// Keep makes all unused tracers send their spans and end.
func (s *Set) Keep(used map[*Tracer]bool) {
	for k, t := range s.tracers {
		if !used[t] {
			delete(s.tracers, k)
			s.retire(t)
		}
	}
}

// retire shuts a tracer down after its last span, or after openFor, on its own goroutine, because that waits for the
// collector.
func (s *Set) retire(t *Tracer) {
	s.leaving.Add(1)
	t.retire(sync.OnceFunc(func() {
		go func() {
			defer s.leaving.Done()
			// Not derived from t.ctx: with a context that has already ended the SDK would leak its goroutine. The end
			// of t.ctx ends the calls.
			ctx, cancel := context.WithTimeout(context.Background(), sendTimeout)
			defer cancel()
			t.provider.Shutdown(ctx) //nolint:errcheck // what is not sent is counted
			t.cancel()
		}()
	}))
}

// Retire makes all tracers send their spans and end; Get returns no others afterwards. Like Keep it must not overlap
// with Get.
func (s *Set) Retire() {
	s.closed = true
	s.Keep(nil)
}

// Wait waits up to d until the tracers have ended. Then it makes them give up unsent spans, which takes no longer. It
// does not wait for requests that have not ended, of which there should be none.
func (s *Set) Wait(d time.Duration) {
	ended := make(chan struct{})
	go func() {
		s.leaving.Wait()
		close(ended)
	}()
	for range 2 {
		timer := time.NewTimer(d)
		select {
		case <-ended:
		case <-timer.C:
		}
		timer.Stop()
		s.cancel()
	}
}
