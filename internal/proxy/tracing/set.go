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

// Set holds the tracers of a proxy, one for each Gateway and configuration: listeners share it.
type Set struct {
	send Send
	// panicked is told of a panic that was recovered, by the deferred function.
	panicked func(where string, v any)
	tracers  map[key]*Tracer // by the goroutine that applies configurations
	leaving  sync.WaitGroup
	closed   bool
	// ctx ends the calls of all tracers.
	ctx    context.Context
	cancel context.CancelFunc
}

// key says what a tracer is for.
type key struct {
	gateway, config string
	backend         *upstream.Backend
	identity        *upstream.Identity
}

// NewSet makes a Set whose calls are made by send. panicked is told of panics that were recovered, by the deferred function; nil is nobody.
func NewSet(send Send, panicked func(where string, v any)) *Set {
	if panicked == nil {
		panicked = func(string, any) {}
	}
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(error) {})) // which are counted, and would be printed for each batch
	s := &Set{send: send, panicked: panicked, tracers: map[key]*Tracer{}}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s
}

// Get returns the tracer of a Gateway, the same as long as its configuration stays; nil for none. Calls of Get and Keep must not overlap.
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

// Keep has all tracers but those that are used send what they have and end.
func (s *Set) Keep(used map[*Tracer]bool) {
	for k, t := range s.tracers {
		if !used[t] {
			delete(s.tracers, k)
			s.retire(t)
		}
	}
}

// retire shuts a tracer down behind its last span, or when openFor is over, on a goroutine of its own, since that waits for the collector.
func (s *Set) retire(t *Tracer) {
	s.leaving.Add(1)
	t.retire(sync.OnceFunc(func() {
		go func() {
			defer s.leaving.Done()
			// Not from t.ctx: with a context that has ended already the SDK would leave its goroutine behind. The end of t.ctx ends the calls.
			ctx, cancel := context.WithTimeout(context.Background(), sendTimeout)
			defer cancel()
			t.provider.Shutdown(ctx) //nolint:errcheck // what is not sent then is counted
			t.cancel()
		}()
	}))
}

// Retire has all tracers send what they have and end; there are no others from now on. Like Keep it must not overlap with Get.
func (s *Set) Retire() {
	s.closed = true
	s.Keep(nil)
}

// Wait waits so long for the tracers to end, and then has them give up what they have not sent, which takes no longer. A request that has not ended, as none should, is
// not waited for beyond that.
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
