package upstream

import (
	"reflect"
	"sync"
	"testing"
	"time"

	"github.com/moongate-dev/moongate/internal/observe"
)

// TestUnusedStaysUnused: choosing an endpoint, sweeps, metrics and updates neither make the parts that only requests need, nor change the zero values that stand
// for them.
func TestUnusedStaysUnused(t *testing.T) {
	s, b := newSet(t, Options{}, endpoint(address(1)), endpoint(address(2)))
	seed := uint64(1)
	for range 2 {
		if b.Pick(&seed, new(Tried)) == nil {
			t.Fatal("no endpoint")
		}
		s.Sweep(time.Now())
		s.UpdateWeights(time.Now())
		s.EvictIdle()
		if got := b.Stats(); got != (Stats{}) {
			t.Errorf("%+v", got)
		}
		b.HealthStats()
		b.BreakerStats()
		b.State(time.Now())
		for _, e := range b.Endpoints() {
			if e.Stats() != (Stats{}) || e.Idle() != nil || e.Place() != nil || e.Weight() != 0 || e.Gone() {
				t.Errorf("%v: %+v", e, e.Stats())
			}
		}
		apply(t, s, backendResource(key), endpointsResource(key, endpoint(address(1)), terminating(address(2))))
	}
	gone := b.Endpoints()[1]
	apply(t, s, endpointsResource(key, endpoint(address(1))))
	if !gone.Gone() {
		t.Error("the endpoint is not gone")
	}
	if b.used.Load() != nil || b.Endpoints()[0].used.Load() != nil {
		t.Error("the backend counts as used")
	}
	if !reflect.DeepEqual(&unusedEndpoint, new(endpointUse)) || !reflect.DeepEqual(&unusedBackend, new(backendUse)) {
		t.Error("what unused endpoints and backends share has changed")
	}
}

// TestFirstUsesAtOnce: requests that are the first at the same moment are all counted.
func TestFirstUsesAtOnce(t *testing.T) {
	const requests = 8
	for range 100 {
		s, b := newSet(t, Options{}, endpoint(address(1)))
		e := b.Endpoints()[0]
		var all sync.WaitGroup
		for range requests {
			all.Go(func() {
				e.Begin()
				b.Retried()
				b.CountSession(observe.SessionNew)
				e.Failed()
				b.Stats()
			})
		}
		all.Wait()
		if got := b.Stats(); got != (Stats{InFlight: requests, Retries: requests, SessionsBegun: requests, Failures: requests}) || e.Stats().Failures != requests {
			t.Fatalf("%+v, endpoint %+v", got, e.Stats())
		}
		s.Close()
	}
}

// TestFirstUseOfRemoved: an endpoint that is removed at the moment of its first use is gone for whoever uses it.
func TestFirstUseOfRemoved(t *testing.T) {
	for range 100 {
		s, b := newSet(t, Options{}, endpoint(address(1)))
		e := b.Endpoints()[0]
		var all sync.WaitGroup
		var life interface{ Err() error }
		all.Go(func() { life = e.use().life })
		all.Go(func() { apply(t, s, endpointsResource(key)) })
		all.Wait()
		if !e.Gone() || life.Err() == nil || e.keep(nil) {
			t.Fatal("a removed endpoint is in use")
		}
		s.Close()
	}
}
