package proxy

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/proxy/datagram"
	"github.com/moongate-dev/moongate/internal/testkit"
)

func (g *gateway) udpListener(name string) *config.Resource {
	r := g.httpListener(name, "")
	r.GetListener().Protocol = config.Protocol_PROTOCOL_UDP
	return r
}

// udpEcho is a server of UDP that answers each datagram with its name and what it was sent. An empty name is left out.
func udpEcho(t testing.TB, name string) *net.UDPConn {
	t.Helper()
	c, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	go func() {
		b := make([]byte, 65535)
		for {
			n, from, err := c.ReadFromUDPAddrPort(b)
			if err != nil {
				return
			}
			c.WriteToUDPAddrPort(append([]byte(name), b[:n]...), from)
		}
	}()
	return c
}

// sender is a client of UDP.
func (g *gateway) sender() net.Conn {
	g.t.Helper()
	c, err := net.Dial("udp", g.addr())
	if err != nil {
		g.t.Fatal(err)
	}
	g.t.Cleanup(func() { c.Close() })
	return c
}

// ask sends a datagram until it is answered.
func ask(t testing.TB, c net.Conn, question string) string {
	t.Helper()
	b := make([]byte, 65535)
	for deadline := time.Now().Add(testkit.Patience); time.Now().Before(deadline); {
		c.Write([]byte(question))
		c.SetReadDeadline(time.Now().Add(time.Second))
		if n, err := c.Read(b); err == nil {
			return string(b[:n])
		}
	}
	t.Fatalf("no answer to %.100q", question)
	return ""
}

// serveUDP has datagrams go to these backends, by the same weight.
func (g *gateway) serveUDP(backends ...net.Addr) {
	g.t.Helper()
	up := []*config.Resource{g.udpListener("udp")}
	var refs []*config.BackendRef
	for i, b := range backends {
		key := fmt.Sprintf("Service/default/b%d/80", i)
		up = append(up, backend(key, b.String())...)
		refs = append(refs, &config.BackendRef{Backend: key, Weight: 1})
	}
	g.apply(append(up, l4RouteOf("r", "default/gw/udp", refs...)))
}

// TestUDP: each client address is a session, which is with one backend, chosen by weight, and is logged when it ends.
func TestUDP(t *testing.T) {
	t.Parallel()
	checkLeaks(t)
	g := startGateway(t, Timeouts{})
	g.apply(append(append(backend("Service/default/a/80", udpEcho(t, "a").LocalAddr().String()), backend("Service/default/b/80", udpEcho(t, "b").LocalAddr().String())...),
		g.udpListener("udp"), l4RouteOf("r", "default/gw/udp", &config.BackendRef{Backend: "Service/default/a/80", Weight: 3},
			&config.BackendRef{Backend: "Service/default/b/80", Weight: 1}, &config.BackendRef{Backend: "Service/default/b/80"})))
	if b := g.Bound(); len(b) != 1 || b[0].Routes != 1 || len(b[0].Addresses) != 1 {
		t.Errorf("%+v, want one listener with one route and one address", b)
	}
	names := map[string]int{}
	const clients = 80
	for range clients {
		c := g.sender()
		first := ask(t, c, "1")
		for range 3 {
			if again := ask(t, c, "1"); again != first {
				t.Fatalf("%q after %q in one session", again, first)
			}
		}
		names[first]++
	}
	if a, b := names["a1"], names["b1"]; a+b != clients || a < clients/2 || b < clients/16 {
		t.Errorf("chosen %v, want 3 to 1", names)
	}
	if n := g.sessions.Sessions(); n != clients {
		t.Errorf("%d sessions, want %d", n, clients)
	}
	g.apply(nil, config.ID{Kind: config.KindListener, Key: "default/gw/udp"})
	for _, w := range g.reasonsLogged(clients) {
		if w != "session_ended" {
			t.Fatalf("logged as %s", w)
		}
	}
	for _, want := range []string{`"scheme":"udp"`, `"protocol":"UDP"`, `"response_code":0`, `"bytes_sent":8,`, `"bytes_received":4,`} {
		if n := strings.Count(g.log.String(), want); n != clients {
			t.Errorf("%d lines with %s, want %d: %.500s", n, want, clients, g.log.String())
		}
	}
}

// TestUnknownFieldOfUDPListener: a listener with a field that is unknown forwards no datagrams, and ends its sessions.
func TestUnknownFieldOfUDPListener(t *testing.T) {
	t.Parallel()
	checkLeaks(t)
	g := startGateway(t, Timeouts{})
	g.serveUDP(udpEcho(t, "").LocalAddr())
	c := g.sender()
	ask(t, c, "1")
	g.closes(g.udpListener("udp"))
	for _, c := range []net.Conn{c, g.sender()} {
		c.Write([]byte("2"))
	}
	g.ends("session_ended", 1)
	g.ends("route_not_found", 2)
	g.apply([]*config.Resource{g.udpListener("udp")})
	if got := ask(t, c, "3"); got != "3" {
		t.Errorf("%q", got)
	}
}

// TestUnknownFieldOfUDPBackend: nothing is sent to a Backend with a field that is unknown, and its sessions end.
func TestUnknownFieldOfUDPBackend(t *testing.T) {
	t.Parallel()
	checkLeaks(t)
	g := startGateway(t, Timeouts{})
	g.serveUDP(udpEcho(t, "").LocalAddr())
	c := g.sender()
	ask(t, c, "1")
	const key = "Service/default/b0/80"
	plain := func() *config.Resource {
		return &config.Resource{Kind: &config.Resource_Backend{Backend: &config.Backend{Key: key}}}
	}
	strict := plain()
	addUnknown(t, strict.GetBackend())
	g.generation++
	if r := g.Apply(&config.Update{Generation: g.generation, Upserts: []*config.Resource{strict}}); len(r.Rejected) != 1 {
		t.Errorf("rejected: %v", r.Rejected)
	}
	for _, c := range []net.Conn{c, g.sender()} {
		c.Write([]byte("2"))
	}
	g.ends("session_ended", 1)
	g.ends("connect_failed", 2)
	g.apply([]*config.Resource{plain()})
	if got := ask(t, c, "3"); got != "3" {
		t.Errorf("%q", got)
	}
}

// TestUDPSizes: datagrams of every size pass whole, the empty one too.
func TestUDPSizes(t *testing.T) {
	t.Parallel()
	g := startGateway(t, Timeouts{})
	g.serveUDP(udpEcho(t, "").LocalAddr())
	c := g.sender()
	for _, size := range []int{1, 0, 1472, 1473, 9000, 65000, 65507} {
		sent := make([]byte, size)
		for i := range sent {
			sent[i] = byte(rand.Uint32())
		}
		if got := ask(t, c, string(sent)); !bytes.Equal([]byte(got), sent) {
			t.Errorf("%d bytes came back as %d others", size, len(got))
		}
	}
}

// TestUDPWildcard: answers come from the address that the client has sent to, also where the socket is bound to every address.
func TestUDPWildcard(t *testing.T) {
	t.Parallel()
	ipv4, ipv6 := []string{"127.0.0.1", "127.0.0.2", "127.9.9.9"}, []string(nil)
	if c, err := net.ListenPacket("udp", "[::1]:0"); err == nil { // where the machine has IPv6
		c.Close()
		ipv6 = append(ipv6, "::1")
	}
	answersFrom(t, nil, append(ipv4, ipv6...))
	answersFrom(t, []netip.Addr{netip.IPv4Unspecified()}, ipv4)
	answersFrom(t, []netip.Addr{netip.IPv6Unspecified()}, ipv6)
}

// answersFrom sends to the addresses of a listener of UDP.
func answersFrom(t *testing.T, bind []netip.Addr, to []string) {
	t.Helper()
	if len(to) == 0 {
		return
	}
	g := startGateway(t, Timeouts{})
	g.bindTo = bind
	g.serveUDP(udpEcho(t, "").LocalAddr())
	for _, ip := range to {
		c, err := net.ListenUDP("udp", nil) // not connected, so that it would take answers from anywhere
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		c.SetReadDeadline(time.Now().Add(testkit.Patience))
		at := netip.AddrPortFrom(netip.MustParseAddr(ip), uint16(g.port))
		if _, err := c.WriteToUDPAddrPort([]byte("hello"), at); err != nil {
			t.Fatal(err)
		}
		b := make([]byte, 10)
		n, from, err := c.ReadFromUDPAddrPort(b)
		if err != nil || string(b[:n]) != "hello" || netip.AddrPortFrom(from.Addr().Unmap(), from.Port()) != at {
			t.Errorf("sent to %v: %q from %v, %v", at, b[:n], from, err)
		}
	}
}

// TestUDPEndpointGone: a session whose endpoint does not listen, or is taken out of the configuration, ends, and the next datagram goes to another.
func TestUDPEndpointGone(t *testing.T) {
	t.Parallel()
	checkLeaks(t)
	g := startGateway(t, Timeouts{})
	a, b := udpEcho(t, "a"), udpEcho(t, "b")
	key := "Service/default/b/80"
	ref := &config.BackendRef{Backend: key, Weight: 1}
	g.apply(append(backend(key, a.LocalAddr().String()), g.udpListener("udp"), l4RouteOf("r", "default/gw/udp", ref)))
	c := g.sender()
	if got := ask(t, c, "1"); got != "a1" {
		t.Fatal(got)
	}
	g.apply(backend(key, a.LocalAddr().String(), b.LocalAddr().String()))
	g.apply([]*config.Resource{l4RouteOf("r", "default/gw/udp", ref, ref)})
	for range 3 {
		if got := ask(t, c, "1"); got != "a1" {
			t.Fatalf("%s after an edit that leaves the session its endpoint", got)
		}
	}
	a.Close()
	if got := ask(t, c, "2"); got != "b2" {
		t.Errorf("%s where the endpoint is not there, want b2", got)
	}
	if words := g.reasonsLogged(1); words[0] != "connect_failed" {
		t.Errorf("logged as %v", words)
	}
	third := udpEcho(t, "c")
	g.apply(backend(key, third.LocalAddr().String()))
	if got := ask(t, c, "3"); got != "c3" {
		t.Errorf("%s after the endpoint has left the configuration, want c3", got)
	}
	g.apply(append(backend("Service/default/d/80", udpEcho(t, "d").LocalAddr().String()), l4RouteOf("r", "default/gw/udp", &config.BackendRef{Backend: "Service/default/d/80", Weight: 1})))
	if got := ask(t, c, "4"); got != "d4" {
		t.Errorf("%s after the route has another backend, want d4", got)
	}
}

// ends waits until so many sessions and dropped datagrams have ended for a reason.
func (g *gateway) ends(reason string, n float64) {
	g.t.Helper()
	g.eventually(fmt.Sprintf("%v ended with %s", n, reason), func() bool { return g.counted("moongate_requests_total", "reason", reason) == n })
}

// TestUDPRefused: datagrams that have nobody to go to are dropped, and the log says why.
func TestUDPRefused(t *testing.T) {
	t.Parallel()
	ref := &config.BackendRef{Backend: "Service/default/b/80", Weight: 1}
	for name, tc := range map[string]struct {
		route  *config.Resource
		reason string
	}{
		"no route":        {nil, "route_not_found"},
		"no backend":      {l4RouteOf("r", "default/gw/udp"), "no_backend"},
		"invalid backend": {l4RouteOf("r", "default/gw/udp", &config.BackendRef{Weight: 1, Failure: &config.Failure{Status: 500, Reason: "backend_invalid"}}), "backend_invalid"},
		"no endpoint":     {l4RouteOf("r", "default/gw/udp", ref), "no_endpoints"},
	} {
		t.Run(name, func(t *testing.T) {
			checkLeaks(t)
			g := startGateway(t, Timeouts{})
			up := append(backend("Service/default/b/80"), g.udpListener("udp"))
			if tc.route != nil {
				up = append(up, tc.route)
			}
			g.apply(up)
			c := g.sender()
			for range 3 {
				c.Write([]byte("x"))
			}
			g.ends(tc.reason, 3) // each, the first or not
			if words := g.reasonsLogged(1); words[0] != tc.reason {
				t.Errorf("logged as %v, want %s", words, tc.reason)
			}
			g.apply(append(backend("Service/default/b/80", udpEcho(t, "").LocalAddr().String()), l4RouteOf("r", "default/gw/udp", ref)))
			if got := ask(t, c, "y"); got != "y" {
				t.Errorf("%q once there is a backend", got)
			}
		})
	}
}

// TestUDPShareWithoutEndpoints: a client that is assigned to a Service without endpoints stays with it until it has one; its datagrams do not reach the others.
func TestUDPShareWithoutEndpoints(t *testing.T) {
	t.Parallel()
	checkLeaks(t)
	g := startGateway(t, Timeouts{})
	const ready, empty = "Service/default/a/80", "Service/default/b/80"
	g.apply(append(append(backend(ready, udpEcho(t, "a").LocalAddr().String()), backend(empty)...), g.udpListener("udp"), l4RouteOf("r", "default/gw/udp",
		&config.BackendRef{Backend: ready, Weight: 1}, &config.BackendRef{Backend: empty, Weight: 1})))
	const datagrams = 20
	var dropping []net.Conn
	dropped := func() float64 { return g.counted("moongate_requests_total", "reason", "no_endpoints") }
	for clients := 1; len(dropping) < 2 || len(dropping) == clients; clients++ {
		c := g.sender()
		before, answers := dropped(), 0
		for i := range datagrams {
			c.Write([]byte("x"))
			g.eventually("an answer or a drop", func() bool {
				c.SetReadDeadline(time.Now().Add(time.Millisecond))
				if _, err := c.Read(make([]byte, 8)); err == nil {
					answers++
				}
				return answers+int(dropped()-before) > i
			})
		}
		if answers != 0 && answers != datagrams {
			t.Fatalf("%d of %d datagrams of a client were answered, want none or all", answers, datagrams)
		}
		if answers == 0 {
			dropping = append(dropping, c)
		}
	}
	g.apply(backend(empty, udpEcho(t, "b").LocalAddr().String())) // each of these clients is assigned to one of the two again
	for _, c := range dropping {
		if got := ask(t, c, "x"); got != "ax" && got != "bx" {
			t.Errorf("%q once there is an endpoint", got)
		}
	}
}

// TestUDPBounds: sessions are bounded, those that are there go on, and one that idles makes room.
func TestUDPBounds(t *testing.T) {
	t.Parallel()
	checkLeaks(t)
	g := startGatewayWith(t, Options{MaxSessions: 2, sessionIdle: 2 * time.Second})
	g.serveUDP(udpEcho(t, "").LocalAddr())
	first, second, third := g.sender(), g.sender(), g.sender()
	ask(t, first, "1")
	ask(t, second, "2")
	third.Write([]byte("3"))
	ask(t, first, "1")
	if n := g.sessions.Sessions(); n > 2 {
		t.Errorf("%d sessions", n)
	}
	if got := ask(t, third, "3"); got != "3" {
		t.Errorf("%q after the others idled", got)
	}
	if words := g.reasonsLogged(1); words[0] != "session_idle" {
		t.Errorf("logged as %v", words)
	}
}

// TestUDPOnce: a client that has sent one datagram is not remembered for as long as one that goes on.
func TestUDPOnce(t *testing.T) {
	t.Parallel()
	checkLeaks(t)
	g := startGatewayWith(t, Options{sessionOnce: 2 * time.Second})
	g.serveUDP(udpEcho(t, "").LocalAddr())
	more, once := g.sender(), g.sender()
	ask(t, more, "1")
	ask(t, more, "2")
	ask(t, once, "1")
	if words := g.reasonsLogged(1); words[0] != "session_idle" {
		t.Errorf("logged as %v", words)
	}
	if n := g.sessions.Sessions(); n != 1 {
		t.Errorf("%d sessions are left, want that of the client which has sent more", n)
	}
}

// TestUDPLoop: a route that leads back to its own listener sends no datagram round and round.
func TestUDPLoop(t *testing.T) {
	t.Parallel()
	checkLeaks(t)
	g := startGateway(t, Timeouts{})
	g.serveUDP(net.UDPAddrFromAddrPort(netip.MustParseAddrPort(g.addr())))
	g.sender().Write([]byte("x"))
	if words := g.reasonsLogged(1); words[0] != "loop_detected" {
		t.Errorf("logged as %v", words)
	}
	if n := g.sessions.Sessions(); n != 1 {
		t.Errorf("%d sessions, want that of the client", n)
	}
}

// TestUDPBesideTCP: a port number is one of TCP and another one of UDP.
func TestUDPBesideTCP(t *testing.T) {
	t.Parallel()
	g := startGateway(t, Timeouts{})
	g.serveUDP(udpEcho(t, "").LocalAddr())
	g.apply(append(backend("Service/default/t/80", greeting(t, "tcp")), g.tcpListener("tcp"),
		l4RouteOf("t", "default/gw/tcp", &config.BackendRef{Backend: "Service/default/t/80", Weight: 1})))
	if got := ask(t, g.sender(), "datagram"); got != "datagram" {
		t.Error(got)
	}
	b := make([]byte, 4)
	if _, err := g.dial().Read(b); err != nil || string(b) != "tcp\n" {
		t.Errorf("%q %v", b, err)
	}
}

// TestUDPShutdown: sessions go on and are begun while the gateway shuts down, and are cut when their time is over.
func TestUDPShutdown(t *testing.T) {
	t.Parallel()
	checkLeaks(t)
	g := startGateway(t, Timeouts{})
	g.serveUDP(udpEcho(t, "").LocalAddr())
	c := g.sender()
	ask(t, c, "1")
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- g.Shutdown(ctx) }()
	for range 20 {
		if got := ask(t, g.sender(), "x"); got != "x" {
			t.Errorf("%q in a session that begins", got)
		}
		if got := ask(t, c, "2"); got != "2" {
			t.Errorf("%q in a session that was there before", got)
		}
		time.Sleep(5 * time.Millisecond)
	}
	cancel()
	if err := <-ended; err != context.Canceled {
		t.Errorf("ended by %v", err)
	}
	if !strings.Contains(g.log.String(), `"shutting_down"`) {
		testkit.Eventually(t, "a line of the log", func() bool { return strings.Contains(g.log.String(), `"shutting_down"`) })
	}
}

// TestUDPShutdownWithoutEndpoints: a client whose datagrams go nowhere does not keep the gateway from its end.
func TestUDPShutdownWithoutEndpoints(t *testing.T) {
	t.Parallel()
	checkLeaks(t)
	g := startGateway(t, Timeouts{})
	g.apply([]*config.Resource{g.udpListener("udp"), l4RouteOf("r", "default/gw/udp", &config.BackendRef{Weight: 1, Failure: &config.Failure{Status: 500, Reason: "backend_invalid"}})})
	c := g.sender()
	c.Write([]byte("1"))
	testkit.Eventually(t, "a datagram that is dropped", func() bool { return strings.Contains(g.log.String(), `"backend_invalid"`) })
	ctx, cancel := context.WithTimeout(context.Background(), testkit.Patience)
	defer cancel()
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		for ctx.Err() == nil {
			c.Write([]byte("2"))
			time.Sleep(time.Millisecond)
		}
	}()
	if err := g.Shutdown(ctx); err != nil {
		t.Errorf("ended by %v", err)
	}
	cancel()
	<-sent
}

// TestUDPRelease: what an endpoint answers in a session is sent on when another process receives what clients send.
func TestUDPRelease(t *testing.T) {
	t.Parallel()
	checkLeaks(t)
	endpoint, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer endpoint.Close()
	g := startGateway(t, Timeouts{})
	g.serveUDP(endpoint.LocalAddr())
	c, b := g.sender(), make([]byte, 10)
	c.Write([]byte("1"))
	endpoint.SetDeadline(time.Now().Add(testkit.Patience))
	_, session, err := endpoint.ReadFromUDPAddrPort(b)
	if err != nil {
		t.Fatal(err)
	}
	if !g.Release(func(s syscall.Conn) bool { _, ok := s.(*datagram.Socket); return ok }) {
		t.Fatal("not released")
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- g.Shutdown(ctx) }()
	endpoint.WriteToUDPAddrPort([]byte("answer"), session)
	c.SetDeadline(time.Now().Add(testkit.Patience))
	if n, err := c.Read(b); string(b[:n]) != "answer" || err != nil {
		t.Errorf("%q, %v", b[:n], err)
	}
	c.Write([]byte("2"))
	endpoint.SetDeadline(time.Now().Add(100 * time.Millisecond))
	if n, _, err := endpoint.ReadFromUDPAddrPort(b); !os.IsTimeout(err) {
		t.Errorf("%q, %v: it is for the other process", b[:n], err)
	}
	cancel()
	if err := <-ended; err != nil && err != context.Canceled {
		t.Error(err)
	}
}

// TestUDPEdits: an edit of the route is in force for the next session, and so is its end.
func TestUDPEdits(t *testing.T) {
	t.Parallel()
	checkLeaks(t)
	g := startGateway(t, Timeouts{})
	g.serveUDP(udpEcho(t, "a").LocalAddr(), udpEcho(t, "b").LocalAddr())
	for _, to := range []string{"b0", "b1"} {
		g.apply([]*config.Resource{l4RouteOf("r", "default/gw/udp", &config.BackendRef{Backend: "Service/default/" + to + "/80", Weight: 1})})
		if got, want := ask(t, g.sender(), "1"), map[string]string{"b0": "a1", "b1": "b1"}[to]; got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	g.apply([]*config.Resource{l4RouteOf("q", "default/gw/udp", &config.BackendRef{Backend: "Service/default/b0/80", Weight: 1})})
	if got := ask(t, g.sender(), "1"); got != "a1" {
		t.Errorf("%q, want that of the first route by key", got)
	}
	g.apply(nil, config.ID{Kind: config.KindL4Route, Key: "TCPRoute/default/q"})
	if got := ask(t, g.sender(), "1"); got != "b1" {
		t.Errorf("%q, want that of the route that is left", got)
	}
}

// TestUDPPolicyBegins: a session stays at its endpoint when the Service becomes another backend, as it does when a policy begins to apply to it, unless
// that has not got the endpoint.
func TestUDPPolicyBegins(t *testing.T) {
	t.Parallel()
	checkLeaks(t)
	g := startGateway(t, Timeouts{})
	var addrs []string
	for _, name := range []string{"a", "b", "c", "d"} {
		addrs = append(addrs, udpEcho(t, name).LocalAddr().String())
	}
	const plain, policy = "Service/default/s/80", "Service/default/s/80/by/default/p"
	route := func(key string) *config.Resource {
		return l4RouteOf("r", "default/gw/udp", &config.BackendRef{Backend: key, Weight: 1})
	}
	g.apply(append(backend(plain, addrs...), g.udpListener("udp"), route(plain)))
	clients := map[net.Conn]string{}
	for range 12 {
		c := g.sender()
		clients[c] = ask(t, c, "1")
	}
	g.apply(append(backend(policy, addrs...), route(policy)))
	for c, at := range clients {
		if got := ask(t, c, "1"); got != at {
			t.Errorf("%q, want %q as before", got, at)
		}
	}
	if before, now := g.upstreams.Get(plain).Stats().InFlight, g.upstreams.Get(policy).Stats().InFlight; before != 0 || now != 12 {
		t.Errorf("%d and %d sessions are counted, want 0 and 12", before, now)
	}
	g.apply(append(backend(plain, addrs[1:]...), route(plain)), config.ID{Kind: config.KindBackend, Key: policy}, config.ID{Kind: config.KindEndpoints, Key: policy})
	for c, at := range clients {
		if got := ask(t, c, "1"); at != "a1" && got != at || got == "a1" {
			t.Errorf("%q, was %q before", got, at)
		}
	}
}
