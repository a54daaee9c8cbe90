package proxy

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/testkit"
)

// ailing is an HTTP server that can be made to fail.
type ailing struct {
	t       testing.TB
	address string
	served  atomic.Int64
	sick    atomic.Bool // answer 503

	mu       sync.Mutex
	server   *http.Server
	listener *net.TCPListener
	conns    map[net.Conn]bool
	dropping bool
}

func newAiling(t testing.TB) *ailing {
	a := &ailing{t: t, address: fmt.Sprintf("127.0.0.1:%d", freePort(t))}
	a.listen()
	t.Cleanup(a.stop)
	return a
}

func (a *ailing) listen() {
	var c net.ListenConfig
	c.SetMultipathTCP(false) // such sockets take no filter
	l, err := c.Listen(context.Background(), "tcp", a.address)
	if err != nil {
		a.t.Errorf("an endpoint does not come back: %v", err)
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.listener, a.conns = l.(*net.TCPListener), map[net.Conn]bool{}
	a.server = &http.Server{Handler: a, ConnState: func(c net.Conn, s http.ConnState) {
		a.mu.Lock()
		defer a.mu.Unlock()
		switch s {
		case http.StateNew:
			a.conns[c] = true
			if a.dropping {
				a.drop(c.(*net.TCPConn), true)
			}
		case http.StateClosed, http.StateHijacked:
			delete(a.conns, c)
		}
	}}
	go a.server.Serve(l)
}

func (a *ailing) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	if a.sick.Load() {
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	a.served.Add(1)
}

// stop closes the socket and all connections.
func (a *ailing) stop() {
	a.mu.Lock()
	s := a.server
	a.mu.Unlock()
	s.Close()
}

// dropAll has the kernel drop whatever comes to the endpoint's sockets, as a network that has lost its way, or not any more.
func (a *ailing) dropAll(is bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.dropping = is
	a.drop(a.listener, is)
	for c := range a.conns {
		a.drop(c.(*net.TCPConn), is)
	}
}

func (a *ailing) drop(c syscall.Conn, is bool) {
	raw, err := c.SyscallConn()
	if err != nil {
		a.t.Error(err)
		return
	}
	raw.Control(func(fd uintptr) { //nolint:errcheck // it is closed this moment
		if is {
			program := []unix.SockFilter{{Code: unix.BPF_RET | unix.BPF_K, K: 0}}
			err = unix.SetsockoptSockFprog(int(fd), unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: 1, Filter: &program[0]})
		} else {
			err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_DETACH_FILTER, 0)
		}
	})
	if err != nil && err != unix.ENOENT && err != unix.EBADF {
		a.t.Errorf("socket filter: %v", err)
	}
}

// TestFailover is that one of four endpoints fails again and again, under a load of 200 requests/s that 256 rules send to one Service, without retries and
// without a policy. The bounds are those of five cycles.
func TestFailover(t *testing.T) {
	down, up, cycles := 2*time.Second, time.Second, 1
	// A slow machine is no failure: clients are patient, and no more requests are under way than fail within the bounds.
	patience, atOnce := testkit.Patience, 24
	if *long {
		down, up, cycles = 11*time.Second, 11*time.Second, 5
		patience, atOnce = 5*time.Second, 1000
	}
	for _, c := range []struct {
		name          string
		most          int64 // failed requests over five cycles
		fail, recover func(*ailing)
	}{
		{"refused", 50, (*ailing).stop, (*ailing).listen},
		{"503", 300, func(a *ailing) { a.sick.Store(true) }, func(a *ailing) { a.sick.Store(false) }},
		{"dropped", 50, func(a *ailing) { a.dropAll(true) }, func(a *ailing) { a.dropAll(false) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			g := startGateway(t, Timeouts{})
			endpoints := make([]*ailing, 4)
			var addresses []string
			for i := range endpoints {
				endpoints[i] = newAiling(t)
				addresses = append(addresses, endpoints[i].address)
			}
			resources := append(backend("Service/default/b/80", addresses...), g.httpListener("http", ""))
			const routes, rules = 16, 16
			for i := range routes {
				var list []*config.Rule
				for j := range rules {
					list = append(list, &config.Rule{
						Matches:     []*config.Match{{Path: &config.PathMatch{Type: config.PathMatchType_PATH_MATCH_TYPE_PREFIX, Value: fmt.Sprintf("/%d/%d", i, j)}}},
						BackendRefs: []*config.BackendRef{{Backend: "Service/default/b/80", Weight: 1}},
					})
				}
				resources = append(resources, routeOf(fmt.Sprintf("r%d", i), "default/gw/http", "", list...))
			}
			g.apply(resources)

			var sent, failed, slow atomic.Int64
			transport := &http.Transport{MaxIdleConnsPerHost: 1000}
			client := &http.Client{Transport: transport, Timeout: patience}
			ctx, cancel := context.WithCancel(context.Background())
			var running sync.WaitGroup
			places := make(chan struct{}, atOnce)
			running.Go(func() {
				tick := time.NewTicker(5 * time.Millisecond)
				defer tick.Stop()
				for n := 0; ; n++ {
					select {
					case <-ctx.Done():
						return
					case <-tick.C:
					}
					places <- struct{}{}
					running.Go(func() {
						defer func() { <-places }()
						sent.Add(1)
						start := time.Now()
						defer func() {
							if time.Since(start) > time.Second {
								slow.Add(1)
							}
						}()
						r, err := client.Get(fmt.Sprintf("http://%s/%d/%d", g.addr(), n%routes, n/routes%rules))
						if err != nil {
							failed.Add(1)
							return
						}
						r.Body.Close()
						if r.StatusCode != http.StatusOK {
							failed.Add(1)
						}
					})
				}
			})
			defer func() {
				cancel()
				running.Wait()
				transport.CloseIdleConnections()
			}()
			served := func() bool {
				n := endpoints[2].served.Load()
				return eventuallyMore(&endpoints[2].served, n)
			}
			if !served() {
				t.Fatal("the endpoint was not used at first")
			}
			for i := range cycles {
				before := failed.Load()
				c.fail(endpoints[2])
				wait(down)
				c.recover(endpoints[2])
				recovered := time.Now()
				if !served() {
					t.Fatal("the endpoint is not used after it has recovered")
				}
				back := time.Since(recovered)
				t.Logf("cycle %d: %d requests failed, %v until it was used again", i, failed.Load()-before, back)
				if *long && back > 3*time.Second {
					t.Errorf("it took %v until the endpoint was used again", back)
				}
				wait(up - back)
			}
			cancel()
			running.Wait()
			t.Logf("%d requests sent, %d failed, %d took longer than 1 s", sent.Load(), failed.Load(), slow.Load())
			if most := c.most * int64(cycles) / 5; failed.Load() > most {
				t.Errorf("%d of %d requests failed, want at most %d in %d cycles", failed.Load(), sent.Load(), most, cycles)
			}
		})
	}
}

// eventuallyMore waits until a counter has grown, and reports whether it has.
func eventuallyMore(n *atomic.Int64, than int64) bool {
	for end := time.Now().Add(testkit.Patience); n.Load() <= than; time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			return false
		}
	}
	return true
}

// wait is how long the load goes on, and not for something to happen.
func wait(d time.Duration) {
	if d > 0 {
		<-time.After(d)
	}
}

// TestLostAfterAuthorization: how long an authorization server has taken says nothing of when an endpoint was asked that does not acknowledge.
func TestLostAfterAuthorization(t *testing.T) {
	t.Parallel()
	checkLeaks(t)
	lost, fit := newAiling(t), newAiling(t)
	g := startGateway(t, Timeouts{})
	g.apply(backend(authKey, httpBackend(t, func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			time.Sleep(2100 * time.Millisecond)
		}
	})))
	rule := anyRule()
	rule.Filters = []*anypb.Any{filterOf(t, &config.ExternalAuth{Backend: authKey})}
	g.apply(append(backend("Service/default/b/80", lost.address, fit.address), g.httpListener("http", ""), routeOf("r", "default/gw/http", "", rule)))
	transport := &http.Transport{MaxIdleConnsPerHost: 100}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport, Timeout: testkit.Patience}
	ask := func(path string) {
		const requests = 16
		var all sync.WaitGroup
		defer all.Wait()
		for range requests {
			all.Go(func() {
				r, err := client.Get("http://" + g.addr() + path)
				if err != nil {
					t.Error(err)
					return
				}
				if r.Body.Close(); r.StatusCode != http.StatusOK {
					t.Errorf("%s: %s", path, r.Status)
				}
			})
		}
	}
	for lost.served.Load() == 0 {
		ask("/")
	}
	lost.dropAll(true)
	start := time.Now()
	ask("/slow")
	t.Logf("took %v", time.Since(start))
}
