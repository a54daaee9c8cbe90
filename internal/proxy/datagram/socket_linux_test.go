package datagram

import (
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/moongate-dev/moongate/internal/accesslog"
	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/observe"
	"github.com/moongate-dev/moongate/internal/proxy/listen"
	"github.com/moongate-dev/moongate/internal/proxy/match"
	"github.com/moongate-dev/moongate/internal/proxy/snapshot"
	"github.com/moongate-dev/moongate/internal/proxy/upstream"
	"github.com/moongate-dev/moongate/internal/testkit"
)

// echo is a server of UDP that answers each datagram with what it was sent.
func echo(t *testing.T) *net.UDPConn {
	t.Helper()
	c := silent(t)
	go func() {
		b := make([]byte, maxDatagram)
		for {
			n, from, err := c.ReadFromUDPAddrPort(b)
			if err != nil {
				return
			}
			c.WriteToUDPAddrPort(b[:n], from)
		}
	}()
	return c
}

// silent is a server of UDP that reads nothing.
func silent(t *testing.T) *net.UDPConn {
	t.Helper()
	c, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// serving returns a Set with a socket, and what gives that a route to the servers by these weights.
func serving(t *testing.T, o Options, servers ...*net.UDPConn) (set *Set, s *Socket, weigh func(weights ...uint32)) {
	t.Helper()
	var at [][]netip.AddrPort
	for _, server := range servers {
		at = append(at, []netip.AddrPort{server.LocalAddr().(*net.UDPAddr).AddrPort()})
	}
	return servingAt(t, o, at...)
}

// servingAt is serving, with backends by the addresses of their endpoints.
func servingAt(t *testing.T, o Options, servers ...[]netip.AddrPort) (set *Set, s *Socket, weigh func(weights ...uint32)) {
	t.Helper()
	backends := upstream.NewSet(upstream.Options{})
	t.Cleanup(backends.Close)
	key := func(i int) string { return fmt.Sprintf("Service/default/b%d/53", i) }
	var resources []*config.Resource
	for i, server := range servers {
		var endpoints []*config.Endpoint
		for _, at := range server {
			endpoints = append(endpoints, &config.Endpoint{Address: at.Addr().String(), Port: uint32(at.Port())})
		}
		resources = append(resources, &config.Resource{Kind: &config.Resource_Backend{Backend: &config.Backend{Key: key(i)}}},
			&config.Resource{Kind: &config.Resource_Endpoints{Endpoints: &config.Endpoints{Key: key(i), Endpoints: endpoints}}})
	}
	if err := backends.Apply(resources, nil); err != nil {
		t.Fatal(err)
	}
	metrics := observe.NewMetrics(observe.MetricsOptions{})
	compiler := snapshot.Compiler{Backend: backends.Get, Metrics: metrics}
	stats := metrics.Listener(observe.ListenerLabels{Gateway: "default/gw", Listener: "udp"})
	set = NewSet(o)
	s, err := set.Open(listen.Addr{IP: netip.MustParseAddr("127.0.0.1")})
	if err != nil {
		t.Fatal(err)
	}
	return set, s, func(weights ...uint32) {
		t.Helper()
		var refs []*config.BackendRef
		for i, weight := range weights {
			refs = append(refs, &config.BackendRef{Backend: key(i), Weight: weight})
		}
		route, err := compiler.L4Route(&config.L4Route{Key: "UDPRoute/default/r", Namespace: "default", Name: "r",
			Attachments: []*config.Attachment{{Listener: "default/gw/udp", Hostnames: []*config.Hostname{{}}}}, BackendRefs: refs})
		if err != nil {
			t.Fatal(err)
		}
		var routes *match.Hosts[*snapshot.L4Route]
		s.SetListener(&snapshot.Listener{Config: &config.Listener{Key: "default/gw/udp"}, Mode: snapshot.UDP, L4: routes.With("", route), Stats: stats})
	}
}

// client is one of the socket.
func (s *Socket) client(t *testing.T) net.Conn {
	t.Helper()
	c, err := net.Dial("udp", s.conn.LocalAddr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// answersOnce reports whether a datagram comes back.
func answersOnce(t *testing.T, c net.Conn) bool {
	t.Helper()
	c.Write([]byte("x"))
	c.SetReadDeadline(time.Now().Add(testkit.Patience))
	_, err := c.Read(make([]byte, 1))
	return err == nil
}

// answered reports whether a datagram comes back, which may get lost and be sent again.
func answered(c net.Conn) bool {
	for late := time.Now().Add(testkit.Patience); time.Now().Before(late); {
		c.Write([]byte("x"))
		c.SetReadDeadline(time.Now().Add(time.Second))
		if _, err := c.Read(make([]byte, 1)); err == nil {
			return true
		}
	}
	return false
}

// TestEndsBesideOthers: while a session ends, which takes time where there are thousands, the datagrams of others pass.
func TestEndsBesideOthers(t *testing.T) {
	var clock atomic.Int64
	clock.Store(time.Now().UnixMilli())
	set, s, weigh := serving(t, Options{Clock: &clock}, echo(t))
	weigh(1)
	s.Serve()
	if !answered(s.client(t)) {
		t.Fatal("a datagram has no answer")
	}
	idle, release := s.busy()
	clock.Add(DefaultIdle.Milliseconds())
	ends := func() bool {
		if !s.mu.TryLock() {
			return true // or that is what others wait for
		}
		defer s.mu.Unlock()
		return idle.ended
	}
	for range 2 { // while the session that the first one ends is in use yet
		returnsAtOnce(t, "Sweep", set.Sweep)
		testkit.Eventually(t, "the session to end", ends)
	}
	passes := answered(s.client(t))
	release()
	testkit.Eventually(t, "the sweep to end", func() bool {
		ended := set.sweeping.TryLock()
		if ended {
			set.sweeping.Unlock()
		}
		return ended
	})
	if !passes {
		t.Error("datagrams of others wait for the end of a session")
	}
	if n := set.Sessions(); n != 1 {
		t.Errorf("%d sessions, want 1", n)
	}
	_, release = s.busy()
	returnsAtOnce(t, "Close", s.Close)
	release()
	set.running.Wait()
	if n := set.Sessions(); n != 0 {
		t.Errorf("%d sessions of a socket that is closed", n)
	}
}

// busy uses the socket of the session that there is, so that closing it takes until release.
func (s *Socket) busy() (ses *session, release func()) {
	s.mu.Lock()
	for _, ses = range s.sessions {
	}
	s.mu.Unlock()
	inUse, released := make(chan struct{}), make(chan struct{})
	go ses.raw.Control(func(uintptr) {
		close(inUse)
		<-released
	})
	<-inUse
	return ses, func() { close(released) }
}

// returnsAtOnce fails the test where f waits for what is busy.
func returnsAtOnce(t *testing.T, name string, f func()) {
	t.Helper()
	returned := make(chan struct{})
	go func() {
		defer close(returned)
		f()
	}()
	select {
	case <-returned:
	case <-time.After(testkit.Patience):
		t.Fatalf("%s waits for the end of a session", name)
	}
}

// TestSilentBackend: what a server does not read is lost. It is not kept, and the datagrams of others pass.
func TestSilentBackend(t *testing.T) {
	const size, total, most = 8 << 10, 64 << 20, 8 << 20
	var clock atomic.Int64
	set, s, weigh := serving(t, Options{Clock: &clock}, silent(t), echo(t))
	weigh(1)
	s.Serve()
	unheard, b := s.client(t), make([]byte, size)
	var to *session
	testkit.Eventually(t, "a session with the server that reads nothing", func() bool {
		unheard.Write(b)
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, to = range s.sessions {
			return true
		}
		return false
	})
	weigh(1, 1<<30) // which lets that session go on
	other := s.client(t)
	if !answered(other) {
		t.Fatal("no answer of the server that reads")
	}
	used := func() int64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	before := used()
	for late := time.Now().Add(testkit.Patience); to.received.Load() < total; {
		for range 64 {
			unheard.Write(b)
		}
		if !answered(other) || time.Now().After(late) {
			t.Fatalf("after %d bytes to the server that reads nothing no more pass", to.received.Load())
		}
	}
	if more := used() - before; more > most {
		t.Errorf("%d bytes more in use, want %d at most", more, most)
	}
	if n := set.Sessions(); n != 2 {
		t.Errorf("%d sessions, want 2", n)
	}
	s.Close()
	set.running.Wait()
}

// TestPanicGivesPlaceBack: a panic about a datagram that begins a session loses that alone, and no place for another session.
func TestPanicGivesPlaceBack(t *testing.T) {
	const most = 2
	var clock atomic.Int64
	logged := &testkit.Log{}
	set, s, weigh := serving(t, Options{Clock: &clock, MaxSessions: most, Observer: &observe.Observer{Logger: slog.New(slog.NewTextHandler(logged, nil))}}, echo(t))
	weigh(1)
	ruleOf(s.listener.Load()).Backends[0].Backend = nil // a defect
	s.Serve()
	c := s.client(t)
	for n := range most {
		c.Write([]byte("x"))
		testkit.Eventually(t, "a panic", func() bool { return strings.Count(logged.String(), "where=datagrams") > n })
	}
	weigh(1)
	for range most {
		if !answered(s.client(t)) {
			t.Fatalf("no answer behind a panic: %d sessions", set.Sessions())
		}
	}
	s.Close()
	set.running.Wait()
	if n := set.Sessions(); n != 0 {
		t.Errorf("%d sessions of a socket that is closed", n)
	}
}

// TestDroppedAreLoggedNowAndThen: of datagrams that are dropped for a reason one is logged each second, and all are counted.
func TestDroppedAreLoggedNowAndThen(t *testing.T) {
	var clock atomic.Int64
	lines := &testkit.Log{}
	log, err := observe.OpenAccessLog("json", lines, accesslog.Options{})
	if err != nil {
		t.Fatal(err)
	}
	metrics := observe.NewMetrics(observe.MetricsOptions{})
	set, s, weigh := serving(t, Options{Clock: &clock, Observer: &observe.Observer{Log: log, Metrics: metrics}}, echo(t))
	weigh(1)
	drop := func(why observe.Reason) {
		ses := &session{socket: s, key: key{client: netip.MustParseAddrPort("192.0.2.1:53")}, ref: -1}
		ses.drop(why, 1)
	}
	for range 3 {
		for range 1000 {
			drop(observe.ReasonNoEndpoints)
			drop(observe.ReasonRouteNotFound)
			drop(observe.ReasonOverloaded)
		}
		clock.Add(dropLogEvery.Milliseconds())
	}
	s.Close()
	set.running.Wait()
	log.Close(testkit.Patience) // writes what waits
	for why, want := range map[observe.Reason]int{observe.ReasonNoEndpoints: 3, observe.ReasonRouteNotFound: 3, observe.ReasonOverloaded: 0} {
		word := fmt.Sprintf(`"reason":"%s"`, why)
		if n := strings.Count(lines.String(), word); n != want {
			t.Errorf("%d lines with %s, want %d", n, word, want)
		}
		if n := total(t, metrics, why); n != 3000 {
			t.Errorf("%v counted with %s, want 3000", n, word)
		}
	}
}

// total is how many records with a reason were counted.
func total(t *testing.T, metrics *observe.Metrics, why observe.Reason) (sum float64) {
	t.Helper()
	families, err := metrics.Gatherer().Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != "moongate_requests_total" {
			continue
		}
		for _, m := range f.Metric {
			for _, l := range m.Label {
				if l.GetName() == "reason" && l.GetValue() == why.String() {
					sum += m.GetCounter().GetValue()
				}
			}
		}
	}
	return sum
}

// TestAnsweredForLong: what an endpoint sends keeps the session of a client that has sent one datagram for a long time, and not for ever; it keeps that of one who has
// sent more.
func TestAnsweredForLong(t *testing.T) {
	const step = 10 * time.Second
	for sends, lasts := range map[int]bool{1: false, 2: true} {
		t.Run(fmt.Sprint(sends), func(t *testing.T) {
			var clock atomic.Int64
			server := silent(t)
			set, s, weigh := serving(t, Options{Clock: &clock}, server)
			weigh(1)
			s.Serve()
			c, b := s.client(t), make([]byte, 1)
			var to netip.AddrPort
			server.SetReadDeadline(time.Now().Add(testkit.Patience))
			for range sends {
				var err error
				if c.Write([]byte("x")); err == nil {
					_, to, err = server.ReadFromUDPAddrPort(b)
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			for at := step; at <= DefaultAnswered; at += step {
				c.SetReadDeadline(time.Now().Add(testkit.Patience))
				server.WriteToUDPAddrPort(b, to)
				if _, err := c.Read(b); err != nil {
					t.Fatal(err)
				}
				clock.Add(step.Milliseconds())
				set.sweep()
				if n := set.Sessions(); n != 1 && at < DefaultAnswered {
					t.Fatalf("the session has ended after %v", at)
				}
			}
			if n := set.Sessions(); (n == 1) != lasts {
				t.Errorf("%d sessions after %v", n, DefaultAnswered)
			}
			s.Close()
			set.running.Wait()
		})
	}
}

// TestListenersShareSessions: where there are several listeners, however many sessions some want, there are places for the others, and all are given back. One alone
// has them all.
func TestListenersShareSessions(t *testing.T) {
	const most = 1000
	set := NewSet(Options{Clock: new(atomic.Int64), MaxSessions: most})
	listens := func(key string) {
		s := &Socket{}
		s.SetListener(&snapshot.Listener{Config: &config.Listener{Key: key}})
		set.sockets[s] = struct{}{}
	}
	flood := func(key string) (n int) {
		for set.admit(key) == observe.ReasonOK {
			n++
		}
		return n
	}
	leave := func(key string, n int) {
		for range n {
			set.leave(key)
		}
	}
	listens("a")
	if n := flood("a"); n != most {
		t.Errorf("a listener alone has %d sessions, want %d", n, most)
	}
	leave("a", most)
	listens("a") // at another address
	if n := flood("a"); n != most {
		t.Errorf("a listener with two addresses has %d sessions, want %d", n, most)
	}
	leave("a", most)
	had := map[string]int{}
	for _, key := range []string{"b", "c", "d"} {
		listens(key)
	}
	for _, key := range []string{"a", "b", "c", "d"} {
		free := most - set.Sessions()
		if had[key] = flood(key); had[key] < free/2 || had[key] > free*3/4+1 {
			t.Errorf("%s has %d sessions where %d were free", key, had[key], free)
		}
	}
	for key, n := range had {
		leave(key, n)
	}
	if len(set.of) > 0 || set.Sessions() != 0 {
		t.Errorf("%v are left, %d sessions", set.of, set.Sessions())
	}
}
