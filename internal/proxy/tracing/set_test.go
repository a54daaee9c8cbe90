package tracing

import (
	"bytes"
	"context"
	"fmt"
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
		}, nil)
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

// TestRetired: a retired tracer waits for spans that have not ended, but not for as long as a tunnel; those that end after it are counted as dropped, and so are those
// that begin in the moment in which it retires. What has ended holds nothing of a tracer.
func TestRetired(t *testing.T) {
	backends := upstream.NewSet(upstream.Options{})
	defer backends.Close()
	if err := backends.Apply([]*config.Resource{{Kind: &config.Resource_Backend{Backend: &config.Backend{Key: "b"}}}}, nil); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		s := NewSet(func(_ context.Context, _ *upstream.Identity, c *filter.Call) error {
			c.Trailer.Add([]byte("grpc-status"), []byte("0"))
			return nil
		}, nil)
		stats := func(what string, sent, dropped int64) {
			t.Helper()
			synctest.Wait()
			if got := backends.Get("b").Stats(); got.SpansSent != sent || got.SpansDropped != dropped {
				t.Errorf("%s: %d sent, %d dropped, want %d and %d", what, got.SpansSent, got.SpansDropped, sent, dropped)
			}
		}
		tracer := s.Get(&config.Tracing{Backend: "b", Authority: "b", ServiceName: "s"}, "default/gw", backends.Get("b"), nil)
		seed := uint64(1)
		begin := func() (x Span) {
			x.Begin(tracer, &message.Request{Method: []byte("GET"), Path: []byte("/"), MatchHost: []byte("h")}, &seed, time.Now(), 80)
			return x
		}
		end := func(x *Span) {
			t.Helper()
			x.End(&observe.Record{Method: []byte("GET"), Status: 200})
			if x.tracer != nil || x.span != nil || x.host != "" {
				t.Errorf("a span that has ended holds %+v", x)
			}
		}
		request, tunnel := begin(), begin()
		s.Keep(nil)
		time.Sleep(openFor / 2)
		end(&request)
		stats("a request under way", 0, 0)
		time.Sleep(openFor/2 - time.Second)
		stats("which was sent as ever", 1, 0)
		if tracer.shut.Load() {
			t.Error("it is shut down early")
		}
		time.Sleep(2 * time.Second)
		s.Wait(time.Hour)
		if !tracer.shut.Load() || tracer.ctx.Err() == nil {
			t.Error("it lives as long as the tunnel")
		}
		end(&tunnel)
		stats("a tunnel", 1, 1)
		late := begin()
		end(&late)
		stats("a request that began meanwhile", 1, 2)
		s.cancel()
	})
}

// TestPanicInExport: a panic while spans are sent is reported, and they are counted as dropped.
func TestPanicInExport(t *testing.T) {
	backends := upstream.NewSet(upstream.Options{})
	defer backends.Close()
	if err := backends.Apply([]*config.Resource{{Kind: &config.Resource_Backend{Backend: &config.Backend{Key: "b"}}}}, nil); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		panics := 0
		s := NewSet(func(context.Context, *upstream.Identity, *filter.Call) error { panic("send") }, func(where string, v any) {
			if panics++; where != "tracing" || v != "send" {
				t.Errorf("%s: %v", where, v)
			}
		})
		tracer := s.Get(&config.Tracing{Backend: "b", Authority: "b", ServiceName: "s"}, "default/gw", backends.Get("b"), nil)
		for n := range 2 { // it goes on
			var x Span
			seed := uint64(1)
			x.Begin(tracer, &message.Request{Method: []byte("GET"), Path: []byte("/")}, &seed, time.Now(), 80)
			x.End(&observe.Record{Method: []byte("GET"), Status: 200})
			time.Sleep(2 * batchDelay)
			synctest.Wait()
			if got := tracer.backend.Stats().SpansDropped; panics != n+1 || got != int64(n+1) || tracer.waiting.Load() != 0 {
				t.Errorf("%d panics, %d spans dropped, %d wait", panics, got, tracer.waiting.Load())
			}
		}
		s.Retire()
		s.Wait(time.Second)
	})
}

// TestWaitingSpansAreBounded: spans that wait for a collector take a bounded amount of memory, whatever clients have put into them.
func TestWaitingSpansAreBounded(t *testing.T) {
	backends := upstream.NewSet(upstream.Options{})
	defer backends.Close()
	if err := backends.Apply([]*config.Resource{{Kind: &config.Resource_Backend{Backend: &config.Backend{Key: "b"}}}}, nil); err != nil {
		t.Fatal(err)
	}
	const spans, size = 1000, 96 << 10
	synctest.Test(t, func(t *testing.T) {
		answer := make(chan struct{})
		s := NewSet(func(context.Context, *upstream.Identity, *filter.Call) error { <-answer; return errRefused }, nil)
		c := &config.Tracing{Backend: "b", Authority: "b", ServiceName: "s"}
		r := &message.Request{Method: []byte("GET"), Path: []byte("/")}
		for i := range size / maxValue {
			name := fmt.Sprintf("x-%d", i)
			c.Attributes = append(c.Attributes, &config.TraceAttribute{Name: name, Value: &config.TraceAttribute_Header{Header: name}})
			r.Header.Add([]byte(name), bytes.Repeat([]byte("a"), maxValue))
		}
		tracer := s.Get(c, "default/gw", backends.Get("b"), nil)
		seed := uint64(1)
		for range spans {
			var x Span
			x.Begin(tracer, r, &seed, time.Now(), 80)
			x.End(&observe.Record{Method: []byte("GET"), Status: 200})
		}
		synctest.Wait()
		dropped := tracer.backend.Stats().SpansDropped
		const whole = size + size/maxValue*attributeWeight + 2*spanWeight // with what every span has
		if bytes := tracer.bytes.Load(); bytes > maxWaitingBytes || bytes < maxWaitingBytes-2*whole {
			t.Errorf("%d bytes wait, want nearly %d", bytes, maxWaitingBytes)
		}
		if least, most := int64(spans-maxWaitingBytes/size), int64(spans-maxWaitingBytes/(whole+2*spanWeight)); dropped < least || dropped > most {
			t.Errorf("%d spans are dropped, want %d to %d", dropped, least, most)
		}
		close(answer)
		time.Sleep(2 * sendTimeout)
		synctest.Wait()
		if tracer.bytes.Load() != 0 || tracer.waiting.Load() != 0 {
			t.Errorf("%d bytes of %d spans wait at the end", tracer.bytes.Load(), tracer.waiting.Load())
		}
		s.Retire()
		s.Wait(time.Second)
	})
}
