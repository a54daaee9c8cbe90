package upstream

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/proxy/http2"
	"github.com/moongate-dev/moongate/internal/proxy/message"
	"github.com/moongate-dev/moongate/internal/testkit"
)

// h2cServer answers requests by HTTP/2 when answer is closed, and takes streams at a time on a connection.
type h2cServer struct {
	addr   netip.AddrPort
	conns  atomic.Int64
	ended  atomic.Int64
	answer chan struct{}
}

func newH2CServer(t *testing.T, streams int) *h2cServer {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &h2cServer{addr: netip.MustParseAddrPort(l.Addr().String()), answer: make(chan struct{})}
	server := &http.Server{
		Protocols: new(http.Protocols), HTTP2: &http.HTTP2Config{MaxConcurrentStreams: streams},
		Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			select {
			case <-s.answer:
			case <-r.Context().Done():
			}
		}),
		ConnState: func(_ net.Conn, state http.ConnState) {
			switch state {
			case http.StateNew:
				s.conns.Add(1)
			case http.StateClosed:
				s.ended.Add(1)
			}
		},
	}
	server.Protocols.SetUnencryptedHTTP2(true)
	go server.Serve(l)
	t.Cleanup(func() { server.Close() })
	return s
}

// sharedEndpoint is the endpoint of an h2c backend that consists of it alone.
func sharedEndpoint(t *testing.T, o Options, addr netip.AddrPort) (*Set, *Endpoint) {
	t.Helper()
	s, b := newSet(t, o, endpoint(addr))
	apply(t, s, &config.Resource{Kind: &config.Resource_Backend{Backend: &config.Backend{Key: key, Protocol: config.BackendProtocol_BACKEND_PROTOCOL_H2C}}})
	return s, b.Endpoints()[0]
}

// stream opens a stream on a place.
func stream(t *testing.T, p *Shared) *http2.ClientStream {
	t.Helper()
	request := &message.Request{Method: []byte("GET"), Path: []byte("/"), Host: []byte("h")}
	s, err := p.Open(&http2.ClientRequest{RequestHead: http2.RequestHead{Request: request, Scheme: "http", Length: -1}, Last: true})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// take finds a place, or waits for one.
func take(t *testing.T, e *Endpoint) *Shared {
	t.Helper()
	p := e.Place()
	if p == nil {
		c, place, err := e.Connect(context.Background(), time.Now().Add(10*time.Second), true)
		if err != nil || c != nil {
			t.Fatalf("%v %v", c, err)
		}
		p = place
	}
	return p
}

func TestPlacesAreOnOneConnection(t *testing.T) {
	server := newH2CServer(t, 100)
	close(server.answer)
	_, e := sharedEndpoint(t, Options{}, server.addr)
	var work sync.WaitGroup
	for range 50 { // who comes while the connection is made waits for it
		work.Go(func() {
			p := take(t, e)
			s := stream(t, p)
			var head message.Response
			if _, err := s.ReadHead(&head); err != nil || head.Status != 200 {
				t.Errorf("%d %v", head.Status, err)
			}
			s.Close()
			p.Leave(true)
		})
	}
	work.Wait()
	if n := server.conns.Load(); n != 1 {
		t.Errorf("%d connections, want one", n)
	}
	if st := e.Stats(); st.Open != 1 || st.Idle != 1 || st.Dialled != 1 || st.Failures != 0 {
		t.Errorf("%+v", st)
	}
	if p := e.Place(); p == nil || !p.Used() || e.Stats().Idle != 0 {
		t.Error("the connection is not used again")
	} else {
		p.Leave(false)
	}
}

func TestPlacesGoWhereTheFewestAre(t *testing.T) {
	server := newH2CServer(t, 10)
	_, e := sharedEndpoint(t, Options{}, server.addr)
	var places []*Shared
	var streams []*http2.ClientStream
	open := func() {
		places = append(places, take(t, e))
		streams = append(streams, stream(t, places[len(places)-1]))
	}
	open()
	testkit.Eventually(t, "the limit is known", func() bool { return places[0].learn() == 10 })
	for range 24 {
		open()
		testkit.Eventually(t, "the limit is known", func() bool { return places[len(places)-1].learn() == 10 })
	}
	count := map[*Shared]int{}
	for _, p := range places {
		count[p]++
	}
	if n := e.Stats().Open; len(count) != 3 || n != 3 {
		t.Errorf("25 streams are on %d of %d connections, 10 being allowed on each", len(count), n)
	}
	least := places[len(places)-1] // 5 places on the third
	if p := e.Place(); p != least {
		t.Error("the place is not on the connection with the fewest streams")
	} else {
		p.Leave(false)
	}
	for i := range streams {
		streams[i].Close()
		places[i].Leave(false)
	}
	if st := e.Stats(); st.Open != 3 || st.Idle != 3 {
		t.Errorf("%+v", st)
	}
}

// TestWaitersGetWhatIsLeft: who waits for a connection gets a place that is left meanwhile.
func TestWaitersGetWhatIsLeft(t *testing.T) {
	server := newH2CServer(t, 1)
	_, e := sharedEndpoint(t, Options{ConnectTimeout: 10 * time.Second}, server.addr)
	p := take(t, e)
	testkit.Eventually(t, "the limit is known", func() bool { return p.learn() == 1 })
	if e.Place() != nil {
		t.Fatal("a second place where one stream is allowed")
	}
	e.use().sharing.mu.Lock()
	w := &waiter{ready: make(chan struct{})}
	e.use().sharing.waiting = append(e.use().sharing.waiting, w)
	e.use().sharing.numWaiting.Store(1)
	e.use().sharing.mu.Unlock()
	p.Leave(false)
	<-w.ready
	if w.place != p || e.use().sharing.numWaiting.Load() != 0 {
		t.Errorf("%+v", w)
	}
	p.Leave(false)
}

// TestDialFailsForAllWaiters: one refusal answers all who waited for it.
func TestDialFailsForAllWaiters(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := netip.MustParseAddrPort(l.Addr().String())
	l.Close()
	_, e := sharedEndpoint(t, Options{}, addr)
	var work sync.WaitGroup
	for range 20 {
		work.Go(func() {
			_, _, err := e.Connect(context.Background(), time.Time{}, true)
			wantDialError(t, err, ReasonRefused, true)
		})
	}
	work.Wait()
	if st := e.Stats(); st.Open != 0 || st.Failures == 0 || st.Failures > 20 {
		t.Errorf("%+v", st)
	}
}

func TestSharedConnectionsIdleOut(t *testing.T) {
	server := newH2CServer(t, 100)
	s, e := sharedEndpoint(t, Options{IdleTimeout: time.Second}, server.addr)
	busy := take(t, e)
	st := stream(t, busy)
	now := time.Now()
	s.Sweep(now.Add(time.Hour))
	if e.Stats().Open != 1 {
		t.Fatal("a connection in use was closed")
	}
	st.Close()
	busy.Leave(false)
	s.Sweep(now.Add(time.Hour + 500*time.Millisecond))
	if p := e.Place(); p == nil {
		t.Fatal("closed too early")
	} else {
		p.Leave(false)
	}
	s.Sweep(now.Add(time.Hour + 2*time.Second))
	if e.Place() != nil {
		t.Error("a place on a connection that has idled out")
	}
	testkit.Eventually(t, "the connection has ended", func() bool { return e.Stats().Open == 0 && server.ended.Load() == 1 })
}

// TestSharedEndsWithTheSet: Close ends connections and those who wait.
func TestSharedEndsWithTheSet(t *testing.T) {
	server := newH2CServer(t, 100)
	s, e := sharedEndpoint(t, Options{}, server.addr)
	p := take(t, e)
	st := stream(t, p)
	s.Close()
	var head message.Response
	if _, err := st.ReadHead(&head); err == nil {
		t.Error("a response from nowhere")
	}
	st.Close()
	p.Leave(false)
	if _, _, err := e.Connect(context.Background(), time.Time{}, true); err == nil {
		t.Error("a connection of a closed Set")
	}
	testkit.Eventually(t, "the connection has ended", func() bool { return server.ended.Load() == 1 })
}

// TestNeitherPlaceNorLeaveAllocates: nor do they take a lock that others hold.
func TestNeitherPlaceNorLeaveAllocates(t *testing.T) {
	server := newH2CServer(t, 100)
	_, e := sharedEndpoint(t, Options{}, server.addr)
	p := take(t, e)
	testkit.Eventually(t, "the limit is known", func() bool { return p.learn() == 100 })
	p.Leave(false)
	if n := testing.AllocsPerRun(1000, func() { e.Place().Leave(true) }); n != 0 {
		t.Errorf("%v allocations, want 0", n)
	}
}

func BenchmarkPlace(b *testing.B) {
	e := newEndpoint(&Backend{set: NewSet(Options{})}, address(1))
	s := &Shared{endpoint: e}
	s.max.Store(1 << 20)
	list := []*Shared{s}
	e.use().sharing.conns.Store(&list)
	b.ReportAllocs()
	for b.Loop() {
		e.Place().Leave(true)
	}
}

// TestPlacesTakenByOthers: requests that find a place without waiting may take all of a new connection's before those who wait for it. These
// go on waiting for the next one; only a connection that gives nobody a place ends their wait.
func TestPlacesTakenByOthers(t *testing.T) {
	server := newH2CServer(t, 100)
	_, e := sharedEndpoint(t, Options{}, server.addr)
	h := &e.use().sharing
	for taken, ended := range map[bool]bool{true: false, false: true} {
		c := dial(t, e)
		w := &waiter{ready: make(chan struct{})}
		h.mu.Lock()
		s := e.share(c)
		for taken && s.take() {
		}
		if !taken {
			s.places.Add(shut) // as when it takes no streams, or has ended
		}
		h.waiting = append(h.waiting, w)
		e.feedFrom(s)
		if got := w.err != nil; got != ended || w.place != nil {
			t.Errorf("all places taken: %v; error %v, place %v", taken, w.err, w.place)
		}
		h.waiting = nil
		h.mu.Unlock()
	}
}

// streamlessServer accepts connections by HTTP/2 with prior knowledge, and allows no streams on them.
type streamlessServer struct {
	addr  netip.AddrPort
	conns chan net.Conn
}

func newStreamlessServer(t *testing.T) *streamlessServer {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &streamlessServer{netip.MustParseAddrPort(l.Addr().String()), make(chan net.Conn, 100)}
	var work sync.WaitGroup
	t.Cleanup(work.Wait)
	t.Cleanup(func() { l.Close() })
	work.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			allowStreams(c, 0)
			s.conns <- c
			work.Go(func() {
				defer c.Close()
				io.Copy(io.Discard, c)
			})
		}
	})
	return s
}

// allowStreams sends SETTINGS_MAX_CONCURRENT_STREAMS.
func allowStreams(c net.Conn, n byte) {
	c.Write([]byte{0, 0, 6, 4, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, n})
}

// TestStreamless: requests wait at an endpoint whose connections allow no streams, and get a further connection only in place of one that has ended.
func TestStreamless(t *testing.T) {
	server := newStreamlessServer(t)
	set, e := sharedEndpoint(t, Options{}, server.addr)
	learnStreamless(t, e)
	places := make(chan *Shared)
	for range 2 {
		go func() { places <- take(t, e) }()
	}
	first, second := <-server.conns, <-server.conns
	testkit.Eventually(t, "the requests wait", func() bool { return e.use().sharing.numWaiting.Load() == 2 })
	_, _, err := e.connectBy(t.Context(), dialLimit{at: time.Now(), reason: ReasonTimeout}, true)
	if wantDialError(t, err, ReasonTimeout, true); !errors.Is(err, errStreamless) {
		t.Error(err)
	}
	_, _, err = e.Connect(t.Context(), time.Now().Add(time.Millisecond), true)
	wantDialError(t, err, ReasonDeadline, false)
	testkit.Eventually(t, "the second connection is made", func() bool { return e.Stats().Dialled == maxStreamless })
	first.Close()
	third := <-server.conns
	if n := e.use().sharing.numWaiting.Load(); n != 2 {
		t.Errorf("%d requests wait", n)
	}
	allowStreams(third, 1)
	for range 2 {
		p := <-places
		p.Leave(true)
	}
	set.Close()
	second.Close()
}

// learnStreamless makes a request find out that an endpoint allows no streams.
func learnStreamless(t *testing.T, e *Endpoint) {
	t.Helper()
	// It gets a place only if that is given out before the SETTINGS arrive.
	_, p, _ := e.Connect(t.Context(), time.Now().Add(50*time.Millisecond), true)
	testkit.Eventually(t, "the limit is known", func() bool { return e.use().sharing.limit.Load() == noneAllowed || p != nil && p.learn() == 0 })
	if p != nil {
		p.Leave(false)
	}
}

// TestStreamlessMovesOn: requests do not wait at an endpoint whose connections allow no streams if they may go to another one that is not known to be like
// that.
func TestStreamlessMovesOn(t *testing.T) {
	servers := []*streamlessServer{newStreamlessServer(t), newStreamlessServer(t)}
	set, b := newSet(t, Options{}, endpoint(servers[0].addr), endpoint(servers[1].addr))
	apply(t, set, &config.Resource{Kind: &config.Resource_Backend{Backend: &config.Backend{Key: key, Protocol: config.BackendProtocol_BACKEND_PROTOCOL_H2C}}})
	one, other := b.Endpoints()[0], b.Endpoints()[1]
	learnStreamless(t, one)
	_, _, err := one.Connect(t.Context(), time.Time{}, true)
	wantDialError(t, err, ReasonFailed, true)
	limit := func(patient bool) dialLimit {
		return dialLimit{at: time.Now().Add(10 * time.Millisecond), reason: ReasonDeadline, patient: patient}
	}
	_, _, err = one.connectBy(t.Context(), limit(true), true)
	wantDialError(t, err, ReasonDeadline, false)
	learnStreamless(t, other)
	_, _, err = one.connectBy(t.Context(), limit(false), true)
	wantDialError(t, err, ReasonDeadline, false)
	set.Close()
}

// TestStreamlessAfterUse: connections on which requests were answered, and that allow no streams since, do not keep new ones from being made.
func TestStreamlessAfterUse(t *testing.T) {
	server := newStreamlessServer(t)
	set, e := sharedEndpoint(t, Options{}, server.addr)
	places := make(chan *Shared)
	for range maxStreamless + 1 {
		go func() { places <- take(t, e) }()
		conn := <-server.conns
		allowStreams(conn, 1)
		p := <-places
		p.Leave(true)
		allowStreams(conn, 0)
		testkit.Eventually(t, "no stream is allowed", func() bool { return p.learn() == 0 })
	}
	set.Close()
}
