package proxy

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/moongate-dev/moongate/internal/observe"
	"github.com/moongate-dev/moongate/internal/testkit"
)

// counted is the sum of a metric's series that have all the labels, given as name and value in turn.
func (g *gateway) counted(name string, labels ...string) (sum float64) {
	g.t.Helper()
	families, err := g.metrics.Gatherer().Gather()
	if err != nil {
		g.t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
	series:
		for _, m := range f.Metric {
			has := map[string]string{}
			for _, l := range m.Label {
				has[l.GetName()] = l.GetValue()
			}
			for i := 0; i < len(labels); i += 2 {
				if has[labels[i]] != labels[i+1] {
					continue series
				}
			}
			sum += m.GetCounter().GetValue() + m.GetGauge().GetValue()
		}
	}
	return sum
}

func (g *gateway) eventually(what string, done func() bool) {
	g.t.Helper()
	for deadline := time.Now().Add(testkit.Patience); !done(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			g.t.Fatalf("not in time: %s", what)
		}
	}
}

// patientBackend answers a request when it has read all of its body. One that answers before ends the connections of a
// crowd, which then make room for others.
func patientBackend(t *testing.T) string {
	return rawBackend(t, func(c net.Conn, r *bufio.Reader) {
		for {
			req, err := http.ReadRequest(r)
			if err != nil {
				return
			}
			if _, err := io.Copy(io.Discard, req.Body); err != nil {
				return
			}
			c.Write(cannedResponse(2))
		}
	})
}

// crowd connects n times and begins a request with a body on each connection that never ends. Some may be refused.
func (g *gateway) crowd(n int) (all []net.Conn) {
	g.t.Helper()
	for range n {
		c, err := net.Dial("tcp", g.addr())
		if errors.Is(err, syscall.ECONNRESET) { // it was refused so soon
			continue
		}
		if err != nil {
			g.t.Errorf("connecting: %v", err)
			continue
		}
		g.t.Cleanup(func() { c.Close() })
		io.WriteString(c, "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\nx")
		all = append(all, c)
	}
	return all
}

// dialFrom connects from an address of this machine, as another client.
func (g *gateway) dialFrom(ip string) net.Conn {
	g.t.Helper()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(ip)}}
	c, err := d.Dial("tcp", g.addr())
	if err != nil {
		g.t.Fatal(err)
	}
	c.SetDeadline(time.Now().Add(testkit.Patience))
	g.t.Cleanup(func() { c.Close() })
	return c
}

// get makes a request on c and returns the status.
func get(c net.Conn) (status int, err error) {
	if _, err = io.WriteString(c, "GET / HTTP/1.1\r\nHost: h\r\n\r\n"); err != nil {
		return 0, err
	}
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return 0, err
	}
	_, err = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode, err
}

const activeConnections, refusedConnections = "moongate_downstream_connections_active", "moongate_downstream_connections_refused_total"

// TestOneClientIsLimited: a client that opens as many connections as it can, and begins a request on each that never
// ends, gets no more than its limit, and others do not feel it.
func TestOneClientIsLimited(t *testing.T) {
	t.Parallel()
	checkLeaks(t)
	log := &testkit.Log{}
	g := startGatewayWith(t, Options{MaxConnections: 100, MaxConnectionsPerClient: 20, Metrics: observe.NewMetrics(observe.MetricsOptions{}),
		Logger: slog.New(slog.NewTextHandler(log, nil))})
	g.serve(patientBackend(t), nil)
	const attempts = 300
	held := g.crowd(attempts)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("refused: %v, active: %v, held: %d", g.counted(refusedConnections), g.counted(activeConnections), len(held))
		}
	})
	g.eventually("refusals", func() bool { return g.counted(refusedConnections, "limit", "connections_per_client") == attempts-20 })
	if n := g.counted(activeConnections); n != 20 {
		t.Errorf("%v connections of one client, its limit is 20", n)
	}
	for _, ip := range []string{"127.0.0.2", "127.0.0.3"} {
		for range 20 {
			if status, err := get(g.dialFrom(ip)); status != 200 || err != nil {
				t.Fatalf("another client got %d, %v", status, err)
			}
		}
	}
	refused := g.counted(refusedConnections)
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 3)}}
	if c, err := d.Dial("tcp", g.addr()); err == nil {
		defer c.Close()
	}
	g.eventually("the 21st connection of another client is refused", func() bool { return g.counted(refusedConnections) == refused+1 })
	if n := strings.Count(log.String(), "connections refused"); n == 0 || n > 5 {
		t.Errorf("%d lines for %d refusals:\n%s", n, attempts, log)
	}
	if !strings.Contains(log.String(), "reason=overloaded limit=connections_per_client client=127.0.0.1") {
		t.Errorf("logged:\n%s", log)
	}
	for _, c := range held {
		c.Close()
	}
	g.eventually("connections that have ended", func() bool { return g.counted(activeConnections) <= 40 })
	if status, err := get(g.dial()); status != 200 || err != nil {
		t.Errorf("the client has no connection any more and gets %d, %v", status, err)
	}
}

// TestTunnelsOverHTTP2AreLimited: a WebSocket over HTTP/2 counts as a connection of its client, from before its backend is asked until it has ended.
func TestTunnelsOverHTTP2AreLimited(t *testing.T) {
	t.Parallel()
	checkLeaks(t)
	addr, heads, accepted := switchingByKey(t)
	const most = 8
	g := startGatewayWith(t, Options{MaxConnections: 100, MaxConnectionsPerClient: most})
	g.serveWebSocket(addr, nil)
	p := g.connectPeer("")
	var open []*streamTunnel
	for range most - 1 {
		c := p.connect("websocket", "http://h/chat")
		if c.status() != "200" {
			t.Fatalf("a tunnel within the limit: %v", c.Header)
		}
		open = append(open, c)
		<-heads
	}
	refused := p.connect("websocket", "http://h/chat")
	if b, _ := io.ReadAll(refused); refused.status() != "503" || string(b) != "moongate: 503 overloaded\n" {
		t.Errorf("a tunnel too many: %v %q", refused.Header, b)
	}
	if len(heads) > 0 {
		t.Error("the backend was asked for it")
	}
	open[0].CloseWrite()
	(<-accepted).CloseWrite()
	io.ReadAll(open[0])
	g.eventually("room for another tunnel", func() bool { return p.connect("websocket", "http://h/chat").status() == "200" })
}

// TestAllConnectionsAreLimited: beyond the limit new connections are refused, but those that idle make room for them.
func TestAllConnectionsAreLimited(t *testing.T) {
	t.Parallel()
	checkLeaks(t)
	g := startGatewayWith(t, Options{MaxConnections: 32, MaxConnectionsPerClient: -1, Metrics: observe.NewMetrics(observe.MetricsOptions{})})
	g.serve(patientBackend(t), nil)
	g.crowd(100)
	g.eventually("refusals", func() bool { return g.counted(refusedConnections, "limit", "connections") == 68 })
	// One that was let in is counted as active by its own goroutine.
	g.eventually("as many connections as the limit", func() bool { return g.counted(activeConnections) >= 32 })
	if n := g.counted(activeConnections); n != 32 {
		t.Errorf("%v connections, the limit is 32", n)
	}
	idle := startGatewayWith(t, Options{MaxConnections: 32, MaxConnectionsPerClient: -1, Metrics: observe.NewMetrics(observe.MetricsOptions{})})
	idle.serve(cannedBackend(t, cannedResponse(2), 0), nil)
	for range 32 {
		idle.dial() // and says nothing
	}
	idle.eventually("a connection in place of one that idles", func() bool {
		c, err := net.Dial("tcp", idle.addr())
		if err != nil {
			return false // refused: none idles for long enough yet
		}
		defer c.Close()
		c.SetDeadline(time.Now().Add(testkit.Patience))
		status, err := get(c)
		return status == 200 && err == nil
	})
	idle.eventually("no more connections than the limit", func() bool { return idle.counted(activeConnections) <= 32 })
}

// TestIdlersMakeRoom: two clients that hold as many connections as they may, and ask nothing on them, keep out no other, whatever
// their connections wait for.
func TestIdlersMakeRoom(t *testing.T) {
	t.Parallel()
	hello := func(t *testing.T, c net.Conn, protocol string) net.Conn {
		secure := tls.Client(c, &tls.Config{InsecureSkipVerify: true, ServerName: "h", NextProtos: []string{protocol}})
		if err := secure.Handshake(); err != nil {
			return nil // it was refused
		}
		return secure
	}
	for name, hold := range map[string]func(*testing.T, net.Conn){
		"handshake": func(_ *testing.T, c net.Conn) { io.WriteString(c, "\x16\x03\x01") },
		"head": func(t *testing.T, c net.Conn) {
			if secure := hello(t, c, "http/1.1"); secure != nil {
				io.WriteString(secure, "GET / HTTP/1.1\r\nHost: h\r\nX-Slow: ")
			}
		},
		"HTTP/2": func(t *testing.T, c net.Conn) {
			if secure := hello(t, c, "h2"); secure != nil {
				io.WriteString(secure, http2.ClientPreface)
				fr := http2.NewFramer(secure, nil)
				fr.WriteSettings()
				fr.WriteSettingsAck()
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			checkLeaks(t)
			g := startGatewayWith(t, Options{MaxConnections: 32, MaxConnectionsPerClient: 16, Metrics: observe.NewMetrics(observe.MetricsOptions{}),
				Timeouts: Timeouts{Handshake: 10 * time.Minute, Head: 10 * time.Minute, Idle: 10 * time.Minute}})
			g.apply(append(backend("Service/default/b/80", cannedBackend(t, cannedResponse(2), 0)),
				certificate(t, "c", newECDSA(t), "h"), g.httpsListener("l", "", "c"), routeOf("r", "default/gw/l", "", anyRule())))
			for range 16 {
				for _, ip := range []string{"127.0.0.2", "127.0.0.3"} {
					hold(t, g.dialFrom(ip))
				}
			}
			d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 4)}}
			g.eventually("another client is served", func() bool {
				c, err := d.Dial("tcp", g.addr())
				if err != nil {
					return false
				}
				defer c.Close()
				c.SetDeadline(time.Now().Add(testkit.Patience))
				secure := hello(t, c, "http/1.1")
				if secure == nil {
					return false
				}
				status, err := get(secure)
				return status == 200 && err == nil
			})
		})
	}
}

// TestDefaultConnectionLimits: the defaults leave descriptors for endpoints, and connections for other clients.
func TestDefaultConnectionLimits(t *testing.T) {
	l := (&Options{}).connectionLimits()
	if l.Total != DefaultMaxConnections() || l.Total < 1 || l.PerClient != max(l.Total/4, 1) {
		t.Errorf("%+v", l)
	}
	if l := (&Options{MaxConnections: -1}).connectionLimits(); l.Total > 0 || l.PerClient > 0 {
		t.Errorf("without a limit: %+v", l)
	}
	if l := (&Options{MaxConnections: 10, MaxConnectionsPerClient: 3}).connectionLimits(); l.Total != 10 || l.PerClient != 3 {
		t.Errorf("set: %+v", l)
	}
}

// TestStalledUploadsStopNobody: uploads that the backend does not read hold up no other request of their connection, and
// what the connection holds of them is bounded.
func TestStalledUploadsStopNobody(t *testing.T) {
	t.Parallel()
	checkLeaks(t)
	const stalled = 60
	release := make(chan struct{})
	var waiting atomic.Int64
	addr := rawBackend(t, func(c net.Conn, r *bufio.Reader) {
		for {
			head, err := readHead(r)
			if err != nil {
				return
			}
			if strings.Contains(head, "/stall") {
				waiting.Add(1)
				<-release
				return
			}
			length, _ := strconv.Atoi(head[strings.Index(head, "Content-Length: ")+16:][:7])
			n, err := io.CopyN(io.Discard, r, int64(length))
			if err != nil {
				return
			}
			fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\n%d", n)
		}
	})
	g := startGateway(t, Timeouts{})
	g.serve(addr, nil)
	cc := g.http2Client("")
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel()
	defer close(release)
	for range stalled {
		all.Go(func() {
			req, _ := http.NewRequestWithContext(ctx, "POST", "http://h/stall", endless{})
			if resp, err := cc.RoundTrip(req); err == nil {
				resp.Body.Close()
			}
		})
	}
	g.eventually("uploads that stall", func() bool { return waiting.Load() == stalled })
	for range 4 { // each more than the window of the connection
		req, _ := http.NewRequestWithContext(ctx, "POST", "http://h/goes", bytes.NewReader(make([]byte, 2<<20)))
		late := time.AfterFunc(testkit.Patience, cancel)
		resp, err := cc.RoundTrip(req)
		if err != nil {
			t.Fatalf("an upload beside %d that stall: %v", stalled, err)
		}
		if b, err := io.ReadAll(resp.Body); string(b) != "2097152" || err != nil {
			t.Errorf("the backend got %q, %v", b, err)
		}
		late.Stop()
	}
}

// endless is a body without end.
type endless struct{}

func (endless) Read(p []byte) (int, error) { return len(p), nil }
