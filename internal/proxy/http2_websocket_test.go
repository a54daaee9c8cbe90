package proxy

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha1"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/moongate-dev/moongate/internal/config"
)

// acceptingKey answers a handshake as RFC 6455 section 4.2.2 has it.
func acceptingKey(head string) string {
	_, rest, _ := strings.Cut(head, "Sec-WebSocket-Key: ")
	key, _, _ := strings.Cut(rest, "\r\n")
	sum := sha1.Sum([]byte(key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"))
	return "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade, X-Hop\r\nX-Hop: 1\r\nUpgrade: websocket\r\nSec-WebSocket-Protocol: chat\r\nSec-WebSocket-Accept: " +
		base64.StdEncoding.EncodeToString(sum[:]) + "\r\n\r\n"
}

// switchingByKey is a backend that switches protocols whatever the key, tells the heads that it was sent, and hands its connections over.
func switchingByKey(t testing.TB) (addr string, heads <-chan string, accepted <-chan *net.TCPConn) {
	conns, heard, done := make(chan *net.TCPConn, 64), make(chan string, 64), make(chan struct{})
	addr = rawBackend(t, func(c net.Conn, r *bufio.Reader) {
		head, err := readHead(r)
		if err != nil {
			return
		}
		heard <- head
		if !strings.Contains(head, "Upgrade: websocket\r\n") {
			io.WriteString(c, "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok")
			return
		}
		io.WriteString(c, acceptingKey(head))
		conns <- c.(*net.TCPConn)
		<-done
	})
	t.Cleanup(func() { close(done) })
	return addr, heard, conns
}

// TestExtendedConnect opens WebSockets by HTTP/2, in the clear and over TLS, and looks at what the backend is asked, at what comes
// back, and at the bytes of both directions.
func TestExtendedConnect(t *testing.T) {
	t.Parallel()
	for _, sni := range []string{"", "example.org"} {
		t.Run("SNI "+sni, func(t *testing.T) {
			checkLeaks(t)
			addr, heads, accepted := switchingByKey(t)
			g := startGateway(t, Timeouts{})
			g.serveWebSocket(addr, nil)
			scheme := "http"
			if sni != "" {
				scheme = "https"
				g.apply([]*config.Resource{certificate(t, "c", newECDSA(t), sni), g.httpsListener("http", "", "c")})
			}
			p := g.connectPeer(sni)
			const clientKey = "dGhlIHNhbXBsZSBub25jZQ=="
			c := p.connect("websocket", scheme+"://example.org/chat/./x?a=b", "sec-websocket-key", clientKey, "sec-websocket-key", clientKey,
				"sec-websocket-protocol", "chat, superchat", "sec-websocket-extensions", "permessage-deflate", "te", "trailers", "x-forwarded-for", "6.6.6.6")
			if c.status() != "200" || c.Header.Get("Sec-Websocket-Protocol") != "chat" || c.Header.Get("Date") == "" {
				t.Errorf("%v", c.Header)
			}
			for _, name := range []string{"Sec-Websocket-Accept", "Upgrade", "Connection", "X-Hop", "Content-Length"} {
				if v, ok := c.Header[name]; ok {
					t.Errorf("%s: %q", name, v)
				}
			}
			head := <-heads
			for _, want := range []string{"GET /chat/x?a=b HTTP/1.1\r\nHost: example.org\r\n", "Connection: Upgrade\r\nUpgrade: websocket\r\n", "sec-websocket-version: 13\r\n",
				"sec-websocket-protocol: chat, superchat\r\n", "sec-websocket-extensions: permessage-deflate\r\n", "X-Forwarded-Proto: " + scheme + "\r\n"} {
				if !strings.Contains(head, want) {
					t.Errorf("no %q in %q", want, head)
				}
			}
			if strings.Count(strings.ToLower(head), "sec-websocket-key: ") != 1 || strings.Contains(head, clientKey) {
				t.Errorf("not one key of the gateway's own in %q", head)
			}
			for _, never := range []string{"\r\ncontent-length:", "\r\ntransfer-encoding:", "\r\nte:", ":protocol", "6.6.6.6"} { // keys are random
				if strings.Contains(strings.ToLower(head), never) {
					t.Errorf("%q in %q", never, head)
				}
			}
			backend := <-accepted
			want := make([]byte, 3<<20) // more than all windows
			rand.Read(want)
			var moves sync.WaitGroup
			moves.Go(func() { io.Copy(c, bytes.NewReader(want)); c.CloseWrite() })
			moves.Go(func() {
				if got, err := io.ReadAll(backend); err != nil || !bytes.Equal(got, want) {
					t.Errorf("the backend got %d bytes, %v", len(got), err)
				}
				backend.Write(want) // after the client's END_STREAM
				backend.CloseWrite()
			})
			if got, err := io.ReadAll(c); err != nil || !bytes.Equal(got, want) {
				t.Errorf("the client got %d bytes, %v", len(got), err)
			}
			moves.Wait()
			if words := g.reasonsLogged(1); words[0] != "upgraded" {
				t.Errorf("logged as %v", words)
			}
			for _, part := range []string{`"method":"GET"`, `"response_code":200`, `"protocol":"HTTP/2.0"`, `"path":"/chat/./x?a=b"`,
				fmt.Sprintf(`"bytes_received":%d`, len(want)), fmt.Sprintf(`"bytes_sent":%d`, len(want))} {
				if !strings.Contains(g.log.String(), part) {
					t.Errorf("no %s in %s", part, g.log.String())
				}
			}
		})
	}
}

// TestExtendedConnectGuards: what does not become a tunnel has an answer that says so, and the connection goes on.
func TestExtendedConnectGuards(t *testing.T) {
	t.Parallel()
	const websockets, plain = config.BackendProtocol_BACKEND_PROTOCOL_WEBSOCKET, config.BackendProtocol_BACKEND_PROTOCOL_HTTP
	for name, tc := range map[string]struct {
		protocol string
		host     string
		fields   []string
		backend  config.BackendProtocol
		response string // "" switches
		rule     func(*config.Rule)
		status   int
		gets     string
		reason   string
		asked    bool
	}{
		"refused":              {response: "HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno", backend: websockets, status: 403, gets: "no", reason: "ok", asked: true},
		"redirected":           {response: "HTTP/1.1 302 Found\r\nLocation: /x\r\nContent-Length: 0\r\n\r\n", backend: websockets, status: 302, reason: "ok", asked: true},
		"success, no switch":   {response: "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", backend: websockets, status: 502, gets: "moongate: 502 upstream_malformed\n", reason: "upstream_malformed", asked: true},
		"without proof":        {response: upgradeResponse, backend: websockets, status: 502, gets: "moongate: 502 upstream_malformed\n", reason: "upstream_malformed", asked: true},
		"of another backend":   {backend: plain, status: 501, gets: "moongate: 501 upgrade_ignored\n", reason: "upgrade_ignored"},
		"to another protocol":  {protocol: "connect-udp", backend: websockets, status: 501, gets: "moongate: 501 upgrade_ignored\n", reason: "upgrade_ignored"},
		"unknown expectation":  {fields: []string{"expect", "a-miracle"}, backend: websockets, status: 417, gets: "moongate: 417 expectation_failed\n", reason: "expectation_failed"},
		"of a method's rule":   {backend: websockets, rule: func(r *config.Rule) { r.Matches[0].Method = "CONNECT" }, status: 404, gets: "moongate: 404 route_not_found\n", reason: "route_not_found"},
		"in any case":          {protocol: "WebSocket", backend: websockets, rule: func(r *config.Rule) { r.Matches[0].Method = "GET" }, status: 200, reason: "upgraded", asked: true},
		"gRPC is no exception": {fields: []string{"te", "trailers", "content-type", "application/grpc"}, backend: plain, status: 501, gets: "moongate: 501 upgrade_ignored\n", reason: "upgrade_ignored"},
	} {
		t.Run(name, func(t *testing.T) {
			checkLeaks(t)
			asked := make(chan string, 4)
			addr := rawBackend(t, func(c net.Conn, r *bufio.Reader) {
				for {
					head, err := readHead(r)
					if err != nil {
						return
					}
					if strings.HasPrefix(head, "GET /next") {
						io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n/next")
						continue
					}
					asked <- head
					if tc.response != "" {
						io.WriteString(c, tc.response)
						continue
					}
					io.WriteString(c, acceptingKey(head))
					return
				}
			})
			g := startGateway(t, Timeouts{})
			g.serve(addr, func(r *config.Rule) {
				if len(r.Matches) == 0 {
					r.Matches = []*config.Match{{}}
				}
				if tc.rule != nil {
					tc.rule(r)
					r.Matches = append(r.Matches, &config.Match{Path: &config.PathMatch{Type: config.PathMatchType_PATH_MATCH_TYPE_EXACT, Value: "/next"}})
				}
			})
			g.apply([]*config.Resource{{Kind: &config.Resource_Backend{Backend: &config.Backend{Key: "Service/default/b/80", Protocol: tc.backend}}}})
			p := g.connectPeer("")
			if tc.protocol == "" {
				tc.protocol = "websocket"
			}
			c := p.connect(tc.protocol, "http://h/chat", tc.fields...)
			c.CloseWrite()
			if b, _ := io.ReadAll(c); c.status() != strconv.Itoa(tc.status) || string(b) != tc.gets {
				t.Errorf("%v %q, want %d %q", c.Header, b, tc.status, tc.gets)
			}
			if words := g.reasonsLogged(1); words[0] != tc.reason {
				t.Errorf("logged as %v, want %s", words, tc.reason)
			}
			if was := len(asked) > 0; was != tc.asked {
				t.Errorf("the backend was asked: %v, want %v", was, tc.asked)
			}
			if got := p.get("/next"); got != "200 /next <nil>" {
				t.Errorf("the next request: %s", got)
			}
		})
	}
}

// TestExtendedConnectMisdirected: a tunnel that belongs to another listener than the server name has chosen is refused as any request.
func TestExtendedConnectMisdirected(t *testing.T) {
	t.Parallel()
	checkLeaks(t)
	addr, _, _ := switchingByKey(t)
	g := startGateway(t, Timeouts{})
	g.serveWebSocket(addr, nil)
	g.apply([]*config.Resource{certificate(t, "c", newECDSA(t), "*.org"), g.httpsListener("http", "", "c"), g.httpsListener("second", "second-example.org", "c")})
	p := g.connectPeer("example.org")
	if c := p.connect("websocket", "https://second-example.org/"); c.status() != "421" {
		t.Errorf("%v, want 421", c.Header)
	}
}

// TestExtendedConnectEnds: half-closed ends go on, what one side breaks off is broken off to the other, and an edit changes nothing.
func TestExtendedConnectEnds(t *testing.T) {
	t.Parallel()
	checkLeaks(t)
	addr, _, accepted := switchingByKey(t)
	g := startGateway(t, Timeouts{})
	g.serveWebSocket(addr, func(r *config.Rule) { r.RequestTimeoutNanos = int64(300 * time.Millisecond) })
	p := g.connectPeer("")
	logged := 0
	open := func() (*streamTunnel, *net.TCPConn) {
		t.Helper()
		c := p.connect("websocket", "http://h/chat")
		if c.status() != "200" {
			t.Fatal(c.Header)
		}
		return c, <-accepted
	}
	ends := func(want string) {
		t.Helper()
		logged++
		if words := g.reasonsLogged(logged); words[logged-1] != want {
			t.Errorf("logged as %v, want %s", words, want)
		}
	}
	t.Run("half-closed by the backend", func(t *testing.T) {
		c, backend := open()
		backend.CloseWrite()
		if b, err := io.ReadAll(c); len(b) > 0 || err != nil {
			t.Errorf("%q %v", b, err)
		}
		time.Sleep(400 * time.Millisecond) // the rule's timeout is over with the response
		io.WriteString(c, "answer")
		c.CloseWrite()
		if b, err := io.ReadAll(backend); string(b) != "answer" || err != nil {
			t.Errorf("%q %v", b, err)
		}
		ends("upgraded")
	})
	t.Run("reset by the client", func(t *testing.T) {
		c, backend := open()
		c.Reset()
		if _, err := io.ReadAll(backend); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("the backend read up to %v", err)
		}
		ends("client_closed")
	})
	t.Run("reset by the backend", func(t *testing.T) {
		c, backend := open()
		backend.SetLinger(0)
		backend.Close()
		var reset http2.StreamError
		if _, err := io.ReadAll(c); !errors.As(err, &reset) || reset.Code != http2.ErrCodeCancel {
			t.Errorf("the client read up to %v", err)
		}
		ends("upstream_truncated")
	})
	t.Run("beside one that stalls", func(t *testing.T) {
		idle, stalled := open() // whose client reads nothing
		full := make(chan struct{})
		go func() {
			defer close(full)
			stalled.SetWriteDeadline(time.Now().Add(time.Second))
			for part, err := make([]byte, 64<<10), error(nil); err == nil; {
				_, err = stalled.Write(part)
			}
		}()
		c, backend := open()
		want := make([]byte, 2<<20)
		rand.Read(want)
		go func() { backend.Write(want); backend.CloseWrite() }()
		if got, err := io.ReadAll(c); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%d bytes, %v", len(got), err)
		}
		c.CloseWrite()
		ends("upgraded")
		<-full
		idle.Reset()
		ends("client_closed")
	})
	t.Run("after an edit, and by a drain", func(t *testing.T) {
		c, backend := open()
		g.apply(nil, config.ID{Kind: config.KindRoute, Key: "HTTPRoute/default/r"}, config.ID{Kind: config.KindBackend, Key: "Service/default/b/80"},
			config.ID{Kind: config.KindEndpoints, Key: "Service/default/b/80"}, config.ID{Kind: config.KindListener, Key: "default/gw/http"})
		g.Drain()
		for range 3 {
			io.WriteString(c, "ping")
			if _, err := io.ReadFull(backend, make([]byte, 4)); err != nil {
				t.Fatal(err)
			}
			io.WriteString(backend, "pong")
			if _, err := io.ReadFull(c, make([]byte, 4)); err != nil {
				t.Fatal(err)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		if err := g.Shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the tunnel was cut before its time: %v", err)
		}
		if _, err := io.ReadAll(c); err == nil {
			t.Error("the client was shown a regular end")
		}
		ends("shutting_down")
	})
}

// TestExtendedConnectIdle: a stream's tunnel ends when nothing has passed for a while, or a side takes nothing; its connection goes on.
func TestExtendedConnectIdle(t *testing.T) {
	t.Parallel()
	checkLeaks(t)
	addr, _, accepted := switchingByKey(t)
	for _, tc := range []struct {
		name     string
		timeouts Timeouts
		begin    func(c *streamTunnel, backend *net.TCPConn)
	}{
		{"idle", Timeouts{Tunnel: 500 * time.Millisecond}, func(c *streamTunnel, _ *net.TCPConn) { io.WriteString(c, "x") }},
		{"the client takes nothing", Timeouts{TunnelWrite: 500 * time.Millisecond}, func(_ *streamTunnel, backend *net.TCPConn) { backend.Write(make([]byte, 32<<20)) }},
		{"the backend takes nothing", Timeouts{TunnelWrite: 500 * time.Millisecond}, func(c *streamTunnel, _ *net.TCPConn) { c.Write(make([]byte, 32<<20)) }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			g := startGateway(t, tc.timeouts)
			g.serveWebSocket(addr, nil)
			p := g.connectPeer("")
			c := p.connect("websocket", "http://h/chat")
			backend := <-accepted
			go tc.begin(c, backend)
			if words := g.reasonsLogged(1); words[0] != "tunnel_idle" {
				t.Errorf("logged as %v", words)
			}
			if got := p.get("/next"); got != "200 ok <nil>" {
				t.Errorf("the next request: %s", got)
			}
		})
	}
}

// TestExtendedConnectFrames speaks frames: the setting is announced, what comes ahead of the answer waits for it, and a head may end the client's side.
func TestExtendedConnectFrames(t *testing.T) {
	t.Parallel()
	checkLeaks(t)
	addr, _, accepted := switchingByKey(t)
	g := startGateway(t, Timeouts{})
	g.serveWebSocket(addr, nil)
	conn := g.dial()
	conn.SetDeadline(time.Now().Add(30 * time.Second))
	io.WriteString(conn, http2.ClientPreface)
	f := &framePeer{Framer: http2.NewFramer(conn, conn), c: conn}
	f.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	f.WriteSettings()
	head := func(stream uint32, end bool) {
		f.head(stream, end, ":method", "CONNECT", ":protocol", "websocket", ":scheme", "http", ":path", "/chat", ":authority", "h", "sec-websocket-version", "13")
	}
	head(1, false)
	f.WriteData(1, false, []byte("early"))
	announced := false
	next := func() http2.Frame { // of a stream
		for {
			frame, err := f.ReadFrame()
			if err != nil {
				t.Fatal(err)
			}
			switch s, ok := frame.(*http2.SettingsFrame); {
			case ok && !s.IsAck():
				v, _ := s.Value(http2.SettingEnableConnectProtocol)
				announced = v == 1
				f.WriteSettingsAck()
			case frame.Header().StreamID != 0 && frame.Header().Type != http2.FrameWindowUpdate:
				return frame
			}
		}
	}
	opened := func(stream uint32) {
		t.Helper()
		if h, ok := next().(*http2.MetaHeadersFrame); !ok || h.StreamID != stream || h.PseudoValue("status") != "200" || h.StreamEnded() {
			t.Fatalf("%v", h)
		}
	}
	opened(1)
	if !announced {
		t.Error("SETTINGS_ENABLE_CONNECT_PROTOCOL is not announced")
	}
	backend := <-accepted
	b := make([]byte, 5)
	if _, err := io.ReadFull(backend, b); string(b) != "early" || err != nil {
		t.Errorf("%q %v", b, err)
	}
	f.WriteRSTStream(1, http2.ErrCodeCancel)
	if _, err := io.ReadAll(backend); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the backend read up to %v", err)
	}
	g.reasonsLogged(1) // the next stream may end before this one's line is written
	head(3, true)
	opened(3)
	backend = <-accepted
	if b, err := io.ReadAll(backend); len(b) > 0 || err != nil {
		t.Errorf("%q %v", b, err)
	}
	io.WriteString(backend, "bye")
	backend.CloseWrite()
	for got := ""; ; {
		d, ok := next().(*http2.DataFrame)
		if !ok {
			t.Fatal(d)
		}
		if got += string(d.Data()); !d.StreamEnded() {
			continue
		}
		if got != "bye" {
			t.Errorf("%q", got)
		}
		break
	}
	if words := g.reasonsLogged(2); strings.Join(words, " ") != "client_closed upgraded" {
		t.Errorf("logged as %v", words)
	}
}

// TestExtendedConnectIsARequest: filters answer an extended CONNECT and change it, mirrors get a copy that asks for nothing, and an endpoint that cannot be
// reached is followed by another.
func TestExtendedConnectIsARequest(t *testing.T) {
	t.Parallel()
	t.Run("redirect", func(t *testing.T) {
		checkLeaks(t)
		addr, _, _ := switchingByKey(t)
		g := startGateway(t, Timeouts{})
		g.serveWebSocket(addr, func(r *config.Rule) {
			r.Filters = append(r.Filters, filterOf(t, &config.RequestRedirect{Hostname: "new.test", StatusCode: 302}))
		})
		c := g.connectPeer("").connect("websocket", "http://h/chat")
		if c.status() != "302" || !strings.HasPrefix(c.Header.Get("location"), "http://new.test") {
			t.Errorf("%v", c.Header)
		}
		if words := g.reasonsLogged(1); words[0] != "redirect" {
			t.Errorf("logged as %v", words)
		}
	})
	t.Run("headers and mirror", func(t *testing.T) {
		checkLeaks(t)
		addr, heads, accepted := switchingByKey(t)
		mirror, copies, _ := switchingByKey(t)
		g := startGateway(t, Timeouts{})
		g.apply(backend(mirrorKey, mirror))
		g.apply([]*config.Resource{{Kind: &config.Resource_Backend{Backend: &config.Backend{Key: mirrorKey, Protocol: config.BackendProtocol_BACKEND_PROTOCOL_WEBSOCKET}}}})
		g.serveWebSocket(addr, func(r *config.Rule) {
			mirrorTo(t, mirrorKey)(r)
			r.Filters = append(r.Filters, filterOf(t, &config.RequestHeaderModifier{Set: []*config.HeaderField{{Name: "X-Set", Value: "yes"}}}),
				filterOf(t, &config.ResponseHeaderModifier{Set: []*config.HeaderField{{Name: "X-Answer", Value: "yes"}}}))
		})
		c := g.connectPeer("").connect("websocket", "http://h/chat")
		if c.status() != "200" || c.Header.Get("x-answer") != "yes" {
			t.Errorf("%v", c.Header)
		}
		if head := <-heads; !strings.Contains(head, "X-Set: yes\r\n") {
			t.Errorf("the backend was asked %q", head)
		}
		if head := <-copies; !strings.HasPrefix(head, "GET /chat HTTP/1.1\r\n") || strings.Contains(strings.ToLower(head), "\r\nupgrade:") {
			t.Errorf("the mirror was asked %q", head)
		}
		(<-accepted).CloseWrite()
		c.CloseWrite()
		if words := g.reasonsLogged(1); words[0] != "upgraded" {
			t.Errorf("logged as %v", words)
		}
	})
	t.Run("another endpoint", func(t *testing.T) {
		checkLeaks(t)
		addr, _, accepted := switchingByKey(t)
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		l.Close() // it refuses connections
		g := startGateway(t, Timeouts{})
		g.serveWebSocket(addr, nil)
		g.apply(backend("Service/default/b/80", addr, l.Addr().String()))
		g.apply([]*config.Resource{{Kind: &config.Resource_Backend{Backend: &config.Backend{Key: "Service/default/b/80", Protocol: config.BackendProtocol_BACKEND_PROTOCOL_WEBSOCKET}}}})
		p := g.connectPeer("")
		for range 8 { // one of two endpoints is drawn
			c := p.connect("websocket", "http://h/chat")
			if c.status() != "200" {
				t.Fatalf("%v", c.Header)
			}
			(<-accepted).CloseWrite()
			c.CloseWrite()
			if _, err := io.ReadAll(c); err != nil {
				t.Error(err)
			}
		}
	})
}

// TestExtendedConnectCORS: a CORS filter says on the response that begins a tunnel over HTTP/2 which scripts may read it, as on any other, and takes no such
// request for a preflight. Whom to refuse for an Origin is the server's to say (RFC 6455 section 10.2).
func TestExtendedConnectCORS(t *testing.T) {
	t.Parallel()
	checkLeaks(t)
	addr, heads, accepted := switchingByKey(t)
	g := startGateway(t, Timeouts{})
	g.serveWebSocket(addr, func(r *config.Rule) {
		r.Filters = []*anypb.Any{filterOf(t, &config.CORS{AllowOrigins: []string{"https://a.test"}, AllowCredentials: true, MaxAgeSeconds: 5})}
	})
	p := g.connectPeer("")
	for origin, allowed := range map[string]string{"https://a.test": "https://a.test", "https://b.test": ""} {
		c := p.connect("websocket", "http://h/chat", "origin", origin, "access-control-request-method", "GET")
		if got := c.Header.Get("Access-Control-Allow-Origin"); c.status() != "200" || got != allowed {
			t.Fatalf("%s: %v, want Access-Control-Allow-Origin %q", origin, c.Header, allowed)
		}
		if c.Header.Get("Sec-Websocket-Protocol") != "chat" || c.Header.Get("Access-Control-Max-Age") != "" {
			t.Errorf("%s: not the response of the backend: %v", origin, c.Header)
		}
		if head := <-heads; !strings.Contains(strings.ToLower(head), "\r\norigin: "+origin+"\r\n") {
			t.Errorf("%s: the backend was asked %q", origin, head)
		}
		backend := <-accepted
		passes(t, c, backend)
		passes(t, backend, c)
	}
}
