package e2e

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/sys/unix"

	"github.com/moongate-dev/moongate/internal/testkit"
	"github.com/moongate-dev/moongate/internal/testkit/dnsserver"
)

// connectionsBackend is an echo server of both versions of HTTP that knows its connections.
type connectionsBackend struct {
	*backend
	made   atomic.Int32
	closed sync.Map // remote addresses
}

func newConnectionsBackend(t *testing.T, handle http.HandlerFunc) *connectionsBackend {
	b := &connectionsBackend{backend: &backend{name: "app"}}
	b.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Connection", r.RemoteAddr)
		w.Header().Set("X-Protocol", r.Proto)
		handle(w, r)
	}))
	b.Config.Protocols = new(http.Protocols)
	b.Config.Protocols.SetHTTP1(true)
	b.Config.Protocols.SetUnencryptedHTTP2(true)
	b.Config.ConnState = func(c net.Conn, s http.ConnState) {
		switch s {
		case http.StateNew:
			b.made.Add(1)
		case http.StateClosed:
			b.closed.Store(c.RemoteAddr().String(), true)
		}
	}
	b.Start()
	t.Cleanup(b.Close)
	b.port = b.Listener.Addr().(*net.TCPAddr).Port
	return b
}

func TestExampleBackendTimeouts(t *testing.T) {
	t.Parallel()
	b := newConnectionsBackend(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/request", "/idle-stream/silent":
			<-r.Context().Done()
		case "/own":
			time.Sleep(time.Second) // twice the policy's timeout
		case "/idle-stream":
			io.WriteString(w, "some")
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		case "/idle-stream/busy", "/long-stream": // never as long as the timeout without a byte
			for range 30 {
				io.WriteString(w, "some")
				w.(http.Flusher).Flush()
				select {
				case <-time.After(50 * time.Millisecond):
				case <-r.Context().Done():
					return
				}
			}
		}
	})
	full := testkit.FullListener(t)
	e := servePolicyExample(t, "backend-timeouts", map[int]int{3000: b.port, 3001: full.Addr().(*net.TCPAddr).Port})
	e.page()
	e.wants("/own", 200, "ok")
	e.wants("/connect", 504, "connect_timeout")
	e.wants("/idle-stream/silent", 504, "stream_idle")
	for path, reason := range map[string]string{"/idle-stream": "stream_idle", "/long-stream": "stream_duration_exceeded"} {
		if _, err := (ask{url: e.url(path)}).try(); err == nil {
			t.Errorf("%s: the response has an end", path)
		}
		e.logs(path, reason)
	}

	begun := time.Now()
	connection := e.get("/idle-connection").Header.Get("X-Connection")
	testkit.Eventually(t, "the idle connection is closed", func() bool { _, closed := b.closed.Load(connection); return closed })
	if d := time.Since(begun); d > 30*time.Second { // without a policy it is 50 s
		t.Errorf("it is closed after %v", d)
	}
	connection = e.get("/old-connection").Header.Get("X-Connection")
	testkit.Eventually(t, "the connection is not used any more", func() bool { return e.get("/old-connection").Header.Get("X-Connection") != connection })
}

// framesBackend speaks HTTP/2 frame by frame, and remembers what a connection begins with and asks.
type framesBackend struct {
	port                 int
	streamWindow         atomic.Uint32 // by SETTINGS
	connWindow           atomic.Uint32 // by SETTINGS' default and WINDOW_UPDATE
	connections, streams atomic.Int32
	pings                atomic.Int32
	goOn                 chan bool // closed: streams are answered
}

func newFramesBackend(t *testing.T) *framesBackend {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	b := &framesBackend{port: l.Addr().(*net.TCPAddr).Port, goOn: make(chan bool)}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go b.serve(c)
		}
	}()
	return b
}

func (b *framesBackend) serve(c net.Conn) {
	defer c.Close()
	r := bufio.NewReader(c)
	if _, err := io.CopyN(io.Discard, r, int64(len(http2.ClientPreface))); err != nil {
		return
	}
	b.connections.Add(1)
	f := http2.NewFramer(c, r)
	var mu sync.Mutex // guards writing
	write := func(w func() error) {
		mu.Lock()
		defer mu.Unlock()
		w() //nolint:errcheck // the connection ends, which the reader finds
	}
	write(func() error { return f.WriteSettings() })
	for {
		frame, err := f.ReadFrame()
		if err != nil {
			return
		}
		switch frame := frame.(type) {
		case *http2.SettingsFrame:
			if !frame.IsAck() {
				if n, ok := frame.Value(http2.SettingInitialWindowSize); ok {
					b.streamWindow.Store(n)
				}
				write(f.WriteSettingsAck)
			}
		case *http2.WindowUpdateFrame:
			if frame.StreamID == 0 {
				b.connWindow.CompareAndSwap(0, 65535+frame.Increment) // the first
			}
		case *http2.PingFrame:
			if !frame.IsAck() {
				b.pings.Add(1)
				data := frame.Data
				write(func() error { return f.WritePing(true, data) })
			}
		case *http2.HeadersFrame:
			b.streams.Add(1)
			id := frame.StreamID
			go func() {
				<-b.goOn
				write(func() error { // 0x88 is :status 200 (RFC 7541 appendix A)
					return f.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: []byte{0x88}, EndHeaders: true, EndStream: true})
				})
			}()
		}
	}
}

func TestExampleBackendConnections(t *testing.T) {
	t.Parallel()
	var count attempts
	held, goOn := make(chan bool, 1), make(chan bool)
	app := newConnectionsBackend(t, func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		if n := count.of(r.URL.Path); r.Method == "POST" && n == 1 {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		if r.URL.Path == "/preconnect" {
			held <- true
			<-goOn
		}
		w.Write(body)
	})
	streams := newFramesBackend(t)
	cluster, endpoint := newBackend(t, "cluster", nil), newBackend(t, "endpoint", nil)
	api := newBackend(t, "api", nil)
	dns := dnsserver.Start(t)
	dns.Set(t, "api.example.com", "api.example.com. 3600 IN A 127.0.0.1", "api.example.com. 3600 IN AAAA 2001:db8::1")
	e := servePolicyExample(t, "backend-connections", map[int]int{3000: app.port, 3001: streams.port, 3002: cluster.port, 3003: endpoint.port, 3004: api.port}, asking(dns))
	e.write("allow.yaml", strings.TrimPrefix(allowLoopback, "---\n"))
	testkit.Eventually(t, "the host is reached", func() bool { return e.get("/dns").Header.Get("X-Backend") == "api" })
	e.page()

	// routingType
	if by := e.answered("/service", 5); by["cluster"] != 5 {
		t.Errorf("/service: %v, want the clusterIP", by)
	}

	// useClientProtocol
	clients := map[string]*http.Client{"HTTP/1.1": noRedirects, "HTTP/2.0": {Timeout: patience, Transport: &http.Transport{Protocols: new(http.Protocols)}}}
	h2c := clients["HTTP/2.0"].Transport.(*http.Transport)
	h2c.Protocols.SetUnencryptedHTTP2(true)
	defer h2c.CloseIdleConnections()
	for protocol, client := range clients {
		a := ask{url: e.url("/client-protocol"), client: client}.do(t)
		if got := a.Header.Get("X-Protocol"); got != protocol || a.Proto != protocol {
			t.Errorf("a client with %s: the backend has %s, the response %s", protocol, got, a.Proto)
		}
	}

	t.Run("preconnect", func(t *testing.T) {
		before := app.made.Load()
		status := e.inBackground("/preconnect")
		<-held
		testkit.Eventually(t, "there is a second connection", func() bool { return app.made.Load() >= before+2 })
		close(goOn)
		wantCode(t, "the request", status, 200)
	})
	t.Run("sockets", func(t *testing.T) {
		body := strings.Repeat("0123456789abcdef", 16<<10) // 256 KiB; without a policy 64 KiB are kept
		if a := (ask{method: "POST", url: e.url("/sockets/order"), body: body}).do(t); a.StatusCode != 200 || a.body != body {
			t.Errorf("a long POST that is sent again: %d, %d bytes", a.StatusCode, len(a.body))
		}
		from := e.get("/sockets").Header.Get("X-Connection")
		for name, want := range map[string][3]int{
			"SO_KEEPALIVE": {unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1}, "TCP_KEEPIDLE": {unix.IPPROTO_TCP, unix.TCP_KEEPIDLE, 60},
			"TCP_KEEPINTVL": {unix.IPPROTO_TCP, unix.TCP_KEEPINTVL, 10}, "TCP_KEEPCNT": {unix.IPPROTO_TCP, unix.TCP_KEEPCNT, 3},
			"SO_SNDBUF": {unix.SOL_SOCKET, unix.SO_SNDBUF, 128 << 10}, "SO_RCVBUF": {unix.SOL_SOCKET, unix.SO_RCVBUF, 128 << 10}, // Linux doubles them
		} {
			if got := socketOption(t, from, want[0], want[1]); got != want[2] {
				t.Errorf("%s is %d, want %d", name, got, want[2])
			}
		}
	})
	t.Run("http2", func(t *testing.T) {
		one, two := e.inBackground("/http2/one"), e.inBackground("/http2/two")
		testkit.Eventually(t, "each stream has a connection", func() bool { return streams.streams.Load() == 2 })
		if n := streams.connections.Load(); n != 2 {
			t.Errorf("%d connections, want 2", n)
		}
		close(streams.goOn)
		wantCode(t, "the first", one, 200)
		wantCode(t, "the second", two, 200)
		if n := streams.streamWindow.Load(); n != 128<<10 {
			t.Errorf("the window of a stream is %d", n)
		}
		if n := streams.connWindow.Load(); n != 2<<20 {
			t.Errorf("the window of a connection is %d", n)
		}
		testkit.Eventually(t, "PINGs", func() bool { return streams.pings.Load() >= 2 })
	})
	t.Run("dns", func(t *testing.T) {
		if n := e.metric("moongate_upstream_endpoints", "api"); n != 1 {
			t.Errorf("%v endpoints, want that of IPv4", n)
		}
		moved := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("X-Backend", "moved")
			io.WriteString(w, "{}")
		}))
		moved.Listener.Close()
		l, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", fmt.Sprintf("127.0.0.2:%d", api.port))
		if err != nil {
			t.Fatal(err)
		}
		moved.Listener = l
		moved.Start()
		t.Cleanup(moved.Close)
		dns.Set(t, "api.example.com", "api.example.com. 3600 IN A 127.0.0.2")
		testkit.Eventually(t, "the new address is found out though the TTL of the old one is an hour", func() bool { return e.get("/dns").Header.Get("X-Backend") == "moved" })
	})
}

// socketOption returns an option of this process's socket with the local address.
func socketOption(t *testing.T, local string, level, option int) int {
	t.Helper()
	_, port, err := net.SplitHostPort(local)
	if err != nil {
		t.Fatal(err)
	}
	want, _ := strconv.Atoi(port)
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		fd, _ := strconv.Atoi(entry.Name())
		address, err := unix.Getsockname(fd)
		if err != nil {
			continue
		}
		if a, ok := address.(*unix.SockaddrInet4); !ok || a.Port != want {
			continue
		}
		value, err := unix.GetsockoptInt(fd, level, option)
		if err != nil {
			t.Fatal(err)
		}
		return value
	}
	t.Fatalf("there is no socket with the address %s", local)
	return 0
}
