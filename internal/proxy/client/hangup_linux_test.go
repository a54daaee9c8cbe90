package client

import (
	"net"
	"net/http"
	"net/netip"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/observe"
	"github.com/moongate-dev/moongate/internal/proxy/exchange"
	"github.com/moongate-dev/moongate/internal/proxy/listen"
	"github.com/moongate-dev/moongate/internal/proxy/match"
	"github.com/moongate-dev/moongate/internal/proxy/snapshot"
	"github.com/moongate-dev/moongate/internal/proxy/upstream"
	"github.com/moongate-dev/moongate/internal/testkit"
)

// controls counts the calls that look at a socket from outside.
type controls struct {
	syscall.RawConn
	n *atomic.Int64
}

func (c controls) Control(f func(fd uintptr)) error {
	c.n.Add(1)
	return c.RawConn.Control(f)
}

// longPolls is a Set whose only route leads to addr, a socket that it accepts from, and the number of calls that its
// sweeper makes on the sockets of clients.
func longPolls(t *testing.T, addr string, retry *config.Retry) (set *Set, ln net.Listener, calls *atomic.Int64) {
	t.Helper()
	const key = "Service/default/b/80"
	to := netip.MustParseAddrPort(addr)
	upstreams := upstream.NewSet(upstream.Options{})
	if err := upstreams.Apply([]*config.Resource{
		{Kind: &config.Resource_Backend{Backend: &config.Backend{Key: key}}},
		{Kind: &config.Resource_Endpoints{Endpoints: &config.Endpoints{Key: key,
			Endpoints: []*config.Endpoint{{Address: to.Addr().String(), Port: uint32(to.Port())}}}}},
	}, nil); err != nil {
		t.Fatal(err)
	}
	metrics := observe.NewMetrics(observe.MetricsOptions{})
	compiler := snapshot.Compiler{Backend: upstreams.Get, Metrics: metrics}
	hostnames := []*config.Hostname{{}}
	route, err := compiler.Route(&config.Route{Key: "HTTPRoute/default/r", Namespace: "default", Name: "r",
		Attachments: []*config.Attachment{{Listener: "default/gw/http", Hostnames: hostnames}},
		Rules: []*config.Rule{{
			Matches:     []*config.Match{{Path: &config.PathMatch{Type: config.PathMatchType_PATH_MATCH_TYPE_PREFIX}}},
			BackendRefs: []*config.BackendRef{{Backend: key, Weight: 1}},
			Retry:       retry,
		}}})
	if err != nil {
		t.Fatal(err)
	}
	edit := new(match.Table[*snapshot.Rule]).Edit()
	edit.Add(route.Compiled, hostnames)
	engine := &exchange.Engine{Observer: &observe.Observer{Metrics: metrics}}
	engine.Clock.Store(time.Now().UnixMilli())
	socket := &snapshot.Socket{Socket: &listen.Socket{}, Stats: metrics.Socket(observe.SocketLabels{Port: 80})}
	l := &snapshot.Listener{Config: &config.Listener{Key: "default/gw/http", Port: 80}, Table: edit.Table(),
		Stats: metrics.Listener(observe.ListenerLabels{Gateway: "default/gw", Listener: "http", Port: 80})}
	var hosts *match.Hosts[*snapshot.Listener]
	engine.Snapshot.Store(&snapshot.Snapshot{Sockets: []*snapshot.Port{{Owner: socket, Number: 80, Listeners: hosts.With("", l)}}})
	set, calls = NewSet(engine, Timeouts{}, false), new(atomic.Int64)
	if ln, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			accepted, err := ln.Accept()
			if err != nil {
				return
			}
			c := newConn(set, socket, of(t, accepted), snapshot.HTTP, &set.timeouts)
			c.raw = controls{c.raw, calls}
			set.begin(c, c.start)
		}
	}()
	t.Cleanup(func() {
		ln.Close()
		<-done
		set.Cut()
		<-set.Empty()
		set.Close()
		upstreams.Close()
	})
	return set, ln, calls
}

// TestLongPollsAreNotPolled: however long requests wait for their backend, the sweeper makes one call for each, and still
// notices those whose client leaves.
func TestLongPollsAreNotPolled(t *testing.T) {
	const clients, rounds = 20, 100
	var arrived, left atomic.Int64
	backend, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		arrived.Add(1)
		<-r.Context().Done()
		left.Add(1)
	})}
	go server.Serve(backend)
	t.Cleanup(func() { server.Close() })
	set, ln, calls := longPolls(t, backend.Addr().String(), nil)
	var all []*asker
	for range clients {
		a := askerOf(t, ln.Addr().String())
		if _, err := a.Write([]byte("GET / HTTP/1.1\r\nHost: h\r\n\r\n")); err != nil {
			t.Fatal(err)
		}
		all = append(all, a)
	}
	testkit.Eventually(t, "requests at the backend", func() bool { return arrived.Load() == clients })
	testkit.Eventually(t, "waits that have begun", func() bool {
		n := 0
		set.Each(func(c *Conn) {
			if c.watch.Since() != 0 {
				n++
			}
		})
		return n == clients
	})
	before := calls.Load()
	now := set.engine.Now()
	for i := range int64(rounds) {
		set.Sweep(now + 1000 + 250*i)
	}
	if n := calls.Load() - before; n > clients {
		t.Errorf("%d calls for %d requests that wait, in %d rounds of the sweeper", n, clients, rounds)
	}
	set.Each(func(c *Conn) {
		if !c.referred.Load() {
			t.Error("a Conn that the poller of hang-ups knows may be reused")
		}
	})
	if left.Load() != 0 {
		t.Fatalf("%d requests were given up, though their clients are there", left.Load())
	}
	for _, a := range all[:clients/2] {
		a.Close()
	}
	testkit.Eventually(t, "requests given up", func() bool {
		set.Sweep(now + 30_000)
		return left.Load() == clients/2
	})
	set.Sweep(now + 31_000)
	if n := left.Load(); n != clients/2 {
		t.Errorf("%d requests were given up, %d clients have left", n, clients/2)
	}
}

// TestHangUpWhileRetried: that a client has left is noticed by what its request has waited for all in all, however short each wait is.
func TestHangUpWhileRetried(t *testing.T) {
	const retries = 16
	var asked atomic.Int64
	backend, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var set *Set
	begun := make(chan struct{})
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		<-begun
		asked.Add(1)
		set.engine.Clock.Add(goneAfter.Milliseconds() * 3 / 5)
		w.WriteHeader(503)
	})}
	go server.Serve(backend)
	t.Cleanup(func() { server.Close() })
	set, ln, _ := longPolls(t, backend.Addr().String(), &config.Retry{Attempts: retries, Codes: []uint32{503}, BackoffNanos: int64(30 * time.Millisecond)})
	close(begun)
	a := askerOf(t, ln.Addr().String())
	if _, err := a.Write([]byte("GET / HTTP/1.1\r\nHost: h\r\n\r\n")); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, "request at the backend", func() bool { return asked.Load() > 0 })
	a.Close()
	testkit.Eventually(t, "end of the connection", func() bool {
		set.Sweep(set.engine.Now())
		left := 0
		set.Each(func(*Conn) { left++ })
		return left == 0
	})
	if n := asked.Load(); n > retries {
		t.Errorf("the backend was asked %d times for a client that had left", n)
	}
}
