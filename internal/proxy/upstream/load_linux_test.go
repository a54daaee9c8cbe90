package upstream

import (
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/testkit"
)

// exchange is one request as the engine makes it: a connection that turns out dead is
// replaced by a new one, a refused endpoint by another.
func exchange(b *Backend, seed *uint64) error {
	var tried Tried
	for attempt := 0; ; attempt++ {
		e := b.Pick(seed, &tried)
		if e == nil {
			return errors.New("no endpoint")
		}
		e.Begin()
		err := e.exchange()
		e.End()
		if dial := new(DialError); errors.As(err, &dial) && dial.Reason == ReasonGone && attempt < 100 {
			continue // as for requests: another endpoint has come instead
		}
		if err == nil || attempt >= 5 {
			return err
		}
		tried.Add(e)
	}
}

func (e *Endpoint) exchange() error {
	c := e.Idle()
	if c != nil && !c.Alive() {
		c.Close()
		c = nil
	}
	if c == nil {
		var err error
		if c, err = e.Dial(context.Background(), time.Now().Add(5*time.Second)); err != nil {
			return err
		}
	}
	c.SetDeadline(time.Now().Add(5 * time.Second)) //nolint:errcheck
	if err := echo(c); err != nil {
		c.Close()
		return err
	}
	c.Release()
	return nil
}

// TestEndpointsChangeUnderLoad rewrites the endpoints, spreads and gathers them, and has servers close idle
// connections, while requests run: none fails, and nothing is left at the end.
func TestEndpointsChangeUnderLoad(t *testing.T) {
	manyCores(t)
	servers := []*server{listen(t), listen(t), listen(t), listen(t)}
	goroutines, files := runtime.NumGoroutine(), descriptors(t)
	s, b := newSet(t, Options{MaxIdle: 4, IdleTimeout: 20 * time.Millisecond}, endpoint(servers[0].addrPort()))

	stop := make(chan struct{})
	var work sync.WaitGroup
	var done, failed atomic.Int64
	for worker := range 8 {
		work.Go(func() {
			seed := uint64(worker)
			for {
				select {
				case <-stop:
					return
				default:
				}
				done.Add(1)
				if err := exchange(b, &seed); err != nil {
					failed.Add(1)
					t.Error(err)
					return
				}
			}
		})
	}
	random := rand.New(rand.NewPCG(1, 2))
	rewrites := 0
	for end := time.Now().Add(500 * time.Millisecond); time.Now().Before(end); rewrites++ {
		var list []*config.Endpoint
		keep := random.IntN(len(servers))
		for i, srv := range servers {
			if i == keep || random.IntN(2) == 0 {
				e := endpoint(srv.addrPort())
				e.Terminating = random.IntN(4) == 0
				list = append(list, e)
			}
		}
		apply(t, s, endpointsResource(key, list...))
		for _, e := range b.Endpoints() {
			if random.IntN(2) == 0 {
				e.use().met.Store(spreadAt) // the next Sweep but one gathers it again
			}
		}
		s.Sweep(time.Now())
		s.Backends()[0].Stats()
		time.Sleep(time.Millisecond)
	}
	close(stop)
	work.Wait()
	t.Logf("%d requests, %d rewrites, %d dialled", done.Load(), rewrites, b.Stats().Dialled)
	if done.Load() < 100 || rewrites < 10 {
		t.Errorf("too little happened: %d requests, %d rewrites", done.Load(), rewrites)
	}
	if st := b.Stats(); st.InFlight != 0 || st.Open != st.Idle {
		t.Errorf("at rest: %+v", st)
	}
	s.Close()
	if st := b.Stats(); st.Open != 0 || st.Idle != 0 {
		t.Errorf("closed: %+v", st)
	}
	testkit.Eventually(t, "all goroutines and descriptors are given back", func() bool {
		return runtime.NumGoroutine() <= goroutines && descriptors(t) <= files
	})
}
